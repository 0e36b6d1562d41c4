//! The state as bytes, in parts.
//!
//! A snapshot is the partition's own part, then each entity's, then the entity's messages in parts
//! of bounded size. It is the state at one position: it shares what is large with the state, and is encoded when
//! it is written.

mod content;
mod loaded;
mod pages;
mod restore_left;
mod restore_pages;
mod size;
#[cfg(test)]
pub(crate) mod tests;

use std::sync::Arc;

use bytes::Bytes;

pub use self::content::{Snapshot, SnapshotParts};
pub use self::pages::{PageBytes, SnapshotPages};
pub use self::restore_pages::{DecodedPage, RestoringPages};
pub use self::size::StateSize;
use crate::catalogue::account::{account, put_account};
use crate::shared::Share;
use crate::state::{SnapshotHead, State};
use crate::table::RunLength;
use crate::table::codec::run_length;
use crate::vocabulary::Incarnation;
use crate::vocabulary::codec::{
    DecodeError, Reader, optional, put_bytes, put_optional, put_str, put_varint,
};
use crate::vocabulary::elements::{incarnation, put_service, put_time, service, time};
use crate::vocabulary::token::TokenCipher;

const VERSION: u8 = 1;

/// The version of the partition's part since it has the length of runs.
const PARTITION_VERSION: u8 = 2;

/// The others are kinds of a profile.
mod kind {
    pub(super) const PARTITION: u8 = 1;
    pub(super) const SERVICE_PROPERTIES: u8 = 5;
    pub(super) const ACCOUNT: u8 = 6;
}

impl SnapshotHead {
    /// Its parts.
    fn encode(self) -> Vec<Vec<u8>> {
        let accounts = self.accounts.values().map(|account| {
            let mut out = vec![kind::ACCOUNT, VERSION];
            put_account(&mut out, account);
            out
        });
        let properties = self.service_properties.iter();
        let properties = properties.map(|((service, account), properties)| {
            let mut out = vec![kind::SERVICE_PROPERTIES, VERSION];
            put_service(&mut out, *service);
            put_str(&mut out, account);
            put_bytes(&mut out, properties);
            out
        });
        let rest = accounts.chain(properties).collect::<Vec<_>>();
        std::iter::once(self.partition).chain(rest).collect()
    }
}

impl State {
    /// Begins a snapshot of the state as it is now. [`State::gather`] gathers it while the state changes.
    pub fn begin_snapshot(&mut self) {
        self.storage.begin();
        self.bus.begin();
        *self.gathering = Some(self.head());
    }

    /// Whether a snapshot is being gathered.
    pub fn is_gathering(&self) -> bool {
        self.gathering.is_some()
    }

    /// Gathers a piece of the snapshot that was begun, in about as many steps, of 20 ns each: one entity at least, so
    /// that it ends for every number of steps. Returns the snapshot once all of it is gathered.
    pub fn gather(&mut self, steps: u64) -> Option<Snapshot> {
        let mut left = steps.max(1);
        if !(self.storage.gather(&mut left) && self.bus.gather(&mut left)) {
            return None;
        }
        let mut head = self.gathering.take()?;
        let (queues, stored_marks) = self.storage.take_gathered();
        let (bus_queues, bus_marks) = self.bus.take_gathered();
        head.head_marks = [stored_marks, bus_marks];
        Some(Snapshot::new(head, queues, bus_queues))
    }

    /// The state as it is now, to be encoded later.
    pub fn share(&self) -> Snapshot {
        let queues = self.storage.iter();
        let queues = queues.map(|(incarnation, queue)| queue.share(*incarnation));
        let bus_queues = self.bus.iter();
        let bus_queues = bus_queues.map(|(incarnation, queue)| queue.share(*incarnation));
        Snapshot::new(self.head(), queues.collect(), bus_queues.collect())
    }

    /// Passes on the parts of a snapshot, in the order in which they must be restored.
    pub fn snapshot(&self, part: impl FnMut(&[u8])) {
        self.share().plan().pass(part);
    }

    fn head(&self) -> SnapshotHead {
        SnapshotHead {
            partition: self.partition_part(),
            run_length: self.catalogue.run_length,
            unit: self.catalogue.live.unit(),
            has_cold: self.needs_pages(),
            head_marks: Default::default(),
            accounts: self.catalogue.accounts.clone(),
            service_properties: self.catalogue.service_properties.clone(),
        }
    }

    fn partition_part(&self) -> Vec<u8> {
        let mut out = vec![kind::PARTITION, PARTITION_VERSION];
        put_optional(&mut out, self.catalogue.cipher.as_ref(), |out, cipher| {
            out.extend_from_slice(cipher.secret());
        });
        put_varint(&mut out, self.catalogue.next_incarnation.as_u64());
        put_time(&mut out, self.last_event_at());
        put_varint(&mut out, self.catalogue.run_length.as_u64());
        out
    }

    /// Adds a part of a snapshot to a state that began empty.
    pub fn restore(&mut self, part: &[u8]) -> Result<(), DecodeError> {
        let mut r = Reader::new(part);
        let (kind, version) = (r.u8()?, r.u8()?);
        let is_known =
            version == VERSION || (kind, version) == (kind::PARTITION, PARTITION_VERSION);
        if !is_known {
            return Err(r.error("snapshot part version that is not known"));
        }
        match kind {
            kind::PARTITION => self.restore_partition(&mut r, version)?,
            kind::SERVICE_PROPERTIES => {
                let place = (service(&mut r)?, r.str()?.into());
                let properties = Bytes::copy_from_slice(r.bytes()?);
                Arc::make_mut(&mut self.catalogue.service_properties).insert(place, properties);
            }
            kind::ACCOUNT => {
                let account = account(&mut r)?;
                Arc::make_mut(&mut self.catalogue.accounts).insert(account.name.clone(), account);
            }
            kind => {
                let catalogue = &mut self.catalogue;
                // An incarnation has one entity, of either profile.
                let stored = &self.storage;
                let is_taken = |entity: &Incarnation| stored.contains_key(entity);
                let is_known = self.bus.restore(catalogue, kind, &is_taken, &mut r)?
                    || self.storage.restore(catalogue, kind, &mut r)?;
                if !is_known {
                    return Err(r.error("snapshot part kind that is not known"));
                }
            }
        }
        r.finish()
    }

    fn restore_partition(&mut self, r: &mut Reader<'_>, version: u8) -> Result<(), DecodeError> {
        self.catalogue.cipher = optional(r, |r| Ok(TokenCipher::new(r.array()?)))?;
        self.catalogue.next_incarnation = incarnation(r)?;
        *self.last_event_at = time(r)?;
        self.catalogue.run_length = match version {
            PARTITION_VERSION => run_length(r)?,
            _ => RunLength::UNTOLD,
        };
        Ok(())
    }
}
