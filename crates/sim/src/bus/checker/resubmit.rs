//! Messages that an operator resubmits: each moves from one place to another in one step, so that
//! it is never in both and never in neither. It keeps the number in its body, by which the checker
//! recognizes it. Its place, its other bytes and its session are new.

use std::sync::Arc;

use kew_engine::Timestamp;
use kew_engine::bus::{BusQueueOptions, BusRefusal, Resubmission, Resubmit, ResubmitVerdict};

use super::life::{Content, Entity, Fate, Life, Part, Span, Stage};
use super::queues::size_of_all;
use super::{ANSWERS_FIT, Checker, NO_RESURRECTION, ONE_PLACE, Owner, QUEUES, number_of};
use crate::bus::queue_index;
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
fn sent_again(
    to: Entity,
    options: &[BusQueueOptions],
    message: &Resubmission,
    when: Span,
) -> Vec<Life> {
    let content = Arc::new(Content {
        body: message.body.clone(),
        session: message.session.clone(),
    });
    let own_ms = message.time_to_live_ms.unwrap_or(u64::MAX);
    let with = |options: &BusQueueOptions| Life {
        entity: to,
        number: None,
        first_number: None,
        stage: Stage::Ready,
        failures: 0,
        cause: None,
        hops: 0,
        expires: when.plus_ms(own_ms.min(options.default_time_to_live_ms)),
        overlays: Vec::new(),
        content: content.clone(),
    };
    options.iter().map(with).collect()
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
        self.takes_messages(to)?;
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
            ResubmitVerdict::SessionRequired
            | ResubmitVerdict::TooLarge
            | ResubmitVerdict::Unselected => {
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
        let number = number_of(&message.body);
        let old = message.sequence_number.as_u64();
        let is_it = |life: &Life| life.may_have_number(from, old) && is_as_known(life, message);
        let options: Vec<_> = self.queues.of(to).cloned().collect();
        if message.session.is_none() && options.iter().all(|it| it.requires_session) {
            return violated!(QUEUES, "{message:?} has no session, and is {new} of {to:?}");
        }
        // A resubmission from a queue's own dead letters frees room for itself.
        let freed_bytes = match self.messages.get(&number) {
            Some(known) if from.queue == to.queue => {
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
        let owner = Owner {
            message: number,
            is_scheduled: false,
        };
        self.is_given(to, new, owner)?;
        let queue = self.queues.get(to.queue);
        queue.used_at = queue.used_at.max(at);
        let lives = sent_again(to, &options, message, Span::at(at));
        let fates = lives.into_iter().map(|life| {
            Fate::Here(Life {
                number: Some(new),
                first_number: Some(new),
                ..life
            })
        });
        let fates: Vec<_> = fates.collect();
        if self.over.contains(&number) {
            return violated!(NO_RESURRECTION, "message {number}: {message:?}");
        }
        let seen = ("sent again", from, to, message, new);
        self.narrow(number, ONE_PLACE, &seen, |life| {
            is_it(life).then(|| fates.clone())
        })?;
        self.note("a message was sent again");
        Ok(())
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
                self.must_be(to, refusal, |it| !it.status.allows_send())
            }
            _ => violated!(ANSWERS_FIT, "{resubmit:?}: {refusal}"),
        }
    }

    pub(super) fn perhaps_resubmitted(&mut self, from: Entity, resubmit: &Resubmit, when: Span) {
        let to = destination(from, resubmit);
        if to == from {
            return;
        }
        let options: Vec<_> = self.queues.of(to).cloned().collect();
        let detects = options.iter().any(|it| it.duplicate_window_ms.is_some());
        for message in &resubmit.messages {
            if let Some(id) = &message.session {
                self.queues.get(to.queue).session(id);
            }
            let Some(known) = self.messages.get_mut(&number_of(&message.body)) else {
                continue;
            };
            let number = message.sequence_number.as_u64();
            let is_it =
                |life: &Life| life.may_have_number(from, number) && is_as_known(life, message);
            if !known.may(is_it) {
                continue;
            }
            let again = sent_again(to, &options, message, when);
            known.perhaps(|life| {
                let again = again.iter().filter(|_| is_it(life));
                again.cloned().map(Fate::Here).collect()
            });
            if let Some(id) = message.message_id.as_ref().filter(|_| detects) {
                let ids = &mut self.queues.get(to.queue).ids;
                let times = ids.entry(id.clone()).or_insert_with(|| vec![None]);
                times.push(Some(when));
            }
        }
    }
}
