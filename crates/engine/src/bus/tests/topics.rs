//! Topics and subscriptions: copies of what is sent, limits, refusals and deletion.

mod cold_ids;
mod deposit;
mod duplicates;
mod fan_out;
mod holds;
mod idle;
mod lists;
mod random;
mod rules;
mod sizes;
mod transact;
mod updates;

use kew_filter::{Definition, FilterDefinition};

use super::*;
use crate::bus::queue::BusQueue;
use crate::catalogue::Scope;
use crate::event::Fact;
use crate::table::MESSAGE_OVERHEAD_BYTES as OVERHEAD_BYTES;
use crate::vocabulary::{Hold, Incarnation};

fn topic() -> EntityName {
    entity("t")
}

fn subscription(name: &str) -> EntityName {
    entity(&format!("t/subscriptions/{name}"))
}

fn dead_of(name: &str) -> EntityName {
    entity(&format!("t/subscriptions/{name}/$deadletterqueue"))
}

impl Partition {
    fn with_topic(options: BusQueueOptions) -> Self {
        let mut p = Self::new();
        p.create_topic(options).unwrap();
        p
    }

    fn create_topic(&mut self, options: BusQueueOptions) -> Result<BusOutcome, BusRefusal> {
        self.ask(BusCommand::CreateTopic {
            topic: topic(),
            options,
        })
    }

    fn subscribe(
        &mut self,
        name: &str,
        options: BusQueueOptions,
    ) -> Result<BusOutcome, BusRefusal> {
        self.ask(BusCommand::CreateSubscription {
            topic: topic(),
            subscription: subscription(name),
            options,
            rule: None,
        })
    }

    fn subscribe_all(&mut self, names: &[&str]) {
        for name in names {
            self.subscribe(name, BusQueueOptions::default()).unwrap();
        }
    }

    fn publish(&mut self, messages: Vec<BusMessage>) -> Result<BusOutcome, BusRefusal> {
        self.ask(BusCommand::Send {
            queue: topic(),
            messages,
        })
    }

    fn delete(&mut self, queue: EntityName) -> Result<BusOutcome, BusRefusal> {
        self.ask(BusCommand::DeleteQueue { queue })
    }

    fn view(&mut self, queue: &EntityName) -> BusQueueView {
        let queue = queue.clone();
        match self.ask(BusCommand::ReadQueue { queue }) {
            Ok(BusOutcome::Queue(view)) => *view,
            other => panic!("{other:?}"),
        }
    }

    fn texts(&self, messages: &[DeliveredMessage]) -> Vec<String> {
        let texts = messages.iter().map(|message| self.body(message).to_owned());
        texts.collect()
    }

    /// The same state by its events, and by its snapshot.
    fn check_whole(&self) {
        assert_eq!(self.replayed(), self.state);
        assert_eq!(self.restored(), self.state);
        self.check_kept();
    }

    /// What is kept of all subscriptions is what a walk finds.
    fn check_kept(&self) {
        self.state.check_live_bytes();
        self.state.catalogue.families.check();
        self.check_takers();
    }

    /// Those that are found as takers of all messages are those that a walk over all subscriptions and rules finds.
    fn check_takers(&self) {
        let (bus, catalogue) = (&self.state.bus, &self.state.catalogue);
        let all = Definition::new(FilterDefinition::True, None).unwrap();
        for (of, entity) in bus.iter() {
            let Some(rules) = &entity.topic else { continue };
            let next = entity.backlog.next().as_u64();
            // After damage, many numbers may have been skipped.
            for number in (1..=next.min(1_000)).chain([next]) {
                let number = SequenceNumber::new(number);
                let has_default = |it: &BusQueue| it.rule.is_some_and(|it| it.since <= number);
                let own = bus.iter().filter(|(_, it)| it.role.topic() == Some(*of));
                let by_default = own.filter(|(_, it)| has_default(it)).map(|(it, _)| *it);
                let holding = rules.holding(number);
                let by_rule = holding.filter(|rule| *rule.definition == *all.bytes());
                let walked: BTreeSet<_> = by_default
                    .chain(by_rule.map(|rule| rule.subscription))
                    .collect();
                let places = walked.iter().flat_map(|it| [*it, it.next()]);
                for from in [Incarnation::default()].into_iter().chain(places) {
                    let found = bus.may_take_all_from(catalogue, *of, from);
                    let found = found.filter(|it| {
                        let looked_at = bus.look_at(catalogue, (*of, *it), number);
                        looked_at.takes_all
                    });
                    let expected: Vec<_> = walked.range(from..).copied().collect();
                    assert_eq!(found.collect::<Vec<_>>(), expected, "{of:?} {number:?}");
                }
            }
        }
    }

    /// The facts of the last events.
    fn facts_from(&self, from: usize) -> Vec<Fact> {
        let events = self.log.events[from..].iter();
        events.map(|it| Event::decode(it).unwrap().fact).collect()
    }
}

fn names(views: &[BusQueueView]) -> Vec<&str> {
    views.iter().map(|view| &*view.name).collect()
}

#[test]
fn what_is_published_arrives_in_each_subscription_with_one_body() {
    let mut p = Partition::with_topic(BusQueueOptions::default());
    // Nobody gets what is sent before there are subscriptions.
    let (bodies, events) = (p.log.bodies.len(), p.log.events.len());
    let sent = p.publish(vec![text("lost")]);
    let number = Some(SequenceNumber::FIRST);
    assert_eq!(sent, Ok(BusOutcome::Sent(vec![number])));
    // It has taken a number.
    let counts = (p.log.bodies.len(), p.log.events.len());
    assert_eq!(counts, (bodies, events + 1));

    p.subscribe_all(&["a", "b"]);
    p.publish(vec![text("one"), text("two")]).unwrap();
    assert_eq!(p.log.bodies.len(), bodies + 2);
    assert_eq!(p.facts_from(events + 3).len(), 1);
    let of_a = p.receive_from(&subscription("a"), None);
    let of_b = p.receive_from(&subscription("b"), None);
    assert_eq!(p.texts(&of_a), ["one", "two"]);
    assert_eq!(p.texts(&of_b), ["one", "two"]);
    for (of_a, of_b) in of_a.iter().zip(&of_b) {
        assert!(of_a.body.is_same_place(of_b.body));
        let holds = [of_a.body.hold(), of_b.body.hold()];
        assert_eq!(holds, [Hold::Lends, Hold::Borrows]);
    }

    // Each copy is settled by itself.
    for lock in locks(&of_a) {
        let settled = p.settle_in(&subscription("a"), lock, Disposition::Complete);
        assert_eq!(settled, Verdict::Settled);
        let elsewhere = p.settle_in(&subscription("b"), lock, Disposition::Complete);
        assert_eq!(elsewhere, Verdict::LockLost);
    }
    assert_eq!(p.view(&subscription("a")).counts.active, 0);
    assert_eq!(p.view(&subscription("b")).counts.active, 2);
    let dead = p.settle_in(
        &subscription("b"),
        locks(&of_b)[0],
        Disposition::DeadLetter { overlay: None },
    );
    assert_eq!(dead, Verdict::Settled);
    let of_dead = p.receive_from(&dead_of("b"), None);
    assert_eq!(p.texts(&of_dead), ["one"]);
    p.check_whole();
}

#[test]
fn a_copy_lives_as_long_as_message_topic_and_subscription_allow() {
    let mut p = Partition::with_topic(BusQueueOptions {
        default_time_to_live_ms: 60_000,
        ..BusQueueOptions::default()
    });
    p.subscribe_all(&["long"]);
    let short = BusQueueOptions {
        default_time_to_live_ms: 20_000,
        ..BusQueueOptions::default()
    };
    p.subscribe("short", short).unwrap();
    let own = BusMessage {
        time_to_live_ms: Some(40_000),
        ..text("own")
    };
    p.publish(vec![text("none"), own]).unwrap();
    let lives_ms = |all: Vec<DeliveredMessage>, now: Timestamp| {
        let lives = all.iter().map(|it| it.expires_at.as_ms() - now.as_ms());
        lives.collect::<Vec<_>>()
    };
    let of_long = p.receive_from(&subscription("long"), None);
    assert_eq!(lives_ms(of_long, p.now), [60_000, 40_000]);
    let of_short = p.receive_from(&subscription("short"), None);
    assert_eq!(lives_ms(of_short, p.now), [20_000, 20_000]);
}

#[test]
fn a_subscription_with_sessions_buries_what_has_none() {
    let mut p = Partition::with_topic(BusQueueOptions::default());
    p.subscribe_all(&["plain"]);
    let sessions = BusQueueOptions {
        requires_session: true,
        ..BusQueueOptions::default()
    };
    p.subscribe("ordered", sessions).unwrap();
    p.publish(vec![text("alone"), of_session("grouped", "s")])
        .unwrap();
    let plain = p.receive_from(&subscription("plain"), None);
    assert_eq!(p.texts(&plain), ["alone", "grouped"]);
    let dead = p.receive_from(&dead_of("ordered"), None);
    assert_eq!(p.texts(&dead), ["alone"]);
    assert_eq!(dead[0].cause, Some(DeadLetterCause::SessionIdIsNull));
    assert_eq!(dead[0].expires_at, Timestamp::NEVER);
    let accepted = p.ask(BusCommand::AcceptSession {
        queue: subscription("ordered"),
        session: SessionChoice::Next,
    });
    let Ok(BusOutcome::SessionAccepted(lock)) = accepted else {
        panic!("{accepted:?}");
    };
    let grouped = p.receive_from(&subscription("ordered"), Some(lock.lock));
    assert_eq!(p.texts(&grouped), ["grouped"]);
    p.check_whole();
}

#[test]
fn a_subscription_forwards_to_a_queue() {
    let mut p = Partition::with_topic(BusQueueOptions::default());
    p.create(&jobs(), BusQueueOptions::default()).unwrap();
    let forwards = BusQueueOptions {
        forward_to: Some("jobs".into()),
        ..BusQueueOptions::default()
    };
    p.subscribe("on", forwards).unwrap();
    p.publish(vec![text("x")]).unwrap();
    p.tick();
    let received = p.receive();
    assert_eq!(p.texts(&received), ["x"]);
    let refused = p.ask(BusCommand::Receive {
        queue: subscription("on"),
        count: 1,
        mode: ReceiveMode::PeekLock,
        session: None,
    });
    let queue = subscription("on").name;
    assert_eq!(refused, Err(BusRefusal::Forwards { queue }));
    p.check_whole();
}

#[test]
fn all_of_a_topic_is_deleted_with_an_event_for_each_subscription() {
    let mut p = Partition::with_topic(BusQueueOptions::default());
    p.subscribe_all(&["a", "b"]);
    p.publish(vec![text("x")]).unwrap();
    let firsts = ["t", "t/subscriptions/a", "t/subscriptions/b"];
    let [topic_one, a, b] = firsts.map(|name| p.view(&entity(name)).incarnation);
    p.delete(subscription("a")).unwrap();
    assert_eq!(p.view(&topic()).counts.subscriptions, 1);

    let from = p.log.events.len();
    assert_eq!(p.delete(topic()), Ok(BusOutcome::QueueDeleted));
    let deleted = |queue| Fact::Bus(BusFact::QueueDeleted { queue });
    assert_eq!(p.facts_from(from), [deleted(topic_one), deleted(b)]);
    assert_eq!(p.state.bus.len(), 0);
    assert_eq!(p.state.catalogue.names.len(), 0);
    assert_eq!(p.state.live_bytes(), 0);
    p.check_whole();

    // What has the name later is another topic, without subscriptions.
    p.create_topic(BusQueueOptions::default()).unwrap();
    assert_ne!(p.view(&topic()).incarnation, topic_one);
    assert_eq!(p.view(&topic()).counts.subscriptions, 0);
    let gone = p.ask(BusCommand::ReadQueue {
        queue: subscription("b"),
    });
    let queue = subscription("b").name;
    assert_eq!(gone, Err(BusRefusal::QueueNotFound { queue }));
    p.subscribe_all(&["a"]);
    assert!(p.view(&subscription("a")).incarnation > a);
    p.check_whole();
}

/// A gap in a damaged log can hide the events of the subscriptions.
#[test]
fn the_end_of_a_topic_takes_the_subscriptions_that_are_left() {
    let mut p = Partition::with_topic(BusQueueOptions::default());
    p.subscribe_all(&["a", "b"]);
    p.publish(vec![text("x")]).unwrap();
    let queue = p.view(&topic()).incarnation;
    let at = p.now;
    p.state.apply(Event {
        at,
        fact: Fact::Bus(BusFact::QueueDeleted { queue }),
    });
    assert_eq!(p.state.bus.len(), 0);
    assert_eq!(p.state.catalogue.names.len(), 0);
    assert!(p.state.catalogue.subscriptions.is_empty() && p.state.catalogue.topics.is_empty());
    assert_eq!(p.state.live_bytes(), 0);
}

/// The same for the creation of a topic.
#[test]
fn a_subscription_without_its_topic_stays_and_gets_nothing() {
    let mut p = Partition::with_topic(BusQueueOptions::default());
    p.subscribe_all(&["a"]);
    p.publish(vec![text("x")]).unwrap();
    let mut state = State::new();
    for event in &p.log.events {
        let event = Event::decode(event).unwrap();
        if !matches!(event.fact, Fact::Bus(BusFact::TopicCreated { .. })) {
            state.apply(event);
        }
    }
    let mut alone = Partition {
        state,
        cold: None,
        ..p
    };
    let received = alone.receive_from(&subscription("a"), None);
    assert_eq!(alone.texts(&received), ["x"]);
    // Its own limits hold.
    let overlay = Some(Bytes::from_static(b"changed"));
    let settled = alone.settle_in(
        &subscription("a"),
        locks(&received)[0],
        Disposition::Abandon { overlay },
    );
    assert_eq!(settled, Verdict::Settled);
    assert_eq!(alone.restored(), alone.state);
}

#[test]
fn a_repair_that_takes_over_a_reading_has_its_topics() {
    let mut p = Partition::with_topic(BusQueueOptions::default());
    p.subscribe_all(&["a", "b"]);
    p.publish(vec![text("x")]).unwrap();
    let mut state = State::new();
    assert!(state.absorb(p.restored()).is_empty());
    assert_eq!(state.bus, p.state.bus);
    assert_eq!(
        state.catalogue.subscriptions,
        p.state.catalogue.subscriptions
    );
}

#[test]
fn a_topic_has_at_most_2000_subscriptions() {
    let mut p = Partition::with_topic(BusQueueOptions::default());
    p.cold = None;
    let names: Vec<_> = (0..=SUBSCRIPTIONS_MAX).map(|it| it.to_string()).collect();
    for name in &names[1..] {
        p.subscribe(name, BusQueueOptions::default()).unwrap();
    }
    let refused = p.subscribe("0", BusQueueOptions::default());
    let (queue, limit) = (topic().name, 2000);
    assert_eq!(
        refused,
        Err(BusRefusal::TooManySubscriptions { queue, limit })
    );
    // One that is there is said to be there.
    let again = p.subscribe("1", BusQueueOptions::default());
    let queue = subscription("1").name;
    assert_eq!(again, Err(BusRefusal::QueueAlreadyExists { queue }));
    p.delete(subscription("1")).unwrap();
    p.subscribe("0", BusQueueOptions::default()).unwrap();
    p.delete(topic()).unwrap();
    assert_eq!(p.state.bus.len(), 0);
}

/// `ask` checks the room for the longest sessions.
#[test]
fn a_command_makes_at_most_4096_copies_at_once() {
    let mut p = Partition::with_topic(BusQueueOptions::default());
    let names: Vec<_> = (0..64).map(|it| it.to_string()).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    p.subscribe_all(&names);
    let message = of_session("x", &"s".repeat(SESSION_ID_SIZE_BYTES_MAX));
    let largest = Command::Bus(BusCommand::Send {
        queue: topic(),
        messages: vec![message.clone(); 64],
    });
    let room_bytes = largest.describe().room_size_bytes_max(&p.state, 64);
    assert!(room_bytes < 1 << 20, "{room_bytes}");
    p.state.take_copied();
    p.publish(vec![message.clone(); 65]).unwrap();
    // Each subscription was looked at.
    assert_eq!(p.state.take_copied(), 4096 * room::COPY_STEPS + 64);
    assert_eq!(p.view(&subscription("7")).counts.active, 64);
    assert_eq!(p.view(&topic()).counts.active, 1);
    p.tick();
    assert_eq!(p.view(&subscription("7")).counts.active, 65);
    assert_eq!(p.view(&topic()).counts.active, 0);
    p.check_whole();
}

#[test]
fn a_topic_is_not_received_from_and_a_subscription_not_sent_to() {
    let mut p = Partition::with_topic(BusQueueOptions::default());
    p.subscribe_all(&["a"]);
    p.create(&jobs(), BusQueueOptions::default()).unwrap();
    let receive = |queue: EntityName| BusCommand::Receive {
        queue,
        count: 1,
        mode: ReceiveMode::PeekLock,
        session: None,
    };
    let queue = topic().name;
    let refused = p.ask(receive(topic()));
    assert_eq!(refused, Err(BusRefusal::NotReceivable { queue }));
    let accepted = p.ask(BusCommand::AcceptSession {
        queue: topic(),
        session: SessionChoice::Next,
    });
    let queue = topic().name;
    assert_eq!(accepted, Err(BusRefusal::NotReceivable { queue }));
    // What is sent becomes a dead letter in a subscription, so a topic has no dead letters.
    let refused = p.ask(receive(entity("t/$deadletterqueue")));
    let queue = "t/$deadletterqueue".into();
    assert_eq!(refused, Err(BusRefusal::QueueNotFound { queue }));
    let failed = p.ask(receive(entity("t/$transfer/$deadletterqueue")));
    assert_eq!(failed, Ok(BusOutcome::Received(Vec::new())));

    let send = |queue: EntityName| BusCommand::Send {
        queue,
        messages: vec![text("x")],
    };
    let queue = subscription("a").name;
    let refused = p.ask(send(subscription("a")));
    assert_eq!(refused, Err(BusRefusal::NotSendableSubscription { queue }));
    let refused = p.ask(send(dead_of("a")));
    let queue = dead_of("a").name;
    assert_eq!(refused, Err(BusRefusal::NotSendable { queue }));
    // Queues are listed, and other entities are not.
    let listed = p.ask(BusCommand::ListQueues {
        namespace: "ns".into(),
        from: "".into(),
        skip: 0,
        limit: 10,
    });
    let Ok(BusOutcome::Queues(views)) = listed else {
        panic!("{listed:?}");
    };
    assert_eq!(names(&views), ["jobs"]);
    let kinds = [topic(), subscription("a"), dead_of("a"), jobs(), dead()];
    let kinds = kinds.map(|queue| p.view(&queue).kind);
    let subscription = EntityKind::Subscription;
    let (topic, queue) = (EntityKind::Topic, EntityKind::Queue);
    assert_eq!(kinds, [topic, subscription, subscription, queue, queue]);
}

#[test]
fn names_are_of_one_entity_and_subscriptions_need_their_topic() {
    let mut p = Partition::new();
    let not_found = |name: &str| BusRefusal::QueueNotFound { queue: name.into() };
    let exists = |name: &str| BusRefusal::QueueAlreadyExists { queue: name.into() };
    let plain = BusQueueOptions::default;
    assert_eq!(p.subscribe("a", plain()), Err(not_found("t")));
    p.create(&topic(), plain()).unwrap();
    assert_eq!(p.subscribe("a", plain()), Err(not_found("t")));
    assert_eq!(p.create_topic(plain()), Err(exists("t")));
    p.delete(topic()).unwrap();
    p.create_topic(plain()).unwrap();
    assert_eq!(p.create(&topic(), plain()), Err(exists("t")));
    p.create(&subscription("a"), plain()).unwrap();
    let name = "t/subscriptions/a";
    assert_eq!(p.subscribe("a", plain()), Err(exists(name)));
    let long = "s".repeat(260);
    assert!(matches!(
        p.subscribe(&long, plain()),
        Err(BusRefusal::InvalidOption(_))
    ));
}

#[test]
fn a_copy_that_comes_is_no_use_of_its_subscription() {
    let mut p = Partition::with_topic(BusQueueOptions::default());
    let idle_ms = 300_000;
    let idle = BusQueueOptions {
        auto_delete_on_idle_ms: idle_ms,
        ..BusQueueOptions::default()
    };
    p.subscribe("used", idle.clone()).unwrap();
    p.subscribe("idle", idle).unwrap();
    for _ in 0..12 {
        p.pass_ms(idle_ms / 10);
        p.publish(vec![text("x")]).unwrap();
        for lock in locks(&p.receive_from(&subscription("used"), None)) {
            p.settle_in(&subscription("used"), lock, Disposition::Complete);
        }
        p.tick();
    }
    assert_eq!(p.view(&topic()).counts.subscriptions, 1);
    assert_eq!(p.view(&subscription("used")).counts.active, 0);
    p.check_whole();
}

#[test]
fn a_copy_that_expires_is_no_use_of_its_subscription() {
    let mut p = Partition::with_topic(BusQueueOptions::default());
    let idle = BusQueueOptions {
        default_time_to_live_ms: 60_000,
        auto_delete_on_idle_ms: 300_000,
        ..BusQueueOptions::default()
    };
    let buries = BusQueueOptions {
        dead_letters_expired: true,
        ..idle.clone()
    };
    p.subscribe("idle", idle.clone()).unwrap();
    p.subscribe("buries", buries).unwrap();
    p.subscribe("taken", idle).unwrap();
    for _ in 0..12 {
        p.pass_ms(30_000);
        p.publish(vec![text("x")]).unwrap();
        p.ask(BusCommand::Receive {
            queue: subscription("taken"),
            count: 1,
            mode: ReceiveMode::ReceiveAndDelete,
            session: None,
        })
        .unwrap();
        p.tick();
    }
    let left = p.ask(BusCommand::ListSubscriptions {
        topic: topic(),
        skip: 0,
        limit: 10,
    });
    let Ok(BusOutcome::Queues(views)) = left else {
        panic!("{left:?}");
    };
    assert_eq!(names(&views), ["t/subscriptions/taken"]);
    p.check_whole();
}
