//! Rules and messages that wait in their topic: which rules count, and what they need.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;
use crate::bus::DeadLetterCause;
use crate::turn::Ticked;
use crate::vocabulary::BodyLocation;

impl Partition {
    /// The texts of a subscription's messages in their order, and the rules that changed them.
    pub(super) fn copies_in(&self, name: &str) -> Vec<(String, Option<String>)> {
        let Some(of) = self.state.catalogue.find(&subscription(name)) else {
            return Vec::new();
        };
        let text = |body: BodyLocation| {
            let bytes = self.log.bodies[usize::try_from(body.record).unwrap()].clone();
            String::from_utf8(bytes).unwrap()
        };
        let messages = self.state.bus[&of].backlog.messages();
        let copies = messages.map(|message| {
            let rule = message.overlays().first().map(|overlay| {
                let text = text(*overlay);
                let (_, rule) = text.split_once("RuleName=").unwrap();
                rule.trim().to_owned()
            });
            (text(message.body), rule)
        });
        copies.collect()
    }
}

#[test]
fn rules_that_change_while_a_message_waits_do_not_count() {
    let mut p = Partition::with_topic(BusQueueOptions::default());
    p.subscribe_all(&["a", "b"]);
    p.remove_rule("b", "$Default").unwrap();
    p.add_rule("b", rule("red", correlation("red"))).unwrap();
    p.copies_at_once = 0;
    p.publish(vec![text("color=red"), text("color=blue")])
        .unwrap();
    p.set_rule("a", rule("$Default", correlation("blue")))
        .unwrap();
    p.set_rule("b", rule("red", FilterDefinition::True))
        .unwrap();
    p.add_rule("b", with_action("more", "SET x = 1")).unwrap();
    p.publish(vec![text("color=green"), text("color=blue")])
        .unwrap();
    assert_eq!(p.of_topic().retired_count(), 2);
    p.check_rules();
    while p.tick_once(2) {
        p.check_rules();
    }
    assert_eq!(p.of_topic().retired_count(), 0);
    let plain = |text: &str| (text.to_owned(), None);
    let changed = |text: &str| (text.to_owned(), Some("more".to_owned()));
    let [red, blue, green] = ["color=red", "color=blue", "color=green"];
    assert_eq!(p.copies_in("a"), [red, blue, blue].map(plain));
    let of_b = [
        plain(red),
        plain(green),
        changed(green),
        plain(blue),
        changed(blue),
    ];
    assert_eq!(p.copies_in("b"), of_b);
    p.check_rules();
}

/// Nobody can say which rules select it. The messages behind it go on.
#[test]
fn a_damaged_message_moves_to_the_failed_transfers_of_its_topic() {
    let mut p = Partition::with_topic(BusQueueOptions::default());
    p.subscribe_all(&["a"]);
    p.set_rule("a", rule("$Default", correlation("red")))
        .unwrap();
    p.copies_at_once = 0;
    p.publish(vec![text("color=red"); 2]).unwrap();
    let of = p.topic_incarnation();
    let first = p.state.bus[&of].backlog.messages().next().unwrap().body;
    p.log.damaged.insert(first);
    if let Some(cold) = &mut p.cold {
        cold.damage(first);
    }
    p.tick();
    assert_eq!(p.view(&subscription("a")).counts.active, 1);
    let failed = entity("t/$transfer/$deadletterqueue");
    let moved = p.receive_from(&failed, None);
    assert_eq!(moved.len(), 1);
    assert_eq!(moved[0].cause, Some(DeadLetterCause::BodyDamaged));
    assert_eq!(moved[0].body, first);
    p.check_rules();
}

/// A journal that has some bodies only.
struct Unread<'a> {
    log: &'a mut Log,
    read: &'a BTreeSet<BodyLocation>,
}

impl Journal for Unread<'_> {
    fn store_body(&mut self, body: &[u8]) -> BodyLocation {
        self.log.store_body(body)
    }

    fn record(&mut self, event: &Event) {
        self.log.record(event);
    }

    fn body(&mut self, body: BodyLocation) -> BodyRead {
        match self.read.contains(&body) {
            true => self.log.body(body),
            false => BodyRead::Missing,
        }
    }

    fn bytes(&mut self, body: BodyLocation) -> Option<Bytes> {
        self.log.bytes(body)
    }
}

#[test]
fn a_tick_asks_for_bodies_that_rules_look_at() {
    let mut p = Partition::with_topic(BusQueueOptions::default());
    p.subscribe_all(&["a"]);
    p.set_rule("a", rule("$Default", correlation("red")))
        .unwrap();
    p.copies_at_once = 0;
    p.publish(vec![text("color=red"); 100]).unwrap();
    p.cold = None;
    let of = p.topic_incarnation();
    let mut read = BTreeSet::new();
    let tick = |p: &mut Partition, read: &BTreeSet<BodyLocation>| -> Ticked {
        let log = &mut p.log;
        let mut journal = Unread { log, read };
        let turn = Turn::new(&mut p.state, p.now, &mut journal);
        turn.with_format(&Lines).tick(256)
    };
    for count in [0, 64, 100] {
        let active = p.view(&subscription("a")).counts.active;
        assert_eq!(active, count);
        let ticked = tick(&mut p, &read);
        // It rests, and so it asks once.
        assert!(!ticked.more_is_due);
        let Some(bodies) = ticked.bodies.get(&of) else {
            assert_eq!(count, 100);
            return;
        };
        assert_eq!(bodies.len(), if count == 0 { 64 } else { 36 });
        assert_eq!(tick(&mut p, &read), Ticked::default());
        read = bodies.clone();
        p.state.let_rest(of, false);
        while tick(&mut p, &read).more_is_due {}
        p.state.let_rest(of, false);
    }
    panic!("it asks for ever");
}

/// What a client does next.
#[derive(Clone, Debug)]
enum Step {
    /// So many messages of a color.
    Publish(usize, u8),
    /// A rule of that kind in place of the one that there is.
    SetRule(usize, u8),
    Subscribe(usize),
    Unsubscribe(usize),
    Tick(u32),
    /// Hints are lost.
    Restart,
}

const NAMES: [&str; 3] = ["a", "b", "c"];
const COLORS: [&str; 2] = ["red", "blue"];

fn step() -> impl Strategy<Value = Step> {
    let which = || 0..NAMES.len();
    prop_oneof![
        6 => (0..COLORS.len(), 1u8..4).prop_map(|(color, count)| Step::Publish(color, count)),
        4 => (which(), 0u8..6).prop_map(|(which, kind)| Step::SetRule(which, kind)),
        2 => which().prop_map(Step::Subscribe),
        1 => which().prop_map(Step::Unsubscribe),
        4 => (2u32..12).prop_map(Step::Tick),
        1 => Just(Step::Restart),
    ]
}

fn of_kind(kind: u8) -> NewRule {
    let name = "$Default";
    match kind {
        0 => rule(name, FilterDefinition::True),
        1 => rule(name, FilterDefinition::False),
        2 => rule(name, correlation("red")),
        3 => rule(name, sql("color = 'blue'")),
        4 => rule(name, sql("1 / size = 1")),
        _ => with_action(name, "SET x = 1"),
    }
}

/// The kind of a subscription's rule, and its copies: the text of each, and the rule that has changed it.
type Modelled = (u8, Vec<(String, Option<String>)>);

/// The copy that a subscription gets of a message: the rule that changes it, if one does.
fn expected(kind: u8, color: &str) -> Option<Option<String>> {
    match (kind, color) {
        (0, _) | (2, "red") | (3, "blue") => Some(None),
        (5, _) => Some(Some("$Default".to_owned())),
        _ => None,
    }
}

proptest! {
    /// The model gives each message its copies when it is accepted.
    #[test]
    fn each_message_has_the_copies_of_the_rules_at_its_time(
        copies_at_once in 0u64..4,
        steps in prop::collection::vec(step(), 1..60),
    ) {
        let mut p = Partition::with_topic(BusQueueOptions::default());
        p.copies_at_once = copies_at_once;
        let mut model: BTreeMap<usize, Modelled> = BTreeMap::new();
        let mut count = 0;
        for step in steps {
            match step {
                Step::Publish(color, messages) => {
                    let color = COLORS[color];
                    let messages = (0..messages).map(|_| {
                        count += 1;
                        format!("color={color}\nsize=0\nnumber={count}")
                    });
                    let messages: Vec<String> = messages.collect();
                    p.publish(messages.iter().map(|it| text(it)).collect()).unwrap();
                    for (kind, copies) in model.values_mut() {
                        for message in &messages {
                            if let Some(rule) = expected(*kind, color) {
                                copies.push((message.clone(), rule));
                            }
                        }
                    }
                }
                Step::SetRule(which, kind) => {
                    let set = p.set_rule(NAMES[which], of_kind(kind));
                    match model.get_mut(&which) {
                        Some((old, _)) => {
                            prop_assert!(set.is_ok());
                            *old = kind;
                        }
                        None => prop_assert!(set.is_err()),
                    }
                }
                Step::Subscribe(which) => {
                    if p.subscribe(NAMES[which], BusQueueOptions::default()).is_ok() {
                        model.insert(which, (0, Vec::new()));
                    }
                }
                Step::Unsubscribe(which) => {
                    if p.delete(subscription(NAMES[which])).is_ok() {
                        model.remove(&which);
                    }
                }
                Step::Tick(budget) => {
                    p.tick_once(budget);
                }
                Step::Restart => {
                    p.cold = None;
                    p.state = p.restored();
                }
            }
            p.check_rules();
        }
        p.tick();
        for (which, (_, copies)) in &model {
            prop_assert_eq!(&p.copies_in(NAMES[*which]), copies);
        }
        prop_assert_eq!(p.of_topic().retired_count(), 0);
        prop_assert_eq!(p.view(&topic()).counts.active, 0);
        p.check_rules();
    }
}
