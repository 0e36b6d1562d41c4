//! A rule, a load and workers, second by second.

use std::time::Duration;

use crate::law::Law;
use crate::observation::{Moment, Observation, Source};
use crate::simulate::load::Load;
use crate::simulate::world::{Workers, World};

/// A rule that decides how many instances run.
pub trait Scaler {
    /// How often it looks.
    fn every(&self) -> Duration;
    /// Whether a publisher can wake it.
    fn has_push(&self) -> bool;
    /// How many instances from now on, and how many tasks in each. `None` changes nothing.
    fn scale(&mut self, now: Moment, seen: &Observation) -> Option<(u32, u32)>;
}

impl Scaler for Law {
    /// The agent's default.
    fn every(&self) -> Duration {
        Duration::from_secs(10)
    }

    fn has_push(&self) -> bool {
        true
    }

    fn scale(&mut self, now: Moment, seen: &Observation) -> Option<(u32, u32)> {
        let decision = self.decide(now, seen);
        decision.instances.map(|count| (count, decision.tasks))
    }
}

/// The queue and its instances at the end of a second.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Point {
    /// Messages that wait.
    pub backlog: u64,
    /// Seconds that the oldest of them has waited.
    pub oldest_seconds: u32,
    /// Instances that run, ready or not.
    pub instances: u32,
}

/// A whole run.
#[derive(Clone, Debug, PartialEq)]
pub struct Course {
    /// Each second.
    pub points: Vec<Point>,
    /// Instances that were started.
    pub starts: u32,
}

/// What a run is judged by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Score {
    /// Seconds in which the oldest message was older than the goal.
    pub late_seconds: u32,
    /// The greatest age of a message.
    pub oldest_seconds: u32,
    /// Time of all instances together, in hours. An instance counts from its start, not from when it is ready.
    pub instance_hours: f64,
    /// Instances that were started.
    pub starts: u32,
}

impl Course {
    /// Judges a run by a goal for the age of the oldest message.
    #[must_use]
    pub fn score(&self, goal: Duration) -> Score {
        let ages = || self.points.iter().map(|it| it.oldest_seconds);
        let late = ages().filter(|age| u64::from(*age) > goal.as_secs());
        let instance_seconds: f64 = self.points.iter().map(|it| f64::from(it.instances)).sum();
        Score {
            late_seconds: u32::try_from(late.count()).unwrap_or(u32::MAX),
            oldest_seconds: ages().max().unwrap_or_default(),
            instance_hours: instance_seconds / 3600.0,
            starts: self.starts,
        }
    }
}

/// Runs a rule over a load. In seconds for which `is_readable` is false, the queue cannot be read.
pub fn run(
    scaler: &mut impl Scaler,
    load: &Load,
    workers: Workers,
    is_readable: impl Fn(u32) -> bool,
) -> Course {
    let mut world = World::new(workers);
    let mut points = Vec::with_capacity(load.arrivals.len());
    let every = scaler.every().as_secs().max(1);
    for (second, arrivals) in (0_u32..).zip(&load.arrivals) {
        world.pass(*arrivals);
        let elapsed = Duration::from_secs(u64::from(second));
        let was_empty = points.last().is_none_or(|it: &Point| it.backlog == 0);
        // Publishers announce work that comes to an empty queue.
        let announced = scaler.has_push() && was_empty && *arrivals > 0 && world.count() == 0;
        if u64::from(second).is_multiple_of(every) || announced {
            let now = Moment {
                elapsed,
                week: load.begins.plus(elapsed),
            };
            let source = Source {
                name: load.name.clone(),
                reading: is_readable(second).then(|| world.reading()),
            };
            let seen = Observation {
                sources: vec![source],
                instances: Some(world.instances()),
                announced,
                is_throttled: false,
            };
            if let Some((count, tasks)) = scaler.scale(now, &seen) {
                world.scale(count, tasks);
            }
        }
        points.push(Point {
            backlog: world.reading().backlog,
            oldest_seconds: world.oldest_seconds(),
            instances: world.count(),
        });
    }
    Course {
        points,
        starts: world.starts,
    }
}
