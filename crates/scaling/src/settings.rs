//! What an operator decides.

use std::time::Duration;

use thiserror::Error;

use crate::numbers::whole_of;
use crate::week::Peak;

/// Messages a second of one task. Beyond these, the arithmetic of the law would lose small numbers.
const RATE_MIN: f64 = 1e-6;
const RATE_MAX: f64 = 1e6;
/// Above it, a number could not fall to less than twice what is needed.
const TOLERANCE_MAX: f64 = 0.5;

/// What the instances must achieve.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Goal {
    /// No message waits longer than this.
    Age(Duration),
    /// At most so many messages for each task.
    BacklogPerTask(u32),
}

/// What the law needs to know. `docs/scale.md` explains each value.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// What the instances must achieve. Default: no message waits longer than 60 s.
    pub goal: Goal,
    /// Never fewer instances than this. Default: 0, so that nothing runs while the queues are empty.
    pub minimum: u32,
    /// Never more instances than this. Default: 20.
    pub maximum: u32,
    /// Instances beyond those needed, ready for what comes next. With 1 or more, one instance always runs. Default: 0.
    pub spare: u32,
    /// Tasks of one instance at most. Tasks are added before instances. Default: 8.
    pub tasks_max: u32,
    /// Messages that one task handles each second, until the law has measured it. Default: not known.
    pub rate_per_task: Option<f64>,
    /// From the start of an instance until it handles its first message. Default: 30 s.
    pub start_delay: Duration,
    /// The number of instances falls only after fewer have been enough for so long. Default: 30 s.
    pub cool_down: Duration,
    /// The last instances stop after the queues have been empty for so long. Default: 120 s.
    pub idle_after: Duration,
    /// What acts ignores changes up to this share of the number, as the autoscaler of Kubernetes does. Default: 0.
    pub tolerance: f64,
    /// Scheduled peaks. Where several are on, the largest counts. Default: none.
    pub peaks: Vec<Peak>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            goal: Goal::Age(Duration::from_secs(60)),
            minimum: 0,
            maximum: 20,
            spare: 0,
            tasks_max: 8,
            rate_per_task: None,
            start_delay: Duration::from_secs(30),
            cool_down: Duration::from_secs(30),
            idle_after: Duration::from_secs(120),
            tolerance: 0.0,
            peaks: Vec::new(),
        }
    }
}

/// Why settings are refused.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum SettingsError {
    /// Nothing meets such a goal.
    #[error("the goal is 0: set an age, or a backlog for each task, above 0")]
    Goal,
    /// Nothing would ever run.
    #[error("the maximum of instances is 0: set it to 1 or more")]
    Maximum,
    /// The range is empty.
    #[error("the minimum of {minimum} instances is above the maximum of {maximum}")]
    Minimum {
        /// The minimum.
        minimum: u32,
        /// The maximum.
        maximum: u32,
    },
    /// Spare instances could never be ready.
    #[error("{spare} spare instances leave none of the maximum of {maximum} for messages")]
    Spare {
        /// The spare instances.
        spare: u32,
        /// The maximum.
        maximum: u32,
    },
    /// An instance without tasks handles nothing.
    #[error("an instance has 0 tasks: set it to 1 or more")]
    Tasks,
    /// The rate makes no sense.
    #[error(
        "the rate of a task is {0} messages a second: set it from 0.000001 to 1000000, or leave it out"
    )]
    Rate(f64),
    /// Nothing would ever change.
    #[error("the tolerance is {0}: set it from 0 to 0.5")]
    Tolerance(f64),
    /// A peak cannot be served.
    #[error("the peak of {peak} needs {} instances, above the maximum of {maximum}", peak.instances)]
    Peak {
        /// The peak.
        peak: Peak,
        /// The maximum.
        maximum: u32,
    },
    /// A peak has no length.
    #[error("the peak of {0} ends when it begins")]
    EmptyPeak(Peak),
}

impl Settings {
    pub(crate) fn check(&self) -> Result<(), SettingsError> {
        let maximum = self.maximum;
        let has_goal = match self.goal {
            Goal::Age(age) => !age.is_zero(),
            Goal::BacklogPerTask(count) => count > 0,
        };
        if !has_goal {
            return Err(SettingsError::Goal);
        }
        if maximum == 0 {
            return Err(SettingsError::Maximum);
        }
        if self.minimum > maximum {
            let minimum = self.minimum;
            return Err(SettingsError::Minimum { minimum, maximum });
        }
        if self.spare >= maximum {
            let spare = self.spare;
            return Err(SettingsError::Spare { spare, maximum });
        }
        if self.tasks_max == 0 {
            return Err(SettingsError::Tasks);
        }
        if let Some(rate) = self.rate_per_task
            && !(RATE_MIN..=RATE_MAX).contains(&rate)
        {
            return Err(SettingsError::Rate(rate));
        }
        if !(0.0..=TOLERANCE_MAX).contains(&self.tolerance) {
            return Err(SettingsError::Tolerance(self.tolerance));
        }
        self.peaks
            .iter()
            .try_for_each(|peak| self.check_peak(*peak))
    }

    /// The smallest change of so many instances that is not ignored.
    pub(crate) fn least_step(&self, running: u32) -> u32 {
        // A little more, because a quotient beside the tolerance is rounded.
        let ignored = f64::from(running) * self.tolerance + 1e-6;
        whole_of(ignored).saturating_add(1)
    }

    fn check_peak(&self, peak: Peak) -> Result<(), SettingsError> {
        let maximum = self.maximum;
        if peak.from == peak.until {
            return Err(SettingsError::EmptyPeak(peak));
        }
        if peak.instances > maximum {
            return Err(SettingsError::Peak { peak, maximum });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::week::{Day, TimeOfWeek};

    #[test]
    fn the_defaults_are_accepted() {
        assert_eq!(Settings::default().check(), Ok(()));
    }

    #[test]
    fn each_wrong_value_is_refused_in_words() {
        let at = |hour| TimeOfWeek::new(Day::Monday, hour, 0);
        let peak = move |from, until, instances| Peak {
            from: at(from),
            until: at(until),
            instances,
        };
        type Change = Box<dyn Fn(&mut Settings)>;
        let cases: [(Change, &str); 13] = [
            (
                Box::new(|it| it.goal = Goal::Age(Duration::ZERO)),
                "the goal is 0: set an age, or a backlog for each task, above 0",
            ),
            (
                Box::new(|it| it.goal = Goal::BacklogPerTask(0)),
                "the goal is 0: set an age, or a backlog for each task, above 0",
            ),
            (
                Box::new(|it| it.maximum = 0),
                "the maximum of instances is 0: set it to 1 or more",
            ),
            (
                Box::new(|it| it.minimum = 21),
                "the minimum of 21 instances is above the maximum of 20",
            ),
            (
                Box::new(|it| it.spare = 20),
                "20 spare instances leave none of the maximum of 20 for messages",
            ),
            (
                Box::new(|it| it.tasks_max = 0),
                "an instance has 0 tasks: set it to 1 or more",
            ),
            (
                Box::new(|it| it.rate_per_task = Some(f64::NAN)),
                "the rate of a task is NaN messages a second: set it from 0.000001 to 1000000, or leave it out",
            ),
            (
                Box::new(|it| it.rate_per_task = Some(1e-7)),
                "the rate of a task is 0.0000001 messages a second: set it from 0.000001 to 1000000, or leave it out",
            ),
            (
                Box::new(|it| it.rate_per_task = Some(2e6)),
                "the rate of a task is 2000000 messages a second: set it from 0.000001 to 1000000, or leave it out",
            ),
            (
                Box::new(|it| it.tolerance = 0.6),
                "the tolerance is 0.6: set it from 0 to 0.5",
            ),
            (
                Box::new(|it| it.tolerance = f64::NAN),
                "the tolerance is NaN: set it from 0 to 0.5",
            ),
            (
                Box::new(move |it| it.peaks = vec![peak(8, 9, 21)]),
                "the peak of Monday 08:00 to Monday 09:00 needs 21 instances, above the maximum of 20",
            ),
            (
                Box::new(move |it| it.peaks = vec![peak(8, 8, 2)]),
                "the peak of Monday 08:00 to Monday 08:00 ends when it begins",
            ),
        ];
        for (change, message) in cases {
            let mut settings = Settings::default();
            change(&mut settings);
            let error = settings.check().unwrap_err();
            assert_eq!(error.to_string(), message);
        }
    }

    /// The autoscaler of Kubernetes divides, and compares with a tenth.
    #[test]
    fn the_least_step_is_one_that_kubernetes_notices() {
        let settings = Settings {
            tolerance: 0.1,
            ..Settings::default()
        };
        for running in 1..=1000_u32 {
            let step = settings.least_step(running);
            let is_noticed = |count: u32| {
                let ratio = f64::from(count) / f64::from(running);
                (1.0 - ratio).abs() > 0.1
            };
            assert!(is_noticed(running - step), "{running} - {step}");
            assert!(is_noticed(running + step), "{running} + {step}");
            assert!(step == 1 || !is_noticed(running + 2 - step), "{running}");
        }
        assert_eq!(Settings::default().least_step(1000), 1);
    }
}
