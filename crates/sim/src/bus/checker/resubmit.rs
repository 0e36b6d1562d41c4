//! Messages that an operator resubmits: each moves from one place to another in one step, so that
//! it is never in both and never in neither. It keeps the number in its body, by which the checker
//! recognizes it. Its place, its other bytes and its session are new.

use std::sync::Arc;

use kew_engine::Timestamp;
use kew_engine::bus::{BusRefusal, Resubmission, Resubmit, ResubmitVerdict};

use super::life::{Content, Entity, Fate, Life, Part, Span, Stage};
use super::queues::size_of_all;
use super::{ANSWERS_FIT, Checker, NO_LOSS, NO_RESURRECTION, ONE_PLACE, Owner, QUEUES, number_of};
use crate::bus::queue_index;
use crate::bus::topics::{self, Kind};
use crate::checker::{Violation, violated};

/// The destination queue.
fn destination(from: Entity, resubmit: &Resubmit) -> Entity {
    let named = resubmit.to.as_deref().map(queue_index);
    Entity {
        queue: named.unwrap_or(from.queue),
        part: Part::Queue,
    }
}

/// Whether it can be resubmitted as requested.
fn is_as_known(life: &Life, message: &Resubmission) -> bool {
    life.lock().is_none() && life.overlays.len() == message.overlay_count as usize
}

/// Its state afterwards, for each of the possible settings of the destination.
fn sent_again(to: Entity, lives_ms: &[u64], message: &Resubmission, when: Span) -> Vec<Life> {
    let content = Arc::new(Content {
        body: message.body.clone(),
        session: message.session.clone(),
    });
    let own_ms = message.time_to_live_ms.unwrap_or(u64::MAX);
    let with = |lives_ms: &u64| Life {
        entity: to,
        number: None,
        first_number: None,
        stage: Stage::Ready,
        failures: 0,
        cause: None,
        hops: 0,
        was_gathered: false,
        expires: when.plus_ms(own_ms.min(*lives_ms)),
        overlays: Vec::new(),
        content: content.clone(),
    };
    lives_ms.iter().map(with).collect()
}

/// The same message, which has come through the gathering topic or not.
fn gathered_as(fate: &Fate, before: &Life) -> Fate {
    match fate {
        Fate::Here(life) => Fate::Here(Life {
            was_gathered: life.was_gathered || before.was_gathered,
            ..life.clone()
        }),
        fate => fate.clone(),
    }
}

impl Checker {
    pub(super) fn resubmitted(
        &mut self,
        from: Entity,
        resubmit: &Resubmit,
        verdicts: &[ResubmitVerdict],
        at: Timestamp,
    ) -> Result<(), Violation> {
        let to = destination(from, resubmit);
        if verdicts.len() != resubmit.messages.len() || to == from {
            return violated!(ANSWERS_FIT, "{from:?}, {resubmit:?}: {verdicts:?}");
        }
        self.is_there(to.queue, resubmit)?;
        // A subscription takes what its topic does.
        let queue = topics::charged(to.queue);
        self.takes_messages(Entity { queue, ..to })?;
        for (message, verdict) in resubmit.messages.iter().zip(verdicts) {
            self.one_resubmitted((from, to), message, *verdict, at)?;
        }
        Ok(())
    }

    fn one_resubmitted(
        &mut self,
        (from, to): (Entity, Entity),
        message: &Resubmission,
        verdict: ResubmitVerdict,
        at: Timestamp,
    ) -> Result<(), Violation> {
        let number = message.sequence_number.as_u64();
        let id = message.message_id.as_deref();
        let size_bytes = size_of_all([&message.body]);
        let is = |wants: bool, life: &Life| wants.then(|| vec![Fate::Here(life.clone())]);
        let stays = |life: &Life| is(is_as_known(life, message), life);
        match verdict {
            ResubmitVerdict::Resubmitted(new) => {
                self.one_sent_again((from, to), message, new.as_u64(), at)
            }
            ResubmitVerdict::NotFound => self.is_not_there(from, number),
            ResubmitVerdict::Locked => self.narrow_numbered(from, number, &verdict, |life| {
                is(life.lock().is_some(), life)
            }),
            ResubmitVerdict::Changed => self.narrow_numbered(from, number, &verdict, |life| {
                let is_changed = life.lock().is_none() && !is_as_known(life, message);
                is(is_changed, life)
            }),
            ResubmitVerdict::Duplicate => {
                self.check_duplicate(to, id, true, at)?;
                self.note("a message was not sent again for its id");
                self.narrow_numbered(from, number, &verdict, stays)
            }
            ResubmitVerdict::SessionRequired if message.session.is_none() => {
                let refusal = BusRefusal::SessionRequired;
                self.must_be(to, &refusal, |it| it.requires_session)?;
                self.narrow_numbered(from, number, &verdict, stays)
            }
            ResubmitVerdict::Full => {
                self.is_full(to.queue, size_bytes)?;
                self.narrow_numbered(from, number, &verdict, stays)
            }
            ResubmitVerdict::Unselected if topics::kind(to.queue) == Kind::Topic => {
                self.note("a message was not sent again because nobody would get it");
                if self.copies_least(to.queue, number_of(&message.body)) > 0 {
                    return violated!(NO_LOSS, "{message:?} has recipients: {verdict:?}");
                }
                self.narrow_numbered(from, number, &verdict, stays)
            }
            ResubmitVerdict::SessionRequired
            | ResubmitVerdict::TooLarge
            | ResubmitVerdict::Unselected
            // Rules of these worlds take few steps.
            | ResubmitVerdict::NotCompared => {
                violated!(ANSWERS_FIT, "{message:?}: {verdict:?}")
            }
        }
    }

    fn one_sent_again(
        &mut self,
        (from, to): (Entity, Entity),
        message: &Resubmission,
        new: u64,
        at: Timestamp,
    ) -> Result<(), Violation> {
        let body = number_of(&message.body);
        let number = topics::number_in(from.queue, body);
        let old = message.sequence_number.as_u64();
        let is_it = |life: &Life| life.may_have_number(from, old) && is_as_known(life, message);
        let wants_session = self.queues.of(to).all(|it| it.requires_session);
        if message.session.is_none() && wants_session {
            return violated!(QUEUES, "{message:?} has no session, and is {new} of {to:?}");
        }
        // A resubmission from a queue's own dead letters frees room for itself.
        let freed_bytes = match self.messages.get(&number) {
            Some(known) if topics::charged(from.queue) == topics::charged(to.queue) => {
                let sizes = known.lives().filter(|life| is_it(life));
                sizes.map(Life::size_bytes).max().unwrap_or(0)
            }
            _ => 0,
        };
        let taken_bytes = size_of_all([&message.body]);
        self.check_room_was_there(to.queue, (taken_bytes, freed_bytes))?;
        self.check_duplicate(to, message.message_id.as_deref(), false, at)?;
        if let Some(id) = &message.session {
            self.queues.get(to.queue).session(id);
        }
        if self.over.contains(&number) {
            return violated!(NO_RESURRECTION, "message {number}: {message:?}");
        }
        self.sent_again.insert(number);
        let owner = Owner {
            message: number,
            is_scheduled: false,
        };
        self.is_given(to, new, owner)?;
        let queue = self.queues.get(to.queue);
        queue.used_at = queue.used_at.max(at);
        let fates = self.fates_again(to, message, Span::at(at));
        let known_as = |fate: Fate| match fate {
            Fate::Here(life) => Fate::Here(Life {
                number: (life.entity == to).then_some(new),
                first_number: Some(new),
                ..life
            }),
            fate => fate,
        };
        let fates: Vec<_> = fates.into_iter().map(known_as).collect();
        let seen = ("sent again", from, to, message, new);
        self.narrow(number, ONE_PLACE, &seen, |life| {
            is_it(life).then(|| fates.iter().map(|it| gathered_as(it, life)).collect())
        })?;
        if to.queue == topics::GATHERING {
            self.note("a message was sent again to a topic");
            if self.copies_most_of(to.queue, body) == 0 {
                return violated!(NO_LOSS, "{message:?} has no recipient, and is {new}");
            }
            let known = |life: Life| Life {
                first_number: Some(new),
                ..life
            };
            let lives = self.lives_again(to, message, Span::at(at));
            let lives: Vec<_> = lives.into_iter().map(known).collect();
            self.are_gathered(body, &lives, at)?;
        }
        if topics::topic_of(to.queue).is_some() {
            self.note("a message was put back into its subscription");
        }
        self.note("a message was sent again");
        Ok(())
    }

    /// What is sent again, for each of the possible settings of the destination.
    fn lives_again(&self, to: Entity, message: &Resubmission, when: Span) -> Vec<Life> {
        let queue = topics::charged(to.queue);
        let charged = self.queues.of(Entity { queue, ..to });
        let of_charged: Vec<_> = charged.map(|it| it.default_time_to_live_ms).collect();
        let own = self.queues.of(to).map(|it| it.default_time_to_live_ms);
        let lives_ms = own.flat_map(|own| of_charged.iter().map(move |it| own.min(*it)));
        let lives_ms: Vec<_> = lives_ms.collect();
        sent_again(to, &lives_ms, message, when)
    }

    /// What a message may become that is sent again then.
    fn fates_again(&self, to: Entity, message: &Resubmission, when: Span) -> Vec<Fate> {
        let lives = self.lives_again(to, message, when);
        let Some(first) = topics::subscriptions_of(to.queue).next() else {
            return lives.into_iter().map(Fate::Here).collect();
        };
        let gathered = lives.iter();
        let gathered = gathered.flat_map(|it| it.gathered(first, 0, when.to, &self.queues));
        gathered.collect()
    }

    pub(super) fn refused_resubmission(
        &mut self,
        from: Entity,
        resubmit: &Resubmit,
        refusal: &BusRefusal,
    ) -> Result<(), Violation> {
        let to = destination(from, resubmit);
        match refusal {
            BusRefusal::DestinationNotFound { .. } if to == from => Ok(()),
            BusRefusal::DestinationNotFound { .. } => self.is_absent(to.queue),
            BusRefusal::Disabled { .. } => {
                self.is_there(to.queue, refusal)?;
                let queue = topics::charged(to.queue);
                let charged = Entity { queue, ..to };
                self.must_be(charged, refusal, |it| !it.status.allows_send())
            }
            _ => violated!(ANSWERS_FIT, "{resubmit:?}: {refusal}"),
        }
    }

    pub(super) fn perhaps_resubmitted(&mut self, from: Entity, resubmit: &Resubmit, when: Span) {
        let to = destination(from, resubmit);
        if to == from {
            return;
        }
        let detects = (self.queues.of(to)).any(|it| it.duplicate_window_ms.is_some());
        for message in &resubmit.messages {
            if let Some(id) = &message.session {
                self.queues.get(to.queue).session(id);
            }
            let again = self.fates_again(to, message, when);
            let body = number_of(&message.body);
            let copy = topics::number_in(from.queue, body);
            let Some(known) = self.messages.get_mut(&copy) else {
                continue;
            };
            let number = message.sequence_number.as_u64();
            let is_it =
                |life: &Life| life.may_have_number(from, number) && is_as_known(life, message);
            if !known.may(is_it) {
                continue;
            }
            known.perhaps(|life| {
                let again = again.iter().filter(|_| is_it(life));
                again.map(|it| gathered_as(it, life)).collect()
            });
            self.sent_again.insert(copy);
            if to.queue == topics::GATHERING {
                let lives = self.lives_again(to, message, when);
                self.may_be_gathered(body, &lives, (0, when.to));
            }
            if let Some(id) = message.message_id.as_ref().filter(|_| detects) {
                self.queues.get(to.queue).may_be_accepted(id, when);
            }
        }
    }
}
