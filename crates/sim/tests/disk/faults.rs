//! Every error of the operating system at every storage call of seeded workloads.

use std::time::Instant;

use kew_sim::disk::{FaultCounts, fail_every_call};

use crate::support::{is_wanted, number, on_all_cores, replayed, seed};

#[test]
fn no_failing_call_takes_what_was_acknowledged() {
    let seed = seed();
    let workloads = number("KEW_DISK_WORKLOADS", 50);
    let began = Instant::now();
    let counts = on_all_cores(
        usize::try_from(workloads).unwrap(),
        |workload| {
            if !is_wanted(&format!("faults/{workload}")) {
                return FaultCounts::default();
            }
            fail_every_call(seed, workload as u64, replayed().is_some())
                .unwrap_or_else(|failure| panic!("{failure}"))
        },
        FaultCounts::add,
    );
    println!(
        "failing calls, seed {seed}: {counts:?} in {:.1} s",
        began.elapsed().as_secs_f64()
    );
    if replayed().is_some() {
        return;
    }
    assert!(counts.points >= 100 * workloads, "{counts:?}");
    // What must happen for this test to mean something.
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
