//! A program on this machine: instances that are processes.

mod instance;
pub(super) mod proc;
mod processors;
mod readiness;
mod survey;
#[cfg(test)]
mod tests;
mod token;

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, TcpListener};
use std::ops::RangeInclusive;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::{FutureExt as _, select_all};
use kew_scaling::Instances;
use rustix::process::Signal;
use tokio::time::{Instant, sleep_until};

use instance::{Instance, Stop};
use processors::Processors;
use readiness::Readiness;
use token::{new_token, process_of};

pub use survey::Survey;

use super::lock::User;
use super::pace::Pace;
use super::state::{Record, StateDirectory, file_of, records};
use super::{ActError, FailedStart, Happened, Stopped, Target};
use crate::config::{Environment, Group, OwnPage, PORT, Process};

/// How long after SIGKILL a process may take to end. One in the middle of an operation of the system ends after it.
const KILL_PATIENCE: Duration = Duration::from_secs(10);
/// From a SIGKILL that failed to the next one.
const KILL_RETRY: Duration = Duration::from_secs(1);

/// Starts and stops processes. When it is dropped, they go on, and the next one finds them again.
#[derive(Debug)]
pub struct ProcessTarget {
    command: Vec<String>,
    environment: Environment,
    stop_within: Duration,
    readiness: Readiness,
    ports: Option<RangeInclusive<u16>>,
    maximum: usize,
    state: StateDirectory,
    boot: String,
    /// In the order of their starts.
    instances: Vec<Instance>,
    next_number: u64,
    pace: Pace,
    processors: Processors,
}

impl ProcessTarget {
    /// Locks the state directory, and finds the instances that run. Needs a runtime.
    ///
    /// # Errors
    ///
    /// If another agent uses the directory, or what runs cannot be found out.
    pub fn open(group: &Group, process: &Process) -> Result<(Self, Vec<Happened>), ActError> {
        Self::open_as(User::Agent, group, process)
    }

    /// The same, to stop all instances: others are told that, and not that an agent has the directory.
    ///
    /// # Errors
    ///
    /// As of [`open`](Self::open).
    pub fn open_to_stop(
        group: &Group,
        process: &Process,
    ) -> Result<(Self, Vec<Happened>), ActError> {
        Self::open_as(User::Stop, group, process)
    }

    fn open_as(
        user: User,
        group: &Group,
        process: &Process,
    ) -> Result<(Self, Vec<Happened>), ActError> {
        let mut target = Self::locked(user, group, process)?;
        let found = target.adopt()?;
        Ok((target, found))
    }

    fn locked(user: User, group: &Group, process: &Process) -> Result<Self, ActError> {
        let tasks = group.law.tasks_max.to_string();
        let command = process.command.iter();
        Ok(Self {
            command: command.map(|it| it.replace("{tasks}", &tasks)).collect(),
            environment: process.environment.clone(),
            stop_within: process.stop_within,
            readiness: Readiness::new(group.law.start_delay),
            ports: process.ports.clone(),
            maximum: usize::try_from(group.law.maximum).unwrap_or(usize::MAX),
            state: StateDirectory::open(&process.state_directory, user)?,
            boot: proc::boot_id()?,
            instances: Vec::new(),
            next_number: 1,
            pace: Pace::default(),
            processors: Processors::of_system(),
        })
    }

    /// Instances whose processes run, also those that were told to stop.
    #[must_use]
    pub fn running(&self) -> usize {
        self.instances.len()
    }

    fn adopt(&mut self) -> Result<Vec<Happened>, ActError> {
        let mut found = Vec::new();
        let records = records(self.state.path(), &self.boot)?;
        let newest = records.iter().map(|it| it.number).max();
        self.next_number = newest.unwrap_or(0).saturating_add(1);
        for mut record in records {
            let is_damaged = record.is_damaged();
            if record.number == 0 {
                record.number = self.take_number();
            }
            let search = process_of(&record, &self.boot, self.state.path())?;
            let instance = match search.process {
                Some(process) => Instance::of_process(&record, &process)?,
                None => None,
            };
            match instance {
                Some(instance) => {
                    found.push(Happened::Found(instance.named()));
                    self.instances.push(instance);
                }
                None => {
                    self.state.remove(&record.token)?;
                    found.extend(is_damaged.then(|| Happened::Forgotten {
                        path: file_of(self.state.path(), &record.token),
                        unread: search.unread.first().map(ToString::to_string),
                    }));
                }
            }
        }
        found.extend(self.note_missing());
        Ok(found)
    }

    /// Writes which processes the instances are whose files do not say it: a disk was full. Until that is done, the next
    /// agent finds them by their tokens.
    fn note_missing(&mut self) -> Vec<Happened> {
        let mut failed = Vec::new();
        for instance in self.instances.iter_mut().filter(|it| !it.is_noted) {
            match self.state.write(&instance.record) {
                Ok(()) => instance.is_noted = true,
                Err(error) => failed.push(Happened::Failed(error)),
            }
        }
        failed
    }

    /// Stops all instances, and waits for their end. It ends without those that get no signal, or do not end within
    /// ten seconds of SIGKILL.
    pub async fn stop_all(&mut self, mut tell: impl FnMut(Happened)) -> Stopped {
        let mut stopped = Stopped::default();
        let mut take = |happened: Vec<Happened>| {
            for happened in happened {
                match &happened {
                    Happened::Ended { .. } => stopped.ended += 1,
                    Happened::Failed(_) => stopped.has_failed = true,
                    Happened::Found(_)
                    | Happened::Forgotten { .. }
                    | Happened::Started(_)
                    | Happened::Stopping(_)
                    | Happened::Killed(_)
                    | Happened::Delayed { .. }
                    | Happened::Set(_)
                    | Happened::Told(_)
                    | Happened::Waiting
                    | Happened::Full => {}
                }
                tell(happened);
            }
        };
        let until = Instant::now() + self.stop_within + KILL_PATIENCE;
        take(self.change(0));
        // Those that got no signal are not waited for.
        while self.instances.iter().any(Instance::is_stopping) {
            tokio::select! {
                happened = self.changed() => take(happened),
                () = sleep_until(until) => break,
            }
        }
        stopped.left = self.instances.iter().map(Instance::named).collect();
        stopped
    }

    fn change(&mut self, count: u32) -> Vec<Happened> {
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        let running = self.instances.iter().filter(|it| !it.is_stopping());
        let running = running.count();
        match count.checked_sub(running) {
            Some(missing) => self.start_some(missing),
            None => self.stop_some(running - count),
        }
    }

    fn take_number(&mut self) -> u64 {
        let number = self.next_number;
        self.next_number = number.saturating_add(1);
        number
    }

    fn start(&mut self) -> Result<Vec<Happened>, ActError> {
        let record = Record {
            token: new_token()?,
            number: self.take_number(),
            boot: self.boot.clone(),
            since_ticks: proc::ticks_now(),
            port: self.free_port()?,
            process: None,
        };
        if let Err(error) = self.state.write(&record) {
            // What is left of it names no process.
            let _ = self.state.remove(&record.token);
            return Err(error);
        }
        let child = match self.command_with(&record).spawn() {
            Ok(child) => child,
            Err(source) => {
                self.state.remove(&record.token)?;
                let program = self.command.first().cloned().unwrap_or_default();
                return Err(ActError::Start { program, source });
            }
        };
        let instance = match Instance::of_child(&record, child) {
            Ok(instance) => instance,
            Err(error) => {
                self.state.remove(&record.token)?;
                return Err(error);
            }
        };
        let mut happened = vec![Happened::Started(instance.named())];
        self.instances.push(instance);
        happened.extend(self.note_missing());
        Ok(happened)
    }

    /// A port for the next instance, if each needs one: the first that neither an instance nor another program has.
    fn free_port(&self) -> Result<Option<u16>, ActError> {
        let Some(ports) = &self.ports else {
            return Ok(None);
        };
        let is_taken = |port: u16| self.instances.iter().any(|it| it.record.port == Some(port));
        let can_listen = |port: u16| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok();
        let free = ports.clone().find(|it| !is_taken(*it) && can_listen(*it));
        let (first, last) = (*ports.start(), *ports.end());
        free.map(Some).ok_or(ActError::NoPort { first, last })
    }

    fn command_with(&self, record: &Record) -> Command {
        let port = record.port.map(|it| it.to_string());
        let parts = self.command.iter().map(|it| match &port {
            Some(port) => it.replace(PORT, port),
            None => it.clone(),
        });
        let mut parts = parts.collect::<Vec<_>>().into_iter();
        let mut command = Command::new(parts.next().unwrap_or_default());
        self.environment.give(&mut command, Some(&record.token));
        command
            .args(parts)
            .stdin(Stdio::null())
            // Ctrl-C at the agent's terminal is not for them.
            .process_group(0);
        command
    }

    fn start_some(&mut self, count: usize) -> Vec<Happened> {
        let mut happened = Vec::new();
        for _ in 0..count {
            if self.pace.wait(Instant::now()).is_some() {
                if happened.is_empty() {
                    happened.push(Happened::Waiting);
                }
                break;
            }
            if self.instances.len() >= self.maximum {
                happened.push(Happened::Full);
                break;
            }
            match self.start() {
                Ok(started) => happened.extend(started),
                Err(error) => {
                    happened.push(Happened::Failed(error));
                    let delay = self.pace.failed(Instant::now());
                    let by = FailedStart::NotStarted;
                    happened.extend(delay.map(|delay| Happened::Delayed { by, delay }));
                }
            }
        }
        happened
    }

    /// The newest have done the least, and those that start are the newest.
    fn stop_some(&mut self, count: usize) -> Vec<Happened> {
        let until = Instant::now() + self.stop_within;
        let running = self.instances.iter_mut().filter(|it| !it.is_stopping());
        let mut happened = Vec::new();
        let mut told = 0;
        for instance in running.rev() {
            if told == count {
                break;
            }
            match instance.signal(Signal::TERM) {
                Ok(()) => {
                    told += 1;
                    instance.stop = Stop::Until(until);
                    happened.push(Happened::Stopping(instance.named()));
                }
                // An older one stops in its place.
                Err(error) => happened.push(Happened::Failed(error)),
            }
        }
        happened
    }

    /// Kills those whose time is over. What fails in the same way again is no news.
    fn kill_late(&mut self, now: Instant) -> Vec<Happened> {
        let mut happened = Vec::new();
        for instance in &mut self.instances {
            if matches!(instance.stop, Stop::Until(until) if until <= now) {
                match instance.signal(Signal::KILL) {
                    Ok(()) => {
                        instance.stop = Stop::Killed;
                        happened.push(Happened::Killed(instance.named()));
                    }
                    Err(error) => {
                        instance.stop = Stop::Until(now + KILL_RETRY);
                        let text = error.to_string();
                        if instance.kill_failed.as_ref() != Some(&text) {
                            instance.kill_failed = Some(text);
                            happened.push(Happened::Failed(error));
                        }
                    }
                }
            }
        }
        happened
    }

    /// Forgets an instance that has ended.
    fn bury(&mut self, index: usize) -> Vec<Happened> {
        let mut instance = self.instances.remove(index);
        let now = Instant::now();
        let was_stopped = instance.is_stopping();
        let mut happened = vec![Happened::Ended {
            instance: instance.named(),
            status: instance.reap(),
            was_stopped,
        }];
        if !was_stopped {
            let delay = self.pace.ended(now, instance.age(now));
            let by = FailedStart::EndedEarly;
            happened.extend(delay.map(|delay| Happened::Delayed { by, delay }));
        }
        let removed = self.state.remove(&instance.record.token);
        happened.extend(removed.err().map(Happened::Failed));
        happened
    }

    /// Waits until an instance has ended, and returns its place.
    async fn first_ended(&self) -> usize {
        if self.instances.is_empty() {
            return std::future::pending().await;
        }
        let all = self.instances.iter().map(|it| it.ended().boxed());
        select_all(all).await.1
    }

    fn next_kill(&self) -> Option<Instant> {
        let kills = self.instances.iter().filter_map(|it| match it.stop {
            Stop::Until(until) => Some(until),
            Stop::No | Stop::Killed => None,
        });
        kills.min()
    }
}

#[async_trait]
impl Target for ProcessTarget {
    async fn instances(&mut self) -> Result<Instances, ActError> {
        // A failure was told when it happened first.
        let _ = self.note_missing();
        let now = Instant::now();
        let mut found = Instances::default();
        let numbers = self.instances.iter().map(|it| it.record.number);
        self.readiness.keep_only(&numbers.collect());
        for instance in self.instances.iter().filter(|it| !it.is_stopping()) {
            let age = instance.age(now);
            self.pace.lives(now, age);
            match self.readiness.is_ready(&instance.record, age) {
                true => found.ready += 1,
                false => found.starting += 1,
            }
        }
        let used = self.instances.iter();
        let used = used.filter_map(|it| Some((it.record.number, it.cpu_ticks()?)));
        found.cpu = self.processors.see(now, used.collect());
        found.share_processors = true;
        Ok(found)
    }

    fn pages(&mut self) -> Vec<OwnPage> {
        let now = Instant::now();
        let running = self.instances.iter().filter(|it| !it.is_stopping());
        let page = |it: &Instance| {
            let is_ready = self.readiness.is_ready(&it.record, it.age(now));
            it.record.page(is_ready)
        };
        running.filter_map(page).collect()
    }

    fn answered(&mut self, instances: &BTreeSet<u64>) {
        self.readiness.answered(instances);
    }

    async fn set(&mut self, count: u32) -> Vec<Happened> {
        self.change(count)
    }

    async fn changed(&mut self) -> Vec<Happened> {
        let kill = async {
            match self.next_kill() {
                Some(at) => sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        let ended = tokio::select! {
            index = self.first_ended() => Some(index),
            () = kill => None,
        };
        match ended {
            Some(index) => self.bury(index),
            None => self.kill_late(Instant::now()),
        }
    }
}
