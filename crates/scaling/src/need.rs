//! How many instances a load needs: the formulas of the law.

use std::time::Duration;

use crate::decision::Reason;
use crate::numbers::{count_for, rate_of};
use crate::settings::{Goal, Settings};

/// Instances stop only if the others are then busy for at most this share of their time.
const BUSY_MAX: f64 = 0.96;
/// Tasks are busy for at most this share of their time.
const TASKS_BUSY_MAX: f64 = 0.8;
/// Messages that wait get so many tasks that all are handled within this time.
const TASKS_SECONDS: f64 = 10.0;
/// However late messages are, the law does not try to catch up within less than this part of the goal.
const CATCH_UP: u32 = 4;
/// And instances that run do not stop if the others need less than this part of the goal for what waits.
const REST_MIN: u32 = 60;
/// A load that falls is expected to go on so for half of the time over which it was seen to fall.
const FORECAST: Duration = Duration::from_secs(900);

/// What is there to handle, and what handles it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    /// Messages that wait or are being handled.
    pub(crate) backlog: u64,
    /// The age of the oldest of them, if it is known.
    pub(crate) oldest: Option<Duration>,
    /// Messages that arrive each second, if that is known.
    pub(crate) arrivals: Option<f64>,
    /// The same without those that came only briefly.
    pub(crate) lasting_arrivals: Option<f64>,
    /// By how many messages a second that becomes less in each second, for sure. 0 if it may not.
    pub(crate) fall: f64,
    /// Messages that one task handles each second, if that is known.
    pub(crate) rate_per_task: Option<f64>,
    /// Tasks that an instance can run.
    pub(crate) tasks: u32,
    /// Instances that handle messages.
    pub(crate) ready: u32,
    /// Instances that will.
    pub(crate) starting: u32,
}

/// Instances for a load, not rounded, and why.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Need {
    pub(crate) instances: f64,
    pub(crate) reasons: Vec<Reason>,
}

impl Need {
    fn raise(&mut self, instances: f64, reason: impl FnOnce(u32) -> Reason) {
        if instances > 0.0 {
            let reason = reason(count_for(instances));
            // The larger need comes first.
            let place = if instances > self.instances {
                0
            } else {
                self.reasons.len()
            };
            self.reasons.insert(place, reason);
            self.instances = self.instances.max(instances);
        }
    }
}

impl Load {
    fn instance_rate(&self) -> Option<f64> {
        let tasks = f64::from(self.tasks);
        self.rate_per_task.map(|rate| rate * tasks)
    }

    /// Messages that the running instances handle until an instance that starts now is ready.
    fn handled_during(&self, delay: Duration, instance_rate: f64) -> f64 {
        // Those that start already are ready after half of the time, on average.
        let working = f64::from(self.ready) + f64::from(self.starting) / 2.0;
        working * instance_rate * delay.as_secs_f64()
    }

    /// Instances below which more must start.
    pub(crate) fn at_least(&self, settings: &Settings) -> Need {
        let mut need = Need::default();
        let delay = settings.start_delay;
        let instance_rate = self.instance_rate();
        let backlog = rate_of(self.backlog);
        let handled = instance_rate.map_or(0.0, |rate| self.handled_during(delay, rate));
        // Those that wait when a new instance is ready. Without a rate of arrivals: as many as now.
        let arrivals = self.arrivals.map(|rate| rate * delay.as_secs_f64());
        let later = arrivals.map_or(backlog, |more| (backlog + more - handled).max(0.0));
        match (settings.goal, instance_rate) {
            (Goal::BacklogPerTask(count), _) => self.need_for_backlog(&mut need, count, later),
            (Goal::Age(goal), None) => self.search(&mut need, settings, goal),
            (Goal::Age(goal), Some(rate)) => {
                let (within, after) = (goal / 2, delay);
                need.raise(instances_for(later, rate, within), |instances| {
                    Reason::ComingBacklog {
                        backlog: count_for(later),
                        after,
                        within,
                        instances,
                    }
                });
                let backlog = self.backlog;
                let within = self.left(goal, delay);
                let left = rate_of(backlog) - handled;
                need.raise(instances_for(left, rate, within), |instances| {
                    Reason::Backlog {
                        backlog,
                        within,
                        instances,
                    }
                });
            }
        }
        need
    }

    /// Instances that are enough, so that others may stop.
    pub(crate) fn enough(&self, settings: &Settings) -> Need {
        let mut need = Need::default();
        let instance_rate = self.instance_rate();
        let backlog = rate_of(self.backlog);
        match (settings.goal, instance_rate) {
            (Goal::BacklogPerTask(count), _) => self.need_for_backlog(&mut need, count, backlog),
            (Goal::Age(goal), None) => self.search(&mut need, settings, goal),
            (Goal::Age(goal), Some(rate)) => {
                let (backlog, within) = (self.backlog, self.rest_within(goal));
                let instances = instances_for(rate_of(backlog), rate, within);
                need.raise(instances, |instances| Reason::Rest {
                    backlog,
                    within,
                    instances,
                });
            }
        }
        if let (Some(rate), Some(instance_rate)) = (self.lasting_arrivals, instance_rate) {
            let lasting = rate / (BUSY_MAX * instance_rate);
            let gone = self.gone_soon(settings, rate);
            let soon = gone.map(|gone| (rate - gone) / instance_rate);
            match soon.filter(|soon| *soon < lasting) {
                Some(soon) => need.raise(soon, |instances| Reason::Falling {
                    rate,
                    fall: self.fall,
                    instance_rate,
                    instances,
                }),
                None => need.raise(lasting, |instances| Reason::Arrivals {
                    rate,
                    instance_rate,
                    busy_max: BUSY_MAX,
                    instances,
                }),
            }
        }
        need
    }

    /// Of a load that falls for sure, the messages a second that no instance is needed for: what they add to the backlog
    /// until they do not come any more can be handled within a quarter of the goal.
    fn gone_soon(&self, settings: &Settings, rate: f64) -> Option<f64> {
        let Goal::Age(goal) = settings.goal else {
            return None;
        };
        let backlog_max = rate * (goal / CATCH_UP).as_secs_f64();
        let more = (backlog_max - rate_of(self.backlog)).max(0.0);
        // The area of a triangle.
        let gone = (2.0 * self.fall * more).sqrt();
        let gone = gone.min(self.fall * FORECAST.as_secs_f64()).min(rate);
        (gone > 0.0).then_some(gone)
    }

    /// How soon what waits must be handled so that instances may stop: before the oldest message is too old, with a
    /// fifth of the goal to spare. If it is too old already, it may be one that no instance can handle, such as a deferred
    /// one, and says nothing of the others.
    fn rest_within(&self, goal: Duration) -> Duration {
        let oldest = self.oldest.unwrap_or_default();
        if oldest >= goal {
            return goal / CATCH_UP;
        }
        let left = (goal * 4 / 5).saturating_sub(oldest);
        left.min(goal / CATCH_UP).max(goal / REST_MIN)
    }

    /// Tasks that each instance needs.
    pub(crate) fn tasks(&self) -> u32 {
        let Some(rate) = self.rate_per_task else {
            return self.tasks;
        };
        let arrivals = self.arrivals.unwrap_or(0.0) / TASKS_BUSY_MAX;
        let all = (arrivals + rate_of(self.backlog) / TASKS_SECONDS) / rate;
        count_for(all / f64::from(self.ready.max(1))).clamp(1, self.tasks)
    }

    /// The time that is left for the oldest message when a new instance is ready, with a fifth of the goal to spare.
    fn left(&self, goal: Duration, delay: Duration) -> Duration {
        let oldest = self.oldest.unwrap_or_default();
        let left = (goal * 4 / 5).saturating_sub(oldest.saturating_add(delay));
        left.max(goal / CATCH_UP)
    }

    /// That the oldest message is older than the goal.
    pub(crate) fn late(&self, settings: &Settings) -> Option<Reason> {
        let oldest = self.oldest?;
        match settings.goal {
            Goal::Age(goal) if oldest > goal => Some(Reason::Late { oldest, goal }),
            Goal::Age(_) | Goal::BacklogPerTask(_) => None,
        }
    }

    fn need_for_backlog(&self, need: &mut Need, count: u32, backlog: f64) {
        let for_each = u64::from(count) * u64::from(self.tasks);
        need.raise(backlog / rate_of(for_each), |instances| {
            Reason::BacklogPerTask {
                backlog: self.backlog,
                for_each,
                instances,
            }
        });
    }

    /// Without a rate: twice as many, as long as messages wait too long.
    fn search(&self, need: &mut Need, settings: &Settings, goal: Duration) {
        let running = self.ready.saturating_add(self.starting);
        let oldest = self.oldest.unwrap_or_default();
        let is_slow = oldest.saturating_add(settings.start_delay) > goal && self.starting == 0;
        let instances = match (self.backlog, running) {
            (0, _) => return,
            (_, 0) => 1,
            (_, running) if is_slow => running.saturating_mul(2),
            (_, running) => running,
        };
        need.raise(f64::from(instances), |instances| Reason::RateUnknown {
            instances,
        });
    }
}

/// Instances that handle `work` within a time.
fn instances_for(work: f64, instance_rate: f64, within: Duration) -> f64 {
    work / (instance_rate * within.as_secs_f64())
}
