//! How many rules a topic has, how large they are, and which names.

use super::*;
use crate::bus::{COPIES_AT_ONCE_MAX, RULES_SIZE_BYTES_MAX};
use crate::snapshot::PageBytes;
use crate::vocabulary::PageNumber;

#[test]
fn a_topic_has_so_many_rules_of_a_kind() {
    let mut p = Partition::with_topic(BusQueueOptions::default());
    p.subscribe_all(&["a", "b"]);
    let full = |limit: usize| {
        let (queue, limit) = (topic().name, limit as u64);
        Err::<BusOutcome, _>(BusRefusal::TooManyRules { queue, limit })
    };
    p.add_many("a", SQL_RULES_MAX - 1, &sql("color = 'red'"));
    p.add_rule("b", rule("last", sql("color = 'red'"))).unwrap();
    let more = rule("more", sql("color = 'blue'"));
    assert_eq!(p.add_rule("b", more.clone()), full(SQL_RULES_MAX));
    for (limit, kind) in [
        (SQL_RULES_MAX, "2000 rules with an SQL filter,"),
        (
            OTHER_RULES_MAX,
            "100000 rules with a true, false or correlation filter,",
        ),
    ] {
        let text = full(limit).unwrap_err().to_string();
        assert!(text.contains(kind), "{text}");
    }
    let instead = rule("$Default", sql("color = 'blue'"));
    assert_eq!(p.set_rule("b", instead.clone()), full(SQL_RULES_MAX));
    // One that takes the place of another one is no further one, and the other kind has room.
    p.set_rule("b", rule("LAST", sql("color = 'blue'")))
        .unwrap();
    p.set_rule("b", rule("last", correlation("red"))).unwrap();
    p.set_rule("b", instead).unwrap();
    assert_eq!(p.add_rule("b", more.clone()), full(SQL_RULES_MAX));
    p.delete(subscription("b")).unwrap();
    p.add_rule("a", more.clone()).unwrap();

    p.add_many("a", OTHER_RULES_MAX, &FilterDefinition::False);
    let other = rule("other", FilterDefinition::True);
    assert_eq!(p.add_rule("a", other.clone()), full(OTHER_RULES_MAX));
    assert_eq!(
        p.add_rule("a", rule("sql", sql("1 = 1"))),
        full(SQL_RULES_MAX)
    );
    p.remove_rule("a", "more").unwrap();
    p.add_rule("a", rule("sql", sql("1 = 1"))).unwrap();
    p.set_rule("a", rule("sql", sql("2 = 2"))).unwrap();
    let refused = p.set_rule("a", rule("sql", FilterDefinition::True));
    assert_eq!(refused, full(OTHER_RULES_MAX));
    // The rule of its creation does not count, and so it gives no room.
    p.remove_rule("a", "$Default").unwrap();
    assert_eq!(p.add_rule("a", other), full(OTHER_RULES_MAX));
}

#[test]
fn the_rules_of_a_topic_have_a_size() {
    let mut p = Partition::with_topic(BusQueueOptions::default());
    p.subscribe_all(&["a", "b"]);
    let large = || correlation(&"x".repeat(30_000));
    let too_large = Err(BusRefusal::RulesTooLarge {
        queue: topic().name,
        limit_bytes: RULES_SIZE_BYTES_MAX,
    });
    let each = Definition::new(large(), None).unwrap().bytes().len() as u64 + 64 + 7;
    let count = usize::try_from(RULES_SIZE_BYTES_MAX / each - 1).unwrap();
    p.add_many("a", count, &large());
    p.add_rule("b", rule("last", large())).unwrap();
    assert_eq!(p.add_rule("b", rule("more", large())), too_large);
    assert_eq!(p.set_rule("b", rule("$Default", large())), too_large);
    p.add_rule("b", rule("small", FilterDefinition::False))
        .unwrap();
    // One that takes the place of another one needs no more room, unless a message waits for that.
    p.set_rule("b", rule("LAST", large())).unwrap();
    let waiting = p.arrive();
    assert_eq!(p.set_rule("b", rule("last", large())), too_large);
    p.remove_rule("b", "last").unwrap();
    assert_eq!(p.add_rule("b", rule("last", large())), too_large);
    p.finish(waiting);
    p.add_rule("b", rule("last", large())).unwrap();
    assert_eq!(p.add_rule("b", rule("more", large())), too_large);
    p.of_topic().check(RunLength::TINY);
}

#[test]
fn names_have_50_characters_that_are_allowed() {
    let mut p = Partition::with_topic(BusQueueOptions::default());
    p.subscribe_all(&["a"]);
    let add = |p: &mut Partition, name: &str| p.add_rule("a", rule(name, FilterDefinition::False));
    assert!(add(&mut p, &"\u{e4}".repeat(50)).is_ok());
    assert!(matches!(
        add(&mut p, &"\u{e4}".repeat(51)),
        Err(BusRefusal::InvalidOption(_))
    ));
    for name in ["a/b", "a\\b", "a?", "#a", "a@b", "*", "a\0", "a\nb", "  "] {
        let refused = add(&mut p, name);
        assert!(
            matches!(&refused, Err(BusRefusal::InvalidRule { why }) if why.contains("rule name")),
            "{name:?}: {refused:?}"
        );
        let refused = p.set_rule("a", rule(name, FilterDefinition::False));
        assert!(refused.is_err(), "{name:?}");
    }
    for name in ["A.b-c_9", "$x", "a b", "a+b", "(a)"] {
        assert!(add(&mut p, name).is_ok(), "{name:?}");
    }
    // Only the case of ASCII letters does not count.
    assert!(add(&mut p, "STRASSE \u{c4}").is_ok());
    assert!(add(&mut p, "strasse \u{c4}").is_err());
    assert!(add(&mut p, "strasse \u{e4}").is_ok());
    p.check_rules();
}

/// Copies are counted as they are made: those of a command, and those of the topic.
#[test]
fn a_subscription_without_a_rule_does_not_count_for_copies_and_size() {
    let names: Vec<String> = (0..64).map(|it| format!("s{it}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let count = COPIES_AT_ONCE_MAX / 64 + 1;
    let messages = || (0..count).map(|_| text("x")).collect::<Vec<_>>();
    let with_topic = || {
        let mut p = Partition::with_topic(BusQueueOptions {
            size_bytes_max: 100_000,
            ..BusQueueOptions::default()
        });
        p.subscribe_all(&names);
        p
    };

    let mut p = with_topic();
    p.publish(messages()).unwrap();
    assert_eq!(p.view(&topic()).counts.active, 1);
    let refused = p.publish(messages());
    assert!(matches!(refused, Err(BusRefusal::QuotaExceeded { .. })));

    let mut p = with_topic();
    for name in &names[1..] {
        p.remove_rule(name, "$Default").unwrap();
    }
    p.publish(messages()).unwrap();
    assert_eq!(p.view(&topic()).counts.active, 0);
    p.publish(messages()).unwrap();
    assert_eq!(p.view(&subscription("s0")).counts.active, 2 * count as u64);
    assert_eq!(p.view(&subscription("s1")).counts.active, 0);
}

/// A rule that is not retired and holds for no message is not kept.
#[test]
fn a_rule_that_no_message_needs_does_not_wait() {
    let mut p = Partition::with_topic(BusQueueOptions::default());
    p.subscribe_all(&["a"]);
    let first = p.arrive();
    p.subscribe_all(&["b"]);
    for kind in ["red", "blue"] {
        p.add_rule("a", rule("red", correlation(kind))).unwrap();
        p.set_rule("a", rule("red", sql("size = 1"))).unwrap();
        p.remove_rule("a", "red").unwrap();
    }
    // It was created behind the message.
    p.remove_rule("b", "$Default").unwrap();
    assert_eq!(p.of_topic().rule_count(), 0);
    p.remove_rule("a", "$Default").unwrap();
    assert_eq!(p.of_topic().retired_count(), 1);
    p.finish(first);
    assert_eq!(p.of_topic().rule_count(), 0);
    p.check_rules();
}

#[test]
fn rules_that_do_not_compile_any_more_stay() {
    let mut p = Partition::with_topic(BusQueueOptions::default());
    p.subscribe_all(&["a"]);
    p.add_many("a", 2, &sql("color = = 1"));
    assert_eq!(p.of_topic().broken().collect::<Vec<_>>(), [2, 3]);
    p.check_rules();
    let restored = p.restored();
    let entity = &restored.bus[&p.topic_incarnation()];
    assert_eq!(entity.topic.as_ref().unwrap().broken().count(), 2);
    p.set_rule("a", rule("rule 2", sql("color = 1"))).unwrap();
    assert_eq!(p.of_topic().broken().collect::<Vec<_>>(), [3]);
    p.check_rules();
}

#[test]
fn a_change_of_one_rule_writes_one_page_of_rules() {
    let mut p = Partition::with_topic(BusQueueOptions::default());
    p.subscribe_all(&["a"]);
    p.add_many("a", 200, &FilterDefinition::False);
    let new_pages = |p: &Partition| -> Vec<PageBytes> {
        let planned = p.state.share().plan_pages();
        let mut new = Vec::new();
        for index in 0..planned.page_count() {
            if planned.page(index).is_none() {
                new.extend(planned.encode(index));
                planned.keep(index, PageNumber::new(index as u64 + 1));
            }
        }
        new.retain(|page| page.kind == 6);
        new
    };
    assert!(new_pages(&p).len() > 3);
    assert_eq!(new_pages(&p), []);
    p.remove_rule("a", "rule 70").unwrap();
    assert_eq!(new_pages(&p).len(), 1);
    p.add_rule("a", rule("new", FilterDefinition::True))
        .unwrap();
    assert_eq!(new_pages(&p).len(), 1);
}
