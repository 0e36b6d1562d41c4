//! Worlds in which two members own a replicated log in turn, seed by seed. `KEW_SIM_MEMBER_SEEDS` sets how many.

use std::collections::BTreeMap;

use kew_sim::{MUST_OCCUR_WITH_MEMBERS, Report};

use crate::support::{
    OPERATIONS, Sums, number, on_all_cores, run_bus_on_model, run_on_model, run_topics_on_model,
};

#[test]
fn owners_keep_their_promises_in_turn() {
    keep("members", run_on_model, 250, 250);
}

#[test]
fn owners_keep_those_of_bus_queues_too() {
    keep("members, bus", run_bus_on_model, 60, 60);
}

#[test]
fn owners_keep_those_of_topics_too() {
    keep("members, topics", run_topics_on_model, 20, 300);
}

/// Runs so many seeds. If they are at least `enough`, all that must occur does.
#[expect(
    clippy::print_stdout,
    reason = "a test prints its numbers for readers of its output"
)]
fn keep(what: &str, run: fn(u64, u64) -> Report, usual: u64, enough: u64) {
    let seeds = number("KEW_SIM_MEMBER_SEEDS", usual);
    let first = number("KEW_SIM_FIRST_SEED", 0);
    let work = |index| {
        let mut report = run(first + index, OPERATIONS);
        let occurred = std::mem::take(&mut report.occurred);
        (Sums::of(report), occurred)
    };
    let all: (Sums, BTreeMap<_, u64>) = on_all_cores(seeds, work, |all, (sums, occurred)| {
        all.0.add(sums);
        for (name, count) in occurred {
            *all.1.entry(name).or_default() += count;
        }
    });
    for line in all.0.lines() {
        println!("simulation, {what}: {line}");
    }
    for (name, count) in &all.1 {
        println!("simulation, {what}: {count} times {name}");
    }
    let missing = MUST_OCCUR_WITH_MEMBERS.iter();
    let missing: Vec<_> = missing.filter(|it| !all.1.contains_key(*it)).collect();
    assert!(
        seeds < enough || missing.is_empty(),
        "never occurred: {missing:?}"
    );
}

#[test]
fn a_seed_with_members_does_the_same_twice() {
    for run in [kew_sim::run_on_model, kew_sim::bus::run_on_model] {
        for seed in 0..5 {
            let (first, second) = (run(seed, OPERATIONS, true), run(seed, OPERATIONS, true));
            assert_eq!(first.trace, second.trace, "seed {seed}");
            assert_eq!(first.trace_hash, second.trace_hash, "seed {seed}");
        }
    }
}
