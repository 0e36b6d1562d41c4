//! A load that suddenly grows: the goal is met again within a stated time.

use std::time::Duration;

use kew_scaling::simulate::{Load, Workers};
use kew_scaling::{Day, Goal, Settings, TimeOfWeek};
use proptest::prelude::*;

use crate::support::{law, run, settings, workers};

/// The agent looks each 10 s.
const LOOK_SECONDS: u32 = 10;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// At most two starts of instances, two looks and the goal after the step, no message is older than the goal.
    #[test]
    fn the_goal_is_met_soon_after_a_step(
        before in 0.0_f64..60.0,
        more in 0.0_f64..60.0,
        goal_seconds in 20_u32..600,
        start_seconds in 0_u32..120,
        seed in any::<u64>(),
    ) {
        let step = 1800 + u32::try_from(seed % 30).unwrap();
        let begins = TimeOfWeek::new(Day::Wednesday, 12, 0);
        let rate = |second| if second < step { before } else { before + more };
        let load = Load::random("step", begins, step + 3600, seed, rate);
        let settings = Settings {
            goal: Goal::Age(Duration::from_secs(goal_seconds.into())),
            start_delay: Duration::from_secs(start_seconds.into()),
            ..settings()
        };
        let course = run(&mut law(settings), &load, Workers { start_seconds, ..workers() });
        let within = 2 * (start_seconds + LOOK_SECONDS) + goal_seconds;
        let later = usize::try_from(step + within).unwrap();
        let oldest = course.points.iter().skip(later).map(|it| it.oldest_seconds).max();
        prop_assert!(oldest <= Some(goal_seconds), "{oldest:?} s old later than {within} s after the step");
    }
}
