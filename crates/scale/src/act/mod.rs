//! Starting and stopping instances.
//!
//! [`ProcessTarget`] starts a program on this machine, finds its instances again after the agent was killed, and stops
//! them. [`Survey`] only counts them, for dry runs. With [`CommandTarget`] and [`HttpTarget`], something else runs the
//! instances: the agent asks it for their number, and tells it another one. [`CountOnly`] asks only.

mod ages;
mod command;
mod http;
#[cfg(target_os = "linux")]
mod lock;
mod number;
#[cfg(target_os = "linux")]
mod pace;
#[cfg(target_os = "linux")]
mod process;
#[cfg(not(target_os = "linux"))]
#[path = "elsewhere.rs"]
mod process;
#[cfg(target_os = "linux")]
mod state;

use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

use async_trait::async_trait;
use kew_scaling::Instances;
use thiserror::Error;

pub use ages::Ages;
pub use command::CommandTarget;
pub use http::HttpTarget;
pub use process::{ProcessTarget, Survey};

use crate::config::{OwnPage, Place};

/// What the agent acts on.
#[async_trait]
pub trait Target: Send {
    /// The instances that run and were not told to stop, within a bounded time.
    ///
    /// # Errors
    ///
    /// If they cannot be counted.
    async fn instances(&mut self) -> Result<Instances, ActError>;

    /// Where the metrics pages of instances are, as far as the target knows them: each has a port of the loopback
    /// interface.
    fn pages(&mut self) -> Vec<OwnPage> {
        Vec::new()
    }

    /// Takes notice of the instances whose pages have answered: they are ready.
    fn answered(&mut self, _instances: &BTreeSet<u64>) {}

    /// Starts or stops instances until `count` run, as far as that can be done now: the next look asks again. It takes a
    /// bounded time.
    async fn set(&mut self, count: u32) -> Vec<Happened>;

    /// Takes notice that the number is right as it is.
    fn hold(&mut self, _count: u32) {}

    /// Waits until something happens to an instance, and does what that needs. To drop the future loses nothing.
    async fn changed(&mut self) -> Vec<Happened> {
        std::future::pending().await
    }
}

#[async_trait]
impl<T: Target + ?Sized> Target for Box<T> {
    async fn instances(&mut self) -> Result<Instances, ActError> {
        self.as_mut().instances().await
    }

    fn pages(&mut self) -> Vec<OwnPage> {
        self.as_mut().pages()
    }

    fn answered(&mut self, instances: &BTreeSet<u64>) {
        self.as_mut().answered(instances);
    }

    async fn set(&mut self, count: u32) -> Vec<Happened> {
        self.as_mut().set(count).await
    }

    fn hold(&mut self, count: u32) {
        self.as_mut().hold(count);
    }

    async fn changed(&mut self) -> Vec<Happened> {
        self.as_mut().changed().await
    }
}

/// Counts with another target, and changes nothing: for dry runs.
#[derive(Debug)]
pub struct CountOnly<T>(pub T);

#[async_trait]
impl<T: Target> Target for CountOnly<T> {
    async fn instances(&mut self) -> Result<Instances, ActError> {
        self.0.instances().await
    }

    async fn set(&mut self, _: u32) -> Vec<Happened> {
        Vec::new()
    }
}

/// An instance, as the log names it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Named {
    /// Instances of a state directory are numbered in the order of their starts.
    pub number: u64,
    /// Its process.
    pub pid: i32,
}

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "instance {} (PID {})", self.number, self.pid)
    }
}

/// What happened to instances.
#[derive(Debug)]
pub enum Happened {
    /// One was found that an earlier agent has started.
    Found(Named),
    /// The file of one was damaged. No process has its token, so it was removed.
    Forgotten {
        /// The file.
        path: PathBuf,
        /// Why a process could not be examined, if that is so.
        unread: Option<String>,
    },
    /// One was started.
    Started(Named),
    /// One got SIGTERM.
    Stopping(Named),
    /// One did not end in time, and got SIGKILL.
    Killed(Named),
    /// One has ended.
    Ended {
        /// Which one.
        instance: Named,
        /// How, if this agent has started it.
        status: Option<ExitStatus>,
        /// Whether it was told to.
        was_stopped: bool,
    },
    /// Starts fail, so none is tried for a while.
    Delayed {
        /// What the last one failed by.
        by: FailedStart,
        /// For so long.
        delay: Duration,
    },
    /// Instances that still stop keep their places, so no other one starts.
    Full,
    /// Nothing was started: a delay after failed starts is not over yet. The log has a line about that delay already.
    Waiting,
    /// Something else that runs the instances has a new number of them.
    Set(u32),
    /// KEDA gets another number of instances when it asks.
    Told(u32),
    /// Something failed. The next look tries again.
    Failed(ActError),
}

/// How a start has failed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum FailedStart {
    /// The program could not be started.
    NotStarted,
    /// The instance has ended by itself within 10 s.
    EndedEarly,
}

/// The result of stopping all instances.
#[derive(Debug, Default)]
pub struct Stopped {
    /// How many have ended.
    pub ended: usize,
    /// Those that still run.
    pub left: Vec<Named>,
    /// Whether anything failed.
    pub has_failed: bool,
}

impl fmt::Display for Happened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Found(instance) => write!(f, "{instance} was found: it runs"),
            Self::Forgotten { path, unread } => {
                let path = path.display();
                write!(
                    f,
                    "{path} was removed: it was empty or damaged, without the lines of an instance from number= to end, and \
                     no process has its token"
                )?;
                unread.as_ref().map_or(Ok(()), |error| {
                    write!(f, " as far as processes can be examined: {error}")
                })
            }
            Self::Started(instance) => write!(f, "{instance} was started"),
            Self::Stopping(instance) => write!(f, "{instance} got SIGTERM"),
            Self::Killed(instance) => write!(f, "{instance} did not end in time, and got SIGKILL"),
            Self::Ended {
                instance,
                status,
                was_stopped,
            } => {
                let why = if *was_stopped { "" } else { " by itself" };
                write!(f, "{instance} has ended{why}")?;
                status.map_or(Ok(()), |status| write!(f, ": {status}"))
            }
            Self::Delayed { by, delay } => {
                let why = match by {
                    FailedStart::NotStarted => "an instance could not be started",
                    FailedStart::EndedEarly => "an instance ended within 10 s",
                };
                write!(f, "{why}: none starts for {} s", delay.as_secs())
            }
            Self::Full => write!(
                f,
                "instances that still stop keep their places: no other one starts before they have ended"
            ),
            Self::Waiting => write!(f, "no instance starts yet, because the last ones failed"),
            Self::Set(count) => write!(f, "the number of instances was set to {count}"),
            Self::Told(count) => write!(f, "KEDA is told a new number of instances: {count}"),
            Self::Failed(error) => write!(f, "{error}"),
        }
    }
}

/// Why instances cannot be counted, started or stopped.
#[derive(Debug, Error)]
pub enum ActError {
    /// An operation on the state directory failed.
    #[error("cannot {what} {}: {source}", path.display())]
    File {
        /// What could not be done.
        what: &'static str,
        /// With which file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Something in the state directory is no file of an instance.
    #[error(
        "cannot read what is known of an instance, so move {} elsewhere if kew scale did not write it: {source}",
        path.display()
    )]
    Record {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Whether an instance runs cannot be found out.
    #[error(
        "the instance of {} may run, and its process is not known: {source}; remove the file if no instance runs",
        path.display()
    )]
    Unknown {
        /// The file of the instance.
        path: PathBuf,
        /// Why its process cannot be found.
        source: Box<ActError>,
    },
    /// Another agent, or `kew scale stop`, uses the state directory.
    #[error(
        "the state directory {} is in use by {holder}: stop that one first, or set another state_directory",
        path.display()
    )]
    InUse {
        /// The directory.
        path: PathBuf,
        /// Who has it.
        holder: String,
    },
    /// Other users could decide which processes get signals.
    #[error("the state directory {} {what}", path.display())]
    Access {
        /// The directory.
        path: PathBuf,
        /// What is wrong, and what to do.
        what: String,
    },
    /// The program cannot be started.
    #[error("cannot start {program:?}: {source}")]
    Start {
        /// The program.
        program: String,
        /// Why.
        source: std::io::Error,
    },
    /// Other programs use all ports of the group.
    #[error("no port from {first} to {last} is free: write other ports")]
    NoPort {
        /// The first one.
        first: u16,
        /// The last one.
        last: u16,
    },
    /// The system refuses what the agent needs to watch a process.
    #[error("cannot watch PID {pid}: {source}")]
    Watch {
        /// The process.
        pid: i32,
        /// Why.
        source: std::io::Error,
    },
    /// A signal could not be sent.
    #[error("cannot send a signal to PID {pid}: {source}")]
    Signal {
        /// The process.
        pid: i32,
        /// Why.
        source: std::io::Error,
    },
    /// Processes are found and watched with what only Linux has.
    #[error("the target process needs Linux: it finds instances again through /proc and pidfds")]
    NotLinux,
    /// What counts or changes the instances failed, in one line, with the place in the file.
    #[error("{0}")]
    Elsewhere(String),
}

impl ActError {
    /// An error of what counts or changes instances. Its text becomes one line.
    #[must_use]
    pub fn elsewhere(place: &Place, what: impl fmt::Display) -> Self {
        let text = format!("{place}: {what}");
        Self::Elsewhere(text.split_whitespace().collect::<Vec<_>>().join(" "))
    }

    pub(crate) fn file(what: &'static str, path: &std::path::Path, source: std::io::Error) -> Self {
        let path = path.to_owned();
        Self::File { what, path, source }
    }
}
