//! The threads that drive a partition: wait, feed, drain, answer.
//!
//! One thread decides and commits, inline: with one request in flight that is one wake-up to the
//! runner and one back. Requests that come in while it syncs make up the next batch. A second
//! thread prepares segments and writes snapshots. Interesting branches belong into the partition.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime};

use kew_engine::{Command, Timestamp};
use kew_log::{Job, JobKind, JobOutcome, Recovery, Storage};
use tokio::sync::{oneshot, watch};

use crate::broker::lock;
use crate::{
    Admission, Admitted, BrokerOptions, Clock, ClockReading, Failure, Partition, Rejection, Reply,
    StartError, TurnEnd,
};

/// After this long without a command, the log's end is marked as durable.
const IDLE_BEFORE_MARK: Duration = Duration::from_millis(100);

/// How often a full disk is tried again.
const SPACE_RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// What a command's answer goes to, and what the command counts for until then.
type Ticket = (oneshot::Sender<Reply>, Admitted);

/// What the front ends and the runner share.
#[derive(Debug)]
pub(crate) struct Shared {
    mailbox: Mutex<Mailbox>,
    mail: Condvar,
    out_of_space: AtomicBool,
}

#[derive(Debug)]
struct Mailbox {
    admission: Admission,
    commands: VecDeque<(Ticket, Command)>,
    outcomes: Vec<JobOutcome>,
    /// The runner waits for mail: whoever brings some must wake it.
    runner_waits: bool,
    stop: bool,
    stopped: bool,
}

impl Shared {
    pub(crate) fn submit(
        &self,
        answer: oneshot::Sender<Reply>,
        command: Command,
    ) -> Result<(), Rejection> {
        let mut mailbox = lock(&self.mailbox);
        if mailbox.stop || mailbox.stopped {
            return Err(Rejection::Stopped);
        }
        let admitted = mailbox
            .admission
            .admit(&command)
            .map_err(|_| Rejection::Busy)?;
        mailbox.commands.push_back(((answer, admitted), command));
        self.wake(mailbox);
        Ok(())
    }

    fn wake(&self, mut mailbox: std::sync::MutexGuard<'_, Mailbox>) {
        let runner_waits = std::mem::take(&mut mailbox.runner_waits);
        drop(mailbox);
        if runner_waits {
            self.mail.notify_one();
        }
    }

    pub(crate) fn stop(&self) {
        let mut mailbox = lock(&self.mailbox);
        mailbox.stop = true;
        self.wake(mailbox);
    }

    pub(crate) fn is_ready(&self) -> bool {
        let mailbox = lock(&self.mailbox);
        !mailbox.stop && !mailbox.stopped && !self.out_of_space.load(Ordering::Relaxed)
    }
}

/// A partition that runs.
pub(crate) struct Started {
    pub(crate) shared: Arc<Shared>,
    pub(crate) threads: Vec<JoinHandle<()>>,
    pub(crate) recovery: Recovery,
}

/// Opens the partition and starts its threads.
pub(crate) fn start(
    storage: Arc<dyn Storage>,
    options: BrokerOptions,
    failed: watch::Sender<Option<Failure>>,
) -> Result<Started, StartError> {
    let mut entropy = [0; 24];
    getrandom::fill(&mut entropy).map_err(|error| StartError::System {
        what: "random bytes",
        source: error.into(),
    })?;
    let (salt, secret) = entropy.split_at(8);
    let salt = u64::from_le_bytes(salt.try_into().expect("split at 8"));
    let secret = secret.try_into().expect("24 less 8 is 16");
    let reading = read_clocks();
    let wall = Timestamp::from_ms(reading.wall_us / 1000);
    let (partition, recovery) = Partition::open(&*storage, options.partition, salt, secret, wall)?;
    let clock = Clock::start(reading, partition.state().last_event_at());
    let shared = Arc::new(Shared {
        mailbox: Mutex::new(Mailbox {
            admission: Admission::new(options.admission),
            commands: VecDeque::new(),
            outcomes: Vec::new(),
            runner_waits: false,
            stop: false,
            stopped: false,
        }),
        mail: Condvar::new(),
        out_of_space: AtomicBool::new(false),
    });
    let (jobs, background_jobs) = mpsc::channel();
    let runner = Runner {
        partition,
        clock,
        storage: storage.clone(),
        shared: shared.clone(),
        jobs,
        background_jobs: 0,
        failed,
        waiting: VecDeque::new(),
        replies: Vec::new(),
        idle: Idle::Busy,
    };
    let threads = vec![
        spawn("kew-runner", move || runner.run())?,
        spawn("kew-log-work", {
            let shared = shared.clone();
            move || work(&background_jobs, storage.as_ref(), &shared)
        })?,
    ];
    Ok(Started {
        shared,
        threads,
        recovery,
    })
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, StartError> {
    let builder = thread::Builder::new().name(name.into());
    builder.spawn(run).map_err(|source| StartError::System {
        what: "a thread",
        source,
    })
}

/// Carries out slow jobs until the runner is gone.
fn work(jobs: &mpsc::Receiver<Job>, storage: &dyn Storage, shared: &Shared) {
    for job in jobs {
        let outcome = job.run(storage);
        let mut mailbox = lock(&shared.mailbox);
        mailbox.outcomes.push(outcome);
        shared.wake(mailbox);
    }
}

struct Runner {
    partition: Partition<Ticket>,
    clock: Clock,
    storage: Arc<dyn Storage>,
    shared: Arc<Shared>,
    jobs: mpsc::Sender<Job>,
    /// How many jobs the other thread has.
    background_jobs: usize,
    failed: watch::Sender<Option<Failure>>,
    /// Commands that are admitted and not yet decided.
    waiting: VecDeque<(Ticket, Command)>,
    replies: Vec<(Ticket, Reply)>,
    idle: Idle,
}

/// How far the runner has come in having nothing to do.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Idle {
    Busy,
    Marked,
}

impl Runner {
    fn run(mut self) {
        let _last_will = LastWill {
            shared: self.shared.clone(),
            failed: self.failed.clone(),
        };
        let mut stop = false;
        while !stop && !self.partition.is_stopped() {
            stop = self.wait_for_mail();
            self.serve();
        }
        self.finish();
    }

    /// Decides all that waits, a batch at a time, and commits each.
    fn serve(&mut self) {
        loop {
            let now = self.clock.now(read_clocks());
            let end = self
                .partition
                .turn(now, &mut self.waiting, &mut self.replies);
            self.carry_out_jobs();
            self.answer();
            match end {
                TurnEnd::Done => break,
                TurnEnd::MoreToDecide => {}
                TurnEnd::WaitForJob => {
                    if self.background_jobs == 0 {
                        break;
                    }
                    self.wait_for_worker();
                }
            }
            if self.partition.is_stopped() {
                break;
            }
        }
        let out_of_space = self.partition.is_out_of_space();
        self.shared
            .out_of_space
            .store(out_of_space, Ordering::Relaxed);
    }

    /// Commits here and now, and hands slow work to the other thread.
    fn carry_out_jobs(&mut self) {
        self.partition.snapshot_if_due();
        while let Some(job) = self.partition.next_job() {
            if job.kind() == JobKind::Commit {
                let outcome = job.run(self.storage.as_ref());
                self.complete(outcome);
            } else if self.jobs.send(job).is_ok() {
                self.background_jobs += 1;
            }
        }
    }

    fn complete(&mut self, outcome: JobOutcome) {
        if let Err(failed) = self.partition.complete(outcome, &mut self.replies) {
            tracing::error!(error = %failed, "the log failed; the partition stops");
            self.failed.send_replace(Some(Failure::from(&failed)));
        }
    }

    /// Hands out the answers, and gives back what their commands counted for.
    fn answer(&mut self) {
        if self.replies.is_empty() {
            return;
        }
        {
            let mut mailbox = lock(&self.shared.mailbox);
            for ((_, admitted), _) in &self.replies {
                mailbox.admission.release(*admitted);
            }
        }
        for ((answer, _), reply) in self.replies.drain(..) {
            // Whoever asked may have gone away, which changes nothing about what was done.
            let _ = answer.send(reply);
        }
    }

    /// Waits for commands, for the other thread, for a deadline, or for the end; true for the end.
    fn wait_for_mail(&mut self) -> bool {
        let timeout = self.timeout();
        let shared = self.shared.clone();
        let mut mailbox = lock(&shared.mailbox);
        if mailbox.commands.is_empty() && mailbox.outcomes.is_empty() && !mailbox.stop {
            mailbox.runner_waits = true;
            let waited = shared
                .mail
                .wait_timeout_while(mailbox, timeout, |mailbox| mailbox.runner_waits);
            mailbox = waited.unwrap_or_else(PoisonError::into_inner).0;
            mailbox.runner_waits = false;
        }
        let stop = mailbox.stop;
        self.waiting.append(&mut mailbox.commands);
        let outcomes = std::mem::take(&mut mailbox.outcomes);
        drop(mailbox);
        for outcome in outcomes {
            self.background_jobs -= 1;
            self.complete(outcome);
        }
        if self.waiting.is_empty() && !stop {
            self.rest();
        } else {
            self.idle = Idle::Busy;
        }
        stop
    }

    /// What is done when nothing is asked for.
    fn rest(&mut self) {
        if self.partition.is_out_of_space() {
            self.partition.retry_space();
        }
        if self.idle == Idle::Busy {
            self.partition.mark();
            self.idle = Idle::Marked;
        }
    }

    /// How long to wait for mail at most.
    fn timeout(&mut self) -> Duration {
        if self.idle == Idle::Busy {
            return IDLE_BEFORE_MARK;
        }
        let now = self.clock.now(read_clocks());
        let deadline = self.partition.next_deadline();
        let until_deadline = deadline.map(|deadline| {
            // At least a little, so that a clock that is being slewed back cannot spin here.
            Duration::from_millis(deadline.as_ms().saturating_sub(now.as_ms()).max(1))
        });
        let until_retry = self
            .partition
            .is_out_of_space()
            .then_some(SPACE_RETRY_INTERVAL);
        let day = Duration::from_secs(86_400);
        [until_deadline, until_retry]
            .into_iter()
            .flatten()
            .fold(day, Duration::min)
    }

    /// Answers whoever is left, leaves a snapshot, and ends.
    fn finish(mut self) {
        if !self.partition.is_stopped() {
            self.serve();
            self.partition.snapshot();
            self.partition.mark();
            self.drain_jobs();
        }
        let mut mailbox = lock(&self.shared.mailbox);
        mailbox.stopped = true;
        self.waiting.append(&mut mailbox.commands);
        drop(mailbox);
        let unserved = self.waiting.drain(..);
        self.replies
            .extend(unserved.map(|(ticket, _)| (ticket, Err(Rejection::Stopped))));
        self.answer();
    }

    /// Carries out every job there is, here.
    fn drain_jobs(&mut self) {
        loop {
            while let Some(job) = self.partition.next_job() {
                let outcome = job.run(self.storage.as_ref());
                self.complete(outcome);
            }
            if self.background_jobs == 0 {
                break;
            }
            self.wait_for_worker();
        }
    }

    /// Waits until the other thread has done something.
    fn wait_for_worker(&mut self) {
        let shared = self.shared.clone();
        let mut mailbox = lock(&shared.mailbox);
        while mailbox.outcomes.is_empty() {
            mailbox.runner_waits = true;
            mailbox = shared
                .mail
                .wait(mailbox)
                .unwrap_or_else(PoisonError::into_inner);
        }
        let outcomes = std::mem::take(&mut mailbox.outcomes);
        drop(mailbox);
        for outcome in outcomes {
            self.background_jobs -= 1;
            self.complete(outcome);
        }
    }
}

/// Sees to it that nobody waits for a runner that is gone, whatever it died of.
struct LastWill {
    shared: Arc<Shared>,
    failed: watch::Sender<Option<Failure>>,
}

impl Drop for LastWill {
    fn drop(&mut self) {
        let mut mailbox = lock(&self.shared.mailbox);
        mailbox.stopped = true;
        // Tickets that are dropped tell their holders that the partition has stopped.
        mailbox.commands.clear();
        drop(mailbox);
        if thread::panicking() {
            self.failed.send_replace(Some(Failure::of_a_bug()));
        }
    }
}

/// Reads the machine's clocks.
fn read_clocks() -> ClockReading {
    let wall = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    // Only Linux has a clock under this name that goes on while the machine is suspended; the
    // monotonic clock of macOS does so by itself.
    #[cfg(target_os = "linux")]
    let clock = rustix::time::ClockId::Boottime;
    #[cfg(not(target_os = "linux"))]
    let clock = rustix::time::ClockId::Monotonic;
    let boot = rustix::time::clock_gettime(clock);
    let boot_us = u64::try_from(boot.tv_sec).unwrap_or(0) * 1_000_000
        + u64::try_from(boot.tv_nsec).unwrap_or(0) / 1000;
    ClockReading {
        wall_us: u64::try_from(wall.as_micros()).unwrap_or(u64::MAX),
        boot_us,
    }
}
