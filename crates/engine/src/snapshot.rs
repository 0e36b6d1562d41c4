//! The state as bytes, in parts.
//!
//! A snapshot is the partition's own part, then each entity's, then the entity's messages in parts
//! of bounded size. Nothing spans two parts, so that parts can later be written at different times.

use bytes::Bytes;
use kew_planted::{Bug, is_planted};

use crate::account::{account, put_account};
use crate::codec::{DecodeError, Reader, optional, put_bytes, put_optional, put_str, put_varint};
use crate::entity::Entity;
use crate::event::codec::{
    body, incarnation, metadata, name, put_body, put_metadata, put_name, put_service, put_time,
    sequence_number, service, time,
};
use crate::message::{Message, Placement};
use crate::policy::{policies, put_policies};
use crate::token::TokenCipher;
use crate::{Incarnation, LeaseGeneration, SequenceNumber, State};

const VERSION: u8 = 1;

mod kind {
    pub(super) const PARTITION: u8 = 1;
    pub(super) const QUEUE: u8 = 2;
    pub(super) const MESSAGES: u8 = 3;
    pub(super) const QUEUE_POLICIES: u8 = 4;
    pub(super) const SERVICE_PROPERTIES: u8 = 5;
    pub(super) const ACCOUNT: u8 = 6;
}

/// A part is closed once it has this many bytes.
const PART_SIZE_BYTES: usize = 256 * 1024;

impl State {
    /// Passes on the parts of a snapshot, in the order in which they must be restored.
    pub fn snapshot(&self, mut part: impl FnMut(&[u8])) {
        let mut out = vec![kind::PARTITION, VERSION];
        put_optional(&mut out, self.cipher.as_ref(), |out, cipher| {
            out.extend_from_slice(cipher.secret());
        });
        let mut next_incarnation = self.next_incarnation.as_u64();
        if is_planted(Bug::IncarnationsReused) {
            let last = self.entities.last_key_value();
            next_incarnation = last.map_or(1, |(incarnation, _)| incarnation.as_u64() + 1);
        }
        put_varint(&mut out, next_incarnation);
        put_time(&mut out, self.last_event_at);
        part(&out);
        self.snapshot_accounts(&mut out, &mut part);
        for (incarnation, entity) in &self.entities {
            out.clear();
            put_entity(&mut out, *incarnation, entity);
            part(&out);
            if !entity.policies.is_empty() && !is_planted(Bug::PoliciesForgotten) {
                out.clear();
                out.extend_from_slice(&[kind::QUEUE_POLICIES, VERSION]);
                put_varint(&mut out, incarnation.as_u64());
                put_policies(&mut out, &entity.policies);
                part(&out);
            }
            let start = |out: &mut Vec<u8>| {
                out.clear();
                out.extend_from_slice(&[kind::MESSAGES, VERSION]);
                put_varint(out, incarnation.as_u64());
            };
            start(&mut out);
            let empty = out.len();
            let mut before = None;
            for (sequence_number, message) in entity.backlog.messages() {
                if is_planted(Bug::BodyOfAnotherMessage)
                    && let Some(body) = before.replace(message.body)
                {
                    let message = Message {
                        body,
                        ..message.clone()
                    };
                    put_message(&mut out, sequence_number, &message);
                    continue;
                }
                put_message(&mut out, sequence_number, message);
                if out.len() >= PART_SIZE_BYTES {
                    part(&out);
                    start(&mut out);
                }
            }
            if out.len() > empty {
                part(&out);
            }
        }
        self.snapshot_bus(VERSION, &mut part);
    }

    fn snapshot_accounts(&self, out: &mut Vec<u8>, part: &mut impl FnMut(&[u8])) {
        for account in self.accounts.values() {
            out.clear();
            out.extend_from_slice(&[kind::ACCOUNT, VERSION]);
            put_account(out, account);
            part(out);
        }
        for ((service, account), properties) in &self.service_properties {
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
        let kind = r.u8()?;
        if r.u8()? != VERSION {
            return Err(r.error("snapshot part version that is not known"));
        }
        match kind {
            kind::PARTITION => self.restore_partition(&mut r)?,
            kind::QUEUE => self.restore_entity(&mut r)?,
            kind::MESSAGES => self.restore_messages(&mut r)?,
            kind::QUEUE_POLICIES => self.restore_policies(&mut r)?,
            kind::SERVICE_PROPERTIES => {
                let place = (service(&mut r)?, r.str()?.into());
                let properties = Bytes::copy_from_slice(r.bytes()?);
                self.service_properties.insert(place, properties);
            }
            kind::ACCOUNT => {
                let account = account(&mut r)?;
                self.accounts.insert(account.name.clone(), account);
            }
            kind => {
                if !self.restore_bus(kind, &mut r)? {
                    return Err(r.error("snapshot part kind that is not known"));
                }
            }
        }
        r.finish()
    }

    fn restore_partition(&mut self, r: &mut Reader<'_>) -> Result<(), DecodeError> {
        self.cipher = optional(r, |r| Ok(TokenCipher::new(r.array()?)))?;
        self.next_incarnation = incarnation(r)?;
        self.last_event_at = time(r)?;
        Ok(())
    }

    fn restore_entity(&mut self, r: &mut Reader<'_>) -> Result<(), DecodeError> {
        let incarnation = incarnation(r)?;
        let mut entity = Entity::new(name(r)?, metadata(r)?, time(r)?);
        entity.backlog.set_next(sequence_number(r)?);
        // A repeated part replaces the first.
        self.delete(incarnation);
        self.insert(incarnation, entity);
        Ok(())
    }

    fn restore_policies(&mut self, r: &mut Reader<'_>) -> Result<(), DecodeError> {
        let incarnation = incarnation(r)?;
        let policies = policies(r)?;
        let Some(entity) = self.entities.get_mut(&incarnation) else {
            return Err(r.error("access policies of a queue that is not there"));
        };
        entity.policies = policies;
        Ok(())
    }

    fn restore_messages(&mut self, r: &mut Reader<'_>) -> Result<(), DecodeError> {
        let incarnation = incarnation(r)?;
        let Some(entity) = self.entities.get_mut(&incarnation) else {
            return Err(r.error("messages of a queue that is not there"));
        };
        let next = entity.backlog.next();
        while !r.is_empty() {
            let sequence_number = sequence_number(r)?;
            if sequence_number >= next {
                return Err(r.error("message above its queue's next sequence number"));
            }
            let message = message(r)?;
            if !entity.backlog.restore(sequence_number, message) {
                return Err(r.error("messages out of order"));
            }
        }
        self.settle(incarnation);
        Ok(())
    }
}

fn put_entity(out: &mut Vec<u8>, incarnation: Incarnation, entity: &Entity) {
    out.extend_from_slice(&[kind::QUEUE, VERSION]);
    put_varint(out, incarnation.as_u64());
    put_name(out, &entity.name);
    put_metadata(out, &entity.metadata);
    put_time(out, entity.created_at);
    let mut next = entity.backlog.next().as_u64();
    if is_planted(Bug::SequenceNumbersReused) {
        let last = entity.backlog.messages().last();
        next = last.map_or(1, |(sequence_number, _)| sequence_number.as_u64() + 1);
    }
    put_varint(out, next);
}

fn put_message(out: &mut Vec<u8>, sequence_number: SequenceNumber, message: &Message) {
    put_varint(out, sequence_number.as_u64());
    put_time(out, message.inserted_at);
    put_time(out, message.expires_at);
    let is_forgotten = is_planted(Bug::LeasesForgotten);
    let visible_at = if is_forgotten {
        message.inserted_at
    } else {
        message.visible_at
    };
    put_time(out, visible_at);
    put_varint(out, u64::from(message.generation.as_u32()));
    let is_forgotten = is_planted(Bug::DeliveryCountsForgotten);
    let delivery_count = if is_forgotten {
        0
    } else {
        message.delivery_count
    };
    put_varint(out, u64::from(delivery_count));
    out.push(match message.placement {
        Placement::Fresh => 0,
        Placement::Timed => 1,
    });
    put_body(out, message.encoding, message.body);
}

fn message(r: &mut Reader<'_>) -> Result<Message, DecodeError> {
    let (inserted_at, expires_at, visible_at) = (time(r)?, time(r)?, time(r)?);
    let generation = LeaseGeneration::new(r.varint_u32()?);
    let delivery_count = r.varint_u32()?;
    let placement = match r.u8()? {
        0 => Placement::Fresh,
        1 => Placement::Timed,
        _ => return Err(r.error("placement that is not known")),
    };
    let (encoding, body) = body(r)?;
    Ok(Message {
        inserted_at,
        expires_at,
        visible_at,
        body,
        generation,
        delivery_count,
        encoding,
        placement,
    })
}
