//! Topics and subscriptions whose creation is lost, and bodies that several subscriptions have.

use kew_engine::Hold;

use super::rules::{TOPIC, repaired, subscription};
use super::*;

impl Driver {
    fn subscribe_one(&mut self, of: &str) {
        self.ask(BusCommand::CreateSubscription {
            topic: name(TOPIC),
            subscription: subscription(of),
            options: BusQueueOptions::default(),
            rule: None,
        });
    }

    fn publish_all(&mut self, numbers: std::ops::Range<u64>) {
        for number in numbers {
            let message = BusMessage {
                body: body(number),
                message_id: None,
                session: None,
                time_to_live_ms: None,
                scheduled_at: None,
            };
            let (queue, messages) = (name(TOPIC), vec![message]);
            self.ask(BusCommand::Send { queue, messages });
        }
    }

    /// The numbers of the bodies in a subscription.
    fn numbers_in(&mut self, of: &EntityName) -> Vec<u64> {
        let (outcome, bodies) = self.ask(BusCommand::Peek {
            queue: of.clone(),
            from: SequenceNumber::default(),
            count: 5000,
            session: None,
        });
        assert!(matches!(outcome, BusOutcome::Peeked(_)), "{outcome:?}");
        bodies.iter().map(number).collect()
    }
}

/// Its subscriptions are all that shows that it was a topic, and how it was called.
#[test]
fn subscriptions_show_the_topic_and_its_name() {
    let mut driver = Driver::on(FaultyStorage::new());
    let (file, at) = driver.record(Driver::create_topic);
    driver.subscribe();
    let storage = driver.close();
    storage.flip(&file, at, 1);
    let (losses, mut driver) = repaired(&storage);
    assert_eq!((losses.renamed, losses.dropped), (vec![], vec![]));
    assert_eq!(losses.without_settings, [name(TOPIC)]);
    let (topic, subscriptions) = driver.topic();
    let names = subscriptions.iter().map(|(name, _)| &**name);
    assert_eq!(topic, TOPIC);
    assert!(names.eq(["t/subscriptions/a", "t/subscriptions/b"]));
    driver.publish(TOPIC);
    for of in ["a", "b"] {
        assert_eq!(driver.active(&subscription(of)), 1, "{of}");
    }
}

/// Another topic has its name now, so its subscriptions cannot show that: they are gone, as that topic shows.
#[test]
fn a_newer_topic_of_the_name_ends_the_subscriptions_of_the_older_one() {
    let mut driver = Driver::on(FaultyStorage::new()).with_topic();
    driver.publish_all(0..3);
    let (file, at) = driver.record(|driver| {
        driver.ask(BusCommand::DeleteQueue { queue: name(TOPIC) });
    });
    driver.create_topic();
    driver.subscribe_one("c");
    driver.publish_all(3..5);
    let storage = driver.close();
    storage.flip(&file, at, 1);
    let (losses, mut driver) = repaired(&storage);
    assert_eq!((losses.renamed, losses.dropped), (vec![], vec![]));
    assert_eq!(losses.without_settings, []);
    let (_, subscriptions) = driver.topic();
    let names = subscriptions.iter().map(|(name, _)| &**name);
    assert!(names.eq(["t/subscriptions/c"]), "{subscriptions:?}");
    assert_eq!(driver.numbers_in(&subscription("c")), [3, 4]);
    let messages = driver.bench.partition.state().messages();
    assert_eq!(messages.count(), 2);
}

#[test]
fn copies_show_a_subscription() {
    let mut driver = Driver::on(FaultyStorage::new());
    driver.create_topic();
    driver.subscribe_one("a");
    let (file, at) = driver.record(|driver| driver.subscribe_one("b"));
    driver.publish_all(0..3);
    let storage = driver.close();
    storage.flip(&file, at, 1);
    let (losses, mut driver) = repaired(&storage);
    assert_eq!(losses.dropped, []);
    let (topic, subscriptions) = driver.topic();
    assert_eq!(topic, TOPIC);
    let [kept, found] = &subscriptions[..] else {
        panic!("{subscriptions:?}");
    };
    assert!(
        found.0.starts_with("t/subscriptions/recovered-"),
        "{found:?}"
    );
    assert_eq!(
        (&*kept.0, &found.1[..]),
        ("t/subscriptions/a", &["$Default".to_owned()][..])
    );
    assert_eq!(losses.renamed, [name(&found.0)]);
    assert_eq!(losses.rules[0].opened, [name(&found.0)]);
    for of in [&kept.0, &found.0] {
        assert_eq!(driver.numbers_in(&name(of)), [0, 1, 2], "{of}");
    }
    driver.publish(TOPIC);
    assert_eq!(driver.active(&name(&found.0)), 4);
}

/// The pages of its subscriptions are whole, and nothing else shows it.
#[test]
fn a_topic_whose_page_is_lost_is_one_again() {
    let mut driver = begun();
    // A page has the entities of 64 numbers, and the topic has the last ones of the first page.
    for number in 0..19 {
        driver.create(&format!("queue-{number}"), false);
    }
    driver.create_topic();
    driver.subscribe();
    driver.create("last", false);
    driver.publish_all(0..5);
    driver.snapshot();
    driver.send("last", 60..61);
    driver.snapshot();
    driver.send("last", 61..62);
    let storage = driver.close();
    let lost = lose_some_pages(&storage, |at, kind| kind == HEADS && at == 0);
    assert_eq!(lost, 1);
    let (losses, mut driver) = repaired(&storage);
    assert_eq!(losses.without_settings, [name(TOPIC)]);
    let (topic, subscriptions) = driver.topic();
    assert_eq!((&*topic, subscriptions.len()), (TOPIC, 2));
    for of in ["a", "b"] {
        assert_eq!(
            driver.numbers_in(&subscription(of)),
            [0, 1, 2, 3, 4],
            "{of}"
        );
    }
    driver.publish(TOPIC);
    assert_eq!(driver.active(&subscription("b")), 6);
}

#[test]
fn a_damaged_shared_body_costs_all_its_copies_and_no_other_message() {
    let mut driver = begun().with_topic();
    driver.publish_all(0..5);
    driver.snapshots();
    let storage = driver.close();
    damage_bytes(&storage, &body(2));
    let (losses, mut driver) = repaired(&storage);
    let listed = losses.messages.iter();
    let listed: Vec<_> = listed
        .map(|it| (it.queue.clone(), it.sequence_number.as_u64()))
        .collect();
    assert_eq!(listed, [(subscription("a"), 3), (subscription("b"), 3)]);
    for of in ["a", "b"] {
        assert_eq!(driver.numbers_in(&subscription(of)), [0, 1, 3, 4], "{of}");
    }
}

/// The copy that counts the body of all has a change of its own, and is lost with that.
#[test]
fn a_damaged_change_of_one_copy_leaves_the_body_to_the_others() {
    const CHANGE: &[u8] = b"a change that cannot be read any more";
    let mut driver = begun().with_topic();
    driver.publish_all(0..1);
    let (outcome, _) = driver.ask(BusCommand::Receive {
        queue: subscription("a"),
        count: 1,
        mode: ReceiveMode::PeekLock,
        session: None,
    });
    let BusOutcome::Received(messages) = outcome else {
        panic!("{outcome:?}");
    };
    let overlay = Some(Bytes::from_static(CHANGE));
    let abandon = Disposition::Abandon { overlay };
    driver.ask(BusCommand::Settle {
        queue: subscription("a"),
        settlements: vec![(messages[0].lock.unwrap(), abandon)],
    });
    driver.snapshots();
    let storage = driver.close();
    damage_bytes(&storage, CHANGE);
    let (losses, driver) = repaired(&storage);
    assert_eq!(losses.gaps, []);
    let lost: Vec<_> = losses.messages.iter().map(|it| &it.queue).collect();
    assert_eq!(lost, [&subscription("a")]);
    let state = driver.bench.partition.state();
    let copies = state
        .messages()
        .filter(|it| *it.queue_name == subscription("b"));
    let holds: Vec<_> = copies.map(|it| it.body.hold()).collect();
    assert_eq!(holds, [Hold::Lends]);
    state.check_live_bytes();
}

/// Any damage in any place: what is left works, and all that is missing is told.
#[test]
fn random_damage_of_topics_is_repaired() {
    let mut driver = begun().with_topic();
    driver.publish_all(0..10);
    driver.snapshots();
    driver.subscribe_one("c");
    driver.publish_all(10..20);
    let storage = driver.close();
    let (mut repaired_count, mut without_gaps) = (0, 0);
    for seed in 0..300u64 {
        let disk = storage.kill();
        damage(&disk, &mut Dice(seed));
        if !look(&disk).is_needed() {
            continue;
        }
        repaired_count += 1;
        let (losses, mut driver) = repaired(&disk);
        let is_told = !losses.gaps.is_empty();
        without_gaps += usize::from(!is_told);
        driver.bench.partition.state().check_live_bytes();
        let (_, subscriptions) = match driver.topics().len() {
            1 => driver.topic(),
            count => {
                assert!(count == 0 && is_told, "seed {seed}: {losses:?}");
                continue;
            }
        };
        for (of, from) in [("a", 0), ("b", 0), ("c", 10)] {
            let is_there = subscriptions
                .iter()
                .any(|(it, _)| name(it) == subscription(of));
            assert!(is_there || is_told, "seed {seed}: {of} is gone");
            if !is_there {
                continue;
            }
            let listed = losses.messages.iter();
            let listed = listed.filter(|it| it.queue == subscription(of)).count() as u64;
            let left = driver.numbers_in(&subscription(of));
            // Each is there once, in its order, and only where it was published to.
            assert!(
                left.is_sorted_by(|one, next| one < next) && left.iter().all(|it| *it >= from),
                "seed {seed}: {of} has {left:?}"
            );
            let left = left.len() as u64;
            assert!(
                left + listed == 20 - from || is_told,
                "seed {seed}: {of} has {left}"
            );
        }
        let (topic, _) = driver.topic();
        driver.publish(&topic);
        for (of, rules) in &subscriptions {
            assert_eq!(rules[..], ["$Default"], "seed {seed}");
            assert!(driver.active(&name(of)) > 0, "seed {seed}: {of}");
        }
        driver.bench.partition.state().check_live_bytes();
    }
    assert!(repaired_count > 30, "{repaired_count} repairs");
    assert!(
        without_gaps > 4,
        "{without_gaps} of {repaired_count} repairs"
    );
}
