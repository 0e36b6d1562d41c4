//! A load that suddenly grows: the goal is met again within a stated time.

use std::time::Duration;

use kew_scaling::simulate::{Load, Workers};
use kew_scaling::{Action, Day, Goal, Reading, Settings, TimeOfWeek};
use proptest::prelude::*;

use crate::support::{at, law, reading, run, seen, settings, workers};

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

/// Arrivals that grow briefly start instances. These stay for a cool-down, although fewer were enough before.
#[test]
fn the_cool_down_begins_again_at_a_start() {
    let mut law = law(settings());
    let mut arrived = 0;
    let mut look = |second, more, ready| {
        arrived += more;
        let reading = Reading {
            completed: None,
            ..reading(20, 1, arrived)
        };
        law.decide(at(second), &seen(Some(reading), ready))
    };
    for second in (0..=60).step_by(10) {
        look(second, 10, 5);
    }
    let grown = look(70, 4000, 5);
    assert!(matches!(grown.action, Action::Start(_)), "{grown}");
    for second in [80, 90, 100] {
        let decision = look(second, 10, 20);
        assert_eq!(decision.action, Action::Hold, "{decision}");
    }
    let later = look(110, 10, 20);
    assert!(matches!(later.action, Action::Stop(_)), "{later}");
}
