//! Follows a log in memory, also while another process owns it.

use std::mem;
use std::ops::Bound;
use std::sync::Arc;

use kew_log::{
    Batches, Epoch, FollowError, FollowedLog, Job, JobKind, JobOutcome, LogEnd, OpenError,
    OwnedLog, PageChoice, Piece, Progress, Recovery, Seen,
};

use super::kept::{FIRST_POSITION, Kept};
use super::owned::MemoryLog;
use super::snapshot::Snapshot;
use super::{Agreement, Mistake, Shared};

/// A log in memory that is followed.
pub(crate) struct MemoryFollower {
    shared: Arc<Shared>,
    agreement: Arc<dyn Agreement>,
    state: State,
    seen: Seen,
    progress: Progress,
    /// The epoch of the promotion, once there was one.
    promotion: Option<Epoch>,
    /// The epoch has begun: no other owner appends from now on, and the rest is read.
    has_begun: bool,
    is_stopped: bool,
}

enum State {
    Idle(Box<Cursor>),
    /// A job is out.
    Waiting,
    Ended(LogEnd),
    Failed,
}

/// How far the log was read. It is in the follower or in a job.
struct Cursor {
    pages: Box<dyn PageChoice>,
    phase: Phase,
    seen: Seen,
    /// The snapshot that was begun. Its pages are those that the state names, also if a former owner has written a
    /// newer one.
    snapshot: Option<Arc<Snapshot>>,
    events: u64,
}

enum Phase {
    Beginning,
    /// A snapshot is read, from this piece on: parts, then pages.
    Snapshot(Arc<Snapshot>, usize),
    Batches,
}

/// What a job does. Its result has the cursor, and whether everything was read.
type Read = Result<(Box<Cursor>, Began, bool), FollowError>;

/// Whether the job began the epoch.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Began {
    No,
    Yes,
}

impl MemoryFollower {
    pub(crate) fn new(
        shared: Arc<Shared>,
        agreement: Arc<dyn Agreement>,
        pages: Box<dyn PageChoice>,
    ) -> Self {
        Self {
            shared,
            agreement,
            state: State::Idle(Box::new(Cursor {
                pages,
                phase: Phase::Beginning,
                seen: Seen::default(),
                snapshot: None,
                events: 0,
            })),
            seen: Seen::default(),
            progress: Progress::Behind,
            promotion: None,
            has_begun: false,
            is_stopped: false,
        }
    }

    fn promote_job(&self, cursor: Box<Cursor>, epoch: Epoch) -> Job {
        let (shared, agreement) = (Arc::clone(&self.shared), Arc::clone(&self.agreement));
        Job::other(JobKind::Promote, 0, move |_| -> Read {
            let has_copied = agreement.begin(&shared, epoch)?;
            let is_whole = has_copied && cursor.has_all(&shared.kept());
            Ok((cursor, Began::Yes, is_whole))
        })
    }

    /// Whether there is something that was not handed out.
    fn is_behind(&self, cursor: &Cursor) -> bool {
        let kept = self.shared.kept();
        !cursor.has_all(&kept) || self.agreement.is_ahead(&kept)
    }

    fn follow_job(&self, mut cursor: Box<Cursor>) -> Job {
        let (shared, agreement) = (Arc::clone(&self.shared), Arc::clone(&self.agreement));
        Job::other(JobKind::Follow, 0, move |pieces| -> Read {
            let has_copied = agreement.pull(&shared)?;
            let has_read = cursor.read(&shared, pieces)?;
            Ok((cursor, Began::No, has_copied && has_read))
        })
    }
}

impl FollowedLog for MemoryFollower {
    fn next_job(&mut self) -> Option<Job> {
        if self.is_stopped || self.progress == Progress::Owned {
            return None;
        }
        let cursor = match mem::replace(&mut self.state, State::Waiting) {
            State::Idle(cursor) => cursor,
            other => {
                self.state = other;
                return None;
            }
        };
        let is_current = self.progress == Progress::Current;
        match self.promotion {
            Some(epoch) if is_current && !self.has_begun => Some(self.promote_job(cursor, epoch)),
            _ if is_current && !self.is_behind(&cursor) => {
                self.state = State::Idle(cursor);
                None
            }
            _ => Some(self.follow_job(cursor)),
        }
    }

    fn complete(&mut self, mut outcome: JobOutcome) -> Result<Progress, FollowError> {
        if let State::Ended(end) = &self.state {
            return Err(end.clone().into());
        }
        let Some(read) = outcome.take_other::<(Box<Cursor>, Began, bool), FollowError>() else {
            // It is for the caller that asked.
            return Ok(self.progress);
        };
        let state = mem::replace(&mut self.state, State::Failed);
        assert!(matches!(state, State::Waiting), "no such job is out");
        let (cursor, began, is_whole) = read.inspect_err(|error| {
            if let FollowError::Ended(end) = error {
                self.state = State::Ended(end.clone());
            }
        })?;
        self.has_begun |= began == Began::Yes;
        self.seen = cursor.seen;
        self.state = State::Idle(cursor);
        self.progress = match (is_whole, self.has_begun) {
            (false, _) => Progress::Behind,
            (true, false) => Progress::Current,
            (true, true) => Progress::Owned,
        };
        Ok(self.progress)
    }

    fn seen(&self) -> Seen {
        self.seen
    }

    fn promote(&mut self, epoch: Epoch) {
        assert!(self.promotion.is_none(), "a follower is promoted once");
        self.promotion = Some(epoch);
    }

    fn own(self: Box<Self>) -> (Box<dyn OwnedLog>, Recovery) {
        let (State::Idle(cursor), Some(epoch), Progress::Owned) =
            (self.state, self.promotion, self.progress)
        else {
            panic!("the log is not owned");
        };
        let recovery = Recovery {
            epoch,
            snapshot: cursor.snapshot.as_ref().map(|snapshot| snapshot.at),
            events_replayed: cursor.events,
            end: cursor.seen.end,
            time_ms: cursor.seen.time_ms,
            records_copied: 0,
            tail_cut: None,
            void: 0,
            warnings: Vec::new(),
            damaged_files: Vec::new(),
        };
        let log = MemoryLog::new(self.shared, self.agreement, &recovery, cursor.snapshot);
        (Box::new(log), recovery)
    }

    fn stop(&mut self) {
        self.is_stopped = true;
    }
}

impl Cursor {
    /// Whether there is nothing behind what was handed out.
    fn has_all(&self, kept: &Kept) -> bool {
        let mut rest = kept.batches.range(self.seen.end..);
        matches!(self.phase, Phase::Batches) && rest.next().is_none()
    }

    /// Reads until a piece is full. Returns whether everything was read.
    fn read(&mut self, shared: &Shared, pieces: &mut Vec<Piece>) -> Result<bool, FollowError> {
        let mut room = shared.options.piece_size_bytes;
        loop {
            match &mut self.phase {
                Phase::Beginning => self.begin(&shared.kept(), pieces),
                Phase::Snapshot(..) if room == 0 => return Ok(false),
                Phase::Snapshot(snapshot, next) => {
                    let (snapshot, index) = (Arc::clone(snapshot), *next);
                    *next += 1;
                    room = room.saturating_sub(self.read_snapshot(&snapshot, index, pieces)?);
                }
                Phase::Batches => {
                    let kept = shared.kept();
                    let skips_gaps = shared.makes(Mistake::GapSkipped);
                    if self.seen.end < kept.trimmed && !skips_gaps {
                        // What comes next does not exist any more: a newer snapshot has it.
                        self.begin(&kept, pieces);
                        continue;
                    }
                    self.read_batches(shared, &kept, room, pieces);
                    let is_early = shared.makes(Mistake::CurrentEarly);
                    return Ok(is_early || self.has_all(&kept));
                }
            }
        }
    }

    fn begin(&mut self, kept: &Kept, pieces: &mut Vec<Piece>) {
        // What is void need not be handed out.
        pieces.clear();
        pieces.push(Piece::Begin);
        self.pages.begin();
        self.events = 0;
        self.seen = Seen {
            epoch: kept.epoch,
            time_ms: 0,
            durable: FIRST_POSITION,
            end: FIRST_POSITION,
        };
        let newest = kept.snapshots.last().map(Arc::clone);
        self.snapshot = newest.as_ref().map(Arc::clone);
        pieces.extend(
            newest
                .iter()
                .map(|snapshot| Piece::SnapshotBegin(snapshot.at)),
        );
        self.phase = newest.map_or(Phase::Batches, |snapshot| Phase::Snapshot(snapshot, 0));
    }

    /// Reads one piece of a snapshot. Returns its size.
    fn read_snapshot(
        &mut self,
        snapshot: &Snapshot,
        index: usize,
        pieces: &mut Vec<Piece>,
    ) -> Result<u64, FollowError> {
        if let Some(part) = snapshot.parts.get(index) {
            pieces.push(Piece::Part(part.clone()));
            return Ok(part.len() as u64);
        }
        let Some(&number) = snapshot.order.get(index - snapshot.parts.len()) else {
            pieces.push(Piece::SnapshotEnd);
            self.phase = Phase::Batches;
            self.seen.time_ms = snapshot.time_ms;
            (self.seen.durable, self.seen.end) = (snapshot.at, snapshot.at);
            return Ok(0);
        };
        if self.pages.passes_over(number) {
            pieces.push(Piece::PassedOver(number));
            return Ok(0);
        }
        let content = &snapshot.pages[&number];
        let noted = self.pages.note(number, content);
        noted.map_err(|source| OpenError::Replay {
            position: snapshot.at,
            source,
        })?;
        pieces.push(Piece::Page {
            number,
            content: (**content).clone(),
            is_at_risk: false,
        });
        Ok(content.size_bytes() as u64)
    }

    fn read_batches(
        &mut self,
        shared: &Shared,
        kept: &Kept,
        mut room: u64,
        pieces: &mut Vec<Piece>,
    ) {
        let mut batches = Batches::default();
        self.seen.epoch = kept.epoch;
        if shared.makes(Mistake::PieceRepeated) {
            let before = (Bound::Unbounded, Bound::Excluded(self.seen.end));
            let last = kept.batches.range(before).next_back();
            if let Some((record, stored)) = last.filter(|_| !pieces.contains(&Piece::Begin)) {
                batches.begin(*record, stored.epoch, stored.time_ms);
            }
        }
        for (record, stored) in kept.batches.range(self.seen.end..) {
            if room == 0 {
                break;
            }
            batches.begin(*record, stored.epoch, stored.time_ms);
            for event in stored.sealed.events() {
                batches.push_event(event);
                self.events += 1;
            }
            room = room.saturating_sub(stored.sealed.record.len() as u64);
            self.seen.time_ms = stored.time_ms;
            (self.seen.durable, self.seen.end) = (stored.sealed.end, stored.sealed.end);
        }
        if !batches.is_empty() {
            pieces.push(Piece::Batches(batches));
        }
    }
}
