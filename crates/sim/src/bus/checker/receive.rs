//! Messages that are shown: received, peeked at, or taken by their number.

use std::collections::BTreeSet;

use kew_engine::bus::{
    BusCommand, BusMessageState, BusOutcome, BusQueueOptions, DeadLetterCause, DeferredRead,
    DeliveredMessage, ReceiveMode,
};
use kew_engine::{SequenceNumber, Timestamp, Token};

use super::life::{Entity, Fate, Life, Lock, Part, Span, Stage, destination};
use super::shown::{Bodies, Shown};
use super::{
    ANSWERS_FIT, Answered, Checker, LOCKS, NO_LOSS, ONE_PLACE, ORDER, Owner, QUEUES, SESSIONS,
    entity,
};
use crate::bus::topics::{self, Kind};
use crate::checker::{Violation, violated};

/// How many messages one command returns on a full disk.
pub(super) const COUNT_ON_FULL_DISK: u32 = 16;

/// What a receiver asked for.
struct Wanted<'a> {
    entity: Entity,
    mode: ReceiveMode,
    session: Option<Token>,
    /// How many at most, or the numbers.
    what: Result<u32, &'a [SequenceNumber]>,
}

impl<'a> Wanted<'a> {
    fn of(command: &'a BusCommand) -> Option<Self> {
        match command {
            BusCommand::Receive {
                queue,
                count,
                mode,
                session,
            } => Some(Self {
                entity: entity(queue),
                mode: *mode,
                session: *session,
                what: Ok(*count),
            }),
            BusCommand::ReceiveDeferred {
                read:
                    DeferredRead {
                        queue,
                        numbers,
                        mode,
                        session,
                    },
            } => Some(Self {
                entity: entity(queue),
                mode: *mode,
                session: *session,
                what: Err(numbers),
            }),
            _ => None,
        }
    }
}

impl Checker {
    pub(super) fn received(&mut self, answered: &Answered<'_>) -> Result<(), Violation> {
        let (Some(wanted), BusOutcome::Received(messages)) =
            (Wanted::of(answered.command), answered.outcome)
        else {
            return violated!(ANSWERS_FIT, "{:?}", answered.outcome);
        };
        let Wanted { entity, .. } = wanted;
        let session = self.session_of_receiver(&wanted, answered.at)?;
        self.hands_out(entity)?;
        let mut bodies = Bodies::of(answered);
        let mut numbers = BTreeSet::new();
        let id = session.as_deref();
        for message in messages {
            let shown = Shown::delivered(message, &mut bodies)?;
            numbers.insert(shown.message(entity));
            self.one_received(&wanted, id, (message, &shown), answered.at)?;
        }
        match wanted.what {
            Ok(count) => self.left_behind(&wanted, count, id, (messages, &numbers), answered.at),
            Err(numbers) => {
                let all: BTreeSet<_> = numbers.iter().collect();
                if all.len() != messages.len() {
                    return violated!(ANSWERS_FIT, "{numbers:?}: {messages:?}");
                }
                self.note("a deferred message was received");
                Ok(())
            }
        }
    }

    /// A receiver that got fewer messages than requested got all there were, in order.
    fn left_behind(
        &mut self,
        wanted: &Wanted<'_>,
        count: u32,
        session: Option<&str>,
        (messages, shown): (&[DeliveredMessage], &BTreeSet<u64>),
        at: Timestamp,
    ) -> Result<(), Violation> {
        let entity = wanted.entity;
        if messages.len() > count as usize {
            return violated!(ANSWERS_FIT, "{count} asked for: {messages:?}");
        }
        if !messages.is_sorted_by(|one, next| one.sequence_number < next.sequence_number) {
            return violated!(ORDER, "{messages:?}");
        }
        let is_full = messages.len() >= count.min(COUNT_ON_FULL_DISK) as usize;
        let last = messages.last().map_or(0, |it| it.sequence_number.as_u64());
        let is_ready = |life: &Life| {
            life.entity == entity
                && life.is_ready()
                && !life.expires.may_have_passed(at)
                && life.is_of(session)
        };
        let what = (wanted.entity, last, shown);
        if !is_full {
            return self.not_shown(NO_LOSS, &what, shown, is_ready);
        }
        self.not_shown(ORDER, &what, shown, |life| {
            is_ready(life) && life.number.is_some_and(|number| number < last)
        })
    }

    /// A queue that delivers messages is allowed to.
    pub(super) fn hands_out(&mut self, entity: Entity) -> Result<(), Violation> {
        let queue = self.queues.get(entity.queue);
        let gives = |options: &BusQueueOptions| {
            options.status.allows_receive() && destination(options, entity.part).is_none()
        };
        let before = queue.possible.clone();
        queue
            .possible
            .retain(|possible| possible.as_ref().is_some_and(gives));
        if queue.possible.is_empty() {
            return violated!(QUEUES, "{entity:?} gives messages away, and is {before:?}");
        }
        Ok(())
    }

    /// The session whose lock a receiver has.
    fn session_of_receiver(
        &mut self,
        wanted: &Wanted<'_>,
        at: Timestamp,
    ) -> Result<Option<Box<str>>, Violation> {
        let queue = self.queues.get(wanted.entity.queue);
        let wants = wanted.entity.part == Part::Queue
            && queue.options().all(|options| options.requires_session);
        match (wants, wanted.session) {
            (false, None) => Ok(None),
            (true, Some(token)) => {
                let id = self.hold_session(wanted.entity, token, at)?;
                Ok(Some(id))
            }
            (wants, session) => violated!(SESSIONS, "{wants} and {session:?}"),
        }
    }

    fn one_received(
        &mut self,
        wanted: &Wanted<'_>,
        session: Option<&str>,
        (message, shown): (&DeliveredMessage, &Shown),
        at: Timestamp,
    ) -> Result<(), Violation> {
        let (entity, number) = (wanted.entity, shown.message(wanted.entity));
        let wants = if wanted.what.is_ok() {
            BusMessageState::Ready
        } else {
            BusMessageState::Deferred
        };
        if message.state != wants || message.expires_at.has_passed(at) {
            return violated!(ONE_PLACE, "at {at}, wanted {wants:?}: {message:?}");
        }
        let lock = match (wanted.mode, message.lock) {
            (ReceiveMode::PeekLock, Some(token)) => Some(Lock {
                token: Some(token),
                until: self.lock_end(wanted, message.locked_until, at)?,
                was_deferred: wants == BusMessageState::Deferred,
            }),
            (ReceiveMode::ReceiveAndDelete, None) => None,
            other => return violated!(ANSWERS_FIT, "{other:?}"),
        };
        if let Some(token) = message.lock {
            self.note_lock(token, number);
        }
        if self.is_locked(number) {
            let fits = |life: &Life| shown.fits(entity, life);
            if self.messages.get(&number).is_some_and(|it| !it.may(fits)) {
                return violated!(LOCKS, "message {number} has a lock: {message:?}");
            }
        }
        self.narrow(number, ONE_PLACE, message, |life| {
            let fate = match lock {
                None => Fate::Gone,
                Some(lock) => Fate::Here(Life {
                    stage: Stage::Locked(lock),
                    ..shown.learned(life)
                }),
            };
            (shown.fits(entity, life) && life.is_of(session)).then(|| vec![fate])
        })?;
        self.note_delivery(entity, message);
        let owner = Owner {
            message: number,
            is_scheduled: false,
        };
        self.learn_number(entity, shown.number, owner)
    }

    /// Whether a receiver certainly has the message locked.
    fn is_locked(&self, number: u64) -> bool {
        let message = self.messages.get(&number);
        message.is_some_and(|message| message.must(|life| life.lock().is_some()))
    }

    fn note_delivery(&mut self, entity: Entity, message: &DeliveredMessage) {
        if message.delivery_count > 0 {
            self.note("a message was delivered again");
        }
        match (entity.part, message.cause) {
            (Part::DeadLetters, Some(DeadLetterCause::MaxDeliveryCountExceeded)) => {
                self.note("a message that was delivered too often came back as a dead letter");
            }
            (Part::DeadLetters, Some(DeadLetterCause::Expired)) => {
                self.note("a message that expired came back as a dead letter");
            }
            (Part::DeadLetters, Some(DeadLetterCause::ByReceiver)) => {
                self.note("a message that its receiver gave up came back as a dead letter");
            }
            (_, Some(DeadLetterCause::MaxTransferHopCountExceeded)) => {
                self.note("a message went on too often");
            }
            (_, Some(DeadLetterCause::TransferFailed)) => {
                self.note("a failed transfer was shown");
                if topics::kind(entity.queue) == Kind::Topic {
                    self.note("a failed transfer of a topic was shown");
                }
            }
            (_, Some(DeadLetterCause::DestinationUnavailable)) => {
                self.note("a message could not go on");
            }
            (Part::Queue, Some(_)) => {
                self.note("a dead letter went on to another queue");
                if topics::topic_of(entity.queue) == Some(topics::GATHERING) {
                    self.note("a dead letter went on to a topic");
                }
            }
            _ => {}
        }
    }

    /// When a message's lock ends: after the queue's lock duration, or with its session's lock.
    fn lock_end(
        &mut self,
        wanted: &Wanted<'_>,
        until: Timestamp,
        at: Timestamp,
    ) -> Result<Span, Violation> {
        if let Some(token) = wanted.session {
            let session = self.session_of(token).unwrap_or_default();
            let session = self.queues.get(wanted.entity.queue).session(&session);
            let is_its_end = session.locks.iter().any(|lock| match lock {
                super::queue::SessionLock::Held { until: own, .. } => own.has(until),
                super::queue::SessionLock::Free => false,
            });
            if !is_its_end {
                return violated!(LOCKS, "until {until}, and the session's {session:?}");
            }
            return Ok(Span::at(Timestamp::NEVER));
        }
        self.holds_for(wanted.entity, until, at)?;
        Ok(Span::at(until))
    }

    /// A new lock lasts as long as the queue's lock duration.
    pub(super) fn holds_for(
        &mut self,
        entity: Entity,
        until: Timestamp,
        at: Timestamp,
    ) -> Result<(), Violation> {
        let queue = self.queues.get(entity.queue);
        let before = queue.possible.clone();
        queue.possible.retain(|possible| {
            let options = possible.as_ref();
            options.is_some_and(|options| at.plus_ms(options.lock_duration_ms) == until)
        });
        if queue.possible.is_empty() {
            return violated!(LOCKS, "from {at} until {until}: {before:?}");
        }
        Ok(())
    }

    pub(super) fn peeked(&mut self, answered: &Answered<'_>) -> Result<(), Violation> {
        let (
            BusCommand::Peek {
                queue,
                from,
                count,
                session,
            },
            BusOutcome::Peeked(messages),
        ) = (answered.command, answered.outcome)
        else {
            return violated!(ANSWERS_FIT, "{:?}", answered.outcome);
        };
        let entity = entity(queue);
        let from = from.as_u64();
        let session = session.as_deref();
        let mut bodies = Bodies::of(answered);
        let mut seen = BTreeSet::new();
        for message in messages {
            let shown = Shown::peeked(message, &mut bodies)?;
            let number = shown.message(entity);
            seen.insert(number);
            self.narrow(number, ONE_PLACE, message, |life| {
                let fits = shown.fits(entity, life) && life.is_of(session);
                fits.then(|| vec![Fate::Here(shown.learned(life))])
            })?;
            let owner = Owner {
                message: number,
                is_scheduled: shown.state == BusMessageState::Scheduled,
            };
            self.learn_number(entity, shown.number, owner)?;
        }
        let is_sorted =
            messages.is_sorted_by(|one, next| one.sequence_number < next.sequence_number);
        let begins = messages
            .first()
            .is_none_or(|it| it.sequence_number.as_u64() >= from);
        if !is_sorted || !begins || messages.len() > *count as usize {
            return violated!(ORDER, "from {from}, {count}: {messages:?}");
        }
        let is_full = messages.len() >= *count as usize;
        let last = messages.last().map_or(0, |it| it.sequence_number.as_u64());
        let what = (entity, from, last, &seen);
        self.not_shown(NO_LOSS, &what, &seen, |life| {
            let is_passed = life.number.map_or(from <= 1 && !is_full, |number| {
                number >= from && (!is_full || number < last)
            });
            life.entity == entity && is_passed && life.is_of(session)
        })
    }

    pub(super) fn batch_deleted(&mut self, answered: &Answered<'_>) -> Result<(), Violation> {
        let (
            BusCommand::DeleteBatch {
                queue,
                count,
                session,
                ..
            },
            BusOutcome::BatchDeleted(deleted),
        ) = (answered.command, answered.outcome)
        else {
            return violated!(ANSWERS_FIT, "{:?}", answered.outcome);
        };
        let entity = entity(queue);
        self.hands_out(entity)?;
        let at = answered.at;
        let may = |life: &Life| {
            life.entity == entity
                && life.is_ready()
                && !life.expires.has_passed(at)
                && life.is_of(session.as_deref())
        };
        let possible = self.messages.values().filter(|it| it.may(may));
        let possible = possible.count() as u64;
        let deleted = deleted.count;
        if u64::from(deleted) > possible.min(u64::from(*count)) {
            return violated!(NO_LOSS, "{deleted} of {possible} were deleted at once");
        }
        if deleted == 0 {
            return Ok(());
        }
        self.note("messages were deleted at once");
        self.perhaps(|life| may(life).then_some(Fate::Gone).into_iter().collect());
        Ok(())
    }
}
