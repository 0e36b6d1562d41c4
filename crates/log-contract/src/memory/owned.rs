//! A log in memory as its owner has it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use kew_log::{
    AppendError, BATCH_SIZE_BYTES_MAX, BatchBuilder, BootTime, Epoch, Job, JobKind, LocalLog,
    LogEnd, LogHealth, LogLimits, LogPosition, LogState, Need, OwnedLog, Recovery, Reservation,
    ReserveError,
};

use super::kept::{FIRST_POSITION, Stored, halved};
use super::local::Snapshots;
use super::snapshot::Snapshot;
use super::{Agreed, Agreement, Mistake, Placed, Renewed, Shared, log_id};

/// The header of a record with its padding, and a beat.
const HEADER_SIZE_BYTES_MAX: u64 = 56;
const BEAT_SIZE_BYTES: u64 = 48;

/// A log in memory that this process owns.
pub(super) struct MemoryLog {
    pub(super) shared: Arc<Shared>,
    pub(super) agreement: Arc<dyn Agreement>,
    pub(super) epoch: Epoch,
    pub(super) ended: Option<LogEnd>,
    pub(super) end: LogPosition,
    /// The content checksum of the last batch.
    chain: u32,
    pub(super) time_ms: u64,
    pub(super) durable: LogPosition,
    /// The room for the next batch.
    reserved: Option<Reservation>,
    /// Up to there a job has prepared room.
    prepared: LogPosition,
    pub(super) preparing: Preparing,
    /// What no commit has taken yet.
    staged: Vec<Placed>,
    /// What is not durable yet: the bodies of the others are looked up.
    pub(super) recent: BTreeMap<LogPosition, Stored>,
    pub(super) is_committing: bool,
    is_mark_staged: bool,
    /// Whether anything was appended since the last mark.
    is_unmarked: bool,
    pub(super) snapshots: Snapshots,
}

/// Room that a job prepares.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Preparing {
    Idle,
    Wanted(u64),
    Out,
}

/// What a job of the owner has done.
pub(super) enum Done {
    Committed(Agreed),
    /// The owner has stopped before other machines answered.
    GivenUp,
    Renewed(Renewed),
    Prepared(u64),
    Snapshot(Arc<Snapshot>),
    Retired,
}

impl MemoryLog {
    pub(super) fn new(
        shared: Arc<Shared>,
        agreement: Arc<dyn Agreement>,
        recovery: &Recovery,
        snapshot: Option<Arc<Snapshot>>,
    ) -> Self {
        let (chain, snapshots) = {
            let kept = shared.kept();
            (kept.chain, Snapshots::resume(&kept, snapshot, recovery.end))
        };
        Self {
            epoch: recovery.epoch,
            ended: None,
            end: recovery.end,
            chain,
            time_ms: recovery.time_ms,
            durable: recovery.end,
            reserved: None,
            prepared: recovery.end,
            preparing: Preparing::Idle,
            staged: Vec::new(),
            recent: BTreeMap::new(),
            is_committing: false,
            is_mark_staged: false,
            is_unmarked: false,
            snapshots,
            shared,
            agreement,
        }
    }

    pub(super) fn makes(&self, mistake: Mistake) -> bool {
        self.shared.makes(mistake)
    }

    pub(super) fn check_ended(&self) -> Result<(), LogEnd> {
        self.ended.clone().map_or(Ok(()), Err)
    }

    fn stage(&mut self, mut batch: BatchBuilder) {
        self.time_ms = self.time_ms.max(batch.time_ms());
        batch.set_time_ms(self.time_ms);
        let record = batch.position();
        let previous = self.chain;
        let sealed = batch.seal(log_id(), self.epoch, previous);
        self.chain = sealed.content;
        self.snapshots.bytes_since += sealed.record.len() as u64;
        self.end = sealed.end;
        let stored = Stored {
            epoch: self.epoch,
            time_ms: self.time_ms,
            previous,
            sealed,
        };
        self.recent.insert(record, stored.clone());
        self.staged.push((record, stored));
        self.reserved = None;
        self.is_unmarked = true;
        self.is_mark_staged = false;
        if self.makes(Mistake::DurableInAppend) {
            self.durable = self.end;
        }
    }

    /// A commit, if something is staged and no other one is out.
    pub(super) fn next_commit(&mut self) -> Option<Job> {
        let is_out = self.is_committing && !self.makes(Mistake::TwoCommits);
        let has_batches = !self.staged.is_empty();
        if is_out || !has_batches && !self.is_mark_staged {
            return None;
        }
        if has_batches && self.agreement.holds_commits() {
            return None;
        }
        self.is_committing = true;
        self.is_mark_staged = false;
        let mut batches = std::mem::take(&mut self.staged);
        let sizes = batches.iter().map(|(_, it)| it.sealed.record.len() as u64);
        let size_bytes = sizes.sum();
        let (shared, agreement) = (Arc::clone(&self.shared), Arc::clone(&self.agreement));
        let (epoch, end) = (self.epoch, self.end);
        let kind = match has_batches {
            true => agreement.commit_kind(&shared),
            false => JobKind::Commit,
        };
        let runs = shared.runs.load(Ordering::Relaxed);
        Some(Job::other(kind, size_bytes, move |_| {
            let is_late = shared.runs.fetch_add(1, Ordering::Relaxed) != runs;
            let is_late = is_late && shared.makes(Mistake::OrderCounts);
            if is_late || shared.makes(Mistake::HalfBatch) {
                let last = batches.pop().map(|(at, last)| (at, halved(at, last)));
                batches.extend(last);
            }
            // Marks are local to a copy, so the others never see them and cannot refuse them.
            let agreed = match batches.is_empty() {
                true => Some(Agreed {
                    end,
                    left: Vec::new(),
                    ended: None,
                }),
                false => agreement.commit(&shared, epoch, batches),
            };
            Ok::<_, LogEnd>(agreed.map_or(Done::GivenUp, Done::Committed))
        }))
    }

    /// Notes what a commit has made durable, and then how the log has ended.
    pub(super) fn committed(&mut self, agreed: Agreed) -> Result<(), LogEnd> {
        self.is_committing = false;
        self.durable = match self.makes(Mistake::DurableEarly) && agreed.ended.is_none() {
            true => self.end,
            false => agreed.end,
        };
        self.staged.splice(..0, agreed.left);
        self.recent = self.recent.split_off(&self.durable);
        agreed.ended.map_or(Ok(()), Err)
    }

    pub(super) fn next_renewal(&mut self) -> Option<Job> {
        let renew = Arc::clone(&self.agreement).next_renewal(self.epoch)?;
        Some(Job::other(JobKind::Renew, 0, move |_| {
            renew().map(Done::Renewed)
        }))
    }

    pub(super) fn next_prepare(&mut self) -> Option<Job> {
        let Preparing::Wanted(size_bytes) = self.preparing else {
            return None;
        };
        self.preparing = Preparing::Out;
        let shared = Arc::clone(&self.shared);
        Some(Job::other(JobKind::Prepare, 0, move |_| {
            shared.runs.fetch_add(1, Ordering::Relaxed);
            Ok::<_, LogEnd>(Done::Prepared(size_bytes))
        }))
    }

    pub(super) fn prepared(&mut self, size_bytes: u64) {
        self.preparing = Preparing::Idle;
        if !self.makes(Mistake::NeverPrepared) {
            self.prepared = self.end.plus(size_bytes);
        }
    }

    /// How much of a batch there is room for.
    fn room_bytes(&self) -> u64 {
        let left = self.prepared.as_u64().saturating_sub(self.end.as_u64());
        left.saturating_sub(HEADER_SIZE_BYTES_MAX)
    }

    fn batch_size_bytes_max(&self) -> u64 {
        match self.makes(Mistake::LimitGrows) {
            true => BATCH_SIZE_BYTES_MAX + self.end.as_u64() - FIRST_POSITION.as_u64(),
            false => BATCH_SIZE_BYTES_MAX,
        }
    }
}

impl OwnedLog for MemoryLog {
    fn limits(&self) -> LogLimits {
        LogLimits {
            batch_size_bytes_max: self.batch_size_bytes_max(),
            heartbeat_ms: self.shared.options.heartbeat_ms,
            full: None,
        }
    }

    fn reserve(&mut self, need: Need) -> Result<Reservation, ReserveError> {
        self.reserved = None;
        let options = self.shared.options;
        if options.looks_when_reserving {
            let owner = self.shared.kept().check_owner(self.epoch);
            self.ended = self.ended.take().or(owner.err());
        }
        self.check_ended()?;
        let most = self.batch_size_bytes_max();
        let least = need.size_bytes.max(options.room_bytes_min).min(most);
        let room_bytes = self.room_bytes();
        if room_bytes < least {
            if self.preparing == Preparing::Idle {
                let size_bytes = options.prepared_bytes.max(least + HEADER_SIZE_BYTES_MAX);
                self.preparing = Preparing::Wanted(size_bytes);
            }
            return Err(ReserveError::NotPrepared);
        }
        let reserved = Reservation::new(self.epoch, self.end, room_bytes.min(most));
        self.reserved = Some(reserved);
        Ok(reserved)
    }

    fn append(&mut self, at: Reservation, batch: BatchBuilder) -> Result<LogPosition, AppendError> {
        self.check_ended()?;
        at.check(self.reserved, &batch, self.end)?;
        if !self.makes(Mistake::ReservationUsedTwice) {
            self.reserved = None;
        }
        if !batch.is_empty() {
            self.stage(batch);
        }
        Ok(self.end)
    }

    fn beat(&mut self, time_ms: u64) -> bool {
        let left = self.prepared.as_u64().saturating_sub(self.end.as_u64());
        let has_room = left >= BEAT_SIZE_BYTES;
        let is_due = self.ended.is_none() && self.durable() == self.end && has_room;
        if is_due {
            let mut beat = BatchBuilder::with_capacity(self.end, 0);
            beat.set_time_ms(time_ms);
            self.stage(beat);
            if self.makes(Mistake::BeatLeftOut) {
                self.staged.clear();
                self.is_mark_staged = true;
            }
        }
        is_due
    }

    fn mark(&mut self) -> bool {
        let is_due = self.ended.is_none() && self.is_unmarked && self.durable == self.end;
        if is_due {
            self.is_mark_staged = true;
            self.is_unmarked = false;
            if self.makes(Mistake::MarkMovesEnd) {
                self.end = self.end.plus(BEAT_SIZE_BYTES);
            }
        }
        is_due
    }

    fn end(&self) -> LogPosition {
        self.end
    }

    fn owned_until(&self) -> BootTime {
        self.agreement.owned_until()
    }

    fn health(&self) -> LogHealth {
        LogHealth {
            state: match (&self.ended, self.agreement.no_quorum_since()) {
                (Some(end), _) => LogState::Ended(end.clone()),
                (None, Some(since)) => LogState::NoQuorum { since },
                (None, None) => LogState::Ready,
            },
            is_short_of_descriptors: false,
        }
    }

    fn stop(&mut self) {
        self.agreement.stop();
    }
}
