//! Rules in histories of which a part is missing: what a repair makes of them, and that no subscription goes without its
//! messages in silence.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::bus::{CompletedRules, KnownOfRules};
use crate::repair::Skip;
use crate::snapshot::{DecodedPage, RestoringPages};
use crate::vocabulary::PageNumber;

/// The state after the facts that are not hidden.
fn reading(p: &Partition, is_hidden: impl Fn(&BusFact) -> bool) -> State {
    let mut state = State::new();
    for event in &p.log.events {
        let event = Event::decode(event).unwrap();
        let hidden = matches!(&event.fact, Fact::Bus(fact) if is_hidden(fact));
        if !hidden {
            state.apply(event);
        }
    }
    state
}

fn is_creation_of(entity: Incarnation) -> impl Fn(&BusFact) -> bool {
    move |fact| fact.created() == Some(entity)
}

fn is_change(fact: &BusFact) -> bool {
    matches!(fact, BusFact::RulesChanged { .. })
}

impl Partition {
    /// The same clients, with another state.
    fn on(&mut self, state: State) {
        self.cold = None;
        self.state = state;
    }

    fn incarnation(&self, name: &EntityName) -> Incarnation {
        self.state.catalogue.find(name).unwrap()
    }

    fn has_default(&self, of: &str) -> bool {
        let of = self.incarnation(&subscription(of));
        self.state.bus[&of].rule.is_some()
    }

    /// The rules of the topic that are in force, by number and name.
    fn in_force(&self) -> Vec<(u64, String)> {
        let rules = self.of_topic().holding(SequenceNumber::new(1 << 40));
        rules.map(|it| (it.id, it.name.to_string())).collect()
    }

    /// Completes the rules as a repair does whose log has a gap.
    fn complete(&mut self) -> CompletedRules {
        let none = BTreeSet::new();
        self.complete_known(&none, &none)
    }

    fn complete_known(
        &mut self,
        changed: &BTreeSet<Incarnation>,
        stand_ins: &BTreeSet<Incarnation>,
    ) -> CompletedRules {
        let completed = self.state.complete_rules(KnownOfRules {
            has_gaps: true,
            changed,
            stand_ins,
            deleted: &BTreeSet::new(),
        });
        let [completed] = &completed[..] else {
            panic!("{completed:?}");
        };
        self.check_ordinary();
        completed.clone()
    }

    /// What a repair makes is an ordinary state: it can be restored from parts and from pages.
    fn check_ordinary(&self) {
        self.of_topic().check(RunLength::TINY);
        self.check_kept();
        assert_eq!(self.restored(), self.state);
        let planned = self.state.share().plan_pages();
        let mut state = State::new();
        for part in planned.parts() {
            state.restore(part).unwrap();
        }
        let mut restoring = RestoringPages::default();
        for index in 0..planned.page_count() {
            let page = planned.encode(index).unwrap();
            let groups: Vec<&[u8]> = page.groups.iter().map(Vec::as_slice).collect();
            let number = PageNumber::new(index as u64 + 1);
            let restored = state.restore_page(&mut restoring, number, page.kind, &groups);
            restored.unwrap();
        }
        state.finish_pages(restoring).unwrap();
        assert_eq!(state, self.state);
    }
}

fn added(id: u64, name: &str) -> AddedRule {
    AddedRule {
        id,
        name: name.into(),
        definition: rule(name, correlation(name)).definition.bytes().into(),
    }
}

/// A topic with the subscriptions `a` and `b`.
fn partition() -> Partition {
    let mut p = Partition::with_topic(BusQueueOptions::default());
    p.subscribe_all(&["a", "b"]);
    p.cold = None;
    p
}

impl Partition {
    fn record_change(&mut self, of: &str, retired: &[u64], added: Vec<AddedRule>) {
        let fact = BusFact::RulesChanged {
            topic: self.topic_incarnation(),
            subscription: self.incarnation(&subscription(of)),
            from: SequenceNumber::FIRST,
            retired: retired.to_vec(),
            added,
        };
        self.record(fact);
    }
}

/// What a gap hides of a topic shifts the numbers that are counted, and the facts behind it mean the same.
#[test]
fn the_rule_of_a_creation_ends_whatever_its_number_is() {
    let mut p = Partition::with_topic(BusQueueOptions::default());
    p.subscribe_all(&["b"]);
    p.add_rule("b", rule("hidden", FilterDefinition::False))
        .unwrap();
    p.subscribe_all(&["a"]);
    p.set_rule("a", rule("$Default", sql("color = 'red'")))
        .unwrap();
    let b = p.incarnation(&subscription("b"));
    let hidden = |fact: &BusFact| match fact {
        BusFact::RulesChanged { subscription, .. } => *subscription == b,
        _ => fact.created() == Some(b),
    };
    let state = reading(&p, hidden);
    p.on(state);
    assert!(!p.has_default("a"));
    assert_eq!(p.in_force(), [(4, "$Default".to_owned())]);
    p.complete();
    assert!(!p.has_default("a"));
}

#[test]
fn a_subscription_whose_topic_another_reading_has_gets_messages() {
    for stands_in in [false, true] {
        let mut p = partition();
        let (t, a) = (p.topic_incarnation(), p.incarnation(&subscription("a")));
        let mut one = reading(&p, is_creation_of(t));
        let other = reading(&p, is_creation_of(a));
        if stands_in {
            one.stand_in(t, entity("recovered"), Timestamp::from_ms(1));
            one.adopt_bus_queue(t, &other);
        }
        assert_eq!(one.absorb(other), []);
        p.on(one);
        let completed = p.complete();
        assert_eq!((completed.dropped, completed.opened), (0, vec![]));
        p.publish(vec![text("x")]).unwrap();
        for name in ["a", "b"] {
            assert_eq!(p.view(&subscription(name)).counts.active, 1, "{stands_in}");
        }
        // Their rules have numbers of their own, and the next one is behind them.
        let rules = ["a", "b"].map(|name| {
            let of = p.incarnation(&subscription(name));
            p.state.bus[&of].rule.unwrap().id
        });
        assert_ne!(rules[0], rules[1]);
        assert!(rules.iter().all(|id| *id < p.of_topic().next_rule()));
    }
}

#[test]
fn rules_that_one_of_two_readings_has_are_kept() {
    let mut p = partition();
    p.set_rule("a", rule("$Default", sql("color = 'red'")))
        .unwrap();
    p.add_rule("b", rule("blue", correlation("blue"))).unwrap();
    let whole = p.in_force();
    for is_first in [true, false] {
        let mut without = reading(&p, is_change);
        let mut with = reading(&p, |_| false);
        let state = match is_first {
            true => {
                assert_eq!(without.absorb(with), []);
                without
            }
            false => {
                assert_eq!(with.absorb(without), []);
                with
            }
        };
        p.on(state);
        let completed = p.complete();
        assert_eq!((completed.dropped, completed.opened), (0, vec![]));
        assert_eq!(p.in_force(), whole);
        assert_eq!([p.has_default("a"), p.has_default("b")], [false, true]);
        let active =
            |p: &mut Partition| ["a", "b"].map(|name| p.view(&subscription(name)).counts.active);
        let [of_a, of_b] = active(&mut p);
        p.publish(vec![text("color=green"), text("color=red")])
            .unwrap();
        assert_eq!(active(&mut p), [of_a + 1, of_b + 2]);
    }
}

/// Of two rules of one name the later one counts, and what one reading has read as retired is so in both.
#[test]
fn a_later_rule_of_a_name_takes_the_place_of_an_earlier_one() {
    for is_first in [true, false] {
        let mut p = partition();
        p.record_change("a", &[], vec![added(5, "red"), added(6, "blue")]);
        let mut old = reading(&p, |_| false);
        p.record_change("a", &[5], vec![added(9, "RED")]);
        p.record_change("a", &[6], Vec::new());
        let mut new = reading(&p, |fact| match fact {
            BusFact::RulesChanged { retired, .. } => retired.is_empty(),
            _ => false,
        });
        for event in &p.log.events {
            if let Fact::Bus(fact) = Event::decode(event).unwrap().fact {
                old.retire_rules(&fact);
            }
        }
        let state = match is_first {
            true => {
                assert_eq!(new.absorb(old), []);
                new
            }
            false => {
                assert_eq!(old.absorb(new), []);
                old
            }
        };
        p.on(state);
        p.complete();
        assert_eq!(p.in_force(), [(9, "RED".to_owned())]);
    }
}

#[test]
fn a_subscription_that_may_have_lost_its_rules_gets_everything() {
    let mut p = partition();
    p.remove_rule("a", "$Default").unwrap();
    p.remove_rule("b", "$Default").unwrap();
    p.add_rule("a", rule("hidden", FilterDefinition::True))
        .unwrap();
    let hidden = |fact: &BusFact| match fact {
        BusFact::RulesChanged { added, .. } => !added.is_empty(),
        _ => false,
    };
    let state = reading(&p, hidden);
    p.on(state);
    // The removal of the other one's last rule was read.
    let changed = [p.incarnation(&subscription("b"))].into();
    let completed = p.complete_known(&changed, &BTreeSet::new());
    assert_eq!(completed.opened, [subscription("a")]);
    assert_eq!(
        (completed.topic, completed.name),
        (p.topic_incarnation(), topic())
    );
    p.publish(vec![text("x")]).unwrap();
    let counts = ["a", "b"].map(|name| p.view(&subscription(name)).counts.active);
    assert_eq!(counts, [1, 0]);
    // Of a whole history, a subscription without rules is what its owner wanted.
    let mut whole = partition();
    whole.remove_rule("a", "$Default").unwrap();
    let none = BTreeSet::new();
    whole.state.complete_rules(KnownOfRules {
        has_gaps: false,
        changed: &none,
        stand_ins: &none,
        deleted: &none,
    });
    assert!(!whole.has_default("a"));
}

/// Nothing but changes of rules is left: they say what is a topic, and what a subscription.
#[test]
fn changes_of_rules_show_what_the_entities_are() {
    let mut p = partition();
    p.record_change("a", &[], vec![added(4, "old")]);
    let old = reading(&p, |_| false);
    p.record_change("a", &[0], vec![added(5, "red")]);
    p.record_change("b", &[], vec![added(6, "blue")]);
    let ids = [topic(), subscription("a"), subscription("b")].map(|name| p.incarnation(&name));
    let [t, a, b] = ids;
    let mut one = State::new();
    for event in &p.log.events {
        let event = Event::decode(event).unwrap();
        if let Fact::Bus(BusFact::RulesChanged {
            topic,
            subscription,
            added,
            ..
        }) = &event.fact
        {
            if added[0].id == 4 {
                continue;
            }
            for queue in [*topic, *subscription] {
                let name = entity(&format!("recovered-{}", queue.as_u64()));
                one.stand_in(queue, name, event.at);
            }
            one.make_topic(*topic);
            one.make_subscription(*subscription, *topic);
        }
        if !matches!(&event.fact, Fact::Bus(fact) if fact.created().is_some()) {
            one.apply_fitting(event);
        }
    }
    assert_eq!(one.topic_of(a), Some(t));
    for queue in ids {
        one.adopt_bus_queue(queue, &old);
    }
    assert_eq!(one.absorb(old), []);
    p.on(one);
    let stand_ins = [b].into();
    let completed = p.complete_known(&BTreeSet::new(), &stand_ins);
    // Whether the other one's `$Default` was removed is not known.
    assert_eq!(completed.opened, [subscription("b")]);
    let names = ["old", "red", "blue"].map(str::to_owned);
    assert_eq!(
        p.in_force(),
        [4, 5, 6].into_iter().zip(names).collect::<Vec<_>>()
    );
    assert_eq!([p.has_default("a"), p.has_default("b")], [false, true]);
}

/// A number that was counted may be the one of another rule.
#[test]
fn a_change_leaves_the_rules_of_other_subscriptions() {
    let mut p = partition();
    p.add_rule("b", rule("red", correlation("red"))).unwrap();
    let id = p.in_force()[0].0;
    p.record_change("a", &[id], Vec::new());
    assert_eq!(p.in_force(), [(id, "red".to_owned())]);
    // The rule of the creation of `a` has a number that is taken, and needs another one when it waits.
    let waiting = p.arrive();
    let a = p.incarnation(&subscription("a"));
    let default = p.state.bus[&a].rule.unwrap().id;
    p.record_change("b", &[], vec![added(default, "taken")]);
    let from = waiting.number.next();
    p.record(BusFact::RulesChanged {
        topic: p.topic_incarnation(),
        subscription: a,
        from,
        retired: vec![0],
        added: Vec::new(),
    });
    assert_eq!(p.of_topic().retired_count(), 1);
    assert_eq!(p.of_topic().rule_count(), 3);
    p.of_topic().check(RunLength::TINY);
}

#[test]
fn numbers_of_rules_that_a_gap_may_have_hidden_are_skipped() {
    let mut p = partition();
    p.state.skip_numbers(Skip::GAP);
    assert!(p.of_topic().next_rule() > 1 << 20);
    p.state.skip_numbers(Skip::BACKUP);
    p.add_rule("a", rule("red", correlation("red"))).unwrap();
    p.complete();
}

#[test]
fn rules_of_subscriptions_that_are_gone_are_dropped() {
    let mut p = partition();
    p.add_rule("a", rule("red", correlation("red"))).unwrap();
    let a = p.incarnation(&subscription("a"));
    let mut parts = Vec::new();
    p.state.snapshot(|part| parts.push(part.to_vec()));
    parts.retain(|part| part[..3] != [38, 1, u8::try_from(a.as_u64()).unwrap()]);
    let mut state = State::new();
    let restored = parts.iter().try_for_each(|part| state.restore(part));
    assert_eq!(restored, Ok(()));
    // In a whole snapshot it is an error.
    assert!(state.finish_pages(RestoringPages::default()).is_err());
    p.on(state);
    // Until then they are compared, and nobody gets what they select.
    p.publish(vec![text("color=red")]).unwrap();
    let completed = p.complete();
    assert_eq!((completed.dropped, completed.opened), (1, vec![]));
    p.publish(vec![text("x")]).unwrap();
    assert_eq!(p.view(&subscription("b")).counts.active, 2);
}

#[test]
fn a_rule_takes_the_place_of_one_whose_removal_is_missing() {
    let mut p = partition();
    p.record_change("a", &[], vec![added(3, "red")]);
    p.record_change("a", &[], vec![added(9, "Red")]);
    p.record_change("b", &[], vec![added(10, "$DEFAULT")]);
    let names = ["Red", "$DEFAULT"].map(str::to_owned);
    let expected: Vec<_> = [9, 10].into_iter().zip(names).collect();
    assert_eq!(p.in_force(), expected);
    assert_eq!([p.has_default("a"), p.has_default("b")], [true, false]);
    assert_eq!(p.rule_names("b"), ["$DEFAULT"]);
    p.check_rules();
}

/// A page of rules alone: it names a topic of Service Bus and its subscriptions.
#[test]
fn a_page_of_rules_shows_what_its_entities_are() {
    let mut p = partition();
    p.set_rule("a", rule("$Default", sql("color = 'red'")))
        .unwrap();
    p.add_rule("b", rule("blue", correlation("blue"))).unwrap();
    let (t, whole) = (p.topic_incarnation(), p.in_force());
    let [a, b] = ["a", "b"].map(|name| p.incarnation(&subscription(name)));
    let planned = p.state.share().plan_pages();
    let mut state = State::new();
    for part in planned.parts() {
        state.restore(part).unwrap();
    }
    let mut restoring = RestoringPages::partial();
    for index in 0..planned.page_count() {
        let page = planned.encode(index).unwrap();
        if page.kind != 6 {
            continue;
        }
        let groups: Vec<&[u8]> = page.groups.iter().map(Vec::as_slice).collect();
        let decoded = DecodedPage::decode(page.kind, &groups).unwrap();
        assert_eq!(decoded.entity(), Some(t));
        assert!(decoded.is_of_bus() && decoded.is_of_no_sub_queue());
        assert_eq!(
            state.service_of_page(&restoring, &decoded),
            Some(Service::ServiceBus)
        );
        let (found, subscriptions) = decoded.topic().unwrap();
        assert_eq!(found, t);
        let at = Timestamp::from_ms(1);
        state.stand_in(t, topic(), at);
        state.make_topic(t);
        for of in subscriptions {
            assert!([a, b].contains(&of));
            state.stand_in(of, subscription(if of == a { "a" } else { "b" }), at);
            state.make_subscription(of, t);
        }
        let number = PageNumber::new(1);
        let restored = state.restore_decoded(&mut restoring, number, decoded);
        assert_eq!(restored, Ok(()));
    }
    p.on(state);
    // With a rule of that name, `a` has no other `$Default`.
    let completed = p.complete_known(&BTreeSet::new(), &[a, b].into());
    assert_eq!(completed.opened, [subscription("b")]);
    assert_eq!(p.in_force(), whole);
    assert_eq!([p.has_default("a"), p.has_default("b")], [false, true]);
}

#[derive(Clone, Debug)]
enum Step {
    /// Of a subscription: what is retired, and the number and the name of what is added.
    Change(usize, Vec<u64>, Vec<(u64, usize)>),
    Create(usize),
    Delete(usize),
    Arrive,
}

fn step() -> impl Strategy<Value = Step> {
    let number = || prop_oneof![9 => 0_u64..9, 1 => Just((1 << 63) - 2)];
    let retired = prop::collection::vec(number(), 0..3);
    let added = prop::collection::vec((1_u64..9, 0_usize..3), 0..3);
    prop_oneof![
        6 => (0_usize..3, retired, added).prop_map(|(of, out, new)| Step::Change(of, out, new)),
        2 => (0_usize..3).prop_map(Step::Create),
        1 => (0_usize..3).prop_map(Step::Delete),
        2 => Just(Step::Arrive),
    ]
}

proptest! {
    /// Facts in any order, given once or twice, make a state whose rules fit each other, and whose snapshot is that
    /// state.
    #[test]
    fn any_facts_make_a_state_that_a_snapshot_has(
        steps in prop::collection::vec((step(), any::<bool>()), 1..30),
    ) {
        let mut p = partition();
        let t = p.topic_incarnation();
        let firsts = [4, 7, 10].map(Incarnation::new);
        for (step, is_twice) in steps {
            let fact = match step {
                Step::Change(of, retired, added) => BusFact::RulesChanged {
                    topic: t,
                    subscription: firsts[of],
                    from: p.state.bus[&t].backlog.next(),
                    retired,
                    added: added.into_iter().map(|(id, name)| {
                        self::added(id, ["$Default", "red", "Red"][name])
                    }).collect(),
                },
                Step::Create(of) => BusFact::SubscriptionCreated {
                    subscription: firsts[of],
                    name: subscription(["a", "b", "c"][of]),
                    options: BusQueueOptions::default(),
                    of: t,
                },
                Step::Delete(of) => BusFact::QueueDeleted { queue: firsts[of] },
                Step::Arrive => {
                    p.arrive();
                    continue;
                }
            };
            p.record(fact.clone());
            let before = p.of_topic().again(RunLength::TINY);
            if is_twice && !matches!(fact, BusFact::RulesChanged { .. }) {
                p.record(fact);
                assert_eq!(*p.of_topic(), before);
            }
            p.of_topic().check(RunLength::TINY);
            prop_assert_eq!(&p.restored(), &p.state);
        }
        let none = BTreeSet::new();
        p.state.complete_rules(KnownOfRules {
            has_gaps: true,
            changed: &none,
            stand_ins: &none,
            deleted: &none,
        });
        p.check_ordinary();
    }
}
