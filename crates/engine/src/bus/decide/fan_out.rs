//! Copies of messages that wait in their topic: due work makes them, a step at a time.
//!
//! All effects of a step are in one event: its copies, and how far the message is copied then. So each copy is made once,
//! whatever happens between two steps. A step takes the first ready message of the topic, which has a lower number than
//! all that come later: so each subscription gets copies in the order of the topic.
//!
//! The rules that count are those that hold for the number of the message. That they were compared with it is kept in
//! memory alone: without that, the comparison begins again, and comes to the same.
//!
//! The first copy counts the body, and the others borrow it. The record in the topic counts it, too, until it ends.

use std::ops::Bound;

use kew_filter::RuleId;

use super::super::message::Message;
use super::super::room::{COPY_STEPS, DUE_SIZE_BYTES_MAX, MOVED_SIZE_BYTES};
use super::super::rules::{
    Evaluation, FAILURE, FanOut, Found, Matched, OutOfSteps, Seen, Topic, TopicTally,
};
use super::super::{DeadLetterCause, Known};
use super::copies::{CopiesSize, Copy, Original};
use super::due::STEPS_PER_UNIT;
use super::effects::place;
use super::forwarded::{Read, Unread};
use super::select::uuid_of;
use super::{DueStep, Turn};
use crate::bus::{Effect, OwnEffect};
use crate::effect::NextCopy;
use crate::vocabulary::{Hold, Incarnation, SequenceNumber, Timestamp};

/// The most copies that one step makes.
const STEP_COPIES_MAX: u64 = 64;

/// How many copies take a unit of the due budget.
const COPIES_PER_UNIT: u64 = 4;

/// The most bytes of the effects of a step besides its copies: where the next one is, and the end of the message without
/// the places of its changes.
const STEP_SIZE_BYTES: u64 = MOVED_SIZE_BYTES;

/// Why the action of a rule fails on a message that was changed so often before it was forwarded to the topic.
const TOO_MANY_CHANGES: &str = "the message has no room for more changes to its properties";

/// The copies of one step, as far as there is room.
struct Step {
    copies: Vec<(Incarnation, Copy)>,
    size: CopiesSize,
    /// For how many subscriptions a rule failed.
    failures: u64,
    count_max: u64,
    size_bytes_max: u64,
    /// The most bytes of its effects besides its copies.
    end_bytes: u64,
}

/// There is no room for one more copy.
struct Full;

impl Step {
    fn new(original: &Original, budget: u32) -> Self {
        let budget = u64::from(budget);
        let size_bytes_max = budget * DUE_SIZE_BYTES_MAX;
        let end_bytes = STEP_SIZE_BYTES + original.side_size_bytes();
        Self {
            copies: Vec::new(),
            size: CopiesSize::of(original),
            failures: 0,
            count_max: STEP_COPIES_MAX.min(budget * COPIES_PER_UNIT),
            size_bytes_max: size_bytes_max.saturating_sub(end_bytes),
            end_bytes,
        }
    }

    fn add(
        &mut self,
        turn: &Turn<'_>,
        original: &Original,
        subscription: Incarnation,
        copy: Copy,
    ) -> Result<(), Full> {
        let size = self
            .size
            .with(turn, subscription, &copy, original.session());
        let has_room =
            (self.copies.len() as u64) < self.count_max && size.size_bytes <= self.size_bytes_max;
        if !has_room {
            return Err(Full);
        }
        self.size = size;
        self.copies.push((subscription, copy));
        Ok(())
    }

    /// How much of the due budget it takes.
    fn cost(&self, steps: u64) -> u32 {
        let copies = (self.copies.len() as u64).div_ceil(COPIES_PER_UNIT);
        let size_bytes = self.size.size_bytes + self.end_bytes;
        let size = size_bytes.div_ceil(DUE_SIZE_BYTES_MAX);
        let cost = copies.max(size).max(steps / STEPS_PER_UNIT);
        u32::try_from(cost).unwrap_or(u32::MAX)
    }
}

/// What one step is going to do.
struct Chosen {
    step: Step,
    /// The first copy that is left.
    next: Option<NextCopy>,
    /// Whether it gets any further.
    is_any: bool,
    is_out_of_steps: bool,
    steps: u64,
    /// What the next step needs.
    matched: Option<Matched>,
}

/// A message that is copied.
#[derive(Clone, core::marker::Copy)]
struct Waiting<'a> {
    topic: Incarnation,
    number: SequenceNumber,
    original: &'a Original,
    /// What rules see of it, if one may look at it.
    seen: Option<&'a Seen<'a>>,
}

impl Turn<'_> {
    /// Makes copies of the first ready message of a topic, as many as a step and the budget allow.
    pub(super) fn fan_out(
        &mut self,
        topic: Incarnation,
        number: SequenceNumber,
        budget: u32,
    ) -> DueStep {
        let Some(message) = self.bus_backlog(topic).get(number) else {
            return DueStep::Nothing;
        };
        let source = message.source().cloned();
        let known = known(&message, source.as_deref());
        let original = self.original(topic, &message);
        let waiting = Waiting {
            topic,
            number,
            original: &original,
            seen: None,
        };
        if !self.rules_of(topic).is_some_and(Topic::looks) {
            let chosen = self.choose(&waiting, Matched::of(number), budget);
            return self.make(&waiting, chosen);
        }
        let read = match self.read_message(topic, number) {
            Ok(read) => Some(read),
            Err(Unread::Damaged) => None,
            Err(Unread::Missing) => return DueStep::Nothing,
            Err(Unread::InBatch) => return DueStep::InBatch,
        };
        let kept = self.0.take_matched(topic);
        let kept = kept.filter(|matched| matched.number() == number);
        let matched = kept.unwrap_or_else(|| Matched::of(number));
        let chosen =
            read.and_then(|read| self.choose_seen(&waiting, known, &read, matched, budget));
        match chosen {
            Some(chosen) => self.make(&waiting, chosen),
            None => self.bury_damaged(topic, number, budget),
        }
    }

    /// Chooses copies of a message that rules look at. `None` if the bytes are not a message.
    fn choose_seen(
        &self,
        waiting: &Waiting<'_>,
        known: Known<'_>,
        read: &Read,
        matched: Matched,
        budget: u32,
    ) -> Option<Chosen> {
        let format = self.0.format();
        let view = format.view(&read.body, &read.overlays, known)?;
        let (topic, number) = (waiting.topic.as_u64(), waiting.number);
        let ids = |of: Incarnation, rule: RuleId, nth: u32| {
            let numbers = [topic, of.as_u64(), number.as_u64(), rule, nth.into()];
            uuid_of(self.cipher(), &numbers)
        };
        let seen = Seen {
            message: &*view,
            format,
            number,
            ids: &ids,
        };
        let waiting = Waiting {
            seen: Some(&seen),
            ..*waiting
        };
        Some(self.choose(&waiting, matched, budget))
    }

    fn choose(&self, waiting: &Waiting<'_>, mut matched: Matched, budget: u32) -> Chosen {
        let steps = u64::from(budget) * STEPS_PER_UNIT;
        let mut evaluation = Evaluation::with_steps(u32::try_from(steps).unwrap_or(u32::MAX));
        let from = self.next_copy(waiting.topic, waiting.number);
        let mut step = Step::new(waiting.original, budget);
        let next = match self.compare_waiting(waiting, &mut matched, &mut evaluation) {
            Ok(()) => self.choose_copies(waiting, from, &mut matched, &mut evaluation, &mut step),
            Err(OutOfSteps) => Some(from),
        };
        let is_out_of_steps = evaluation.check().is_err();
        if let Some(seen) = waiting.seen {
            Topic::note_read(seen.message, &mut evaluation);
        }
        Chosen {
            step,
            next,
            is_any: next != Some(from),
            is_out_of_steps,
            steps: evaluation.steps(),
            matched: (waiting.seen.is_some() && next.is_some()).then_some(matched),
        }
    }

    fn compare_waiting(
        &self,
        waiting: &Waiting<'_>,
        matched: &mut Matched,
        evaluation: &mut Evaluation,
    ) -> Result<(), OutOfSteps> {
        match (waiting.seen, self.rules_of(waiting.topic)) {
            (Some(seen), Some(rules)) => {
                evaluation.note_message();
                rules.compare(seen, matched, evaluation)
            }
            (None, _) | (_, None) => Ok(()),
        }
    }

    /// Chooses copies from one on. Returns the first one that is left, if there is one.
    fn choose_copies(
        &self,
        waiting: &Waiting<'_>,
        from: NextCopy,
        matched: &mut Matched,
        evaluation: &mut Evaluation,
        step: &mut Step,
    ) -> Option<NextCopy> {
        let takers = self.may_take_all_from(waiting.topic, from.subscription);
        let mut takers = takers.peekable();
        let mut behind = Bound::Included(from.subscription);
        loop {
            let candidates = [takers.peek().copied(), matched.first_found(behind)];
            let subscription = candidates.into_iter().flatten().min()?;
            behind = Bound::Excluded(subscription);
            let may_take_all = takers.next_if_eq(&subscription).is_some();
            let rule = match subscription == from.subscription {
                true => from.rule,
                false => 0,
            };
            let next = NextCopy { subscription, rule };
            if evaluation.check().is_err() {
                return Some(next);
            }
            // To look at a subscription takes time, too, whether it gets a copy or not.
            let looked_at =
                may_take_all.then(|| self.look_at(waiting.topic, subscription, waiting.number));
            let rules = looked_at.map_or(1, |it| it.rules);
            evaluation.spend(u32::try_from(rules).unwrap_or(u32::MAX));
            // What was found may be of one that was deleted since.
            if self.recipient(waiting.topic, subscription).is_none() {
                continue;
            }
            let mut nothing = Found::default();
            let found = matched.found(subscription).unwrap_or(&mut nothing);
            let is_plain = looked_at.is_some_and(|it| it.takes_all) || found.is_plain;
            let left = self.choose_of_one(waiting, (next, is_plain), found, evaluation, step);
            if left.is_some() {
                return left;
            }
        }
    }

    /// Chooses copies of one subscription, from one on. Returns the first one that is left.
    fn choose_of_one(
        &self,
        waiting: &Waiting<'_>,
        (next, is_plain): (NextCopy, bool),
        found: &mut Found,
        evaluation: &mut Evaluation,
        step: &mut Step,
    ) -> Option<NextCopy> {
        let NextCopy { subscription, rule } = next;
        let original = waiting.original;
        let at = |rule| Some(NextCopy { subscription, rule });
        if is_plain && rule == 0 && step.add(self, original, subscription, Copy::Plain).is_err() {
            return Some(next);
        }
        while let Some(id) = found.actions.front().copied() {
            // Those before are there, but whether one of them failed may have to be found out again.
            let is_made = id < rule;
            let here = at(rule.max(id));
            let (Ok(()), Some(seen), Some(rules)) = (
                evaluation.check(),
                waiting.seen,
                self.rules_of(waiting.topic),
            ) else {
                return here;
            };
            match rules.act(seen, id, evaluation) {
                Ok(made) if !original.takes(&made.overlay) => found.fail(id, TOO_MANY_CHANGES),
                Ok(_) if is_made => {}
                Ok(made) => {
                    let copy = Copy::Changed(Box::new(made));
                    if step.add(self, original, subscription, copy).is_err() {
                        return here;
                    }
                }
                Err(why) => found.fail(id, why),
            }
            found.actions.pop_front();
        }
        if let Some(failed) = self.failed(subscription, found)
            && let failed = original.fitting(failed)
            && step.add(self, original, subscription, failed).is_err()
        {
            return at(FAILURE);
        }
        step.failures += u64::from(found.failure.is_some());
        None
    }

    /// Makes the copies of a step, and notes which one is the next. After the last one, the message ends.
    fn make(&mut self, waiting: &Waiting<'_>, chosen: Chosen) -> DueStep {
        let (topic, number) = (waiting.topic, waiting.number);
        let copies = chosen.step.copies.len() as u64;
        self.0.note_steps(chosen.steps + copies * COPY_STEPS);
        let is_first = self.next_copy(topic, number) == NextCopy::default();
        let tally = TopicTally {
            copies,
            unmatched: u64::from(is_first && chosen.next.is_none() && copies == 0),
            filter_failures: chosen.step.failures,
            filter_steps: chosen.steps,
            ..TopicTally::default()
        };
        self.0.tally_topic(topic, &tally);
        if let Some(matched) = chosen.matched {
            self.0.keep_matched(topic, matched);
        }
        let cost = DueStep::Done(chosen.step.cost(chosen.steps));
        if !chosen.is_any {
            return match chosen.is_out_of_steps {
                true => cost,
                false => DueStep::TooLarge,
            };
        }
        // What was forwarded here may have a body that others have, too. If one of them counts it, no copy does.
        let original = waiting.original;
        let own = original.hold_of_forwarded();
        let mut lent = self.has_lent(topic, number) || own == Some(Hold::Borrows);
        let mut is_dead = false;
        let is_single = copies == 1 && chosen.next.is_none();
        for (subscription, copy) in chosen.step.copies {
            let hold = match lent {
                true => Hold::Borrows,
                false if is_single => own.unwrap_or(Hold::Alone),
                false => Hold::Lends,
            };
            lent = true;
            is_dead = self.copy(topic, subscription, original, (&copy, hold));
        }
        let at = place(topic, number);
        let end = NextCopy {
            subscription: Incarnation::default(),
            rule: FAILURE,
        };
        match chosen.next {
            Some(next) => self.emit_bus_effect(Effect::Own(OwnEffect::FannedOut {
                topic: at,
                next,
                lent,
            })),
            None => {
                // Behind a dead letter, the end of the message alone would look as if that had moved.
                if is_dead {
                    self.emit_bus_effect(Effect::Own(OwnEffect::FannedOut {
                        topic: at,
                        next: end,
                        lent,
                    }));
                }
                self.remove(topic, number);
            }
        }
        cost
    }

    /// Moves a message that rules cannot look at to the entity of the topic's failed transfers, if the budget is enough.
    fn bury_damaged(&mut self, topic: Incarnation, number: SequenceNumber, budget: u32) -> DueStep {
        let cost = self.cost_of_move(topic, number, 0);
        if cost > budget {
            return DueStep::TooLarge;
        }
        let [_, _, to] = topic.with_sub_queues();
        if let Some(mut message) = self.arriving(topic, number, to) {
            message.record.expires_at = Timestamp::NEVER;
            message.record.cause = Some(DeadLetterCause::BodyDamaged);
            self.transfer(topic, number, to, message);
        }
        DueStep::Done(cost)
    }

    /// The first copy of a message that is not made yet.
    fn next_copy(&self, topic: Incarnation, number: SequenceNumber) -> NextCopy {
        self.fan_out_of(topic, number).next
    }

    /// Whether one of its copies counts its body, in the place where the topic has it.
    fn has_lent(&self, topic: Incarnation, number: SequenceNumber) -> bool {
        self.fan_out_of(topic, number).lent
    }

    fn fan_out_of(&self, topic: Incarnation, number: SequenceNumber) -> FanOut {
        let fan_out = self.rules_of(topic).and_then(Topic::fan_out);
        let own = fan_out.filter(|it| it.number == number);
        own.unwrap_or(FanOut::of(number))
    }

    fn original(&self, topic: Incarnation, message: &Message<'_>) -> Original {
        let session = self.bus_backlog(topic).sessions.get(message.session);
        Original::waiting(message, session.map(|session| (*session.id).into()))
    }
}

/// What the bytes of a message in a topic do not say. What rules see is the same as at the time when it came. `source` is
/// the name that a forwarded dead letter came with.
fn known<'a>(message: &Message<'_>, source: Option<&'a str>) -> Known<'a> {
    let ms = |at: Timestamp| i64::try_from(at.as_ms()).ok();
    Known {
        enqueued_at_ms: ms(message.enqueued_at),
        expires_at_ms: ms(message.expires_at),
        delivery_count: Some(0),
        state: Some(0),
        dead_letter_source: source,
        ..Known::default()
    }
}
