use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;

use proptest::prelude::*;

use super::*;
use crate::effect::{Bodies, Lease, Was};
use crate::storage::message::{timed_at, until};
use crate::storage::{Effect, OwnEffect};
use crate::table::{BodyEncoding, CountUnit, Live, Placed, RunLength};
use crate::vocabulary::{BodyLocation, Incarnation, Place};

fn message(now: u64, expires_at: Timestamp, delay_ms: u64) -> Message {
    let now = Timestamp::from_ms(now);
    let due_at = (delay_ms > 0).then(|| now.plus_ms(delay_ms));
    let location = BodyLocation::new(now.as_ms() << 20, 0, 7);
    let body = Placed {
        encoding: BodyEncoding::Text,
        location,
    };
    Message(Message::arrived(now, expires_at, due_at, body))
}

/// What a backlog is, without runs, cursors or indexes.
#[derive(Default)]
struct Model(BTreeMap<u64, Message>);

impl Model {
    fn visible(&self, now: Timestamp) -> Vec<u64> {
        let mut visible: Vec<_> = self
            .0
            .iter()
            .filter(|(_, message)| message.due_at <= now && message.expires_at > now)
            .map(|(number, message)| (message.due_at, *number))
            .collect();
        visible.sort_unstable();
        visible.into_iter().map(|(_, number)| number).collect()
    }
}

fn place(number: SequenceNumber) -> Place {
    Place {
        entity: Incarnation::new(1),
        number,
    }
}

/// A backlog, and what is counted for it.
struct Counted {
    backlog: Backlog,
    live: Live,
}

impl Deref for Counted {
    type Target = Backlog;

    fn deref(&self) -> &Backlog {
        &self.backlog
    }
}

impl Counted {
    fn starting_at(length: RunLength, next: SequenceNumber) -> Self {
        Self {
            backlog: Backlog::of(Stored, length, next),
            live: Live::new(CountUnit::DEFAULT),
        }
    }

    fn push(&mut self, number: SequenceNumber, message: Message) {
        let to = place(number);
        let message = message.0.into();
        self.apply(&Effect::Arrived { to, message });
    }

    fn apply(&mut self, effect: &Effect) {
        self.backlog.apply(effect, &mut self.live);
    }

    fn end_range(&mut self, from: SequenceNumber, until: SequenceNumber) {
        let entity = Incarnation::new(1);
        self.apply(&Effect::Own(OwnEffect::RangeEnded {
            entity,
            from,
            until,
        }));
    }

    fn check(&self) {
        self.check_invariants();
        self.table().check_spreads(&self.live);
    }

    /// Changes that carry what is true of the message.
    fn lease_until(&mut self, number: SequenceNumber, until: Timestamp) {
        let message = self.find(number).unwrap();
        let effect = message.leased(place(number), message.next_delivery(until), None);
        self.apply(&effect);
    }

    fn remove(&mut self, number: SequenceNumber) {
        let effect = self.find(number).unwrap().ended(place(number));
        self.apply(&effect);
    }

    fn expire(&mut self, now: Timestamp) {
        while let Some(run) = self.run_to_expire(now) {
            let expired = self.expired(Incarnation::new(1), run, now);
            for effect in expired.iter().flat_map(|expired| expired.effects.iter()) {
                self.apply(effect);
            }
            self.backlog.raise_expiry(run);
        }
    }
}

impl Backlog {
    pub(crate) fn check_invariants(&self) {
        let is_fresh = |record: &Record| timed_at(record).is_none();
        self.table().check(is_fresh, |record| record.expires_at);
        let timed: BTreeSet<_> = self
            .messages()
            .filter_map(|(number, message)| Some((timed_at(&message)?, number)))
            .collect();
        assert!(self.timed().iter().eq(&timed));
    }
}

#[derive(Clone, Debug)]
enum Step {
    Push { ttl_ms: Option<u64>, delay_ms: u64 },
    Receive { hidden_ms: u64 },
    Remove { nth: usize },
    Expire,
    Clear,
    Wait { ms: u64 },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (prop::option::of(1u64..50), prop_oneof![3 => Just(0u64), 1 => 1u64..20])
            .prop_map(|(ttl_ms, delay_ms)| Step::Push { ttl_ms, delay_ms }),
        4 => (0u64..20).prop_map(|hidden_ms| Step::Receive { hidden_ms }),
        3 => (0usize..300).prop_map(|nth| Step::Remove { nth }),
        1 => Just(Step::Expire),
        1 => (0u8..20).prop_map(|n| if n == 0 { Step::Clear } else { Step::Expire }),
        3 => (0u64..10).prop_map(|ms| Step::Wait { ms }),
    ]
}

proptest! {
    #[test]
    fn behaves_as_the_plain_model(
        tiny in any::<bool>(),
        steps in prop::collection::vec(step(), 1..600),
    ) {
        let length = if tiny { RunLength::TINY } else { RunLength::DEFAULT };
        let mut backlog = Counted::starting_at(length, SequenceNumber::FIRST);
        let mut model = Model::default();
        let mut now = Timestamp::from_ms(100);
        for step in steps {
            match step {
                Step::Push { ttl_ms, delay_ms } => {
                    let expires_at = ttl_ms.map_or(Timestamp::NEVER, |ms| now.plus_ms(ms));
                    let message = message(now.as_ms(), expires_at, delay_ms);
                    let number = backlog.next();
                    backlog.push(number, message);
                    model.0.insert(number.as_u64(), message);
                }
                Step::Receive { hidden_ms } => {
                    let first = backlog.visible(now).next().map(|(number, _)| number);
                    if let Some(number) = first {
                        let until = now.plus_ms(hidden_ms);
                        backlog.lease_until(number, until);
                        let message = model.0.get_mut(&number.as_u64()).unwrap();
                        let lease = message.next_delivery(until);
                        message.0.generation = lease.generation;
                        message.0.deliveries = lease.deliveries;
                        message.0.state = lease.standing.state;
                        message.0.due_at = until;
                    }
                }
                Step::Remove { nth } => {
                    let number = model.0.keys().nth(nth).copied();
                    if let Some(number) = number {
                        backlog.remove(SequenceNumber::new(number));
                        model.0.remove(&number);
                    }
                }
                Step::Expire => {
                    backlog.expire(now);
                    model.0.retain(|_, message| message.expires_at > now);
                    prop_assert_eq!(backlog.count(), model.0.len() as u64);
                }
                Step::Clear => {
                    let all = backlog.all_ended(Incarnation::new(1));
                    prop_assert_eq!(all.is_some(), !model.0.is_empty());
                    if let Some(all) = all {
                        backlog.apply(&all);
                    }
                    model.0.clear();
                }
                Step::Wait { ms } => now = now.plus_ms(ms),
            }
            let visible: Vec<_> = backlog.visible(now).map(|(number, _)| number.as_u64()).collect();
            prop_assert_eq!(visible, model.visible(now));
        }
        let messages = backlog.messages().map(|(number, it)| (number.as_u64(), it));
        prop_assert_eq!(messages.collect::<BTreeMap<_, _>>(), model.0);
        backlog.check();
    }

    /// In a replay from pieces of different age, the order of runs is not that of events, and `next` says
    /// nothing about a run.
    #[test]
    fn messages_may_arrive_in_any_order(mut numbers in Just((1..400_u64).collect::<Vec<_>>()).prop_shuffle()) {
        let mut backlog = Counted::starting_at(RunLength::UNTOLD, SequenceNumber::new(10_000));
        let gone = numbers.split_off(300);
        for number in numbers.iter().chain(&gone) {
            let message = message(*number, Timestamp::from_ms(1000), number % 3);
            backlog.push(SequenceNumber::new(*number), message);
        }
        for number in &gone {
            backlog.remove(SequenceNumber::new(*number));
        }
        backlog.check();
        numbers.sort_unstable();
        let found = backlog.messages().map(|(number, _)| number.as_u64());
        prop_assert_eq!(found.collect::<Vec<_>>(), numbers);
        prop_assert_eq!(backlog.next().as_u64(), 10_000);
    }
}

fn backlog_of(count: u64) -> Counted {
    let mut backlog = Counted::starting_at(RunLength::UNTOLD, SequenceNumber::FIRST);
    for number in 1..=count {
        backlog.push(SequenceNumber::new(number), message(0, Timestamp::NEVER, 0));
    }
    backlog
}

fn numbers(backlog: &Backlog) -> Vec<u64> {
    let messages = backlog.messages();
    messages.map(|(number, _)| number.as_u64()).collect()
}

#[test]
fn a_range_ends_the_runs_that_it_covers_whole() {
    let mut backlog = backlog_of(300);
    backlog.end_range(SequenceNumber::new(100), SequenceNumber::new(290));
    backlog.check();
    let left: Vec<u64> = (1..128).chain(256..=300).collect();
    assert_eq!(numbers(&backlog), left);
    let first = backlog.visible(Timestamp::ZERO).next();
    assert_eq!(first.map(|(number, _)| number.as_u64()), Some(1));
    backlog.end_range(SequenceNumber::new(1), SequenceNumber::new(128));
    backlog.check();
    let first = backlog.visible(Timestamp::ZERO).next();
    assert_eq!(first.map(|(number, _)| number.as_u64()), Some(256));
    // A range that ends before it begins is none.
    backlog.end_range(SequenceNumber::new(301), SequenceNumber::new(1));
    backlog.end_range(SequenceNumber::new(0), SequenceNumber::new(301));
    backlog.check();
    assert_eq!(numbers(&backlog), []);
    assert_eq!(backlog.next().as_u64(), 301);
}

#[test]
fn an_effect_on_a_message_that_is_not_there_changes_nothing() {
    let mut backlog = backlog_of(3);
    let gone = SequenceNumber::new(2);
    let ended = backlog.find(gone).unwrap().ended(place(gone));
    let message = backlog.find(gone).unwrap();
    let leased = message.leased(place(gone), message.next_delivery(Timestamp::NEVER), None);
    backlog.apply(&ended);
    for effect in [ended, leased] {
        backlog.apply(&effect);
        backlog.check();
        assert_eq!(numbers(&backlog), [1, 3]);
    }
    // A number that is taken keeps its message.
    let again = message_at(5);
    backlog.push(SequenceNumber::new(1), again);
    backlog.check();
    let first = backlog.find(SequenceNumber::new(1)).unwrap();
    assert_eq!(first.enqueued_at, Timestamp::ZERO);
}

fn message_at(inserted_at: u64) -> Message {
    message(inserted_at, Timestamp::NEVER, 0)
}

/// One message of each thousand has not expired, so no run has expired as a whole.
#[test]
fn a_receiver_passes_over_a_bounded_number_of_expired_messages() {
    let count = SCAN_MAX as u64 + 5_000;
    for delay_ms in [0, 5] {
        let mut backlog = Counted::starting_at(RunLength::DEFAULT, SequenceNumber::FIRST);
        for number in 1..=count {
            let expires_at = match number % 1000 {
                0 => Timestamp::NEVER,
                _ => Timestamp::from_ms(10),
            };
            backlog.push(
                SequenceNumber::new(number),
                message(0, expires_at, delay_ms),
            );
        }
        let now = Timestamp::from_ms(20);
        assert_eq!(backlog.visible(now).count() as u64, SCAN_MAX as u64 / 1000);
        assert_eq!(backlog.visible(Timestamp::from_ms(6)).count(), SCAN_MAX);
    }
}

/// Wrong events cannot come from this version. They must not stop a start.
#[test]
fn an_effect_that_is_wrong_about_the_old_message_stops_nothing() {
    let was = Was {
        standing: until(Timestamp::from_ms(77)),
        session: 0,
    };
    let bodies = Bodies {
        sent: BodyLocation::new(0, 0, u32::MAX),
        overlays: Vec::new(),
    };
    let mut backlog = backlog_of(3);
    let number = SequenceNumber::new(2);
    let effects = [
        Effect::Leased {
            at: place(number),
            lease: Lease {
                generation: LeaseGeneration::FIRST,
                deliveries: 1,
                standing: until(Timestamp::from_ms(9)),
            },
            body: None,
            was,
        },
        Effect::Ended {
            at: place(number),
            was,
            bodies,
            source_length: None,
        },
    ];
    for effect in effects {
        backlog.apply(&effect);
    }
    assert_eq!(numbers(&backlog), [1, 3]);
    assert_eq!(backlog.visible(Timestamp::from_ms(100)).count(), 2);
    assert_eq!(backlog.count(), 2);
}

#[test]
fn a_run_of_which_all_has_expired_ends_by_its_counts() {
    let mut backlog = Counted::starting_at(RunLength::UNTOLD, SequenceNumber::FIRST);
    let soon = Timestamp::from_ms(10);
    for number in 1..=200 {
        backlog.push(SequenceNumber::new(number), message(0, soon, 0));
    }
    let entity = Incarnation::new(1);
    let whole = backlog.expired(entity, 0, soon);
    let range = Effect::Own(OwnEffect::RangeEnded {
        entity,
        from: SequenceNumber::new(1),
        until: SequenceNumber::new(128),
    });
    let whole = whole.unwrap();
    assert_eq!(
        (whole.effects, whole.count, whole.looks),
        (range.into(), 127, 0)
    );
    // A message in the order by time must leave it: the range would not say which.
    backlog.lease_until(SequenceNumber::new(5), Timestamp::from_ms(20));
    let some = backlog.expired(entity, 0, soon).unwrap();
    assert_eq!(
        (some.effects.len(), some.count, some.looks),
        (expiry::ENDED_COUNT_MAX, 16, 16)
    );
    backlog.expire(soon);
    backlog.check();
    assert_eq!(numbers(&backlog), []);
}
