//! Messages that wait in their topic, and their copies.

use super::*;
use crate::bus::room::COPY_STEPS;
use crate::bus::{Effect, OwnEffect};
use crate::effect::NextCopy;

impl Partition {
    fn texts_in(&mut self, name: &str) -> Vec<String> {
        let received = self.receive_from(&subscription(name), None);
        self.texts(&received)
    }

    /// A topic with so many subscriptions, named by numbers.
    fn with_subscriptions(count: usize) -> Self {
        let mut p = Self::with_topic(BusQueueOptions::default());
        for name in 0..count {
            p.subscribe(&name.to_string(), BusQueueOptions::default())
                .unwrap();
        }
        p
    }

    /// How the messages of an entity hold their bodies.
    pub(super) fn holds(&self, entity: &EntityName) -> Vec<Hold> {
        let entity = self.state.catalogue.find(entity).unwrap();
        let entries = self.state.bus[&entity].backlog.table().entries();
        entries.map(|entry| entry.record.body.hold()).collect()
    }
}

#[test]
fn a_message_with_more_copies_than_fit_is_stored_and_copied_in_order() {
    let mut p = Partition::with_subscriptions(200);
    p.publish(vec![text("one")]).unwrap();
    // The next one would fit into a command, but it comes behind.
    p.publish(vec![text("two")]).unwrap();
    assert_eq!(p.view(&topic()).counts.active, 2);
    assert_eq!(p.texts_in("0"), Vec::<String>::new());
    p.check_whole();
    let mut ticks = 0;
    while p.tick_once(16) {
        ticks += 1;
        p.check_whole();
    }
    // 64 copies each.
    assert!(ticks >= 6, "{ticks}");
    for name in 0..200 {
        assert_eq!(p.texts_in(&name.to_string()), ["one", "two"]);
    }
    assert_eq!(p.view(&topic()).counts.active, 0);
    p.check_whole();
}

/// Copies and cursor are in one event, so what is there after a restart at any place is made once.
#[test]
fn a_restart_in_the_middle_goes_on_where_it_was() {
    let mut p = Partition::with_subscriptions(150);
    p.publish(vec![text("one")]).unwrap();
    assert!(p.tick_once(16));
    let of = p.state.catalogue.find(&topic()).unwrap();
    let fan_out = p.state.bus[&of].topic.as_ref().unwrap().fan_out();
    assert!(fan_out.is_some());
    p.cold = None;
    p.state = p.restored();
    p.tick();
    for name in 0..150 {
        assert_eq!(p.texts_in(&name.to_string()), ["one"], "{name}");
    }
    let topic = p.state.bus[&of].topic.as_ref().unwrap();
    assert_eq!(topic.fan_out(), None);
    let last = p.log.events.iter().rev().find_map(|event| {
        let Fact::Bus(fact) = Event::decode(event).unwrap().fact else {
            return None;
        };
        let mut effects = fact.effects().to_vec();
        effects.retain(|it| matches!(it, Effect::Own(OwnEffect::FannedOut { .. })));
        effects.pop()
    });
    let Some(Effect::Own(OwnEffect::FannedOut { next, .. })) = last else {
        panic!("{last:?}")
    };
    assert!(next > NextCopy::default());
}

/// Until the last copy is made, the message in the topic counts the body, too. Which copy does is known after a restart.
#[test]
fn the_first_copy_that_due_work_makes_counts_the_body() {
    let mut p = Partition::with_subscriptions(150);
    p.publish(vec![text(&"x".repeat(1_000))]).unwrap();
    assert_eq!(p.holds(&topic()), [Hold::Lends]);
    assert_eq!(p.state.live_bytes(), 1_000 + 48);
    let waits = 1_000 + OVERHEAD_BYTES;
    assert_eq!(p.view(&topic()).counts.size_bytes, waits);
    assert!(p.tick_once(16));
    assert_eq!(p.state.live_bytes(), 2 * 1_000 + 65 * 48);
    let copies = 1_000 + 64 * OVERHEAD_BYTES;
    assert_eq!(p.view(&topic()).counts.size_bytes, waits + copies);
    p.check_whole();
    p.cold = None;
    p.state = p.restored();
    p.tick();
    assert_eq!(p.holds(&subscription("0")), [Hold::Lends]);
    for name in 1..150 {
        let of = subscription(&name.to_string());
        assert_eq!(p.holds(&of), [Hold::Borrows], "{name}");
    }
    assert_eq!(p.state.live_bytes(), 1_000 + 150 * 48);
    let copies = 1_000 + 150 * OVERHEAD_BYTES;
    assert_eq!(p.view(&topic()).counts.size_bytes, copies);
    p.check_whole();
}

#[test]
fn a_single_copy_that_due_work_makes_shares_nothing() {
    let mut p = Partition::with_subscriptions(1);
    p.copies_at_once = 0;
    p.publish(vec![text("one"), text("two")]).unwrap();
    assert_eq!(p.holds(&topic()), [Hold::Lends; 2]);
    p.tick();
    assert_eq!(p.holds(&subscription("0")), [Hold::Alone; 2]);
    p.check_whole();
}

/// What waits may come into every subscription, so it counts beside the largest one. The copies are not checked again.
#[test]
fn what_waits_counts_beside_the_largest_subscription() {
    let mut p = Partition::with_topic(BusQueueOptions {
        size_bytes_max: 3_000,
        message_size_bytes_max: 1_000,
        ..BusQueueOptions::default()
    });
    p.subscribe_all(&["a", "b"]);
    let large = || text(&"x".repeat(1_000));
    p.publish(vec![large()]).unwrap();
    // What counts the body ends.
    let of_a = p.receive_from(&subscription("a"), None);
    p.settle_in(&subscription("a"), locks(&of_a)[0], Disposition::Complete);
    let each = 1_000 + OVERHEAD_BYTES;
    assert_eq!(p.view(&topic()).counts.size_bytes, each);
    p.copies_at_once = 1;
    p.publish(vec![large()]).unwrap();
    assert_eq!(p.view(&topic()).counts.size_bytes, 2 * each);
    let full = BusRefusal::QuotaExceeded {
        size_bytes: 3 * each,
        limit_bytes: 3_000,
    };
    assert_eq!(p.publish(vec![large()]), Err(full));
    p.tick();
    assert_eq!(p.view(&subscription("b")).counts.active, 2);
    p.check_whole();
}

#[test]
fn copies_count_as_steps_of_their_turn() {
    let mut p = Partition::with_subscriptions(200);
    p.publish(vec![text("one")]).unwrap();
    p.state.take_copied();
    assert!(p.tick_once(16));
    let steps = p.state.take_copied();
    assert!(
        (64 * COPY_STEPS..65 * COPY_STEPS + 100).contains(&steps),
        "{steps}"
    );
}

/// What waits has been accepted. Only its copies expire, and they do at once.
#[test]
fn a_message_that_waits_does_not_expire_in_its_topic() {
    let mut p = Partition::with_topic(BusQueueOptions::default());
    let dead_letters_expired = BusQueueOptions {
        dead_letters_expired: true,
        ..BusQueueOptions::default()
    };
    p.subscribe("dead", dead_letters_expired).unwrap();
    p.subscribe("gone", BusQueueOptions::default()).unwrap();
    p.copies_at_once = 1;
    let short = BusMessage {
        time_to_live_ms: Some(10),
        ..text("one")
    };
    p.publish(vec![short, text("two")]).unwrap();
    p.pass_ms(20);
    p.publish(vec![text("three")]).unwrap();
    assert_eq!(p.view(&topic()).counts.active, 3);
    p.tick();
    assert_eq!(p.texts_in("gone"), ["two", "three"]);
    assert_eq!(p.texts_in("dead"), ["two", "three"]);
    assert_eq!(p.view(&subscription("dead")).counts.dead_letters, 1);
    assert_eq!(p.view(&subscription("gone")).counts.dead_letters, 0);
    p.check_whole();
}

/// The own life of a message counts from when the topic has accepted it, and that of the subscription from the copy on.
#[test]
fn lives_are_the_same_as_of_a_copy_that_is_made_at_once() {
    let mut p = Partition::with_topic(BusQueueOptions {
        default_time_to_live_ms: 2_000,
        ..BusQueueOptions::default()
    });
    p.subscribe_all(&["a"]);
    p.subscribe(
        "b",
        BusQueueOptions {
            default_time_to_live_ms: 1_000,
            ..BusQueueOptions::default()
        },
    )
    .unwrap();
    p.copies_at_once = 0;
    p.publish(vec![text("x")]).unwrap();
    let accepted_at = p.now;
    p.pass_ms(100);
    p.tick();
    for (name, expires_at) in [
        ("a", accepted_at.plus_ms(2_000)),
        ("b", p.now.plus_ms(1_000)),
    ] {
        let received = p.receive_from(&subscription(name), None);
        assert_eq!(received[0].expires_at, expires_at, "{name}");
        assert_eq!(received[0].enqueued_at, p.now, "{name}");
    }
}

#[test]
fn subscriptions_that_come_and_go_while_a_message_waits() {
    let mut p = Partition::with_topic(BusQueueOptions::default());
    let sessions = BusQueueOptions {
        requires_session: true,
        ..BusQueueOptions::default()
    };
    p.subscribe_all(&["a", "gone"]);
    p.subscribe("session", sessions).unwrap();
    p.copies_at_once = 0;
    p.publish(vec![text("x"), of_session("y", "s")]).unwrap();
    p.subscribe_all(&["late"]);
    p.delete(subscription("gone")).unwrap();
    p.publish(vec![text("z")]).unwrap();
    p.tick();
    assert_eq!(p.texts_in("a"), ["x", "y", "z"]);
    assert_eq!(p.texts_in("late"), ["z"]);
    let counts = p.view(&subscription("session")).counts;
    assert_eq!((counts.active, counts.dead_letters), (1, 2));
    p.check_whole();
    p.publish(vec![text("x")]).unwrap();
    p.delete(topic()).unwrap();
    p.tick();
    assert_eq!(p.state.bus.len(), 0);
    p.check_whole();
}

/// A message that waits keeps its id, so that a second one is dropped; and it has its number already.
#[test]
fn a_message_that_waits_has_its_number_and_its_id() {
    let mut p = Partition::with_topic(BusQueueOptions {
        duplicate_window_ms: Some(60_000),
        ..BusQueueOptions::default()
    });
    p.subscribe_all(&["a"]);
    p.copies_at_once = 0;
    let named = || BusMessage {
        message_id: Some("id".into()),
        ..text("x")
    };
    let number = |it| Some(SequenceNumber::new(it));
    let sent = p.publish(vec![named(), text("y"), named()]).unwrap();
    assert_eq!(sent, BusOutcome::Sent(vec![number(1), number(2), None]));
    p.tick();
    let received = p.receive_from(&subscription("a"), None);
    let firsts = received.iter().map(|it| it.first_sequence_number.as_u64());
    assert_eq!(firsts.collect::<Vec<_>>(), [1, 2]);
    let sent = p.publish(vec![named()]).unwrap();
    assert_eq!(sent, BusOutcome::Sent(vec![None]));
    p.check_whole();
}

/// On a full disk, a tick leaves topics alone, and does not come back to them by itself.
#[test]
fn a_turn_that_drains_leaves_topics_alone() {
    let mut p = Partition::with_topic(BusQueueOptions::default());
    p.subscribe_all(&["a"]);
    p.copies_at_once = 0;
    p.publish(vec![text("x")]).unwrap();
    p.cold = None;
    let of = p.state.catalogue.find(&topic()).unwrap();
    let events = p.log.events.len();
    let ticked = Turn::new(&mut p.state, p.now, &mut p.log)
        .draining()
        .tick(16);
    assert_eq!((ticked.more_is_due, ticked.left_alone), (false, vec![of]));
    assert_eq!(p.log.events.len(), events);
    assert_eq!(p.state.next_deadline(), None);
    p.state.let_rest(of, false);
    p.tick();
    assert_eq!(p.texts_in("a"), ["x"]);
}

/// Behind a lock, copies of later messages would come first.
#[test]
fn an_operator_locks_no_message_that_waits_for_its_copies() {
    let mut p = Partition::with_topic(BusQueueOptions::default());
    p.subscribe_all(&["a"]);
    p.copies_at_once = 0;
    p.publish(vec![text("x"), text("y")]).unwrap();
    let take = |mode| BusCommand::TakeMessage {
        queue: topic(),
        number: SequenceNumber::FIRST,
        mode,
    };
    let refused = p.ask(take(ReceiveMode::PeekLock));
    let queue = topic().name;
    assert_eq!(refused, Err(BusRefusal::NotReceivable { queue }));
    // Taken for good, it has no copies.
    p.ask(take(ReceiveMode::ReceiveAndDelete)).unwrap();
    p.tick();
    let received = p.receive_from(&subscription("a"), None);
    assert_eq!(p.texts(&received), ["y"]);
    p.check_whole();
}

/// Nothing is due of a run whose messages have got their copies, although their time has passed.
#[test]
fn a_topic_is_not_due_for_messages_that_had_a_time_to_live() {
    let mut p = Partition::with_topic(BusQueueOptions {
        default_time_to_live_ms: 10_000,
        ..BusQueueOptions::default()
    });
    p.subscribe_all(&["a"]);
    p.copies_at_once = 0;
    let later = p.now.plus_seconds(3600);
    p.publish(vec![BusMessage {
        scheduled_at: Some(later),
        ..text("later")
    }])
    .unwrap();
    p.publish(vec![text("now")]).unwrap();
    p.tick();
    p.now = p.now.plus_seconds(60);
    p.tick();
    assert_eq!(p.state.next_deadline(), Some(later));
    p.now = later;
    p.tick();
    assert_eq!(p.texts_in("a"), ["later"]);
    p.check_whole();
}

/// Some subscriptions have got the message that is lost. The next one begins with the first subscription.
#[test]
fn what_is_set_aside_in_the_middle_of_its_copies_does_not_go_on() {
    let mut p = Partition::with_subscriptions(150);
    p.publish(vec![text("one")]).unwrap();
    p.publish(vec![text("two")]).unwrap();
    assert!(p.tick_once(16));
    let of = p.state.catalogue.find(&topic()).unwrap();
    let fan_out = |p: &Partition| p.state.bus[&of].topic.as_ref().unwrap().fan_out();
    assert_eq!(fan_out(&p).map(|it| it.number), Some(SequenceNumber::FIRST));
    p.cold = None;
    p.state.apply(Event {
        at: p.now,
        fact: Fact::Quarantined {
            entity: of,
            first: SequenceNumber::FIRST,
            messages: 1,
        },
    });
    assert_eq!(fan_out(&p), None);
    assert_eq!(p.state.owed_copies(&topic()), 150);
    p.tick();
    assert_eq!(p.texts_in("0"), ["one", "two"]);
    assert_eq!(p.texts_in("149"), ["two"]);
    assert_eq!(p.state.owed_copies(&topic()), 0);
    p.state.check_live_bytes();
}
