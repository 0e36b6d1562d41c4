//! Blocking work as values: the log creates a job, any thread runs it, the log takes the outcome.

use std::any::Any;
use std::fmt;
use std::mem;
use std::sync::Arc;

use bytes::Bytes;

use crate::ballast::{self, MadeBallast};
use crate::format::{SegmentHeader, names};
use crate::log::{Cursor, Followed, Promote, Promoted};
use crate::pages::{self, SnapshotContent, WriteManifest, WrittenManifest};
use crate::proof::WriteClaim;
use crate::segment::{self, Blank, MakeError, Recycled, Segment, Source};
use crate::snapshot::SnapshotError;
use crate::storage::{self, IoFailure, Storage};
use crate::{Body, BodyError, Epoch, LogPosition, Piece};

/// Blocking work. Run it, and give its outcome back to the log.
#[must_use = "the log waits for the job's outcome"]
pub struct Job(pub(crate) Task);

pub(crate) enum Task {
    /// It has the files that it writes.
    Commit(Commit),
    Files(Arc<dyn Storage>, FileTask),
    Read(Vec<Body>),
    Load(Load),
    Follow(Box<Cursor>),
    Promote(Promote),
    Other(Other),
}

/// What makes, renames or removes files.
pub(crate) enum FileTask {
    Prepare(Prepare),
    Snapshot(Box<WriteSnapshot>),
    Retire(Retire),
    Ballast(MakeBallast),
}

/// A read that the log does not know.
pub(crate) type Load = Box<dyn FnOnce() -> Box<dyn Any + Send> + Send>;

/// What a log of another crate does.
pub(crate) struct Other {
    kind: JobKind,
    size_bytes: u64,
    run: Box<dyn FnOnce() -> OtherDone + Send>,
}

/// The outcome of that.
pub(crate) struct OtherDone {
    is_ok: bool,
    /// What was read for a follower, until it is taken.
    pieces: Vec<Piece>,
    /// `None` once it was taken.
    result: Option<Box<dyn Any + Send>>,
}

/// The kind of a job, for drivers that run different kinds on different threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobKind {
    /// Makes appended records durable, on this machine's disk. Answers wait for it.
    Commit,
    /// Makes appended records durable with other machines, which can take long. Answers wait for it.
    Agree,
    /// Asks other machines to let this process own the log for longer, which can take long.
    Renew,
    /// Prepares the next segment.
    Prepare,
    /// Writes a snapshot.
    Snapshot,
    /// Removes or recycles files that are no longer needed.
    Retire,
    /// Reserves space for a full disk.
    Ballast,
    /// Reads bodies for the log's owner.
    Read,
    /// Reads for the log's owner, in a way that the log does not know. Commands wait for it.
    Load,
    /// Reads the next piece of a log that is followed.
    Follow,
    /// Makes this process the owner of a log that was followed.
    Promote,
}

impl JobKind {
    /// Whether it makes appended records durable.
    pub const fn is_commit(self) -> bool {
        matches!(self, Self::Commit | Self::Agree)
    }

    /// Whether it is a job of an owner that waits for other machines, perhaps for long.
    /// [`OwnedLog::stop`](crate::OwnedLog::stop) ends that.
    pub const fn waits_for_others(self) -> bool {
        matches!(self, Self::Agree | Self::Renew)
    }
}

impl Job {
    /// Reads bodies and verifies them. Its outcome is for the caller, and not for the log:
    /// [`JobOutcome::take_bodies`].
    pub fn read(bodies: Vec<Body>) -> Self {
        Self(Task::Read(bodies))
    }

    /// Reads what the caller knows how to read. Its outcome is for the caller, and not for the log:
    /// [`JobOutcome::take_loaded`].
    pub fn load<R: Any + Send>(read: impl FnOnce() -> R + Send + 'static) -> Self {
        Self(Task::Load(Box::new(|| Box::new(read()))))
    }

    /// A job of a log of another crate, which takes the result: [`JobOutcome::take_other`]. `run` adds what it has read
    /// for a follower to the pieces. `size_bytes` is what a commit writes.
    pub fn other<T: Any + Send, E: Any + Send>(
        kind: JobKind,
        size_bytes: u64,
        run: impl FnOnce(&mut Vec<Piece>) -> Result<T, E> + Send + 'static,
    ) -> Self {
        let run = move || {
            let mut pieces = Vec::new();
            let result = run(&mut pieces);
            OtherDone {
                is_ok: result.is_ok(),
                pieces,
                result: Some(Box::new(result)),
            }
        };
        Self(Task::Other(Other {
            kind,
            size_bytes,
            run: Box::new(run),
        }))
    }

    /// The kind of this job.
    pub fn kind(&self) -> JobKind {
        match &self.0 {
            Task::Commit(_) => JobKind::Commit,
            Task::Files(_, task) => match task {
                FileTask::Prepare(_) => JobKind::Prepare,
                FileTask::Snapshot(_) => JobKind::Snapshot,
                FileTask::Retire(_) => JobKind::Retire,
                FileTask::Ballast(_) => JobKind::Ballast,
            },
            Task::Read(_) => JobKind::Read,
            Task::Load(_) => JobKind::Load,
            Task::Follow(_) => JobKind::Follow,
            Task::Promote(_) => JobKind::Promote,
            Task::Other(other) => other.kind,
        }
    }

    /// How many bytes a commit writes; 0 for other jobs. For metrics.
    pub fn commit_size_bytes(&self) -> u64 {
        match &self.0 {
            Task::Commit(commit) => {
                let writes = commit.writes.iter();
                writes.map(|write| write.record.len() as u64).sum()
            }
            Task::Other(other) => other.size_bytes,
            Task::Files(..)
            | Task::Read(_)
            | Task::Load(_)
            | Task::Follow(_)
            | Task::Promote(_) => 0,
        }
    }

    /// Runs the job. It has all that it needs: a log that is gone, or was opened anew, does not change it.
    pub fn run(self) -> JobOutcome {
        JobOutcome(match self.0 {
            Task::Commit(commit) => Outcome::Commit(commit.run()),
            Task::Files(storage, task) => task.run(&*storage),
            Task::Read(bodies) => Outcome::Read(bodies.iter().map(Body::read).collect()),
            Task::Load(read) => Outcome::Load(Some(read())),
            Task::Follow(cursor) => Outcome::Follow(Box::new(cursor.run())),
            Task::Promote(promote) => Outcome::Promote(promote.run()),
            Task::Other(other) => Outcome::Other((other.run)()),
        })
    }
}

impl FileTask {
    fn run(self, storage: &dyn Storage) -> Outcome {
        match self {
            Self::Prepare(prepare) => Outcome::Prepare(prepare.run(storage)),
            Self::Snapshot(snapshot) => Outcome::Snapshot(Box::new(snapshot.run(storage))),
            Self::Retire(retire) => Outcome::Retire(retire.run(storage)),
            Self::Ballast(ballast) => Outcome::Ballast(ballast.run(storage)),
        }
    }
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Job({:?})", self.kind())
    }
}

/// The outcome of a job, for [`SegmentLog::complete`](crate::SegmentLog::complete).
#[must_use = "the log waits for the job's outcome"]
pub struct JobOutcome(pub(crate) Outcome);

pub(crate) enum Outcome {
    Commit(Result<LogPosition, IoFailure>),
    Prepare(Prepared),
    Snapshot(Box<WrittenSnapshot>),
    Retire(Retired),
    Ballast(MadeBallast),
    Read(Vec<Result<Bytes, BodyError>>),
    /// `None` once it was taken.
    Load(Option<Box<dyn Any + Send>>),
    Follow(Box<Followed>),
    Promote(Promoted),
    Other(OtherDone),
}

impl JobOutcome {
    /// Takes what a [`Job::load`] has read. Any other outcome is the log's.
    pub fn take_loaded<R: Any>(&mut self) -> Option<R> {
        let Outcome::Load(loaded) = &mut self.0 else {
            return None;
        };
        loaded.take()?.downcast().ok().map(|loaded| *loaded)
    }

    /// Takes the bodies of a [`Job::read`], in its order. Any other outcome is the log's.
    pub fn take_bodies(&mut self) -> Option<Vec<Result<Bytes, BodyError>>> {
        let Outcome::Read(bodies) = &mut self.0 else {
            return None;
        };
        Some(mem::take(bodies))
    }

    /// Takes the result of a [`Job::other`], for the log that has made the job. Any other outcome has none.
    ///
    /// # Panics
    ///
    /// If its pieces were not taken.
    pub fn take_other<T: Any, E: Any>(&mut self) -> Option<Result<T, E>> {
        let Outcome::Other(done) = &mut self.0 else {
            return None;
        };
        assert!(done.pieces.is_empty(), "the pieces were not taken");
        done.result.take()?.downcast().ok().map(|result| *result)
    }

    /// Takes the pieces that a job of a follower has read, in order. Any other outcome has none.
    pub fn take_followed(&mut self) -> Vec<Piece> {
        match &mut self.0 {
            Outcome::Follow(followed) => followed.take(),
            Outcome::Other(done) => mem::take(&mut done.pieces),
            Outcome::Commit(_)
            | Outcome::Prepare(_)
            | Outcome::Snapshot(_)
            | Outcome::Retire(_)
            | Outcome::Ballast(_)
            | Outcome::Read(_)
            | Outcome::Load(_)
            | Outcome::Promote(_) => Vec::new(),
        }
    }

    /// Whether the job succeeded. For metrics.
    pub fn is_ok(&self) -> bool {
        match &self.0 {
            Outcome::Commit(result) => result.is_ok(),
            Outcome::Prepare(prepared) => prepared.result.is_ok(),
            Outcome::Snapshot(written) => written.manifest.error().is_none(),
            Outcome::Retire(retired) => retired.result.is_ok(),
            Outcome::Ballast(made) => made.result.is_ok(),
            Outcome::Read(bodies) => bodies.iter().all(Result::is_ok),
            Outcome::Load(_) => true,
            Outcome::Follow(followed) => followed.read.is_ok(),
            Outcome::Promote(promoted) => promoted.is_ok(),
            Outcome::Other(done) => done.is_ok,
        }
    }
}

impl fmt::Debug for JobOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.0 {
            Outcome::Commit(_) => "JobOutcome(Commit)",
            Outcome::Prepare(_) => "JobOutcome(Prepare)",
            Outcome::Snapshot(_) => "JobOutcome(Snapshot)",
            Outcome::Retire(_) => "JobOutcome(Retire)",
            Outcome::Ballast(_) => "JobOutcome(Ballast)",
            Outcome::Read(_) => "JobOutcome(Read)",
            Outcome::Load(_) => "JobOutcome(Load)",
            Outcome::Follow(_) => "JobOutcome(Follow)",
            Outcome::Promote(_) => "JobOutcome(Promote)",
            Outcome::Other(_) => "JobOutcome(Other)",
        })
    }
}

/// One record, or the first block of a segment, on its way to its file.
pub(crate) struct Write {
    pub(crate) segment: Arc<Segment>,
    /// Where in the file.
    pub(crate) offset: u64,
    pub(crate) record: Bytes,
}

/// Writes and syncs everything that was staged.
pub(crate) struct Commit {
    /// Records in order of position, and headers.
    pub(crate) writes: Vec<Write>,
    /// A claim that everything before is durable. Only if there is no record to write: a record says the same.
    pub(crate) claim: Option<WriteClaim>,
    /// Everything up to here is durable when the commit is done.
    pub(crate) end: LogPosition,
}

impl Commit {
    pub(crate) fn run(self) -> Result<LogPosition, IoFailure> {
        // A segment is synced before the next one is written to. Recovery relies on it: a record in a
        // segment proves that everything before that segment was durable.
        for writes in self
            .writes
            .chunk_by(|one, next| Arc::ptr_eq(&one.segment, &next.segment))
        {
            let segment = &writes[0].segment;
            for write in writes {
                let (name, record) = (&segment.name, &write.record);
                storage::write_all_at(&*segment.file, name, record, write.offset)?;
            }
            storage::sync_data(&*segment.file, &segment.name)?;
        }
        if let Some(claim) = self.claim {
            claim.run()?;
        }
        Ok(self.end)
    }
}

/// Makes the segment that follows the active one.
pub(crate) struct Prepare {
    pub(crate) header: SegmentHeader,
    pub(crate) source: Source,
    /// Whether it may use the space of the ballast.
    pub(crate) may_take_ballast: bool,
}

/// The result of preparing a segment.
pub(crate) struct Prepared {
    pub(crate) result: Result<Blank, MakeError>,
    /// Whether the ballast had to make room for it.
    pub(crate) took_ballast: bool,
    /// How much of the disk is free now, if that is known.
    pub(crate) free_bytes: Option<u64>,
}

impl Prepare {
    fn run(self, storage: &dyn Storage) -> Prepared {
        let (result, took_ballast) = self.make(storage);
        Prepared {
            result,
            took_ballast,
            free_bytes: storage.free_bytes(),
        }
    }

    /// Makes the segment. Returns also whether the ballast made room for it.
    fn make(self, storage: &dyn Storage) -> (Result<Blank, MakeError>, bool) {
        let make = |source| segment::make(storage, self.header, source, &[]);
        let result = make(self.source);
        if let Err(MakeError::Unfinished(failure)) = &result
            && failure.is_no_space()
            && self.may_take_ballast
        {
            return match ballast::release(storage) {
                Ok(_) => (make(Source::Fresh), true),
                Err(failure) => (Err(MakeError::Unsure(failure)), false),
            };
        }
        (result, false)
    }
}

pub(crate) struct WriteSnapshot {
    pub(crate) manifest: WriteManifest,
    pub(crate) content: Box<dyn SnapshotContent>,
    /// Whether it may use the space of the ballast.
    pub(crate) may_take_ballast: bool,
}

/// The result of writing a snapshot.
pub(crate) struct WrittenSnapshot {
    pub(crate) manifest: WrittenManifest,
    /// Whether the ballast had to make room for it.
    pub(crate) took_ballast: bool,
}

impl WriteSnapshot {
    fn run(self, storage: &dyn Storage) -> WrittenSnapshot {
        let mut content = self.content;
        let mut took_ballast = false;
        let may_try_again = |error: &SnapshotError| {
            took_ballast = match error {
                SnapshotError::Unfinished(failure)
                    if failure.is_no_space() && self.may_take_ballast =>
                {
                    ballast::release(storage)?;
                    true
                }
                _ => false,
            };
            Ok(took_ballast)
        };
        let manifest = self.manifest.run(storage, &mut *content, may_try_again);
        WrittenSnapshot {
            manifest,
            took_ballast,
        }
    }
}

/// Reserves space for a full disk.
pub(crate) struct MakeBallast {
    /// The present size. A file that is to be smaller is made again.
    pub(crate) from_bytes: u64,
    pub(crate) size_bytes: u64,
    pub(crate) spare_bytes: u64,
    /// Whether the present file stays until there is a smaller one.
    pub(crate) replaces: bool,
}

impl MakeBallast {
    fn run(self, storage: &dyn Storage) -> MadeBallast {
        let mut from_bytes = self.from_bytes;
        if self.replaces {
            return ballast::replace(storage, from_bytes, self.size_bytes);
        }
        if from_bytes > self.size_bytes {
            if let Err(failure) = ballast::release(storage) {
                return MadeBallast {
                    size_bytes: from_bytes,
                    result: Err(MakeError::Unsure(failure)),
                };
            }
            from_bytes = 0;
        }
        ballast::make(storage, from_bytes, self.size_bytes, self.spare_bytes)
    }
}

/// Removes the names of files that are no longer needed, oldest snapshot first.
pub(crate) struct Retire {
    pub(crate) unneeded: Unneeded,
    /// Of this opening. Segments of a former one may have readers that this one does not count.
    pub(crate) epoch: Epoch,
    /// How many of the segments may be kept to be reused.
    pub(crate) recycled_max: usize,
    /// Smaller ones are not worth keeping.
    pub(crate) recycled_capacity_bytes_min: u64,
}

/// Files that are no longer needed.
#[derive(Default)]
pub(crate) struct Unneeded {
    pub(crate) snapshots: Vec<LogPosition>,
    /// Pairs of page files that no snapshot names whose file is there. Known only while they are being removed:
    /// otherwise the pages know them.
    pub(crate) pairs: Vec<u32>,
    pub(crate) segments: Vec<Arc<Segment>>,
    /// Segments that were kept to be reused, and whose space is needed.
    pub(crate) surplus: Vec<Recycled>,
}

/// The result of removing files.
pub(crate) struct Retired {
    pub(crate) result: Result<(), IoFailure>,
    /// Kept to be reused.
    pub(crate) recycled: Vec<Recycled>,
    /// The snapshots and the pairs of page files that are removed for good.
    pub(crate) removed: (Vec<LogPosition>, Vec<u32>),
    /// Files that may not have been removed. Removing them again is harmless.
    pub(crate) left: Unneeded,
}

impl Retire {
    fn run(mut self, storage: &dyn Storage) -> Retired {
        let mut recycled = Vec::new();
        let mut removed = (Vec::new(), Vec::new());
        let result = self.remove(storage, &mut removed, &mut recycled);
        if result.is_err() {
            // Their old names may come back, so these files are not reused.
            self.unneeded.surplus.append(&mut recycled);
        }
        Retired {
            result,
            recycled,
            removed,
            left: self.unneeded,
        }
    }

    /// Removes from the lists what is done.
    fn remove(
        &mut self,
        storage: &dyn Storage,
        removed: &mut (Vec<LogPosition>, Vec<u32>),
        recycled: &mut Vec<Recycled>,
    ) -> Result<(), IoFailure> {
        let Unneeded {
            snapshots,
            pairs,
            segments,
            surplus,
        } = &mut self.unneeded;
        for position in snapshots.iter() {
            storage::remove(storage, &names::snapshot(position.as_u64()))?;
        }
        if !snapshots.is_empty() {
            storage::sync_dir(storage)?;
            removed.0.append(snapshots);
        }
        pages::remove_pairs(storage, pairs)?;
        removed.1.append(pairs);
        while let Some(next) = surplus.last() {
            storage::remove(storage, &next.name)?;
            surplus.pop();
        }
        let mut gone: Option<Arc<Segment>> = None;
        while let Some(segment) = segments.first() {
            // A power cut must not bring back a segment without the one that took over within it.
            if gone.is_some_and(|gone| segment.took_over_within(&gone)) {
                storage::sync_dir(storage)?;
            }
            // A reader that still holds the segment keeps reading from it, so it is only unlinked. No new
            // reader can get it: the log has forgotten it.
            let is_recycled = Arc::strong_count(segment) == 1
                && segment.header.epoch == self.epoch
                && recycled.len() < self.recycled_max
                && segment.header.capacity_bytes >= self.recycled_capacity_bytes_min;
            if is_recycled {
                let name = names::recycled(segment.header.number);
                storage::rename(storage, &segment.name, &name)?;
                recycled.push(Recycled {
                    name,
                    capacity_bytes: segment.header.capacity_bytes,
                    file: Arc::clone(&segment.file),
                });
            } else {
                storage::remove(storage, &segment.name)?;
            }
            gone = Some(segments.remove(0));
        }
        // Only now may a recycled file's header be overwritten: before, its old name may come
        // back, and a segment's name must never stand for another segment's header.
        storage::sync_dir(storage)
    }
}
