//! Storage queues as parts of a snapshot: the queue, its policies, its messages.

use super::message::{self, timed_at};
use super::metadata::{metadata, put_metadata};
use super::policy::{policies, put_policies};
use super::{Entity, Queues};
use crate::catalogue::Catalogue;
use crate::queues::snapshot::{SharedQueue, put_head};
use crate::shared::Share;
use crate::table::Record;
use crate::table::codec::{placed, put_body};
use crate::vocabulary::codec::{DecodeError, Reader, put_varint};
use crate::vocabulary::elements::{incarnation, name, put_name, put_time, sequence_number, time};
use crate::vocabulary::{Incarnation, LeaseGeneration};

pub(super) mod kind {
    pub(in crate::storage) const QUEUE: u8 = 2;
    pub(in crate::storage) const MESSAGES: u8 = 3;
    pub(in crate::storage) const QUEUE_POLICIES: u8 = 4;
}

impl Share for Entity {
    type Shared = SharedQueue;

    fn share(&self, incarnation: Incarnation) -> SharedQueue {
        let mut out = Vec::new();
        put_head(&mut out, kind::QUEUE, incarnation);
        put_entity(&mut out, self);
        let mut head = vec![out];
        if !self.policies.is_empty() {
            let mut out = Vec::new();
            put_head(&mut out, kind::QUEUE_POLICIES, incarnation);
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
        shared.steps(0)
    }
}

impl Queues {
    /// Adds a part to a state that is being restored. Returns false if the part is of another kind.
    pub(crate) fn restore(
        &mut self,
        catalogue: &mut Catalogue,
        kind: u8,
        r: &mut Reader<'_>,
    ) -> Result<bool, DecodeError> {
        match kind {
            kind::QUEUE => self.restore_entity(catalogue, r)?,
            kind::MESSAGES => {
                let incarnation = incarnation(r)?;
                self.restore_messages(catalogue, incarnation, r)?;
            }
            kind::QUEUE_POLICIES => self.restore_policies(r)?,
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
}

fn put_entity(out: &mut Vec<u8>, entity: &Entity) {
    put_name(out, &entity.name);
    put_metadata(out, &entity.metadata);
    put_time(out, entity.created_at);
    put_varint(out, entity.backlog.next().as_u64());
}

/// Writes a message behind its number.
pub(super) fn put_message(out: &mut Vec<u8>, message: &Record) {
    put_time(out, message.enqueued_at);
    put_time(out, message.expires_at);
    put_time(out, message.due_at);
    put_varint(out, u64::from(message.generation.as_u32()));
    put_varint(out, u64::from(message.deliveries));
    out.push(timed_at(message).is_some().into());
    put_body(out, message.encoding, message.body);
}

/// Reads a message behind its number.
pub(super) fn message(r: &mut Reader<'_>) -> Result<Record, DecodeError> {
    let (enqueued_at, expires_at, due_at) = (time(r)?, time(r)?, time(r)?);
    let generation = LeaseGeneration::new(r.varint_u32()?);
    let deliveries = r.varint_u32()?;
    let is_timed = match r.u8()? {
        0 => false,
        1 => true,
        _ => return Err(r.error("placement that is not known")),
    };
    let body = placed(r)?;
    Ok(Record {
        expires_at,
        due_at,
        generation,
        deliveries,
        state: message::state(is_timed),
        encoding: body.encoding,
        ..Record::ready(enqueued_at, body.location)
    })
}
