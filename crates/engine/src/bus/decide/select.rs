//! Which copies of messages the rules of a topic make, before any of them is made.

use super::super::rules::{Evaluation, Found, OutOfSteps, Seen, Topic};
use super::super::{BusMessage, BusRefusal, Known};
use super::Turn;
use super::copies::Copy;
use super::publish::{Accepted, AtOnce};
use super::recipients::Recipient;
use crate::vocabulary::Incarnation;
use crate::vocabulary::token::TokenCipher;

use kew_filter::RuleId;

impl Turn<'_> {
    /// Compares messages with the rules of their topic, as many as one command may. The number is how many steps that took,
    /// also if it is refused. If messages of the topic wait, it is only checked that these are messages.
    pub(super) fn select(
        &self,
        topic: Incarnation,
        (rules, takers): (&Topic, &[Recipient]),
        messages: &[BusMessage],
        (waits, size_bytes_max): (bool, u64),
    ) -> (Result<AtOnce, BusRefusal>, u64) {
        let mut evaluation = Evaluation::new();
        let mut at_once = AtOnce::default();
        let mut fits = !waits;
        // What waits is compared, too, as long as there are steps.
        let filters = self.bus(topic).options.filters_before_publishing;
        let mut accepted = Accepted::default();
        for (index, message) in messages.iter().enumerate() {
            let (format, known) = (self.0.format(), self.known(topic, message));
            let Some(view) = format.view(&message.body, &[], known) else {
                return (Err(BusRefusal::NotAMessage), evaluation.steps());
            };
            evaluation.note_message();
            let is_known = accepted.has(self, topic, message);
            if !fits && !filters {
                continue;
            }
            if message.is_scheduled(self.now()) {
                if fits {
                    at_once.schedule();
                }
                continue;
            }
            let ids = |of, rule, nth| self.new_id([topic, of], index as u64, rule, nth);
            let seen = Seen {
                message: &*view,
                format,
                number: self.bus_backlog(topic).next(),
                ids: &ids,
            };
            let Ok(found) = self.compare(topic, (rules, takers), &seen, &mut evaluation) else {
                // Whether rules select it is not known: it waits, and is accepted.
                fits = false;
                continue;
            };
            if found.0.is_empty()
                && let Some(refusal) = self.unmatched(topic, (index, message), is_known)
            {
                return (Err(refusal), evaluation.steps());
            }
            fits = fits && at_once.add(self, message, found, size_bytes_max);
        }
        (Ok(at_once), evaluation.steps())
    }

    /// The copies of a message, by subscription, and for how many of these a rule failed. In one, the plain copy comes first,
    /// then those of actions in the order of their rules, and a dead letter last. Subscriptions for which nothing was found are
    /// not looked at, unless they take all messages.
    fn compare(
        &self,
        topic: Incarnation,
        (rules, takers): (&Topic, &[Recipient]),
        seen: &Seen<'_>,
        evaluation: &mut Evaluation,
    ) -> Result<(Vec<(Recipient, Copy)>, u64), OutOfSteps> {
        let all = rules.select(seen, evaluation)?;
        let (mut copies, mut failures) = (Vec::new(), 0);
        let mut takers = takers.iter().copied().peekable();
        for (subscription, mut found) in all {
            while let Some(before) = takers.next_if(|it| it.subscription < subscription) {
                copies.push((before, Copy::Plain));
            }
            let taker = takers.next_if(|it| it.subscription == subscription);
            let Some(recipient) = taker.or_else(|| self.recipient(topic, subscription)) else {
                continue;
            };
            if taker.is_some() || found.is_plain {
                copies.push((recipient, Copy::Plain));
            }
            for id in std::mem::take(&mut found.actions) {
                evaluation.check()?;
                match rules.act(seen, id, evaluation) {
                    Ok(made) => copies.push((recipient, Copy::Changed(Box::new(made)))),
                    Err(why) => found.fail(id, why),
                }
            }
            failures += u64::from(found.failure.is_some());
            let failed = self.failed(subscription, &found);
            copies.extend(failed.map(|copy| (recipient, copy)));
        }
        copies.extend(takers.map(|taker| (taker, Copy::Plain)));
        Topic::note_read(seen.message, evaluation);
        Ok((copies, failures))
    }

    /// The dead letter that a subscription gets because a rule failed, if it wants that.
    pub(super) fn failed(&self, subscription: Incarnation, found: &Found) -> Option<Copy> {
        let wants = self.bus(subscription).options.dead_letters_filter_failures;
        let (_, why) = found.failure.as_ref().filter(|_| wants)?;
        Some(Copy::Failed(Some(self.0.format().description(why))))
    }

    /// What the bytes of a message do not say when it comes into a topic. Its number there is not known yet: it may be a
    /// duplicate.
    fn known(&self, topic: Incarnation, message: &BusMessage) -> Known<'static> {
        self.known_in(topic, message.time_to_live_ms)
    }

    /// The same, given how long the message is to live.
    pub(super) fn known_in(
        &self,
        topic: Incarnation,
        time_to_live_ms: Option<u64>,
    ) -> Known<'static> {
        let now = self.now();
        let lives_ms = self.bus(topic).options.default_time_to_live_ms;
        let lives_ms = time_to_live_ms.map_or(lives_ms, |own| own.min(lives_ms));
        let ms = |ms: u64| i64::try_from(ms).ok();
        Known {
            enqueued_at_ms: ms(now.as_ms()),
            expires_at_ms: ms(now.plus_ms(lives_ms).as_ms()),
            delivery_count: Some(0),
            state: Some(0),
            ..Known::default()
        }
    }

    /// What newid() returns: another one for each message, rule and call.
    ///
    /// The number of a message in its topic is not known yet. A command that makes a copy with such an id raises a number of the
    /// subscription or of its dead letters; and the index tells the messages of one command apart.
    fn new_id(
        &self,
        [topic, subscription]: [Incarnation; 2],
        index: u64,
        rule: RuleId,
        nth: u32,
    ) -> [u8; 16] {
        let next = |entity: Incarnation| {
            let found = self.queues().get(&entity);
            found.map_or(0, |it| it.backlog.next().as_u64())
        };
        let numbers = [
            topic.as_u64(),
            subscription.as_u64(),
            next(subscription),
            next(subscription.next()),
            index,
            rule,
            u64::from(nth),
        ];
        uuid_of(self.cipher(), &numbers)
    }
}

/// A random uuid that follows from numbers.
pub(super) fn uuid_of(cipher: &TokenCipher, numbers: &[u64]) -> [u8; 16] {
    let text: Vec<u8> = numbers.iter().flat_map(|it| it.to_be_bytes()).collect();
    let mut id = cipher.hash(&text);
    // Version 4 and variant 1: a random uuid.
    id = id & !(0xf << 76) | 0x4 << 76;
    id = id & !(0x3 << 62) | 0x2 << 62;
    id.to_be_bytes()
}
