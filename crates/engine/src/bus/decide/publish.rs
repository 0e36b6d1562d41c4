//! Messages that are sent to a topic: which are copied at once, and which wait in the topic's table.
//!
//! A scheduled message is stored in any case. When its time comes, it takes a new number of the topic, as in a queue, and
//! waits for its copies behind the others.
//!
//! Nearly always the topic keeps nothing of a message but its number and its id, because its copies are made by the command
//! that brings it. A message that takes more than a command may take is stored, and so are all after it: due work copies
//! them in order ([`fan_out`](super::fan_out)). All messages of a command are looked at before the first effect: so all are
//! accepted, or none.
//!
//! All copies of a message have one body, which one of them counts.

use std::collections::BTreeSet;

use super::super::room::{COPY_STEPS, at_once_size_bytes_max};
use super::super::rules::{Topic, TopicTally};
use super::super::{BusMessage, BusRefusal};
use super::Turn;
use super::copies::{CopiesSize, Copy, Original};
use super::numbers::Duplicate;
use super::recipients::Recipient;
use crate::catalogue::description::EVENT_SIZE_BYTES;
use crate::vocabulary::{Hold, Incarnation, SequenceNumber};

/// The holds of the copies of one message, given who gets them. The one that counts the body is the first copy of the
/// subscription with the most messages, and of the oldest one of equals: it is likely to be the last to end.
fn holds(copies: &[(Recipient, Copy)]) -> impl Iterator<Item = Hold> {
    let count = copies.len();
    let mut longest = (0, 0);
    for (index, (recipient, _)) in copies.iter().enumerate() {
        if recipient.backlog > longest.1 {
            longest = (index, recipient.backlog);
        }
    }
    (0..count).map(move |index| match index == longest.0 {
        true if count == 1 => Hold::Alone,
        true => Hold::Lends,
        false => Hold::Borrows,
    })
}

/// What a command does with a message that does not wait for its copies.
#[derive(Debug)]
enum Planned {
    /// It makes these.
    Copies(Vec<(Recipient, Copy)>),
    /// It stores the message until its time. Then the rules in force decide, and not those of now.
    Scheduled,
}

/// How much of a command is done at once.
#[derive(Debug, Default)]
pub(super) struct AtOnce {
    /// What is done with each message of it.
    planned: Vec<Planned>,
    /// How many there are.
    count: u64,
    size: CopiesSize,
    /// How often rules of a subscription failed on a message.
    failures: u64,
}

impl AtOnce {
    /// Adds the copies of a message, if all of them fit.
    pub(super) fn add(
        &mut self,
        turn: &Turn<'_>,
        message: &BusMessage,
        (copies, failures): (Vec<(Recipient, Copy)>, u64),
        size_bytes_max: u64,
    ) -> bool {
        let count = self.count + copies.len() as u64;
        if count > turn.0.copies_at_once() {
            return false;
        }
        let mut size = self.size.clone();
        for (recipient, copy) in &copies {
            let session = message.session.as_deref();
            size = size.with(turn, recipient.subscription, copy, session);
            if size.size_bytes > size_bytes_max {
                return false;
            }
        }
        size.end_message();
        (self.count, self.size) = (count, size);
        self.planned.push(Planned::Copies(copies));
        self.failures += failures;
        true
    }

    /// Adds a message that becomes active later.
    pub(super) fn schedule(&mut self) {
        self.planned.push(Planned::Scheduled);
    }
}

/// The ids of the messages of a command, as far as their topic is going to remember them.
#[derive(Debug, Default)]
pub(super) struct Accepted(BTreeSet<u128>);

impl Accepted {
    /// Whether a topic that filters knows the id of a message, of an earlier command or of a message before in this one. If
    /// not, it does from now on.
    pub(super) fn has(
        &mut self,
        turn: &Turn<'_>,
        topic: Incarnation,
        message: &BusMessage,
    ) -> bool {
        if !turn.bus(topic).options.filters_before_publishing {
            return false;
        }
        match turn.id_hash(topic, message.message_id.as_deref()) {
            Err(Duplicate) => true,
            Ok(None) => false,
            Ok(Some(hash)) => !self.0.insert(hash),
        }
    }
}

impl Turn<'_> {
    /// Sends all messages to a topic, or none, and returns their numbers in the topic. A duplicate is dropped, and has
    /// none.
    pub(super) fn publish(
        &mut self,
        topic: Incarnation,
        messages: &[BusMessage],
    ) -> Result<Vec<Option<SequenceNumber>>, BusRefusal> {
        self.check_publishable(topic, messages)?;
        let (takers, steps) = self.takers(topic);
        self.0.note_steps(steps);
        let (at_once, steps) = self.plan(topic, &takers, messages);
        self.0.note_steps(steps);
        let mut tally = TopicTally {
            filter_steps: steps,
            ..TopicTally::default()
        };
        let at_once = match at_once {
            Ok(at_once) => at_once,
            Err(refusal) => {
                self.0.tally_topic(topic, &tally);
                return Err(refusal);
            }
        };
        tally.filter_failures = at_once.failures;
        let mut numbers = Vec::with_capacity(messages.len());
        for (message, planned) in messages.iter().zip(&at_once.planned) {
            let Planned::Copies(copies) = planned else {
                numbers.extend(self.send_checked(topic, vec![message.clone()]));
                continue;
            };
            let number = self.pass(topic, message);
            numbers.push(number);
            let Some(number) = number else { continue };
            let made = self.copy_all(topic, message, number, copies);
            tally.copies += made;
            tally.unmatched += u64::from(made == 0);
        }
        self.0.note_steps(tally.copies * COPY_STEPS);
        let stored = messages.get(at_once.planned.len()..).unwrap_or_default();
        numbers.extend(self.send_checked(topic, stored.to_vec()));
        tally.published = numbers.iter().flatten().count() as u64;
        self.0.tally_topic(topic, &tally);
        Ok(numbers)
    }

    /// Why a topic does not accept these messages. It does not depend on rules, nor on whether they wait: no message was
    /// compared yet.
    fn check_publishable(
        &mut self,
        topic: Incarnation,
        messages: &[BusMessage],
    ) -> Result<(), BusRefusal> {
        let at_most = self.size_bytes_at_most(topic);
        match self.check_sendable(topic, messages, at_most) {
            // The largest subscription may have become smaller.
            Err(BusRefusal::QuotaExceeded { .. }) => {
                let looked_at = self.0.keep_largest_family(topic);
                self.0.note_steps(looked_at);
                let size_bytes = self.size_bytes_at_most(topic);
                self.check_sendable(topic, messages, size_bytes).map(drop)
            }
            checked => checked.map(drop),
        }
    }

    /// Which messages are copied at once, with their copies, given who takes all messages. The number is how many steps it took
    /// to find that out.
    fn plan(
        &self,
        topic: Incarnation,
        takers: &[Recipient],
        messages: &[BusMessage],
    ) -> (Result<AtOnce, BusRefusal>, u64) {
        let mut at_once = AtOnce::default();
        let waits = self.bus_backlog(topic).table().first_ready().is_some();
        let sessions = messages.iter().map(|it| it.session.as_deref());
        let sessions: usize = sessions.map(|it| it.map_or(0, str::len)).sum();
        let count = messages.len() as u64;
        let firsts_size_bytes = count * EVENT_SIZE_BYTES + sessions as u64;
        let subscriptions = self.catalogue().subscription_count(topic);
        let rules = self.rules_of(topic);
        let changes = rules.map(Topic::changes_of_copies).unwrap_or_default();
        let size_bytes_max =
            at_once_size_bytes_max(changes, subscriptions, (count, firsts_size_bytes));
        if let Some(rules) = rules.filter(|it| it.looks()) {
            return self.select(topic, (rules, takers), messages, (waits, size_bytes_max));
        }
        if takers.is_empty()
            && let Some(refusal) = self.unmatched_among(topic, messages)
        {
            return (Err(refusal), 0);
        }
        if !waits {
            for message in messages {
                if message.is_scheduled(self.now()) {
                    at_once.schedule();
                    continue;
                }
                let copies = takers.iter().map(|it| (*it, Copy::Plain)).collect();
                if !at_once.add(self, message, (copies, 0), size_bytes_max) {
                    break;
                }
            }
        }
        (Ok(at_once), 0)
    }

    /// Why messages that nobody gets are not accepted, if the topic refuses them.
    fn unmatched_among(&self, topic: Incarnation, messages: &[BusMessage]) -> Option<BusRefusal> {
        let mut accepted = Accepted::default();
        let mut messages = messages.iter().enumerate();
        messages.find_map(|(index, message)| {
            let is_known = accepted.has(self, topic, message);
            self.unmatched(topic, (index, message), is_known)
        })
    }

    /// Why a message that no rule selects is not accepted, if the topic refuses such messages. The rules of the time when
    /// it becomes active decide about a scheduled message. One that is known was accepted before, and is dropped.
    ///
    /// Source: Service Bus, *Messaging exceptions*, a topic with pre-filtering.
    pub(super) fn unmatched(
        &self,
        topic: Incarnation,
        (index, message): (usize, &BusMessage),
        is_known: bool,
    ) -> Option<BusRefusal> {
        let entity = self.bus(topic);
        let is_refused = entity.options.filters_before_publishing
            && !message.is_scheduled(self.now())
            && !is_known;
        is_refused.then(|| BusRefusal::NoMatchingSubscription {
            queue: entity.name.name.clone(),
            message: index as u64 + 1,
        })
    }

    /// Makes the copies of a message that has this number of its topic. Returns how many there are.
    fn copy_all(
        &mut self,
        topic: Incarnation,
        message: &BusMessage,
        number: SequenceNumber,
        copies: &[(Recipient, Copy)],
    ) -> u64 {
        if copies.is_empty() {
            return 0;
        }
        let now = self.now();
        let expires_at = self.life_in_topic(topic, now, message.time_to_live_ms);
        let body = self.store_body(&message.body);
        let original = Original::new(number, now, expires_at, body, message.session.clone());
        for ((recipient, copy), hold) in copies.iter().zip(holds(copies)) {
            let subscription = recipient.subscription;
            self.copy(topic, subscription, &original, (copy, hold));
        }
        copies.len() as u64
    }
}
