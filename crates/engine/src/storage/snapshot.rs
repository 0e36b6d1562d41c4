//! Storage queues as parts of a snapshot: the queue, its policies, its messages.

use super::message::{self, Message};
use super::metadata::{metadata, put_metadata};
use super::policy::{policies, put_policies};
use super::{Entity, Queues};
use crate::catalogue::Catalogue;
use crate::table::Record;
use crate::table::codec::{body, put_body};
use crate::vocabulary::codec::{DecodeError, Reader, put_varint};
use crate::vocabulary::elements::{incarnation, name, put_name, put_time, sequence_number, time};
use crate::vocabulary::{Incarnation, LeaseGeneration, SequenceNumber};

/// The version of these parts.
const VERSION: u8 = 1;

mod kind {
    pub(super) const QUEUE: u8 = 2;
    pub(super) const MESSAGES: u8 = 3;
    pub(super) const QUEUE_POLICIES: u8 = 4;
}

/// A part is closed once it has this many bytes.
const PART_SIZE_BYTES: usize = 256 * 1024;

impl Queues {
    /// Hands out the parts of every queue.
    pub(crate) fn snapshot(&self, part: &mut dyn FnMut(&[u8])) {
        let mut out = Vec::new();
        for (incarnation, entity) in self.iter() {
            out.clear();
            put_entity(&mut out, *incarnation, entity);
            part(&out);
            if !entity.policies.is_empty() {
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
            for (sequence_number, message) in entity.backlog.messages() {
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
    }

    /// Adds a part to a state that is being restored. Returns false if the part is of another kind.
    pub(crate) fn restore(
        &mut self,
        catalogue: &mut Catalogue,
        (kind, version): (u8, u8),
        r: &mut Reader<'_>,
    ) -> Result<bool, DecodeError> {
        match (kind, version) {
            (kind::QUEUE, VERSION) => self.restore_entity(catalogue, r)?,
            (kind::MESSAGES, VERSION) => self.restore_messages(catalogue, r)?,
            (kind::QUEUE_POLICIES, VERSION) => self.restore_policies(r)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn restore_entity(
        &mut self,
        catalogue: &mut Catalogue,
        r: &mut Reader<'_>,
    ) -> Result<(), DecodeError> {
        let incarnation = incarnation(r)?;
        let mut entity = Entity::new(name(r)?, metadata(r)?, time(r)?, catalogue.run_length);
        entity.backlog.set_next(sequence_number(r)?);
        // A repeated part replaces the first.
        self.delete(catalogue, incarnation);
        self.add(catalogue, incarnation, entity);
        Ok(())
    }

    fn restore_policies(&mut self, r: &mut Reader<'_>) -> Result<(), DecodeError> {
        let incarnation = incarnation(r)?;
        let policies = policies(r)?;
        let Some(entity) = self.get_mut(&incarnation) else {
            return Err(r.error("access policies of a queue that is not there"));
        };
        entity.policies = policies;
        Ok(())
    }

    fn restore_messages(
        &mut self,
        catalogue: &mut Catalogue,
        r: &mut Reader<'_>,
    ) -> Result<(), DecodeError> {
        let incarnation = incarnation(r)?;
        let Some(entity) = self.get_mut(&incarnation) else {
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
        self.settle(catalogue, incarnation);
        Ok(())
    }
}

fn put_entity(out: &mut Vec<u8>, incarnation: Incarnation, entity: &Entity) {
    out.extend_from_slice(&[kind::QUEUE, VERSION]);
    put_varint(out, incarnation.as_u64());
    put_name(out, &entity.name);
    put_metadata(out, &entity.metadata);
    put_time(out, entity.created_at);
    put_varint(out, entity.backlog.next().as_u64());
}

fn put_message(out: &mut Vec<u8>, sequence_number: SequenceNumber, message: Message) {
    put_varint(out, sequence_number.as_u64());
    put_time(out, message.enqueued_at);
    put_time(out, message.expires_at);
    put_time(out, message.due_at);
    put_varint(out, u64::from(message.generation.as_u32()));
    put_varint(out, u64::from(message.deliveries));
    out.push(message.is_timed().into());
    put_body(out, message.encoding, message.body);
}

fn message(r: &mut Reader<'_>) -> Result<Message, DecodeError> {
    let (enqueued_at, expires_at, due_at) = (time(r)?, time(r)?, time(r)?);
    let generation = LeaseGeneration::new(r.varint_u32()?);
    let deliveries = r.varint_u32()?;
    let is_timed = match r.u8()? {
        0 => false,
        1 => true,
        _ => return Err(r.error("placement that is not known")),
    };
    let (encoding, body) = body(r)?;
    Ok(Message(Record {
        expires_at,
        due_at,
        generation,
        deliveries,
        state: message::state(is_timed),
        encoding,
        ..Record::ready(enqueued_at, body)
    }))
}
