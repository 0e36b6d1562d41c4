//! Topics and subscriptions: copies of what is sent, limits, refusals, deletion, and their bytes in a snapshot.

mod duplicates;
mod fan_out;
mod idle;
mod random;
mod rules;
mod updates;

use super::*;
use crate::catalogue::Scope;
use crate::event::Fact;
use crate::table::MESSAGE_OVERHEAD_BYTES as OVERHEAD_BYTES;
use crate::vocabulary::Hold;

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
            Ok(BusOutcome::Queue(view)) => view,
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
        self.state.check_live_bytes();
    }

    /// The facts of the last events.
    fn facts_from(&self, from: usize) -> Vec<Fact> {
        let events = self.log.events[from..].iter();
        events.map(|it| Event::decode(it).unwrap().fact).collect()
    }
}

fn not_supported(queue: EntityName, what: NotSupported) -> BusRefusal {
    let queue = queue.name;
    BusRefusal::NotSupportedYet { queue, what }
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
fn what_belongs_to_later_steps_is_refused() {
    let never = BusQueueOptions::default();
    let mut p = Partition::new();
    let refused = p.create_topic(BusQueueOptions {
        filters_before_publishing: true,
        ..never.clone()
    });
    let what = NotSupported::FiltersBeforePublishing;
    assert_eq!(refused, Err(not_supported(topic(), what)));
    p.create_topic(never.clone()).unwrap();
    p.subscribe_all(&["a"]);
    p.create(&jobs(), never.clone()).unwrap();
    let events = p.log.events.len();

    let refused = p.ask(BusCommand::Transact {
        parts: vec![TransactionPart {
            queue: topic(),
            incarnation: None,
            work: TransactionWork::Send(vec![text("x")]),
        }],
    });
    let why = PartRefusal::Refused(not_supported(topic(), NotSupported::Transaction));
    let (queue, why) = (topic().name, Box::new(why));
    let rolled_back = BusRefusal::Transaction {
        part: 1,
        queue,
        why,
    };
    assert_eq!(refused, Err(rolled_back));

    let refused = p.ask(BusCommand::Resubmit {
        queue: dead_of("a"),
        resubmit: Resubmit {
            to: Some("t".into()),
            messages: Vec::new(),
        },
    });
    let what = NotSupported::ResubmitToTopic;
    assert_eq!(refused, Err(not_supported(topic(), what)));
    assert_eq!(p.log.events.len(), events);
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
    // A resubmission cannot put a copy back into its subscription yet.
    let refused = p.ask(BusCommand::Resubmit {
        queue: dead_of("a"),
        resubmit: Resubmit {
            to: None,
            messages: Vec::new(),
        },
    });
    let queue = subscription("a").name;
    assert_eq!(refused, Err(BusRefusal::NotSendableSubscription { queue }));

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

/// The limit is the topic's. A body counts once, and each copy counts its overhead.
#[test]
fn a_body_counts_once_against_the_topic() {
    let limit_bytes = 2_000;
    let mut p = Partition::with_topic(BusQueueOptions {
        size_bytes_max: limit_bytes,
        message_size_bytes_max: 600,
        ..BusQueueOptions::default()
    });
    p.subscribe_all(&["a", "b"]);
    let message = || text(&"x".repeat(500));
    let full = |size_bytes| {
        let limit_bytes = 2_000;
        Err(BusRefusal::QuotaExceeded {
            size_bytes,
            limit_bytes,
        })
    };
    let too_large = BusRefusal::MessageTooLarge {
        size_bytes: 601,
        limit_bytes: 600,
    };
    assert_eq!(p.publish(vec![text(&"x".repeat(601))]), Err(too_large));
    p.publish(vec![message()]).unwrap();
    let both = 500 + 2 * OVERHEAD_BYTES;
    assert_eq!(p.view(&topic()).counts.size_bytes, both);
    let two_more = both + 2 * (500 + OVERHEAD_BYTES);
    assert_eq!(p.publish(vec![message(), message()]), full(two_more));
    p.publish(vec![message()]).unwrap();
    let with_one_more = 2 * both + 500 + OVERHEAD_BYTES;
    assert_eq!(p.publish(vec![message()]), full(with_one_more));
    assert_eq!(p.view(&topic()).counts.size_bytes, 2 * both);
    let own = 2 * (500 + OVERHEAD_BYTES);
    assert_eq!(p.view(&subscription("a")).counts.size_bytes, own);

    // A change in one subscription is refused because of the other one: the answer rests on both.
    let received = p.receive_from(&subscription("a"), None);
    let overlay = Some(vec![0; 1000].into());
    let settlements = vec![(locks(&received)[0], Disposition::Abandon { overlay })];
    let settle = BusCommand::Settle {
        queue: subscription("a"),
        settlements,
    };
    let mut turn = Turn::new(&mut p.state, p.now, &mut p.log);
    let decision = turn.decide(Command::Bus(settle));
    let verdicts = vec![Verdict::QuotaExceeded];
    let settled = BusOutcome::Settled(verdicts);
    assert_eq!(decision.result, Ok(Outcome::Bus(settled)));
    assert_eq!(decision.scope, Scope::Everything);
}

fn hold_of(message: &DeliveredMessage) -> Hold {
    message.body.hold()
}

/// The subscription with the most messages counts the body, and the oldest one of equals.
#[test]
fn the_longest_backlog_counts_the_body() {
    let mut p = Partition::with_topic(BusQueueOptions::default());
    p.subscribe_all(&["a", "b"]);
    p.publish(vec![text("one")]).unwrap();
    let of_a = p.receive_from(&subscription("a"), None);
    p.settle_in(&subscription("a"), locks(&of_a)[0], Disposition::Complete);
    p.subscribe_all(&["c"]);
    p.publish(vec![text("two")]).unwrap();
    let holds = ["a", "b", "c"].map(|name| {
        let received = p.receive_from(&subscription(name), None);
        received.iter().map(hold_of).collect::<Vec<_>>()
    });
    let [of_a, of_b, of_c] = holds;
    assert_eq!(of_a, [Hold::Borrows]);
    assert_eq!(of_b, [Hold::Borrows, Hold::Lends]);
    assert_eq!(of_c, [Hold::Borrows]);
    p.delete(subscription("a")).unwrap();
    p.delete(subscription("b")).unwrap();
    p.publish(vec![text("three")]).unwrap();
    let of_c = p.receive_from(&subscription("c"), None);
    assert_eq!(hold_of(&of_c[0]), Hold::Alone);
    p.check_whole();
}

/// The body stays as long as any copy has it. If the copy that counts it ends first, the largest subscription is the size
/// of the topic.
#[test]
fn a_body_stays_until_its_last_copy_ends() {
    let mut p = Partition::with_topic(BusQueueOptions::default());
    p.subscribe_all(&["a", "b", "c"]);
    p.publish(vec![text(&"x".repeat(1_000))]).unwrap();
    let live = |p: &Partition| p.state.live_bytes();
    assert_eq!(live(&p), 1_000 + 3 * 48);
    assert_eq!(
        p.view(&topic()).counts.size_bytes,
        1_000 + 3 * OVERHEAD_BYTES
    );
    // A dead letter borrows as its message did.
    let of_b = p.receive_from(&subscription("b"), None);
    let overlay = None;
    let dead = Disposition::DeadLetter { overlay };
    p.settle_in(&subscription("b"), locks(&of_b)[0], dead);
    let of_dead = p.receive_from(&dead_of("b"), None);
    assert_eq!(hold_of(&of_dead[0]), Hold::Borrows);
    assert_eq!(live(&p), 1_000 + 3 * 48);
    assert_eq!(
        p.view(&topic()).counts.size_bytes,
        1_000 + 3 * OVERHEAD_BYTES
    );
    p.check_whole();

    let of_a = p.receive_from(&subscription("a"), None);
    assert_eq!(hold_of(&of_a[0]), Hold::Lends);
    p.settle_in(&subscription("a"), locks(&of_a)[0], Disposition::Complete);
    assert_eq!(live(&p), 2 * 48);
    assert_eq!(p.view(&topic()).counts.size_bytes, 1_000 + OVERHEAD_BYTES);
    p.check_whole();
    let of_c = p.receive_from(&subscription("c"), None);
    p.settle_in(&subscription("c"), locks(&of_c)[0], Disposition::Complete);
    assert_eq!(live(&p), 48);
    p.delete(subscription("b")).unwrap();
    assert_eq!(live(&p), 0);
    assert_eq!(p.view(&topic()).counts.size_bytes, 0);
    p.check_whole();
}

/// A bound of the largest subscription decides nothing: it is found when the bound is too large.
#[test]
fn a_topic_whose_largest_subscription_has_shrunk_takes_messages() {
    let mut p = Partition::with_topic(BusQueueOptions {
        size_bytes_max: 3_000,
        message_size_bytes_max: 1_000,
        ..BusQueueOptions::default()
    });
    p.subscribe_all(&["a", "b"]);
    let large = || text(&"x".repeat(1_000));
    p.publish(vec![large()]).unwrap();
    p.publish(vec![large()]).unwrap();
    assert!(matches!(
        p.publish(vec![large()]),
        Err(BusRefusal::QuotaExceeded { size_bytes, .. }) if size_bytes == 3_000 + 5 * OVERHEAD_BYTES
    ));
    // What counts the bodies ends first. Then what was borrowed.
    for name in ["a", "b"] {
        for lock in locks(&p.receive_from(&subscription(name), None)) {
            p.settle_in(&subscription(name), lock, Disposition::Complete);
        }
        let left = if name == "a" {
            2 * (1_000 + OVERHEAD_BYTES)
        } else {
            0
        };
        assert_eq!(p.view(&topic()).counts.size_bytes, left);
        p.check_whole();
    }
    p.publish(vec![large(), large()]).unwrap();
    p.check_whole();
}

/// A copy that is forwarded leaves the charge of its family, and keeps its body.
#[test]
fn a_borrowed_body_is_forwarded() {
    let mut p = Partition::with_topic(BusQueueOptions::default());
    p.create(&jobs(), BusQueueOptions::default()).unwrap();
    p.subscribe_all(&["a"]);
    let forward = BusQueueOptions {
        forward_to: Some("jobs".into()),
        ..BusQueueOptions::default()
    };
    p.subscribe("b", forward).unwrap();
    p.publish(vec![text(&"x".repeat(1_000))]).unwrap();
    p.tick();
    let received = p.receive_from(&jobs(), None);
    assert_eq!(hold_of(&received[0]), Hold::Borrows);
    assert_eq!(p.view(&jobs()).counts.size_bytes, 1_000 + OVERHEAD_BYTES);
    assert_eq!(p.view(&topic()).counts.size_bytes, 1_000 + OVERHEAD_BYTES);
    assert_eq!(p.state.live_bytes(), 1_000 + 2 * 48);
    p.delete(topic()).unwrap();
    assert_eq!(p.state.live_bytes(), 48);
    p.check_whole();
}

#[test]
fn a_session_state_of_a_subscription_counts_against_the_topic() {
    let mut p = Partition::with_topic(BusQueueOptions {
        size_bytes_max: 2_000,
        message_size_bytes_max: 1_500,
        ..BusQueueOptions::default()
    });
    let sessions = BusQueueOptions {
        requires_session: true,
        ..BusQueueOptions::default()
    };
    p.subscribe("ordered", sessions).unwrap();
    p.subscribe_all(&["other"]);
    p.publish(vec![of_session(&"x".repeat(700), "s")]).unwrap();
    let queue = subscription("ordered");
    let accepted = p.ask(BusCommand::AcceptSession {
        queue: queue.clone(),
        session: SessionChoice::Named("s".into()),
    });
    let Ok(BusOutcome::SessionAccepted(SessionLock { lock, .. })) = accepted else {
        panic!("{accepted:?}");
    };
    let mut set = |size_bytes: usize| {
        p.ask(BusCommand::SetSessionState {
            queue: queue.clone(),
            session: lock,
            state: Some(vec![0; size_bytes].into()),
        })
    };
    let too_large = BusRefusal::SessionStateTooLarge {
        size_bytes: 1_501,
        limit_bytes: 1_500,
    };
    assert_eq!(set(1_501), Err(too_large));
    let full = set(1_000);
    assert!(
        matches!(full, Err(BusRefusal::QuotaExceeded { limit_bytes, .. }) if limit_bytes == 2_000),
        "{full:?}"
    );
    assert_eq!(set(100), Ok(BusOutcome::SessionStateSet));
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

/// Sub-queues do not have the settings that only topics and subscriptions have.
#[test]
fn all_settings_of_a_subscription_are_the_same_after_a_restart() {
    let both = BusQueueOptions {
        filters_before_publishing: true,
        dead_letters_filter_failures: true,
        ..BusQueueOptions::default()
    };
    let mut p = Partition::with_topic(BusQueueOptions {
        dead_letters_filter_failures: true,
        ..BusQueueOptions::default()
    });
    p.subscribe("a", both.clone()).unwrap();
    assert_eq!(p.view(&subscription("a")).options, both);
    p.check_whole();
}

fn names(views: &[BusQueueView]) -> Vec<&str> {
    views.iter().map(|view| &*view.name).collect()
}

#[test]
fn topics_and_their_subscriptions_are_listed_in_pages() {
    let mut p = Partition::with_topic(BusQueueOptions::default());
    p.subscribe_all(&["b", "c", "a"]);
    p.create(&jobs(), BusQueueOptions::default()).unwrap();
    p.ask(BusCommand::CreateTopic {
        topic: entity("t/more"),
        options: BusQueueOptions::default(),
    })
    .unwrap();
    let list = |p: &mut Partition, command| match p.ask(command) {
        Ok(BusOutcome::Queues(views)) => views,
        other => panic!("{other:?}"),
    };
    let topics = |p: &mut Partition, skip, limit| {
        let namespace = "ns".into();
        list(
            p,
            BusCommand::ListTopics {
                namespace,
                skip,
                limit,
            },
        )
    };
    let views = topics(&mut p, 0, 10);
    assert_eq!(names(&views), ["t", "t/more"]);
    assert_eq!(views[0].counts.subscriptions, 3);
    assert_eq!(names(&topics(&mut p, 1, 10)), ["t/more"]);
    assert_eq!(names(&topics(&mut p, 0, 1)), ["t"]);
    let subscriptions = |p: &mut Partition, topic, skip, limit| {
        list(p, BusCommand::ListSubscriptions { topic, skip, limit })
    };
    let views = subscriptions(&mut p, topic(), 1, 2);
    assert_eq!(names(&views), ["t/subscriptions/b", "t/subscriptions/c"]);
    assert!(subscriptions(&mut p, entity("t/more"), 0, 2).is_empty());
    let refused = p.ask(BusCommand::ListSubscriptions {
        topic: jobs(),
        skip: 0,
        limit: 1,
    });
    let queue = jobs().name;
    assert_eq!(refused, Err(BusRefusal::QueueNotFound { queue }));
}

/// Topics are found without a look at the names of queues, and queues without a look at those of subscriptions.
#[test]
fn a_list_counts_what_it_looks_at() {
    let mut p = Partition::with_topic(BusQueueOptions::default());
    p.subscribe_all(&["a", "b"]);
    for number in 0..20 {
        p.create(&entity(&format!("q{number}")), BusQueueOptions::default())
            .unwrap();
    }
    let namespace: std::sync::Arc<str> = "ns".into();
    p.state.take_copied();
    p.ask(BusCommand::ListTopics {
        namespace: namespace.clone(),
        skip: 0,
        limit: 100,
    })
    .unwrap();
    // The size of a topic is that of its subscriptions.
    assert_eq!(p.state.take_copied(), 3 * 2);
    p.ask(BusCommand::ListQueues {
        namespace,
        from: "".into(),
        skip: 0,
        limit: 100,
    })
    .unwrap();
    assert_eq!(p.state.take_copied(), 0);
    assert_eq!(p.state.catalogue.bus_queues.len(), 20);
}

/// These parts are read by every later version.
#[test]
fn the_parts_of_topics_and_subscriptions_have_these_bytes() {
    let mut p = Partition::with_topic(BusQueueOptions::default());
    p.pass_ms(1);
    let options = BusQueueOptions {
        dead_letters_filter_failures: true,
        ..BusQueueOptions::default()
    };
    p.subscribe("a", options).unwrap();
    p.pass_ms(1);
    p.publish(vec![text("x")]).unwrap();
    let mut parts = Vec::new();
    p.state.snapshot(|part| parts.push(part.to_vec()));
    let hex = |bytes: &[u8]| {
        bytes
            .iter()
            .map(|it| format!("{it:02x}"))
            .collect::<String>()
    };
    let of_kind = |kind: u8| -> Vec<String> {
        let found = parts.iter().filter(|part| part[0] == kind);
        found.map(|part| hex(part)).collect()
    };
    let options = "e0d4030affffffffffffffffff01000000ffffffffffffffffff01000001808080800480804000";
    let topic = format!("250101 02026e7301 74 {options} c1843d c1843d c3843d 02 00 00 02 00");
    assert_eq!(of_kind(37), [topic.replace(' ', "")]);
    let name = hex(b"t/subscriptions/a");
    let head = format!("260104 02026e7311 {name} {options} c2843d c2843d c2843d 02 00");
    let subscription = format!("{head} 02 01 01 01 01");
    assert_eq!(of_kind(38), [subscription.replace(' ', "")]);
}
