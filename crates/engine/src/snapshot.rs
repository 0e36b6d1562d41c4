//! The state as bytes, in parts.
//!
//! A snapshot is the partition's own part, then each entity's, then the entity's messages in parts
//! of bounded size. Nothing spans two parts, so that parts can later be written at different times.

mod size;

use bytes::Bytes;

use crate::catalogue::account::{account, put_account};
use crate::state::State;
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

impl State {
    /// Passes on the parts of a snapshot, in the order in which they must be restored.
    pub fn snapshot(&self, mut part: impl FnMut(&[u8])) {
        let mut out = vec![kind::PARTITION, PARTITION_VERSION];
        put_optional(&mut out, self.catalogue.cipher.as_ref(), |out, cipher| {
            out.extend_from_slice(cipher.secret());
        });
        put_varint(&mut out, self.catalogue.next_incarnation.as_u64());
        put_time(&mut out, self.last_event_at());
        put_varint(&mut out, self.catalogue.run_length.as_u64());
        part(&out);
        self.snapshot_accounts(&mut out, &mut part);
        self.storage.snapshot(&mut part);
        self.bus.snapshot(VERSION, &mut part);
    }

    fn snapshot_accounts(&self, out: &mut Vec<u8>, part: &mut impl FnMut(&[u8])) {
        for account in self.catalogue.accounts.values() {
            out.clear();
            out.extend_from_slice(&[kind::ACCOUNT, VERSION]);
            put_account(out, account);
            part(out);
        }
        for ((service, account), properties) in &self.catalogue.service_properties {
            out.clear();
            out.extend_from_slice(&[kind::SERVICE_PROPERTIES, VERSION]);
            put_service(out, *service);
            put_str(out, account);
            put_bytes(out, properties);
            part(out);
        }
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
                self.catalogue.service_properties.insert(place, properties);
            }
            kind::ACCOUNT => {
                let account = account(&mut r)?;
                self.catalogue
                    .accounts
                    .insert(account.name.clone(), account);
            }
            kind => {
                let catalogue = &mut self.catalogue;
                // An incarnation has one entity, of either profile.
                let stored = &self.storage;
                let is_taken = |entity: &Incarnation| stored.contains_key(entity);
                let is_known = self.bus.restore(catalogue, kind, &is_taken, &mut r)?
                    || self.storage.restore(catalogue, (kind, version), &mut r)?;
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
