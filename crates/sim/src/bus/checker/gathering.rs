//! Messages that are forwarded to the gathering topic: each subscription gets a copy.
//!
//! The message itself goes on as the copy of the first subscription. The other copies have possible fates of their own. As
//! long as nobody knows whether the message came to the topic, each of them may be [`Fate::NotGathered`]. What is seen of the
//! message decides that for its copies, and what is seen of a copy for the message: so it is not at its source and in the
//! topic, and not in some subscriptions and still on its way to others.

use std::collections::{BTreeMap, BTreeSet};

use kew_engine::Timestamp;

use super::life::{Fate, Life};
use super::message::Message;
use super::{Checker, NO_LOSS, ONE_PLACE};
use crate::bus::topics::{self, FORWARDING, GATHERING};
use crate::checker::{Violation, violated};

/// Whether a message may have come through the topic, and whether it may not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Possible {
    gathered: bool,
    other: bool,
}

impl Possible {
    fn of(message: &Message) -> Self {
        Self {
            gathered: message.fates().any(|it| it.was_gathered() != Some(false)),
            other: message.fates().any(|it| it.was_gathered() != Some(true)),
        }
    }
}

/// The messages that may have come to the topic.
#[derive(Clone, Debug, Default)]
pub(super) struct Gathering {
    messages: BTreeSet<u64>,
    /// What was possible of those that are over, and of copies that are.
    over: BTreeMap<u64, Possible>,
}

impl Gathering {
    /// A message can never be seen again.
    pub(super) fn note_end(&mut self, number: u64, message: &Message) {
        if self.messages.contains(&topics::number_in_body(number)) {
            self.over.insert(number, Possible::of(message));
        }
    }
}

/// The copies that a message has there besides the one that has its own number.
fn copies_of(body: u64) -> impl Iterator<Item = (usize, u64)> {
    let subscriptions = topics::subscriptions_of(GATHERING).skip(FORWARDING + 1);
    subscriptions.map(move |it| (it, topics::number_in(it, body)))
}

/// A copy of a message that has not come to the topic.
fn not_gathered() -> Message {
    let mut message = Message::default();
    message.may_be(Fate::NotGathered);
    message
}

impl Checker {
    /// Adds the copies of messages that may come to the topic now.
    pub(super) fn gather(&mut self, now: Timestamp) {
        let all = self.messages.iter();
        // Copies with numbers of their own are not forwarded.
        let all = all.filter(|(number, _)| topics::number_in_body(**number) == **number);
        let coming = all.filter_map(|(number, message)| {
            let lives = message.lives();
            let lives = lives.filter(|life| life.may_be_gathered(&self.queues));
            let lives: Vec<Life> = lives.cloned().collect();
            (!lives.is_empty()).then_some((*number, lives))
        });
        for (number, lives) in coming.collect::<Vec<_>>() {
            self.may_be_gathered(number, &lives, (1, now));
        }
    }

    /// A message may come to the topic now, in one of these states, and after so many hops more.
    pub(super) fn may_be_gathered(
        &mut self,
        body: u64,
        lives: &[Life],
        (hops, now): (u8, Timestamp),
    ) {
        self.note_gathering(body, lives);
        for (subscription, copy) in copies_of(body) {
            if self.over.contains(&copy) {
                continue;
            }
            let message = self.messages.entry(copy).or_insert_with(not_gathered);
            for life in lives {
                let hops = life.hops + hops;
                let fates = life.gathered(subscription, hops, now, &self.queues);
                fates.into_iter().for_each(|fate| message.may_be(fate));
            }
            message.pass_time(now, &self.queues);
        }
    }

    /// A message has come to the topic, in one of these states.
    pub(super) fn are_gathered(
        &mut self,
        body: u64,
        lives: &[Life],
        now: Timestamp,
    ) -> Result<(), Violation> {
        self.note_gathering(body, lives);
        for (subscription, copy) in copies_of(body) {
            let gathered = lives.iter();
            let gathered =
                gathered.flat_map(|life| life.gathered(subscription, life.hops, now, &self.queues));
            let gathered: Vec<Fate> = gathered.collect();
            let message = self.messages.entry(copy).or_insert_with(not_gathered);
            let before = message.follow(|fate| match fate {
                Fate::NotGathered => gathered.clone(),
                _ => Vec::new(),
            });
            if message.is_impossible() {
                return violated!(ONE_PLACE, "message {copy}, {before:?}, is gathered now");
            }
            if message.is_over() {
                self.end(copy);
            }
        }
        Ok(())
    }

    fn note_gathering(&mut self, body: u64, lives: &[Life]) {
        self.gathering.messages.insert(body);
        let sizes = lives.iter().map(Life::size_bytes);
        let size_bytes = sizes.max().unwrap_or(0);
        let topic = self.queues.get(GATHERING);
        topic.scheduled.insert(body, size_bytes);
        for id in lives.iter().filter_map(Life::session) {
            for (subscription, _) in copies_of(body) {
                self.queues.get(subscription).session(id);
            }
        }
    }

    /// What is known of messages and of their copies is the same.
    pub(super) fn agree_on_gathered(&mut self) -> Result<(), Violation> {
        for body in self.gathering.messages.clone() {
            self.agree_on_one(body)?;
        }
        Ok(())
    }

    fn agree_on_one(&mut self, body: u64) -> Result<(), Violation> {
        let Some(mut known) = self.possible(body) else {
            return Ok(());
        };
        let copies: Vec<_> = copies_of(body).map(|(_, copy)| copy).collect();
        let of_copies = copies.iter().filter_map(|copy| self.possible(*copy));
        if known.other && of_copies.into_iter().any(|it| !it.other) {
            self.note("a copy of a forwarded message was shown");
            known.other = false;
            self.keep_gathered(body, true, ONE_PLACE)?;
        }
        if !known.gathered {
            self.queues.get(GATHERING).scheduled.remove(&body);
        }
        let is_over = !self.messages.contains_key(&body);
        for copy in &copies {
            match known {
                Possible { other: false, .. } => self.keep_gathered(*copy, true, NO_LOSS)?,
                Possible {
                    gathered: false, ..
                } => self.keep_gathered(*copy, false, ONE_PLACE)?,
                Possible { .. } => {}
            }
            if is_over {
                self.end_not_gathered(*copy);
            }
        }
        if is_over {
            self.gathering.messages.remove(&body);
            self.gathering.over.remove(&body);
            for copy in copies {
                self.gathering.over.remove(&copy);
            }
        }
        Ok(())
    }

    fn possible(&self, number: u64) -> Option<Possible> {
        let message = self.messages.get(&number).map(Possible::of);
        message.or_else(|| self.gathering.over.get(&number).copied())
    }

    /// A message, or a copy, came through the topic or did not.
    fn keep_gathered(
        &mut self,
        number: u64,
        was_gathered: bool,
        promise: &'static str,
    ) -> Result<(), Violation> {
        let Some(message) = self.messages.get_mut(&number) else {
            let over = self.gathering.over.get_mut(&number);
            let Some(over) = over else { return Ok(()) };
            let (is_possible, other) = match was_gathered {
                true => (over.gathered, &mut over.other),
                false => (over.other, &mut over.gathered),
            };
            *other = false;
            return match is_possible {
                true => Ok(()),
                false => violated!(promise, "message {number}, gathered: {was_gathered}"),
            };
        };
        let before = message.clone();
        message.keep(|fate| fate.was_gathered().is_none_or(|it| it == was_gathered));
        if message.is_impossible() {
            return violated!(
                promise,
                "message {number}, {before:?}, gathered: {was_gathered}"
            );
        }
        if message.is_over() {
            self.end(number);
        }
        Ok(())
    }

    /// A message is over: what has not come to the topic never comes there.
    fn end_not_gathered(&mut self, copy: u64) {
        let Some(message) = self.messages.get_mut(&copy) else {
            return;
        };
        message.follow(|fate| match fate {
            Fate::NotGathered => vec![Fate::NeverSent],
            fate => vec![fate.clone()],
        });
        if message.is_over() {
            self.end(copy);
        }
    }
}

#[cfg(test)]
mod tests {
    use kew_broker::Rejection;
    use kew_engine::Command;
    use kew_engine::bus::{BusCommand, BusMessage, BusQueueOptions};

    use super::super::life::{Entity, Part, Span, Surroundings};
    use super::*;
    use crate::bus::named;
    use crate::bus::topics::BEFORE;
    use crate::bus::workload::plain_options;
    use crate::checker::{Operation, Seen};

    /// The first and the third subscription, which have no sessions.
    const SUBSCRIPTIONS: [usize; 2] = [GATHERING + 1, GATHERING + 3];

    fn at(queue: usize) -> Entity {
        let part = Part::Queue;
        Entity { queue, part }
    }

    /// A message is in a queue that forwards it to the topic, or has come there.
    fn checker() -> Checker {
        let mut checker = Checker::default();
        let forwards = BusQueueOptions {
            forward_to: Some(topics::name(GATHERING).into()),
            ..plain_options(BEFORE)
        };
        let queues = &mut checker.queues;
        queues.get(BEFORE).begin(forwards, Timestamp::ZERO);
        for queue in [GATHERING].into_iter().chain(SUBSCRIPTIONS) {
            let options = plain_options(queue);
            queues.get(queue).begin(options, Timestamp::ZERO);
        }
        let message = BusMessage {
            body: 1u64.to_be_bytes().to_vec().into(),
            message_id: None,
            session: None,
            time_to_live_ms: None,
            scheduled_at: None,
        };
        let sent = checker.attempt(at(BEFORE), &message, Span::at(Timestamp::ZERO));
        checker.messages.insert(1, sent);
        checker.pass_time(Timestamp::from_ms(1));
        checker
    }

    fn is_shown(checker: &mut Checker, queue: usize) -> Result<(), Violation> {
        let number = topics::number_in(queue, 1);
        checker.narrow(number, ONE_PLACE, &"shown", |life| {
            (life.entity == at(queue)).then(|| vec![Fate::Here(life.clone())])
        })?;
        checker.agree_on_gathered()
    }

    #[test]
    fn a_message_with_a_copy_is_no_more_at_its_source() {
        let [first, third] = SUBSCRIPTIONS;
        let mut checker = checker();
        is_shown(&mut checker, third).unwrap();
        let mut other = checker.clone();
        is_shown(&mut checker, first).unwrap();
        let twice = is_shown(&mut other, BEFORE).unwrap_err();
        assert_eq!(twice.promise, ONE_PLACE);
    }

    #[test]
    fn a_message_at_its_source_has_no_copies_until_it_is_forwarded() {
        let [_, third] = SUBSCRIPTIONS;
        let mut checker = checker();
        is_shown(&mut checker, BEFORE).unwrap();
        let mut later = checker.clone();
        let early = is_shown(&mut checker, third).unwrap_err();
        assert_eq!(early.promise, ONE_PLACE);
        later.pass_time(Timestamp::from_ms(2));
        is_shown(&mut later, third).unwrap();
    }

    #[test]
    fn a_message_may_be_forwarded_before_a_command_that_found_no_room() {
        let [first, _] = SUBSCRIPTIONS;
        let mut checker = checker();
        let full = Operation {
            queue: 0,
            command: Command::Bus(BusCommand::ReadQueue {
                queue: named(first, Part::Queue),
            }),
            from: Timestamp::from_ms(9),
            until: Timestamp::from_ms(9),
            had_room: true,
            could_read_due: true,
            seen: Seen::Answered(Err(Rejection::Full)),
        };
        checker.check(&full).unwrap();
        assert_eq!(checker.queues.since(), Timestamp::ZERO);
    }

    #[test]
    fn a_message_that_is_over_at_its_source_never_has_copies() {
        let [_, third] = SUBSCRIPTIONS;
        let mut checker = checker();
        let gone = |life: &Life| (life.entity == at(BEFORE)).then(|| vec![Fate::Gone]);
        checker.narrow(1, ONE_PLACE, &"completed", gone).unwrap();
        checker.agree_on_gathered().unwrap();
        assert!(checker.messages.is_empty(), "{:?}", checker.messages);
        let copy = is_shown(&mut checker, third).unwrap_err();
        assert_eq!(copy.promise, crate::bus::checker::NO_RESURRECTION);
    }
}
