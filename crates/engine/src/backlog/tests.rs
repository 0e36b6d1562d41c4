use proptest::prelude::*;

use super::*;
use crate::{BodyEncoding, BodyLocation, LeaseGeneration};

fn message(inserted_at: u64, expires_at: Timestamp, delay_ms: u64) -> Message {
    let inserted_at = Timestamp::from_ms(inserted_at);
    Message {
        inserted_at,
        expires_at,
        visible_at: inserted_at.plus_ms(delay_ms),
        body: BodyLocation {
            record: 0,
            offset: 0,
            length: 0,
        },
        generation: LeaseGeneration::FIRST,
        delivery_count: 0,
        encoding: BodyEncoding::Text,
        placement: if delay_ms == 0 {
            Placement::Fresh
        } else {
            Placement::Timed
        },
    }
}

/// What a backlog is, without runs, cursors or indexes.
#[derive(Default)]
struct Model(BTreeMap<u64, Message>);

impl Model {
    fn visible(&self, now: Timestamp) -> Vec<u64> {
        let mut visible: Vec<_> = self
            .0
            .iter()
            .filter(|(_, message)| message.visible_at <= now && message.expires_at > now)
            .map(|(number, message)| (message.visible_at, *number))
            .collect();
        visible.sort_unstable();
        visible.into_iter().map(|(_, number)| number).collect()
    }
}

impl Backlog {
    fn check_invariants(&self) {
        let messages: Vec<_> = self.messages().collect();
        assert_eq!(messages.len() as u64, self.count);
        assert!(self.runs.values().all(|run| run.live > 0));
        let fresh = messages
            .iter()
            .find(|(_, message)| message.placement == Placement::Fresh);
        assert_eq!(
            self.fresh_from,
            fresh.map_or(self.next, |(number, _)| *number)
        );
        let timed: BTreeSet<_> = messages
            .iter()
            .filter(|(_, message)| message.placement == Placement::Timed)
            .map(|(number, message)| (message.visible_at, *number))
            .collect();
        assert!(self.timed.iter().eq(&timed));
        for (number, run) in &self.runs {
            let is_fresh = |message: &Message| message.placement == Placement::Fresh;
            let fresh = run.messages().filter(|(_, message)| is_fresh(message));
            assert_eq!(run.fresh, fresh.count());
            for (_, message) in run.messages() {
                assert!(run.expires_first <= message.expires_at);
                assert!(run.expires_last >= message.expires_at);
            }
            let due = (run.expires_first, *number);
            assert_eq!(
                self.expiries.contains(&due),
                run.expires_first != Timestamp::NEVER
            );
        }
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
    fn behaves_as_the_plain_model(steps in prop::collection::vec(step(), 1..600)) {
        let mut backlog = Backlog::starting_at(SequenceNumber::FIRST);
        let mut model = Model::default();
        let mut now = Timestamp::from_ms(100);
        for step in steps {
            match step {
                Step::Push { ttl_ms, delay_ms } => {
                    let expires_at = ttl_ms.map_or(Timestamp::NEVER, |ms| now.plus_ms(ms));
                    let message = message(now.as_ms(), expires_at, delay_ms);
                    let number = backlog.next();
                    backlog.push(number, message.clone());
                    model.0.insert(number.as_u64(), message);
                }
                Step::Receive { hidden_ms } => {
                    let first = backlog.visible(now).next().map(|(number, _)| number);
                    if let Some(number) = first {
                        let until = now.plus_ms(hidden_ms);
                        backlog.lease(number, until, |message| message.delivery_count += 1);
                        let message = model.0.get_mut(&number.as_u64()).unwrap();
                        message.visible_at = until;
                        message.delivery_count += 1;
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
                    while let Some(run) = backlog.run_to_expire(now) {
                        backlog.expire_run(run, now);
                    }
                    model.0.retain(|_, message| message.expires_at > now);
                    prop_assert_eq!(backlog.count(), model.0.len() as u64);
                }
                Step::Clear => {
                    backlog.clear(backlog.next());
                    model.0.clear();
                }
                Step::Wait { ms } => now = now.plus_ms(ms),
            }
            let visible: Vec<_> = backlog.visible(now).map(|(number, _)| number.as_u64()).collect();
            prop_assert_eq!(visible, model.visible(now));
        }
        backlog.check_invariants();
    }
}

#[test]
fn clearing_up_to_a_number_keeps_what_came_later() {
    let mut backlog = Backlog::starting_at(SequenceNumber::FIRST);
    for number in 1..=300 {
        backlog.push(SequenceNumber::new(number), message(0, Timestamp::NEVER, 0));
    }
    backlog.clear(SequenceNumber::new(200));
    backlog.check_invariants();
    let first = backlog
        .visible(Timestamp::ZERO)
        .next()
        .map(|(number, _)| number.as_u64());
    assert_eq!((first, backlog.count()), (Some(200), 101));
}
