//! The number of instances stays within its bounds, whatever is seen.

use std::time::Duration;

use kew_scaling::{
    Action, Day, Goal, Instances, Moment, Observation, Peak, Reading, Settings, Source, TimeOfWeek,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use crate::support::law;

fn any_settings() -> impl Strategy<Value = Settings> {
    let few = || prop_oneof![Just(0), 0_u32..50];
    let numbers = (1_u32..50, few(), few(), 1_u32..40);
    let goal = prop_oneof![
        prop_oneof![1_u64..2000, Just(7 * 86_400)]
            .prop_map(|it| Goal::Age(Duration::from_secs(it))),
        (1_u32..2000).prop_map(Goal::BacklogPerTask),
    ];
    let idle_after = prop_oneof![Just(0), 0_u64..300];
    let times = (0_u64..300, 0_u64..300, idle_after);
    let rate = option::of(prop_oneof![0.001_f64..1000.0, Just(1e-6), Just(1e6)]);
    let tolerance = prop_oneof![Just(0.0), 0.0_f64..=0.5];
    let rates = (rate, tolerance);
    let peaks = vec((0_u32..168, 1_u32..100, 0_u32..50), 0..3);
    (numbers, goal, times, rates, peaks).prop_map(|(numbers, goal, times, rates, peaks)| {
        let (maximum, minimum, spare, tasks_max) = numbers;
        let peak = |(from, hours, instances): (u32, u32, u32)| Peak {
            from: TimeOfWeek::new(Day::Monday, from, 0),
            until: TimeOfWeek::new(Day::Monday, from + hours, 0),
            instances: instances.min(maximum),
        };
        Settings {
            goal,
            minimum: minimum.min(maximum),
            maximum,
            spare: spare.min(maximum - 1),
            tasks_max,
            rate_per_task: rates.0,
            tolerance: rates.1,
            start_delay: Duration::from_secs(times.0),
            cool_down: Duration::from_secs(times.1),
            idle_after: Duration::from_secs(times.2),
            peaks: peaks.into_iter().map(peak).collect(),
        }
    })
}

fn any_reading() -> impl Strategy<Value = Reading> {
    let backlog = prop_oneof![Just(0), 0_u64..100, 0_u64..1 << 40];
    let oldest = option::of((0_u64..1 << 30).prop_map(Duration::from_secs));
    let counter = || option::of(0_u64..1 << 40);
    (backlog, oldest, counter(), counter()).prop_map(|(backlog, oldest, arrived, completed)| {
        Reading {
            backlog,
            oldest,
            arrived,
            completed,
        }
    })
}

fn any_instances() -> impl Strategy<Value = Instances> {
    let handling = option::of((0_u64..100_000).prop_map(Duration::from_millis));
    let tasks = option::of(0_u32..100);
    let cpu = option::of(0.0_f64..1.5);
    let counts = (0_u32..60, 0_u32..60);
    (counts, tasks, handling, cpu, any::<bool>()).prop_map(
        |((ready, starting), tasks, handling, cpu, share_processors)| Instances {
            ready,
            starting,
            tasks,
            handling,
            cpu,
            share_processors,
        },
    )
}

fn any_observation() -> impl Strategy<Value = Observation> {
    let readings = vec(option::weighted(0.9, any_reading()), 0..4);
    let instances = option::weighted(0.9, any_instances());
    (readings, instances, any::<bool>(), any::<bool>()).prop_map(
        |(readings, instances, announced, is_throttled)| {
            let sources = readings.into_iter().enumerate();
            let sources = sources.map(|(index, reading)| Source {
                name: format!("queue-{index}"),
                reading,
            });
            Observation {
                sources: sources.collect(),
                instances,
                announced,
                is_throttled,
            }
        },
    )
}

/// Whether messages wait that an instance must handle. While the service is throttled, none starts for them.
fn has_work(seen: &Observation) -> bool {
    let waits = |it: &Source| it.reading.is_some_and(|it| it.backlog > 0);
    seen.sources.iter().any(waits) && !seen.is_throttled
}

proptest! {
    #[test]
    fn the_number_stays_within_its_bounds(
        settings in any_settings(),
        observations in vec((0_u64..100, any_observation()), 1..40),
    ) {
        let (minimum, maximum) = (settings.minimum, settings.maximum);
        let tasks_max = settings.tasks_max;
        let mut law = law(settings);
        let mut elapsed = Duration::ZERO;
        for (seconds, seen) in observations {
            elapsed += Duration::from_secs(seconds);
            let week = TimeOfWeek::new(Day::Monday, 0, 0).plus(elapsed);
            let decision = law.decide(Moment { elapsed, week }, &seen);
            prop_assert!((1..=tasks_max).contains(&decision.tasks));
            let running = seen.instances.map(|it| it.ready + it.starting);
            match (decision.instances, running) {
                (Some(count), Some(running)) => {
                    prop_assert!((minimum..=maximum).contains(&count), "{decision}");
                    prop_assert!(count > 0 || !has_work(&seen), "{decision}");
                    match decision.action {
                        Action::Hold => prop_assert_eq!(count, running),
                        Action::Start(to) => prop_assert!(to == count && to > running),
                        Action::Stop(to) => prop_assert!(to == count && to < running),
                    }
                }
                (None, None) => prop_assert_eq!(decision.action, Action::Hold),
                other => prop_assert!(false, "{other:?}"),
            }
            prop_assert!(!decision.to_string().is_empty());
        }
    }
}
