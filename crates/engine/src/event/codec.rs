//! The bytes of events.

use bytes::Bytes;

use super::{Event, Fact};
use crate::bus::BusFact;
use crate::catalogue::account::{account, put_account};
use crate::storage::StorageFact;
use crate::table::Slots;
use crate::table::codec::run_length;
use crate::vocabulary::Timestamp;
use crate::vocabulary::codec::{DecodeError, Reader, put_bytes, put_str, put_varint};
use crate::vocabulary::elements::{
    incarnation, put_service, put_time, sequence_number, service, time,
};

/// The version of every event that this build writes.
pub(crate) const VERSION: u8 = 1;

/// The others are kinds of a profile, or of events of earlier versions.
mod kind {
    pub(super) const SERVICE_PROPERTIES_SET: u8 = 12;
    pub(super) const ACCOUNT_PUT: u8 = 13;
    pub(super) const ACCOUNT_REMOVED: u8 = 14;
    pub(super) const PARTITION_INITIALIZED: u8 = 16;
    pub(super) const QUARANTINED: u8 = 18;
    pub(super) const RUN_LOST: u8 = 19;
}

impl Event {
    /// Appends the event's bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match &self.fact {
            Fact::PartitionInitialized { secret, run_length } => {
                self.start(out, kind::PARTITION_INITIALIZED);
                out.extend_from_slice(secret);
                put_varint(out, run_length.as_u64());
            }
            Fact::ServicePropertiesSet {
                service,
                account,
                properties,
            } => {
                self.start(out, kind::SERVICE_PROPERTIES_SET);
                put_service(out, *service);
                put_str(out, account);
                put_bytes(out, properties);
            }
            Fact::AccountPut { account } => {
                self.start(out, kind::ACCOUNT_PUT);
                put_account(out, account);
            }
            Fact::AccountRemoved { account } => {
                self.start(out, kind::ACCOUNT_REMOVED);
                put_str(out, account);
            }
            Fact::Quarantined {
                entity,
                first,
                messages,
            } => {
                self.start(out, kind::QUARANTINED);
                put_varint(out, entity.as_u64());
                put_varint(out, first.as_u64());
                out.extend_from_slice(&messages.to_le_bytes());
            }
            Fact::RunLost { entity, number } => {
                self.start(out, kind::RUN_LOST);
                put_varint(out, entity.as_u64());
                put_varint(out, number.as_u64());
            }
            Fact::Storage(fact) => {
                self.start(out, fact.kind());
                fact.encode(out, self.at);
            }
            Fact::Bus(fact) => {
                self.start(out, fact.kind());
                fact.encode(out, self.at);
            }
        }
    }

    fn start(&self, out: &mut Vec<u8>, kind: u8) {
        out.extend_from_slice(&[kind, VERSION]);
        put_time(out, self.at);
    }

    /// Reads an event of this version. [`State::read_event`](crate::State::read_event) reads those
    /// of any version.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut r = Reader::new(bytes);
        let (kind, at) = head(&mut r)?;
        let fact = match kind {
            kind::PARTITION_INITIALIZED => Fact::PartitionInitialized {
                secret: r.array()?,
                run_length: run_length(&mut r)?,
            },
            kind::SERVICE_PROPERTIES_SET => Fact::ServicePropertiesSet {
                service: service(&mut r)?,
                account: r.str()?.into(),
                properties: Bytes::copy_from_slice(r.bytes()?),
            },
            kind::ACCOUNT_PUT => Fact::AccountPut {
                account: account(&mut r)?,
            },
            kind::ACCOUNT_REMOVED => Fact::AccountRemoved {
                account: r.str()?.into(),
            },
            kind::QUARANTINED => Fact::Quarantined {
                entity: incarnation(&mut r)?,
                first: sequence_number(&mut r)?,
                messages: Slots::from_le_bytes(r.array()?),
            },
            kind::RUN_LOST => Fact::RunLost {
                entity: incarnation(&mut r)?,
                number: sequence_number(&mut r)?,
            },
            kind if StorageFact::is_kind(kind) => {
                Fact::Storage(StorageFact::decode(kind, &mut r, at)?)
            }
            kind => Fact::Bus(BusFact::decode(kind, &mut r, at)?),
        };
        r.finish()?;
        Ok(Self { at, fact })
    }
}

/// The beginning of every event: its kind, and when it happened.
pub(crate) fn head(r: &mut Reader<'_>) -> Result<(u8, Timestamp), DecodeError> {
    let kind = r.u8()?;
    if r.u8()? != VERSION {
        return Err(r.error("event version that is not known"));
    }
    Ok((kind, time(r)?))
}
