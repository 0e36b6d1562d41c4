//! A load that falls slowly: instances stop a little before they are not needed any more, and no message is late.

use kew_scaling::simulate::Load;
use kew_scaling::{Day, Decision, Law, Observation, Reason, Source, TimeOfWeek};
use proptest::prelude::*;

use crate::support::{
    GOAL, START_SECONDS, at, changes, law, reading, run, seen, settings, workers,
};

const HOUR: u32 = 3600;

fn begins() -> TimeOfWeek {
    TimeOfWeek::new(Day::Wednesday, 12, 0)
}

/// From `high` to `low` in `seconds`, then `low`.
fn falling(high: f64, low: f64, seconds: u32) -> impl Fn(u32) -> f64 {
    move |second| {
        let part = (f64::from(second) / f64::from(seconds)).min(1.0);
        high + (low - high) * part
    }
}

/// Looks each 10 s for half an hour at queues of which `rate(queue, second)` messages arrive. All are handled.
fn watch(law: &mut Law, queues: usize, rate: impl Fn(usize, u32) -> f64) -> Decision {
    watch_some(law, queues, rate, |_| true)
}

/// The same with looks at which none can be read.
fn watch_some(
    law: &mut Law,
    queues: usize,
    rate: impl Fn(usize, u32) -> f64,
    is_readable: impl Fn(usize) -> bool,
) -> Decision {
    let loads = (0..queues).map(|queue| Load::even("even", begins(), 1801, |it| rate(queue, it)));
    let loads: Vec<Load> = loads.collect();
    let looks = (0..=1800).step_by(10).map(|second| {
        let sources = loads.iter().enumerate().map(|(queue, load)| {
            let arrived = load.arrivals.iter().take(second).map(|it| u64::from(*it));
            Source {
                name: format!("queue-{queue}"),
                reading: is_readable(second).then(|| reading(0, 0, arrived.sum())),
            }
        });
        let seen = Observation {
            sources: sources.collect(),
            ..seen(None, 10)
        };
        law.decide(at(u64::try_from(second).unwrap()), &seen)
    });
    looks.last().unwrap()
}

fn falls(decision: &Decision) -> bool {
    let is_it = |it: &Reason| matches!(it, Reason::Falling { .. });
    decision.reasons.iter().any(is_it)
}

/// What came meanwhile may have come at once.
#[test]
fn a_load_that_was_not_seen_for_a_while_is_watched_again() {
    let rate = |_, second| 70.0 - f64::from(second) * 0.015;
    let falls_without = |missed: std::ops::Range<usize>| {
        let mut law = law(settings());
        falls(&watch_some(&mut law, 1, rate, |it| !missed.contains(&it)))
    };
    assert!(falls_without(1500..1520));
    assert!(!falls_without(1500..1530));
    assert!(falls_without(1100..1130));
}

/// 43 messages a second need six instances of eight, and five will do within minutes.
#[test]
fn an_instance_stops_before_the_last_messages_it_is_needed_for() {
    let decision = watch(&mut law(settings()), 1, |_, second| {
        70.0 - f64::from(second) * 0.015
    });
    assert_eq!(decision.instances, Some(5), "{decision}");
    let text = decision.to_string();
    let expected = "messages arrive each second, and in a minute 0.9 fewer, and an instance handles 8.0: 5 instances \
                    will be enough before much waits";
    assert!(text.contains(expected), "{text}");
}

/// Together they do not fall.
#[test]
fn a_queue_that_grows_is_set_off_against_one_that_falls() {
    let slope = |queue| if queue == 0 { -0.01 } else { 0.01 };
    let both = |queue, second| 30.0 + slope(queue) * f64::from(second);
    let decision = watch(&mut law(settings()), 2, both);
    assert!(!falls(&decision), "{decision}");
    let decision = watch(&mut law(settings()), 2, |_, second| both(0, second));
    assert!(falls(&decision), "{decision}");
}

/// A step is no slope, and what it says of later would be wrong.
#[test]
fn a_step_down_is_no_fall() {
    for step in (100..1800).step_by(100) {
        let rate = |_, second| if second < step { 70.0 } else { 43.0 };
        let decision = watch(&mut law(settings()), 1, rate);
        assert!(!falls(&decision), "at {step} s: {decision}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn nothing_is_late_while_a_load_falls_nor_after_it(
        high in 20.0_f64..140.0,
        share in 0.0_f64..0.9,
        seconds in 1200..3 * HOUR,
        seed in any::<u64>(),
    ) {
        let rate = falling(high, high * share, seconds);
        let load = Load::random("falls", begins(), seconds + HOUR, seed, rate);
        let course = run(&mut law(settings()), &load, workers());
        let later = course.points.iter().skip(300).map(|it| it.oldest_seconds).max();
        prop_assert!(later <= Some(60), "{later:?}");
    }

    /// One change for each instance that stops, and a few when the fall ends: what was to be gone soon still comes.
    #[test]
    fn a_load_that_falls_changes_the_number_rarely(
        high in 20.0_f64..140.0,
        share in 0.0_f64..0.9,
        seconds in 1200..3 * HOUR,
    ) {
        // At fewer messages, the last instance stops and starts.
        let low = (high * share).max(0.5);
        let load = Load::even("falls", begins(), seconds + 2 * HOUR, falling(high, low, seconds));
        let course = run(&mut law(settings()), &load, workers());
        let fewer = ((high - low) / 8.0).ceil();
        let changes = u32::try_from(changes(&course, 600)).unwrap();
        prop_assert!(f64::from(changes) <= fewer + 3.0, "{changes} changes for {fewer} instances");
    }

    /// The worst moment: instances have stopped for what will not come.
    #[test]
    fn the_goal_is_met_soon_after_a_jump_in_a_fall(
        high in 40.0_f64..120.0,
        jump in 0.0_f64..60.0,
        after in 1800..2 * HOUR,
        seed in any::<u64>(),
    ) {
        let fall = falling(high, 0.0, 2 * HOUR);
        let rate = |second| match second < after {
            true => fall(second),
            false => (fall(after) + jump).min(120.0),
        };
        let load = Load::random("jumps", begins(), after + HOUR, seed, rate);
        let course = run(&mut law(settings()), &load, workers());
        let goal = u32::try_from(GOAL.as_secs()).unwrap();
        let later = usize::try_from(after + 2 * (START_SECONDS + 10) + goal).unwrap();
        let oldest = course.points.iter().skip(later).map(|it| it.oldest_seconds).max();
        prop_assert!(oldest <= Some(goal), "{oldest:?} s old");
    }
}
