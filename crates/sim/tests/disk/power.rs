//! Sequences of up to three operations, with the power cut at every storage call. `KEW_DISK_ONE_IN=1` plays all of
//! those of three.

use std::time::Instant;

use kew_sim::disk::{
    Cut, PowerCounts, Setting, Step, cut_power, sequences, sequences_of_bus, sequences_of_moves,
};

use crate::support::{is_wanted, number, on_all_cores, replayed, seed};

#[test]
fn no_power_cut_loses_acknowledged_messages() {
    let cut = Cut {
        seed: seed(),
        drawn: u32::try_from(number("KEW_DISK_STATES", 10)).unwrap(),
        again_one_in: 4,
        again_everywhere_one_in: 64,
    };
    let sequences = sequences();
    // All of one, two and three steps out of fourteen kinds.
    assert_eq!(sequences.len(), 14 + 14 * 14 + 14 * 14 * 14);
    let one_in = one_in();
    let sequences = sample(sequences, one_in);
    let all = cut_all("power cuts", &Setting::ALL, &sequences, cut);
    if replayed().is_some() {
        return;
    }
    assert_eq!(all.sequences, (sequences.len() * Setting::ALL.len()) as u64);
    if cut.drawn >= 10 {
        assert!(all.disks >= 250_000 / one_in, "{all:?}");
    }
    // These must occur, or the test proves nothing.
    assert!(all.second_cuts >= all.disks / 4, "{all:?}");
    assert!(all.tails_cut >= all.disks / 200, "{all:?}");
    assert!(all.tails_copied >= all.disks / 10, "{all:?}");
    assert!(all.reused >= all.sequences / 2, "{all:?}");
}

#[test]
fn no_power_cut_loses_acknowledged_bus_messages() {
    let cut = Cut {
        seed: seed(),
        drawn: u32::try_from(number("KEW_DISK_STATES", 10)).unwrap(),
        again_one_in: 4,
        again_everywhere_one_in: 64,
    };
    let sequences = sequences_of_bus();
    // Of one and two steps out of eighteen kinds; of three with twelve of them.
    assert_eq!(sequences.len(), 18 + 18 * 18 + 2 * 12 * 12);
    let sequences = sample(sequences, one_in());
    let all = cut_all("power cuts, bus", &Setting::WITH_BUS, &sequences, cut);
    if replayed().is_some() {
        return;
    }
    if cut.drawn >= 10 {
        assert!(all.disks >= 10_000, "{all:?}");
    }
    assert!(all.second_cuts >= all.disks / 4, "{all:?}");
    assert!(all.tails_cut >= all.disks / 200, "{all:?}");
}

/// Segments with few bodies are emptied: the power goes off at every call of that, too.
#[test]
fn no_power_cut_loses_bodies_that_move() {
    let cut = Cut {
        seed: seed(),
        drawn: u32::try_from(number("KEW_DISK_STATES", 10)).unwrap() / 3,
        again_one_in: 8,
        again_everywhere_one_in: 128,
    };
    let sequences = sequences_of_moves();
    let all = cut_all("power cuts, moves", &Setting::SCATTERED, &sequences, cut);
    if replayed().is_some() {
        return;
    }
    // A few of each world, or the test proves nothing. A queue that was cleared has none to move.
    assert!(all.moved >= 2 * all.sequences, "{all:?}");
    assert!(all.disks >= 1_000, "{all:?}");
    assert!(all.second_cuts >= all.disks / 8, "{all:?}");
}

/// One in this many of the longest sequences is played.
fn one_in() -> u64 {
    number("KEW_DISK_ONE_IN", 8)
}

/// All sequences of one and two steps, and one in `one_in` of those of three. A case to replay may be any.
fn sample(sequences: Vec<Vec<Step>>, one_in: u64) -> Vec<Vec<Step>> {
    let is_played = |index: usize, steps: &[Step]| {
        steps.len() < 3 || replayed().is_some() || (index as u64).is_multiple_of(one_in)
    };
    let sequences = sequences.into_iter().enumerate();
    let played = sequences.filter(|(index, steps)| is_played(*index, steps));
    played.map(|(_, steps)| steps).collect()
}

/// Plays every sequence in every world.
#[expect(
    clippy::print_stdout,
    reason = "a test prints its numbers for readers of its output"
)]
fn cut_all(name: &str, settings: &[Setting], sequences: &[Vec<Step>], cut: Cut) -> PowerCounts {
    let began = Instant::now();
    let mut all = PowerCounts::default();
    for setting in settings {
        let counts = on_all_cores(
            sequences.len(),
            |index| {
                let steps = &sequences[index];
                let names: Vec<String> = steps.iter().map(ToString::to_string).collect();
                let case = format!("power/{}/{}", setting.name, names.join(","));
                if !is_wanted(&case) {
                    return PowerCounts::default();
                }
                cut_power(*setting, steps, cut, replayed().is_some())
                    .unwrap_or_else(|failure| panic!("{failure}"))
            },
            PowerCounts::add,
        );
        println!("{name}, {}: {counts:?}", setting.name);
        all.add(&counts);
    }
    println!(
        "{name}, seed {}: {all:?} in {:.1} s",
        cut.seed,
        began.elapsed().as_secs_f64()
    );
    all
}
