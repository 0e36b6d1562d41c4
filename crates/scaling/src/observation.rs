//! What the agent has seen.

use std::time::Duration;

use crate::week::TimeOfWeek;

/// When something was seen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Moment {
    /// Time since the agent started, by a clock that never goes back.
    pub elapsed: Duration,
    /// The time of the week, for scheduled peaks.
    pub week: TimeOfWeek,
}

/// What a queue or subscription reports. Services differ in what they tell, so all but the backlog may be missing.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Reading {
    /// Messages that wait or are being handled.
    pub backlog: u64,
    /// The age of the oldest of them.
    pub oldest: Option<Duration>,
    /// Messages that have arrived since any beginning. It may begin again at 0.
    pub arrived: Option<u64>,
    /// Messages that have been completed since any beginning. It may begin again at 0.
    pub completed: Option<u64>,
}

/// A queue or subscription, and what it reported.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Source {
    /// Its name, as an operator knows it.
    pub name: String,
    /// What it reported, or `None` if it could not be read.
    pub reading: Option<Reading>,
}

/// The instances that handle the messages.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Instances {
    /// Those that handle messages.
    pub ready: u32,
    /// Those that were started, and are not ready.
    pub starting: u32,
    /// Tasks that each instance runs now, if they report it.
    pub tasks: Option<u32>,
    /// The mean time that a task takes for a message, if they report it.
    pub handling: Option<Duration>,
    /// The share of their processors that they use, from 0 to 1, if they report it.
    pub cpu: Option<f64>,
    /// All of them share the processors of one machine, so more of them do not get more.
    pub share_processors: bool,
}

impl Instances {
    pub(crate) fn count(&self) -> u32 {
        self.ready.saturating_add(self.starting)
    }
}

/// What the agent has seen at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Observation {
    /// The queues and subscriptions that the instances serve.
    pub sources: Vec<Source>,
    /// The instances, or `None` if they could not be counted.
    pub instances: Option<Instances>,
    /// A publisher has announced work since the last observation.
    pub announced: bool,
    /// The service refuses requests because there are too many (503 or *server busy*).
    pub is_throttled: bool,
}
