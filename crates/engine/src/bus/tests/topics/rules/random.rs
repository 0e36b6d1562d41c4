//! Random changes of rules against a model: which rules a subscription has, and which hold for a message that waits.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use proptest::prelude::*;

use super::*;
use crate::snapshot::tests::{UnderWay, meanwhile};
use crate::vocabulary::Place;

const SUBSCRIPTIONS: [&str; 3] = ["a", "b", "c"];
const NAMES: [&str; 4] = ["$Default", "Red", "blue", "!"];

#[derive(Clone, Debug)]
enum Step {
    Subscribe(usize),
    Unsubscribe(usize),
    Add(usize, usize, u8),
    Set(usize, usize, u8),
    Remove(usize, usize),
    Arrive,
    Finish,
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    let of = || 0..SUBSCRIPTIONS.len();
    let named = || 0..NAMES.len();
    prop_oneof![
        2 => of().prop_map(Step::Subscribe),
        1 => of().prop_map(Step::Unsubscribe),
        4 => (of(), named(), 0u8..4).prop_map(|(of, name, kind)| Step::Add(of, name, kind)),
        3 => (of(), named(), 0u8..4).prop_map(|(of, name, kind)| Step::Set(of, name, kind)),
        3 => (of(), named()).prop_map(|(of, name)| Step::Remove(of, name)),
        2 => Just(Step::Arrive),
        2 => Just(Step::Finish),
        1 => Just(Step::Restart),
    ]
}

fn of_kind(name: &str, kind: u8) -> NewRule {
    match kind {
        0 => rule(name, sql("color = 'red'")),
        1 => rule(name, correlation("red")),
        2 => with_action(name, "SET size = 1"),
        _ => rule(name, FilterDefinition::False),
    }
}

/// The rules of a subscription, by name.
type Rules = BTreeMap<&'static str, Box<[u8]>>;

/// The rules that hold for a message, with their subscriptions.
type Holding = BTreeSet<(Incarnation, &'static str, Box<[u8]>)>;

#[derive(Default)]
struct Model {
    /// With the incarnation of each.
    subscriptions: BTreeMap<&'static str, (Incarnation, Rules)>,
    /// The messages that wait, with the rules that hold for each.
    waiting: VecDeque<(Place, Holding)>,
}

impl Model {
    fn step(&mut self, p: &mut Partition, step: &Step) {
        match *step {
            Step::Subscribe(of) => {
                let name = SUBSCRIPTIONS[of];
                if p.subscribe(name, BusQueueOptions::default()).is_ok() {
                    let all = rule("", FilterDefinition::True).definition;
                    let rules = [(NAMES[0], all.bytes().into())].into();
                    let entity = p.state.catalogue.find(&subscription(name)).unwrap();
                    self.subscriptions.insert(name, (entity, rules));
                }
            }
            Step::Unsubscribe(of) => {
                let gone = self.subscriptions.remove(SUBSCRIPTIONS[of]);
                let deleted = p.delete(subscription(SUBSCRIPTIONS[of]));
                assert_eq!(deleted.is_ok(), gone.is_some());
                if let Some((entity, _)) = gone {
                    for (_, rules) in &mut self.waiting {
                        rules.retain(|(of, ..)| *of != entity);
                    }
                }
            }
            Step::Add(of, name, kind) => {
                let new = of_kind(NAMES[name], kind);
                let answer = p.add_rule(SUBSCRIPTIONS[of], new.clone());
                let rules = self.subscriptions.get_mut(SUBSCRIPTIONS[of]);
                let rules = rules.filter(|(_, rules)| !rules.contains_key(NAMES[name]));
                assert_eq!(answer.is_ok(), rules.is_some());
                if let Some((_, rules)) = rules {
                    rules.insert(NAMES[name], new.definition.bytes().into());
                }
            }
            Step::Set(of, name, kind) => {
                let new = of_kind(NAMES[name], kind);
                let answer = p.set_rule(SUBSCRIPTIONS[of], new.clone());
                let rules = self.subscriptions.get_mut(SUBSCRIPTIONS[of]);
                let old = rules.and_then(|(_, rules)| rules.get_mut(NAMES[name]));
                assert_eq!(answer.is_ok(), old.is_some());
                if let Some(old) = old {
                    *old = new.definition.bytes().into();
                }
            }
            Step::Remove(of, name) => {
                let answer = p.remove_rule(SUBSCRIPTIONS[of], NAMES[name]);
                let rules = self.subscriptions.get_mut(SUBSCRIPTIONS[of]);
                let old = rules.and_then(|(_, rules)| rules.remove(NAMES[name]));
                assert_eq!(answer.is_ok(), old.is_some());
            }
            Step::Arrive => {
                let place = p.arrive();
                let all = self.subscriptions.values();
                let all = all.flat_map(|(entity, rules)| {
                    let rules = rules.iter();
                    rules.map(|(name, definition)| (*entity, *name, definition.clone()))
                });
                self.waiting.push_back((place, all.collect()));
            }
            Step::Finish => {
                if let Some((place, _)) = self.waiting.pop_front() {
                    p.finish(place);
                }
            }
            Step::Restart => {
                let restored = p.restored();
                assert_eq!(restored, p.state);
                p.state = restored;
            }
        }
    }

    fn check(&self, p: &mut Partition) {
        for (name, (_, rules)) in &self.subscriptions {
            let listed = p.rules(name, 0, 10).into_iter();
            let listed: Vec<_> = listed
                .map(|it| (String::from(it.name), it.definition))
                .collect();
            let mut expected: Vec<_> = rules.iter().collect();
            expected.sort_by_key(|(name, _)| name.to_lowercase());
            let expected = expected.into_iter();
            let expected = expected.map(|(name, it)| ((*name).to_owned(), it.clone()));
            assert_eq!(listed, expected.collect::<Vec<_>>());
        }
        let topic = p.of_topic();
        topic.check(RunLength::TINY);
        p.check_kept();
        for (place, rules) in &self.waiting {
            let holding = topic.holding(place.number);
            let holding = holding.map(|it| (it.subscription, &*it.name, &it.definition));
            // A rule of its creation that is in force is in the subscription.
            let defaults = self.subscriptions.values().filter_map(|(entity, _)| {
                let rule = p.state.bus[entity].rule?;
                (rule.since <= place.number).then_some(*entity)
            });
            let all = rule("", FilterDefinition::True).definition;
            let all: Box<[u8]> = all.bytes().into();
            let defaults = defaults.map(|entity| (entity, NAMES[0], &all));
            let found: BTreeSet<_> = holding.chain(defaults).collect();
            let expected = rules.iter().map(|(of, name, it)| (*of, *name, it));
            assert_eq!(found, expected.collect::<BTreeSet<_>>());
        }
        if self.waiting.is_empty() {
            assert_eq!(topic.retired_count(), 0);
        }
    }
}

proptest! {
    #[test]
    fn rules_are_those_of_a_model(
        steps in proptest::collection::vec((step(), meanwhile()), 1..60),
    ) {
        let mut p = Partition::with_topic(BusQueueOptions::default());
        p.cold = None;
        let (mut model, mut snapshots) = (Model::default(), UnderWay::default());
        for (step, meanwhile) in steps {
            if matches!(step, Step::Restart) {
                std::mem::take(&mut snapshots).finish(&mut p.state);
            }
            model.step(&mut p, &step);
            snapshots.pass(&mut p.state, meanwhile);
            model.check(&mut p);
        }
        snapshots.finish(&mut p.state);
        p.check_rules();
    }
}
