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

    use kew_sim::Report;
    use kew_sim::planted::{CONTROLS, OF_BUS, OF_MEMBERS, OF_STORAGE, OF_TOPICS, Planted};

    use crate::support::{OPERATIONS, number, on_all_cores};

    #[test]
    fn every_planted_bug_is_caught() {
        catch(&OF_STORAGE, kew_sim::run);
    }

    #[test]
    fn every_planted_bug_of_bus_queues_is_caught() {
        catch(&OF_BUS, kew_sim::bus::run);
    }

    #[test]
    fn every_planted_bug_of_topics_is_caught() {
        catch(&OF_TOPICS, kew_sim::bus::run_with_topics);
    }

    #[test]
    fn every_planted_bug_of_replicated_logs_is_caught() {
        catch(&OF_MEMBERS, kew_sim::run_on_model);
    }

    #[test]
    fn what_plants_a_bug_is_not_noticed_without_one() {
        let count = number("KEW_SIM_CONTROL_SEEDS", 30);
        let runs: [(fn(u64, u64, bool) -> Report, u64); 3] = [
            (kew_sim::run, count),
            (kew_sim::bus::run, count),
            (kew_sim::bus::run_with_topics, count / 3),
        ];
        let work = |index| {
            let control = CONTROLS[usize::try_from(index).expect("a list's index")];
            for (run, count) in runs {
                for seed in 0..count {
                    let report = control.plant(|| run(seed, OPERATIONS, false));
                    let name = control.name;
                    assert_eq!(
                        report.violation.map(|it| it.to_string()),
                        None,
                        "{name}, {seed}"
                    );
                }
            }
        };
        on_all_cores(CONTROLS.len() as u64, work, |_, ()| ());
    }

    /// Plants each bug, and fails if no seed notices one.
    fn catch(bugs: &[Planted], run: fn(u64, u64, bool) -> Report) {
        let seeds_max = number("KEW_SIM_PLANTED_SEEDS", 1000);
        let only = std::env::var("KEW_SIM_PLANTED").ok();
        silence_planted_panics();
        let work = |index| {
            let bug = bugs[usize::try_from(index).expect("a list's index")];
            if only.as_ref().is_some_and(|only| only != bug.name) {
                return Vec::new();
            }
            let caught = (0..seeds_max).find_map(|seed| {
                let report = bug.plant(|| run(seed, OPERATIONS, false));
                Some((seed, report.violation?))
            });
            vec![(bug.name, caught)]
        };
        let found = on_all_cores(bugs.len() as u64, work, |all, more| all.extend(more));
        let mut missed = Vec::new();
        for (bug, caught) in found {
            match caught {
                Some((seed, violation)) => {
                    println!(
                        "planted: {bug} caught by seed {seed}: {}",
                        violation.promise
                    );
                }
                None => missed.push(bug),
            }
        }
        assert!(
            missed.is_empty(),
            "not caught by {seeds_max} seeds: {missed:?}"
        );
        if only.is_none() {
            println!("planted: {} bugs, all caught", bugs.len());
        }
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
