//! Every error of the operating system at every storage call of seeded workloads.

use std::time::Instant;

use kew_sim::disk::{FaultCounts, WorkloadKind, fail_every_call, fault_case};

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
