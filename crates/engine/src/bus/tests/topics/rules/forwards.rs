//! Messages that are forwarded to a topic: from queues, from subscriptions, and dead letters.

use super::*;
use crate::bus::DeadLetterCause;

const UNAVAILABLE: Option<DeadLetterCause> = Some(DeadLetterCause::DestinationUnavailable);
const TOO_MANY: Option<DeadLetterCause> = Some(DeadLetterCause::MaxTransferHopCountExceeded);

fn forwards_to(name: &str) -> BusQueueOptions {
    BusQueueOptions {
        forward_to: Some(name.into()),
        ..BusQueueOptions::default()
    }
}

fn dead_letters_to(name: &str) -> BusQueueOptions {
    BusQueueOptions {
        forward_dead_letters_to: Some(name.into()),
        ..BusQueueOptions::default()
    }
}

impl Partition {
    /// A topic with these subscriptions, and a queue that forwards to it.
    fn with_forwards(options: BusQueueOptions, subscriptions: &[&str]) -> Self {
        let mut p = Self::with_topic(options);
        p.subscribe_all(subscriptions);
        p.create(&jobs(), forwards_to("t")).unwrap();
        p
    }

    fn settle_down(&mut self) {
        self.tick();
        self.check_rules();
    }

    /// The texts and causes of what an entity has.
    fn letters(&mut self, name: &str) -> Vec<(String, Option<DeadLetterCause>)> {
        let messages = self.peeked(entity(name));
        let all = messages.iter().map(|it| (self.bytes(it.body), it.cause));
        all.collect()
    }

    fn bury_in(&mut self, queue: &EntityName, overlay: &str) {
        let overlay = Some(Bytes::copy_from_slice(overlay.as_bytes()));
        for lock in locks(&self.receive_from(queue, None)) {
            let overlay = overlay.clone();
            let settled = self.settle_in(queue, lock, Disposition::DeadLetter { overlay });
            assert_eq!(settled, Verdict::Settled);
        }
    }
}

#[test]
fn a_queue_forwards_to_a_topic_whose_rules_select() {
    let mut p = Partition::with_forwards(BusQueueOptions::default(), &["all", "red"]);
    p.set_rule("red", rule("$Default", correlation("red")))
        .unwrap();
    p.send(text("color=red")).unwrap();
    p.send(text("color=blue")).unwrap();
    p.settle_down();
    assert_eq!(p.copies_in("all").len(), 2);
    assert_eq!(p.copies_in("red"), [("color=red".to_owned(), None)]);
    // The number of the queue stays, and so does the place of the body.
    assert_eq!(p.log.bodies.len(), 2);
    let copies = p.peeked(subscription("all"));
    let numbers = copies.iter().map(|it| it.first_sequence_number.as_u64());
    assert_eq!(numbers.collect::<Vec<_>>(), [1, 2]);
    assert_eq!(p.counts().active, 0);
    assert_eq!(p.view(&topic()).counts.active, 0);
    // What is published behind them comes behind them.
    p.send(text("color=red\n1")).unwrap();
    p.tick_once(1);
    p.check_rules();
    assert_eq!(p.view(&topic()).counts.active, 1);
    p.publish(vec![text("color=red\n2")]).unwrap();
    p.settle_down();
    let last = p.copies_in("red").split_off(1);
    let last: Vec<_> = last.iter().map(|(text, _)| &**text).collect();
    assert_eq!(last, ["color=red\n1", "color=red\n2"]);
}

#[test]
fn a_subscription_forwards_to_a_queue_and_to_a_topic() {
    let mut p = Partition::with_topic(BusQueueOptions::default());
    let next = entity("next");
    p.ask(BusCommand::CreateTopic {
        topic: next.clone(),
        options: BusQueueOptions::default(),
    })
    .unwrap();
    p.ask(BusCommand::CreateSubscription {
        topic: next,
        subscription: entity("next/subscriptions/end"),
        options: BusQueueOptions::default(),
        rule: None,
    })
    .unwrap();
    p.create(&jobs(), BusQueueOptions::default()).unwrap();
    p.subscribe("queue", forwards_to("jobs")).unwrap();
    p.subscribe("topic", forwards_to("next")).unwrap();
    p.publish(vec![text("x"), of_session("y", "s")]).unwrap();
    p.settle_down();
    let received = p.receive();
    assert_eq!(p.texts(&received), ["x", "y"]);
    let received = p.receive_from(&entity("next/subscriptions/end"), None);
    assert_eq!(p.texts(&received), ["x", "y"]);
    p.check_whole();
}

/// Each copy is forwarded four times, and then it is a dead letter of the subscription that it cannot leave.
#[test]
fn a_circle_through_a_topic_ends_after_four_hops() {
    let mut p = Partition::with_topic(BusQueueOptions::default());
    p.subscribe_all(&["sees"]);
    p.subscribe("circle", forwards_to("t")).unwrap();
    p.publish(vec![text("x")]).unwrap();
    p.settle_down();
    assert_eq!(p.copies_in("sees").len(), 5);
    let dead = p.letters("t/subscriptions/circle/$deadletterqueue");
    assert_eq!(dead, [("x".to_owned(), TOO_MANY)]);
}

/// Each hop multiplies the copies. The size of the topic ends that before the hops do.
#[test]
fn a_topic_that_feeds_itself_gets_no_larger_than_it_may() {
    let limit_bytes = 4_000;
    let mut p = Partition::with_topic(BusQueueOptions {
        size_bytes_max: limit_bytes,
        ..BusQueueOptions::default()
    });
    let names = ["a", "b", "c", "d"];
    for name in names {
        p.subscribe(name, forwards_to("t")).unwrap();
    }
    p.publish(vec![text("x")]).unwrap();
    for _ in 0..20 {
        p.settle_down();
        // The copies of what was accepted are not checked again.
        let size_bytes = p.view(&topic()).counts.size_bytes;
        assert!(size_bytes < 2 * limit_bytes, "{size_bytes}");
    }
    let dead = names.map(|name| p.letters(&format!("t/subscriptions/{name}/$deadletterqueue")));
    let all: Vec<_> = dead.into_iter().flatten().collect();
    assert!(
        all.iter().any(|(_, cause)| *cause == UNAVAILABLE),
        "{all:?}"
    );
    p.check_whole();
}

/// What two subscriptions forward has one body, and one of the messages counts it.
#[test]
fn a_body_counts_once_where_it_is_forwarded_to() {
    for ends in [&["end"][..], &["end", "other"]] {
        let mut p = Partition::with_topic(BusQueueOptions::default());
        p.ask(BusCommand::CreateTopic {
            topic: entity("next"),
            options: BusQueueOptions::default(),
        })
        .unwrap();
        for end in ends {
            p.ask(BusCommand::CreateSubscription {
                topic: entity("next"),
                subscription: entity(&format!("next/subscriptions/{end}")),
                options: BusQueueOptions::default(),
                rule: None,
            })
            .unwrap();
        }
        p.subscribe("a", forwards_to("next")).unwrap();
        p.subscribe("b", forwards_to("next")).unwrap();
        p.publish(vec![text("x")]).unwrap();
        p.settle_down();
        let holds = ends
            .iter()
            .flat_map(|end| p.holds(&entity(&format!("next/subscriptions/{end}"))));
        let holds: Vec<_> = holds.collect();
        assert_eq!(holds.len(), 2 * ends.len());
        let counting = holds.iter().filter(|hold| **hold != Hold::Borrows);
        assert_eq!(counting.count(), 1, "{holds:?}");
        p.check_whole();
    }
}

#[test]
fn a_dead_letter_takes_its_changes_source_and_reason_with_it() {
    let mut p = Partition::with_topic(BusQueueOptions::default());
    p.subscribe_all(&["all", "blue", "more"]);
    p.set_rule("blue", rule("$Default", correlation("blue")))
        .unwrap();
    p.set_rule(
        "more",
        with_action("$Default", "SET x = sys.DeadLetterSource"),
    )
    .unwrap();
    p.create(&jobs(), dead_letters_to("t")).unwrap();
    p.send(text("color=red")).unwrap();
    p.bury_in(&jobs(), "+color=blue\n");
    p.settle_down();
    let (body, change) = ("color=red".to_owned(), "+color=blue\n".to_owned());
    for name in ["all", "blue"] {
        assert_eq!(
            p.shown(subscription(name)),
            [(body.clone(), change.clone())]
        );
    }
    let more = format!("{change}+x=jobs\n+RuleName=$Default\n");
    assert_eq!(p.shown(subscription("more")), [(body, more)]);
    let copies = p.peeked(subscription("all"));
    let copy = &copies[0];
    assert_eq!(copy.dead_letter_source.as_deref(), Some("jobs"));
    assert_eq!(copy.cause, Some(DeadLetterCause::ByReceiver));
    assert_eq!(p.counts().dead_letters, 0);
}

/// The own life of a message goes on, and the topic may shorten it.
#[test]
fn a_message_lives_as_long_as_it_may_in_the_topic() {
    let mut p = Partition::with_forwards(
        BusQueueOptions {
            default_time_to_live_ms: 60_000,
            ..BusQueueOptions::default()
        },
        &["a"],
    );
    let sent_at = p.now;
    p.send(text("long")).unwrap();
    p.send(BusMessage {
        time_to_live_ms: Some(20_000),
        ..text("short")
    })
    .unwrap();
    p.pass_ms(1_000);
    p.settle_down();
    let copies = p.peeked(subscription("a"));
    let ends = copies.iter().map(|it| it.expires_at);
    // The first one went on before the second one was sent.
    let expected = [sent_at.plus_ms(60_000), sent_at.plus_ms(20_000)];
    assert_eq!(ends.collect::<Vec<_>>(), expected);
}

fn named(id: &str) -> BusMessage {
    BusMessage {
        message_id: Some(id.into()),
        ..text(&format!("sys.MessageId={id}"))
    }
}

fn detects() -> BusQueueOptions {
    BusQueueOptions {
        duplicate_window_ms: Some(60_000),
        ..BusQueueOptions::default()
    }
}

#[test]
fn a_topic_looks_up_the_ids_of_what_is_forwarded_to_it() {
    let mut p = Partition::with_forwards(detects(), &["a"]);
    for id in ["one", "two", "one"] {
        p.send(named(id)).unwrap();
    }
    // A command does not read bodies for that.
    let later = BusCommand::Peek {
        queue: jobs(),
        from: SequenceNumber::default(),
        count: 1,
        session: None,
    };
    p.ask(later).unwrap();
    assert_eq!(p.counts().active, 3);
    p.settle_down();
    assert_eq!(p.counts().active, 0);
    assert_eq!(p.copies_in("a").len(), 2);
    let dropped = p.publish(vec![named("two")]);
    assert_eq!(dropped, Ok(BusOutcome::Sent(vec![None])));
    p.publish(vec![named("three")]).unwrap();
    p.send(named("three")).unwrap();
    p.settle_down();
    assert_eq!(p.copies_in("a").len(), 3);
    assert_eq!(p.counts().dead_letters, 0);
    p.pass_ms(60_000);
    p.send(named("three")).unwrap();
    p.settle_down();
    assert_eq!(p.copies_in("a").len(), 4);
}

#[test]
fn a_topic_counts_the_duplicates_that_it_drops() {
    let mut p = Partition::with_forwards(detects(), &["a"]);
    let dropped = |p: &mut Partition| p.state.overview(None, p.now, 1000).topics[0].duplicates;
    // Their copies are made at once.
    p.publish(vec![named("one"), named("one")]).unwrap();
    assert_eq!(dropped(&mut p), 1);
    p.send(named("one")).unwrap();
    p.settle_down();
    assert_eq!((p.counts().active, dropped(&mut p)), (0, 2));
    // These are kept by the topic.
    p.copies_at_once = 0;
    p.publish(vec![named("two"), named("two")]).unwrap();
    assert_eq!(dropped(&mut p), 3);
    assert_eq!(
        p.state.overview(None, p.now, 1000).bus_queues[0]
            .flow
            .duplicates,
        0
    );
    let mut replayed = p.replayed();
    assert_eq!(replayed.overview(None, p.now, 1000).topics[0].duplicates, 0);
}

/// An action may change the id. That has no effect in the subscription, and has one where the copy is sent on.
#[test]
fn an_id_that_an_action_has_set_is_looked_up() {
    let mut p = Partition::with_topic(detects());
    p.create(&jobs(), BusQueueOptions::default()).unwrap();
    p.subscribe("other", forwards_to("t")).unwrap();
    p.set_rule(
        "other",
        with_action("$Default", "SET sys.MessageId = 'set'"),
    )
    .unwrap();
    p.subscribe_all(&["all"]);
    p.publish(vec![named("one"), named("two")]).unwrap();
    p.settle_down();
    // The first one came back once with the new id, and its copy did not.
    assert_eq!(p.copies_in("all").len(), 3);
    let dead = p.letters("t/subscriptions/other/$deadletterqueue");
    assert!(dead.is_empty());
}

#[test]
fn a_message_whose_id_cannot_be_read_becomes_a_dead_letter() {
    let mut p = Partition::with_forwards(detects(), &["a"]);
    p.send(named("one")).unwrap();
    p.send(named("two")).unwrap();
    let first = p.peeked(jobs())[0].body;
    p.log.damaged.insert(first);
    if let Some(cold) = &mut p.cold {
        cold.damage(first);
    }
    p.settle_down();
    let copies = p.copies_in("a");
    assert_eq!(copies, [("sys.MessageId=two".to_owned(), None)]);
    let dead = p.peeked(dead());
    assert_eq!(dead[0].cause, Some(DeadLetterCause::BodyDamaged));
}

#[test]
fn a_topic_that_takes_nothing_makes_dead_letters_at_the_source() {
    let update = |options| BusCommand::UpdateQueue {
        queue: topic(),
        options,
    };
    let of_status = |status| BusQueueOptions {
        status,
        ..BusQueueOptions::default()
    };
    let message_bytes = crate::table::MESSAGE_OVERHEAD_BYTES + 1;
    let full = BusQueueOptions {
        // There is room for both copies of the first one, whose body counts once.
        size_bytes_max: 2 * message_bytes,
        ..BusQueueOptions::default()
    };
    for change in [
        BusCommand::DeleteQueue { queue: topic() },
        update(of_status(EntityStatus::Disabled)),
        update(of_status(EntityStatus::SendDisabled)),
        update(full),
    ] {
        let mut p = Partition::with_forwards(BusQueueOptions::default(), &["a", "b"]);
        p.send(text("1")).unwrap();
        p.tick();
        assert_eq!(p.copies_in("a").len(), 1);
        p.ask(change.clone()).unwrap();
        p.send(text("2")).unwrap();
        p.tick();
        p.check_whole();
        let dead = p.letters("jobs/$deadletterqueue");
        assert_eq!(dead, [("2".to_owned(), UNAVAILABLE)], "{change:?}");
        assert_eq!(p.counts().active, 0, "{change:?}");
    }
}

/// Dead letters of a subscription that forwards them to a topic which is gone are failed transfers.
#[test]
fn a_dead_letter_that_cannot_go_is_a_failed_transfer() {
    let mut p = Partition::with_topic(BusQueueOptions::default());
    p.create(&entity("gone"), BusQueueOptions::default())
        .unwrap();
    p.subscribe("a", dead_letters_to("gone")).unwrap();
    p.delete(entity("gone")).unwrap();
    p.publish(vec![text("x")]).unwrap();
    p.bury_in(&subscription("a"), "+y=1\n");
    p.settle_down();
    let failed = p.letters("t/subscriptions/a/$transfer/$deadletterqueue");
    assert_eq!(failed, [("x".to_owned(), UNAVAILABLE)]);
}

/// A message that was changed as often as it may be has no room for what an action adds, nor for a description.
#[test]
fn a_message_without_room_for_changes_fails_the_actions() {
    let mut p = Partition::with_topic(BusQueueOptions::default());
    let wants = BusQueueOptions {
        dead_letters_filter_failures: true,
        ..BusQueueOptions::default()
    };
    p.subscribe_all(&["plain"]);
    p.subscribe("changes", wants).unwrap();
    p.set_rule("changes", with_action("$Default", "SET y = 1"))
        .unwrap();
    p.create(
        &jobs(),
        BusQueueOptions {
            max_delivery_count: 100,
            ..dead_letters_to("t")
        },
    )
    .unwrap();
    p.send(text("x")).unwrap();
    for _ in 0..31 {
        let overlay = Some(Bytes::from_static(b"+a=1\n"));
        let lock = locks(&p.receive())[0];
        p.settle(lock, Disposition::Abandon { overlay });
    }
    p.bury_in(&jobs(), "+b=2\n");
    p.settle_down();
    let plain = p.peeked(subscription("plain"));
    assert_eq!(plain[0].overlays.len(), 32);
    let failed = p.peeked(dead_of("changes"));
    assert_eq!(failed[0].cause, Some(DeadLetterCause::FilterFailed));
    assert_eq!(failed[0].overlays, plain[0].overlays);
    assert!(p.copies_in("changes").is_empty());
}

#[test]
fn a_destination_has_to_be_there() {
    let mut p = Partition::with_topic(BusQueueOptions::default());
    p.subscribe_all(&["a"]);
    for name in ["nowhere", "t/subscriptions/a", "t/$deadletterqueue"] {
        let queue = name.into();
        let refused = Err(BusRefusal::DestinationNotFound { queue });
        assert_eq!(p.create(&jobs(), forwards_to(name)), refused);
        assert_eq!(p.subscribe("b", dead_letters_to(name)), refused);
    }
    p.create(&jobs(), forwards_to("t")).unwrap();
}

/// To find out that a topic is full takes a look at its subscriptions, if the largest one has shrunk. Then that is known.
#[test]
fn what_a_full_topic_refuses_takes_of_the_budget() {
    let names: Vec<_> = (0..64).map(|nth| nth.to_string()).collect();
    let names: Vec<_> = names.iter().map(|it| &**it).collect();
    let mut p = Partition::with_topic(BusQueueOptions {
        // Room for all copies of one message, whose body has one byte.
        size_bytes_max: 64 * crate::table::MESSAGE_OVERHEAD_BYTES + 1,
        ..BusQueueOptions::default()
    });
    p.subscribe_all(&names);
    p.publish(vec![text("x")]).unwrap();
    let last = p.receive_from(&subscription("63"), None);
    p.settle_in(&subscription("63"), locks(&last)[0], Disposition::Complete);
    p.create(&jobs(), BusQueueOptions::default()).unwrap();
    p.ask(BusCommand::Send {
        queue: jobs(),
        messages: vec![text("x"); 8],
    })
    .unwrap();
    let options = forwards_to("t");
    let queue = jobs();
    p.ask(BusCommand::UpdateQueue { queue, options }).unwrap();
    p.state.take_copied();
    // 64 looks are one unit more, once.
    p.tick_once(5);
    assert_eq!(
        p.letters("jobs/$deadletterqueue"),
        vec![("x".to_owned(), UNAVAILABLE); 4]
    );
    assert_eq!(p.state.take_copied(), 64);
    p.check_whole();
}

/// Each takes two units of the budget, wherever it moves.
#[test]
fn a_damaged_message_with_many_changes_takes_as_much_as_any_that_moves() {
    let mut p = Partition::with_topic(BusQueueOptions::default());
    p.subscribe_all(&["a"]);
    p.set_rule("a", rule("$Default", correlation("red")))
        .unwrap();
    p.create(
        &jobs(),
        BusQueueOptions {
            max_delivery_count: 100,
            ..dead_letters_to("t")
        },
    )
    .unwrap();
    let session = "s".repeat(500);
    p.send(of_session("1", &session)).unwrap();
    p.send(of_session("2", &session)).unwrap();
    for message in p.peeked(jobs()) {
        p.log.damaged.insert(message.body);
        if let Some(cold) = &mut p.cold {
            cold.damage(message.body);
        }
    }
    for _ in 0..31 {
        for lock in locks(&p.receive()) {
            let overlay = Some(Bytes::from_static(b"+a=1\n"));
            p.settle(lock, Disposition::Abandon { overlay });
        }
    }
    p.bury_in(&jobs(), "+b=2\n");
    let of_topic = p.topic_incarnation();
    p.change(|state| state.let_rest(of_topic, true));
    p.tick_once(4);
    assert_eq!(p.view(&topic()).counts.active, 2);
    p.change(|state| state.let_rest(of_topic, false));
    for count in 1..=2 {
        p.tick_once(2);
        let failed = p.letters("t/$transfer/$deadletterqueue");
        assert_eq!(failed.len(), count);
        assert_eq!(failed[0].1, Some(DeadLetterCause::BodyDamaged));
    }
    p.check_rules();
}

/// A message with many properties takes long to read, also for its id alone.
#[test]
fn to_read_an_id_takes_of_the_budget() {
    let mut p = Partition::with_forwards(detects(), &["a"]);
    let many: String = (0..1_016).map(|_| "p=\n").collect();
    for _ in 0..4 {
        p.send(text(&many)).unwrap();
    }
    p.state.take_copied();
    // 4,000 steps of each are 20 units, and the message itself is one.
    p.tick_once(42);
    assert_eq!(p.counts().active, 2);
    assert!(p.state.take_copied() >= 2 * 4_000);
    p.settle_down();
    assert_eq!(p.copies_in("a").len(), 4);
}

/// However many sources a topic has, it makes copies as fast as messages come.
#[test]
fn what_is_forwarded_waits_in_its_queue_while_the_topic_makes_copies() {
    let mut p = Partition::with_forwards(BusQueueOptions::default(), &["a"]);
    p.create(&entity("more"), forwards_to("t")).unwrap();
    let more = || BusCommand::Send {
        queue: entity("more"),
        messages: vec![text("m"); 10],
    };
    for _ in 0..10 {
        p.send(text("j")).unwrap();
    }
    p.ask(more()).unwrap();
    // The command behind it has forwarded the first one.
    assert_eq!(p.view(&topic()).counts.active, 1);
    assert_eq!(p.counts().active, 9);
    let mut copied = 0;
    while p.tick_once(4) {
        assert!(p.view(&topic()).counts.active <= 4);
        let copies = p.view(&subscription("a")).counts.active;
        assert!(copied < copies);
        copied = copies;
    }
    assert_eq!(p.view(&subscription("a")).counts.active, 20);
    p.check_rules();
}

/// What is accepted goes where it was going to go, although it does not have to wait for a tick to be told so.
#[test]
fn a_queue_forwards_what_it_has_before_it_is_changed_or_deleted() {
    let update = BusCommand::UpdateQueue {
        queue: jobs(),
        options: BusQueueOptions::default(),
    };
    for change in [BusCommand::DeleteQueue { queue: jobs() }, update] {
        let mut p = Partition::with_forwards(BusQueueOptions::default(), &["a"]);
        for _ in 0..3 {
            p.send(text("x")).unwrap();
        }
        assert_eq!(p.counts().active, 2);
        p.ask(change).unwrap();
        p.tick();
        assert_eq!(p.copies_in("a").len(), 3);
        p.check_rules();
    }
}
