//! Worlds with bus queues, seed by seed. `KEW_SIM_BUS_SEEDS` sets how many, and `KEW_SIM_TOPIC_SEEDS` how many have
//! topics, too.

use std::collections::BTreeMap;

use kew_sim::Report;
use kew_sim::bus::{MUST_OCCUR, MUST_OCCUR_WITH_TOPICS};

use crate::support::{OPERATIONS, Sums, number, on_all_cores, run_bus, run_topics};

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
    let seeds = number("KEW_SIM_BUS_SEEDS", 1_000);
    keep("bus", run_bus, seeds, 1_000, &MUST_OCCUR);
}

#[test]
fn topics_keep_their_promises() {
    let seeds = number("KEW_SIM_TOPIC_SEEDS", 150);
    keep("topics", run_topics, seeds, 150, &MUST_OCCUR_WITH_TOPICS);
}

/// Runs so many seeds. If they are at least `enough`, all of these states occur.
#[expect(
    clippy::print_stdout,
    reason = "a test prints its numbers for readers of its output"
)]
fn keep(
    what: &str,
    run: fn(u64, u64) -> Report,
    seeds: u64,
    enough: u64,
    must_occur: &[&'static str],
) {
    let first = number("KEW_SIM_FIRST_SEED", 0);
    let operations = number("KEW_SIM_OPERATIONS", OPERATIONS);
    let work = |index| {
        let mut report = run(first + index, operations);
        BusSums {
            occurred: std::mem::take(&mut report.occurred),
            sums: Sums::of(report),
        }
    };
    let all = on_all_cores(seeds, work, BusSums::add);
    for line in all.sums.lines() {
        println!("simulation, {what}: {line}");
    }
    for (name, count) in &all.occurred {
        println!("simulation, {what}: {count} times {name}");
    }
    assert!(all.sums.operations >= seeds * operations, "{:?}", all.sums);
    // These must occur, or the test proves nothing; a few seeds cannot show all of them.
    if seeds >= enough && operations >= OPERATIONS {
        let missing: Vec<_> = must_occur
            .iter()
            .filter(|it| !all.occurred.contains_key(*it))
            .collect();
        assert!(missing.is_empty(), "never occurred: {missing:?}");
    }
}

/// Seeds that once failed, and why.
const FAILED_ONCE: [(u64, &str); 4] = [
    (
        5391,
        "the next session is one of a forwarded message, and no client learns that it was accepted",
    ),
    (
        958,
        "the checker forgot a cancellation in a transaction whose message it did not know by number",
    ),
    (
        78,
        "a start passed over a page that was damaged in both copies, and did not use the older snapshot",
    ),
    (223, "the same, and its dead letters are peeked at"),
];

/// The same with topics.
const TOPICS_FAILED_ONCE: [(u64, &str); 3] = [
    (
        113,
        "the checker forgot that a scheduled message which nobody is to get waits in its topic when its time comes",
    ),
    (
        1040,
        "a list showed counts that were not durable yet, and a power cut took back what it had counted",
    ),
    (
        46,
        "a topic stayed due, and all turns did nothing, for the time to live of a message that had its copies",
    ),
];

#[test]
fn seeds_with_bus_queues_that_failed_once_hold() {
    for (seed, _) in FAILED_ONCE {
        run_bus(seed, OPERATIONS);
    }
    for (seed, _) in TOPICS_FAILED_ONCE {
        run_topics(seed, OPERATIONS);
    }
}

#[test]
fn a_seed_with_bus_queues_does_the_same_twice() {
    for run in [kew_sim::bus::run, kew_sim::bus::run_with_topics] {
        for seed in 0..10 {
            let hash = |seed| run(seed, OPERATIONS, false).trace_hash;
            assert_eq!(hash(seed), hash(seed), "seed {seed}");
            assert_ne!(hash(seed), hash(seed + 1000), "seed {seed}");
        }
    }
}
