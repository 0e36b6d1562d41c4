//! Transactions: all of their parts were done, or none.
//!
//! A successful transaction has the effect of its parts, one after the other. A refused one has
//! changed nothing, so the checker continues from there. But the parts before the refused one must
//! have been possible, and the refusal needs a reason. One of unknown outcome is work, as in
//! [`super::works`].

use std::collections::BTreeSet;

use kew_engine::bus::{
    BusMessage, BusOutcome, BusRefusal, Disposition, PartRefusal, TransactionPart, TransactionWork,
    Verdict,
};
use kew_engine::{Incarnation, SequenceNumber, Timestamp, Token};

use super::life::{Entity, Fate, Life, Part, Span};
use super::queues::{CHANGE_SIZE_BYTES, size_of_all};
use super::send::is_scheduled_as;
use super::transfer::Transfer;
use super::unknown::settled_then;
use super::{
    ANSWERS_FIT, Answered, Checker, LOCKS, ONE_PLACE, QUEUES, entities_in, entity, number_of,
};
use crate::bus::topics::{self, Kind};
use crate::checker::{Violation, violated};

impl Checker {
    pub(super) fn transacted(
        &mut self,
        answered: &Answered<'_>,
        parts: &[TransactionPart],
    ) -> Result<(), Violation> {
        if *answered.outcome != BusOutcome::Transacted {
            return violated!(ANSWERS_FIT, "{:?}", answered.outcome);
        }
        for part in parts {
            self.is_the_one(part)?;
            self.part_is_done(part, answered.at)?;
        }
        self.note_transaction(parts);
        Ok(())
    }

    fn note_transaction(&mut self, parts: &[TransactionPart]) {
        self.note("a transaction was done");
        let queues: BTreeSet<_> = entities_in(parts).iter().map(|it| it.queue).collect();
        if queues.len() >= 3 {
            self.note("a transaction over three queues was done");
        }
        let has = |is: fn(&TransactionWork) -> bool| parts.iter().any(|part| is(&part.work));
        if has(|work| matches!(work, TransactionWork::Send(_)))
            && has(|work| matches!(work, TransactionWork::Settle(..)))
            && has(|work| matches!(work, TransactionWork::CancelScheduled(_)))
        {
            self.note("a transaction sent, settled and cancelled");
        }
        if has(|work| {
            matches!(
                work,
                TransactionWork::Settle(_, Disposition::Abandon { .. })
            )
        }) && has(|work| matches!(work, TransactionWork::Settle(_, Disposition::Complete)))
        {
            self.note("a transaction completed one message and gave another back");
        }
        let again = parts.iter().any(|part| match &part.work {
            TransactionWork::Settle(lock, _) => self.refused_locks.contains(lock.as_bytes()),
            _ => false,
        });
        if again {
            self.note("a lock was ended that a refused transaction was to end");
        }
    }

    /// A transaction does nothing in another queue than the intended one.
    fn is_the_one(&self, part: &TransactionPart) -> Result<(), Violation> {
        let latest = self.incarnations.get(&entity(&part.queue));
        match (part.incarnation, latest) {
            (Some(meant), Some(latest)) if meant.as_u64() < *latest => violated!(
                QUEUES,
                "{:?} is {latest:?}, and took what was meant for {meant:?}",
                part.queue
            ),
            _ => Ok(()),
        }
    }

    fn part_is_done(&mut self, part: &TransactionPart, at: Timestamp) -> Result<(), Violation> {
        let entity = entity(&part.queue);
        match &part.work {
            TransactionWork::Send(messages) if is_topic(entity) => {
                self.published_by(entity, messages, at)
            }
            TransactionWork::SendVia(to, messages) => {
                self.sent_via(entity, super::entity(to), messages, at)
            }
            TransactionWork::Transfer(via, messages) => {
                self.note("a transaction sent, or failed to transfer");
                self.transferred_by(super::entity(via), entity, messages, at)
            }
            TransactionWork::Send(messages) => {
                self.takes_messages(entity)?;
                let bodies = messages.iter().map(|message| &message.body);
                self.check_room_was_there(entity.queue, (size_of_all(bodies), 0))?;
                for message in messages {
                    self.has_its_session(entity, message)?;
                    self.one_sent_unnumbered(entity, message, at);
                }
                Ok(())
            }
            TransactionWork::Settle(token, disposition) => {
                let Some(number) = self.message_of(*token) else {
                    return violated!(LOCKS, "{token:?} was never given, and is taken");
                };
                self.one_settled(entity, number, (*token, disposition), at)
            }
            TransactionWork::CancelScheduled(numbers) => {
                for number in numbers {
                    self.one_cancelled(entity, number.as_u64())?;
                }
                Ok(())
            }
        }
    }

    fn has_its_session(&mut self, entity: Entity, message: &BusMessage) -> Result<(), Violation> {
        let queue = self.queues.get(entity.queue);
        if message.session.is_none() && queue.options().all(|it| it.requires_session) {
            return violated!(QUEUES, "{message:?} has no session, and is in {entity:?}");
        }
        Ok(())
    }

    /// A message was accepted, but no client learned its number, or whether it was dropped as a
    /// duplicate.
    fn one_sent_unnumbered(&mut self, entity: Entity, message: &BusMessage, at: Timestamp) {
        let body = number_of(&message.body);
        self.last_message = self.last_message.max(body);
        let is_dropped = self.is_dropped(entity, message.message_id.as_deref(), at);
        if is_dropped == Some(true) {
            self.over.insert(body);
            self.note("a duplicate was dropped in a transaction");
            return;
        }
        let mut sent = self.attempt(entity, message, Span::at(at));
        if is_dropped.is_none() {
            sent.may_be(Fate::NeverSent);
        }
        self.messages.insert(body, sent);
    }

    /// Whether a message is certainly dropped as a duplicate, and what is known about the id then.
    pub(super) fn is_dropped(
        &mut self,
        entity: Entity,
        id: Option<&str>,
        at: Timestamp,
    ) -> Option<bool> {
        let queue = self.queues.get(entity.queue);
        let window_ms = queue.options().find_map(|it| it.duplicate_window_ms);
        let (Some(id), Some(window_ms)) = (id, window_ms) else {
            return Some(false);
        };
        let times = queue.ids.entry(id.into()).or_insert_with(|| vec![None]);
        let drops =
            |time: &Option<Span>| time.is_some_and(|it| !it.plus_ms(window_ms).has_passed(at));
        let takes =
            |time: &Option<Span>| time.is_none_or(|it| it.plus_ms(window_ms).may_have_passed(at));
        let (may_be_dropped, may_be_taken) = (times.iter().any(drops), times.iter().any(takes));
        if may_be_taken {
            if times.iter().any(Option::is_some) {
                queue.again.insert(id.into());
            }
            times.retain(drops);
            times.push(Some(Span::at(at)));
        }
        (may_be_dropped != may_be_taken).then_some(may_be_dropped)
    }

    pub(super) fn refused_transaction(
        &mut self,
        parts: &[TransactionPart],
        refusal: &BusRefusal,
        at: Timestamp,
    ) -> Result<(), Violation> {
        let unfit = || violated!(ANSWERS_FIT, "{parts:?}: {refusal}");
        let BusRefusal::Transaction { part, queue, why } = refusal else {
            return unfit();
        };
        let until = usize::try_from(*part).unwrap_or(usize::MAX);
        let so_far = parts.get(..until).unwrap_or_default();
        let Some((refused, before)) = so_far.split_last() else {
            return unfit();
        };
        if refused.queue.name != *queue {
            return unfit();
        }
        for part in before {
            if !is_transfer(part) {
                self.is_there(entity(&part.queue).queue, refusal)?;
            }
            self.is_the_one(part)?;
            self.part_would_do(part, at)?;
        }
        self.part_is_refused((so_far, refused), why, at)?;
        if !before.is_empty() {
            self.note("a transaction was refused, and parts of it would have done");
        }
        if before.iter().any(is_of_topics) {
            self.note("a transaction with a topic or via was refused");
        }
        for part in parts {
            if let TransactionWork::Settle(lock, _) = &part.work {
                self.refused_locks.insert(*lock.as_bytes());
            }
        }
        Ok(())
    }

    /// A part was checked, and no reason against it was found.
    fn part_would_do(&mut self, part: &TransactionPart, at: Timestamp) -> Result<(), Violation> {
        let entity = entity(&part.queue);
        match &part.work {
            TransactionWork::SendVia(..) => self.takes_messages(entity),
            TransactionWork::Transfer(..) => Ok(()),
            TransactionWork::Send(messages) => {
                self.takes_messages(entity)?;
                messages
                    .iter()
                    .try_for_each(|message| self.has_its_session(entity, message))
            }
            TransactionWork::Settle(token, _) => self.may_hold(entity, *token, at),
            TransactionWork::CancelScheduled(numbers) => {
                for number in numbers {
                    let number = number.as_u64();
                    let Some(message) = self.owner_of(entity, number) else {
                        continue;
                    };
                    let seen = ("could be cancelled", number);
                    self.narrow(message, ONE_PLACE, &seen, |life| {
                        let is_it = is_scheduled_as(life, entity, number);
                        is_it.then(|| vec![Fate::Here(life.clone())])
                    })?;
                }
                Ok(())
            }
        }
    }

    fn part_is_refused(
        &mut self,
        (so_far, part): (&[TransactionPart], &TransactionPart),
        why: &PartRefusal,
        at: Timestamp,
    ) -> Result<(), Violation> {
        let entity = entity(&part.queue);
        let before = &so_far[..so_far.len() - 1];
        if let TransactionWork::Transfer(via, messages) = &part.work {
            let refusal = match why {
                PartRefusal::Refused(refusal) => Some(refusal),
                _ => None,
            };
            let transfer = Transfer {
                via: super::entity(via),
                to: entity,
                messages,
                so_far,
            };
            if self.transfer_is_refused(transfer, refusal)? {
                return Ok(());
            }
        }
        if let PartRefusal::Refused(BusRefusal::QueueNotFound { .. }) = why {
            return self.is_not_the_one(part, why);
        }
        self.is_there(entity.queue, why)?;
        match (&part.work, why) {
            (TransactionWork::SendVia(to, messages), PartRefusal::Refused(refusal)) => {
                let transfer = Transfer {
                    via: entity,
                    to: super::entity(to),
                    messages,
                    so_far,
                };
                self.send_via_is_refused(transfer, refusal)
            }
            // There is no other queue for what fails.
            (
                TransactionWork::Send(messages) | TransactionWork::Transfer(_, messages),
                PartRefusal::Refused(refusal),
            ) => self.send_is_refused(entity, (so_far, messages), refusal),
            (TransactionWork::Settle(token, _), PartRefusal::Unsettled(Verdict::LockLost))
                if before.iter().any(|part| ends(part, *token)) =>
            {
                self.note("a transaction was to end a lock twice");
                Ok(())
            }
            (TransactionWork::Settle(token, disposition), PartRefusal::Unsettled(verdict)) => {
                match verdict {
                    Verdict::LockLost | Verdict::SessionLockLost => {
                        self.note("a transaction was refused for a lock");
                        let is_for_session = *verdict == Verdict::SessionLockLost;
                        self.lock_is_lost(entity, *token, at, is_for_session)
                    }
                    Verdict::NotAllowed if entity.part != Part::Queue => Ok(()),
                    Verdict::QuotaExceeded => {
                        let earlier = growth(entity.queue, before);
                        self.is_full_for_change(entity.queue, disposition, earlier)
                    }
                    _ => violated!(ANSWERS_FIT, "{part:?}: {why}"),
                }
            }
            (
                TransactionWork::CancelScheduled(numbers),
                PartRefusal::Refused(BusRefusal::MessageNotFound { sequence_number }),
            ) if numbers.iter().any(|it| it.as_u64() == *sequence_number) => {
                self.note("a transaction was refused for a scheduled message");
                let is_it = |number: &&SequenceNumber| number.as_u64() == *sequence_number;
                let earlier = before.iter().filter(|it| it.queue == part.queue);
                let earlier = earlier.filter_map(|it| match &it.work {
                    TransactionWork::CancelScheduled(numbers) => Some(numbers),
                    _ => None,
                });
                let is_repeated = numbers.iter().filter(is_it).count() > 1
                    || earlier.flatten().any(|number| is_it(&number));
                if is_repeated {
                    return Ok(());
                }
                self.not_scheduled(entity, *sequence_number)
            }
            _ => violated!(ANSWERS_FIT, "{part:?}: {why}"),
        }
    }

    /// A queue was not found, or is not the intended one.
    fn is_not_the_one(
        &mut self,
        part: &TransactionPart,
        why: &PartRefusal,
    ) -> Result<(), Violation> {
        let entity = entity(&part.queue);
        let latest = self.incarnations.get(&entity).copied();
        if part.incarnation.is_none() {
            self.note("a transaction was refused for a queue that is gone");
            return self.is_absent(entity.queue);
        }
        let known = self.queues.get(entity.queue);
        let is_certain = !known.may_be_absent() && !known.is_perhaps_new;
        if is_certain && part.incarnation.map(Incarnation::as_u64) == latest {
            return violated!(QUEUES, "{part:?} is there: {why}");
        }
        if is_certain {
            self.note("a transaction was refused for a queue that was made anew");
        }
        Ok(())
    }

    fn send_is_refused(
        &mut self,
        entity: Entity,
        (so_far, messages): (&[TransactionPart], &[BusMessage]),
        refusal: &BusRefusal,
    ) -> Result<(), Violation> {
        match refusal {
            BusRefusal::NotSendable { .. } if entity.part != Part::Queue => Ok(()),
            BusRefusal::Disabled { .. } => {
                self.note("a transaction was refused by a disabled queue");
                self.must_be(entity, refusal, |it| !it.status.allows_send())
            }
            BusRefusal::SessionRequired if messages.iter().any(|it| it.session.is_none()) => {
                self.must_be(entity, refusal, |it| it.requires_session)
            }
            BusRefusal::QuotaExceeded { .. } => {
                self.note("a transaction was refused by a full queue");
                self.is_full(entity.queue, growth(entity.queue, so_far))
            }
            _ => violated!(ANSWERS_FIT, "{messages:?}: {refusal}"),
        }
    }

    pub(super) fn perhaps_transacted(&mut self, parts: &[TransactionPart], when: Span) {
        let queues: BTreeSet<_> = entities_in(parts).iter().map(|it| it.queue).collect();
        let work = self.works.begin(Some(queues.len()));
        for part in parts {
            let entity = entity(&part.queue);
            match &part.work {
                TransactionWork::Send(_) if entity.part != Part::Queue => self.works.refute(work),
                TransactionWork::Send(messages) if is_topic(entity) => {
                    self.works.note_topics(work);
                    self.perhaps_published_by(work, entity, messages, when);
                }
                TransactionWork::SendVia(to, messages) => {
                    self.works.note_topics(work);
                    let to = super::entity(to);
                    self.perhaps_sent_via(work, entity, to, messages, when);
                }
                TransactionWork::Transfer(via, messages) => {
                    self.works.note_topics(work);
                    let via = super::entity(via);
                    self.perhaps_sent_via(work, via, entity, messages, when);
                }
                TransactionWork::Send(messages) => {
                    self.perhaps_sent_by(work, entity, messages, when);
                }
                TransactionWork::Settle(token, disposition) => {
                    self.perhaps_settled_by(work, entity, (*token, disposition), when);
                }
                TransactionWork::CancelScheduled(numbers) => {
                    for number in numbers {
                        self.perhaps_cancelled_by(work, entity, number.as_u64());
                    }
                }
            }
        }
    }

    fn perhaps_settled_by(
        &mut self,
        work: u64,
        entity: Entity,
        (token, disposition): (Token, &Disposition),
        when: Span,
    ) {
        let is_allowed =
            entity.part == Part::Queue || !matches!(disposition, Disposition::DeadLetter { .. });
        let options: Vec<_> = self.queues.of(entity).cloned().collect();
        let number = self.message_of(token).filter(|_| is_allowed);
        let known = number.and_then(|number| Some((number, self.messages.get_mut(&number)?)));
        let Some((number, message)) = known else {
            self.works.refute(work);
            return;
        };
        message.branch(work, |life| {
            settled_then(life, entity, token, disposition, (&options, when))
        });
        self.works.touch(work, number);
    }

    fn perhaps_cancelled_by(&mut self, work: u64, entity: Entity, number: u64) {
        let then = |life: &Life| {
            let is_it = is_scheduled_as(life, entity, number);
            is_it.then_some(Fate::Gone).into_iter().collect()
        };
        match self.owner_of(entity, number) {
            // No client learned whose number it is.
            None => self.perhaps(then),
            Some(owner) => match self.messages.get_mut(&owner) {
                Some(message) => {
                    message.branch(work, then);
                    self.works.touch(work, owner);
                }
                None => self.works.refute(work),
            },
        }
    }
}

/// How many bytes the parts of a transaction add to a queue or topic at most. However many copies there are going to be,
/// a message counts once.
pub(super) fn growth(queue: usize, parts: &[TransactionPart]) -> u64 {
    let charged = topics::charged(queue);
    let is_one = |name| topics::charged(entity(name).queue) == charged;
    let of_queue = parts.iter().filter(|it| it.queues().any(is_one));
    let grown = of_queue.map(|part| match &part.work {
        TransactionWork::Send(messages) => size_of_all(messages.iter().map(|it| &it.body)),
        // A transfer that fails says why.
        TransactionWork::SendVia(_, messages) | TransactionWork::Transfer(_, messages) => {
            let changes = messages.len() as u64 * CHANGE_SIZE_BYTES;
            size_of_all(messages.iter().map(|it| &it.body)) + changes
        }
        TransactionWork::Settle(_, disposition) => match disposition {
            Disposition::Abandon { overlay }
            | Disposition::Defer { overlay }
            | Disposition::DeadLetter { overlay } => {
                overlay.as_ref().map_or(0, |overlay| overlay.len() as u64)
            }
            Disposition::Complete | Disposition::Release => 0,
        },
        TransactionWork::CancelScheduled(_) => 0,
    });
    grown.sum()
}

fn is_topic(entity: Entity) -> bool {
    topics::kind(entity.queue) == Kind::Topic
}

/// Whether a part sends to a topic, or via an entity.
fn is_of_topics(part: &TransactionPart) -> bool {
    match part.work {
        TransactionWork::Send(_) => is_topic(entity(&part.queue)),
        TransactionWork::SendVia(..) | TransactionWork::Transfer(..) => true,
        TransactionWork::Settle(..) | TransactionWork::CancelScheduled(_) => false,
    }
}

/// Whether a part only names another queue for what fails: then its own need not exist.
pub(super) fn is_transfer(part: &TransactionPart) -> bool {
    matches!(part.work, TransactionWork::Transfer(..))
}

/// Whether a part ends this lock.
fn ends(part: &TransactionPart, token: Token) -> bool {
    matches!(&part.work, TransactionWork::Settle(own, _) if *own == token)
}
