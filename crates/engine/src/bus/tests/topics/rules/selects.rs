//! Random rules, messages and settlements against a model that evaluates each rule by itself: which copies a subscription
//! gets, in which order and with which changes; and that a replay and a snapshot have the same.

use std::collections::BTreeMap;

use kew_filter::{Rule, copies};
use proptest::prelude::*;

use super::*;
use crate::bus::{Format as _, Known};
use crate::snapshot::tests::{UnderWay, meanwhile};

const SUBSCRIPTIONS: [&str; 4] = ["a", "b", "sessions", "silent"];
const NAMES: [&str; 4] = ["$Default", "Red", "blue", "!"];

/// Filters and actions. An empty text is no action, and `correlation` is a filter of that kind.
const FILTERS: [&str; 7] = [
    "correlation",
    "true",
    "false",
    "size > 1",
    "color = 'red' OR size = 0",
    "1 / size = 1",
    "sys.SessionId = 's'",
];
const ACTIONS: [&str; 6] = [
    "",
    "",
    "SET size = size + 1; REMOVE color",
    "SET sys.SessionId = color",
    "SET sum = color - size",
    "REMOVE sys.SessionId; SET RuleName = 'x'",
];

#[derive(Clone, Debug)]
enum Step {
    Put(usize, usize, usize, usize),
    Remove(usize, usize),
    Publish(Vec<(usize, u8, bool)>),
    Take(usize, bool),
    Bury(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let of = || 0..SUBSCRIPTIONS.len();
    let named = || 0..NAMES.len();
    let message = || (0..3usize, 0u8..3, any::<bool>());
    prop_oneof![
        5 => (of(), named(), 0..FILTERS.len(), 0..ACTIONS.len())
            .prop_map(|(of, name, filter, action)| Step::Put(of, name, filter, action)),
        1 => (of(), named()).prop_map(|(of, name)| Step::Remove(of, name)),
        6 => prop::collection::vec(message(), 1..4).prop_map(Step::Publish),
        2 => (of(), any::<bool>()).prop_map(|(of, is_dead)| Step::Take(of, is_dead)),
        1 => of().prop_map(Step::Bury),
    ]
}

fn new_rule(name: &str, filter: &str, action: &str) -> NewRule {
    let filter = match filter {
        "true" => FilterDefinition::True,
        "false" => FilterDefinition::False,
        "correlation" => correlation("red"),
        text => sql(text),
    };
    let action = (!action.is_empty()).then(|| SqlDefinition {
        text: action.into(),
        ..SqlDefinition::default()
    });
    NewRule {
        name: name.into(),
        definition: Definition::new(filter, action).unwrap(),
    }
}

/// A message of a model: its text, its changes, and why it is a dead letter.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Expected {
    text: String,
    changes: String,
    cause: Option<DeadLetterCause>,
}

#[derive(Default)]
struct OfModel {
    /// In the order of their creation.
    rules: Vec<Rule>,
    live: Vec<Expected>,
    dead: Vec<Expected>,
}

struct Model {
    subscriptions: BTreeMap<&'static str, OfModel>,
}

fn compiled(rule: &NewRule) -> Rule {
    let (filter, action) = rule.definition.compile().unwrap();
    Rule {
        name: rule.name.to_string(),
        filter,
        action,
    }
}

fn ids(_: u32) -> [u8; 16] {
    [0; 16]
}

impl OfModel {
    fn publish(&mut self, name: &str, text: &str, session: Option<&str>) {
        let body = Bytes::copy_from_slice(text.as_bytes());
        let view = Lines.view(&body, &[], Known::default()).unwrap();
        let ids: &dyn Fn(u32) -> [u8; 16] = &ids;
        let mut failed: Vec<(usize, String)> = Vec::new();
        let mut matching = Vec::new();
        for (index, rule) in self.rules.iter().enumerate() {
            match rule.filter.matches(&*view, &ids) {
                Ok(true) => matching.push((index, rule)),
                Ok(false) => {}
                Err(error) => failed.push((index, error.to_string())),
            }
        }
        for (index, rule) in &matching {
            if let Some(failure) = copies(&*view, [*rule], &ids).1.pop() {
                failed.push((*index, failure.error.to_string()));
            }
        }
        let (all, _) = copies(&*view, matching.iter().map(|(_, rule)| *rule), &ids);
        for copy in all {
            let made = Lines.made_by(&copy.changes).unwrap();
            let session = match &made.session {
                Some(changed) => changed.as_deref(),
                None => session,
            };
            let cause = (name == "sessions" && session.is_none())
                .then_some(DeadLetterCause::SessionIdIsNull);
            let to = match cause {
                Some(_) => &mut self.dead,
                None => &mut self.live,
            };
            to.push(Expected {
                text: text.to_owned(),
                changes: String::from_utf8(made.overlay.to_vec()).unwrap(),
                cause,
            });
        }
        let first = failed.into_iter().min_by_key(|(index, _)| *index);
        if let Some((_, why)) = first.filter(|_| name != "silent") {
            self.dead.push(Expected {
                text: text.to_owned(),
                changes: format!("+why={why}\n"),
                cause: Some(DeadLetterCause::FilterFailed),
            });
        }
    }
}

impl Model {
    fn new(p: &mut Partition) -> Self {
        let mut subscriptions = BTreeMap::new();
        for name in SUBSCRIPTIONS {
            let options = BusQueueOptions {
                requires_session: name == "sessions",
                dead_letters_filter_failures: name != "silent",
                ..BusQueueOptions::default()
            };
            p.subscribe(name, options).unwrap();
            let default = compiled(&new_rule(NAMES[0], "true", ""));
            let of_model = OfModel {
                rules: vec![default],
                ..OfModel::default()
            };
            subscriptions.insert(name, of_model);
        }
        Self { subscriptions }
    }

    fn of(&mut self, of: usize) -> &mut OfModel {
        self.subscriptions.get_mut(SUBSCRIPTIONS[of]).unwrap()
    }

    fn step(&mut self, p: &mut Partition, step: &Step) {
        match *step {
            Step::Put(of, name, filter, action) => {
                let rule = new_rule(NAMES[name], FILTERS[filter], ACTIONS[action]);
                let rules = &mut self.of(of).rules;
                let answer = match rules.iter().position(|it| it.name == NAMES[name]) {
                    Some(old) => {
                        rules.remove(old);
                        p.set_rule(SUBSCRIPTIONS[of], rule.clone())
                    }
                    None => p.add_rule(SUBSCRIPTIONS[of], rule.clone()),
                };
                answer.unwrap();
                self.of(of).rules.push(compiled(&rule));
            }
            Step::Remove(of, name) => {
                let rules = &mut self.of(of).rules;
                let before = rules.len();
                rules.retain(|it| it.name != NAMES[name]);
                let is_there = rules.len() < before;
                let removed = p.remove_rule(SUBSCRIPTIONS[of], NAMES[name]);
                assert_eq!(removed.is_ok(), is_there);
            }
            Step::Publish(ref messages) => {
                let messages = messages.iter().map(|(color, size, has_session)| {
                    let color = ["red", "blue", "7"][*color];
                    let session = if *has_session {
                        "sys.SessionId=s\n"
                    } else {
                        ""
                    };
                    let text = format!("{session}color={color}\nsize={size}");
                    BusMessage {
                        session: has_session.then(|| "s".into()),
                        ..super::text(&text)
                    }
                });
                let messages: Vec<_> = messages.collect();
                p.publish(messages.clone()).unwrap();
                for message in messages {
                    let text = std::str::from_utf8(&message.body).unwrap();
                    for (name, of_model) in &mut self.subscriptions {
                        of_model.publish(name, text, message.session.as_deref());
                    }
                }
            }
            Step::Take(of, is_dead) => {
                let name = SUBSCRIPTIONS[of];
                let (queue, known) = match is_dead {
                    true => (dead_of(name), &mut self.of(of).dead),
                    false => (subscription(name), &mut self.of(of).live),
                };
                if name == "sessions" && !is_dead {
                    return;
                }
                let count = p.receive_from(&queue, None);
                for lock in locks(&count) {
                    let settled = p.settle_in(&queue, lock, Disposition::Complete);
                    assert_eq!(settled, Verdict::Settled);
                    known.remove(0);
                }
            }
            Step::Bury(of) => {
                let name = SUBSCRIPTIONS[of];
                if name == "sessions" {
                    return;
                }
                for lock in locks(&p.receive_from(&subscription(name), None)) {
                    let overlay = Some(Bytes::from_static(b"+buried=1\n"));
                    let buried = Disposition::DeadLetter { overlay };
                    p.settle_in(&subscription(name), lock, buried);
                    let of_model = self.of(of);
                    let mut message = of_model.live.remove(0);
                    message.changes.push_str("+buried=1\n");
                    message.cause = Some(DeadLetterCause::ByReceiver);
                    of_model.dead.push(message);
                }
            }
        }
    }

    fn check(&self, p: &mut Partition) {
        for (name, of_model) in &self.subscriptions {
            for (queue, expected) in [
                (subscription(name), &of_model.live),
                (dead_of(name), &of_model.dead),
            ] {
                let messages = p.peeked(queue);
                let shown = messages.iter().map(|message| {
                    let changes = message.overlays.iter().map(|it| p.bytes(*it));
                    Expected {
                        text: p.bytes(message.body),
                        changes: changes.collect(),
                        cause: message.cause,
                    }
                });
                let shown: Vec<_> = shown.collect();
                assert_eq!(&shown, expected, "{name}");
            }
        }
    }
}

proptest! {
    #[test]
    fn copies_are_those_of_each_rule(
        steps in proptest::collection::vec((step(), meanwhile()), 1..50),
    ) {
        let mut p = Partition::with_topic(BusQueueOptions::default());
        let mut model = Model::new(&mut p);
        let mut snapshots = UnderWay::default();
        for (step, meanwhile) in steps {
            model.step(&mut p, &step);
            snapshots.pass(&mut p.state, meanwhile);
            // Some copies are not made at once.
            p.tick();
            model.check(&mut p);
            p.check_kept();
        }
        snapshots.finish(&mut p.state);
        p.check_rules();
        p.delete(topic()).unwrap();
        prop_assert_eq!(p.state.live_bytes(), 0);
        prop_assert_eq!(&p.replayed(), &p.state);
    }
}
