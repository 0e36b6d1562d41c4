//! The threads that drive a partition: wait, feed, drain, answer.
//!
//! One thread decides and commits, inline: a single request in flight costs one wake-up of the runner and
//! one of the caller. Requests that come in during a sync make up the next batch. More threads do slow
//! work: one prepares segments, which every request may come to wait for, one writes snapshots, which they wait for
//! if memory is short, and three read what commands wait for, or are likely to need soon. The partition decides what to do and when.

mod last_will;
mod mailbox;
mod scrubber;
mod space;

use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use kew_engine::{Command, Timestamp, Waste};
use kew_log::{BootTime, Job, JobKind, JobOutcome, Recovery, Storage};
use tokio::sync::watch;

use self::last_will::{LastWill, TellIfGone};
use self::mailbox::{Mailbox, Ticket};
pub(crate) use self::mailbox::{ReportOf, Shared};
use self::space::ToldSpace;
use crate::answers::HandOut;
use crate::broker::lock;
use crate::metrics::Instruments;
use crate::overview::slice_of;
use crate::{
    BrokerOptions, Clock, ClockReading, Due, Failure, Partition, Rejection, Reply, Rotation,
    ScrubJob, Source, StartError, TurnEnd,
};

/// How often receivers that wait show that their queue is in use. No queue deletes itself in less than five minutes.
const USE_INTERVAL_MS: u64 = 60_000;
/// How many queues do so at once, and how long the next ones wait.
const USES_AT_ONCE: usize = 256;
const USE_PAUSE_MS: u64 = 1000;

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
    let began = Instant::now();
    let scrub_rate = options.partition.scrub_bytes_per_second;
    let (mut partition, recovery) =
        Partition::open(storage, options.partition, salt, secret, wall)?;
    let healed_runs = partition.state().healed_runs();
    if healed_runs > 0 {
        tracing::warn!(
            healed_runs,
            "the snapshot said something else than its messages about what they count for: it was counted anew"
        );
    }
    partition.ask_who_waits(|(asker, _): &Ticket| asker.is_waiting());
    let clock = Clock::start(reading, partition.recorded_at());
    let instruments = Instruments::new(began.elapsed(), &recovery, partition.state());
    let shared = Arc::new(Shared::new(options.admission, instruments));
    let (segment_jobs, segment_work) = mpsc::channel();
    let (snapshot_jobs, snapshot_work) = mpsc::channel();
    let (load_jobs, load_work) = mpsc::channel();
    let scrubs = (scrub_rate > 0).then(mpsc::channel);
    let (scrub_jobs, scrub_work) = scrubs.unzip();
    let runner = Runner {
        partition,
        clock,
        shared: shared.clone(),
        segment_jobs,
        snapshot_jobs,
        load_jobs,
        scrub_jobs,
        background_jobs: 0,
        failed,
        waiting: Rotation::default(),
        mail: Vec::new(),
        replies: Vec::new(),
        completing: Duration::ZERO,
        hand_out: HandOut::default(),
        told_space: ToldSpace::default(),
        use_due_at: BootTime::ZERO,
    };
    let mut threads = vec![spawn("kew-runner", move || runner.run())?];
    if let Some(jobs) = scrub_work {
        let shared = shared.clone();
        threads.push(spawn("kew-scrub", move || {
            scrubber::scrub(&jobs, &shared, scrub_rate);
        })?);
    }
    let load_work = Arc::new(Mutex::new(load_work));
    for (name, jobs) in [
        ("kew-segments", Arc::new(Mutex::new(segment_work))),
        ("kew-snapshots", Arc::new(Mutex::new(snapshot_work))),
        ("kew-loads", Arc::clone(&load_work)),
        ("kew-loads", Arc::clone(&load_work)),
        ("kew-loads", load_work),
    ] {
        let shared = shared.clone();
        threads.push(spawn(name, move || work(&jobs, &shared))?);
    }
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

/// What another thread does.
enum Work {
    Job(Job),
    /// Frees memory.
    Free(Waste),
}

/// Waits for work, as the only one of those that share it, and leaves the others to it before it is begun.
fn next_of(all: &Mutex<mpsc::Receiver<Work>>) -> Option<Work> {
    lock(all).recv().ok()
}

/// Carries out slow work until the runner is gone.
fn work(all: &Mutex<mpsc::Receiver<Work>>, shared: &Shared) {
    let _gone = TellIfGone(shared);
    while let Some(work) = next_of(all) {
        let job = match work {
            Work::Job(job) => job,
            Work::Free(waste) => {
                drop(waste);
                continue;
            }
        };
        let (kind, began) = (job.kind(), Instant::now());
        let outcome = job.run();
        if kind == JobKind::Snapshot {
            let instruments = &shared.instruments;
            instruments.note_snapshot(began.elapsed(), outcome.is_ok());
        }
        let mut mailbox = lock(&shared.mailbox);
        mailbox.outcomes.push(outcome);
        shared.wake(mailbox);
    }
}

struct Runner {
    partition: Partition<Ticket>,
    clock: Clock,
    shared: Arc<Shared>,
    /// For the thread that prepares and retires segments.
    segment_jobs: mpsc::Sender<Work>,
    /// For the thread that writes snapshots, and frees what takes long to free.
    snapshot_jobs: mpsc::Sender<Work>,
    /// For the thread that reads what commands wait for.
    load_jobs: mpsc::Sender<Work>,
    /// For the thread that reads to find damage. `None` without a scrub, and at the end.
    scrub_jobs: Option<mpsc::Sender<ScrubJob>>,
    /// How many jobs these threads have.
    background_jobs: usize,
    failed: watch::Sender<Option<Failure>>,
    /// Commands that are admitted and not yet decided.
    waiting: Rotation<Ticket>,
    /// Empty between two turns, and kept for its room.
    mail: Vec<(Source, Ticket, Command)>,
    replies: Vec<(Ticket, Reply)>,
    /// How long the partition took to complete background jobs. It counts towards the next turn.
    completing: Duration,
    hand_out: HandOut,
    told_space: ToldSpace,
    /// When to look again which queues are in use only because receivers wait.
    use_due_at: BootTime,
}

impl Runner {
    fn run(mut self) {
        let _last_will = LastWill {
            shared: self.shared.clone(),
            failed: self.failed.clone(),
        };
        let (mut stop, mut has_more) = (false, false);
        while !stop && !self.partition.is_stopped() {
            // Before each turn: a new command waits for a turn, and not until nothing is left to decide.
            stop = self.take_mail(has_more);
            self.carry_out_requests();
            has_more = self.serve() != TurnEnd::Done;
            self.told_space.tell(&self.partition, &self.shared);
            self.keep_in_use();
            self.read_slice();
        }
        self.finish();
    }

    /// Decides waiting commands, a batch of them, and commits the batch. Unless that is all, the next turn can begin at
    /// once.
    fn serve(&mut self) -> TurnEnd {
        let began = Instant::now();
        let now = self.clock.now(read_clocks());
        let waiting_before = self.waiting.len();
        let end = self
            .partition
            .turn(now, &mut self.waiting, &mut self.replies);
        let decided = waiting_before - self.waiting.len();
        self.shared.watchers.wake(self.partition.take_wakes());
        let on_disk = self.carry_out_jobs();
        self.answer();
        // A snapshot is copied when a commit completes, so a turn lasts until its answers are out.
        let took = began.elapsed().saturating_sub(on_disk) + mem::take(&mut self.completing);
        self.shared.instruments.note_turn(decided, took);
        match end {
            TurnEnd::WaitForJob | TurnEnd::WaitForMemory if self.background_jobs > 0 => {
                let began = Instant::now();
                self.wait_for_worker();
                self.shared.instruments.note_wait(end, began.elapsed());
            }
            TurnEnd::WaitForJob | TurnEnd::WaitForMemory => return TurnEnd::Done,
            TurnEnd::Done | TurnEnd::MoreToDecide | TurnEnd::MoreIsDue => {}
        }
        end
    }

    /// A receiver that waits for long does nothing, and its queue would delete itself as idle. So one receiver of
    /// each such queue looks from time to time.
    fn keep_in_use(&mut self) {
        let now = self.partition.now();
        if !self.use_due_at.has_passed(now.boot) {
            return;
        }
        let state = self.partition.state();
        let watchers = &self.shared.watchers;
        let is_more_due =
            watchers.wake_at(USES_AT_ONCE, |entity| state.is_use_due(entity, now.time));
        let interval_ms = match is_more_due {
            true => USE_PAUSE_MS,
            false => USE_INTERVAL_MS,
        };
        self.use_due_at = now.boot.plus_ms(interval_ms);
    }

    /// Answers a request for metrics, a bounded part at a time.
    fn read_slice(&mut self) {
        let request = lock(&self.shared.mailbox).slice.take();
        if let Some(request) = request {
            let now = self.clock.now(read_clocks());
            let slice = slice_of(&mut self.partition, request.from, now.time);
            // The reader may have given up.
            let _ = request.answer.send(slice);
        }
    }

    /// Begins and ends backups, before a turn: the removals that waited for the end of one are jobs of that turn.
    /// Goes on with the scrub.
    fn carry_out_requests(&mut self) {
        let mut mailbox = lock(&self.shared.mailbox);
        let requests = mem::take(&mut mailbox.backups);
        let scrubbed = mailbox.scrubbed.take();
        let reports = mem::take(&mut mailbox.scrub_reports);
        drop(mailbox);
        for request in requests {
            request.carry_out(&mut self.partition, &self.shared);
        }
        if let Some(outcome) = scrubbed {
            self.partition.scrubbed(outcome);
        }
        for (of, answer) in reports {
            let mut report = self.partition.scrub_report();
            if of == ReportOf::Quarantined {
                report.quarantined = self.partition.quarantined_runs();
            }
            // The reader may have given up.
            let _ = answer.send(report);
        }
        if let Some(jobs) = &self.scrub_jobs
            && let Some(job) = self.partition.next_scrub()
        {
            // If its thread has died, there is no scrub, and everything else goes on.
            let _ = jobs.send(job);
        }
    }

    /// Commits on this thread, and hands slow work to the other threads. Returns the time that commits took.
    fn carry_out_jobs(&mut self) -> Duration {
        let mut on_disk = Duration::ZERO;
        while let Some(job) = self.partition.next_job() {
            let worker = match job.kind() {
                JobKind::Commit => {
                    let (size_bytes, began) = (job.commit_size_bytes(), Instant::now());
                    let outcome = job.run();
                    let took = began.elapsed();
                    on_disk += took;
                    if outcome.is_ok() {
                        self.shared.instruments.note_commit(took, size_bytes);
                    }
                    self.complete(outcome);
                    continue;
                }
                JobKind::Prepare | JobKind::Retire | JobKind::Ballast | JobKind::Promote => {
                    &self.segment_jobs
                }
                JobKind::Snapshot | JobKind::Read => &self.snapshot_jobs,
                // Commands wait for it.
                JobKind::Load | JobKind::Follow => &self.load_jobs,
            };
            match worker.send(Work::Job(job)) {
                Ok(()) => self.background_jobs += 1,
                Err(_) => self.fail_for_want_of_a_worker(),
            }
        }
        if let Some(waste) = self.partition.take_waste() {
            // A thread that is gone is noticed with its next job.
            let _ = self.snapshot_jobs.send(Work::Free(waste));
        }
        on_disk
    }

    fn fail_for_want_of_a_worker(&mut self) {
        tracing::error!("a thread of the log has died: the partition stops");
        self.partition.stop(&mut self.replies);
        self.failed.send_replace(Some(Failure::of_a_bug()));
    }

    fn complete(&mut self, outcome: JobOutcome) {
        if self.partition.is_stopped() {
            return;
        }
        if let Err(end) = self.partition.complete(outcome, &mut self.replies) {
            tracing::error!(error = %end, "the log failed: the partition stops");
            self.failed.send_replace(Some(Failure::from(&end)));
        }
    }

    /// Hands out answers, and releases what their commands counted for.
    fn answer(&mut self) {
        if self.replies.is_empty() {
            return;
        }
        {
            let mut mailbox = lock(&self.shared.mailbox);
            for ((_, admitted), reply) in &self.replies {
                mailbox.admission.release(*admitted);
                if matches!(reply, Err(Rejection::Full)) {
                    self.shared.instruments.refused_full.increment();
                }
            }
        }
        for ((asker, _), reply) in self.replies.drain(..) {
            self.hand_out.answer(asker, reply);
        }
        self.hand_out.wake();
    }

    /// Takes the mail. If nothing else is to be done, waits for commands, for the other threads, for a deadline, or
    /// for the stop. Returns true for the stop.
    fn take_mail(&mut self, has_more: bool) -> bool {
        let timeout = (!has_more).then(|| self.timeout());
        let shared = self.shared.clone();
        let mut mailbox = lock(&shared.mailbox);
        if let Some(timeout) = timeout
            && mailbox.commands.is_empty()
            && mailbox.outcomes.is_empty()
            && !mailbox.stop
            && mailbox.slice.is_none()
            && mailbox.backups.is_empty()
            && mailbox.scrubbed.is_none()
            && mailbox.scrub_reports.is_empty()
        {
            mailbox.runner_waits = true;
            let waited = shared
                .mail
                .wait_timeout_while(mailbox, timeout, |mailbox| mailbox.runner_waits);
            mailbox = waited.unwrap_or_else(PoisonError::into_inner).0;
            mailbox.runner_waits = false;
        }
        let stop = mailbox.stop;
        self.waiting.set_excess(mailbox.admission.excess());
        mem::swap(&mut self.mail, &mut mailbox.commands);
        self.take_outcomes(mailbox);
        self.sort_mail();
        stop
    }

    /// Puts new commands behind those of their sources.
    fn sort_mail(&mut self) {
        for (source, ticket, command) in self.mail.drain(..) {
            self.waiting.push(source, ticket, command);
        }
    }

    fn take_outcomes(&mut self, mut mailbox: MutexGuard<'_, Mailbox>) {
        let outcomes = mem::take(&mut mailbox.outcomes);
        let worker_is_gone = mailbox.worker_is_gone;
        drop(mailbox);
        // Most turns follow no background job, and need no clock here.
        if !outcomes.is_empty() {
            let began = Instant::now();
            for outcome in outcomes {
                self.background_jobs -= 1;
                self.complete(outcome);
            }
            self.completing += began.elapsed();
        }
        if worker_is_gone && !self.partition.is_stopped() {
            self.fail_for_want_of_a_worker();
        }
    }

    /// The longest time to wait for mail.
    fn timeout(&mut self) -> Duration {
        let day = Duration::from_secs(86_400);
        let use_due = (self.shared.watchers.count() > 0).then_some(self.use_due_at);
        let scrub = self.scrub_jobs.as_ref();
        let scrub_due = scrub.and_then(|_| self.partition.next_scrub_at());
        let due = self.partition.next_wake().or_at(use_due).or_at(scrub_due);
        if due == Due::default() {
            return day;
        }
        let now = self.clock.now(read_clocks());
        // At least a little, so that a clock that is being slewed back cannot spin here.
        let least = Duration::from_millis(1);
        due.wait(now).map_or(day, |wait| wait.clamp(least, day))
    }

    /// Answers the commands that are left, writes a snapshot, and ends.
    fn finish(mut self) {
        self.scrub_jobs = None;
        if !self.partition.is_stopped() {
            // What is due can wait for the next start, and so can those who wait for it.
            while !matches!(self.serve(), TurnEnd::Done | TurnEnd::MoreIsDue)
                && !self.partition.is_stopped()
            {}
            // Nothing was done for those that wait for a read.
            self.partition.reject_waiting(&mut self.replies);
            self.told_space.tell(&self.partition, &self.shared);
            while self.partition.close() && !self.partition.is_stopped() {
                self.drain_jobs();
            }
            self.drain_jobs();
        }
        let mut mailbox = lock(&self.shared.mailbox);
        mailbox.stopped = true;
        // Their senders learn that there is no answer.
        mailbox.backups.clear();
        mailbox.scrub_reports.clear();
        mem::swap(&mut self.mail, &mut mailbox.commands);
        drop(mailbox);
        self.sort_mail();
        let unserved = self.waiting.drain();
        self.replies
            .extend(unserved.map(|(ticket, _)| (ticket, Err(Rejection::Stopped))));
        self.answer();
    }

    /// Carries out all jobs on this thread.
    fn drain_jobs(&mut self) {
        loop {
            while let Some(job) = self.partition.next_job() {
                let outcome = job.run();
                self.complete(outcome);
            }
            if self.background_jobs == 0 || self.partition.is_stopped() {
                break;
            }
            self.wait_for_worker();
        }
    }

    /// Waits until another thread has finished a job, or somebody asks for what needs no turn.
    fn wait_for_worker(&mut self) {
        let shared = self.shared.clone();
        let mut mailbox = lock(&shared.mailbox);
        while mailbox.outcomes.is_empty()
            && !mailbox.worker_is_gone
            && mailbox.slice.is_none()
            && mailbox.backups.is_empty()
            && mailbox.scrubbed.is_none()
            && mailbox.scrub_reports.is_empty()
        {
            mailbox.runner_waits = true;
            mailbox = shared
                .mail
                .wait(mailbox)
                .unwrap_or_else(PoisonError::into_inner);
        }
        self.take_outcomes(mailbox);
    }
}

/// Reads the machine's clocks.
fn read_clocks() -> ClockReading {
    let wall = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    // Only Linux has a clock under this name that also counts suspended time. The monotonic clock of macOS
    // does so by itself.
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
