//! Rules that change while a message of the topic waits for its copies.

use super::*;
use crate::bus::Effect;
use crate::effect::{Arrival, Rest};
use crate::vocabulary::Place;

impl Partition {
    /// A message that the topic keeps. No command makes one yet.
    pub(super) fn arrive(&mut self) -> Place {
        self.cold = None;
        let entity = self.topic_incarnation();
        let number = self.state.bus[&entity].backlog.next();
        let to = Place { entity, number };
        let body = self.log.store_body(b"x");
        let record = sent(self.now, Timestamp::NEVER, None, body);
        let message = Arrival::new(record, None, Rest::default());
        let effects = Effect::Arrived { to, message };
        self.record(BusFact::Messages {
            effects: effects.into(),
        });
        to
    }

    /// The message has all its copies.
    pub(super) fn finish(&mut self, at: Place) {
        match self.state.ended(at) {
            Some(Fact::Bus(fact)) => self.record(fact),
            other => panic!("{other:?}"),
        }
    }

    /// The names of the rules that hold for a message.
    fn holding(&self, at: Place) -> Vec<&str> {
        let rules = self.of_topic().holding(at.number);
        rules.map(|rule| &*rule.name).collect()
    }
}

#[test]
fn rules_stay_as_long_as_a_message_needs_them() {
    let mut p = Partition::with_topic(BusQueueOptions::default());
    p.subscribe_all(&["a"]);
    p.add_rule("a", rule("red", sql("color = 'red'"))).unwrap();
    let first = p.arrive();
    p.set_rule("a", rule("red", sql("color = 'blue'"))).unwrap();
    p.remove_rule("a", "$Default").unwrap();
    let second = p.arrive();
    p.add_rule("a", rule("late", correlation("red"))).unwrap();
    p.remove_rule("a", "red").unwrap();
    assert_eq!(p.rule_names("a"), ["late"]);
    assert_eq!(p.holding(first), ["$Default", "red"]);
    assert_eq!(p.holding(second), ["red"]);
    assert_eq!(p.of_topic().retired_count(), 3);
    p.check_rules();

    p.finish(first);
    assert_eq!(p.holding(second), ["red"]);
    assert_eq!(p.of_topic().retired_count(), 1);
    p.check_rules();
    p.finish(second);
    assert_eq!(p.of_topic().retired_count(), 0);
    assert_eq!(p.of_topic().rule_count(), 1);
    p.check_rules();
}

#[test]
fn a_subscription_that_ends_takes_its_retired_rules() {
    let mut p = Partition::with_topic(BusQueueOptions::default());
    p.subscribe_all(&["a", "b"]);
    let first = p.arrive();
    for name in ["a", "b"] {
        p.add_rule(name, rule("red", sql("color = 'red'"))).unwrap();
        p.remove_rule(name, "$Default").unwrap();
    }
    p.delete(subscription("a")).unwrap();
    assert_eq!(p.of_topic().retired_count(), 1);
    assert_eq!(p.of_topic().rule_count(), 2);
    assert_eq!(p.holding(first), ["$Default"]);
    p.check_rules();
}

#[test]
fn too_many_retired_rules_wait_and_others_cannot_change() {
    let mut p = Partition::with_topic(BusQueueOptions::default());
    p.subscribe_all(&["a"]);
    p.add_many("a", RETIRED_RULES_MAX, &correlation("red"));
    let first = p.arrive();
    let topic_of = p.topic_incarnation();
    let of = p.state.catalogue.find(&subscription("a")).unwrap();
    let next = p.of_topic().next_rule();
    let many = RETIRED_RULES_MAX as u64;
    p.record(BusFact::RulesChanged {
        topic: topic_of,
        subscription: of,
        from: first.number.next(),
        retired: (next - many..next).collect(),
        added: Vec::new(),
    });
    assert_eq!(p.of_topic().retired_count(), RETIRED_RULES_MAX);
    let queue = topic().name;
    let busy = BusRefusal::RulesBusy { queue };
    let other = rule("$Default", FilterDefinition::False);
    assert_eq!(p.set_rule("a", other.clone()), Err(busy.clone()));
    assert_eq!(p.remove_rule("a", "$Default"), Err(busy));
    // What is added retires nothing.
    p.add_rule("a", rule("more", correlation("red"))).unwrap();
    p.finish(first);
    p.set_rule("a", other).unwrap();
    p.check_rules();
}
