//! A random client of a topic against a model: which message is in which subscription, and in which state.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;
use crate::snapshot::tests::{UnderWay, meanwhile};

const NAMES: [&str; 4] = ["a", "b", "c", "d"];
const DELIVERIES_MAX: u32 = 2;

/// What the client does next.
#[derive(Clone, Debug)]
enum Step {
    Subscribe(usize, Chosen),
    Update(usize, Chosen),
    UpdateTopic {
        lives_ms: u64,
    },
    Unsubscribe(usize),
    DeleteTopic,
    /// So many messages, with one of a few ids.
    Publish(u8, u8),
    Receive {
        which: usize,
        is_dead: bool,
    },
    Settle {
        which: usize,
        how: u8,
    },
    Tick,
}

/// Settings of a subscription that differ from the defaults.
#[derive(Clone, Debug)]
struct Chosen {
    requires_session: bool,
    dead_letters_filter_failures: bool,
    dead_letters_expired: bool,
    default_time_to_live_ms: u64,
    auto_delete_on_idle_ms: u64,
}

impl Chosen {
    fn options(&self) -> BusQueueOptions {
        BusQueueOptions {
            max_delivery_count: DELIVERIES_MAX,
            requires_session: self.requires_session,
            dead_letters_filter_failures: self.dead_letters_filter_failures,
            dead_letters_expired: self.dead_letters_expired,
            default_time_to_live_ms: self.default_time_to_live_ms,
            auto_delete_on_idle_ms: self.auto_delete_on_idle_ms,
            ..BusQueueOptions::default()
        }
    }
}

fn chosen() -> impl Strategy<Value = Chosen> {
    // The time of the test stands still, so nothing expires.
    let of_time = || prop_oneof![Just(u64::MAX), 300_000u64..600_000];
    let flags = (prop::bool::weighted(0.2), any::<bool>(), any::<bool>());
    (flags, of_time(), of_time()).prop_map(|((sessions, failures, expired), lives_ms, idle_ms)| {
        Chosen {
            requires_session: sessions,
            dead_letters_filter_failures: failures,
            dead_letters_expired: expired,
            default_time_to_live_ms: lives_ms,
            auto_delete_on_idle_ms: idle_ms,
        }
    })
}

fn step() -> impl Strategy<Value = Step> {
    let which = || 0..NAMES.len();
    prop_oneof![
        3 => (which(), chosen()).prop_map(|(which, chosen)| Step::Subscribe(which, chosen)),
        2 => (which(), chosen()).prop_map(|(which, chosen)| Step::Update(which, chosen)),
        1 => (300_000u64..600_000).prop_map(|lives_ms| Step::UpdateTopic { lives_ms }),
        1 => which().prop_map(Step::Unsubscribe),
        1 => Just(Step::DeleteTopic),
        6 => (1u8..4, 0u8..40).prop_map(|(count, id)| Step::Publish(count, id)),
        4 => (which(), any::<bool>()).prop_map(|(which, is_dead)| Step::Receive { which, is_dead }),
        6 => (any::<usize>(), 0u8..4).prop_map(|(which, how)| Step::Settle { which, how }),
        1 => Just(Step::Tick),
    ]
}

/// A message of a subscription, in the order of its number.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Known {
    text: String,
    /// Its number in the topic.
    first: u64,
    failed: u32,
    is_locked: bool,
}

/// The messages of a subscription, and its dead letters.
#[derive(Debug, Default)]
struct Messages {
    /// Whether it takes only messages of sessions. What is published here has none.
    requires_session: bool,
    live: BTreeMap<u64, Known>,
    dead: BTreeMap<u64, Known>,
    /// The last numbers of both.
    last: (u64, u64),
}

impl Messages {
    fn publish(&mut self, text: String, first: u64) {
        let known = Known {
            text,
            first,
            failed: 0,
            is_locked: false,
        };
        if self.requires_session {
            return self.bury(known);
        }
        self.last.0 += 1;
        self.live.insert(self.last.0, known);
    }

    fn bury(&mut self, known: Known) {
        self.last.1 += 1;
        let known = Known {
            is_locked: false,
            ..known
        };
        self.dead.insert(self.last.1, known);
    }
}

#[derive(Default)]
struct Model {
    subscriptions: BTreeMap<&'static str, Messages>,
    /// Each lock, with the entity and the number of its message.
    held: Vec<(Token, &'static str, bool, u64)>,
    published: u32,
    /// The last number of the topic, and the ids that it remembers: all, because no time passes.
    last: u64,
    ids: BTreeSet<u8>,
}

/// The topic detects duplicates.
fn topic_options() -> BusQueueOptions {
    BusQueueOptions {
        duplicate_window_ms: Some(20_000),
        ..BusQueueOptions::default()
    }
}

fn entity_of(name: &str, is_dead: bool) -> EntityName {
    match is_dead {
        true => dead_of(name),
        false => subscription(name),
    }
}

impl Model {
    fn step(&mut self, p: &mut Partition, step: &Step) {
        match *step {
            Step::Subscribe(which, ref chosen) => {
                let is_there = self.subscriptions.contains_key(NAMES[which]);
                let created = p.subscribe(NAMES[which], chosen.options());
                assert_eq!(created.is_err(), is_there);
                let new = Messages {
                    requires_session: chosen.requires_session,
                    ..Messages::default()
                };
                self.subscriptions.entry(NAMES[which]).or_insert(new);
            }
            Step::Update(which, ref chosen) => {
                let known = self.subscriptions.get(NAMES[which]);
                let is_allowed = known.map(|it| it.requires_session == chosen.requires_session);
                let options = chosen.options();
                let updated = p.ask(BusCommand::UpdateQueue {
                    queue: subscription(NAMES[which]),
                    options: options.clone(),
                });
                assert_eq!(updated.is_ok(), is_allowed.unwrap_or(false));
                if let Ok(BusOutcome::QueueUpdated(view)) = updated {
                    assert_eq!(view.options, options);
                }
            }
            Step::UpdateTopic { lives_ms } => {
                let options = BusQueueOptions {
                    default_time_to_live_ms: lives_ms,
                    ..topic_options()
                };
                let queue = topic();
                p.ask(BusCommand::UpdateQueue { queue, options }).unwrap();
            }
            Step::Unsubscribe(which) => {
                let was_there = self.subscriptions.remove(NAMES[which]).is_some();
                let deleted = p.delete(subscription(NAMES[which]));
                assert_eq!(deleted.is_ok(), was_there);
                self.held.retain(|(_, name, ..)| *name != NAMES[which]);
            }
            Step::DeleteTopic => {
                p.delete(topic()).unwrap();
                p.create_topic(topic_options()).unwrap();
                let published = self.published;
                *self = Self {
                    published,
                    ..Self::default()
                };
            }
            Step::Publish(count, id) => self.publish(p, count, id),
            Step::Receive { which, is_dead } => self.receive(p, NAMES[which], is_dead),
            Step::Settle { which, how } => self.settle(p, which, how),
            Step::Tick => p.tick(),
        }
    }

    /// All messages have the same id, or none has one.
    fn publish(&mut self, p: &mut Partition, count: u8, id: u8) {
        let has_id = id.is_multiple_of(2);
        let (mut messages, mut expected) = (Vec::new(), Vec::new());
        for _ in 0..count {
            self.published += 1;
            let body = self.published.to_string();
            messages.push(BusMessage {
                message_id: has_id.then(|| id.to_string().into()),
                ..text(&body)
            });
            if has_id && !self.ids.insert(id) {
                expected.push(None);
                continue;
            }
            self.last += 1;
            expected.push(Some(SequenceNumber::new(self.last)));
            for copies in self.subscriptions.values_mut() {
                copies.publish(body.clone(), self.last);
            }
        }
        assert_eq!(p.publish(messages), Ok(BusOutcome::Sent(expected)));
    }

    /// A topic has the ids that it remembers, what waits in it, and what its subscriptions have besides bodies that others
    /// count; or as much as the largest of them.
    fn check_size(&self, p: &mut Partition) {
        let (mut own, mut charges, mut largest) = (128 * self.ids.len() as u64, 0, 0);
        let sizes = |entity: &EntityName| {
            let incarnation = p.state.catalogue.find(entity).unwrap();
            let table = p.state.bus[&incarnation].backlog.table();
            let sizes = table.entries().map(|entry| {
                let size_bytes = entry.size_bytes();
                (size_bytes, size_bytes - entry.borrowed_bytes())
            });
            sizes.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
        };
        own += sizes(&topic()).0;
        for name in self.subscriptions.keys() {
            let [first, dead] = [false, true].map(|is_dead| sizes(&entity_of(name, is_dead)));
            charges += first.1 + dead.1;
            largest = largest.max(first.0 + dead.0);
        }
        let size_bytes = own + charges.max(largest);
        assert_eq!(p.view(&topic()).counts.size_bytes, size_bytes);
    }

    fn receive(&mut self, p: &mut Partition, name: &'static str, is_dead: bool) {
        let Some(messages) = self.subscriptions.get_mut(name) else {
            return;
        };
        if messages.requires_session && !is_dead {
            return;
        }
        let of = match is_dead {
            true => &mut messages.dead,
            false => &mut messages.live,
        };
        let expected = of.iter_mut().filter(|(_, known)| !known.is_locked).take(10);
        let received = p.receive_from(&entity_of(name, is_dead), None);
        let mut count = 0;
        for ((number, known), message) in expected.zip(&received) {
            assert_eq!(message.sequence_number.as_u64(), *number);
            assert_eq!(p.body(message), known.text);
            assert_eq!(message.delivery_count, known.failed);
            known.is_locked = true;
            let held = (message.lock.unwrap(), name, is_dead, *number);
            self.held.push(held);
            count += 1;
        }
        assert_eq!(received.len(), count);
    }

    fn settle(&mut self, p: &mut Partition, which: usize, how: u8) {
        if self.held.is_empty() {
            return;
        }
        let (lock, name, is_dead, number) = self.held.swap_remove(which % self.held.len());
        let disposition = match how {
            0 => Disposition::Complete,
            1 => Disposition::Abandon { overlay: None },
            2 => Disposition::DeadLetter { overlay: None },
            _ => Disposition::Release,
        };
        let verdict = p.settle_in(&entity_of(name, is_dead), lock, disposition);
        let messages = self.subscriptions.get_mut(name).unwrap();
        let of = match is_dead {
            true => &mut messages.dead,
            false => &mut messages.live,
        };
        let known = of.get_mut(&number).unwrap();
        if (how, is_dead) == (2, true) {
            // A dead letter stays one.
            assert_eq!(verdict, Verdict::NotAllowed);
            let held = (lock, name, is_dead, number);
            return self.held.push(held);
        }
        assert_eq!(verdict, Verdict::Settled);
        known.is_locked = false;
        known.failed += u32::from(how == 1);
        let is_last = known.failed >= DELIVERIES_MAX && how == 1 && !is_dead;
        if how == 0 {
            of.remove(&number);
        } else if how == 2 || is_last {
            let known = of.remove(&number).unwrap();
            messages.bury(known);
        }
    }

    /// Each subscription has what it must have, and there are no others.
    fn check(&self, p: &mut Partition) {
        let all = p.state.bus.values();
        let names: Vec<_> = all.filter(|it| it.role.is_first()).collect();
        assert_eq!(names.len(), 1 + self.subscriptions.len());
        assert_eq!(p.state.bus.len(), 3 * (1 + self.subscriptions.len()));
        for (name, messages) in &self.subscriptions {
            for (is_dead, expected) in [(false, &messages.live), (true, &messages.dead)] {
                let peeked = p.ask(BusCommand::Peek {
                    queue: entity_of(name, is_dead),
                    from: SequenceNumber::default(),
                    count: u32::MAX,
                    session: None,
                });
                let Ok(BusOutcome::Peeked(peeked)) = peeked else {
                    panic!("{peeked:?}");
                };
                let shown = peeked.iter().map(|message| {
                    let body = &p.log.bodies[usize::try_from(message.body.record).unwrap()];
                    let known = Known {
                        text: String::from_utf8(body.clone()).unwrap(),
                        first: message.first_sequence_number.as_u64(),
                        failed: message.delivery_count,
                        is_locked: matches!(message.state, BusMessageState::Locked { .. }),
                    };
                    (message.sequence_number.as_u64(), known)
                });
                assert_eq!(&shown.collect::<BTreeMap<_, _>>(), expected);
            }
        }
    }
}

proptest! {
    #[test]
    fn copies_are_those_of_a_model(
        steps in proptest::collection::vec((step(), meanwhile()), 1..80),
    ) {
        let mut p = Partition::with_topic(topic_options());
        let (mut model, mut snapshots) = (Model::default(), UnderWay::default());
        for (step, meanwhile) in steps {
            model.step(&mut p, &step);
            snapshots.pass(&mut p.state, meanwhile);
            model.check(&mut p);
            for queue in p.state.bus.values() {
                queue.backlog.check();
            }
            overview::check(&mut p.state, p.now);
            p.check_kept();
            model.check_size(&mut p);
        }
        snapshots.finish(&mut p.state);
        prop_assert_eq!(&p.replayed(), &p.state);
        prop_assert_eq!(&p.restored(), &p.state);
        p.delete(topic()).unwrap();
        prop_assert_eq!(p.state.bus.len(), 0);
        prop_assert_eq!(p.state.live_bytes(), 0);
        prop_assert_eq!(&p.replayed(), &p.state);
    }
}
