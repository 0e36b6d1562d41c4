//! Bus queues as parts of a snapshot: the queue, its sessions, its remembered ids, its messages.

use std::sync::Arc;

use super::BusMessageState;
use super::duplicates::{Block, SharedIds};
use super::event::codec::{cause, options, put_cause, put_flags, put_options, with_flags};
use super::event::effects::{next_copy, put_next_copy};
use super::message::Message;
use super::queue::BusQueue;
use super::queues::Queues;
use super::role::Role;
use super::rules::{DefaultRule, FanOut, RULE_IDS_MAX, RuleChunk, Topic, restore_rules, rule_id};
use super::session::{Session, SharedSessions};
use crate::catalogue::Catalogue;
use crate::queues::Queue;
use crate::queues::snapshot::{SharedQueue, put_head};
use crate::shared::{Chunk, Share};
use crate::table::{Live, Record, Run, RunLength, Side};
use crate::vocabulary::codec::{DecodeError, Reader, optional, put_optional, put_str, put_varint};
use crate::vocabulary::elements::{
    incarnation, location, name, put_location, put_name, put_time, sequence_number, time,
};
use crate::vocabulary::{EntityName, Incarnation, LeaseGeneration, SequenceNumber};

pub(super) mod kind {
    pub(in crate::bus) const QUEUE: u8 = 32;
    pub(in crate::bus) const SESSIONS: u8 = 33;
    pub(in crate::bus) const DUPLICATES: u8 = 34;
    pub(in crate::bus) const MESSAGES: u8 = 35;
    pub(in crate::bus) const DEAD_LETTER_SOURCES: u8 = 36;
    pub(in crate::bus) const TOPIC: u8 = 37;
    pub(in crate::bus) const SUBSCRIPTION: u8 = 38;
    pub(in crate::bus) const RULES: u8 = 39;
    pub(in crate::bus) const DUPLICATES_FROM: u8 = 40;
}

/// Sessions that follow each other.
pub(crate) type SessionChunk = Arc<Chunk<Session>>;

/// What a snapshot has of a bus queue.
#[derive(Clone, Debug)]
pub(crate) struct SharedBusQueue {
    pub(crate) queue: SharedQueue,
    pub(crate) sessions: SharedSessions,
    pub(crate) ids: SharedIds,
    /// Of a topic.
    pub(crate) rules: Vec<RuleChunk>,
}

impl Share for BusQueue {
    type Shared = SharedBusQueue;

    fn share(&self, incarnation: Incarnation) -> SharedBusQueue {
        let mut head = Vec::new();
        put_entity(&mut head, incarnation, self);
        let ids_from = self.duplicates.dropped_before().map(|time| {
            let mut out = Vec::new();
            put_head(&mut out, kind::DUPLICATES_FROM, incarnation);
            put_time(&mut out, time);
            out
        });
        SharedBusQueue {
            queue: SharedQueue {
                incarnation,
                head: std::iter::once(head).chain(ids_from).collect(),
                runs: self.backlog.share(),
            },
            sessions: self.backlog.sessions.share(),
            ids: self.duplicates.share(),
            rules: self.topic.as_ref().map(Topic::share).unwrap_or_default(),
        }
    }

    fn steps(shared: &SharedBusQueue) -> u64 {
        let references = shared.sessions.len() + shared.ids.len() + shared.rules.len();
        shared.queue.steps(references)
    }
}

/// Puts the part with these sessions.
pub(crate) fn put_sessions(out: &mut Vec<u8>, incarnation: Incarnation, sessions: &[SessionChunk]) {
    put_head(out, kind::SESSIONS, incarnation);
    for (number, session) in sessions.iter().flat_map(|chunk| chunk.iter()) {
        put_varint(out, *number);
        put_str(out, &session.id);
        put_varint(out, u64::from(session.generation.as_u32()));
        put_time(out, session.locked_until);
        let state = session.state;
        put_optional(out, state, put_location);
        put_time(out, session.state_set_at);
    }
}

/// Puts the part with these remembered ids.
pub(crate) fn put_ids(out: &mut Vec<u8>, incarnation: Incarnation, blocks: &[Block]) {
    put_head(out, kind::DUPLICATES, incarnation);
    assert!(!blocks.iter().any(|it| it.is_cold()), "a part has its ids");
    for (at, hash) in blocks.iter().flat_map(|block| block.iter()) {
        out.extend(hash.to_be_bytes());
        put_time(out, at);
    }
}

/// Puts the part with the sources of the dead letters in these runs.
pub(crate) fn put_sources(out: &mut Vec<u8>, incarnation: Incarnation, runs: &[Arc<Run>]) {
    put_head(out, kind::DEAD_LETTER_SOURCES, incarnation);
    for run in runs {
        for message in run.entries().map(Message::from) {
            if let Some(source) = message.source() {
                put_varint(out, message.number().as_u64());
                put_str(out, source);
            }
        }
    }
}

impl Queues {
    /// Adds a part to a state that is being restored. Returns false if the part is of another kind.
    pub(crate) fn restore(
        &mut self,
        catalogue: &mut Catalogue,
        kind: u8,
        is_taken: &dyn Fn(&Incarnation) -> bool,
        r: &mut Reader<'_>,
    ) -> Result<bool, DecodeError> {
        if !(kind::QUEUE..=kind::DUPLICATES_FROM).contains(&kind) {
            return Ok(false);
        }
        let incarnation = incarnation(r)?;
        if let Some(queue) = entity(kind, r, catalogue.run_length)? {
            let is_there = self.contains_key(&incarnation) || is_taken(&incarnation);
            if is_there || catalogue.find(&queue.name).is_some() {
                return Err(r.error("bus queue that was there before"));
            }
            self.add(catalogue, incarnation, queue);
            return Ok(true);
        }
        if kind == kind::MESSAGES {
            self.restore_messages(catalogue, incarnation, r)?;
            return Ok(true);
        }
        let Some(queue) = self.get_mut(&incarnation) else {
            return Err(r.error("part of a bus queue that is not there"));
        };
        match kind {
            kind::SESSIONS => {
                while !r.is_empty() {
                    restore_session(queue, r, &mut catalogue.live)?;
                }
            }
            kind::DUPLICATES => {
                while !r.is_empty() {
                    let hash = u128::from_be_bytes(r.array()?);
                    queue.duplicates.restore(hash, time(r)?);
                }
            }
            kind::DUPLICATES_FROM => queue.duplicates.keep_from(time(r)?),
            kind::DEAD_LETTER_SOURCES => {
                while !r.is_empty() {
                    restore_dead_letter_source(queue, r)?;
                }
            }
            kind::RULES => {
                let Some(topic) = &mut queue.topic else {
                    return Err(r.error("rules of an entity that is no topic"));
                };
                restore_rules(topic, r)?;
            }
            _ => return Err(r.error("snapshot part kind that is not known")),
        }
        queue.settle(catalogue, incarnation);
        Ok(true)
    }
}

/// Puts the part with the entity itself.
fn put_entity(out: &mut Vec<u8>, incarnation: Incarnation, entity: &BusQueue) {
    let put_plain = |out: &mut Vec<u8>, code, of| {
        put_head(out, kind::QUEUE, incarnation);
        put_name(out, &entity.name);
        out.push(code);
        put_varint(out, of);
        put_settings(out, entity);
    };
    match entity.role {
        Role::Queue => put_plain(out, 1, 0),
        Role::DeadLetters { of } => put_plain(out, 2, of.as_u64()),
        Role::FailedTransfers { of } => put_plain(out, 3, of.as_u64()),
        Role::Topic => {
            put_head(out, kind::TOPIC, incarnation);
            put_name(out, &entity.name);
            put_settings(out, entity);
            put_flags(out, &entity.options);
            put_varint(out, entity.topic.as_ref().map_or(0, Topic::next_rule));
            let fan_out = entity.topic.as_ref().and_then(Topic::fan_out);
            put_optional(out, fan_out, |out, fan_out| {
                put_varint(out, fan_out.number.as_u64());
                put_next_copy(out, fan_out.next);
                out.push(u8::from(fan_out.lent));
            });
        }
        Role::Subscription { of } => {
            put_head(out, kind::SUBSCRIPTION, incarnation);
            put_name(out, &entity.name);
            put_settings(out, entity);
            put_flags(out, &entity.options);
            put_varint(out, of.as_u64());
            put_optional(out, entity.rule, |out, rule| {
                put_varint(out, rule.id);
                put_varint(out, rule.since.as_u64());
            });
        }
    }
}

fn put_settings(out: &mut Vec<u8>, entity: &BusQueue) {
    put_options(out, &entity.options);
    put_time(out, entity.created_at);
    put_time(out, entity.updated_at);
    put_time(out, entity.used_at);
    put_varint(out, entity.backlog.next().as_u64());
    put_varint(out, u64::from(entity.backlog.sessions.last_number()));
}

/// Reads the part with an entity itself, if it is one of that kind.
fn entity(
    kind: u8,
    r: &mut Reader<'_>,
    length: RunLength,
) -> Result<Option<BusQueue>, DecodeError> {
    let entity = match kind {
        kind::QUEUE => {
            let name = name(r)?;
            let code = r.u8()?;
            let of = incarnation(r)?;
            let role = match code {
                1 => Role::Queue,
                2 => Role::DeadLetters { of },
                3 => Role::FailedTransfers { of },
                _ => return Err(r.error("role of a bus queue that is not known")),
            };
            with_settings(r, name, role, length)?
        }
        kind::TOPIC => {
            let name = name(r)?;
            let mut topic = with_settings(r, name, Role::Topic, length)?;
            topic.options = with_flags(topic.options, r)?;
            let next_rule = r.varint()?;
            if next_rule == 0 || next_rule > RULE_IDS_MAX {
                return Err(r.error("next number of a rule that is out of range"));
            }
            if let Some(rules) = &mut topic.topic {
                rules.set_next_rule(next_rule);
            }
            let fan_out = optional(r, |r| {
                Ok(FanOut {
                    number: sequence_number(r)?,
                    next: next_copy(r)?,
                    lent: r.flag()?,
                })
            })?;
            if let (Some(rules), Some(fan_out)) = (&mut topic.topic, fan_out) {
                rules.set_fan_out(fan_out);
            }
            topic
        }
        kind::SUBSCRIPTION => {
            let name = name(r)?;
            // Its topic follows the settings.
            let of = Incarnation::default();
            let role = Role::Subscription { of };
            let mut subscription = with_settings(r, name, role, length)?;
            subscription.options = with_flags(subscription.options, r)?;
            let of = incarnation(r)?;
            subscription.role = Role::Subscription { of };
            subscription.rule = optional(r, |r| {
                let (id, since) = (rule_id(r)?, sequence_number(r)?);
                Ok(DefaultRule { id, since })
            })?;
            subscription
        }
        _ => return Ok(None),
    };
    Ok(Some(entity))
}

fn with_settings(
    r: &mut Reader<'_>,
    name: EntityName,
    role: Role,
    length: RunLength,
) -> Result<BusQueue, DecodeError> {
    let options = options(r)?;
    let mut queue = BusQueue::new(name, role, options, time(r)?, length);
    queue.updated_at = time(r)?;
    queue.used_at = time(r)?;
    let next = r.varint()?;
    if next > 1 << SequenceNumber::BITS {
        return Err(r.error("next sequence number that is out of range"));
    }
    queue.backlog.set_next(SequenceNumber::new(next));
    queue.backlog.sessions.set_last_number(r.varint_u32()?);
    Ok(queue)
}

fn restore_session(
    queue: &mut BusQueue,
    r: &mut Reader<'_>,
    live: &mut Live,
) -> Result<(), DecodeError> {
    let number = r.varint_u32()?;
    let session = Session {
        id: r.str()?.into(),
        generation: LeaseGeneration::new(r.varint_u32()?),
        locked_until: time(r)?,
        state: optional(r, location)?,
        state_set_at: time(r)?,
    };
    add_session(queue, number, session, live).map_err(|what| r.error(what))
}

/// Adds a session to a queue that is being restored.
pub(super) fn add_session(
    queue: &mut BusQueue,
    number: u32,
    session: Session,
    live: &mut Live,
) -> Result<(), &'static str> {
    let sessions = &mut queue.backlog.sessions;
    if number == 0 || number > sessions.last_number() || sessions.get(number).is_some() {
        return Err("session number that is out of range or taken");
    }
    if sessions.find(&session.id).is_some() {
        return Err("session that was there before");
    }
    let id = session.id.clone();
    sessions.restore(number, &id, live, |there| {
        *there = Session {
            id: there.id.clone(),
            ..session
        };
    });
    Ok(())
}

/// Writes a message behind its number.
pub(super) fn put_message(out: &mut Vec<u8>, message: Message<'_>, session: u32) {
    put_time(out, message.enqueued_at);
    put_time(out, message.expires_at);
    put_time(out, message.due_at);
    put_varint(out, message.first_number().as_u64());
    put_varint(out, u64::from(message.generation.as_u32()));
    put_varint(out, u64::from(message.deliveries));
    out.push(match message.state {
        BusMessageState::Ready => 1,
        BusMessageState::Locked { deferred: false } => 2,
        BusMessageState::Locked { deferred: true } => 3,
        BusMessageState::Scheduled => 4,
        BusMessageState::Deferred => 5,
    });
    put_optional(out, message.cause, put_cause);
    out.push(message.hops);
    put_varint(out, u64::from(session));
    put_location(out, message.body);
    put_varint(out, message.overlays().len() as u64);
    for overlay in message.overlays() {
        put_location(out, *overlay);
    }
}

fn restore_dead_letter_source(queue: &mut BusQueue, r: &mut Reader<'_>) -> Result<(), DecodeError> {
    let sequence_number = sequence_number(r)?;
    let source = r.str()?;
    if queue.backlog.restore_source(sequence_number, source) {
        Ok(())
    } else {
        Err(r.error("source of a dead letter that is not there"))
    }
}

/// Reads the message of that number, behind it.
pub(super) fn message(
    r: &mut Reader<'_>,
    number: SequenceNumber,
) -> Result<(Record, Side), DecodeError> {
    let (enqueued_at, expires_at, due_at) = (time(r)?, time(r)?, time(r)?);
    let first_number = sequence_number(r)?;
    let generation = LeaseGeneration::new(r.varint_u32()?);
    let deliveries = r.varint_u32()?;
    let state = match r.u8()? {
        1 => BusMessageState::Ready,
        2 => BusMessageState::Locked { deferred: false },
        3 => BusMessageState::Locked { deferred: true },
        4 => BusMessageState::Scheduled,
        5 => BusMessageState::Deferred,
        _ => return Err(r.error("state of a message that is not known")),
    };
    let cause = optional(r, cause)?;
    let hops = r.u8()?;
    let session = r.varint_u32()?;
    let body = location(r)?;
    let count = r.varint()?;
    // Collecting through a `Result` takes no capacity from `count`, which is not checked yet.
    let overlays = (0..count).map(|_| location(r)).collect::<Result<_, _>>()?;
    let record = Record {
        expires_at,
        due_at,
        generation,
        deliveries,
        session,
        state,
        cause,
        hops,
        ..Record::ready(enqueued_at, body)
    };
    let side = Side {
        first_number: (first_number != number).then_some(first_number),
        source: None,
        overlays,
    };
    Ok((record, side))
}
