//! Evacuation: the few live bodies of a segment move to the log's end, so that the segment can be removed.
//!
//! The log chooses the victim: a range of positions with few live bodies. They are found a part at a time, read off
//! the partition's thread, and moved by a command in a turn of their own share. Nothing here is durable: a restart
//! chooses anew, and finds what has not moved.
//!
//! A body that several messages have is read and stored once. The others name the first one that has moved, whose place is
//! remembered while the victim is emptied. If that one has ended meanwhile, the body is read again.
//!
//! A body that cannot be read stays, and so does its segment: it is no victim again before the next start.

mod piece;

use std::collections::BTreeSet;
use std::ops::Range;

use kew_engine::{BodyCursor, Command, FoundBodies, Group, MovedBodies, RunId};
use kew_log::{BatchBuilder, BootTime, Job, LogPosition, VictimEnd};

use self::piece::Reading;
use super::Partition;
use super::live::numbers;
use super::loads::Asker;

/// One turn moves at most this part of the largest batch, 256 KiB, unless one body is larger.
const PIECES_OF_BATCH: u64 = 4;

/// How many entities, runs, messages and sessions one turn looks at: about 0.2 ms.
const PIECE_STEPS: u32 = 8192;

/// An idle partition moves a piece this often: 32 MiB/s.
const PACE_MS: u64 = 8;

/// And a busy one this often, however little its commands write.
const SLOWEST_PACE_MS: u64 = 1000;

/// A partition with commands may save up this many pieces.
const ALLOWED_PIECES_MAX: u64 = 32;

/// How often records that cannot be read put a search off, before it ends.
const FAILED_READS_MAX: u32 = 3;

/// How long to wait when the process has no file descriptor for a read.
const DESCRIPTOR_PAUSE_MS: u64 = 1000;

/// The segment that is evacuated, and the bodies on their way.
#[derive(Debug, Default)]
pub(super) struct Evacuation {
    victim: Option<Victim>,
    job: Option<Job>,
    /// The runs of the messages that the search has asked for, or whose bodies are on their way.
    pins: BTreeSet<RunId>,
    /// How often records could not be read that the search needs.
    failed_reads: u32,
    /// The bodies that a job reads for a piece.
    reading: Option<Reading>,
    /// The command that moves the bodies which were read, and the room that it needs.
    ready: Option<(Command, u64)>,
    /// Which part of what is appended it may be while there are commands, in thousandths.
    share_per_mille: u64,
    /// How many bytes may be appended beside those of commands.
    allowance_bytes: u64,
    /// When the last piece was moved.
    moved_at: BootTime,
    /// No piece before this time.
    not_before: BootTime,
    step_at: Option<BootTime>,
    moved_bytes: u64,
    moved_count: u64,
    unread_count: u64,
}

#[derive(Debug)]
struct Victim {
    /// The positions to empty.
    positions: Range<u64>,
    /// Where the search continues. `None` once it has seen everything.
    cursor: Option<BodyCursor>,
    /// Where the piece begins that is on its way.
    piece: BodyCursor,
    /// Whether this search has moved something.
    has_moved: bool,
    /// What it has moved that other messages have, too.
    moved: MovedBodies,
}

impl Evacuation {
    /// Notes what the log has seen, and the victim that it has chosen.
    pub(super) fn begin(
        &mut self,
        share_per_mille: Option<u64>,
        victim: Option<Range<LogPosition>>,
    ) {
        self.share_per_mille = share_per_mille.unwrap_or(self.share_per_mille);
        if let Some(positions) = victim {
            self.victim = Some(Victim {
                positions: numbers(&positions),
                cursor: Some(BodyCursor::default()),
                piece: BodyCursor::default(),
                has_moved: false,
                moved: MovedBodies::default(),
            });
        }
    }

    /// When the next step is due. None while a job reads.
    pub(super) fn step_at(&self) -> Option<BootTime> {
        self.step_at
    }

    pub(super) fn next_job(&mut self) -> Option<Job> {
        self.job.take()
    }

    /// Notes bytes that commands have appended.
    fn allow(&mut self, size_bytes: u64, piece_bytes: u64) {
        // The share is that of the sum, so it is s / (1 - s) for each byte of commands, and s has to be below 1.
        let share = self.share_per_mille.min(999);
        let allowed = size_bytes * share / (1000 - share);
        let most_bytes = ALLOWED_PIECES_MAX * piece_bytes;
        self.allowance_bytes = (self.allowance_bytes + allowed).min(most_bytes);
    }

    /// When the next piece may be moved. Commands that come meanwhile put it off, unless they pay for it.
    fn pace(&self, active_at: BootTime, piece_bytes: u64) -> BootTime {
        let pace = match self.allowance_bytes >= piece_bytes {
            true => BootTime::ZERO,
            false => {
                let slowest = self.moved_at.plus_ms(SLOWEST_PACE_MS);
                let quiet = active_at.max(self.moved_at).plus_ms(PACE_MS);
                quiet.min(slowest)
            }
        };
        pace.max(self.not_before)
    }

    /// Whether a run has messages whose bodies are looked for, or move next.
    pub(super) fn is_pinned(&self, run: RunId) -> bool {
        self.pins.contains(&run)
    }

    fn is_under_way(&self) -> bool {
        self.reading.is_some() || self.ready.is_some()
    }

    /// Ends this search. The next one finds what it has not moved.
    fn give_up(&mut self) {
        self.victim = None;
        self.ready = None;
        self.failed_reads = 0;
        self.pins.clear();
    }
}

impl<T> Partition<T> {
    fn piece_bytes(&self) -> u64 {
        self.options.log.batch_size_max_bytes / PIECES_OF_BATCH
    }

    /// Takes the next step, if it is time: looks for bodies to read.
    pub(super) fn evacuate(&mut self, now: BootTime) {
        let piece_bytes = self.piece_bytes();
        let evacuation = &mut self.evacuation;
        evacuation.step_at = None;
        if evacuation.is_under_way() {
            return;
        }
        let Some(victim) = &evacuation.victim else {
            return;
        };
        let mut pace = evacuation.pace(self.active_at, piece_bytes);
        if self.log.snapshots().is_under_way {
            // A change to what the snapshot has copies it: the bodies of a piece may lie in many runs.
            pace = pace.max(now.plus_ms(PACE_MS));
        }
        if !pace.has_passed(now) {
            evacuation.step_at = Some(pace);
            return;
        }
        let Some(cursor) = victim.cursor else {
            self.end_search(now);
            return;
        };
        let size_bytes_max = match self.log.limits().full {
            Some(full) => piece_bytes.min(full.batch_size_bytes_max / 4),
            None => piece_bytes,
        };
        let size = (PIECE_STEPS, size_bytes_max);
        let found = (self.state).bodies_in(&victim.positions, cursor, size, &victim.moved);
        if found.bodies.is_empty() && !found.missing.is_empty() {
            self.read_missing(now, cursor, &found);
        } else {
            self.read_found(now, cursor, found);
        }
    }

    /// Asks for the records at which the search has stopped. It goes on there once they were read.
    fn read_missing(&mut self, now: BootTime, from: BodyCursor, found: &FoundBodies) {
        let put_off = self.loads.ask(Asker::Evacuation, &found.missing);
        let evacuation = &mut self.evacuation;
        let pins = found.missing.groups.keys().map(Group::run);
        evacuation.pins = pins.collect();
        if let Some(victim) = &mut evacuation.victim {
            // What was passed over is not looked at again.
            victim.cursor = found.next.or(Some(from));
        }
        evacuation.step_at = Some(now.plus_ms(PACE_MS).max(put_off.unwrap_or_default()));
        if found.next != Some(from) {
            evacuation.failed_reads = 0;
        }
        self.note_missing(put_off.is_some());
    }

    /// Notes that records are missing, and whether they could not be read. After a few times, another segment is emptied
    /// meanwhile.
    fn note_missing(&mut self, has_failed: bool) {
        let evacuation = &mut self.evacuation;
        evacuation.failed_reads += u32::from(has_failed);
        if evacuation.failed_reads <= FAILED_READS_MAX {
            return;
        }
        self.give_up_search(VictimEnd::Paused);
    }

    /// Ends a search, and what it has asked for.
    fn give_up_search(&mut self, end: VictimEnd) {
        self.evacuation.give_up();
        self.loads.release_walk(Asker::Evacuation);
        self.log.end_victim(end);
    }

    /// A search has seen everything. Messages may have gone to entities that it had passed: then there is another one.
    fn end_search(&mut self, now: BootTime) {
        self.loads.release_walk(Asker::Evacuation);
        let evacuation = &mut self.evacuation;
        evacuation.step_at = Some(now);
        evacuation.pins.clear();
        let Some(victim) = &mut evacuation.victim else {
            return;
        };
        let is_empty = self.state.live_bytes_in(victim.positions.clone()) == 0;
        if !is_empty && victim.has_moved {
            victim.has_moved = false;
            victim.cursor = Some(BodyCursor::default());
            victim.moved = MovedBodies::default();
            return;
        }
        evacuation.victim = None;
        self.log.end_victim(match is_empty {
            true => VictimEnd::Emptied,
            false => VictimEnd::Unreadable,
        });
    }

    /// Notes a batch that is about to be appended.
    pub(super) fn note_appended(&mut self, batch: &BatchBuilder) {
        if self.evacuation.victim.is_some() {
            let moved_bytes = batch.moved().written_bytes;
            let size_bytes = (batch.len_bytes() as u64).saturating_sub(moved_bytes);
            let piece_bytes = self.piece_bytes();
            self.evacuation.allow(size_bytes, piece_bytes);
        }
    }
}

/// For metrics.
impl<T> Partition<T> {
    /// How many bytes of the log bodies took that were moved to its end, since the open.
    pub fn moved_bytes(&self) -> u64 {
        self.evacuation.moved_bytes
    }

    /// How many bodies could not be read to move them, since the open. Their segments stay.
    pub fn unmoved_count(&self) -> u64 {
        self.evacuation.unread_count
    }

    /// How many bodies were moved since the open.
    pub fn moved_count(&self) -> u64 {
        self.evacuation.moved_count
    }
}
