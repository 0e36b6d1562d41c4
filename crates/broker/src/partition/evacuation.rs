//! Evacuation: the few live bodies of a segment move to the log's end, so that the segment can be removed.
//!
//! The victim is the segment with the smallest share of live bytes. Its bodies are found a part at a time, read off
//! the partition's thread, and moved by a command in a turn of their own share. Nothing here is durable: a restart
//! chooses anew, and finds what has not moved.
//!
//! Bytes are counted in units of positions, so the victim's bodies are those of all units that it touches, and all of
//! these lie before the unit in which the log ends: a moved body never lies in them, and the victim gets empty.
//!
//! What moves is bounded, also if nothing else happens. A victim's bodies take at most 85 % of its records' bytes once
//! they have moved, with what the events of the moves add. That is known of segments that were written since the open,
//! by [`Moved`]. So a segment full of moved bodies is no victim before some of them were deleted.
//!
//! A body that several messages have is read and stored once. The others name the first one that has moved, whose place is
//! remembered while the victim is emptied. If that one has ended meanwhile, the body is read again.
//!
//! A body that cannot be read stays, and so does its segment: it is no victim again before the next start.

mod piece;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use kew_engine::{BodyCursor, Command, FoundBodies, Group, MovedBodies, RunId};
use kew_log::{BootTime, FullLimits, Job, LogPosition};

use self::piece::Reading;
use super::Partition;
use super::loads::Asker;
use super::maintenance::{Look, Seen};

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

/// Above this many thousandths of the live bytes, space is too much.
const IDLE_EXCESS_PER_MILLE: u64 = 1200;
const BUSY_EXCESS_PER_MILLE: u64 = 1150;

/// Segments with a larger share of live bytes are no victims, unless space is far too much.
const VICTIM_SHARE_PER_MILLE_MAX: u64 = 700;
const FAR_EXCESS_PER_MILLE: u64 = 1300;
const FAR_VICTIM_SHARE_PER_MILLE_MAX: u64 = 850;
/// The same on a full disk, where the moved bodies take space that settlements may need.
const FULL_VICTIM_SHARE_PER_MILLE_MAX: u64 = 125;

/// How often records that cannot be read put a search off, before it ends.
const FAILED_READS_MAX: u32 = 3;

/// And for how long there is no other search of its segment then: longer each time.
const UNREAD_PAUSE_MS: u64 = 10_000;
const UNREAD_PAUSE_MS_MAX: u64 = 600_000;

/// How long to wait when the process has no file descriptor for a read.
const DESCRIPTOR_PAUSE_MS: u64 = 1000;

/// The segment that is evacuated, and the bodies on their way.
#[derive(Debug, Default)]
pub(super) struct Evacuation {
    victim: Option<Victim>,
    /// Segments with a body that cannot be read.
    unreadable: BTreeSet<LogPosition>,
    /// Segments of which no search is begun before a time: records that it needs could not be read, or a full disk does
    /// not take what it would move.
    put_off: BTreeMap<LogPosition, PutOff>,
    /// The segments in which moved bodies were written.
    moved: BTreeMap<LogPosition, Moved>,
    job: Option<Job>,
    /// The runs of the messages that the search has asked for, or whose bodies are on their way.
    pins: BTreeSet<RunId>,
    /// How often records could not be read that the search needs.
    failed_reads: u32,
    /// The bodies that a job reads for a piece.
    reading: Option<Reading>,
    /// The command that moves the bodies which were read, and the room that it needs.
    ready: Option<(Command, u64)>,
    /// Space in thousandths of the live bytes, at the last look.
    excess_per_mille: u64,
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

/// How long a segment rests whose messages cannot be read or moved.
#[derive(Clone, Copy, Debug)]
struct PutOff {
    until: BootTime,
    pause_ms: u64,
}

#[derive(Debug)]
struct Victim {
    first: LogPosition,
    /// The units that the segment touches, and those before it that keep it.
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

/// What moves have written to a segment.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Moved {
    /// With their events.
    written_bytes: u64,
    /// What the bodies count for.
    live_bytes: u64,
}

impl Moved {
    fn add(&mut self, other: Self) {
        self.written_bytes += other.written_bytes;
        self.live_bytes += other.live_bytes;
    }

    /// What the events around so many live bytes take, beyond what is counted for them.
    fn beyond_bytes(self, live_bytes: u64) -> u64 {
        let beyond = self.written_bytes.saturating_sub(self.live_bytes);
        let live_bytes = live_bytes.min(self.live_bytes);
        beyond.saturating_mul(live_bytes) / self.live_bytes.max(1)
    }
}

impl Evacuation {
    /// When the next step is due. None while a job reads.
    pub(super) fn step_at(&self) -> Option<BootTime> {
        self.step_at
    }

    pub(super) fn next_job(&mut self) -> Option<Job> {
        self.job.take()
    }

    /// Notes bytes that commands have appended.
    fn allow(&mut self, size_bytes: u64, piece_bytes: u64) {
        let share = self.excess_per_mille.saturating_sub(BUSY_EXCESS_PER_MILLE);
        // s = (x - 1.15) / 0.4, at most 0.5, and s / (1 - s) for each byte.
        let share = (share.saturating_mul(10) / 4).min(500);
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

    /// When the next search can be begun that was put off.
    pub(super) fn put_off_until(&self, now: BootTime) -> Option<BootTime> {
        let all = self.put_off.values().map(|it| it.until);
        all.filter(|until| !until.has_passed(now)).min()
    }

    /// Lets a segment rest whose messages cannot be read or moved: twice as long as the last time.
    fn let_rest(&mut self, first: LogPosition, now: BootTime) {
        let before = self.put_off.get(&first);
        let pause_ms = before.map_or(UNREAD_PAUSE_MS, |it| 2 * it.pause_ms);
        let pause_ms = pause_ms.min(UNREAD_PAUSE_MS_MAX);
        let until = now.plus_ms(pause_ms);
        self.put_off.insert(first, PutOff { until, pause_ms });
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

    /// What the events of moves take beyond the live bytes of a segment.
    pub(super) fn beyond_bytes(&self, first: LogPosition, live_bytes: u64) -> u64 {
        let moved = self.moved.get(&first).copied();
        moved.unwrap_or_default().beyond_bytes(live_bytes)
    }
}

/// What a segment's bodies will take when they have moved, in thousandths of what goes then.
fn share_per_mille(seen: &Seen) -> u64 {
    let cost_bytes = seen.live_bytes + seen.beyond_bytes;
    cost_bytes.saturating_mul(1000) / seen.frees_bytes.max(1)
}

impl<T> Partition<T> {
    /// Chooses a segment to evacuate, if space is too much. Returns whether there is one.
    pub(super) fn choose_victim(&mut self, now: BootTime, look: &Look, is_idle: bool) -> bool {
        let full = self.log.limits().full;
        let excess_per_mille = self.excess_per_mille(look);
        let most_per_mille = match is_idle {
            true => IDLE_EXCESS_PER_MILLE,
            false => BUSY_EXCESS_PER_MILLE,
        };
        let known = |first: &LogPosition| look.segments.contains_key(first);
        let evacuation = &mut self.maintenance.evacuation;
        evacuation.moved.retain(|first, _| known(first));
        evacuation.unreadable.retain(known);
        evacuation.put_off.retain(|first, _| known(first));
        evacuation.excess_per_mille = excess_per_mille;
        let is_too_much = full.is_some() || excess_per_mille > most_per_mille;
        if is_too_much && self.maintenance.evacuation.victim.is_none() {
            let victim = self.cheapest(now, look, full);
            let evacuation = &mut self.maintenance.evacuation;
            evacuation.victim = victim;
            evacuation.step_at = Some(now);
        }
        self.maintenance.evacuation.victim.is_some()
    }

    /// The space of segments in thousandths of the live bytes. Segments without live bytes go without a copy. Two are
    /// always needed. Half of one more keeps few bodies from moving forever, because a move may begin a segment.
    fn excess_per_mille(&self, look: &Look) -> u64 {
        let kept_bytes = self.options.log.segment_size_max_bytes * 5 / 2;
        let used_bytes = self.log.space().used_bytes;
        let space_bytes = used_bytes.saturating_sub(look.freeable_bytes + kept_bytes);
        space_bytes.saturating_mul(1000) / self.state.live_bytes().max(1)
    }

    fn cheapest(&self, now: BootTime, look: &Look, full: Option<FullLimits>) -> Option<Victim> {
        let end = self.log.end().as_u64();
        let open_unit = self.state.units_around(&(end..end + 1));
        let evacuation = &self.maintenance.evacuation;
        let is_put_off = |first: &LogPosition| {
            let put_off = evacuation.put_off.get(first);
            put_off.is_some_and(|it| !it.until.has_passed(now))
        };
        let candidates = look.segments.values().filter_map(|seen| {
            let first = seen.first;
            let positions = self.state.units_around(&seen.records);
            // What moves goes into the open unit, and must not keep the victim.
            let is_victim = seen.live_bytes > 0
                && positions.end <= open_unit.start
                && !evacuation.unreadable.contains(&first)
                && !is_put_off(&first)
                && self.is_worth_moving(seen, full);
            is_victim.then(|| (share_per_mille(seen), first, positions))
        });
        let (_, first, positions) = candidates.min_by_key(|(share, first, _)| (*share, *first))?;
        Some(Victim {
            first,
            positions,
            cursor: Some(BodyCursor::default()),
            piece: BodyCursor::default(),
            has_moved: false,
            moved: MovedBodies::default(),
        })
    }

    fn is_worth_moving(&self, seen: &Seen, full: Option<FullLimits>) -> bool {
        let evacuation = &self.maintenance.evacuation;
        let share = share_per_mille(seen);
        if let Some(full) = full {
            // The bodies of one victim have room in half of a small segment.
            let is_little = seen.live_bytes <= full.batch_size_bytes_max / 2;
            return share < FULL_VICTIM_SHARE_PER_MILLE_MAX && is_little && full.takes_moves;
        }
        let most = match evacuation.excess_per_mille > FAR_EXCESS_PER_MILLE {
            true => FAR_VICTIM_SHARE_PER_MILLE_MAX,
            false => VICTIM_SHARE_PER_MILLE_MAX,
        };
        share < most
    }

    fn piece_bytes(&self) -> u64 {
        self.options.log.batch_size_max_bytes / PIECES_OF_BATCH
    }

    /// Takes the next step, if it is time: looks for bodies to read.
    pub(super) fn evacuate(&mut self, now: BootTime) {
        let piece_bytes = self.piece_bytes();
        let evacuation = &mut self.maintenance.evacuation;
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
        let evacuation = &mut self.maintenance.evacuation;
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
        self.note_missing(now, put_off.is_some());
    }

    /// Notes that records are missing, and whether they could not be read. After a few times, another segment is emptied
    /// meanwhile.
    fn note_missing(&mut self, now: BootTime, has_failed: bool) {
        let evacuation = &mut self.maintenance.evacuation;
        evacuation.failed_reads += u32::from(has_failed);
        if evacuation.failed_reads <= FAILED_READS_MAX {
            return;
        }
        if let Some(first) = evacuation.victim.as_ref().map(|victim| victim.first) {
            evacuation.let_rest(first, now);
        }
        self.give_up_search();
        self.maintenance.look_now(now);
    }

    /// Ends a search, and what it has asked for.
    fn give_up_search(&mut self) {
        self.maintenance.evacuation.give_up();
        self.loads.release_walk(Asker::Evacuation);
    }

    /// A search has seen everything. Messages may have gone to entities that it had passed: then there is another one.
    fn end_search(&mut self, now: BootTime) {
        self.loads.release_walk(Asker::Evacuation);
        let evacuation = &mut self.maintenance.evacuation;
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
        if !is_empty {
            evacuation.unreadable.insert(victim.first);
        }
        evacuation.victim = None;
        self.maintenance.look_now(now);
    }

    /// Notes the bytes of a batch that is about to be appended.
    pub(super) fn note_appended(&mut self, size_bytes: u64, moved: Moved) {
        self.maintenance.look_soon(self.now.boot);
        let piece_bytes = self.piece_bytes();
        let evacuation = &mut self.maintenance.evacuation;
        if moved.written_bytes > 0
            && let Some(active) = self.log.segment_of(self.log.end())
        {
            evacuation.moved.entry(active.first).or_default().add(moved);
        }
        if evacuation.victim.is_some() {
            let size_bytes = size_bytes.saturating_sub(moved.written_bytes);
            evacuation.allow(size_bytes, piece_bytes);
        }
    }
}

/// For metrics.
impl<T> Partition<T> {
    /// How many bytes of the log bodies took that were moved to its end, since the open.
    pub fn moved_bytes(&self) -> u64 {
        self.maintenance.evacuation.moved_bytes
    }

    /// How many bodies could not be read to move them, since the open. Their segments stay.
    pub fn unmoved_count(&self) -> u64 {
        self.maintenance.evacuation.unread_count
    }

    /// How many bodies were moved since the open.
    pub fn moved_count(&self) -> u64 {
        self.maintenance.evacuation.moved_count
    }
}
