//! The bytes of events, and the elements that snapshots share with them.

use std::sync::Arc;

use bytes::Bytes;

use super::{Event, Fact};
use crate::account::{account, put_account};
use crate::bus::BusFact;
use crate::bus::effect::codec as bus_effects;
use crate::codec::{DecodeError, Reader, put_bytes, put_str, put_varint};
use crate::effect::codec::{effects, put_effects};
use crate::policy::{policies, put_policies};
use crate::{
    BodyEncoding, BodyLocation, EntityName, Incarnation, Metadata, SequenceNumber, Service,
    Timestamp,
};

/// The version of every event that this build writes.
pub(crate) const VERSION: u8 = 1;

mod kind {
    pub(super) const PARTITION_INITIALIZED: u8 = 1;
    pub(super) const QUEUE_CREATED: u8 = 2;
    pub(super) const QUEUE_DELETED: u8 = 3;
    pub(super) const QUEUE_METADATA_SET: u8 = 4;
    // 5 to 10 are events of earlier versions: `migrate` reads them.
    pub(super) const QUEUE_POLICIES_SET: u8 = 11;
    pub(super) const SERVICE_PROPERTIES_SET: u8 = 12;
    pub(super) const ACCOUNT_PUT: u8 = 13;
    pub(super) const ACCOUNT_REMOVED: u8 = 14;
    pub(super) const MESSAGES: u8 = 15;
    // Others from 64 on are kinds of `BusFact`, or events of earlier versions.
    pub(super) const BUS_MESSAGES: u8 = 82;
}

impl Event {
    /// Appends the event's bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match &self.fact {
            Fact::PartitionInitialized { secret } => {
                self.start(out, kind::PARTITION_INITIALIZED);
                out.extend_from_slice(secret);
            }
            Fact::QueueCreated {
                queue,
                name,
                metadata,
            } => {
                self.start_for(out, kind::QUEUE_CREATED, *queue);
                put_name(out, name);
                put_metadata(out, metadata);
            }
            Fact::QueueDeleted { queue } => self.start_for(out, kind::QUEUE_DELETED, *queue),
            Fact::QueueMetadataSet { queue, metadata } => {
                self.start_for(out, kind::QUEUE_METADATA_SET, *queue);
                put_metadata(out, metadata);
            }
            Fact::Messages { effects } => {
                self.start(out, kind::MESSAGES);
                put_effects(out, self.at, effects);
            }
            Fact::QueuePoliciesSet { queue, policies } => {
                self.start_for(out, kind::QUEUE_POLICIES_SET, *queue);
                put_policies(out, policies);
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
            Fact::BusMessages { effects } => {
                self.start(out, kind::BUS_MESSAGES);
                bus_effects::put_effects(out, self.at, effects);
            }
            Fact::Bus(fact) => {
                self.start(out, fact.kind());
                fact.encode(out);
            }
        }
    }

    fn start(&self, out: &mut Vec<u8>, kind: u8) {
        out.extend_from_slice(&[kind, VERSION]);
        put_time(out, self.at);
    }

    fn start_for(&self, out: &mut Vec<u8>, kind: u8, queue: Incarnation) {
        self.start(out, kind);
        put_varint(out, queue.as_u64());
    }

    /// Reads an event of this version. [`State::read_event`](crate::State::read_event) reads those
    /// of any version.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut r = Reader::new(bytes);
        let (kind, at) = head(&mut r)?;
        let fact = match kind {
            kind::PARTITION_INITIALIZED => Fact::PartitionInitialized { secret: r.array()? },
            kind::QUEUE_CREATED => Fact::QueueCreated {
                queue: incarnation(&mut r)?,
                name: name(&mut r)?,
                metadata: metadata(&mut r)?,
            },
            kind::QUEUE_DELETED => Fact::QueueDeleted {
                queue: incarnation(&mut r)?,
            },
            kind::QUEUE_METADATA_SET => Fact::QueueMetadataSet {
                queue: incarnation(&mut r)?,
                metadata: metadata(&mut r)?,
            },
            kind::MESSAGES => Fact::Messages {
                effects: effects(&mut r, at)?,
            },
            kind::QUEUE_POLICIES_SET => Fact::QueuePoliciesSet {
                queue: incarnation(&mut r)?,
                policies: policies(&mut r)?,
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
            kind::BUS_MESSAGES => Fact::BusMessages {
                effects: bus_effects::effects(&mut r, at)?,
            },
            kind => Fact::Bus(BusFact::decode(kind, &mut r)?),
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

/// A time, with [`Timestamp::NEVER`] as 0, because it is the most frequent of the large ones.
pub(crate) fn put_time(out: &mut Vec<u8>, time: Timestamp) {
    put_varint(out, time.as_ms().wrapping_add(1));
}

pub(crate) fn time(r: &mut Reader<'_>) -> Result<Timestamp, DecodeError> {
    Ok(Timestamp::from_ms(r.varint()?.wrapping_sub(1)))
}

pub(crate) fn incarnation(r: &mut Reader<'_>) -> Result<Incarnation, DecodeError> {
    r.varint_bits(Incarnation::BITS).map(Incarnation::new)
}

pub(crate) fn sequence_number(r: &mut Reader<'_>) -> Result<SequenceNumber, DecodeError> {
    r.varint_bits(SequenceNumber::BITS).map(SequenceNumber::new)
}

pub(crate) fn put_name(out: &mut Vec<u8>, name: &EntityName) {
    put_service(out, name.service);
    put_str(out, &name.account);
    put_str(out, &name.name);
}

pub(crate) fn put_service(out: &mut Vec<u8>, service: Service) {
    out.push(match service {
        Service::QueueStorage => 1,
        Service::ServiceBus => 2,
    });
}

pub(crate) fn service(r: &mut Reader<'_>) -> Result<Service, DecodeError> {
    match r.u8()? {
        1 => Ok(Service::QueueStorage),
        2 => Ok(Service::ServiceBus),
        _ => Err(r.error("service that is not known")),
    }
}

pub(crate) fn name(r: &mut Reader<'_>) -> Result<EntityName, DecodeError> {
    let service = service(r)?;
    let account: Arc<str> = r.str()?.into();
    let name: Box<str> = r.str()?.into();
    Ok(EntityName {
        service,
        account,
        name,
    })
}

pub(crate) fn put_metadata(out: &mut Vec<u8>, metadata: &Metadata) {
    put_varint(out, metadata.len() as u64);
    for (name, value) in metadata.iter() {
        put_bytes(out, name.as_bytes());
        put_bytes(out, value.as_bytes());
    }
}

pub(crate) fn metadata(r: &mut Reader<'_>) -> Result<Metadata, DecodeError> {
    let count = r.varint()?;
    // Collecting through a `Result` takes no capacity from `count`, which is not checked yet.
    (0..count).map(|_| Ok((r.str()?, r.str()?))).collect()
}

pub(crate) fn put_body(out: &mut Vec<u8>, encoding: BodyEncoding, body: BodyLocation) {
    out.push(match encoding {
        BodyEncoding::Text => 1,
        BodyEncoding::Raw => 2,
    });
    put_location(out, body);
}

pub(crate) fn body(r: &mut Reader<'_>) -> Result<(BodyEncoding, BodyLocation), DecodeError> {
    let encoding = match r.u8()? {
        1 => BodyEncoding::Text,
        2 => BodyEncoding::Raw,
        _ => return Err(r.error("body encoding that is not known")),
    };
    Ok((encoding, location(r)?))
}

pub(crate) fn put_location(out: &mut Vec<u8>, location: BodyLocation) {
    put_varint(out, location.record);
    put_varint(out, u64::from(location.offset));
    put_varint(out, u64::from(location.length));
}

pub(crate) fn location(r: &mut Reader<'_>) -> Result<BodyLocation, DecodeError> {
    Ok(BodyLocation {
        record: r.varint()?,
        offset: r.varint_u32()?,
        length: r.varint_u32()?,
    })
}
