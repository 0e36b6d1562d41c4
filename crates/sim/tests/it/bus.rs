//! Worlds with bus queues, seed by seed. `KEW_SIM_BUS_SEEDS` sets how many.

use std::collections::BTreeMap;

use crate::support::{OPERATIONS, Sums, number, on_all_cores, run_bus};

#[derive(Default)]
struct BusSums {
    sums: Sums,
    occurred: BTreeMap<&'static str, u64>,
}

impl BusSums {
    fn add(&mut self, other: Self) {
        self.sums.add(other.sums);
        for (what, count) in other.occurred {
            *self.occurred.entry(what).or_default() += count;
        }
    }
}

#[test]
fn bus_queues_keep_their_promises() {
    let first = number("KEW_SIM_FIRST_SEED", 0);
    let seeds = number("KEW_SIM_BUS_SEEDS", 1_000);
    let operations = number("KEW_SIM_OPERATIONS", OPERATIONS);
    let work = |index| {
        let mut report = run_bus(first + index, operations);
        BusSums {
            occurred: std::mem::take(&mut report.occurred),
            sums: Sums::of(report),
        }
    };
    let all = on_all_cores(seeds, work, BusSums::add);
    for line in all.sums.lines() {
        println!("simulation, bus: {line}");
    }
    for (what, count) in &all.occurred {
        println!("simulation, bus: {count} times {what}");
    }
    assert!(all.sums.operations >= seeds * operations, "{:?}", all.sums);
    // These must occur, or the test proves nothing; a few seeds cannot show all of them.
    if seeds >= 1_000 && operations >= OPERATIONS {
        let missing: Vec<_> = kew_sim::bus::MUST_OCCUR
            .into_iter()
            .filter(|what| !all.occurred.contains_key(what))
            .collect();
        assert!(missing.is_empty(), "never occurred: {missing:?}");
    }
}

/// Seeds that once failed, and why.
const FAILED_ONCE: [(u64, &str); 2] = [
    (
        5391,
        "the next session is one of a forwarded message, and no client learns that it was accepted",
    ),
    (
        958,
        "the checker forgot a cancellation in a transaction whose message it did not know by number",
    ),
];

#[test]
fn seeds_with_bus_queues_that_failed_once_hold() {
    for (seed, _) in FAILED_ONCE {
        run_bus(seed, OPERATIONS);
    }
}

#[test]
fn a_seed_with_bus_queues_does_the_same_twice() {
    for seed in 0..10 {
        let hash = |seed| kew_sim::bus::run(seed, OPERATIONS, false).trace_hash;
        assert_eq!(hash(seed), hash(seed), "seed {seed}");
        assert_ne!(hash(seed), hash(seed + 1000), "seed {seed}");
    }
}
