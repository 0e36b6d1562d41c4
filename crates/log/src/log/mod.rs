//! The log as a step machine: it stages, counts and decides, and hands out jobs that do the I/O.
//!
//! Nothing here blocks. Appends are staged. A commit job writes and syncs everything staged, and its outcome
//! moves [`SegmentLog::durable`]. At most one commit is under way at a time, so that a record can state what was
//! durable before it was written. After a failed commit the log has stopped for good: only a recovery can
//! find out what is on the disk.

mod append;
mod backup;
mod drain;
mod follow;
mod inventory;
mod pages;
mod prepare;
mod reclaim;
mod room;
mod scrub;
mod seam;
mod tidy;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::ballast::Ballast;
use crate::format::FIRST_POSITION;
use crate::job::{Commit, FileTask, Job, JobOutcome, Outcome, Task, Write};
use crate::pages::PageStore;
use crate::proof::Proof;
use crate::reader::body::RecentBatches;
use crate::recovery::{FoundBallast, OpenError, Opening, Recovered, Recovery};
use crate::replay::Ignore;
use crate::segment::{Recycled, Salts, Segment};
use crate::storage::{IoFailure, Storage};
use crate::{
    Epoch, LogEnd, LogHealth, LogId, LogOptions, LogPosition, LogState, Replay, Reservation,
};

pub use backup::{BeginBackupError, PinId};
use drain::Drain;
pub use follow::SegmentSource;
pub(crate) use follow::{Cursor, Followed, Promote, Promoted};
pub use inventory::{LogSpace, SegmentSpan};
use prepare::Successor;
use reclaim::Reclaim;
use tidy::Tidying;

/// One writer's log: batches go in, become durable in order, and are replayed by the next open.
pub struct SegmentLog {
    /// For the jobs.
    storage: Arc<dyn Storage>,
    options: LogOptions,
    id: LogId,
    /// Of that log, for the checksums of its records.
    chain_start: u32,
    epoch: Epoch,
    salts: Salts,
    ended: Option<LogEnd>,

    /// By the position of the first record. The last one is appended to.
    segments: BTreeMap<LogPosition, Arc<Segment>>,
    active: Arc<Segment>,
    /// Where the next record goes.
    end: LogPosition,
    /// The room for the next batch.
    reserved: Option<Reservation>,
    /// Content checksum of the batch before `end`.
    chain: u32,
    /// The last time that a batch had, in milliseconds.
    time_ms: u64,
    durable: LogPosition,
    /// Whether anything was appended since the last mark.
    unmarked: bool,
    proof: Proof,
    /// Whether the next commit writes a mark. It does not if it has batches to write.
    is_mark_staged: bool,
    staged: Vec<Write>,
    /// The end of the commit under way.
    committing: Option<LogPosition>,
    recent: RecentBatches,
    /// Segments that are not appended to any more, with their last records' ends. They may have records that are not
    /// durable.
    left: Vec<(LogPosition, Arc<Segment>)>,
    /// Segments that cover no position, and lead to the next one. They stay until that one has a batch.
    passed: Vec<Arc<Segment>>,

    successor: Successor,
    recycled: Vec<Recycled>,
    /// A job had no file descriptor. No such job is created for a while.
    is_short_of_descriptors: bool,
    /// There was no space for a segment of the ordinary size.
    prepare_smallest: bool,
    /// The size of a batch that waits for a segment with enough room. 0 if none waits.
    wanted_room_bytes: u64,
    drain: Drain,

    reclaim: Reclaim,
    pages: PageStore,
    tidying: Tidying,
}

impl SegmentLog {
    /// Opens the log and replays it. Creates it if the directory is empty.
    ///
    /// `entropy` is random, or from the seed of a simulation. Everything replayed is durable when this
    /// returns. Blocks.
    pub fn open(
        storage: Arc<dyn Storage>,
        options: LogOptions,
        entropy: u64,
        replay: &mut dyn Replay,
    ) -> Result<(Self, Recovery), OpenError> {
        options.check().map_err(OpenError::Options)?;
        let salts = Salts::new(entropy);
        let opening = Opening::begin(&*storage, salts, FIRST_POSITION)?;
        let recovered = opening.finish(&*storage, &options, replay)?;
        Ok(Self::resume(storage, options, salts, recovered))
    }

    /// Creates a log that begins at this position, which is no beginning of a history: without a snapshot it does
    /// not open. The directory must be empty. `time_ms` is the last time of the history before. Blocks.
    pub fn create(
        storage: Arc<dyn Storage>,
        options: LogOptions,
        entropy: u64,
        first: LogPosition,
        time_ms: u64,
    ) -> Result<Self, OpenError> {
        options.check().map_err(OpenError::Options)?;
        let salts = Salts::new(entropy);
        let opening = Opening::begin(&*storage, salts, first)?;
        let mut recovered = opening.finish(&*storage, &options, &mut Ignore)?;
        recovered.recovery.time_ms = time_ms;
        Ok(Self::resume(storage, options, salts, recovered).0)
    }

    fn resume(
        storage: Arc<dyn Storage>,
        options: LogOptions,
        salts: Salts,
        recovered: Recovered,
    ) -> (Self, Recovery) {
        let Recovered {
            segments,
            end,
            chain,
            superseded,
            snapshots,
            snapshots_damaged,
            bytes_since_snapshot,
            ballast,
            log: id,
            proof,
            pages,
            recovery,
        } = recovered;
        let active = Arc::clone(segments.last().expect("recovery always makes a segment"));
        let log = Self {
            storage,
            options,
            id,
            chain_start: id.chain_start(),
            epoch: recovery.epoch,
            salts,
            ended: None,
            segments: segments
                .into_iter()
                .map(|segment| (segment.first(), segment))
                .collect(),
            active,
            end,
            reserved: None,
            chain,
            time_ms: recovery.time_ms,
            durable: end,
            unmarked: false,
            proof,
            is_mark_staged: false,
            staged: Vec::new(),
            committing: None,
            recent: RecentBatches::new(options.recent_bytes_max),
            left: Vec::new(),
            passed: Vec::new(),
            successor: Successor::Wanted,
            recycled: Vec::new(),
            is_short_of_descriptors: false,
            prepare_smallest: false,
            wanted_room_bytes: 0,
            drain: match ballast {
                FoundBallast::Missing => Drain::resume(&options, 0, false),
                FoundBallast::Kept { size_bytes } => Drain::resume(&options, size_bytes, false),
                FoundBallast::Taken => Drain::resume(&options, 0, true),
            },
            reclaim: Reclaim::resume(
                snapshots,
                snapshots_damaged,
                superseded,
                bytes_since_snapshot,
            ),
            pages,
            tidying: Tidying::default(),
        };
        (log, recovery)
    }

    /// The next blocking job; commits come first. At most one job of each kind is out at a time. Any thread
    /// may run it.
    pub fn next_job(&mut self) -> Option<Job> {
        self.next_commit_job()
            .or_else(|| self.next_background_job())
    }

    /// The next commit, if something is staged and no other commit is under way.
    pub fn next_commit_job(&mut self) -> Option<Job> {
        self.next_commit().map(|commit| Job(Task::Commit(commit)))
    }

    /// The next job that no answer waits for.
    pub fn next_background_job(&mut self) -> Option<Job> {
        if self.ended.is_some() {
            return None;
        }
        let task = self.next_file_task()?;
        Some(Job(Task::Files(Arc::clone(&self.storage), task)))
    }

    fn next_file_task(&mut self) -> Option<FileTask> {
        if self.is_short_of_descriptors {
            // Removing files needs none, and frees those of the removed files.
            return self.next_retire().map(FileTask::Retire);
        }
        let task = self.next_prepare().map(FileTask::Prepare);
        let task = task.or_else(|| self.next_snapshot().map(Box::new).map(FileTask::Snapshot));
        let task = task.or_else(|| self.next_retire().map(FileTask::Retire));
        task.or_else(|| self.next_ballast().map(FileTask::Ballast))
    }

    /// Commits everything staged, on this thread. Does nothing while another commit is under way.
    pub fn run_commit(&mut self) -> Result<(), LogEnd> {
        match self.next_commit() {
            Some(commit) => self.complete(JobOutcome(Outcome::Commit(commit.run()))),
            None => self.check_ended(),
        }
    }

    /// Takes the outcome of a job.
    pub fn complete(&mut self, outcome: JobOutcome) -> Result<(), LogEnd> {
        self.check_ended()?;
        let durable_before = self.durable;
        let failure = match outcome.0 {
            Outcome::Commit(result) => self.commit_done(result),
            Outcome::Prepare(prepared) => {
                if prepared.took_ballast {
                    self.ballast_taken();
                }
                self.prepare_done(prepared)
            }
            Outcome::Snapshot(written) => self.snapshot_written(*written),
            Outcome::Retire(retired) => self.retire_done(retired),
            Outcome::Ballast(made) => self.ballast_done(made),
            // It is for the caller that asked.
            Outcome::Read(_) | Outcome::Load(_) => None,
            Outcome::Follow(_) | Outcome::Promote(_) | Outcome::Other(_) => {
                panic!("the job is none of a log of segments that has an owner")
            }
        };
        if let Some(failure) = failure {
            self.ended = Some(LogEnd::Failed(failure));
        }
        self.check_ended()?;
        if self.is_short_of_descriptors {
            self.tidying.rest_without_descriptors();
        }
        if self.durable == durable_before {
            // Files have come or gone.
            self.tidying.look_soon();
        }
        Ok(())
    }

    /// Makes the log try again to prepare a segment and its ballast, after the disk was full.
    pub fn retry_prepare(&mut self) {
        self.try_to_end_draining();
    }

    fn retry_ballast(&mut self) {
        if self.drain.ballast == Ballast::NoSpace {
            self.drain.ballast = Ballast::Idle;
        }
    }

    /// Which log it is.
    pub fn id(&self) -> LogId {
        self.id
    }

    /// The epoch that began with this open.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Everything before this position is on stable storage.
    pub fn durable(&self) -> LogPosition {
        self.durable
    }

    /// Where the next record goes.
    pub fn end(&self) -> LogPosition {
        self.end
    }

    /// How the log is.
    pub fn health(&self) -> LogHealth {
        let state = match &self.ended {
            Some(end) => LogState::Ended(end.clone()),
            None if self.is_draining() => LogState::Full,
            None => LogState::Ready,
        };
        LogHealth {
            state,
            is_short_of_descriptors: self.is_short_of_descriptors,
        }
    }

    /// Whether something is staged that no commit has taken yet.
    pub fn has_staged(&self) -> bool {
        !self.staged.is_empty() || self.is_mark_staged
    }

    /// Whether a commit is under way.
    pub fn is_committing(&self) -> bool {
        self.committing.is_some()
    }
}

/// Commits.
impl SegmentLog {
    fn check_ended(&self) -> Result<(), LogEnd> {
        self.ended.clone().map_or(Ok(()), Err)
    }

    fn next_commit(&mut self) -> Option<Commit> {
        if self.ended.is_some() || self.committing.is_some() || !self.has_staged() {
            return None;
        }
        self.committing = Some(self.end);
        let is_marked = std::mem::take(&mut self.is_mark_staged);
        Some(Commit {
            writes: std::mem::take(&mut self.staged),
            claim: is_marked.then(|| self.proof.claim(self.durable)),
            end: self.end,
        })
    }

    fn commit_done(&mut self, result: Result<LogPosition, IoFailure>) -> Option<IoFailure> {
        self.committing = None;
        match result {
            Ok(end) => {
                self.durable = end;
                self.recent.trim(end);
                self.release_left();
                None
            }
            Err(failure) => Some(failure),
        }
    }

    /// Lets the files of segments be closed that are only read from now on.
    fn release_left(&mut self) {
        let (durable, staged) = (self.durable, &self.staged);
        // The next commit may write a header again.
        let is_staged =
            |left: &Arc<Segment>| staged.iter().any(|it| Arc::ptr_eq(&it.segment, left));
        // A commit that ends where a segment was left may have begun before the roll there was staged.
        let is_written = |(end, left): &mut (_, Arc<Segment>)| *end < durable && !is_staged(left);
        let released = self.left.extract_if(.., is_written);
        released.for_each(|(_, segment)| segment.file.release());
        let passed = self.passed.extract_if(.., |it| it.first() < durable);
        self.reclaim.retire_passed(passed);
    }
}
