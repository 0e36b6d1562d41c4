//! The simulation as it runs on every change. `KEW_SIM_SEEDS` and `KEW_SIM_OPERATIONS` make it
//! longer; `kew-sim --seed N --trace` replays one seed step by step.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use kew_sim::{Report, Step, crash_at_every_call, run};

fn number(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text
            .parse()
            .unwrap_or_else(|_| panic!("{name}={text} is not a number")),
        Err(_) => default,
    }
}

/// Does `work` for 0..count on all cores, and adds up what it answers.
fn on_all_cores(count: u64, work: impl Fn(u64) -> Sums + Sync) -> Sums {
    let next = AtomicU64::new(0);
    let cores = thread::available_parallelism().map_or(2, usize::from);
    thread::scope(|scope| {
        let worker = || {
            let mut sums = Sums::default();
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                if index >= count {
                    return sums;
                }
                sums.add(&work(index));
            }
        };
        let workers: Vec<_> = (0..cores).map(|_| scope.spawn(worker)).collect();
        let mut all = Sums::default();
        for worker in workers {
            all.add(
                &worker
                    .join()
                    .expect("a worker failed; its message is above"),
            );
        }
        all
    })
}

#[derive(Clone, Debug, Default)]
struct Sums {
    seeds: u64,
    operations: u64,
    unknown: u64,
    kills: u64,
    power_cuts: u64,
    clock_jumps: u64,
    snapshots: u64,
    disks: u64,
}

impl Sums {
    fn add(&mut self, other: &Self) {
        self.seeds += other.seeds;
        self.operations += other.operations;
        self.unknown += other.unknown;
        self.kills += other.kills;
        self.power_cuts += other.power_cuts;
        self.clock_jumps += other.clock_jumps;
        self.snapshots += other.snapshots;
        self.disks += other.disks;
    }

    fn of(report: &Report) -> Self {
        Self {
            seeds: 1,
            operations: report.operations,
            unknown: report.unknown,
            kills: report.kills,
            power_cuts: report.power_cuts,
            clock_jumps: report.clock_jumps,
            snapshots: report.snapshots,
            disks: 0,
        }
    }
}

#[test]
fn every_seed_keeps_every_promise() {
    let seeds = number("KEW_SIM_SEEDS", 2000);
    let operations = number("KEW_SIM_OPERATIONS", 400);
    let sums = on_all_cores(seeds, |seed| {
        let report = run(seed, operations, false);
        if let Some(violation) = &report.violation {
            panic!(
                "seed {seed}: {violation}\nreplay: cargo run --release -p kew-sim -- --seed {seed} --operations {operations} --trace"
            );
        }
        Sums::of(&report)
    });
    println!("{sums:?}");
    // What must happen for this test to mean something.
    assert!(sums.kills > seeds / 4, "{sums:?}");
    assert!(sums.power_cuts > seeds / 2, "{sums:?}");
    assert!(sums.clock_jumps > seeds / 8, "{sums:?}");
    assert!(sums.unknown > seeds, "{sums:?}");
    assert!(sums.snapshots > seeds, "{sums:?}");
}

#[test]
fn a_seed_does_the_same_twice() {
    for seed in 0..20 {
        let (first, second) = (run(seed, 300, true), run(seed, 300, true));
        assert_eq!(first.trace, second.trace, "seed {seed}");
        assert_eq!(first.trace_hash, second.trace_hash, "seed {seed}");
        assert_ne!(first.trace_hash, run(seed + 1000, 300, false).trace_hash);
    }
}

#[test]
fn every_crash_point_of_every_short_script_recovers() {
    let mut scripts: Vec<Vec<Step>> = Step::ALL.iter().map(|step| vec![*step]).collect();
    for first in Step::ALL {
        scripts.extend(Step::ALL.iter().map(|second| vec![first, *second]));
    }
    let sums = on_all_cores(scripts.len() as u64, |index| {
        let script = &scripts[usize::try_from(index).expect("a list's index")];
        match crash_at_every_call(script, 4) {
            Ok(disks) => Sums {
                disks,
                ..Sums::default()
            },
            Err(violation) => panic!("{script:?}: {violation}"),
        }
    });
    println!("{} disks after a power cut", sums.disks);
    assert!(sums.disks > scripts.len() as u64 * 4, "{sums:?}");
}
