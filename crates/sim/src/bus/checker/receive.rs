//! Messages that are shown: received, peeked at, or taken by their number.

use std::collections::BTreeSet;

use bytes::Bytes;
use kew_engine::bus::{
    BusCommand, BusMessageState, BusOutcome, BusQueueOptions, DeadLetterCause, DeferredRead,
    DeliveredMessage, PeekedBusMessage, ReceiveMode,
};
use kew_engine::{BodyLocation, SequenceNumber, Timestamp, Token};

use super::life::{Entity, Fate, Life, Lock, Message, Part, Span, Stage, destination};
use super::{
    ANSWERS_FIT, Answered, Checker, LOCKS, NO_LOSS, ONE_PLACE, ORDER, Owner, QUEUES, SESSIONS,
    entity, number_of,
};
use crate::checker::{Violation, violated};

/// So many messages are given at once on a full disk.
pub(super) const COUNT_ON_FULL_DISK: u32 = 16;

/// A message as an answer shows it.
#[derive(Debug)]
struct Shown<'a> {
    number: SequenceNumber,
    first_number: SequenceNumber,
    expires_at: Timestamp,
    failures: u32,
    state: BusMessageState,
    cause: Option<DeadLetterCause>,
    overlays: &'a [BodyLocation],
}

impl<'a> Shown<'a> {
    fn delivered(message: &'a DeliveredMessage) -> Self {
        Self {
            number: message.sequence_number,
            first_number: message.first_sequence_number,
            expires_at: message.expires_at,
            failures: message.delivery_count,
            state: message.state,
            cause: message.cause,
            overlays: &message.overlays,
        }
    }

    fn peeked(message: &'a PeekedBusMessage) -> Self {
        Self {
            number: message.sequence_number,
            first_number: message.first_sequence_number,
            expires_at: message.expires_at,
            failures: message.delivery_count,
            state: message.state,
            cause: message.cause,
            overlays: &message.overlays,
        }
    }

    /// Whether it may be this.
    fn fits(&self, entity: Entity, life: &Life, overlays: &[u64]) -> bool {
        let number = self.number.as_u64();
        life.entity == entity
            && life.number.is_none_or(|own| own == number)
            && life
                .first_number
                .is_none_or(|own| own == self.first_number.as_u64())
            && life.expires.has(self.expires_at)
            && life.failures == self.failures
            && life.is_shown_as(self.state)
            && life.cause == self.cause
            && life.overlays == overlays
    }
}

/// Hands out an answer's bodies: of each message its own, then the changes to its properties.
struct Bodies<'a>(std::slice::Iter<'a, Bytes>);

impl Bodies<'_> {
    fn next(&mut self, shown: &Shown<'_>) -> Result<(Bytes, Vec<u64>), Violation> {
        let Some(body) = self.0.next() else {
            return violated!(ANSWERS_FIT, "{shown:?} has no body");
        };
        let overlays = self.0.by_ref().take(shown.overlays.len());
        Ok((body.clone(), overlays.map(|it| number_of(it)).collect()))
    }
}

/// What somebody asked for.
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
        let mut bodies = Bodies(answered.bodies.iter());
        let mut shown = BTreeSet::new();
        for message in messages {
            let (body, overlays) = bodies.next(&Shown::delivered(message))?;
            let number = number_of(&body);
            shown.insert(number);
            self.is_sent(number, &body, session.as_deref(), message)?;
            self.one_received(&wanted, message, (number, &overlays), answered.at)?;
        }
        match wanted.what {
            Ok(count) => self.left_behind(&wanted, count, session, (messages, &shown), answered.at),
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

    /// Whoever has no more than was asked for has all that there is, in order.
    fn left_behind(
        &mut self,
        wanted: &Wanted<'_>,
        count: u32,
        session: Option<Box<str>>,
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
        let is_ready = |message: &Message, life: &Life| {
            life.entity == entity
                && life.is_ready()
                && !life.expires.may_have_passed(at)
                && (session.is_none() || message.session == session)
        };
        let what = (wanted.entity, last, shown);
        if !is_full {
            return self.not_shown(NO_LOSS, &what, shown, is_ready);
        }
        self.not_shown(ORDER, &what, shown, |message, life| {
            is_ready(message, life) && life.number.is_some_and(|number| number < last)
        })
    }

    /// A queue that gives messages away may do so.
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

    /// The session that a receiver has the lock of.
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

    /// What is shown was sent as it is.
    fn is_sent(
        &self,
        number: u64,
        body: &Bytes,
        session: Option<&str>,
        seen: &dyn std::fmt::Debug,
    ) -> Result<(), Violation> {
        let Some(message) = self.messages.get(&number) else {
            // Whoever narrows its fates says that there are none.
            return Ok(());
        };
        if message.body != body {
            return violated!(ONE_PLACE, "message {number} has another body: {seen:?}");
        }
        if session.is_some() && message.session.as_deref() != session {
            return violated!(SESSIONS, "{session:?} has {message:?}: {seen:?}");
        }
        Ok(())
    }

    fn one_received(
        &mut self,
        wanted: &Wanted<'_>,
        message: &DeliveredMessage,
        (number, overlays): (u64, &[u64]),
        at: Timestamp,
    ) -> Result<(), Violation> {
        let entity = wanted.entity;
        let shown = Shown::delivered(message);
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
            let fits = |life: &Life| shown.fits(entity, life, overlays);
            if self.messages.get(&number).is_some_and(|it| !it.may(fits)) {
                return violated!(LOCKS, "message {number} has a lock: {message:?}");
            }
        }
        let sequence_number = message.sequence_number.as_u64();
        self.narrow(number, ONE_PLACE, message, |life| {
            let fate = match lock {
                None => Fate::Gone,
                Some(lock) => Fate::Here(Life {
                    number: Some(sequence_number),
                    first_number: Some(message.first_sequence_number.as_u64()),
                    expires: Span::at(message.expires_at),
                    stage: Stage::Locked(lock),
                    ..life.clone()
                }),
            };
            shown.fits(entity, life, overlays).then(|| vec![fate])
        })?;
        self.note_delivery(entity, message);
        let owner = Owner {
            message: number,
            is_scheduled: false,
        };
        self.learn_number(entity, sequence_number, owner)
    }

    /// Whether somebody has a message locked for certain.
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
            (_, Some(DeadLetterCause::DestinationUnavailable)) => {
                self.note("a message could not go on");
            }
            (Part::Queue, Some(_)) => self.note("a dead letter went on to another queue"),
            _ => {}
        }
    }

    /// Until when a message's lock holds: as long as the queue says, or as its session's lock.
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

    /// A lock that was given now holds for as long as the queue says.
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
        let mut bodies = Bodies(answered.bodies.iter());
        let mut seen = BTreeSet::new();
        for message in messages {
            let shown = Shown::peeked(message);
            let (body, overlays) = bodies.next(&shown)?;
            let number = number_of(&body);
            seen.insert(number);
            self.is_sent(number, &body, session.as_deref(), message)?;
            self.narrow(number, ONE_PLACE, message, |life| {
                let life = shown.fits(entity, life, &overlays).then(|| Life {
                    number: Some(message.sequence_number.as_u64()),
                    first_number: (message.state != BusMessageState::Scheduled)
                        .then_some(message.first_sequence_number.as_u64()),
                    expires: Span::at(message.expires_at),
                    ..life.clone()
                })?;
                Some(vec![Fate::Here(life)])
            })?;
            let owner = Owner {
                message: number,
                is_scheduled: message.state == BusMessageState::Scheduled,
            };
            self.learn_number(entity, message.sequence_number.as_u64(), owner)?;
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
        self.not_shown(NO_LOSS, &what, &seen, |message, life| {
            let is_passed = life.number.map_or(from <= 1 && !is_full, |number| {
                number >= from && (!is_full || number < last)
            });
            life.entity == entity && is_passed && (session.is_none() || message.session == *session)
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
        let is_of = |message: &Message| session.is_none() || message.session == *session;
        let may =
            |life: &Life| life.entity == entity && life.is_ready() && !life.expires.has_passed(at);
        let possible = self.messages.values().filter(|it| is_of(it) && it.may(may));
        let possible = possible.count() as u64;
        if u64::from(*deleted) > possible.min(u64::from(*count)) {
            return violated!(NO_LOSS, "{deleted} of {possible} were deleted at once");
        }
        if *deleted == 0 {
            return Ok(());
        }
        self.note("messages were deleted at once");
        for message in self.messages.values_mut() {
            if is_of(message) && message.may(may) {
                message.may_be(Fate::Gone);
            }
        }
        Ok(())
    }
}
