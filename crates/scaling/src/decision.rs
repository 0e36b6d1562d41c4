//! What the law decided, and why, in words.

use std::fmt;
use std::time::Duration;

use crate::week::Peak;

/// What the agent does with the number of instances.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Action {
    /// It leaves the number as it is.
    Hold,
    /// It starts instances until there are so many.
    Start(u32),
    /// It stops instances until there are so many.
    Stop(u32),
}

/// One reason of a decision. Its text is a sentence without its full stop.
#[derive(Clone, Debug, PartialEq)]
pub enum Reason {
    /// The instances could not be counted.
    InstancesUnreadable,
    /// Sources could not be read.
    SourcesUnreadable(Vec<String>),
    /// Messages arrive, and so many instances keep up with them.
    Arrivals {
        /// Messages that arrive each second.
        rate: f64,
        /// Messages that one instance handles each second.
        instance_rate: f64,
        /// The share of its time for which an instance may be busy.
        busy_max: f64,
        /// Instances that keep up.
        instances: u32,
    },
    /// Ever fewer messages arrive, and so many instances are enough soon.
    Falling {
        /// Messages that arrive each second.
        rate: f64,
        /// By how much that becomes less in each second.
        fall: f64,
        /// Messages that one instance handles each second.
        instance_rate: f64,
        /// Instances that keep up soon.
        instances: u32,
    },
    /// Messages wait. So many instances handle those in time that are left when a new instance is ready.
    Backlog {
        /// Messages that wait or are being handled.
        backlog: u64,
        /// The time in which the rest must be handled.
        within: Duration,
        /// Instances that do so.
        instances: u32,
    },
    /// Messages will wait when a new instance is ready, and so many instances handle them in time.
    ComingBacklog {
        /// Messages that will wait then.
        backlog: u32,
        /// From now until a new instance is ready.
        after: Duration,
        /// The time in which they must be handled.
        within: Duration,
        /// Instances that do so.
        instances: u32,
    },
    /// Messages wait, and so many instances handle them soon.
    Rest {
        /// Messages that wait or are being handled.
        backlog: u64,
        /// The time in which they must be handled.
        within: Duration,
        /// Instances that do so.
        instances: u32,
    },
    /// Messages wait, and the goal is a number of messages for each task.
    BacklogPerTask {
        /// Messages that wait or are being handled.
        backlog: u64,
        /// Messages of one instance at most.
        for_each: u64,
        /// Instances for so many.
        instances: u32,
    },
    /// The oldest message is older than the goal.
    Late {
        /// Its age.
        oldest: Duration,
        /// The goal.
        goal: Duration,
    },
    /// Messages wait, and it is not known how fast they are handled.
    RateUnknown {
        /// Instances for the next try.
        instances: u32,
    },
    /// A publisher has announced work.
    Announced,
    /// No messages have come for so long.
    Idle(Duration),
    /// No messages wait, but the last ones came only so long ago.
    NotIdleYet {
        /// Time since there were messages.
        since: Duration,
        /// Time after which the last instances stop.
        after: Duration,
    },
    /// A scheduled peak is on.
    Peak(Peak),
    /// Instances beyond those needed.
    Spare(u32),
    /// More instances are needed than allowed.
    Maximum(u32),
    /// Fewer instances are needed than must run.
    Minimum(u32),
    /// Fewer instances would be enough, but not for long enough.
    CoolingDown {
        /// How many would be enough now.
        enough: u32,
        /// How long they must have been enough.
        cool_down: Duration,
    },
    /// More instances are needed, but the service refuses requests of those that run.
    Throttled,
    /// Arrivals are not known, so only so many instances stop at a time.
    ArrivalsUnknown(u32),
    /// The processors of the instances are busy. The law then gives them no more tasks.
    CpuBusy(f64),
    /// More instances are needed, but those that run use up the processors of the machine that all of them share.
    MachineFull(f64),
}

/// How many instances should run, and why.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// What to do with the number of instances.
    pub action: Action,
    /// The number of instances from now on, or `None` if they could not be counted.
    pub instances: Option<u32>,
    /// Tasks that each instance may run.
    pub tasks: u32,
    /// Why, the most important first.
    pub reasons: Vec<Reason>,
}

/// A time as a person says it: whole seconds.
struct Seconds(Duration);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} s", self.0.as_secs_f64().round())
    }
}

struct Counted(u32);

impl fmt::Display for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} instance{}", self.0, plural(self.0.into()))
    }
}

struct Waiting(u64);

impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            1 => write!(f, "1 message waits"),
            count => write!(f, "{count} messages wait"),
        }
    }
}

fn plural(count: u64) -> &'static str {
    match count {
        1 => "",
        _ => "s",
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InstancesUnreadable => {
                write!(f, "the instances cannot be counted, so their number stays")
            }
            Self::SourcesUnreadable(names) => {
                write!(
                    f,
                    "{} cannot be read, so no instance stops",
                    names.join(", ")
                )
            }
            Self::Arrivals {
                rate,
                instance_rate,
                busy_max,
                instances,
            } => write!(
                f,
                "{rate:.1} messages arrive each second, and an instance that is busy for at most {:.0} % of its time \
                 handles {:.1}: {}",
                busy_max * 100.0,
                busy_max * instance_rate,
                Counted(*instances)
            ),
            Self::Falling {
                rate,
                fall,
                instance_rate,
                instances,
            } => write!(
                f,
                "{rate:.1} messages arrive each second, and in a minute {:.1} fewer, and an instance handles \
                 {instance_rate:.1}: {} will be enough before much waits",
                fall * 60.0,
                Counted(*instances)
            ),
            Self::Backlog {
                backlog,
                within,
                instances,
            } => write!(
                f,
                "{}, and those left when a new instance is ready must be handled within {}: {}",
                Waiting(*backlog),
                Seconds(*within),
                Counted(*instances)
            ),
            Self::ComingBacklog {
                backlog,
                after,
                within,
                instances,
            } => write!(
                f,
                "{backlog} message{} will wait when a new instance is ready, after {}, and must be handled within {}: {}",
                plural(u64::from(*backlog)),
                Seconds(*after),
                Seconds(*within),
                Counted(*instances)
            ),
            Self::Rest {
                backlog,
                within,
                instances,
            } => write!(
                f,
                "{}, and instances stop only if the others handle those within {}: {}",
                Waiting(*backlog),
                Seconds(*within),
                Counted(*instances)
            ),
            Self::BacklogPerTask {
                backlog,
                for_each,
                instances,
            } => write!(
                f,
                "{}, at most {for_each} for an instance: {}",
                Waiting(*backlog),
                Counted(*instances)
            ),
            Self::Late { oldest, goal } => write!(
                f,
                "the oldest message is {} old, above the goal of {}",
                Seconds(*oldest),
                Seconds(*goal)
            ),
            Self::RateUnknown { instances } => write!(
                f,
                "messages wait, and the rate of a task is not known yet: {}",
                Counted(*instances)
            ),
            Self::Announced => write!(f, "a publisher has announced work"),
            Self::Idle(since) => write!(f, "no messages came for {}", Seconds(*since)),
            Self::NotIdleYet { since, after } => write!(
                f,
                "no messages came for {}, and the last instance stops after {}",
                Seconds(*since),
                Seconds(*after)
            ),
            Self::Peak(peak) => write!(f, "the peak of {peak} needs {}", Counted(peak.instances)),
            Self::Spare(count) => write!(f, "spare capacity: {}", Counted(*count)),
            Self::Maximum(count) => write!(f, "the maximum is {}", Counted(*count)),
            Self::Minimum(count) => write!(f, "the minimum is {}", Counted(*count)),
            Self::CoolingDown { enough, cool_down } => write!(
                f,
                "{} would be enough now, but not during all of the last {}",
                Counted(*enough),
                Seconds(*cool_down)
            ),
            Self::Throttled => write!(
                f,
                "the service refuses requests as too many, and more instances would send more"
            ),
            Self::ArrivalsUnknown(1) => write!(
                f,
                "nothing reports how many messages arrive, so one instance stops at a time"
            ),
            Self::ArrivalsUnknown(step) => write!(
                f,
                "nothing reports how many messages arrive, so at most {step} instances stop at a time, because a smaller \
                 change would be ignored"
            ),
            Self::CpuBusy(share) => write!(
                f,
                "the processors of the instances are busy to {:.0} %",
                share * 100.0
            ),
            Self::MachineFull(share) => write!(
                f,
                "the instances use {:.0} % of the processors of this machine, and more instances would share them",
                share * 100.0
            ),
        }
    }
}

impl fmt::Display for Decision {
    /// One line: the action, then the reasons.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.action, self.instances) {
            (Action::Start(count), _) => write!(f, "start instances until there are {count}")?,
            (Action::Stop(count), _) => write!(f, "stop instances until there are {count}")?,
            (Action::Hold, Some(count)) => write!(f, "hold {}", Counted(count))?,
            (Action::Hold, None) => write!(f, "hold")?,
        }
        for (index, reason) in self.reasons.iter().enumerate() {
            let before = if index == 0 { ": " } else { "; " };
            write!(f, "{before}{reason}")?;
        }
        Ok(())
    }
}
