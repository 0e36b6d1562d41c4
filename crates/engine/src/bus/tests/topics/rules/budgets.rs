//! How much the rules of a topic may take for the messages of one command, and what waits for due work.

use super::*;
use crate::bus::COPIES_AT_ONCE_MAX;
use crate::bus::room::COPY_STEPS;

const DEFAULT: &str = "$Default";

impl Partition {
    /// How many messages wait in the topic, and how many a subscription has got.
    fn waiting_and_in(&mut self, name: &str) -> (u64, u64) {
        let waiting = self.view(&topic()).counts.active;
        (waiting, self.view(&subscription(name)).counts.active)
    }
}

/// A filter of about 1,000 steps for a message with such a property.
fn slow() -> (FilterDefinition, String) {
    (sql("a LIKE '%y%'"), format!("a={}", "x".repeat(990)))
}

#[test]
fn messages_whose_rules_take_too_many_steps_wait() {
    let mut p = Partition::with_topic(BusQueueOptions::default());
    p.subscribe_all(&["a", "b"]);
    let (filter, slow) = slow();
    p.set_rule("b", rule(DEFAULT, filter)).unwrap();
    p.state.take_copied();
    p.publish(vec![text(&slow); 50]).unwrap();
    // The copies, and 1,000 steps of each message.
    let steps = p.state.take_copied();
    assert!(
        (50_000..52_000).contains(&(steps - 50 * COPY_STEPS)),
        "{steps}"
    );
    assert_eq!(p.waiting_and_in("a"), (0, 50));
    p.publish(vec![text(&slow); 52]).unwrap();
    // To find that out took time, too.
    let steps = p.state.take_copied();
    let copied = 100 - 50;
    assert!(
        (50_000..52_500).contains(&(steps - copied * COPY_STEPS)),
        "{steps}"
    );
    assert_eq!(p.waiting_and_in("a"), (2, 100));
    // As long as one waits, all others do, and no rule is evaluated for them.
    p.publish(vec![text(&slow); 50]).unwrap();
    assert!(p.state.take_copied() < 1_000);
    assert_eq!(p.waiting_and_in("a"), (52, 100));
    p.tick();
    assert_eq!(p.waiting_and_in("a"), (0, 152));
    assert_eq!(p.waiting_and_in("b"), (0, 0));
    p.check_rules();
}

/// One alone is always compared, whatever it takes: a limit of its own bounds that.
#[test]
fn the_rule_that_exceeds_the_steps_is_finished() {
    let mut p = Partition::with_topic(BusQueueOptions::default());
    p.subscribe_all(&["a", "b"]);
    p.set_rule("a", rule(DEFAULT, sql("a LIKE '%y%'"))).unwrap();
    let long = format!("a={}", "x".repeat(60_000));
    p.publish(vec![text(&long)]).unwrap();
    assert_eq!(p.waiting_and_in("b"), (0, 1));
    p.publish(vec![text(&long); 2]).unwrap();
    assert_eq!(p.waiting_and_in("b"), (1, 2));
    p.tick();
    p.add_rule("a", rule("second", sql("a LIKE '%z%'")))
        .unwrap();
    p.publish(vec![text(&long)]).unwrap();
    assert_eq!(p.waiting_and_in("b"), (1, 3));
    // A rule each time.
    assert!(p.tick_once(7));
    assert_eq!(p.waiting_and_in("b"), (1, 3));
    p.tick();
    assert_eq!(p.waiting_and_in("b"), (0, 4));
    assert_eq!(p.view(&subscription("a")).counts.active, 0);
    p.check_rules();
}

/// An evaluation is cut at any rule, and goes on in the next step.
#[test]
fn a_message_with_more_candidates_than_steps_is_compared_in_parts() {
    let mut p = Partition::with_topic(BusQueueOptions::default());
    p.subscribe_all(&["a", "b"]);
    p.remove_rule("b", DEFAULT).unwrap();
    p.add_many("b", 7_000, &correlation("red"));
    p.publish(vec![text("color=red")]).unwrap();
    assert_eq!(p.waiting_and_in("b"), (1, 0));
    let mut ticks = 0;
    while p.tick_once(64) {
        ticks += 1;
    }
    // 56,000 steps, 12,800 each time.
    assert!((4..8).contains(&ticks), "{ticks}");
    assert_eq!(p.waiting_and_in("a"), (0, 1));
    assert_eq!(p.waiting_and_in("b"), (0, 1));
    p.check_rules();
}

#[test]
fn steps_of_actions_and_properties_count() {
    let mut p = Partition::with_topic(BusQueueOptions::default());
    p.subscribe_all(&["a", "b"]);
    // Each property of the expression is asked for among all names.
    let action = format!("SET z = 1; SET b = a{}", " + a".repeat(100));
    p.set_rule("a", with_action(DEFAULT, &action)).unwrap();
    let many: String = (0..1_000).map(|nth| format!("p{nth}=1\n")).collect();
    let many = format!("a=1\n{many}");
    p.publish(vec![text(&many); 2]).unwrap();
    assert_eq!(p.waiting_and_in("b"), (0, 2));
    p.publish(vec![text(&many); 6]).unwrap();
    let (waiting, _) = p.waiting_and_in("b");
    assert!((1..5).contains(&waiting), "{waiting}");
    p.tick();
    assert_eq!(p.waiting_and_in("a"), (0, 8));
    // A message with very many properties takes steps before any rule.
    p.set_rule("a", rule(DEFAULT, sql("1 = 1"))).unwrap();
    p.publish(vec![text(&many); 12]).unwrap();
    assert_eq!(p.waiting_and_in("b"), (0, 20));
    p.publish(vec![text(&many); 14]).unwrap();
    let (waiting, _) = p.waiting_and_in("b");
    assert!((1..3).contains(&waiting), "{waiting}");
    p.tick();
    // But one message may have as many as there can be.
    let most: String = (0..13_000).map(|_| "p=\n").collect();
    p.publish(vec![text(&most)]).unwrap();
    assert_eq!(p.waiting_and_in("b"), (0, 35));
    p.check_rules();
}

#[test]
fn copies_that_actions_make_are_few_at_once() {
    let mut p = Partition::with_topic(BusQueueOptions::default());
    p.subscribe_all(&["a"]);
    for nth in 0..16 {
        let action = with_action(&format!("rule {nth:02}"), "SET b = a + a");
        p.add_rule("a", action).unwrap();
    }
    let text_of = |size: usize| text(&format!("a={}", "x".repeat(size)));
    // `ask` checks that what is written has room.
    p.publish(vec![text_of(20)]).unwrap();
    assert_eq!(p.waiting_and_in("a"), (0, 17));
    p.publish(vec![text_of(500)]).unwrap();
    assert_eq!(p.waiting_and_in("a"), (1, 17));
    // A step has room for some of them: the plain one comes first, and then those of the rules in their order.
    assert!(p.tick_once(8));
    let (waiting, some) = p.waiting_and_in("a");
    assert_eq!(waiting, 1);
    assert!((18..34).contains(&some), "{some}");
    p.check_rules();
    while p.tick_once(8) {
        p.check_rules();
    }
    assert_eq!(p.waiting_and_in("a"), (0, 34));
    let backlog = &p.state.bus[&p.state.catalogue.find(&subscription("a")).unwrap()].backlog;
    let overlays = backlog.messages().skip(17).map(|it| it.overlays().to_vec());
    let names = overlays.map(|overlays| {
        let first = overlays.first()?;
        let bytes = &p.log.bodies[usize::try_from(first.record).unwrap()];
        let text = String::from_utf8(bytes.clone()).unwrap();
        Some(text.split_once("RuleName=")?.1.trim().to_owned())
    });
    let expected = (0..16).map(|nth| Some(format!("rule {nth:02}")));
    assert!(names.eq(std::iter::once(None).chain(expected)));
    // A restart forgets which actions were carried out, and which copies are made is in the log.
    p.publish(vec![text_of(500)]).unwrap();
    p.tick_once(8);
    p.cold = None;
    p.state = p.restored();
    p.tick();
    assert_eq!(p.waiting_and_in("a"), (0, 51));
}

/// A tick has room for one action that makes as much as an action may.
#[test]
fn the_largest_action_has_room() {
    let mut p = Partition::with_topic(BusQueueOptions::default());
    p.subscribe_all(&["a"]);
    p.set_rule("a", with_action(DEFAULT, "SET b = a + a"))
        .unwrap();
    let around = "+b=\n+RuleName=$Default\n".len();
    let half = (ACTION_SIZE_BYTES_MAX - around) / 2;
    p.publish(vec![text(&format!("a={}", "x".repeat(half)))])
        .unwrap();
    assert_eq!(p.waiting_and_in("a"), (1, 0));
    assert!(!p.tick_once(64));
    assert_eq!(p.waiting_and_in("a"), (0, 1));
    p.check_rules();
}

/// In 64 subscriptions, each with a failure and a copy.
#[test]
fn a_failure_in_each_subscription_has_room() {
    let mut p = Partition::with_topic(BusQueueOptions::default());
    let wants = BusQueueOptions {
        dead_letters_filter_failures: true,
        ..BusQueueOptions::default()
    };
    for nth in 0..64 {
        let name = nth.to_string();
        p.subscribe(&name, wants.clone()).unwrap();
        p.add_rule(&name, rule("fails", sql("1 / size = 1")))
            .unwrap();
    }
    p.publish(vec![text("size=0")]).unwrap();
    while p.tick_once(16) {
        p.check_rules();
    }
    for nth in 0..64 {
        let counts = p.view(&subscription(&nth.to_string())).counts;
        assert_eq!((counts.active, counts.dead_letters), (1, 1));
    }
    p.check_rules();
}

#[test]
fn all_copies_of_a_command_have_a_limit() {
    let mut p = Partition::with_topic(BusQueueOptions::default());
    p.subscribe_all(&["a", "b"]);
    for name in ["a", "b"] {
        p.set_rule(name, rule(DEFAULT, correlation("red"))).unwrap();
    }
    // Only those are counted that are made.
    p.publish(vec![text("color=blue"); 3_000]).unwrap();
    assert_eq!(p.waiting_and_in("b"), (0, 0));
    p.publish(vec![text("color=red"); 2_049]).unwrap();
    assert_eq!(p.waiting_and_in("b"), (1, COPIES_AT_ONCE_MAX as u64 / 2));
    p.tick();
    assert_eq!(p.waiting_and_in("b"), (0, 2_049));
    p.check_rules();
}

/// A message is checked once, whatever rules make of it. What they made counts for the next one.
#[test]
fn what_actions_make_counts_against_the_topic() {
    let mut p = Partition::with_topic(BusQueueOptions {
        size_bytes_max: 1_000,
        message_size_bytes_max: 1_000,
        ..BusQueueOptions::default()
    });
    p.subscribe_all(&["a"]);
    p.add_rule("a", with_action("1", "SET b = 1")).unwrap();
    let limit_bytes = 1_000;
    let each = crate::table::MESSAGE_OVERHEAD_BYTES;
    let changes = "+b=1\n+RuleName=1\n".len() as u64;
    let fits = limit_bytes - each;
    let message = |size_bytes: u64| text(&"x".repeat(usize::try_from(size_bytes).unwrap()));
    let full = |size_bytes| {
        Err(BusRefusal::QuotaExceeded {
            size_bytes,
            limit_bytes,
        })
    };
    assert_eq!(p.publish(vec![message(fits + 1)]), full(limit_bytes + 1));
    p.publish(vec![message(fits)]).unwrap();
    // Both copies are in one subscription, which is as large as both.
    let size_bytes = 2 * (fits + each) + changes;
    assert_eq!(p.view(&topic()).counts.size_bytes, size_bytes);
    assert_eq!(p.publish(vec![message(1)]), full(size_bytes + 1 + each));
    p.check_rules();
}

/// A subscription that gets nothing does not count.
#[test]
fn a_subscription_without_rules_needs_no_room() {
    let copy_bytes = crate::table::MESSAGE_OVERHEAD_BYTES + 1;
    let mut p = Partition::with_topic(BusQueueOptions {
        size_bytes_max: copy_bytes,
        message_size_bytes_max: copy_bytes,
        ..BusQueueOptions::default()
    });
    p.subscribe_all(&["a", "none", "never"]);
    p.remove_rule("none", DEFAULT).unwrap();
    p.set_rule("never", rule(DEFAULT, FilterDefinition::False))
        .unwrap();
    p.publish(vec![text("x")]).unwrap();
    assert_eq!(p.view(&subscription("a")).counts.active, 1);
    p.check_rules();
}
