//! A load that does not change: the number of instances does not change either.

use std::time::Duration;

use kew_scaling::Goal;
use kew_scaling::simulate::{Load, Workers};
use kew_scaling::{Day, Settings, TimeOfWeek};
use proptest::prelude::*;

use crate::support::{changes, law, run, settings, workers};

const HOUR: u32 = 3600;

fn begins() -> TimeOfWeek {
    TimeOfWeek::new(Day::Wednesday, 12, 0)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Of any rate that the instances can handle, any goal and any time to start.
    #[test]
    fn evenly_arriving_messages_need_the_same_number_all_the_time(
        rate in 0.05_f64..150.0,
        goal_seconds in 20_u64..600,
        start_seconds in 0_u32..120,
    ) {
        let load = Load::even("even", begins(), 3 * HOUR, |_| rate);
        let settings = Settings {
            goal: Goal::Age(Duration::from_secs(goal_seconds)),
            start_delay: Duration::from_secs(start_seconds.into()),
            ..settings()
        };
        let course = run(&mut law(settings), &load, Workers { start_seconds, ..workers() });
        // The backlog of the beginning is handled within the first hour, or is just below what starts another instance.
        let late_changes = changes(&course, 3600);
        prop_assert!(late_changes <= 1, "{late_changes} changes");
        let last = course.points.last().unwrap();
        let enough = rate / 8.0;
        prop_assert!(f64::from(last.instances) >= enough - 0.02 * enough - 0.01, "{last:?} for {enough}");
        prop_assert!(f64::from(last.instances) <= enough / 0.96 + 1.01, "{last:?} for {enough}");
    }
}

/// Messages that arrive at random, at rates that are close to what whole instances handle.
#[test]
fn randomly_arriving_messages_change_the_number_rarely() {
    for rate in [0.5, 3.0, 7.5, 8.0, 12.0, 15.9, 40.0, 79.0, 100.0, 150.0] {
        for seed in 1..=5 {
            let load = Load::random("random", begins(), 6 * HOUR, seed, |_| rate);
            let course = run(&mut law(settings()), &load, workers());
            let changes = changes(&course, 3600);
            assert!(
                changes <= 5,
                "{changes} changes in 5 h at {rate}, seed {seed}"
            );
            let late = course
                .points
                .iter()
                .skip(300)
                .filter(|it| it.oldest_seconds > 60);
            assert_eq!(late.count(), 0, "at {rate}, seed {seed}");
        }
    }
}
