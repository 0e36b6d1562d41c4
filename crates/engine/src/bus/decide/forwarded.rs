//! Messages that come into a topic from another entity, and the bytes and ids that due work needs for them.
//!
//! What a message has goes with it: the place of its body, changes to its properties, and how often it was forwarded. A
//! topic that detects duplicates looks its id up. The id is in the bytes, so a tick reads these first, and then the
//! remembered ids that are not in memory. A command forwards nothing to such a topic before it: it would have to wait.
//! To other topics, it forwards what does not have to wait there.

use bytes::Bytes;
use kew_filter::SystemProperty;

use super::super::queue::BusQueue;
use super::super::role::Role;
use super::super::rules::{Evaluation, Topic};
use super::super::{DeadLetterCause, Known};
use super::due::{Due, STEPS_PER_UNIT};
use super::numbers::Duplicate;
use super::{By, DueStep, Turn};
use crate::catalogue::LOOKS_PER_UNIT;
use crate::table::{Entry, Missing};
use crate::vocabulary::{
    BodyLocation, BodyRead, EntityName, Incarnation, SequenceNumber, Timestamp,
};

/// How many messages behind the first one are read with it, and the most bytes of all of them unless the first one has
/// more.
const AHEAD_COUNT: usize = 64;
const AHEAD_SIZE_BYTES: u64 = 128 * 1024;

/// The most bytes that the hash of an id takes in an effect.
const ID_HASH_SIZE_BYTES: u64 = 17;

/// The bytes of a message, and of the changes to its properties, oldest first.
pub(super) struct Read {
    pub(super) body: Bytes,
    pub(super) overlays: Vec<Bytes>,
}

/// Why the bytes of a message are not at hand.
pub(super) enum Unread {
    /// They have to be read first.
    Missing,
    /// They are not what was written.
    Damaged,
    /// The tick itself has just written some of them. The next one finds them.
    InBatch,
}

/// Why a message does not come into a topic.
enum Kept {
    Duplicate,
    Unread(Unread),
}

impl From<Unread> for Kept {
    fn from(unread: Unread) -> Self {
        Self::Unread(unread)
    }
}

impl From<Duplicate> for Kept {
    fn from(_: Duplicate) -> Self {
        Self::Duplicate
    }
}

impl Turn<'_> {
    /// Where due work forwards the messages of an entity now, or why they cannot go there. `None` if they stay.
    pub(super) fn forwards(
        &self,
        from: &BusQueue,
        by: By,
    ) -> Option<Result<Incarnation, DeadLetterCause>> {
        let name = EntityName {
            name: from.destination()?.into(),
            ..from.name.clone()
        };
        let found = self.catalogue().find(&name);
        let Some((to, entity)) = found.and_then(|to| Some((to, self.queues().get(&to)?))) else {
            return Some(Err(DeadLetterCause::DestinationUnavailable));
        };
        let stays = match by {
            By::Tick => false,
            By::Change => looks_up(entity),
            By::Command => {
                looks_up(entity) || entity.role == Role::Topic && entity.backlog.has_ready()
            }
        };
        (!stays).then_some(Ok(to))
    }

    /// The most bytes that a message gets when it is forwarded.
    pub(super) fn forwarded_size_bytes_max(
        &self,
        from: Incarnation,
        to: Result<Incarnation, DeadLetterCause>,
    ) -> u64 {
        let entity = self.bus(from);
        // A dead letter that is forwarded tells from which queue it comes.
        let source = match entity.role.dead_letters_of() {
            Some(_) => entity.name.name.len() as u64,
            None => 0,
        };
        match to.is_ok_and(|to| looks_up(self.bus(to))) {
            true => source + ID_HASH_SIZE_BYTES,
            false => source,
        }
    }

    /// Asks for what the next due thing of an entity is going to look at, so that a message goes on: bodies, with those
    /// behind them; and once these are there, the ids in which a topic looks up that of the message. The records that
    /// tell what is next are in memory, and others may not be. Returns how much of the due budget that has taken.
    pub(crate) fn ask_to_pass_on(&mut self, entity: Incarnation, missing: &mut Missing) -> u32 {
        let Some(queue) = self.queues().get(&entity) else {
            return 0;
        };
        let may_look = match &queue.topic {
            Some(topic) => topic.looks(),
            None => queue.destination().is_some(),
        };
        // What is due before that needs no bodies.
        let due = may_look.then(|| self.next_due(entity, By::Tick)).flatten();
        let (first, now, to) = match due {
            // What waits in a topic does not expire.
            Some(Due::FanOut(number)) => (number, Timestamp::ZERO, None),
            Some(Due::Forward(number, Ok(to))) if looks_up(self.bus(to)) => {
                (number, self.now(), Some(to))
            }
            Some(
                Due::Forward(..)
                | Due::Lock(_)
                | Due::Release(_)
                | Due::Session(_)
                | Due::Schedule(_)
                | Due::Expiry(_)
                | Due::Ids
                | Due::Deletion,
            )
            | None => return 0,
        };
        let entry = self.bus_backlog(entity).table().get(first);
        let Some(own) = entry.map(|entry| entry.bodies().collect::<Vec<_>>()) else {
            return 0;
        };
        let is_missing = |body: &BodyLocation| self.0.read_body(*body) == BodyRead::Missing;
        // All are looked at, so that each stays in memory.
        if own.iter().copied().filter(is_missing).count() == 0 {
            return to.map_or(0, |to| self.ask_for_ids(entity, first, to, missing));
        }
        let length = |body: &BodyLocation| u64::from(body.length);
        let own_bytes: u64 = own.iter().map(length).sum();
        let mut left_bytes = AHEAD_SIZE_BYTES.saturating_sub(own_bytes);
        missing.bodies.extend(own);
        let ready = self.bus_backlog(entity).ready_seen(0, now);
        let ready = ready.map_while(|(_, entry)| entry);
        for entry in ready.take(AHEAD_COUNT) {
            if entry.number == first {
                continue;
            }
            let size_bytes: u64 = entry.bodies().map(|body| length(&body)).sum();
            if size_bytes > left_bytes {
                break;
            }
            left_bytes -= size_bytes;
            missing.bodies.extend(Entry::bodies(entry));
        }
        0
    }

    /// Asks for the remembered ids that a topic looks at when a message is forwarded to it, whose bytes are at hand. A
    /// message that cannot go there needs none. Returns how much of the due budget that has taken.
    fn ask_for_ids(
        &mut self,
        from: Incarnation,
        number: SequenceNumber,
        to: Incarnation,
        missing: &mut Missing,
    ) -> u32 {
        let has_cold = self.bus(to).duplicates.has_cold();
        if !has_cold || self.check_is_open(Ok(to), from, number).is_err() {
            return 0;
        }
        let (room, looks) = self.check_room_at(to, from, number);
        let mut cost = units_of(looks, u64::from(LOOKS_PER_UNIT));
        if room.is_err() {
            return cost;
        }
        let mut reading = Evaluation::new();
        let hash = self.read_id(from, number, &mut reading);
        self.0.note_steps(reading.steps());
        cost = cost.saturating_add(units_of(reading.steps(), STEPS_PER_UNIT));
        if let Ok(Some(hash)) = hash {
            self.ask_id(to, hash, missing);
        }
        cost
    }

    /// The bytes of a message that due work looks at.
    pub(super) fn read_message(
        &mut self,
        queue: Incarnation,
        number: SequenceNumber,
    ) -> Result<Read, Unread> {
        let message = self.bus_backlog(queue).get(number);
        let bodies: Vec<_> = message.ok_or(Unread::Missing)?.bodies().collect();
        let reads = bodies.iter().map(|body| self.0.read_body(*body));
        let reads: Vec<_> = reads.collect();
        if reads.contains(&BodyRead::Damaged) {
            return Err(Unread::Damaged);
        }
        if reads.contains(&BodyRead::Missing) {
            return Err(Unread::Missing);
        }
        let bytes = bodies.iter().map(|body| self.0.body_bytes(*body));
        let bytes: Option<Vec<_>> = bytes.collect();
        let mut bytes = bytes.ok_or(Unread::InBatch)?.into_iter();
        Ok(Read {
            body: bytes.next().ok_or(Unread::Damaged)?,
            overlays: bytes.collect(),
        })
    }

    /// Forwards the message of an entity that forwards, or makes it a dead letter if it cannot go.
    pub(super) fn forward_or_bury(
        &mut self,
        queue: Incarnation,
        (number, to): (SequenceNumber, Result<Incarnation, DeadLetterCause>),
        cost: u32,
    ) -> DueStep {
        let (to, looks) = match self.check_is_open(to, queue, number) {
            Ok(to) => self.check_room_at(to, queue, number),
            Err(cause) => (Err(cause), 0),
        };
        let cost = cost.saturating_add(units_of(looks, u64::from(LOOKS_PER_UNIT)));
        let to = match to {
            Ok(to) => to,
            Err(cause) => {
                self.bury(queue, number, cause, None);
                return DueStep::Done(cost);
            }
        };
        let mut reading = Evaluation::new();
        match self.id_in(to, queue, number, &mut reading) {
            Ok(id_hash) => self.forward(queue, number, to, id_hash),
            // A duplicate is dropped, as if it had been sent there.
            Err(Kept::Duplicate) => {
                self.0.tally_duplicate(to);
                self.remove(queue, number);
            }
            Err(Kept::Unread(Unread::Damaged)) => {
                self.bury(queue, number, DeadLetterCause::BodyDamaged, None);
            }
            Err(Kept::Unread(Unread::Missing)) => return DueStep::Nothing,
            Err(Kept::Unread(Unread::InBatch)) => return DueStep::InBatch,
        }
        self.0.note_steps(reading.steps());
        let cost = cost.saturating_add(units_of(reading.steps(), STEPS_PER_UNIT));
        match self.bus(to).role == Role::Topic {
            true => DueStep::Last(cost),
            false => DueStep::Done(cost),
        }
    }

    /// The hash of a message's id, if the entity that it comes to is going to remember it. To read it takes steps.
    fn id_in(
        &mut self,
        to: Incarnation,
        queue: Incarnation,
        number: SequenceNumber,
        reading: &mut Evaluation,
    ) -> Result<Option<u128>, Kept> {
        if !looks_up(self.bus(to)) {
            return Ok(None);
        }
        let hash = self.read_id(queue, number, reading)?;
        Ok(self.unless_known(to, hash)?)
    }

    /// The hash of a message's id, if it has one. To read it takes steps.
    fn read_id(
        &mut self,
        queue: Incarnation,
        number: SequenceNumber,
        reading: &mut Evaluation,
    ) -> Result<Option<u128>, Unread> {
        let Read { body, overlays } = self.read_message(queue, number)?;
        let view = self.0.format().view(&body, &overlays, Known::default());
        reading.note_message();
        if let Some(view) = &view {
            Topic::note_read(&**view, reading);
        }
        let id = view.as_ref().map(|it| it.system(SystemProperty::MessageId));
        let id = id.as_ref().and_then(|id| id.as_text());
        Ok(id.map(|id| self.cipher().hash(id.as_bytes())))
    }
}

/// How many units of the due budget some work takes.
fn units_of(count: u64, per_unit: u64) -> u32 {
    u32::try_from(count / per_unit).unwrap_or(u32::MAX)
}

/// Whether the ids of messages that are forwarded to an entity are looked up.
///
/// A queue looks none up: its messages may come back to it by way of another queue, and would be lost as duplicates of
/// themselves (docs/service-bus.md, *Known differences*).
fn looks_up(to: &BusQueue) -> bool {
    to.role == Role::Topic && to.options.duplicate_window_ms.is_some()
}
