//! An instance that runs.

use std::os::fd::OwnedFd;
use std::process::{Child, ExitStatus};
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::time::Instant;

use super::proc;
use crate::act::state::{Process, Record};
use crate::act::{ActError, Named};

/// A process that is watched.
#[derive(Debug)]
pub(super) struct Instance {
    pub(super) record: Record,
    /// Whether its file names the process.
    pub(super) is_noted: bool,
    pid: i32,
    /// It becomes readable when the process has ended, and never means another one.
    descriptor: AsyncFd<OwnedFd>,
    /// If it was started here: it must be waited for.
    child: Option<Child>,
    /// Its age at a time.
    age: (Duration, Instant),
    pub(super) stop: Stop,
    /// Why SIGKILL failed last.
    pub(super) kill_failed: Option<String>,
}

/// Whether an instance was told to stop.
#[derive(Clone, Copy, Debug)]
pub(super) enum Stop {
    No,
    /// It got SIGTERM, and gets SIGKILL then.
    Until(Instant),
    /// It got SIGKILL.
    Killed,
}

impl Instance {
    /// Watches a child that has just started. One that cannot be watched is killed.
    pub(super) fn of_child(record: &Record, mut child: Child) -> Result<Self, ActError> {
        let pid = i32::try_from(child.id()).unwrap_or(i32::MAX);
        // Until it is waited for, its number belongs to it. One that has ended already has no start any more, and is
        // found ended by its descriptor.
        let watched = watch(pid).and_then(|descriptor| {
            let start_ticks = proc::stat(pid)?.map_or(0, |it| it.start_ticks);
            Ok((descriptor, start_ticks))
        });
        let (descriptor, start_ticks) = watched.inspect_err(|_| {
            // It is our child, so it is there.
            let _ = child.kill();
            let _ = child.wait();
        })?;
        let process = Process { pid, start_ticks };
        let child = Some(child);
        Ok(Self::new(
            record,
            process,
            descriptor,
            child,
            Duration::ZERO,
        ))
    }

    /// Watches the process of a record, or returns `None` if it has ended.
    pub(super) fn of_process(record: &Record, process: &Process) -> Result<Option<Self>, ActError> {
        let pid = process.pid;
        // The descriptor comes first. If the process still runs afterwards, it is the one that the descriptor means.
        let descriptor = match watch(pid) {
            Ok(descriptor) => Some(descriptor),
            Err(error) if proc::stat(pid)?.is_some() => return Err(error),
            Err(_) => None,
        };
        let start_ticks = proc::stat(pid)?.map(|it| it.start_ticks);
        match descriptor {
            Some(descriptor) if start_ticks == Some(process.start_ticks) => {
                let age = proc::age(process);
                let process = process.clone();
                Ok(Some(Self::new(record, process, descriptor, None, age)))
            }
            Some(_) | None => Ok(None),
        }
    }

    fn new(
        record: &Record,
        process: Process,
        descriptor: AsyncFd<OwnedFd>,
        child: Option<Child>,
        age: Duration,
    ) -> Self {
        Self {
            is_noted: record.process.as_ref() == Some(&process),
            pid: process.pid,
            record: Record {
                process: Some(process),
                ..record.clone()
            },
            descriptor,
            child,
            age: (age, Instant::now()),
            stop: Stop::No,
            kill_failed: None,
        }
    }

    /// What its process has used of processors. `None` if it has ended.
    pub(super) fn cpu_ticks(&self) -> Option<u64> {
        let stat = proc::stat(self.pid).ok()??;
        Some(stat.cpu_ticks)
    }

    pub(super) fn named(&self) -> Named {
        let (number, pid) = (self.record.number, self.pid);
        Named { number, pid }
    }

    pub(super) fn age(&self, now: Instant) -> Duration {
        let (age, at) = self.age;
        age + now.saturating_duration_since(at)
    }

    pub(super) fn is_stopping(&self) -> bool {
        !matches!(self.stop, Stop::No)
    }

    pub(super) fn signal(&self, signal: Signal) -> Result<(), ActError> {
        match pidfd_send_signal(self.descriptor.get_ref(), signal) {
            // It has ended.
            Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
            Err(error) => Err(ActError::Signal {
                pid: self.pid,
                source: error.into(),
            }),
        }
    }

    /// Waits until the process has ended.
    pub(super) async fn ended(&self) {
        // A descriptor that cannot be watched any more says nothing of its process.
        match self.descriptor.readable().await {
            // It stays readable.
            Ok(mut ready) => ready.retain_ready(),
            Err(_) => std::future::pending().await,
        }
    }

    /// How a process ended that has ended.
    pub(super) fn reap(&mut self) -> Option<ExitStatus> {
        self.child.as_mut().and_then(|child| child.wait().ok())
    }
}

#[cfg(test)]
impl Instance {
    /// One that gets no signals, and ends when the other side of `descriptor` does: it is a pipe.
    pub(super) fn without_process(number: u64, descriptor: OwnedFd) -> Self {
        let process = Process {
            pid: i32::MAX,
            start_ticks: 1,
        };
        let record = Record {
            token: number.to_string(),
            number,
            boot: String::new(),
            since_ticks: 0,
            port: None,
            process: Some(process.clone()),
        };
        let descriptor = watched(descriptor).unwrap();
        Self::new(&record, process, descriptor, None, Duration::ZERO)
    }
}

fn watch(pid: i32) -> Result<AsyncFd<OwnedFd>, ActError> {
    let failed = |source| ActError::Watch { pid, source };
    let number =
        Pid::from_raw(pid).ok_or_else(|| failed(std::io::ErrorKind::InvalidInput.into()))?;
    let descriptor = pidfd_open(number, PidfdFlags::empty());
    let descriptor = descriptor.map_err(|error| failed(error.into()))?;
    watched(descriptor).map_err(failed)
}

fn watched(descriptor: OwnedFd) -> std::io::Result<AsyncFd<OwnedFd>> {
    #[expect(
        deprecated,
        reason = "its successor is unsafe, because a type could return another descriptor; an owned one stays the same"
    )]
    let watched = AsyncFd::with_interest(descriptor, Interest::READABLE);
    watched
}
