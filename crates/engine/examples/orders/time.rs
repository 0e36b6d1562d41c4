//! How long operations take.

#![expect(
    clippy::disallowed_methods,
    reason = "it measures, and decides nothing by the time"
)]

use std::time::{Duration, Instant};

use kew_engine::bus::{BusMessage, BusQueueOptions, Disposition, ReceiveMode};
use kew_engine::{State, Timestamp};

use super::partition::{Failure, Partition};
use super::{bus, storage};

/// How many operations a round has, and how many rounds there are. The least round counts.
const OPERATIONS: u32 = 2000;
const ROUNDS: u32 = 40;

/// The least time of each operation, in the order in which they came first.
#[derive(Default)]
struct Least(Vec<(String, Duration)>);

impl Least {
    fn note(&mut self, what: &str, took: Duration) {
        match self.0.iter_mut().find(|(name, _)| name == what) {
            Some((_, least)) => *least = took.min(*least),
            None => self.0.push((what.into(), took)),
        }
    }

    fn measure<T>(
        &mut self,
        what: &str,
        work: impl FnOnce() -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let began = Instant::now();
        let result = work()?;
        self.note(what, began.elapsed());
        Ok(result)
    }

    fn print(&self) {
        for (what, least) in &self.0 {
            let each_ns = least.as_nanos() / u128::from(OPERATIONS);
            println!("{what}: {each_ns} ns");
        }
    }
}

/// A queue with a backlog, and what its rounds do.
struct Case {
    name: &'static str,
    create: fn(&mut Partition, backlog: usize) -> Result<(), Failure>,
    round: fn(&str, &mut Partition, &mut Least) -> Result<(), Failure>,
}

const CASES: [Case; 5] = [
    Case {
        name: "storage",
        create: |p, backlog| {
            storage::create(p)?;
            (0..backlog).try_for_each(|_| storage::send(p))
        },
        round: storage_round,
    },
    Case {
        name: "bus",
        create: |p, backlog| create_bus(p, backlog, false, bus::message),
        round: bus_round,
    },
    Case {
        name: "bus ttl",
        create: |p, backlog| {
            let message = || BusMessage {
                time_to_live_ms: Some(86_400_000),
                ..bus::message()
            };
            create_bus(p, backlog, false, message)
        },
        round: bus_round,
    },
    Case {
        name: "bus scheduled",
        create: |p, backlog| create_bus(p, backlog, false, bus::message),
        round: scheduled_round,
    },
    Case {
        name: "bus session",
        create: |p, backlog| create_bus(p, backlog, true, || of_session(0)),
        round: session_round,
    },
];

fn create_bus(
    p: &mut Partition,
    backlog: usize,
    requires_session: bool,
    message: impl Fn() -> BusMessage,
) -> Result<(), Failure> {
    let options = BusQueueOptions {
        size_bytes_max: 1 << 50,
        requires_session,
        ..BusQueueOptions::default()
    };
    bus::create(p, options)?;
    (0..backlog).try_for_each(|_| bus::send(p, vec![message()]))
}

fn of_session(number: u32) -> BusMessage {
    BusMessage {
        session: Some(format!("session-{number}").into()),
        ..bus::message()
    }
}

fn storage_round(name: &str, p: &mut Partition, least: &mut Least) -> Result<(), Failure> {
    least.measure(&format!("{name}, send"), || {
        (0..OPERATIONS).try_for_each(|_| storage::send(p))
    })?;
    let mut received = Vec::new();
    least.measure(&format!("{name}, receive"), || {
        (0..OPERATIONS).try_for_each(|_| {
            received.extend(storage::receive(p, 1)?);
            Ok(())
        })
    })?;
    least.measure(&format!("{name}, complete"), || {
        received.iter().try_for_each(|it| storage::delete(p, it))
    })
}

fn bus_round(name: &str, p: &mut Partition, least: &mut Least) -> Result<(), Failure> {
    least.measure(&format!("{name}, send"), || {
        (0..OPERATIONS).try_for_each(|_| bus::send(p, vec![bus::message()]))
    })?;
    let mut locks = Vec::new();
    least.measure(&format!("{name}, receive"), || {
        (0..OPERATIONS).try_for_each(|_| {
            locks.extend(bus::receive(p, 1, ReceiveMode::PeekLock, None)?);
            Ok(())
        })
    })?;
    least.measure(&format!("{name}, complete"), || {
        let complete = |lock| bus::settle(p, vec![lock], &Disposition::Complete);
        locks.into_iter().try_for_each(complete)
    })
}

/// Schedules in random order; then all of them are due.
fn scheduled_round(name: &str, p: &mut Partition, least: &mut Least) -> Result<(), Failure> {
    least.measure(&format!("{name}, send"), || {
        (0..OPERATIONS).try_for_each(|number| {
            let later_ms = 10_000 + u64::from(number) * 611_953 % 10_000;
            let message = BusMessage {
                scheduled_at: Some(p.now().plus_ms(later_ms)),
                ..bus::message()
            };
            bus::send(p, vec![message])
        })
    })?;
    (0..20_000).for_each(|_| p.pass());
    least.measure(&format!("{name}, activate and receive"), || {
        (0..OPERATIONS).try_for_each(|_| {
            bus::receive(p, 1, ReceiveMode::ReceiveAndDelete, None)?;
            Ok(())
        })
    })
}

/// Messages of a hundred sessions, and of one that has all of the backlog.
fn session_round(name: &str, p: &mut Partition, least: &mut Least) -> Result<(), Failure> {
    least.measure(&format!("{name}, send"), || {
        (0..OPERATIONS).try_for_each(|number| bus::send(p, vec![of_session(number % 100)]))
    })?;
    let mut left = OPERATIONS as usize;
    least.measure(
        &format!("{name}, accept, receive, complete and release"),
        || {
            while left > 0 {
                let session = bus::accept(p)?;
                let locks = bus::receive(p, left.min(20), ReceiveMode::PeekLock, Some(session))?;
                left -= locks.len();
                bus::settle(p, locks, &Disposition::Complete)?;
                bus::release(p, session)?;
            }
            Ok(())
        },
    )
}

/// Prints the least times beside so many messages, of the cases whose names begin so.
pub(crate) fn run(backlog: usize, names: &str) -> Result<(), Failure> {
    let mut least = Least::default();
    for Case {
        name,
        create,
        round,
    } in CASES.iter().filter(|case| case.name.starts_with(names))
    {
        let mut p = Partition::new(Timestamp::from_ms(1_000_000), true)?;
        let mut replayed = State::new();
        create(&mut p, backlog)?;
        Partition::replay(&mut replayed, &p.take_events())?;
        for _ in 0..ROUNDS {
            round(name, &mut p, &mut least)?;
            p.pass();
            let events = p.take_events();
            least.measure(&format!("{name}, replay of a round"), || {
                Partition::replay(&mut replayed, &events)
            })?;
        }
        assert_eq!(p.message_count(), backlog as u64);
    }
    least.print();
    Ok(())
}
