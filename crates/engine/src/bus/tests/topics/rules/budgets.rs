//! How much the rules of a topic may take for the messages of one command, and what is refused.

use super::*;
use crate::bus::room::{COPY_STEPS, RULE_STEPS_MAX};

const DEFAULT: &str = "$Default";

fn steps_refused() -> Result<BusOutcome, BusRefusal> {
    Err(BusRefusal::RulesTakeLong {
        limit: u64::from(RULE_STEPS_MAX),
    })
}

/// A filter of about 1,000 steps for a message with such a property.
fn slow() -> (FilterDefinition, String) {
    (sql("a LIKE '%y%'"), format!("a={}", "x".repeat(990)))
}

#[test]
fn messages_whose_rules_take_too_many_steps_are_refused_together() {
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
    let (bodies, events) = (p.log.bodies.len(), p.log.events.len());
    assert_eq!(p.publish(vec![text(&slow); 52]), steps_refused());
    // To find that out took time, too.
    let steps = p.state.take_copied();
    assert!((50_000..52_000).contains(&steps), "{steps}");
    assert_eq!((p.log.bodies.len(), p.log.events.len()), (bodies, events));
    assert_eq!(p.view(&subscription("a")).counts.active, 50);
    p.check_rules();
}

/// One alone is always compared, whatever it takes: a limit of its own bounds that.
#[test]
fn the_rule_that_exceeds_the_steps_is_finished() {
    let mut p = Partition::with_topic(BusQueueOptions::default());
    p.subscribe_all(&["a"]);
    p.set_rule("a", rule(DEFAULT, sql("a LIKE '%y%'"))).unwrap();
    let long = format!("a={}", "x".repeat(60_000));
    p.publish(vec![text(&long)]).unwrap();
    assert_eq!(p.publish(vec![text(&long); 2]), steps_refused());
    p.add_rule("a", rule("second", sql("a LIKE '%z%'")))
        .unwrap();
    assert_eq!(p.publish(vec![text(&long)]), steps_refused());
    assert_eq!(p.view(&subscription("a")).counts.active, 0);
}

#[test]
fn steps_of_actions_and_properties_count() {
    let mut p = Partition::with_topic(BusQueueOptions::default());
    p.subscribe_all(&["a"]);
    // Each property of the expression is asked for among all names.
    let action = format!("SET z = 1; SET b = a{}", " + a".repeat(100));
    p.set_rule("a", with_action(DEFAULT, &action)).unwrap();
    let many: String = (0..1_000).map(|nth| format!("p{nth}=1\n")).collect();
    let many = format!("a=1\n{many}");
    p.publish(vec![text(&many); 2]).unwrap();
    assert_eq!(p.publish(vec![text(&many); 6]), steps_refused());
    // A message with very many properties takes steps before any rule.
    p.set_rule("a", rule(DEFAULT, sql("1 = 1"))).unwrap();
    p.publish(vec![text(&many); 12]).unwrap();
    assert_eq!(p.publish(vec![text(&many); 14]), steps_refused());
    // But one message may have as many as there can be.
    let most: String = (0..13_000).map(|_| "p=\n").collect();
    p.publish(vec![text(&most)]).unwrap();
    p.check_rules();
}

#[test]
fn copies_that_actions_make_have_a_limit() {
    let mut p = Partition::with_topic(BusQueueOptions::default());
    p.subscribe_all(&["a"]);
    for nth in 0..16 {
        let action = with_action(&format!("rule {nth}"), "SET b = a + a");
        p.add_rule("a", action).unwrap();
    }
    let (text_of, limit_bytes) = (
        |size: usize| text(&format!("a={}", "x".repeat(size))),
        36 * 1024,
    );
    let events = p.log.events.len();
    // `ask` checks that what is written has room.
    let refused = p.publish(vec![text_of(1_100)]);
    assert_eq!(refused, Err(BusRefusal::CopiesTooLarge { limit_bytes }));
    assert_eq!(p.log.events.len(), events);
    p.publish(vec![text_of(1_000)]).unwrap();
    assert_eq!(p.view(&subscription("a")).counts.active, 17);
    // Further messages have room of their own, but not without an end.
    p.publish(vec![text_of(20); 32]).unwrap();
    let refused = p.publish(vec![text_of(500); 64]);
    let limit_bytes = 256 * 1024;
    assert_eq!(refused, Err(BusRefusal::CopiesTooLarge { limit_bytes }));
    p.check_rules();
}

/// A single message has room for one action that makes as much as an action may.
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
    assert_eq!(p.view(&subscription("a")).counts.active, 1);
    p.check_rules();
}

/// In 64 subscriptions, each with a failure and a copy for the longest session.
#[test]
fn a_failure_in_each_subscription_has_room() {
    let mut p = Partition::with_topic(BusQueueOptions::default());
    let wants = BusQueueOptions {
        dead_letters_filter_failures: true,
        ..BusQueueOptions::default()
    };
    for nth in 0..SUBSCRIPTIONS_MAX {
        let name = nth.to_string();
        p.subscribe(&name, wants.clone()).unwrap();
        p.add_rule(&name, rule("fails", sql("1 / size = 1")))
            .unwrap();
    }
    p.publish(vec![text("size=0")]).unwrap();
    let counts = p.view(&subscription("7")).counts;
    assert_eq!((counts.active, counts.dead_letters), (1, 1));
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
    let refused = p.publish(vec![text("color=red"); 2_049]);
    let (copies, limit) = (4098, 4096);
    assert_eq!(refused, Err(BusRefusal::TooManyCopies { copies, limit }));
    p.publish(vec![text("color=red"); 2_048]).unwrap();
    assert_eq!(p.view(&subscription("b")).counts.active, 2_048);
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
