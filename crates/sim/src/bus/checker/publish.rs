//! Messages that are sent to topics: each subscription that exists gets a copy of its own.
//!
//! A copy is a message whose number has that of its subscription, too ([`topics::number_in`]). So what holds for a
//! message of a queue is checked for each copy. Copies have no known numbers before they are shown.

use kew_engine::bus::{BusMessage, DeadLetterCause};
use kew_engine::{SequenceNumber, Timestamp};

use super::life::{Entity, Fate, Life, Part, Span};
use super::message::Message;
use super::queues::{Bounds, size_of_all};
use super::{ANSWERS_FIT, Checker, ORDER_OF_COPIES, Owner, number_of};
use crate::bus::topics::{self, Kind};
use crate::checker::{Violation, violated};

impl Checker {
    /// How many times each message counts that is sent to an entity.
    pub(super) fn copies_of_each(&self, queue: usize) -> Bounds {
        match topics::kind(queue) {
            Kind::Topic => self.subscription_count(Entity {
                queue,
                part: Part::Queue,
            }),
            Kind::Queue | Kind::Subscription { .. } => Bounds { least: 1, most: 1 },
        }
    }

    pub(super) fn published(
        &mut self,
        topic: Entity,
        messages: &[BusMessage],
        numbers: &[Option<SequenceNumber>],
        at: Timestamp,
    ) -> Result<(), Violation> {
        if numbers.len() != messages.len() {
            return violated!(ANSWERS_FIT, "{numbers:?} for {messages:?}");
        }
        self.takes_messages(topic)?;
        let copies = self.copies_of_each(topic.queue);
        let bodies = messages.iter().map(|message| &message.body);
        // However many copies there are, a message counts once.
        self.check_room_was_there(topic.queue, (size_of_all(bodies), 0))?;
        self.note_published(copies);
        let mut at_once = self.at_once(topic.queue);
        for (message, number) in messages.iter().zip(numbers) {
            let id = message.message_id.as_deref();
            self.check_duplicate(topic, id, number.is_none(), at)?;
            let due = message.scheduled_at.filter(|due| !due.has_passed(at));
            if let (Some(due), Some(number)) = (due, number) {
                self.one_scheduled(topic, (message, due), *number)?;
                continue;
            }
            let copies = self.copies_most(topic.queue, message);
            let may_wait = at_once.as_mut().is_some_and(|it| it.may_wait(copies));
            match number {
                Some(number) => {
                    let known = (message, Some(number.as_u64()));
                    self.one_published(topic, known, at, may_wait)?;
                }
                None => self.one_dropped(topic, message),
            }
        }
        Ok(())
    }

    /// A message has got a number of the topic, and each copy has it as its first one.
    pub(super) fn one_published(
        &mut self,
        topic: Entity,
        known: (&BusMessage, Option<u64>),
        at: Timestamp,
        may_wait: bool,
    ) -> Result<(), Violation> {
        let (message, first_number) = known;
        let number = self.note_order(topic, message);
        let owner = Owner {
            message: number,
            is_scheduled: false,
        };
        // The answer to a transaction has no numbers.
        if let Some(first_number) = first_number {
            self.is_given(topic, first_number, owner)?;
        }
        if may_wait {
            self.may_be_stored(topic.queue, message);
        }
        for subscription in topics::subscriptions_of(topic.queue) {
            if let Some((mut copy, is_perhaps_absent)) =
                self.copy((topic, subscription), known, Span::at(at), may_wait)
            {
                if is_perhaps_absent {
                    copy.may_be(Fate::NeverSent);
                }
                let number = topics::number_in(subscription, number);
                self.messages.insert(number, copy);
            }
        }
        Ok(())
    }

    /// No subscription gets a copy of a duplicate.
    pub(super) fn one_dropped(&mut self, topic: Entity, message: &BusMessage) {
        let number = number_of(&message.body);
        self.last_message = self.last_message.max(number);
        let subscriptions = topics::subscriptions_of(topic.queue);
        self.over
            .extend(subscriptions.map(|it| topics::number_in(it, number)));
        self.note("a topic dropped a duplicate");
    }

    fn note_published(&mut self, copies: Bounds) {
        match copies.least {
            0 if copies.most == 0 => self.note("a topic without subscriptions accepted messages"),
            2.. => self.note("a message was copied to several subscriptions"),
            _ => {}
        }
    }

    /// Either all copies of all messages were made, or none.
    pub(super) fn perhaps_published(&mut self, topic: Entity, messages: &[BusMessage], when: Span) {
        let work = self.works.begin(None);
        let detects = (self.queues.of(topic)).any(|it| it.duplicate_window_ms.is_some());
        let mut at_once = self.at_once(topic.queue);
        for message in messages {
            let id = message.message_id.as_ref().filter(|_| detects);
            let due = message.scheduled_at;
            if let Some(due) = due.filter(|due| !due.has_passed(when.from)) {
                self.perhaps_scheduled(topic, (message, due), when, (work, id.is_some()));
            }
            let may_be_at_once = due.is_none_or(|due| due.has_passed(when.from));
            let copies = self.copies_most(topic.queue, message);
            let may_wait = at_once.as_mut().is_some_and(|it| it.may_wait(copies));
            let number = match may_be_at_once {
                true => self.note_order(topic, message),
                false => number_of(&message.body),
            };
            if may_wait && may_be_at_once {
                self.may_be_stored(topic.queue, message);
            }
            if let Some(id) = id {
                self.queues.get(topic.queue).may_be_accepted(id, when);
            }
            if !may_be_at_once {
                continue;
            }
            for subscription in topics::subscriptions_of(topic.queue) {
                if let Some((copy, is_perhaps_absent)) =
                    self.copy((topic, subscription), (message, None), when, may_wait)
                {
                    let number = topics::number_in(subscription, number);
                    let copy = copy.sent_by(work, is_perhaps_absent || id.is_some());
                    self.messages.insert(number, copy);
                    self.works.touch(work, number);
                }
            }
        }
    }

    /// Perhaps a message was scheduled in that time, by some work. If its time came meanwhile, it was perhaps sent at once.
    fn perhaps_scheduled(
        &mut self,
        topic: Entity,
        (message, due): (&BusMessage, Timestamp),
        when: Span,
        (work, has_id): (u64, bool),
    ) {
        let body = number_of(&message.body);
        self.last_message = self.last_message.max(body);
        self.may_wait_later(topic.queue, message);
        let now = BusMessage {
            scheduled_at: None,
            ..message.clone()
        };
        for subscription in topics::subscriptions_of(topic.queue) {
            let mut copy = self.scheduled(topic, subscription, (message, due));
            if due.has_passed(when.to) {
                match self.copy((topic, subscription), (&now, None), when, true) {
                    Some((at_once, is_perhaps_absent)) => {
                        at_once.fates().for_each(|fate| copy.may_be(fate.clone()));
                        if is_perhaps_absent {
                            copy.may_be(Fate::NeverSent);
                        }
                    }
                    None => copy.may_be(Fate::NeverSent),
                }
            }
            let number = topics::number_in(subscription, body);
            let copy = copy.sent_by(work, has_id);
            self.messages.insert(number, copy);
            self.works.touch(work, number);
        }
    }

    /// The number in the body of a message to a topic, whose decision comes after those of all before it.
    pub(super) fn note_order(&mut self, topic: Entity, message: &BusMessage) -> u64 {
        let number = number_of(&message.body);
        self.last_message = self.last_message.max(number);
        let place = self.published.len() as u64;
        self.published.insert(number, (topic.queue, place));
        number
    }

    /// The place of a message among all that were published, if it was published to this topic and not scheduled there or
    /// forwarded to it.
    pub(super) fn place_in(&self, topic: usize, body: u64) -> Option<u64> {
        let (own, place) = self.published.get(&body)?;
        (*own == topic).then_some(*place)
    }

    /// A copy of a message, which has that first number if it is known, if it was made then, and whether it may not have
    /// been: its subscription may not have existed, or its rule not have selected the message. `None` if there cannot be
    /// a copy. If the message may wait, its copy comes then or later.
    ///
    /// A message expires after the shortest of three times: its own, that of the topic and that of the subscription.
    pub(super) fn copy(
        &mut self,
        (topic, subscription): (Entity, usize),
        (message, first_number): (&BusMessage, Option<u64>),
        sent: Span,
        may_wait: bool,
    ) -> Option<(Message, bool)> {
        let lives_ms: Vec<u64> = self
            .queues
            .of(topic)
            .map(|options| options.default_time_to_live_ms)
            .collect();
        let known = self.queues.get(subscription);
        let wants_session = known.options().next()?.requires_session;
        let of_rules = known
            .rules
            .iter()
            .map(|it| it.copy(number_of(&message.body)));
        let of_rules: Vec<_> = of_rules.collect();
        let is_perhaps_absent = known.may_be_absent() || of_rules.contains(&None);
        let of_rules: Vec<_> = of_rules.into_iter().flatten().collect();
        match of_rules.first() {
            None => {
                self.note("a rule did not select a message");
                return None;
            }
            Some(changes) if !changes.is_empty() => self.note("an action changed a copy"),
            Some(_) => {}
        }
        let entity = Entity {
            queue: subscription,
            part: Part::Queue,
        };
        let mut copy = Message::default();
        for lives_ms in lives_ms {
            let own_ms = message.time_to_live_ms.unwrap_or(u64::MAX);
            let in_topic_ms = own_ms.min(lives_ms);
            let message = BusMessage {
                time_to_live_ms: Some(in_topic_ms),
                ..message.clone()
            };
            let attempted = self.attempt(entity, &message, sent);
            let lives = attempted.lives().flat_map(|life| {
                let changed = |overlays: &Vec<u64>| Life {
                    overlays: overlays.clone(),
                    first_number,
                    ..life.clone()
                };
                of_rules.iter().map(changed).collect::<Vec<_>>()
            });
            for life in lives.collect::<Vec<_>>() {
                if may_wait {
                    let waiting = life.clone().before(sent, sent.plus_ms(in_topic_ms));
                    copy.may_be(Fate::Here(waiting));
                }
                copy.may_be(Fate::Here(match life.session() {
                    None if wants_session => life.buried(DeadLetterCause::SessionIdIsNull),
                    _ => life,
                }));
            }
        }
        if wants_session && message.session.is_none() {
            self.note("a copy without a session became a dead letter");
        }
        Some((copy, is_perhaps_absent))
    }

    /// A copy was seen under a number: those with lower numbers were sent before it, and those with higher ones after
    /// it.
    pub(super) fn check_order_of_copies(
        &mut self,
        entity: Entity,
        number: u64,
        message: u64,
    ) -> Result<(), Violation> {
        let (Some(topic), Part::Queue) = (topics::topic_of(entity.queue), entity.part) else {
            return Ok(());
        };
        let numbers = &self.queues.get(entity.queue).numbers;
        let before = numbers.range((entity.part, 0)..(entity.part, number));
        let after = numbers.range((entity.part, number + 1)..=(entity.part, u64::MAX));
        let before = before.last().map(|(_, owner)| owner.message);
        let after = after.map(|(_, owner)| owner.message).next();
        let place = |message: &u64| match self.sent_again.contains(message) {
            true => None,
            false => self.place_in(topic, topics::number_in_body(*message)),
        };
        let places = [before.as_ref(), Some(&message), after.as_ref()];
        // Those that were scheduled, forwarded or sent again have none.
        let places: Vec<_> = places.into_iter().flatten().filter_map(place).collect();
        if !places.is_sorted_by(|one, next| one < next) {
            return violated!(
                ORDER_OF_COPIES,
                "{number} of {entity:?} is message {message}, after {before:?} and before {after:?}: {places:?}"
            );
        }
        if before.is_some() || after.is_some() {
            self.note("the order of copies was seen");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::bus::checker::{ATOMIC, DUPLICATES, NO_LOSS, NO_RESURRECTION, NUMBERS, ONE_PLACE};
    use crate::bus::workload::plain_options;

    fn at(queue: usize) -> Entity {
        let part = Part::Queue;
        Entity { queue, part }
    }

    fn topic() -> Entity {
        at(topics::topic(0))
    }

    /// The first and the third subscription, which have no sessions.
    fn existing() -> [usize; 2] {
        [topic().queue + 1, topic().queue + 3]
    }

    fn message(number: u64) -> BusMessage {
        BusMessage {
            body: number.to_be_bytes().to_vec().into(),
            message_id: None,
            session: None,
            time_to_live_ms: None,
            scheduled_at: None,
        }
    }

    fn number(number: u64) -> Option<SequenceNumber> {
        Some(SequenceNumber::named(number))
    }

    fn with_id(number: u64) -> BusMessage {
        BusMessage {
            message_id: Some("id".into()),
            ..message(number)
        }
    }

    fn checker() -> Checker {
        let mut checker = Checker::default();
        for queue in [topic().queue].into_iter().chain(existing()) {
            let options = plain_options(queue);
            checker.queues.get(queue).begin(options, Timestamp::ZERO);
        }
        checker
    }

    fn is_shown(checker: &mut Checker, subscription: usize, number: u64) -> Result<(), Violation> {
        let number = topics::number_in(subscription, number);
        let shown = |life: &Life| Some(vec![Fate::Here(life.clone())]);
        checker.narrow(number, ONE_PLACE, &"shown", shown)
    }

    fn is_empty(checker: &mut Checker, subscription: usize) -> Result<(), Violation> {
        checker.not_shown(NO_LOSS, &subscription, &BTreeSet::new(), |life| {
            life.entity == at(subscription)
        })
    }

    #[test]
    fn each_subscription_that_exists_has_one_copy() {
        let mut checker = checker();
        let messages = [message(1)];
        checker
            .published(topic(), &messages, &[number(1)], Timestamp::ZERO)
            .unwrap();
        let [first, second] = existing();
        is_shown(&mut checker, first, 1).unwrap();
        let missing = is_empty(&mut checker, second).unwrap_err();
        assert_eq!(missing.promise, NO_LOSS);
        let absent = topic().queue + 4;
        let unexpected = is_shown(&mut checker, absent, 1).unwrap_err();
        assert_eq!(unexpected.promise, ONE_PLACE);
    }

    #[test]
    fn a_duplicate_has_no_copies_and_no_number() {
        let mut checker = checker();
        let mut publish = |message: BusMessage, number| {
            checker.published(topic(), &[message], &[number], Timestamp::ZERO)
        };
        publish(with_id(1), number(1)).unwrap();
        publish(with_id(2), None).unwrap();
        let twice = publish(with_id(3), number(2)).unwrap_err();
        assert_eq!(twice.promise, DUPLICATES);
        let lost = publish(message(4), None).unwrap_err();
        assert_eq!(lost.promise, DUPLICATES);
        let again = publish(message(5), number(1)).unwrap_err();
        assert_eq!(again.promise, NUMBERS);
        let [first, _] = existing();
        is_shown(&mut checker, first, 1).unwrap();
        let copied = is_shown(&mut checker, first, 2).unwrap_err();
        assert_eq!(copied.promise, NO_RESURRECTION);
    }

    #[test]
    fn a_copy_comes_later_but_before_that_of_a_later_message() {
        let mut checker = Checker {
            copies_at_once: Some(1),
            ..checker()
        };
        let messages = [message(1), message(2)];
        checker
            .published(topic(), &messages, &[number(1), number(2)], Timestamp::ZERO)
            .unwrap();
        let [first, second] = existing();
        is_empty(&mut checker, first).unwrap();
        is_empty(&mut checker, second).unwrap();
        checker.pass_time(Timestamp::from_ms(1));
        let mut later = checker.clone();
        is_shown(&mut checker, first, 1).unwrap();
        is_shown(&mut checker, second, 1).unwrap();
        // Nothing is known of the first message, and one copy of the second one is there.
        is_empty(&mut later, second).unwrap();
        let owner = Owner {
            message: topics::number_in(first, 2),
            is_scheduled: false,
        };
        let lost = later.learn_number(at(first), 5, owner).unwrap_err();
        assert_eq!(lost.promise, ORDER_OF_COPIES);
    }

    #[test]
    fn half_a_publish_is_noticed() {
        let mut checker = checker();
        checker.perhaps_published(topic(), &[message(1)], Span::at(Timestamp::ZERO));
        let [first, second] = existing();
        is_shown(&mut checker, first, 1).unwrap();
        is_empty(&mut checker, second).unwrap();
        assert_eq!(checker.conclude().unwrap_err().promise, ATOMIC);
    }

    #[test]
    fn another_order_than_that_of_the_topic_is_noticed() {
        let mut checker = checker();
        // The numbers in bodies are those of the requests, which were decided otherwise.
        let messages = [message(2), message(1)];
        checker
            .published(topic(), &messages, &[number(1), number(2)], Timestamp::ZERO)
            .unwrap();
        let [first, second] = existing();
        let mut learn = |subscription, number, message| {
            let owner = Owner {
                message: topics::number_in(subscription, message),
                is_scheduled: false,
            };
            checker.learn_number(at(subscription), number, owner)
        };
        learn(first, 5, 2).unwrap();
        learn(first, 7, 1).unwrap();
        learn(second, 7, 2).unwrap();
        let differs = learn(second, 5, 1).unwrap_err();
        assert_eq!(differs.promise, ORDER_OF_COPIES);
    }
}
