//! The log as a step machine: it stages, counts and decides, and hands out jobs that do the I/O.
//!
//! Nothing here blocks. Appends are staged; a commit job writes and syncs all that is staged; its
//! outcome moves [`Log::durable`]. At most one commit is on its way at a time, so that a record
//! can say what was durable before it was written. After a commit fails the log has stopped for
//! good: what the disk then holds only a recovery can tell.

mod drain;
mod error;
mod reclaim;

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;

use crate::ballast::Ballast;
use crate::format::{
    MARK_RECORD_SIZE, PAGE_SIZE, RECORD_HEADER_SIZE, ROLL_RECORD_SIZE, RecordKind, SegmentHeader,
    record_size_bytes, seal_record,
};
use crate::job::{Commit, Job, JobOutcome, Outcome, Prepare, Prepared, Task, Write};
use crate::options::room_bytes;
use crate::reader::body::{Body, RecentBatches};
use crate::recovery::{self, FoundBallast, OpenError, Recovered, Recovery};
use crate::segment::{MakeError, Recycled, Salts, Segment, Source, memory_size};
use crate::storage::{IoFailure, Storage};
use crate::{BatchBuilder, BodyLocation, Epoch, LogOptions, LogPosition, Replay};

use drain::Drain;
pub use error::{AppendError, BeginSnapshotError, LogFailed, ReserveError};
use reclaim::Reclaim;

/// What settlements leave of a full segment: room for some [forced marks](Log::force_mark).
const SPARE_MARKS_BYTES: u64 = 4 * MARK_RECORD_SIZE;

/// One writer's log: batches go in, become durable in order, and are replayed by the next open.
pub struct Log {
    options: LogOptions,
    epoch: Epoch,
    salts: Salts,
    failed: Option<LogFailed>,

    /// By base. The last one is appended to.
    segments: BTreeMap<LogPosition, Arc<Segment>>,
    active: Arc<Segment>,
    /// Where the next record goes.
    end: LogPosition,
    /// Checksum of the record before `end`.
    chain: u32,
    durable: LogPosition,
    /// Whether a record that is not a mark was appended since the last mark.
    unmarked: bool,
    staged: Vec<Write>,
    /// Where the commit that is on its way ends.
    committing: Option<LogPosition>,
    recent: RecentBatches,

    successor: Successor,
    recycled: Vec<Recycled>,
    /// There was no space for one of the ordinary size.
    prepare_smallest: bool,
    /// What a batch needs that no segment has room for yet; 0 if none waits.
    wanted_room_bytes: u64,
    drain: Drain,

    reclaim: Reclaim,
}

/// The segment after the active one.
enum Successor {
    /// To be prepared when somebody runs the job.
    Wanted,
    Preparing {
        may_take_ballast: bool,
    },
    Ready(Arc<Segment>),
    /// The disk is full.
    NoSpace,
}

/// Permission to append one batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reservation {
    /// The epoch to append in.
    pub epoch: Epoch,
    /// The position to build the batch for.
    pub position: LogPosition,
    /// Bounds the batch's [`len_bytes`](BatchBuilder::len_bytes).
    pub room_bytes: u64,
}

/// A segment and the positions that it answers for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentSpan {
    /// Identifies the segment among those that are in use.
    pub base: LogPosition,
    /// Its number, which is part of its file's name.
    pub number: u64,
    /// Position of its first record.
    pub first: LogPosition,
    /// The next position belongs to another segment, or to no record yet.
    pub end: LogPosition,
    /// Size of its file.
    pub size_bytes: u64,
}

/// Counts for metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogSpace {
    /// Segments in use, the active one included.
    pub segments: usize,
    /// Whether the next segment is ready.
    pub is_prepared: bool,
    /// Whether the next segment could not be made because the disk is full.
    pub is_full: bool,
    /// Retired segments kept to be used again.
    pub recycled: usize,
    /// Whether space is put aside for a full disk.
    pub has_ballast: bool,
    /// Size of all these files.
    pub size_bytes: u64,
    /// Size of the last snapshot that was written since the open.
    pub snapshot_size_bytes: Option<u64>,
    /// What the active segment has room for.
    pub active_room_bytes: u64,
    /// Memory held for readers of recent bodies.
    pub recent_bytes: usize,
}

impl Log {
    /// Opens the log, or creates it in an empty directory, and replays it.
    ///
    /// `entropy` is random, or from the seed of a simulation. When this returns, all that was
    /// replayed is durable. Blocks.
    pub fn open(
        storage: &dyn Storage,
        options: LogOptions,
        entropy: u64,
        replay: &mut dyn Replay,
    ) -> Result<(Self, Recovery), OpenError> {
        options.check().map_err(OpenError::Options)?;
        let salts = Salts::new(entropy);
        let recovered = recovery::recover(storage, &options, salts, replay)?;
        Ok(Self::resume(options, salts, recovered))
    }

    fn resume(options: LogOptions, salts: Salts, recovered: Recovered) -> (Self, Recovery) {
        let Recovered {
            segments,
            end,
            chain,
            superseded,
            snapshots,
            snapshots_damaged,
            bytes_since_snapshot,
            ballast,
            recovery,
        } = recovered;
        let active = Arc::clone(segments.last().expect("recovery always makes a segment"));
        let log = Self {
            options,
            epoch: recovery.epoch,
            salts,
            failed: None,
            segments: segments
                .into_iter()
                .map(|segment| (segment.base(), segment))
                .collect(),
            active,
            end,
            chain,
            durable: end,
            unmarked: false,
            staged: Vec::new(),
            committing: None,
            recent: RecentBatches::new(options.recent_bytes_max),
            successor: Successor::Wanted,
            recycled: Vec::new(),
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
        };
        (log, recovery)
    }

    /// Asks for room for one batch, and goes on in the next segment if this one is nearly full.
    ///
    /// There is none while what draining takes is not put aside. The reservation holds until the next call that
    /// appends, marks or reserves.
    pub fn reserve(&mut self) -> Result<Reservation, ReserveError> {
        self.check_reserve()?;
        let kept = self.options.settlement_reserve_bytes;
        self.reserve_with(self.options.turn_space_min_bytes, kept)
    }

    /// Like [`reserve`](Self::reserve), for a batch of `least` bytes: a larger segment is made for it
    /// than for any other if it needs one. It may be above the usual bound of a batch.
    pub fn reserve_room(&mut self, least: u64) -> Result<Reservation, ReserveError> {
        self.check_reserve()?;
        let least = least.max(self.options.turn_space_min_bytes);
        let kept = self.options.settlement_reserve_bytes;
        let reserved = self.reserve_with(least, kept);
        self.wanted_room_bytes = match reserved {
            Err(ReserveError::NotPrepared) => least,
            _ => 0,
        };
        reserved
    }

    /// Asks for room of `least` bytes, and some at least, for a batch that frees space or keeps promises: it
    /// may use what is left, and what was put aside, when the disk is full.
    pub fn reserve_for_settlement(&mut self, least: u64) -> Result<Reservation, ReserveError> {
        let least = least.max(self.options.settlement_turn_bytes());
        let least = least.min(self.settlement_size_bytes_max());
        let reserved = self.reserve_with(least, SPARE_MARKS_BYTES);
        if let Err(ReserveError::NotPrepared) = reserved {
            self.want_segment_for_settlements();
        }
        reserved
    }

    /// Whether there may be room for new messages at all.
    fn check_reserve(&mut self) -> Result<(), ReserveError> {
        self.check_failed()?;
        if self.is_draining() {
            return Err(ReserveError::NoSpace);
        }
        if self.is_ballast_whole() {
            return Ok(());
        }
        if self.drain.ballast == Ballast::NoSpace {
            self.begin_draining();
            return Err(ReserveError::NoSpace);
        }
        Err(ReserveError::NotPrepared)
    }

    fn reserve_with(&mut self, least: u64, kept: u64) -> Result<Reservation, ReserveError> {
        self.check_failed()?;
        if self.free_room(kept) < least {
            match &self.successor {
                Successor::Ready(_) => {
                    self.roll();
                    // Even an empty segment may have too little room for a large batch.
                    if self.free_room(kept) < least {
                        return Err(ReserveError::NotPrepared);
                    }
                }
                Successor::NoSpace => return Err(ReserveError::NoSpace),
                Successor::Wanted | Successor::Preparing { .. } => {
                    return Err(ReserveError::NotPrepared);
                }
            }
        }
        Ok(Reservation {
            epoch: self.epoch,
            position: self.end,
            room_bytes: self
                .free_room(kept)
                .min(self.options.batch_size_max_bytes.max(least)),
        })
    }

    /// The room in the active segment, less what is kept back while no other is ready.
    fn free_room(&self, kept: u64) -> u64 {
        let room = self.active_room_bytes();
        match self.successor {
            Successor::Ready(_) => room,
            _ => room.saturating_sub(kept),
        }
    }

    fn active_room_bytes(&self) -> u64 {
        let limit = self.active.header.limit().as_u64();
        room_bytes(limit.saturating_sub(self.end.as_u64()))
    }

    /// Stages a batch, and says where the log then ends. The batch is durable when
    /// [`durable`](Self::durable) has reached that position. An empty batch leaves no trace.
    pub fn append(
        &mut self,
        epoch: Epoch,
        expected: LogPosition,
        batch: BatchBuilder,
    ) -> Result<LogPosition, AppendError> {
        self.check_failed()?;
        if epoch != self.epoch {
            return Err(AppendError::StaleEpoch {
                given: epoch,
                current: self.epoch,
            });
        }
        for given in [expected, batch.position()] {
            if given != self.end {
                let end = self.end;
                return Err(AppendError::StalePosition { given, end });
            }
        }
        let size_bytes = batch.len_bytes() as u64;
        let room_bytes = self.active_room_bytes();
        if size_bytes > room_bytes {
            return Err(AppendError::TooLarge {
                size_bytes,
                room_bytes,
            });
        }
        if batch.is_empty() {
            return Ok(self.end);
        }
        if batch.has_bodies() {
            self.note_bodies();
        }
        let position = self.end;
        let mut buffer = batch.into_buffer();
        // Readers may hold on to it for a while; most of a buffer that is nearly empty is waste.
        if buffer.capacity() > 2 * buffer.len() {
            buffer.shrink_to(buffer.len().next_multiple_of(8));
        }
        let held_bytes = buffer.capacity();
        let record = self.stage(RecordKind::Batch, buffer);
        self.recent.push(position, record, held_bytes);
        self.recent.trim(self.durable);
        self.unmarked = true;
        Ok(self.end)
    }

    /// Stages a mark, which tells recovery that all before it was durable, and says if it did.
    ///
    /// For an idle moment and for shutdown. It does nothing while anything is not durable yet, or
    /// if nothing was appended since the last mark.
    pub fn mark(&mut self) -> bool {
        let is_due = self.failed.is_none() && self.unmarked && self.durable == self.end;
        if is_due {
            self.stage_marks();
            self.unmarked = false;
        }
        is_due
    }

    /// Stages a mark although nothing was appended, so that the log's end moves and a snapshot there
    /// differs from the last one; says if it did. It does nothing where the segment has no room.
    ///
    /// For a full disk: a segment goes only when two snapshots lie behind it.
    pub fn force_mark(&mut self) -> bool {
        let free_bytes = self.active.header.limit().as_u64() - self.end.as_u64();
        // Room for the mark of the last batch, if it has none yet, and for a roll stays.
        let owed = if self.unmarked { MARK_RECORD_SIZE } else { 0 };
        let has_room = free_bytes >= MARK_RECORD_SIZE + owed + ROLL_RECORD_SIZE;
        let is_due = self.failed.is_none() && self.durable == self.end && has_room;
        if is_due {
            self.stage(RecordKind::Mark, vec![0; RECORD_HEADER_SIZE]);
            self.unmarked = false;
        }
        is_due
    }

    /// Stages a mark, and if there is room a second one in the next page of the disk: the loss of
    /// any one page then never takes the last batch and all that proves it.
    fn stage_marks(&mut self) {
        let end = self.active.offset_of(self.end) + MARK_RECORD_SIZE;
        let padding = end.next_multiple_of(PAGE_SIZE) - end;
        // Not from what is kept for settlements: on a full disk every one of them can be followed by
        // an idle moment, and pages of padding would leave nothing to drain the disk with.
        let room_bytes = self.free_room(self.options.settlement_reserve_bytes);
        if padding + MARK_RECORD_SIZE <= room_bytes {
            self.stage(
                RecordKind::Mark,
                vec![0; RECORD_HEADER_SIZE + memory_size(padding)],
            );
        }
        self.stage(RecordKind::Mark, vec![0; RECORD_HEADER_SIZE]);
    }

    /// Goes on in the prepared segment.
    fn roll(&mut self) {
        match std::mem::replace(&mut self.successor, Successor::Wanted) {
            Successor::Ready(next) => {
                self.rolled_while_draining();
                self.retry_ballast();
                let mut buffer = vec![0; RECORD_HEADER_SIZE];
                buffer.extend_from_slice(&next.header.number.to_le_bytes());
                self.stage(RecordKind::Roll, buffer);
                self.end = next.first();
                self.segments.insert(next.base(), Arc::clone(&next));
                self.active = next;
            }
            other => self.successor = other,
        }
    }

    /// Completes a record and queues it for the next commit.
    fn stage(&mut self, kind: RecordKind, mut buffer: Vec<u8>) -> Bytes {
        let position = self.end;
        // What is staged now is written only after the commit that is on its way has succeeded.
        let durable = self.committing.unwrap_or(self.durable);
        let seal = self.active.header.seal();
        self.chain = seal_record(&mut buffer, seal, position, kind, self.chain, durable);
        let size_bytes = buffer.len() as u64;
        self.end = position.plus(size_bytes);
        assert!(
            self.end <= self.active.header.limit(),
            "a record fits its segment"
        );
        self.reclaim.bytes_since_snapshot += size_bytes;
        let record = Bytes::from(buffer);
        self.staged.push(Write {
            segment: Arc::clone(&self.active),
            position,
            record: record.clone(),
        });
        record
    }

    /// The next thing to do that blocks; commits come first. At most one of each kind is out at
    /// a time, and each may be run on any thread.
    pub fn next_job(&mut self) -> Option<Job> {
        self.next_commit_job()
            .or_else(|| self.next_background_job())
    }

    /// The next commit, if something is staged and no other commit is on its way.
    pub fn next_commit_job(&mut self) -> Option<Job> {
        self.next_commit().map(|commit| Job(Task::Commit(commit)))
    }

    /// The next thing to do that nobody waits for yet.
    pub fn next_background_job(&mut self) -> Option<Job> {
        if self.failed.is_some() {
            return None;
        }
        let task = self.next_prepare().map(Task::Prepare);
        let task = task.or_else(|| self.next_snapshot().map(Task::Snapshot));
        let task = task.or_else(|| self.next_retire().map(Task::Retire));
        let task = task.or_else(|| self.next_ballast().map(Task::Ballast));
        task.map(Job)
    }

    /// Commits what is staged on this thread. Does nothing while another commit is on its way.
    pub fn run_commit(&mut self) -> Result<(), LogFailed> {
        match self.next_commit() {
            Some(commit) => self.complete(JobOutcome(Outcome::Commit(commit.run()))),
            None => self.check_failed(),
        }
    }

    /// Takes the outcome of a job.
    pub fn complete(&mut self, outcome: JobOutcome) -> Result<(), LogFailed> {
        self.check_failed()?;
        let failure = match outcome.0 {
            Outcome::Commit(result) => self.commit_done(result),
            Outcome::Prepare(prepared) => {
                if prepared.took_ballast {
                    self.ballast_taken();
                }
                self.prepare_done(prepared)
            }
            Outcome::Snapshot(written) => {
                if written.took_ballast {
                    self.ballast_taken();
                }
                match written.result {
                    Ok(size_bytes) => {
                        self.snapshot_done(size_bytes);
                        None
                    }
                    Err(error) => self.snapshot_failed(error, written.took_ballast),
                }
            }
            Outcome::Retire(retired) => self.retire_done(retired),
            Outcome::Ballast(made) => self.ballast_done(made),
        };
        if let Some(failure) = failure {
            self.failed = Some(LogFailed(failure));
        }
        self.check_failed()
    }

    /// Makes the log try again to prepare a segment and its ballast, after the disk was found full.
    pub fn retry_prepare(&mut self) {
        self.try_to_end_draining();
    }

    fn retry_ballast(&mut self) {
        if self.drain.ballast == Ballast::NoSpace {
            self.drain.ballast = Ballast::Idle;
        }
    }

    /// A body, wherever it is; `None` if no segment holds its position any more. Does no I/O.
    ///
    /// Works from the append on. What is shown to anybody must wait until it is durable.
    pub fn body(&self, location: BodyLocation) -> Option<Body> {
        self.recent.body(location).or_else(|| {
            let segment = self.segment_at(location.record)?;
            Body::in_segment(Arc::clone(segment), location)
        })
    }

    /// The epoch that began with this open.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// All before this position is on stable storage.
    pub fn durable(&self) -> LogPosition {
        self.durable
    }

    /// Where the next record goes.
    pub fn end(&self) -> LogPosition {
        self.end
    }

    /// Why the log has stopped, if it has.
    pub fn failed(&self) -> Option<&LogFailed> {
        self.failed.as_ref()
    }

    /// Whether something is staged that no commit has taken yet.
    pub fn has_staged(&self) -> bool {
        !self.staged.is_empty()
    }

    /// Whether a commit is on its way.
    pub fn is_committing(&self) -> bool {
        self.committing.is_some()
    }

    /// The segments in use, in order of position.
    pub fn segments(&self) -> impl Iterator<Item = SegmentSpan> + '_ {
        self.segments.values().map(|segment| self.span(segment))
    }

    /// The segment that holds the record at a position.
    pub fn segment_of(&self, record: LogPosition) -> Option<SegmentSpan> {
        self.segment_at(record).map(|segment| self.span(segment))
    }

    /// What the log takes, for metrics.
    pub fn space(&self) -> LogSpace {
        let successor = match &self.successor {
            Successor::Ready(segment) => segment.header.capacity_bytes,
            _ => 0,
        };
        let segments = self.segments.values();
        let recycled = self.recycled.iter();
        let size_bytes = segments.map(|s| s.header.capacity_bytes).sum::<u64>()
            + recycled.map(|r| r.capacity_bytes).sum::<u64>()
            + successor;
        LogSpace {
            segments: self.segments.len(),
            is_prepared: successor > 0,
            is_full: self.is_draining(),
            recycled: self.recycled.len(),
            has_ballast: self.ballast_bytes() > 0 && self.is_ballast_whole(),
            size_bytes,
            snapshot_size_bytes: self.reclaim.snapshot_size_bytes,
            active_room_bytes: self.active_room_bytes(),
            recent_bytes: self.recent.held_bytes(),
        }
    }
}

/// Commits and the preparation of segments.
impl Log {
    fn check_failed(&self) -> Result<(), LogFailed> {
        self.failed.clone().map_or(Ok(()), Err)
    }

    fn next_commit(&mut self) -> Option<Commit> {
        if self.failed.is_some() || self.committing.is_some() || self.staged.is_empty() {
            return None;
        }
        self.committing = Some(self.end);
        Some(Commit {
            writes: std::mem::take(&mut self.staged),
            end: self.end,
        })
    }

    fn commit_done(&mut self, result: Result<LogPosition, IoFailure>) -> Option<IoFailure> {
        self.committing = None;
        match result {
            Ok(end) => {
                self.durable = end;
                self.recent.trim(end);
                None
            }
            Err(failure) => Some(failure),
        }
    }

    fn next_prepare(&mut self) -> Option<Prepare> {
        let may_take_ballast = self.is_prepare_due()?;
        self.successor = Successor::Preparing { may_take_ballast };
        let wanted_bytes = self.wanted_capacity_bytes();
        let recycled = self.recycled.iter();
        let mut recycled = recycled.map(|recycled| recycled.capacity_bytes);
        let source = match recycled.rposition(|capacity_bytes| capacity_bytes >= wanted_bytes) {
            Some(fitting) => Source::Recycled(self.recycled.remove(fitting)),
            None => Source::Fresh,
        };
        let capacity_bytes = match &source {
            Source::Recycled(recycled) => recycled.capacity_bytes,
            Source::Fresh => self.next_capacity_bytes(),
        };
        let number = self.active.header.number + 1;
        // The successor's positions begin where the file ends, so that it can be made before it
        // is known where the log will leave this one.
        let base = self.active.header.limit();
        let header = SegmentHeader {
            partition: 0,
            number,
            epoch: self.epoch,
            base,
            capacity_bytes,
            salt: self.salts.of(self.epoch, number),
            durable: self.durable,
        };
        Some(Prepare {
            header,
            source,
            may_take_ballast,
        })
    }

    fn next_capacity_bytes(&self) -> u64 {
        if let Some(capacity_bytes) = self.drain_capacity_bytes() {
            return capacity_bytes;
        }
        if self.prepare_smallest {
            return self.options.segment_size_first_bytes;
        }
        let doubled = self.active.header.capacity_bytes.saturating_mul(2);
        let usual_bytes = doubled.clamp(
            self.options.segment_size_first_bytes,
            self.options.segment_size_max_bytes,
        );
        usual_bytes.max(self.wanted_capacity_bytes())
    }

    /// The size of a segment that has room for the batch that waits for one; 0 if none does.
    fn wanted_capacity_bytes(&self) -> u64 {
        match self.wanted_room_bytes {
            0 => 0,
            least => self.options.segment_size_for(record_size_bytes(least)),
        }
    }

    fn prepare_done(&mut self, prepared: Prepared) -> Option<IoFailure> {
        let is_draining = self.is_draining();
        let may_take_ballast = matches!(
            self.successor,
            Successor::Preparing {
                may_take_ballast: true
            }
        );
        match prepared.result {
            Ok(segment) => {
                self.successor = Successor::Ready(segment);
                self.prepare_smallest = false;
                self.prepared_while_draining(true);
            }
            Err(MakeError::Unfinished(failure)) if failure.is_no_space() && is_draining => {
                // One for settlements may have what is put aside.
                self.successor = match may_take_ballast {
                    true => Successor::NoSpace,
                    false => Successor::Wanted,
                };
                self.prepared_while_draining(false);
            }
            Err(MakeError::Unfinished(failure)) if failure.is_no_space() => {
                // A smaller one may fit, and takes messages until there is more space.
                // For a large batch it would not do.
                let smallest_bytes = self.options.segment_size_first_bytes;
                let was_smallest = self.next_capacity_bytes() == smallest_bytes
                    || self.wanted_capacity_bytes() > smallest_bytes;
                self.wanted_room_bytes = 0;
                self.prepare_smallest = true;
                self.successor = Successor::Wanted;
                if was_smallest {
                    self.begin_draining();
                }
            }
            Err(error) => return Some(error.into_failure()),
        }
        None
    }

    fn segment_at(&self, record: LogPosition) -> Option<&Arc<Segment>> {
        let address = record.as_u64();
        let base = address.checked_sub(crate::format::SEGMENT_HEADER_BLOCK_SIZE)?;
        let mut older = self.segments.range(..=LogPosition::new(base));
        let (_, segment) = older.next_back()?;
        (record < segment.header.limit()).then_some(segment)
    }

    fn span(&self, segment: &Arc<Segment>) -> SegmentSpan {
        use std::ops::Bound::{Excluded, Unbounded};
        let mut newer = self.segments.range((Excluded(segment.base()), Unbounded));
        let end = match newer.next() {
            Some((_, next)) => segment.end_before(Some(next)),
            None => self.end,
        };
        SegmentSpan {
            base: segment.base(),
            number: segment.header.number,
            first: segment.first(),
            end,
            size_bytes: segment.header.capacity_bytes,
        }
    }
}
