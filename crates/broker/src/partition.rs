//! A partition as a step machine: commands in, answers out, jobs for the disk in between.
//!
//! It owns the state and a log, and does not know of which kind the log is. A driver feeds it commands
//! ([`Partition::turn`]), carries out its jobs ([`Partition::next_job`], [`Partition::complete`]) on any thread, and
//! sends the answers that become due. It knows no thread, no socket and no clock, so the simulator runs the code that
//! ships.
//!
//! Invariants: a turn's events are one batch of the log. An answer is handed out only when the log is
//! durable up to the last event that the answer rests on. After a failed write or sync, no command succeeds
//! any more.

mod batch;
mod bodies;
mod evacuation;
mod eviction;
mod heartbeat;
mod known_pages;
mod lanes;
mod last_records;
mod live;
mod loads;
mod opening;
mod options;
mod quarantine;
mod reads;
mod reply;
mod reservation;
mod rests;
mod scrub;
mod size;
mod snapshots;
mod space;
mod stirred;
mod turn;
mod upkeep;

use kew_engine::{BodyLocation, Incarnation, Overview, State, Timestamp, Waste};
use kew_log::{
    BackupPlan, BeginBackupError, BootTime, Job, JobOutcome, LogEnd, LogPosition, LogState,
    OwnedLog, PinId,
};
use kew_planted::{Bug, is_planted};

use self::evacuation::Evacuation;
use self::eviction::Eviction;
use self::heartbeat::Heartbeat;
use self::lanes::Lanes;
use self::last_records::LastRecords;
pub(crate) use self::live::Live;
use self::loads::{Loaded, Loads};
pub use self::opening::OpenPartitionError;
pub use self::options::{PartitionOptions, ResidentLimit};
use self::quarantine::Damaged;
use self::reads::Reads;
use self::reply::Decided;
pub use self::reply::{Answered, Rejection, Reply};
use self::scrub::Scrubbing;
pub use self::scrub::{DamagedBody, QuarantinedRun, ScrubJob, ScrubOutcome, ScrubReport};
use self::size::{Measured, SinceSnapshot};
pub(crate) use self::snapshots::Content;
use self::snapshots::StepTimes;
use self::stirred::{PassedOver, Stirred};
pub use self::turn::TurnEnd;
use crate::Moment;
use crate::waiters::Waiters;

/// For so long other machines may be silent before new commands are refused.
const NO_QUORUM_MS: u64 = 2000;

/// One partition: its state, its log, and the answers that wait.
///
/// `T` is the driver's ticket for a command. It comes back with the answer.
pub struct Partition<T> {
    state: State,
    log: Box<dyn OwnedLog>,
    waiters: Waiters<(T, Reply)>,
    /// Answers that only read, if another process can own the log.
    reads: Reads<(T, Reply)>,
    /// Changes since the last [`Partition::take_wakes`] that may concern waiting receivers.
    stirred: Vec<Stirred>,
    /// Things that receivers wait for and that expired messages may hide.
    passed_over: PassedOver,
    last_records: LastRecords,
    options: PartitionOptions,
    /// What the last snapshot has written.
    last_snapshot_bytes: u64,
    /// How many effects there were.
    effects: SinceSnapshot,
    /// How large the state is.
    measured: Measured,
    /// When the last snapshot was begun, and until when those rest that are due by effects.
    snapshot_begun_at: BootTime,
    snapshots_rest_until: BootTime,
    /// How long the steps of snapshots took.
    step_times: StepTimes,
    /// The last time that the log had when it was opened.
    opened_at: Timestamp,
    /// When the latest turn was.
    now: Moment,
    /// When a command was last decided.
    active_at: BootTime,
    /// Whether the log's end was marked since then.
    is_marked: bool,
    /// Whether there was no room for commands that bring something new.
    is_out_of_space: bool,
    /// Whether there was no room even for commands that free messages.
    is_without_room: bool,
    scrub: Scrubbing,
    /// When is read again: there was no file descriptor.
    reading_retry_at: Option<BootTime>,
    heartbeat: Heartbeat,
    evacuation: Evacuation,
    eviction: Eviction,
    /// The commands that wait until something is read, and what is read.
    lanes: Lanes<T>,
    loads: Loads,
    /// What loads have found damaged, to be set aside.
    damaged: Damaged,
    /// Whether somebody still waits for an answer.
    is_awaited: fn(&T) -> bool,
    /// Empty between two turns, and kept for its room.
    decided: Vec<Decided<T>>,
    /// How many bytes the last batch had: the next one is likely to have as many.
    last_batch_bytes: usize,
    /// How the log has ended, if it has.
    ended: Option<LogEnd>,
    stopped: bool,
}

impl<T> Partition<T> {
    /// Sets how to find out whether somebody still waits for an answer. By default somebody does.
    pub fn ask_who_waits(&mut self, is_awaited: fn(&T) -> bool) {
        self.is_awaited = is_awaited;
    }

    /// The next job for the disk, if there is one. Jobs may run concurrently and on any thread.
    pub fn next_job(&mut self) -> Option<Job> {
        if self.stopped {
            return None;
        }
        let job = self.log.next_job();
        if job.as_ref().is_some_and(|job| job.kind().is_commit()) {
            self.reads.commit_begins();
        }
        let job = job.or_else(|| self.evacuation.next_job());
        job.or_else(|| self.next_load())
    }

    /// Takes the outcome of a job and hands out the answers that are now due. Returns how the log has ended, if this tells
    /// it: then the partition has stopped, and every command that waits is answered.
    pub fn complete(
        &mut self,
        mut outcome: JobOutcome,
        replies: &mut Vec<(T, Reply)>,
    ) -> Result<(), LogEnd> {
        if let Some(bodies) = outcome.take_bodies() {
            self.take_bodies(bodies);
            return Ok(());
        }
        if let Some(loaded) = outcome.take_loaded::<Loaded>() {
            self.take_read(loaded, replies);
            return Ok(());
        }
        let durable_before = self.log.durable();
        let was_snapshotting = self.log.snapshots().is_under_way;
        let was_short = self.log.health().is_short_of_descriptors;
        let completed = self.log.complete(outcome);
        // Once: the log tries again by itself, and reads must not wait for longer each time.
        if !was_short && self.log.health().is_short_of_descriptors {
            self.retry_reading();
        }
        if was_snapshotting && !self.log.snapshots().is_under_way {
            let has_failed = self.log.snapshots().failed.is_some();
            if completed.is_ok() && !has_failed {
                self.snapshot_written();
            }
        }
        if let Err(end) = completed {
            self.end(&end, replies);
            return Err(end);
        }
        let durable = self.log.durable();
        self.waiters.release(durable, replies);
        self.last_records.forget_before(durable, self.log.end());
        if durable != durable_before {
            self.reads.committed(replies);
            // Checked here, not when the partition is idle: under load it never is.
            self.snapshot_if_due();
        }
        if durable == self.log.end() {
            assert!(self.waiters.is_empty(), "an answer waits for nothing");
        }
        self.avoid_damage();
        self.prove_reads();
        Ok(())
    }

    /// Makes a commit that proves answers that only read, if none is to come.
    fn prove_reads(&mut self) {
        if !self.reads.is_empty() && self.log.durable() == self.log.end() {
            self.beat();
        }
    }

    /// Stages a batch without entries. Returns false if there is no room, or if something is not durable yet.
    fn beat(&mut self) -> bool {
        self.log.beat(self.now.time.as_ms())
    }

    /// Makes a commit, if none is to come, which tells whether another process owns the log. Returns false if there is no
    /// room for it now.
    pub fn check_owner(&mut self) -> bool {
        self.stopped || self.log.durable() < self.log.end() || self.beat()
    }

    /// Hands out answers that only read, if no other process owns the log at this moment. It is later than their decisions:
    /// the machine may have been suspended in between.
    pub fn confirm(&mut self, now: BootTime, replies: &mut Vec<(T, Reply)>) {
        if !self.stopped && now < self.log.owned_until() {
            self.reads.confirm(self.log.durable(), replies);
        }
    }

    /// Whether there are answers to [confirm](Partition::confirm).
    pub fn is_any_to_confirm(&self) -> bool {
        !self.reads.is_empty() && self.log.owned_until() != BootTime::ZERO
    }

    /// Stops for good. Whether waiting commands were carried out is unknown.
    pub fn stop(&mut self, replies: &mut Vec<(T, Reply)>) {
        self.stopped = true;
        self.abandon(replies);
    }

    /// Stops for good, while other machines may still agree on what is not durable: it is unknown whether it is carried out.
    pub fn give_up(&mut self, replies: &mut Vec<(T, Reply)>) {
        let unknown = self.waiters.abandon();
        replies.extend(unknown.map(|(_, (ticket, _))| (ticket, Err(Rejection::Unknown))));
        self.stop(replies);
    }

    /// Whether something is appended and not durable yet.
    pub fn has_undurable(&self) -> bool {
        self.log.durable() < self.log.end()
    }

    /// Lets jobs come back soon that wait for other machines. Call [`give_up`](Self::give_up) before, unless the log has
    /// ended: what such a job has done is unknown then.
    pub fn stop_waiting_for_others(&mut self) {
        self.log.stop();
    }

    /// Stops for good because the log has ended.
    fn end(&mut self, end: &LogEnd, replies: &mut Vec<(T, Reply)>) {
        self.ended = Some(end.clone());
        self.stopped = !is_planted(Bug::FailureIgnored);
        self.abandon(replies);
    }

    /// Gives up every waiting answer: it is not known whether the log becomes durable up to them.
    fn abandon(&mut self, replies: &mut Vec<(T, Reply)>) {
        let durable = self.log.durable();
        for (record, (ticket, reply)) in self.waiters.abandon() {
            let reply = match &self.ended {
                None | Some(LogEnd::Failed(_)) => Err(Rejection::Stopped),
                // The commit of its own record proves that there was no other owner.
                Some(LogEnd::Fenced(_)) if record < durable => reply,
                Some(LogEnd::Fenced(_) | LogEnd::Diverged(_)) => Err(Rejection::Unknown),
            };
            replies.push((ticket, reply));
        }
        let rejection = self.rejection();
        let reads = self.reads.abandon();
        replies.extend(reads.map(|(ticket, _)| (ticket, Err(rejection.clone()))));
        self.reject_waiting(replies);
    }

    /// Why a command that nothing was done for is rejected once the partition has stopped.
    pub(crate) fn rejection(&self) -> Rejection {
        match &self.ended {
            None | Some(LogEnd::Failed(_)) => Rejection::Stopped,
            Some(LogEnd::Fenced(_) | LogEnd::Diverged(_)) => Rejection::NotOwner,
        }
    }

    /// Marks the log's end as durable, so that recovery can distinguish later damage there from a torn tail.
    pub fn mark(&mut self) {
        if !self.stopped {
            self.log.mark();
        }
    }

    /// Begins a backup of everything that is durable now: see
    /// [`LogFiles::begin_backup`](kew_log::LogFiles::begin_backup).
    pub fn begin_backup(&mut self) -> Result<(PinId, BackupPlan), BeginBackupError> {
        let files = self.log.files_mut().ok_or(BeginBackupError::NoFiles)?;
        files.begin_backup()
    }

    /// Ends a backup. The files that were kept for it are removed in the background.
    pub fn end_backup(&mut self, id: PinId) {
        if let Some(files) = self.log.files_mut() {
            files.end_backup(id);
        }
    }

    /// Whether the disk was full at the last turn.
    pub fn is_out_of_space(&self) -> bool {
        self.is_out_of_space
    }

    /// Whether the last turn had no room even for commands that free messages.
    pub fn is_without_room(&self) -> bool {
        self.is_without_room
    }

    /// Whether nothing has become durable for a while, because too few other machines answer.
    pub fn is_without_quorum(&self) -> bool {
        let at = self.quorum_missed_at();
        at.is_some_and(|at| at.has_passed(self.now.boot))
    }

    /// When the partition counts as one without a quorum, if nothing changes.
    fn quorum_missed_at(&self) -> Option<BootTime> {
        match self.log.health().state {
            LogState::NoQuorum { since } => Some(since.plus_ms(NO_QUORUM_MS)),
            LogState::Ready | LogState::Full | LogState::Ended(_) => None,
        }
    }

    /// Whether the partition has stopped for good.
    pub fn is_stopped(&self) -> bool {
        self.stopped
    }

    /// How the log has ended, if it has. Then the partition has stopped, and every command has its answer.
    pub fn ended(&self) -> Option<&LogEnd> {
        self.ended.as_ref()
    }

    /// When the latest turn was.
    pub fn now(&self) -> Moment {
        self.now
    }

    /// The last time in the log: a clock begins there.
    pub fn recorded_at(&self) -> Timestamp {
        self.opened_at.max(self.state.last_event_at())
    }

    /// The state, for checkers and counts.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Reads queues for metrics, in at most `steps` steps: see [`State::overview`].
    pub fn overview(&mut self, from: Option<Incarnation>, now: Timestamp, steps: u32) -> Overview {
        self.state.overview(from, now, steps)
    }

    /// What has left the state and takes long to free: for another thread.
    pub fn take_waste(&mut self) -> Option<Waste> {
        self.state.take_waste()
    }

    /// How many answers wait for the log.
    pub fn answers_waiting(&self) -> usize {
        self.waiters.count()
    }

    /// The log, for counts.
    pub fn log(&self) -> &dyn OwnedLog {
        &*self.log
    }
}

pub(crate) fn to_log(body: BodyLocation) -> kew_log::BodyLocation {
    kew_log::BodyLocation {
        record: LogPosition::new(body.record),
        offset: body.offset(),
        length: body.length,
    }
}
