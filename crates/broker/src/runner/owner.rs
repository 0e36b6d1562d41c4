//! A runner as the owner of a log: it drives a partition.

mod requests;

use std::mem;
use std::sync::{Arc, MutexGuard};
use std::time::{Duration, Instant};

use kew_log::{BootTime, Epoch, Job, JobKind, JobOutcome, LogEnd};

use super::mailbox::{Intake, Mail, Mailbox, Requests, Ticket};
use super::scrubber::Scrubber;
use super::space::ToldSpace;
use super::turn_clock::TurnClock;
use super::workers::WorkerGone;
use super::{DAY, Runner, read_clocks, spent};
use crate::answers::HandOut;
use crate::broker::lock;
use crate::{Clock, Due, Failure, Partition, Reply, Rotation, TurnEnd};

/// How often receivers that wait show that their queue is in use. No queue deletes itself in less than five minutes.
const USE_INTERVAL_MS: u64 = 60_000;
/// How many queues do so at once, and how long the next ones wait.
const USES_AT_ONCE: usize = 256;
const USE_PAUSE_MS: u64 = 1000;

/// Waits are not shorter, so that a clock that is being slewed back, or what is due and cannot be done, does not spin.
const LEAST_WAIT: Duration = Duration::from_millis(1);

/// The role of a runner that owns the log.
pub(super) struct Owner<'a> {
    runner: &'a mut Runner,
    partition: Box<Partition<Ticket>>,
    clock: Clock,
    /// `None` without a scrub, and at the end.
    scrubber: Option<Scrubber>,
    /// Commands that are admitted and not yet decided.
    waiting: Rotation<Ticket>,
    /// Empty between two turns, and kept for its room.
    mail: Vec<Mail>,
    /// What came with the mail: until the turn begins, and a request for metrics until it ends.
    requests: Requests,
    replies: Vec<(Ticket, Reply)>,
    /// How long the partition took to complete background jobs. It counts towards the next turn.
    completing: Duration,
    turn_clock: TurnClock,
    hand_out: HandOut,
    told_space: ToldSpace,
    /// The promotion for which a commit was made that tells whether another process owns the log.
    checked_for: Option<Epoch>,
    /// The last one that was looked at. If there was no room for such a commit, a later turn makes it.
    seen_promotion: Option<Epoch>,
    /// When to look again which queues are in use only because receivers wait.
    use_due_at: BootTime,
    /// Until when a stop waits for other machines. `None` before the first wait after the stop.
    stop_by: Option<Instant>,
}

impl<'a> Owner<'a> {
    /// Takes the role: from now on commands are taken.
    pub(super) fn begin(
        runner: &'a mut Runner,
        mut partition: Box<Partition<Ticket>>,
        scrubber: Option<Scrubber>,
    ) -> Self {
        let healed_runs = partition.state().healed_runs();
        if healed_runs > 0 {
            tracing::warn!(
                healed_runs,
                "the snapshot said something else than its messages about what they count for: it was counted anew"
            );
        }
        partition.ask_who_waits(|(asker, _): &Ticket| asker.is_waiting());
        partition.time_snapshot_steps(spent);
        runner.shared.open_intake();
        Self {
            clock: Clock::start(read_clocks(), partition.recorded_at()),
            partition,
            scrubber,
            runner,
            waiting: Rotation::default(),
            mail: Vec::new(),
            requests: Requests::default(),
            replies: Vec::new(),
            completing: Duration::ZERO,
            turn_clock: TurnClock::start(),
            hand_out: HandOut::default(),
            told_space: ToldSpace::default(),
            checked_for: None,
            seen_promotion: None,
            use_due_at: BootTime::ZERO,
            stop_by: None,
        }
    }

    /// Drives the partition until the stop, or until its log ends. Returns how it has ended if it is to be followed now.
    pub(super) fn run(mut self) -> Option<LogEnd> {
        let (mut stop, mut has_more) = (false, false);
        while !stop && !self.partition.is_stopped() {
            // Before each turn: a new command waits for a turn, and not until nothing is left to decide.
            stop = self.take_mail(has_more);
            self.carry_out_requests();
            has_more = self.serve() != TurnEnd::Done;
            if !self.partition.is_stopped() {
                self.told_space.tell(&self.partition, &self.runner.shared);
            }
            self.keep_in_use();
            self.read_slice();
        }
        match self.partition.ended() {
            Some(end @ (LogEnd::Fenced(_) | LogEnd::Diverged(_))) if !stop => {
                let end = end.clone();
                self.leave();
                Some(end)
            }
            Some(LogEnd::Fenced(_) | LogEnd::Diverged(_) | LogEnd::Failed(_)) | None => {
                self.finish();
                None
            }
        }
    }

    /// Decides waiting commands, a batch of them, and commits the batch. Unless that is all, the next turn can begin at
    /// once.
    fn serve(&mut self) -> TurnEnd {
        let began = Instant::now();
        let now = self.clock.now(read_clocks());
        let waiting_before = self.waiting.len();
        let was_stopped = self.partition.is_stopped();
        let end = self
            .partition
            .turn(now, &mut self.waiting, &mut self.replies);
        if !was_stopped && let Some(end) = self.partition.ended().cloned() {
            self.tell_end(&end);
        }
        let decided = waiting_before - self.waiting.len();
        self.runner
            .shared
            .watchers
            .wake(self.partition.take_wakes());
        let on_disk = self.carry_out_jobs();
        self.confirm();
        self.answer();
        // A snapshot is copied when a commit completes, so a turn lasts until its answers are out.
        let ended = Instant::now();
        let took = ended
            .saturating_duration_since(began)
            .saturating_sub(on_disk)
            + mem::take(&mut self.completing);
        let on_processor = self.turn_clock.end_turn(ended, took);
        let instruments = &self.runner.shared.instruments;
        instruments.note_turn(decided, took, on_processor);
        for step in self.partition.take_snapshot_steps() {
            instruments.note_snapshot_step(step);
        }
        if self.partition.is_stopped() {
            return TurnEnd::Done;
        }
        match end {
            TurnEnd::WaitForJob | TurnEnd::WaitForMemory if self.runner.workers.is_any_out() => {
                // A reader of metrics does not wait for the job.
                self.read_slice();
                let began = Instant::now();
                self.wait_for_worker();
                self.runner
                    .shared
                    .instruments
                    .note_wait(end, began.elapsed());
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
        let watchers = &self.runner.shared.watchers;
        let is_more_due =
            watchers.wake_at(USES_AT_ONCE, |entity| state.is_use_due(entity, now.time));
        let interval_ms = match is_more_due {
            true => USE_PAUSE_MS,
            false => USE_INTERVAL_MS,
        };
        self.use_due_at = now.boot.plus_ms(interval_ms);
    }

    /// Commits on this thread, and hands slow work to the other threads. Returns the time that commits took.
    fn carry_out_jobs(&mut self) -> Duration {
        let mut on_disk = Duration::ZERO;
        while let Some(job) = self.partition.next_job() {
            if job.kind() != JobKind::Commit {
                self.hand_over(job);
                continue;
            }
            let (size_bytes, began) = (job.commit_size_bytes(), Instant::now());
            let outcome = job.run();
            let took = began.elapsed();
            on_disk += took;
            if outcome.is_ok() {
                self.runner.shared.instruments.note_commit(took, size_bytes);
            }
            self.complete(outcome);
        }
        if let Some(waste) = self.partition.take_waste() {
            self.runner.workers.free(waste);
        }
        on_disk
    }

    /// Hands a job to another thread.
    fn hand_over(&mut self, job: Job) {
        if let Err(WorkerGone) = self.runner.workers.send(job) {
            self.fail_for_want_of_a_worker();
        }
    }

    fn fail_for_want_of_a_worker(&mut self) {
        match self.runner.workers.wait_for_others() {
            // They may agree all the same.
            true => self.partition.give_up(&mut self.replies),
            false => self.partition.stop(&mut self.replies),
        }
        self.runner.fail_for_want_of_a_worker();
    }

    fn complete(&mut self, outcome: JobOutcome) {
        if self.partition.is_stopped() {
            return;
        }
        if let Err(end) = self.partition.complete(outcome, &mut self.replies) {
            self.tell_end(&end);
        }
    }

    /// Tells how the log has ended. This comes before the answers to what waited: who tries again then does not come to this
    /// partition.
    fn tell_end(&mut self, end: &LogEnd) {
        match end {
            LogEnd::Failed(_) => {
                tracing::error!(error = %end, "the log failed: the partition stops");
                self.runner.failed.send_replace(Some(Failure::of(end)));
                let shared = &self.runner.shared;
                shared.close_intake(Intake::Stopped, &mut self.mail);
            }
            LogEnd::Fenced(_) | LogEnd::Diverged(_) => {
                tracing::warn!(error = %end, "another process owns the log: the partition is left to it");
                let shared = &self.runner.shared;
                shared.close_intake(Intake::NotOwner, &mut self.mail);
            }
        }
    }

    /// Answers what only reads, if no other process owns the log by now.
    fn confirm(&mut self) {
        if self.partition.is_any_to_confirm() {
            let now = BootTime::from_us(read_clocks().boot_us);
            self.partition.confirm(now, &mut self.replies);
        }
    }

    /// Hands out answers, and releases what their commands counted for.
    fn answer(&mut self) {
        if self.replies.is_empty() {
            return;
        }
        {
            let mut mailbox = lock(&self.runner.shared.mailbox);
            for ((_, admitted), reply) in &self.replies {
                mailbox.admission.release(*admitted);
                if let Err(rejection) = reply {
                    self.runner.shared.instruments.note_rejection(rejection);
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
        let shared = self.runner.shared.clone();
        let mut mailbox = lock(&shared.mailbox);
        let seen = self.seen_promotion;
        let has_mail = |it: &Mailbox| it.has_mail() || it.promotion != seen;
        if !has_more && !has_mail(&mailbox) {
            // Under load there is mail, and nobody has to find out what is due. Nor does a client wait for that.
            drop(mailbox);
            let timeout = self.timeout();
            mailbox = lock(&shared.mailbox);
            if !has_mail(&mailbox) {
                mailbox = shared.wait_for_mail(mailbox, timeout);
            }
        }
        let stop = mailbox.stop;
        self.seen_promotion = mailbox.promotion;
        self.waiting.set_excess(mailbox.admission.excess());
        mem::swap(&mut self.mail, &mut mailbox.commands);
        if !mailbox.requests.is_empty() {
            mem::swap(&mut self.requests, &mut mailbox.requests);
        }
        self.take_outcomes(mailbox);
        self.sort_mail();
        stop
    }

    /// Puts new commands behind those of their sources.
    fn sort_mail(&mut self) {
        for mail in self.mail.drain(..) {
            let Mail {
                source,
                target,
                ticket,
                command,
            } = mail;
            self.waiting.push_to(target, source, ticket, command);
        }
    }

    fn take_outcomes(&mut self, mut mailbox: MutexGuard<'_, Mailbox>) {
        let outcomes = mem::take(&mut mailbox.outcomes);
        let worker_is_gone = mailbox.worker_is_gone;
        drop(mailbox);
        // Most turns follow no background job, and need no clock here.
        if !outcomes.is_empty() {
            let began = Instant::now();
            for returned in outcomes {
                let snapshot_began = (returned.kind == JobKind::Snapshot).then(spent);
                let outcome = self.runner.workers.take_back(returned);
                self.complete(outcome);
                if let Some(began) = snapshot_began {
                    let instruments = &self.runner.shared.instruments;
                    instruments.note_snapshot_step(spent().since(began));
                }
            }
            self.completing += began.elapsed();
        }
        if worker_is_gone && !self.partition.is_stopped() {
            self.fail_for_want_of_a_worker();
        }
    }

    /// The longest time to wait for mail.
    fn timeout(&mut self) -> Duration {
        let use_due = (self.runner.shared.watchers.count() > 0).then_some(self.use_due_at);
        let scrub = self.scrubber.as_ref();
        let scrub_due = scrub.and_then(|_| self.partition.next_scrub_at());
        let due = self.partition.next_wake().or_at(use_due).or_at(scrub_due);
        if due == Due::default() {
            return DAY;
        }
        let now = self.clock.now(read_clocks());
        due.wait(now)
            .map_or(DAY, |wait| wait.clamp(LEAST_WAIT, DAY))
    }

    /// Answers the commands that are left, writes a snapshot, and ends.
    fn finish(mut self) {
        if let Some(scrubber) = &mut self.scrubber {
            scrubber.close();
        }
        if !self.partition.is_stopped() {
            // What is due can wait for the next start, and so can those who wait for it.
            while !matches!(self.serve(), TurnEnd::Done | TurnEnd::MoreIsDue)
                && !self.partition.is_stopped()
            {}
            // Nothing was done for those that wait for a read.
            self.partition.reject_waiting(&mut self.replies);
            self.told_space.tell(&self.partition, &self.runner.shared);
            while self.partition.close() && !self.partition.is_stopped() {
                self.drain_jobs();
            }
            self.drain_jobs();
        }
        let shared = Arc::clone(&self.runner.shared);
        shared.close_intake(Intake::Stopped, &mut self.mail);
        self.reject_unserved();
        self.end_scrub();
        self.partition.stop_waiting_for_others();
    }

    /// Leaves the partition to its new owner. Every command gets an answer, and every receiver looks again.
    fn leave(mut self) {
        self.reject_unserved();
        self.runner.shared.watchers.wake_all();
        self.end_scrub();
        self.partition.stop_waiting_for_others();
        self.runner.workers.free(self.partition);
        tracing::info!("the partition follows its log");
    }

    /// Rejects the commands that are not decided. No more come.
    fn reject_unserved(&mut self) {
        self.sort_mail();
        let rejection = self.partition.rejection();
        let unserved = self.waiting.drain();
        self.replies
            .extend(unserved.map(|(ticket, _)| (ticket, Err(rejection.clone()))));
        self.answer();
    }

    /// Ends the scrub. Its outcome is not needed any more.
    fn end_scrub(&mut self) {
        if let Some(scrubber) = self.scrubber.take() {
            scrubber.end();
            lock(&self.runner.shared.mailbox).requests.scrubbed = None;
        }
    }

    /// Carries out all jobs, on this thread unless they wait for other machines.
    fn drain_jobs(&mut self) {
        loop {
            while let Some(job) = self.partition.next_job() {
                if job.kind().waits_for_others() {
                    self.hand_over(job);
                    continue;
                }
                let outcome = job.run();
                self.complete(outcome);
            }
            // What is agreed does not wait for what follows, such as a snapshot.
            self.answer();
            if self.partition.is_stopped() {
                break;
            } else if !self.partition.has_undurable() && self.runner.workers.only_wait_for_others()
            {
                // Nothing is left to agree on: what is out renews a lease.
                break;
            } else if self.runner.workers.is_any_out() {
                self.wait_for_worker();
            } else if self.partition.has_undurable() {
                self.wait_for_log();
            } else {
                break;
            }
        }
    }

    /// Waits until another thread has finished a job, or somebody asks for what needs no turn.
    fn wait_for_worker(&mut self) {
        let shared = self.runner.shared.clone();
        let mut mailbox = lock(&shared.mailbox);
        while mailbox.outcomes.is_empty()
            && !mailbox.worker_is_gone
            // At the end nobody takes them.
            && (mailbox.stop || mailbox.requests.is_empty())
        {
            let waits_for_others = mailbox.stop && self.runner.workers.wait_for_others();
            let patience = match waits_for_others {
                true => self.patience(),
                false => Some(DAY),
            };
            let Some(patience) = patience else {
                drop(mailbox);
                self.give_up_waiting();
                return;
            };
            mailbox = shared.wait_for_mail(mailbox, patience);
        }
        self.take_outcomes(mailbox);
    }

    /// Waits at the stop until the log has a job again for what is not durable: it lets a commit wait.
    fn wait_for_log(&mut self) {
        let Some(patience) = self.patience() else {
            self.give_up_waiting();
            return;
        };
        let now = self.clock.now(read_clocks());
        let due = self.partition.next_wake().wait(now);
        let timeout = due.map_or(patience, |due| {
            due.clamp(LEAST_WAIT, LEAST_WAIT.max(patience))
        });
        let shared = self.runner.shared.clone();
        let mailbox = lock(&shared.mailbox);
        drop(shared.wait_for_mail(mailbox, timeout));
        // The log learns what time it is.
        self.serve();
    }

    /// How much time other machines have left once the runner is to stop. `None` if it is over.
    fn patience(&mut self) -> Option<Duration> {
        let now = Instant::now();
        let patience = self.runner.stop_patience;
        let left = (*self.stop_by.get_or_insert(now + patience)).saturating_duration_since(now);
        (!left.is_zero()).then_some(left)
    }

    /// Stops without the other machines, which may still agree.
    fn give_up_waiting(&mut self) {
        tracing::warn!(
            "other machines have not agreed in time: the partition stops, and it is unknown whether the last commands were \
             carried out"
        );
        self.partition.give_up(&mut self.replies);
        self.partition.stop_waiting_for_others();
    }
}
