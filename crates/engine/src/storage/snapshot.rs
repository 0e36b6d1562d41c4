//! Storage queues as parts of a snapshot: the queue, its policies, its messages.

use std::sync::Arc;

use super::backlog::stored;
use super::message::{self, Message};
use super::metadata::{metadata, put_metadata};
use super::policy::{policies, put_policies};
use super::{Entity, Queues};
use crate::catalogue::Catalogue;
use crate::shared::Share;
use crate::table::codec::{body, put_body};
use crate::table::{Record, Run, SharedRuns};
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

/// What a snapshot has of a queue.
#[derive(Debug)]
pub(crate) struct SharedQueue {
    pub(crate) incarnation: Incarnation,
    /// The parts with the queue and its policies, which are small.
    pub(crate) head: Vec<Vec<u8>>,
    pub(crate) runs: SharedRuns,
}

/// How long it takes to share a queue, in steps of 20 ns, without its references: two steps for each.
const SHARE_STEPS: u64 = 30;

impl Share for Entity {
    type Shared = SharedQueue;

    fn share(&self, incarnation: Incarnation) -> SharedQueue {
        let mut out = Vec::new();
        put_entity(&mut out, incarnation, self);
        let mut head = vec![out];
        if !self.policies.is_empty() {
            let mut out = vec![kind::QUEUE_POLICIES, VERSION];
            put_varint(&mut out, incarnation.as_u64());
            put_policies(&mut out, &self.policies);
            head.push(out);
        }
        SharedQueue {
            incarnation,
            head,
            runs: self.backlog.share(),
        }
    }

    fn steps(shared: &SharedQueue) -> u64 {
        let head_bytes: usize = shared.head.iter().map(Vec::len).sum();
        SHARE_STEPS + (head_bytes / 64 + shared.runs.len() * 2) as u64
    }
}

/// Puts the part with the messages of these runs.
pub(crate) fn put_messages(out: &mut Vec<u8>, incarnation: Incarnation, runs: &[Arc<Run>]) {
    out.extend_from_slice(&[kind::MESSAGES, VERSION]);
    put_varint(out, incarnation.as_u64());
    for entry in runs.iter().flat_map(|run| run.entries()) {
        let (sequence_number, message) = stored(entry);
        put_message(out, sequence_number, message);
    }
}

impl Queues {
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
        let is_in_order = entity.backlog.restore(&mut catalogue.live, || {
            if r.is_empty() {
                return Ok(None);
            }
            let sequence_number = sequence_number(r)?;
            if sequence_number >= next {
                return Err(r.error("message above its queue's next sequence number"));
            }
            Ok(Some((sequence_number, message(r)?)))
        })?;
        if !is_in_order {
            return Err(r.error("messages out of order"));
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
