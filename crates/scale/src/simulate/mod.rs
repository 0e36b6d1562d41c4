//! `kew scale simulate`: the settings of a group on a load, in the simulator of `kew-scaling`, as a table and pictures.

mod load;
mod svg;
mod text;

use std::time::Duration;

use kew_scaling::simulate::{Course, Keda, Load, Scaler, Score, Workers, run};
use kew_scaling::{Goal, Law, TimeOfWeek};
use thiserror::Error;

use crate::config::Group;

pub use load::{LoadError, load};

/// Messages count as late after this age if the goal is none.
const AGE_DEFAULT: Duration = Duration::from_secs(60);

/// A load, and how rules have handled it.
#[derive(Clone, Debug)]
pub struct Simulation {
    name: String,
    /// The age above which a message is late.
    goal: Duration,
    /// When the load begins, and how many seconds it has.
    begins: TimeOfWeek,
    seconds: u32,
    runs: Vec<Run>,
}

#[derive(Clone, Debug)]
struct Run {
    rule: String,
    course: Course,
    score: Score,
}

/// Why a group cannot be simulated.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum SimulateError {
    /// Nothing says how fast workers are.
    #[error(
        "the group {0:?} has no rate_per_task: set it to the messages that a task handles each second"
    )]
    NoRate(String),
    /// The settings contradict each other.
    #[error("the group {0:?}: {1}")]
    Settings(String, kew_scaling::SettingsError),
}

impl Simulation {
    /// Runs the law with the settings of a group over a load, and KEDA's rule beside it if that is asked for.
    ///
    /// Instances are ready after `start_delay`, and at the beginning `minimum` run.
    ///
    /// # Errors
    ///
    /// If the group does not say how fast its workers are.
    pub fn new(group: &Group, load: &Load, beside_keda: bool) -> Result<Self, SimulateError> {
        let settings = &group.law;
        let rate = settings.rate_per_task;
        let rate_per_task = rate.ok_or_else(|| SimulateError::NoRate(group.name.clone()))?;
        let start_seconds = settings.start_delay.as_secs();
        let workers = Workers {
            rate_per_task,
            tasks_max: settings.tasks_max,
            start_seconds: u32::try_from(start_seconds).unwrap_or(u32::MAX),
            ready: settings.minimum,
        };
        let goal = match settings.goal {
            Goal::Age(age) => age,
            Goal::BacklogPerTask(_) => AGE_DEFAULT,
        };
        let law = Law::new(settings.clone());
        let law = law.map_err(|error| SimulateError::Settings(group.name.clone(), error))?;
        let mut law = Paced {
            law,
            every: group.every,
            is_counted: group.sources.iter().all(|it| it.metrics.is_some()),
            has_push: group.announcements.is_some(),
        };
        let course = run(&mut law, load, workers, |_| true);
        let mut runs = vec![Run::judged("kew".to_owned(), course, goal)];
        if beside_keda {
            let per_instance = rate_per_task * f64::from(settings.tasks_max);
            let target = match settings.goal {
                // What an instance handles in half of the goal.
                Goal::Age(age) => whole(per_instance * age.as_secs_f64() / 2.0).max(1),
                Goal::BacklogPerTask(count) => count.saturating_mul(settings.tasks_max),
            };
            let mut keda = Keda::new(target, settings.maximum);
            let course = run(&mut keda, load, workers, |_| true);
            runs.push(Run::judged(format!("KEDA, target {target}"), course, goal));
        }
        Ok(Self {
            name: format!("{}, {}", group.name, load.name),
            goal,
            begins: load.begins,
            seconds: u32::try_from(load.arrivals.len()).unwrap_or(u32::MAX),
            runs,
        })
    }

    fn at(&self, second: u32) -> TimeOfWeek {
        self.begins.plus(Duration::from_secs(second.into()))
    }

    /// A table, and a line of blocks for each of backlog, age, instances and cost.
    #[must_use]
    pub fn text(&self) -> String {
        text::draw(self)
    }

    /// A picture of backlog, age, instances and cost over time.
    #[must_use]
    pub fn svg(&self) -> String {
        svg::draw(self)
    }
}

/// The law as the agent has it: it looks as often, sees as much, and hears of work if the group does.
struct Paced {
    law: Law,
    every: Duration,
    /// Whether metrics pages count arrivals and completions. No service does.
    is_counted: bool,
    has_push: bool,
}

impl Scaler for Paced {
    fn every(&self) -> Duration {
        self.every
    }

    fn has_push(&self) -> bool {
        self.has_push
    }

    fn scale(
        &mut self,
        now: kew_scaling::Moment,
        seen: &kew_scaling::Observation,
    ) -> Option<(u32, u32)> {
        if self.is_counted {
            return self.law.scale(now, seen);
        }
        let mut seen = seen.clone();
        for reading in seen.sources.iter_mut().filter_map(|it| it.reading.as_mut()) {
            (reading.arrived, reading.completed) = (None, None);
        }
        self.law.scale(now, &seen)
    }
}

/// What a picture shows: its name, and a value for each second.
struct Series {
    name: &'static str,
    values: Vec<f64>,
}

impl Run {
    fn judged(rule: String, course: Course, goal: Duration) -> Self {
        let score = course.score(goal);
        Self {
            rule,
            course,
            score,
        }
    }

    fn series(&self) -> [Series; 4] {
        let points = &self.course.points;
        let values = |of: fn(&kew_scaling::simulate::Point) -> f64| points.iter().map(of).collect();
        let mut hours = 0.0;
        let cost = points.iter().map(|it| {
            hours += f64::from(it.instances) / 3600.0;
            hours
        });
        [
            Series {
                name: "backlog, messages",
                values: values(|it| number(it.backlog)),
            },
            Series {
                name: "age of the oldest message, s",
                values: values(|it| f64::from(it.oldest_seconds)),
            },
            Series {
                name: "instances",
                values: values(|it| f64::from(it.instances)),
            },
            Series {
                name: "cost, instance-hours",
                values: cost.collect(),
            },
        ]
    }
}

/// The largest value of each of `columns` parts of the time.
fn columns(values: &[f64], columns: usize) -> Vec<f64> {
    let size = values.len().div_ceil(columns.max(1)).max(1);
    let parts = values.chunks(size);
    parts
        .map(|part| part.iter().copied().fold(0.0, f64::max))
        .collect()
}

fn most(values: &[f64]) -> f64 {
    values.iter().copied().fold(0.0, f64::max)
}

fn number(count: u64) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}

fn whole(value: f64) -> u32 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a cast stays within the range of the type"
    )]
    let whole = value as u32;
    whole
}
