//! Which copies of messages the rules of a topic make, before any of them is made.

use std::collections::BTreeMap;

use super::super::room::{PLACE_SIZE_BYTES, RULE_STEPS_MAX, changes_size_bytes_max};
use super::super::rules::{Evaluation, OutOfSteps, Seen, Selected, Topic};
use super::super::{BusMessage, BusRefusal, Known};
use super::Turn;
use super::publish::{Copy, Recipient, check_copies};
use crate::catalogue::description::{BODY_OVERHEAD_BYTES, EVENT_SIZE_BYTES};
use crate::vocabulary::Incarnation;

use kew_filter::RuleId;

/// The copies of the messages of a command.
#[derive(Debug, Default)]
pub(super) struct AllCopies {
    /// Those of each message, in the order in which they are made.
    pub(super) copies: Vec<Vec<(Recipient, Copy)>>,
    /// How many there are.
    count: u64,
    /// The most bytes of a batch that the copies with changes take.
    changes_size_bytes: u64,
}

impl AllCopies {
    /// Room for one plain copy in each subscription was made already.
    fn add(&mut self, message: &BusMessage, (recipient, is_first): (Recipient, bool), copy: Copy) {
        let session = copy.session(message).map_or(0, str::len);
        let overlay = copy.overlay().map_or(0, |it| it.len() as u64);
        if copy.overlay().is_some() {
            let of_copy =
                match is_first && session <= message.session.as_deref().map_or(0, str::len) {
                    true => 0,
                    false => EVENT_SIZE_BYTES + session as u64,
                };
            self.changes_size_bytes += of_copy + PLACE_SIZE_BYTES + BODY_OVERHEAD_BYTES + overlay;
        }
        self.count += 1;
        if let Some(copies) = self.copies.last_mut() {
            copies.push((recipient, copy));
        }
    }
}

impl Turn<'_> {
    /// Compares messages with the rules of their topic. The number is how many steps that took, also if it is refused.
    pub(super) fn select(
        &self,
        topic: Incarnation,
        recipients: &[Recipient],
        messages: &[BusMessage],
    ) -> (Result<AllCopies, BusRefusal>, u64) {
        let mut evaluation = Evaluation::new();
        let selected = self.select_all(topic, recipients, messages, &mut evaluation);
        (selected, evaluation.steps())
    }

    fn select_all(
        &self,
        topic: Incarnation,
        recipients: &[Recipient],
        messages: &[BusMessage],
        evaluation: &mut Evaluation,
    ) -> Result<AllCopies, BusRefusal> {
        let mut all = AllCopies::default();
        let Some(rules) = self.rules_of(topic) else {
            return Ok(all);
        };
        let limit_bytes = changes_size_bytes_max(rules.changes_of_copies(), messages.len() as u64);
        for (index, message) in messages.iter().enumerate() {
            let selected = self.compare(topic, rules, message, index as u64, evaluation)?;
            all.copies.push(Vec::new());
            self.add_copies(&mut all, recipients, message, selected);
            check_copies(all.count)?;
            if all.changes_size_bytes > limit_bytes {
                return Err(BusRefusal::CopiesTooLarge { limit_bytes });
            }
        }
        Ok(all)
    }

    /// What the rules of each subscription make of a message.
    fn compare(
        &self,
        topic: Incarnation,
        rules: &Topic,
        message: &BusMessage,
        index: u64,
        evaluation: &mut Evaluation,
    ) -> Result<BTreeMap<Incarnation, Selected>, BusRefusal> {
        let format = self.0.format();
        let known = self.known(topic, message);
        let Some(view) = format.view(&message.body, &[], known) else {
            return Err(BusRefusal::NotAMessage);
        };
        let ids = |of, rule, nth| self.new_id([topic, of], index, rule, nth);
        let seen = Seen {
            message: &*view,
            format,
            number: self.bus_backlog(topic).next(),
            ids: &ids,
        };
        let selected = rules.select(&seen, evaluation);
        selected.map_err(|OutOfSteps| BusRefusal::RulesTakeLong {
            limit: u64::from(RULE_STEPS_MAX),
        })
    }

    /// What the bytes of a message do not say when it comes into a topic. Its number there is not known yet: it may be a
    /// duplicate.
    fn known(&self, topic: Incarnation, message: &BusMessage) -> Known<'static> {
        let now = self.now();
        let lives_ms = self.bus(topic).options.default_time_to_live_ms;
        let lives_ms = message
            .time_to_live_ms
            .map_or(lives_ms, |own| own.min(lives_ms));
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
        let text: Vec<u8> = numbers.into_iter().flat_map(u64::to_be_bytes).collect();
        let mut id = self.cipher().hash(&text);
        // Version 4 and variant 1: a random uuid.
        id = id & !(0xf << 76) | 0x4 << 76;
        id = id & !(0x3 << 62) | 0x2 << 62;
        id.to_be_bytes()
    }

    /// Adds the copies of a message, by subscription. In one, the plain copy comes first, then those of actions in the
    /// order of their rules, and a dead letter last.
    fn add_copies(
        &self,
        all: &mut AllCopies,
        recipients: &[Recipient],
        message: &BusMessage,
        mut selected: BTreeMap<Incarnation, Selected>,
    ) {
        for recipient in recipients {
            let Recipient {
                subscription,
                takes_all,
                ..
            } = recipient;
            let selected = selected.remove(subscription).unwrap_or_default();
            let mut is_first = true;
            let mut add = |copy| {
                all.add(message, (*recipient, is_first), copy);
                is_first = false;
            };
            if *takes_all || selected.is_plain {
                add(Copy::Plain);
            }
            for made in selected.made {
                add(Copy::Changed(Box::new(made)));
            }
            let wants = self.bus(*subscription).options.dead_letters_filter_failures;
            if let Some((_, why)) = selected.failure.filter(|_| wants) {
                let description = self.0.format().description(&why);
                add(Copy::Failed(description));
            }
        }
    }
}
