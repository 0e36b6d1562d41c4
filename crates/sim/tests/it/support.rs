//! Shared code of the tests: numbers from the environment, and all cores.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use kew_sim::{RareStates, Report};

/// How many operations each seed has at least.
pub(crate) const OPERATIONS: u64 = 1000;

/// A number of the environment.
pub(crate) fn number(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text
            .parse()
            .unwrap_or_else(|_| panic!("{name}={text} is not a number")),
        Err(_) => default,
    }
}

/// Runs a seed. If it breaks a promise, fails with the command for a replay.
pub(crate) fn run(seed: u64, operations: u64) -> Report {
    must_hold(kew_sim::run(seed, operations, false), seed, operations, "")
}

/// The same for a world with bus queues.
pub(crate) fn run_bus(seed: u64, operations: u64) -> Report {
    let report = kew_sim::bus::run(seed, operations, false);
    must_hold(report, seed, operations, "--bus ")
}

/// The same for a world with topics.
pub(crate) fn run_topics(seed: u64, operations: u64) -> Report {
    let report = kew_sim::bus::run_with_topics(seed, operations, false);
    must_hold(report, seed, operations, "--topics ")
}

/// The same for a world in which members own a replicated log in turn.
pub(crate) fn run_on_model(seed: u64, operations: u64) -> Report {
    let report = kew_sim::run_on_model(seed, operations, false);
    must_hold(report, seed, operations, "--model ")
}

/// The same for one with bus queues, too.
pub(crate) fn run_bus_on_model(seed: u64, operations: u64) -> Report {
    let report = kew_sim::bus::run_on_model(seed, operations, false);
    must_hold(report, seed, operations, "--bus --model ")
}

/// The same for one with topics, too.
pub(crate) fn run_topics_on_model(seed: u64, operations: u64) -> Report {
    let report = kew_sim::bus::run_with_topics_on_model(seed, operations, false);
    must_hold(report, seed, operations, "--topics --model ")
}

fn must_hold(report: Report, seed: u64, operations: u64, option: &str) -> Report {
    if let Some(violation) = &report.violation {
        panic!(
            "seed {seed}, {operations} operations, step {step}: {violation}\n\
             replay: cargo run --profile gate -p kew-sim -- {option}--seed {seed} --operations {operations} --until {step}\n\
             then: add \"{seed} {operations} <why>\" to crates/sim/regressions.txt",
            step = report.steps,
        );
    }
    report
}

/// Runs `work` for 0..count on all cores, and adds up the results.
pub(crate) fn on_all_cores<S: Default + Send>(
    count: u64,
    work: impl Fn(u64) -> S + Sync,
    add: impl Fn(&mut S, S) + Sync,
) -> S {
    let next = AtomicU64::new(0);
    let cores = thread::available_parallelism().map_or(2, usize::from);
    thread::scope(|scope| {
        let worker = || {
            let mut sums = S::default();
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                if index >= count {
                    return sums;
                }
                add(&mut sums, work(index));
            }
        };
        let workers: Vec<_> = (0..cores).map(|_| scope.spawn(worker)).collect();
        let mut all = S::default();
        for worker in workers {
            let sums = worker.join();
            add(
                &mut all,
                sums.expect("a worker failed; its message is above"),
            );
        }
        all
    })
}

/// The results of many seeds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sums {
    pub(crate) seeds: u64,
    pub(crate) operations: u64,
    pub(crate) unknown: u64,
    pub(crate) given_up: u64,
    pub(crate) busy: u64,
    pub(crate) kills: u64,
    pub(crate) power_cuts: u64,
    pub(crate) failed_calls: u64,
    pub(crate) full_disks: u64,
    pub(crate) slow_disks: u64,
    pub(crate) damaged_snapshots: u64,
    pub(crate) clock_jumps: u64,
    pub(crate) suspensions: u64,
    pub(crate) snapshots: u64,
    pub(crate) rare: RareStates,
}

impl Sums {
    pub(crate) fn of(report: Report) -> Self {
        Self {
            seeds: 1,
            operations: report.operations,
            unknown: report.unknown,
            given_up: report.given_up,
            busy: report.busy,
            kills: report.kills,
            power_cuts: report.power_cuts,
            failed_calls: report.failed_calls,
            full_disks: report.full_disks,
            slow_disks: report.slow_disks,
            damaged_snapshots: report.damaged_snapshots,
            clock_jumps: report.clock_jumps,
            suspensions: report.suspensions,
            snapshots: report.snapshots,
            rare: report.rare,
        }
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.seeds += other.seeds;
        self.operations += other.operations;
        self.unknown += other.unknown;
        self.given_up += other.given_up;
        self.busy += other.busy;
        self.kills += other.kills;
        self.power_cuts += other.power_cuts;
        self.failed_calls += other.failed_calls;
        self.full_disks += other.full_disks;
        self.slow_disks += other.slow_disks;
        self.damaged_snapshots += other.damaged_snapshots;
        self.clock_jumps += other.clock_jumps;
        self.suspensions += other.suspensions;
        self.snapshots += other.snapshots;
        self.rare.add(&other.rare);
    }

    /// The published numbers.
    pub(crate) fn lines(&self) -> Vec<String> {
        let asked = format!(
            "{} seeds, {} operations, {} of unknown outcome, {} given up, {} busy",
            self.seeds, self.operations, self.unknown, self.given_up, self.busy
        );
        let faults = format!(
            "{} kills, {} power cuts, {} failing calls, {} full disks, {} slow disks, \
             {} damaged snapshots, {} clock jumps, {} suspensions, {} snapshots",
            self.kills,
            self.power_cuts,
            self.failed_calls,
            self.full_disks,
            self.slow_disks,
            self.damaged_snapshots,
            self.clock_jumps,
            self.suspensions,
            self.snapshots
        );
        let rare = self
            .rare
            .counts()
            .map(|(rare, count)| format!("rare state {rare:?} occurred {count} times"));
        [asked, faults].into_iter().chain(rare).collect()
    }
}
