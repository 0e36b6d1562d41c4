//! Bugs planted on purpose: the simulation must catch each, or it proves nothing.
//!
//! `cargo test --profile gate -p kew-sim --features planted-bugs --test seeds planted`

/// The bytes that the feature puts into a binary, backwards, so that this test does not put them
/// there too.
const MARKER_BACKWARDS: &str = "!ni delipmoc era sgub :detnalp-wek";

#[test]
fn a_binary_shows_whether_it_has_planted_bugs() {
    let binary = std::env::current_exe().and_then(std::fs::read).unwrap();
    let marker: String = MARKER_BACKWARDS.chars().rev().collect();
    let holds = binary
        .windows(marker.len())
        .any(|bytes| bytes == marker.as_bytes());
    assert_eq!(holds, cfg!(feature = "planted-bugs"));
}

#[cfg(feature = "planted-bugs")]
mod caught {
    use std::panic;

    use kew_planted::Bug;
    use kew_sim::Report;

    use crate::support::{OPERATIONS, number, on_all_cores};

    #[test]
    fn every_planted_bug_is_caught() {
        catch(&Bug::ALL, kew_sim::run);
    }

    #[test]
    fn every_planted_bug_of_bus_queues_is_caught() {
        catch(&Bug::OF_BUS, kew_sim::bus::run);
    }

    /// Plants each bug, and fails if no seed notices one.
    fn catch(bugs: &[Bug], run: fn(u64, u64, bool) -> Report) {
        let seeds_max = number("KEW_SIM_PLANTED_SEEDS", 1000);
        silence_planted_panics();
        let work = |index| {
            let bug = bugs[usize::try_from(index).expect("a list's index")];
            let caught = kew_planted::with(bug, || {
                (0..seeds_max).find_map(|seed| {
                    let violation = run(seed, OPERATIONS, false).violation?;
                    Some((seed, violation))
                })
            });
            vec![(bug, caught)]
        };
        let found = on_all_cores(bugs.len() as u64, work, |all, more| all.extend(more));
        let mut missed = Vec::new();
        for (bug, caught) in found {
            match caught {
                Some((seed, violation)) => println!(
                    "planted: {bug:?} caught by seed {seed}: {}",
                    violation.promise
                ),
                None => missed.push(bug),
            }
        }
        assert_eq!(missed, [], "not caught by {seeds_max} seeds");
        println!("planted: {} bugs, all caught", bugs.len());
    }

    /// The product's assertions catch some of them; their messages would only be noise.
    fn silence_planted_panics() {
        let loud = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !kew_planted::is_any_planted() {
                loud(info);
            }
        }));
    }
}
