//! Which segment is to be emptied: the one with the smallest share of live bytes, once space is too much.
//!
//! What moves is bounded, also if nothing else happens. A victim's bodies take at most 85 % of its records' bytes once
//! they have moved, with what the events of the moves add. That is known of segments that were written since the open,
//! by [`MovedBytes`]. So a segment full of moved bodies is no victim before some of them were deleted.
//!
//! Bytes are counted in units of positions, so the victim's bodies are those of all units that it touches, and all of
//! these lie before the unit in which the log ends: a moved body never lies in them, and the victim gets empty.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::super::SegmentLog;
use super::look::{Look, Seen, positions};
use crate::{BootTime, FullLimits, LiveBytes, LogPosition, MovedBytes, Tidied, VictimEnd};

/// Above this many thousandths of the live bytes, space is too much: if the log is idle, and if there are commands.
const IDLE_EXCESS_PER_MILLE: u64 = 1200;
const BUSY_EXCESS_PER_MILLE: u64 = 1150;

/// The most that moved bodies are of what is appended while there are commands, in thousandths. It is reached at so many
/// thousandths of the live bytes above what is too much.
const MOVED_SHARE_PER_MILLE_MAX: u64 = 500;
const MOST_MOVED_BEYOND_PER_MILLE: u64 = 200;

/// Or if less than one part in so many is free of the disk space that segments take or could take.
const SCARCE_ONE_IN: u64 = 10;

/// Segments with a larger share of live bytes are no victims, unless space is far too much.
const VICTIM_SHARE_PER_MILLE_MAX: u64 = 700;
const FAR_EXCESS_PER_MILLE: u64 = 1300;
const FAR_VICTIM_SHARE_PER_MILLE_MAX: u64 = 850;
/// The same on a full disk, where the moved bodies take space that settlements may need.
const FULL_VICTIM_SHARE_PER_MILLE_MAX: u64 = 125;

/// For how long a segment rests whose messages cannot be read or moved: longer each time.
const PAUSE_MS: u64 = 10_000;
const PAUSE_MS_MAX: u64 = 600_000;

/// The victim, and what is known of segments that are none.
#[derive(Debug, Default)]
pub(super) struct Victims {
    /// The segment that is being emptied.
    victim: Option<LogPosition>,
    /// Segments with a body that cannot be read.
    unreadable: BTreeSet<LogPosition>,
    /// Segments that rest: records that moving their bodies needs could not be read, or a full disk does not take them.
    put_off: BTreeMap<LogPosition, PutOff>,
    /// The segments in which moved bodies were written.
    moved: BTreeMap<LogPosition, MovedBytes>,
}

/// How long a segment rests.
#[derive(Clone, Copy, Debug)]
struct PutOff {
    until: BootTime,
    pause_ms: u64,
}

impl MovedBytes {
    /// What the events around so many live bytes take, beyond what is counted for them.
    fn beyond_bytes(self, live_bytes: u64) -> u64 {
        let beyond = self.written_bytes.saturating_sub(self.live_bytes);
        let live_bytes = live_bytes.min(self.live_bytes);
        beyond.saturating_mul(live_bytes) / self.live_bytes.max(1)
    }
}

impl Victims {
    /// What the events of moves take beyond the live bytes of a segment.
    pub(super) fn beyond_bytes(&self, first: LogPosition, live_bytes: u64) -> u64 {
        let moved = self.moved.get(&first).copied();
        moved.unwrap_or_default().beyond_bytes(live_bytes)
    }

    /// When the next segment has rested. [`BootTime::NEVER`] if none rests.
    pub(super) fn put_off_until(&self, now: BootTime) -> BootTime {
        let all = self.put_off.values().map(|it| it.until);
        let next = all.filter(|until| !until.has_passed(now)).min();
        next.unwrap_or(BootTime::NEVER)
    }

    fn is_resting(&self, first: LogPosition, now: BootTime) -> bool {
        let put_off = self.put_off.get(&first);
        put_off.is_some_and(|it| !it.until.has_passed(now))
    }

    /// Lets a segment rest whose messages cannot be read or moved: twice as long as the last time.
    fn let_rest(&mut self, first: LogPosition, now: BootTime) {
        let before = self.put_off.get(&first);
        let pause_ms = before.map_or(PAUSE_MS, |it| 2 * it.pause_ms);
        let pause_ms = pause_ms.min(PAUSE_MS_MAX);
        let until = now.plus_ms(pause_ms);
        self.put_off.insert(first, PutOff { until, pause_ms });
    }

    fn forget_others(&mut self, known: &BTreeMap<LogPosition, Seen>) {
        self.moved.retain(|first, _| known.contains_key(first));
        self.unreadable.retain(|first| known.contains_key(first));
        self.put_off.retain(|first, _| known.contains_key(first));
    }
}

impl SegmentLog {
    /// Notes how emptying the victim has ended.
    pub fn end_victim(&mut self, end: VictimEnd) {
        let now = self.tidying.now;
        let victims = &mut self.tidying.victims;
        let Some(first) = victims.victim.take() else {
            return;
        };
        match end {
            VictimEnd::Emptied | VictimEnd::GivenUp => {}
            VictimEnd::Unreadable => {
                victims.unreadable.insert(first);
            }
            VictimEnd::Paused | VictimEnd::TooLarge => victims.let_rest(first, now),
        }
        match end {
            VictimEnd::Emptied | VictimEnd::Unreadable | VictimEnd::Paused => {
                self.tidying.look_now()
            }
            // There is no hurry.
            VictimEnd::TooLarge | VictimEnd::GivenUp => self.tidying.look_soon(),
        }
    }

    /// Notes what of a batch only moves.
    pub(in crate::log) fn note_moved(&mut self, batch: MovedBytes) {
        if batch.written_bytes > 0 {
            let moved = &mut self.tidying.victims.moved;
            let moved = moved.entry(self.active.first()).or_default();
            moved.written_bytes += batch.written_bytes;
            moved.live_bytes += batch.live_bytes;
        }
    }

    /// Chooses a segment to empty, if space is too much. Returns whether there is one.
    pub(super) fn choose_victim(
        &mut self,
        live: &dyn LiveBytes,
        look: &Look,
        is_idle: bool,
        tidied: &mut Tidied,
    ) -> bool {
        let full = self.limits().full;
        let excess_per_mille = self.excess_per_mille(live, look);
        tidied.moved_share_per_mille = Some(match self.is_disk_scarce(look) {
            true => MOVED_SHARE_PER_MILLE_MAX,
            false => moved_share_per_mille(excess_per_mille),
        });
        let most_per_mille = match is_idle {
            true => IDLE_EXCESS_PER_MILLE,
            false => BUSY_EXCESS_PER_MILLE,
        };
        self.tidying.victims.forget_others(&look.segments);
        let is_too_much = full.is_some() || excess_per_mille > most_per_mille;
        if is_too_much && self.tidying.victims.victim.is_none() {
            let most_per_mille = match excess_per_mille > FAR_EXCESS_PER_MILLE {
                true => FAR_VICTIM_SHARE_PER_MILLE_MAX,
                false => VICTIM_SHARE_PER_MILLE_MAX,
            };
            let is_worth_moving = |seen: &Seen| match full {
                Some(full) => seen.is_worth_moving_on_full_disk(full),
                None => seen.share_per_mille() < most_per_mille,
            };
            if let Some((first, units)) = self.cheapest(live, look, is_worth_moving) {
                self.tidying.victims.victim = Some(first);
                tidied.victim = Some(units);
            }
        }
        self.tidying.victims.victim.is_some()
    }

    /// The space of segments in thousandths of the live bytes. Segments without live bytes go without a copy. Two are
    /// always needed. Half of one more keeps few bodies from moving forever, because a move may begin a segment.
    fn excess_per_mille(&self, live: &dyn LiveBytes, look: &Look) -> u64 {
        let kept_bytes = self.options.segment_size_max_bytes * 5 / 2;
        let space_bytes = look
            .used_bytes
            .saturating_sub(look.freeable_bytes + kept_bytes);
        space_bytes.saturating_mul(1000) / live.all_bytes().max(1)
    }

    /// Whether little of the disk was free when the last segment was prepared: other programs may use it, too.
    fn is_disk_scarce(&self, look: &Look) -> bool {
        let free_bytes = self.tidying.free_bytes;
        free_bytes.is_some_and(|free| free < (look.used_bytes + free) / SCARCE_ONE_IN)
    }

    /// The segment that costs least, and the units to empty.
    fn cheapest(
        &self,
        live: &dyn LiveBytes,
        look: &Look,
        is_worth_moving: impl Fn(&Seen) -> bool,
    ) -> Option<(LogPosition, Range<LogPosition>)> {
        let (victims, now) = (&self.tidying.victims, self.tidying.now);
        let open_unit = live.units_around(self.end..self.end.plus(1));
        let candidates = look.segments.values().filter_map(|seen| {
            let first = seen.first;
            let units = live.units_around(positions(&seen.records));
            // What moves goes into the open unit, and must not keep the victim.
            let is_victim = seen.live_bytes > 0
                && units.end <= open_unit.start
                && !victims.unreadable.contains(&first)
                && !victims.is_resting(first, now)
                && is_worth_moving(seen);
            is_victim.then(|| (seen.share_per_mille(), first, units))
        });
        let cheapest = candidates.min_by_key(|(share, first, _)| (*share, *first));
        cheapest.map(|(_, first, units)| (first, units))
    }
}

/// Which part of what is appended moved bodies may be, if segments take so many thousandths of the live bytes.
fn moved_share_per_mille(excess_per_mille: u64) -> u64 {
    let beyond = excess_per_mille.saturating_sub(BUSY_EXCESS_PER_MILLE);
    beyond.min(MOST_MOVED_BEYOND_PER_MILLE) * MOVED_SHARE_PER_MILLE_MAX
        / MOST_MOVED_BEYOND_PER_MILLE
}

impl Seen {
    /// What its bodies will take when they have moved, in thousandths of what goes then.
    fn share_per_mille(&self) -> u64 {
        let cost_bytes = self.live_bytes + self.beyond_bytes;
        cost_bytes.saturating_mul(1000) / self.frees_bytes.max(1)
    }

    fn is_worth_moving_on_full_disk(&self, full: FullLimits) -> bool {
        // The bodies of one victim have room in half of a small segment.
        let is_little = self.live_bytes <= full.batch_size_bytes_max / 2;
        let is_cheap = self.share_per_mille() < FULL_VICTIM_SHARE_PER_MILLE_MAX;
        is_cheap && is_little && full.takes_moves
    }
}
