//! Bus queues under crashes, seed by seed.

use crate::support::{OPERATIONS, number, on_all_cores};

#[test]
fn bus_queues_keep_their_promises() {
    let first = number("KEW_SIM_FIRST_SEED", 0);
    let seeds = number("KEW_SIM_BUS_SEEDS", 200);
    let run = |index: u64| {
        let seed = first + index;
        if let Err(violation) = kew_sim::bus::run(seed, OPERATIONS) {
            panic!("seed {seed}: {violation}");
        }
        1
    };
    let ran = on_all_cores(seeds, run, |all: &mut u64, more| *all += more);
    assert_eq!(ran, seeds);
}
