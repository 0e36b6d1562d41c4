//! Many seeds, each a world of its own.

use crate::support::{OPERATIONS, Sums, number, on_all_cores, run};

#[test]
fn every_seed_keeps_every_promise() {
    let seeds = number("KEW_SIM_SEEDS", 5_000);
    let first = number("KEW_SIM_FIRST_SEED", 0);
    let operations = number("KEW_SIM_OPERATIONS", OPERATIONS);
    let work = |index| Sums::of(run(first + index, operations));
    let sums = on_all_cores(seeds, work, Sums::add);
    for line in sums.lines() {
        println!("simulation: {line}");
    }
    assert!(sums.operations >= seeds * operations, "{sums:?}");
    // These must occur, or the test proves nothing; a few seeds cannot show all of them.
    if seeds >= 1_000 && operations >= OPERATIONS {
        assert_eq!(sums.rare.missing(), [], "states that never occurred");
    }
}

#[test]
fn a_seed_does_the_same_twice() {
    for seed in 0..40 {
        let (first, second) = (
            kew_sim::run(seed, OPERATIONS, true),
            kew_sim::run(seed, OPERATIONS, true),
        );
        assert_eq!(first.trace, second.trace, "seed {seed}");
        assert_eq!(first.trace_hash, second.trace_hash, "seed {seed}");
        let unkept = kew_sim::run(seed, OPERATIONS, false);
        assert_eq!(first.trace_hash, unkept.trace_hash, "seed {seed}");
        let other = kew_sim::run(seed + 1000, OPERATIONS, false);
        assert_ne!(first.trace_hash, other.trace_hash, "seed {seed}");
    }
}

#[test]
fn a_replay_shows_every_line_of_the_trace() {
    use std::cell::RefCell;
    use std::rc::Rc;

    let shown = Rc::new(RefCell::new(Vec::new()));
    let watch = {
        let shown = Rc::clone(&shown);
        Box::new(move |moment: &kew_sim::Moment<'_>| {
            assert!(!moment.state().is_empty());
            shown.borrow_mut().extend_from_slice(moment.lines);
        })
    };
    let replayed = kew_sim::replay(3, 200, watch);
    assert_eq!(replayed.trace_hash, kew_sim::run(3, 200, false).trace_hash);
    let shown = shown.borrow();
    assert_eq!(*shown, replayed.trace[..shown.len()]);
    assert!(replayed.trace.len() - shown.len() < 10);
}
