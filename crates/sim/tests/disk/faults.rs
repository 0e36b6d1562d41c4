//! Every error of the operating system at every storage call of seeded workloads.

use std::time::Instant;

use kew_sim::disk::{
    FaultCounts, Setting, WorkloadKind, fail_every_call, fail_every_call_of_moves, fault_case,
    move_fault_case,
};

use crate::support::{is_wanted, number, on_all_cores, replayed, seed};

#[test]
fn no_failing_call_loses_acknowledged_messages() {
    let workloads = number("KEW_DISK_WORKLOADS", 25);
    fail_all("failing calls", WorkloadKind::Storage, workloads);
}

#[test]
fn no_failing_call_loses_acknowledged_bus_messages() {
    let workloads = number("KEW_DISK_BUS_WORKLOADS", 8);
    fail_all("failing calls, bus", WorkloadKind::WithBus, workloads);
}

/// The worlds with bodies to move: one, and all of them in a run of more workloads than usual.
fn moving() -> Vec<Setting> {
    let [_, overlapped, ..] = Setting::SCATTERED;
    match number("KEW_DISK_WORKLOADS", 25) > 25 || replayed().is_some() {
        true => Setting::SCATTERED.to_vec(),
        false => vec![overlapped],
    }
}

/// Segments with few bodies are emptied, and a call fails.
#[test]
fn no_failing_call_loses_bodies_that_move() {
    let (seed, began) = (seed(), Instant::now());
    let settings = moving();
    let counts = on_all_cores(
        settings.len(),
        |index| {
            let setting = settings[index];
            if !is_wanted(&move_fault_case(setting)) {
                return FaultCounts::default();
            }
            let counts = fail_every_call_of_moves(setting, seed, replayed().is_some());
            counts.unwrap_or_else(|failure| panic!("{failure}"))
        },
        FaultCounts::add,
    );
    println!(
        "failing calls, moves, seed {seed}: {counts:?} in {:.1} s",
        began.elapsed().as_secs_f64()
    );
    if replayed().is_some() {
        return;
    }
    assert!(counts.moved >= 2 * counts.workloads, "{counts:?}");
    assert!(counts.moved_with_fault >= counts.points / 4, "{counts:?}");
}

#[expect(
    clippy::print_stdout,
    reason = "a test prints its numbers for readers of its output"
)]
fn fail_all(name: &str, kind: WorkloadKind, workloads: u64) {
    let seed = seed();
    let began = Instant::now();
    let counts = on_all_cores(
        usize::try_from(workloads).expect("few"),
        |workload| {
            if !is_wanted(&fault_case(kind, workload as u64)) {
                return FaultCounts::default();
            }
            fail_every_call(seed, kind, workload as u64, replayed().is_some())
                .unwrap_or_else(|failure| panic!("{failure}"))
        },
        FaultCounts::add,
    );
    println!(
        "{name}, seed {seed}: {counts:?} in {:.1} s",
        began.elapsed().as_secs_f64()
    );
    if replayed().is_some() {
        return;
    }
    assert!(counts.points >= 100 * workloads, "{counts:?}");
    // These must occur, or the test proves nothing.
    for rare in [
        counts.stopped,
        counts.out_of_space,
        counts.not_opened,
        counts.invisible,
        counts.harmless,
    ] {
        assert!(rare >= workloads, "{counts:?}");
    }
}
