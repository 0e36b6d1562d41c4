//! Dead letters that are sent again: to a topic, and back to a subscription.

use super::*;
use crate::bus::ResubmitVerdict;
use crate::table::MESSAGE_OVERHEAD_BYTES;

impl Partition {
    /// Makes dead letters of all that a subscription has.
    fn give_up(&mut self, name: &str) {
        let queue = subscription(name);
        loop {
            let locks = locks(&self.receive_from(&queue, None));
            if locks.is_empty() {
                break;
            }
            for lock in locks {
                let settled =
                    self.settle_in(&queue, lock, Disposition::DeadLetter { overlay: None });
                assert_eq!(settled, Verdict::Settled);
            }
        }
    }

    fn again(
        &mut self,
        from: EntityName,
        to: Option<&str>,
        messages: Vec<Resubmission>,
    ) -> Result<Vec<ResubmitVerdict>, BusRefusal> {
        let resubmit = Resubmit {
            to: to.map(Into::into),
            messages,
        };
        let queue = from;
        match self.ask(BusCommand::Resubmit { queue, resubmit })? {
            BusOutcome::Resubmitted(verdicts) => Ok(verdicts),
            other => panic!("{other:?}"),
        }
    }

    fn bodies_in(&mut self, queue: EntityName) -> Vec<String> {
        let messages = self.peeked(queue);
        messages.iter().map(|it| self.bytes(it.body)).collect()
    }
}

fn number(number: u64) -> SequenceNumber {
    SequenceNumber::new(number)
}

fn message(number: u64, body: &str) -> Resubmission {
    Resubmission {
        sequence_number: SequenceNumber::new(number),
        overlay_count: 0,
        body: Bytes::copy_from_slice(body.as_bytes()),
        message_id: None,
        session: None,
        time_to_live_ms: None,
    }
}

fn done(number: u64) -> ResubmitVerdict {
    ResubmitVerdict::Resubmitted(SequenceNumber::new(number))
}

#[test]
fn a_dead_letter_goes_back_to_its_subscription_alone() {
    let options = BusQueueOptions {
        default_time_to_live_ms: 50_000,
        ..BusQueueOptions::default()
    };
    let mut p = Partition::with_topic(options);
    p.subscribe_all(&["a", "b"]);
    p.publish(vec![text("color=red\n"), text("color=blue\n")])
        .unwrap();
    p.give_up("a");
    // No rule looks at it.
    p.set_rule("a", rule("$Default", correlation("green")))
        .unwrap();
    let both = vec![
        message(1, "color=red\nedited=1\n"),
        message(2, "color=blue\n"),
        message(9, "x"),
    ];
    let verdicts = p.again(dead_of("a"), None, both).unwrap();
    assert_eq!(verdicts, [done(3), done(4), ResubmitVerdict::NotFound]);
    assert_eq!(p.view(&subscription("a")).counts.dead_letters, 0);
    assert_eq!(p.view(&subscription("b")).counts.active, 2);
    let received = p.receive_from(&subscription("a"), None);
    assert_eq!(
        p.texts(&received),
        ["color=red\nedited=1\n", "color=blue\n"]
    );
    for message in &received {
        assert_eq!((message.delivery_count, message.cause), (0, None));
        assert_eq!(message.expires_at, p.now.plus_ms(50_000));
    }
    // The topic has given it no number.
    let sent = p.publish(vec![text("color=red\n")]);
    assert_eq!(sent, Ok(BusOutcome::Sent(vec![Some(number(3))])));
    p.check_rules();
}

#[test]
fn a_topic_copies_what_is_sent_again_to_all_that_select_it() {
    let options = BusQueueOptions {
        duplicate_window_ms: Some(20_000),
        ..BusQueueOptions::default()
    };
    let mut p = Partition::with_topic(options);
    p.create(&jobs(), BusQueueOptions::default()).unwrap();
    // More than a command copies at once, and than a step.
    for name in 0..200 {
        p.subscribe(&name.to_string(), BusQueueOptions::default())
            .unwrap();
    }
    p.set_rule("7", rule("$Default", correlation("blue")))
        .unwrap();
    p.publish(vec![text("color=red\n"), text("color=red\nn=2\n")])
        .unwrap();
    p.tick();
    p.give_up("3");
    let with_id = |it: Resubmission| Resubmission {
        message_id: Some("id".into()),
        ..it
    };
    let both = vec![
        with_id(message(1, "color=blue\n")),
        with_id(message(2, "color=red\nn=2\n")),
    ];
    let verdicts = p.again(dead_of("3"), Some("t"), both).unwrap();
    assert_eq!(verdicts, [done(3), ResubmitVerdict::Duplicate]);
    // It waits in the topic, and the other one is still a dead letter.
    assert_eq!(p.view(&topic()).counts.active, 1);
    assert_eq!(p.bodies_in(dead_of("3")), ["color=red\nn=2\n"]);
    p.check_rules();
    p.tick();
    assert_eq!(p.view(&topic()).counts.active, 0);
    for name in 0..200 {
        let name = name.to_string();
        let expected = match name.as_str() {
            "3" | "7" => 1,
            _ => 3,
        };
        let all = p.bodies_in(subscription(&name));
        assert_eq!(all.len(), expected, "{name}");
        assert_eq!(all.last().unwrap(), "color=blue\n");
    }
    p.check_rules();
}

/// An action that fails makes no copy, so it is no reason to take a message out of the dead letters.
#[test]
fn what_only_failing_actions_want_stays_a_dead_letter() {
    let mut p = Partition::with_topic(BusQueueOptions::default());
    p.subscribe_all(&["a"]);
    p.publish(vec![text("color=red\n")]).unwrap();
    p.give_up("a");
    p.set_rule("a", with_action("$Default", "SET sys.MessageId = 1 / 0"))
        .unwrap();
    let one = || vec![message(1, "color=red\n")];
    let verdicts = p.again(dead_of("a"), Some("t"), one()).unwrap();
    assert_eq!(verdicts, [ResubmitVerdict::Unselected]);
    // One that does not fail makes one.
    p.set_rule("a", with_action("$Default", "SET n = 1"))
        .unwrap();
    let verdicts = p.again(dead_of("a"), Some("t"), one()).unwrap();
    assert!(matches!(verdicts[..], [ResubmitVerdict::Resubmitted(_)]));
    p.tick();
    assert_eq!(p.bodies_in(dead_of("a")), [""; 0]);
    p.check_rules();
}

/// A command has so many steps for rules. What is left then stays where it is, until another command sends it.
#[test]
fn what_a_command_has_no_steps_for_stays_a_dead_letter() {
    let mut p = Partition::with_topic(BusQueueOptions::default());
    p.subscribe_all(&["a"]);
    let count = 100;
    let body = "color=red\n";
    for _ in 0..count {
        p.publish(vec![text(body)]).unwrap();
    }
    p.give_up("a");
    p.remove_rule("a", "$Default").unwrap();
    p.add_many("a", 1_000, &sql("size > 1000000"));
    let all = |from: u64| (from..=count).map(|it| message(it, body)).collect();
    let verdicts = p.again(dead_of("a"), Some("t"), all(1)).unwrap();
    let compared = verdicts
        .iter()
        .filter(|it| **it == ResubmitVerdict::Unselected);
    let compared = compared.count() as u64;
    assert!((1..count).contains(&compared), "{compared}");
    let rest = verdicts.iter().skip(usize::try_from(compared).unwrap());
    for verdict in rest {
        assert_eq!(*verdict, ResubmitVerdict::NotCompared);
    }
    assert_eq!(p.bodies_in(dead_of("a")).len() as u64, count);
    let verdicts = p.again(dead_of("a"), Some("t"), all(count)).unwrap();
    assert_eq!(verdicts, [ResubmitVerdict::Unselected]);
}

/// A message that waits in a topic may have some of its copies.
#[test]
fn messages_of_a_topic_are_not_sent_again() {
    let mut p = Partition::with_topic(BusQueueOptions::default());
    p.create(&jobs(), BusQueueOptions::default()).unwrap();
    p.subscribe_all(&["a"]);
    p.copies_at_once = 0;
    p.publish(vec![text("x")]).unwrap();
    let refused = p.again(topic(), Some("jobs"), vec![message(1, "x")]);
    assert_eq!(
        refused,
        Err(BusRefusal::NotReceivable {
            queue: topic().name
        })
    );
    p.tick();
    assert_eq!(p.bodies_in(subscription("a")), ["x"]);
}

#[test]
fn what_nobody_would_get_stays_a_dead_letter() {
    let mut p = Partition::with_topic(BusQueueOptions::default());
    p.subscribe_all(&["a"]);
    p.publish(vec![text("color=red\n"), text("color=red\n")])
        .unwrap();
    p.give_up("a");
    p.set_rule("a", rule("$Default", correlation("blue")))
        .unwrap();
    let both = || vec![message(1, "color=red\n"), message(2, "color=blue\n")];
    let verdicts = p.again(dead_of("a"), Some("t"), both()).unwrap();
    assert_eq!(verdicts, [ResubmitVerdict::Unselected, done(3)]);
    p.tick();
    assert_eq!(p.bodies_in(subscription("a")), ["color=blue\n"]);
    assert_eq!(p.bodies_in(dead_of("a")), ["color=red\n"]);
    // Without any rule, likewise.
    p.remove_rule("a", "$Default").unwrap();
    let verdicts = p.again(dead_of("a"), Some("t"), both()).unwrap();
    assert_eq!(
        verdicts,
        [ResubmitVerdict::Unselected, ResubmitVerdict::NotFound]
    );
    p.check_rules();
}

#[test]
fn limits_are_those_of_the_topic_and_a_dead_letter_of_it_frees_its_room() {
    let each = MESSAGE_OVERHEAD_BYTES + 10;
    let mut p = Partition::with_topic(BusQueueOptions {
        size_bytes_max: 2 * each,
        message_size_bytes_max: 10,
        ..BusQueueOptions::default()
    });
    let sessions = BusQueueOptions {
        requires_session: true,
        ..BusQueueOptions::default()
    };
    p.subscribe_all(&["a"]);
    p.publish(vec![text("0123456789"), text("0123456789")])
        .unwrap();
    p.give_up("a");
    for to in [None, Some("t")] {
        let verdicts = p
            .again(dead_of("a"), to, vec![message(1, "0123456789x")])
            .unwrap();
        assert_eq!(verdicts, [ResubmitVerdict::TooLarge]);
    }
    // The topic is full, and each leaves as much as it takes.
    let verdicts = p
        .again(dead_of("a"), None, vec![message(1, "9876543210")])
        .unwrap();
    assert_eq!(verdicts, [done(3)]);
    let verdicts = p
        .again(dead_of("a"), Some("t"), vec![message(2, "9876543210")])
        .unwrap();
    assert_eq!(verdicts, [done(3)]);
    p.tick();
    assert_eq!(p.view(&topic()).counts.size_bytes, 2 * each);
    // Another topic's dead letters free nothing here.
    p.create(&jobs(), BusQueueOptions::default()).unwrap();
    p.ask(BusCommand::Send {
        queue: jobs(),
        messages: vec![text("0123456789")],
    })
    .unwrap();
    let lock = locks(&p.receive_from(&jobs(), None))[0];
    p.settle_in(&jobs(), lock, Disposition::DeadLetter { overlay: None });
    let verdicts = p
        .again(dead(), Some("t"), vec![message(1, "0123456789")])
        .unwrap();
    assert_eq!(verdicts, [ResubmitVerdict::Full]);
    p.check_rules();

    p.subscribe("s", sessions).unwrap();
    let big = BusQueueOptions {
        size_bytes_max: 100 * each,
        ..p.view(&topic()).options
    };
    let queue = topic();
    p.ask(BusCommand::UpdateQueue {
        queue,
        options: big,
    })
    .unwrap();
    p.publish(vec![text("x")]).unwrap();
    // It has no session, and so it is there at once.
    let verdicts = p.again(dead_of("s"), None, vec![message(1, "x")]).unwrap();
    assert_eq!(verdicts, [ResubmitVerdict::SessionRequired]);
    let with = Resubmission {
        session: Some("s".into()),
        ..message(1, "x")
    };
    let verdicts = p.again(dead_of("s"), None, vec![with]).unwrap();
    assert_eq!(verdicts, [done(1)]);
    p.check_rules();
}

/// Another subscription counted the bodies and has completed them, so their end frees little. But the largest subscription
/// does not grow by them.
#[test]
fn a_full_topic_takes_its_own_dead_letters_whoever_counted_their_bodies() {
    let body = "x".repeat(1000);
    let each = MESSAGE_OVERHEAD_BYTES + 1000;
    for to in [Some("t"), None] {
        let mut p = Partition::with_topic(BusQueueOptions {
            size_bytes_max: 2 * each,
            ..BusQueueOptions::default()
        });
        p.subscribe_all(&["lends", "borrows"]);
        p.publish(vec![text(&body), text(&body)]).unwrap();
        p.give_up("borrows");
        let held = locks(&p.receive_from(&subscription("lends"), None));
        for lock in held {
            p.settle_in(&subscription("lends"), lock, Disposition::Complete);
        }
        assert_eq!(p.view(&topic()).counts.size_bytes, 2 * each);
        assert!(p.publish(vec![text("x")]).is_err());
        // One that has grown does not fit.
        let longer = message(1, &"x".repeat(1001));
        let verdicts = p.again(dead_of("borrows"), to, vec![longer]).unwrap();
        assert_eq!(verdicts, [ResubmitVerdict::Full], "{to:?}");
        let both = vec![message(1, &body), message(2, &body)];
        let verdicts = p.again(dead_of("borrows"), to, both).unwrap();
        assert_eq!(verdicts, [done(3), done(4)], "{to:?}");
        p.tick();
        assert_eq!(p.bodies_in(subscription("borrows")).len(), 2);
        // The other subscription has copies again, if the topic has made them.
        let copies = to.map_or(0, |_| 2 * MESSAGE_OVERHEAD_BYTES);
        let size_bytes = p.view(&topic()).counts.size_bytes;
        assert_eq!(size_bytes, 2 * each + copies, "{to:?}");
        p.check_rules();
    }
}

/// If another subscription is the largest, the topic grows by what waits in it, whatever has left.
#[test]
fn a_full_topic_refuses_a_dead_letter_beside_a_larger_subscription() {
    let body = "x".repeat(1000);
    let each = MESSAGE_OVERHEAD_BYTES + 1000;
    let mut p = Partition::with_topic(BusQueueOptions {
        size_bytes_max: 3 * each + MESSAGE_OVERHEAD_BYTES,
        ..BusQueueOptions::default()
    });
    p.subscribe_all(&["lends", "borrows"]);
    p.publish(vec![text(&body)]).unwrap();
    p.give_up("borrows");
    p.remove_rule("borrows", "$Default").unwrap();
    p.publish(vec![text(&body), text(&body)]).unwrap();
    p.add_rule("borrows", rule("all", correlation("green")))
        .unwrap();
    let message = Resubmission {
        body: format!("color=green\n{}", "x".repeat(988)).into(),
        ..message(1, "")
    };
    let verdicts = p
        .again(dead_of("borrows"), Some("t"), vec![message])
        .unwrap();
    assert_eq!(verdicts, [ResubmitVerdict::Full]);
    p.check_rules();
}

#[test]
fn a_disabled_topic_and_another_subscription_take_nothing() {
    let mut p = Partition::with_topic(BusQueueOptions::default());
    p.subscribe_all(&["a", "b"]);
    p.publish(vec![text("x")]).unwrap();
    p.give_up("a");
    let refused = |p: &mut Partition, to| p.again(dead_of("a"), to, vec![message(1, "x")]);
    let queue = subscription("b").name;
    let expected = BusRefusal::NotSendableSubscription {
        queue: queue.clone(),
    };
    assert_eq!(refused(&mut p, Some(&*queue)), Err(expected));
    // A subscription's own status is as little in the way as it is of copies.
    for (entity, status) in [
        (subscription("a"), EntityStatus::Disabled),
        (topic(), EntityStatus::SendDisabled),
    ] {
        let options = BusQueueOptions {
            status,
            ..p.view(&entity).options
        };
        let queue = entity;
        p.ask(BusCommand::UpdateQueue { queue, options }).unwrap();
    }
    for to in [None, Some("t")] {
        let queue = topic().name;
        assert_eq!(refused(&mut p, to), Err(BusRefusal::Disabled { queue }));
    }
    let options = BusQueueOptions::default();
    let queue = topic();
    p.ask(BusCommand::UpdateQueue { queue, options }).unwrap();
    assert_eq!(refused(&mut p, None), Ok(vec![done(2)]));
    p.check_rules();
}
