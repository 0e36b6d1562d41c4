//! Scheduled messages of topics: the rules in force when they become active decide.

use super::*;

const LATER_MS: u64 = 60_000;

impl Partition {
    /// The same message, to become active in a minute.
    fn later(&self, message: BusMessage) -> BusMessage {
        BusMessage {
            scheduled_at: Some(self.now.plus_ms(LATER_MS)),
            ..message
        }
    }

    fn schedule(&mut self, body: &str) -> SequenceNumber {
        let message = self.later(text(body));
        match self.publish(vec![message]) {
            Ok(BusOutcome::Sent(numbers)) => numbers[0].unwrap(),
            other => panic!("{other:?}"),
        }
    }

    fn cancel(&mut self, number: SequenceNumber) -> Result<BusOutcome, BusRefusal> {
        self.ask(BusCommand::CancelScheduled {
            queue: topic(),
            numbers: vec![number],
        })
    }

    fn texts_of(&mut self, name: &str) -> Vec<String> {
        let all = self.shown(subscription(name)).into_iter();
        all.map(|(text, _)| text).collect()
    }
}

#[test]
fn rules_that_change_before_a_message_becomes_active_count() {
    let mut p = Partition::with_topic(BusQueueOptions::default());
    p.subscribe_all(&["gone", "same", "removed", "added"]);
    p.set_rule("same", rule("$Default", correlation("red")))
        .unwrap();
    p.remove_rule("added", "$Default").unwrap();
    p.schedule("color=red");
    p.pass_ms(LATER_MS / 2);
    p.delete(subscription("gone")).unwrap();
    p.remove_rule("removed", "$Default").unwrap();
    p.add_rule("added", with_action("more", "SET x = 1"))
        .unwrap();
    p.subscribe_all(&["late"]);
    // Nothing waits for rules that went.
    assert_eq!(p.of_topic().retired_count(), 0);
    p.check_rules();
    p.pass_ms(LATER_MS / 2);
    p.tick();
    for (name, count) in [("same", 1), ("removed", 0), ("added", 1), ("late", 1)] {
        assert_eq!(p.texts_of(name).len(), count, "{name}");
    }
    let changes = p.shown(subscription("added"));
    assert_eq!(changes[0].1, "+x=1\n+RuleName=more\n");
    assert_eq!(p.view(&topic()).counts.scheduled, 0);
    // A change after that comes too late.
    p.remove_rule("late", "$Default").unwrap();
    p.tick();
    assert_eq!(p.texts_of("late").len(), 1);
    p.check_rules();
}

/// A change of rules is decided after what is due: so the moment counts, and not when the next tick comes.
#[test]
fn a_change_of_rules_comes_after_messages_that_are_due() {
    let mut p = Partition::with_topic(BusQueueOptions::default());
    p.subscribe_all(&["a", "b"]);
    p.remove_rule("b", "$Default").unwrap();
    p.schedule("x");
    p.pass_ms(LATER_MS);
    p.remove_rule("a", "$Default").unwrap();
    p.add_rule("b", rule("all", FilterDefinition::True))
        .unwrap();
    assert_eq!(p.of_topic().retired_count(), 1);
    p.tick();
    assert_eq!(p.texts_of("a"), ["x"]);
    assert!(p.texts_of("b").is_empty());
    p.check_rules();
}

/// It does not matter whether a tick came in between.
#[test]
fn a_subscription_gets_nothing_that_became_active_before_it_was_created() {
    for ticks in [false, true] {
        let mut p = Partition::with_topic(BusQueueOptions::default());
        p.subscribe_all(&["a"]);
        p.schedule("x");
        p.pass_ms(LATER_MS);
        if ticks {
            p.tick();
        }
        p.subscribe_all(&["late"]);
        p.tick();
        assert_eq!(p.texts_of("a"), ["x"]);
        assert!(p.texts_of("late").is_empty());
        p.check_rules();
    }
}

#[test]
fn a_message_that_becomes_active_has_a_new_number_and_a_new_life() {
    let mut p = Partition::with_topic(BusQueueOptions {
        default_time_to_live_ms: 100_000,
        ..BusQueueOptions::default()
    });
    p.subscribe_all(&["a"]);
    let scheduled = p.schedule("x");
    assert_eq!(scheduled, SequenceNumber::FIRST);
    let peeked = p.peeked(topic());
    let [shown] = &peeked[..] else {
        panic!("{peeked:?}")
    };
    assert_eq!(shown.state, BusMessageState::Scheduled);
    assert_eq!(shown.due_at, p.now.plus_ms(LATER_MS));
    // One that is sent meanwhile is copied at once.
    p.publish(vec![text("now")]).unwrap();
    assert_eq!(p.texts_of("a"), ["now"]);
    p.check_whole();
    p.pass_ms(LATER_MS);
    p.tick();
    let copies = p.peeked(subscription("a"));
    let of = |index: usize| {
        let copy: &PeekedBusMessage = &copies[index];
        copy.first_sequence_number.as_u64()
    };
    assert_eq!([of(0), of(1)], [2, 3]);
    assert_eq!(copies[1].enqueued_at, p.now);
    assert_eq!(copies[1].expires_at, p.now.plus_ms(100_000));
    assert!(p.peeked(topic()).is_empty());
    p.check_whole();
}

/// What becomes active comes before what is sent after that moment, although its copies are made later.
#[test]
fn a_publish_comes_behind_messages_that_are_due() {
    let mut p = Partition::with_topic(BusQueueOptions::default());
    p.subscribe_all(&["a"]);
    let mut messages = vec![text("1"), p.later(text("3")), text("2")];
    messages.push(BusMessage {
        scheduled_at: Some(p.now),
        ..text("at once")
    });
    let sent = p.publish(messages);
    let numbers = [1, 2, 3, 4].map(|it| Some(SequenceNumber::new(it)));
    assert_eq!(sent, Ok(BusOutcome::Sent(numbers.to_vec())));
    assert_eq!(p.texts_of("a"), ["1", "2", "at once"]);
    p.pass_ms(LATER_MS);
    p.publish(vec![text("4")]).unwrap();
    assert_eq!(p.texts_of("a"), ["1", "2", "at once"]);
    p.tick();
    assert_eq!(p.texts_of("a"), ["1", "2", "at once", "3", "4"]);
    p.check_whole();
}

/// Behind messages that wait for copies, a scheduled one is stored with its time, too.
#[test]
fn a_message_is_scheduled_while_others_wait() {
    let mut p = Partition::with_topic(BusQueueOptions::default());
    p.subscribe_all(&["a"]);
    p.set_rule("a", rule("$Default", correlation("red")))
        .unwrap();
    p.copies_at_once = 0;
    let (red, later) = (text("color=red"), p.later(text("later\ncolor=red")));
    p.publish(vec![red.clone(), later, red]).unwrap();
    assert_eq!(p.view(&topic()).counts.scheduled, 1);
    p.tick();
    assert_eq!(p.texts_of("a"), ["color=red", "color=red"]);
    p.pass_ms(LATER_MS);
    p.tick();
    assert_eq!(p.texts_of("a").len(), 3);
    let refused = p.publish(vec![p.later(text("!"))]);
    assert_eq!(refused, Err(BusRefusal::NotAMessage));
    p.check_rules();
}

#[test]
fn a_message_that_was_cancelled_gives_no_copies() {
    let mut p = Partition::with_topic(BusQueueOptions::default());
    p.subscribe_all(&["a"]);
    let (first, second) = (p.schedule("no"), p.schedule("yes"));
    assert_eq!(p.cancel(first), Ok(BusOutcome::Cancelled));
    p.check_whole();
    let unknown = |number: SequenceNumber| BusRefusal::MessageNotFound {
        sequence_number: number.as_u64(),
    };
    assert_eq!(p.cancel(first), Err(unknown(first)));
    p.pass_ms(LATER_MS);
    // It is active before its copies are made.
    assert_eq!(p.cancel(second), Err(unknown(second)));
    p.tick();
    assert_eq!(p.texts_of("a"), ["yes"]);
    p.check_whole();
}

#[test]
fn a_scheduled_message_is_remembered_and_takes_room() {
    let copy_bytes = crate::table::MESSAGE_OVERHEAD_BYTES + 1;
    let mut p = Partition::with_topic(BusQueueOptions {
        duplicate_window_ms: Some(10 * LATER_MS),
        size_bytes_max: 3 * (copy_bytes + 128),
        ..BusQueueOptions::default()
    });
    let named = |id: &str| BusMessage {
        message_id: Some(id.into()),
        ..text("x")
    };
    let scheduled = p.later(named("1"));
    // It takes room although nobody would get a copy.
    p.publish(vec![scheduled.clone()]).unwrap();
    assert_eq!(p.view(&topic()).counts.size_bytes, copy_bytes + 128);
    p.subscribe_all(&["a"]);
    for again in [scheduled.clone(), named("1")] {
        let dropped = p.publish(vec![again]);
        assert_eq!(dropped, Ok(BusOutcome::Sent(vec![None])));
    }
    let (second, third) = (p.later(named("2")), p.later(named("3")));
    let full = p.publish(vec![second.clone(), third.clone(), p.later(named("4"))]);
    assert!(
        matches!(full, Err(BusRefusal::QuotaExceeded { .. })),
        "{full:?}"
    );
    p.publish(vec![second, third]).unwrap();
    // What was accepted reaches everybody.
    p.subscribe_all(&["b"]);
    p.pass_ms(LATER_MS);
    p.tick();
    assert_eq!(p.texts_of("a"), ["x"; 3]);
    assert_eq!(p.texts_of("b"), ["x"; 3]);
    p.check_whole();
}

#[test]
fn a_disabled_topic_activates_and_copies() {
    let mut p = Partition::with_topic(BusQueueOptions::default());
    p.subscribe_all(&["a"]);
    p.schedule("x");
    p.ask(BusCommand::UpdateQueue {
        queue: topic(),
        options: BusQueueOptions {
            status: EntityStatus::Disabled,
            ..BusQueueOptions::default()
        },
    })
    .unwrap();
    p.pass_ms(LATER_MS);
    p.tick();
    assert_eq!(p.texts_of("a"), ["x"]);
    p.check_whole();
}

#[test]
fn a_topic_with_schedules_is_not_idle() {
    let idle_ms = 300_000;
    let mut p = Partition::with_topic(BusQueueOptions {
        auto_delete_on_idle_ms: idle_ms,
        ..BusQueueOptions::default()
    });
    let scheduled = BusMessage {
        scheduled_at: Some(p.now.plus_ms(3 * idle_ms)),
        ..text("x")
    };
    p.publish(vec![scheduled]).unwrap();
    p.pass_ms(3 * idle_ms - 1);
    p.tick();
    assert!(p.state.has_entity(&topic()));
    p.pass_ms(1);
    p.tick();
    p.pass_ms(idle_ms - 1);
    p.tick();
    assert!(p.state.has_entity(&topic()));
    p.pass_ms(1);
    p.tick();
    assert!(!p.state.has_entity(&topic()));
    p.check_whole();
}

/// The bytes of a message that becomes active may have to be read for the rules: only then.
#[test]
fn the_state_after_a_restart_activates_the_same() {
    let mut p = Partition::with_topic(BusQueueOptions::default());
    p.subscribe_all(&["a"]);
    p.set_rule("a", rule("$Default", correlation("red")))
        .unwrap();
    p.schedule("color=red");
    p.schedule("color=blue");
    p.cold = None;
    p.state = p.restored();
    p.pass_ms(LATER_MS);
    p.tick();
    assert_eq!(p.texts_of("a"), ["color=red"]);
    p.check_rules();
}
