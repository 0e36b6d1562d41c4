//! What the tests share.

use std::time::Duration;

use kew_scaling::simulate::{Course, Load, Scaler, Workers};
use kew_scaling::{
    Day, Decision, Goal, Instances, Law, Moment, Observation, Reading, Settings, Source, TimeOfWeek,
};

pub(crate) const START_SECONDS: u32 = 30;
pub(crate) const GOAL: Duration = Duration::from_secs(60);

/// Instances of 8 tasks with one message a second each, ready after 30 s.
pub(crate) fn workers() -> Workers {
    Workers {
        rate_per_task: 1.0,
        tasks_max: 8,
        start_seconds: START_SECONDS,
        ready: 0,
    }
}

/// The defaults, for [`workers`].
pub(crate) fn settings() -> Settings {
    Settings {
        goal: Goal::Age(GOAL),
        rate_per_task: Some(1.0),
        start_delay: Duration::from_secs(START_SECONDS.into()),
        ..Settings::default()
    }
}

pub(crate) fn law(settings: Settings) -> Law {
    Law::new(settings).unwrap()
}

/// Runs `scaler` with a queue that can always be read.
pub(crate) fn run(scaler: &mut impl Scaler, load: &Load, workers: Workers) -> Course {
    kew_scaling::simulate::run(scaler, load, workers, |_| true)
}

pub(crate) fn at(seconds: u64) -> Moment {
    let elapsed = Duration::from_secs(seconds);
    let week = TimeOfWeek::new(Day::Wednesday, 12, 0).plus(elapsed);
    Moment { elapsed, week }
}

/// One queue and `ready` instances.
pub(crate) fn seen(reading: Option<Reading>, ready: u32) -> Observation {
    let name = "orders".to_owned();
    Observation {
        sources: vec![Source { name, reading }],
        instances: Some(Instances {
            ready,
            ..Instances::default()
        }),
        ..Observation::default()
    }
}

pub(crate) fn reading(backlog: u64, oldest_seconds: u64, arrived: u64) -> Reading {
    Reading {
        backlog,
        oldest: (backlog > 0).then(|| Duration::from_secs(oldest_seconds)),
        arrived: Some(arrived),
        completed: arrived.checked_sub(backlog),
    }
}

/// An empty queue, until `until`, each 10 s. Returns the last decision.
pub(crate) fn quiet(law: &mut Law, from: u64, until: u64, ready: u32) -> Decision {
    let mut last = None;
    for second in (from..=until).step_by(10) {
        let decision = law.decide(at(second), &seen(Some(reading(0, 0, 0)), ready));
        last = Some(decision);
    }
    last.expect("there is at least one look")
}

/// How often the number of instances changed from `second` on.
pub(crate) fn changes(course: &Course, second: usize) -> usize {
    let counts = course.points.iter().skip(second).map(|it| it.instances);
    let next = counts.clone().skip(1);
    counts.zip(next).filter(|(now, next)| now != next).count()
}
