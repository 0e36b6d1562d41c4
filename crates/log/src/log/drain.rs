//! Draining a full disk: the space kept for it, its start, and its end.
//!
//! A disk must be drained to the last message, however many there are, without a restart. The space for that
//! is reserved in the ballast, which grows with the state. New messages have room only while the ballast is
//! whole ([`SegmentLog::reserve`]). When there is no space for more ballast, for a segment or for a snapshot, the
//! log *drains*: new messages have no room. Settlements go on in small segments, and a snapshot is written
//! every few of them, both in the ballast's space. So the space of settlements comes back, and consumers may
//! settle as many messages as they need. The log accepts messages again when the ballast is whole and one
//! more segment was made.
//!
//! While the log drains, each snapshot has all pages anew, in files of its own: so what it takes is bounded, and goes with
//! it. A page that cannot be read, and whose content is nowhere else, stays where it lies, with its files.
//!
//! The size of the ballast, where U is the size of a first segment, s the largest size of such a snapshot until all is
//! drained, and p the size of the kept snapshots and of all page files:
//!
//! - 3 s − p, and at least 2 s, for snapshots: two are kept while a third is written. What was kept before goes when two were
//!   written, so it is space for the third;
//! - 3 max(U/2, s/8) for settlements between three snapshots;
//! - 7 U: a partly used segment at either end, a prepared one, one for the loss at the ends of segments, two
//!   that are kept by the changes to messages in them, and one for each of two recoveries.
//!
//! While draining, jobs that use the ballast's space never run beside the job that makes it.

use std::collections::BTreeSet;

use super::SegmentLog;
use super::prepare::Successor;
use super::room::SPARE_BEATS_BYTES;
use crate::ballast::{Ballast, MadeBallast};
use crate::format::SEGMENT_HEADER_BLOCK_SIZE;
use crate::job::MakeBallast;
use crate::options::{BATCH_SIZE_BYTES_MAX, room_bytes};
use crate::pages::ToDrain;
use crate::segment::MakeError;
use crate::storage::IoFailure;
use crate::{FullLimits, LogLimits, LogOptions, LogPosition};

/// The ballast grows in steps of this size, so that a segment that answers wait for can be prepared in
/// between.
const BALLAST_STEP_BYTES: u64 = 8 << 20;

/// The number of segments in which settlements may bring bodies while the log drains.
const SEGMENTS_WITH_BODIES_MAX: usize = 2;

/// The state of draining a full disk, and of the space kept for it.
pub(super) struct Drain {
    pub(super) ballast: Ballast,
    ballast_bytes: u64,
    /// How large the state is, as last reported by its owner. `None` before that.
    state: Option<ToDrain>,
    /// The largest size of a snapshot: now, or the least since the log drains.
    reserved_for_bytes: u64,
    is_draining: bool,
    /// While draining: space was freed or time has passed, so check whether draining can end.
    is_end_tried: bool,
    /// While draining: settlements wait for a segment.
    is_segment_wanted: bool,
    /// Whether to make the ballast smaller, as far as it is larger than needed.
    is_shrinking: bool,
    /// The sizes of the last smaller ballast: the one before it, and its own. It is not tried again if it had no space.
    shrunk: (u64, u64),
    /// Segments in which settlements brought bodies since the log drains.
    with_bodies: BTreeSet<LogPosition>,
}

impl Drain {
    pub(super) fn resume(options: &LogOptions, ballast_bytes: u64, is_draining: bool) -> Self {
        Self {
            ballast: match options.ballast_size_bytes {
                0 => Ballast::Off,
                _ => Ballast::Idle,
            },
            ballast_bytes,
            state: None,
            reserved_for_bytes: 0,
            is_draining,
            is_end_tried: is_draining,
            is_segment_wanted: false,
            is_shrinking: false,
            shrunk: (0, 0),
            with_bodies: BTreeSet::new(),
        }
    }
}

/// Calls of the state's owner.
impl SegmentLog {
    /// Sets how large the state is. From then on new messages have room only while the space to drain that much is
    /// reserved.
    pub fn keep_for_draining(&mut self, state: ToDrain) {
        let is_first = self.drain.state.is_none();
        self.drain.state = Some(state);
        let bytes_max = self.drained_snapshot_bytes_max();
        self.drain.reserved_for_bytes = match is_first || !self.drain.is_draining {
            true => bytes_max,
            // Each of them holds until all is drained.
            false => bytes_max.min(self.drain.reserved_for_bytes),
        };
        self.size_is_known();
    }

    /// The most that a snapshot takes on a full disk, now and until all is drained.
    pub fn drained_snapshot_bytes_max(&self) -> u64 {
        let manifest_bytes = self.reclaim.manifest_size_bytes(&self.pages);
        let state = self.drain.state.as_ref();
        state.map_or(0, |state| {
            self.pages.anew_size_bytes_max(state, manifest_bytes)
        })
    }

    /// The most that a snapshot takes that is begun now. On a full disk, none takes more than the least of that since the log
    /// began to drain, or was opened. `None` if the size of the state is not known.
    pub(super) fn snapshot_bytes_max(&self) -> Option<u64> {
        self.drain.state.as_ref()?;
        let bytes_max = self.drained_snapshot_bytes_max();
        Some(match self.drain.is_draining {
            true => bytes_max.min(self.drain.reserved_for_bytes),
            false => bytes_max,
        })
    }

    /// What the log takes, which is less while the disk is full.
    pub fn limits(&self) -> LogLimits {
        LogLimits {
            batch_size_bytes_max: BATCH_SIZE_BYTES_MAX,
            // The directory is locked, and an idle disk rests.
            heartbeat_ms: None,
            full: self.is_draining().then(|| self.full_limits()),
        }
    }

    fn full_limits(&self) -> FullLimits {
        FullLimits {
            batch_size_bytes_max: self.settlement_size_bytes_max(),
            snapshot_after_bytes: self.drain_interval_bytes(),
            takes_bodies: self.takes_bodies(),
            takes_moves: self.takes_moved_bodies(),
        }
    }

    /// Whether the disk was found full and is being drained.
    pub(super) fn is_draining(&self) -> bool {
        self.drain.is_draining
    }

    /// While draining, a snapshot is due after this many bytes.
    fn drain_interval_bytes(&self) -> u64 {
        (self.options.segment_size_first_bytes / 2).max(self.drain.reserved_for_bytes / 8)
    }

    /// Whether a settlement may bring a body now, while draining.
    fn takes_bodies(&self) -> bool {
        let with_bodies = &self.drain.with_bodies;
        with_bodies.len() < SEGMENTS_WITH_BODIES_MAX || with_bodies.contains(&self.active.first())
    }

    /// Whether bodies that only move may go into the active segment, while draining.
    fn takes_moved_bodies(&self) -> bool {
        let with_bodies = &self.drain.with_bodies;
        let is_only_one = with_bodies.len() == 1 && with_bodies.contains(&self.active.first());
        with_bodies.is_empty() || is_only_one
    }

    /// Makes the ballast smaller, if it is at least twice as large as needed. For an idle log: it takes the time to
    /// write the smaller file. Returns whether it does.
    pub fn shrink_ballast(&mut self) -> bool {
        let is_possible = !self.drain.is_draining && self.drain.ballast == Ballast::Idle;
        let least_bytes = self.ballast_least_bytes();
        let wanted_bytes = least_bytes + self.ballast_ahead_bytes(least_bytes);
        let from_bytes = self.drain.ballast_bytes;
        let is_tried = self.drain.shrunk == (from_bytes, wanted_bytes);
        self.drain.is_shrinking = is_possible && !is_tried && from_bytes >= 2 * wanted_bytes;
        self.drain.is_shrinking
    }

    /// How much more than needed is made, so that growth does not wait.
    fn ballast_ahead_bytes(&self, least_bytes: u64) -> u64 {
        self.options.segment_size_first_bytes.max(least_bytes / 8)
    }

    /// The largest batch of settlements that is accepted while draining.
    pub(super) fn settlement_size_bytes_max(&self) -> u64 {
        let capacity_bytes = self.options.segment_size_first_bytes - SEGMENT_HEADER_BLOCK_SIZE;
        room_bytes(capacity_bytes).saturating_sub(SPARE_BEATS_BYTES)
    }

    /// Size of the file that reserves space for draining.
    pub(super) fn ballast_bytes(&self) -> u64 {
        self.drain.ballast_bytes
    }

    /// The ballast size that is required for new messages to have room.
    pub(super) fn ballast_least_bytes(&self) -> u64 {
        if self.drain.ballast == Ballast::Off {
            return 0;
        }
        if self.drain.state.is_none() {
            return match self.drain.is_draining {
                true => self.options.ballast_size_bytes,
                false => 0,
            };
        }
        let snapshot_bytes = self.drained_snapshot_bytes_max();
        let kept_bytes = self.reclaim.kept_size_bytes(&self.pages);
        let snapshots_bytes = 3 * snapshot_bytes - kept_bytes.min(snapshot_bytes);
        let settled_bytes = self.drain_interval_bytes() * 3;
        let segments_bytes = self.options.segment_size_first_bytes * 7;
        (snapshots_bytes + settled_bytes + segments_bytes).max(self.options.ballast_size_bytes)
    }

    /// Whether all space for draining is reserved.
    pub(super) fn is_ballast_whole(&self) -> bool {
        self.drain.ballast_bytes >= self.ballast_least_bytes()
    }
}

/// Start and end of draining.
impl SegmentLog {
    /// Starts draining: the disk is full.
    pub(super) fn begin_draining(&mut self) {
        if !self.drain.is_draining {
            self.drain.is_draining = true;
            self.drain.is_end_tried = false;
            self.drain.is_segment_wanted = false;
            // Files kept for a backup or for reuse are worth more as space.
            self.reclaim.pins.give_up();
            self.reclaim.retire_surplus(&mut self.recycled);
        }
    }

    /// Checks whether draining can end: space was freed, or time has passed.
    pub(super) fn try_to_end_draining(&mut self) {
        self.drain.is_end_tried = true;
        self.reclaim.retry_retire();
        if self.drain.ballast == Ballast::NoSpace {
            self.drain.ballast = Ballast::Idle;
        }
        if matches!(self.successor, Successor::NoSpace) {
            self.successor = Successor::Wanted;
        }
        // Everything may be there: perhaps only a snapshot had no space.
        self.end_draining();
    }

    /// Accepts messages again if the conditions for it hold.
    fn end_draining(&mut self) {
        let has_segment = matches!(self.successor, Successor::Ready(_));
        if self.drain.is_draining
            && self.drain.is_end_tried
            // The next snapshot may need the reserved space.
            && self.reclaim.snapshot_error.is_none()
            && has_segment
            && self.is_ballast_whole()
        {
            self.drain.is_draining = false;
            self.drain.is_segment_wanted = false;
            self.drain.with_bodies.clear();
        }
    }

    /// Notes that settlements found no room in the active segment.
    pub(super) fn want_segment_for_settlements(&mut self) {
        self.drain.is_segment_wanted = true;
    }

    /// Notes that the log has continued in the next segment.
    pub(super) fn rolled_while_draining(&mut self) {
        self.drain.is_segment_wanted = false;
    }

    pub(super) fn note_bodies(&mut self) {
        if self.drain.is_draining {
            self.drain.with_bodies.insert(self.active.first());
        }
    }

    pub(super) fn forget_retired_bodies(&mut self) {
        let segments = &self.segments;
        let with_bodies = &mut self.drain.with_bodies;
        with_bodies.retain(|first| segments.contains_key(first));
    }
}

/// Jobs and their outcomes.
impl SegmentLog {
    /// Whether to prepare the next segment now, and if so whether it may use the ballast's space.
    pub(super) fn is_prepare_due(&self) -> Option<bool> {
        if !matches!(self.successor, Successor::Wanted) {
            return None;
        }
        if !self.drain.is_draining {
            return Some(false);
        }
        if self.drain.ballast == Ballast::Making {
            return None;
        }
        if self.drain.is_segment_wanted {
            return Some(true);
        }
        (self.drain.is_end_tried && self.is_ballast_whole()).then_some(false)
    }

    /// Whether a snapshot may be written now.
    pub(super) fn is_snapshot_let_through(&self) -> bool {
        let is_preparing = matches!(
            self.successor,
            Successor::Preparing {
                may_take_ballast: false
            }
        );
        // The files that the one before has replaced go first: there is no space for three of them beside what is kept.
        let is_quiet = self.drain.ballast != Ballast::Making
            && !is_preparing
            && !self.reclaim.is_removing(&self.pages);
        !self.drain.is_draining || is_quiet
    }

    pub(super) fn next_ballast(&mut self) -> Option<MakeBallast> {
        if self.drain.ballast != Ballast::Idle {
            return None;
        }
        let least_bytes = self.ballast_least_bytes();
        let ahead_bytes = self.ballast_ahead_bytes(least_bytes);
        let from_bytes = self.drain.ballast_bytes;
        let is_shrinking = std::mem::take(&mut self.drain.is_shrinking);
        if is_shrinking && !self.drain.is_draining && from_bytes > least_bytes + ahead_bytes {
            self.drain.ballast = Ballast::Making;
            self.drain.shrunk = (from_bytes, least_bytes + ahead_bytes);
            return Some(MakeBallast {
                from_bytes,
                size_bytes: least_bytes + ahead_bytes,
                spare_bytes: 0,
                replaces: true,
            });
        }
        let (size_bytes, spare_bytes) = if self.drain.is_draining {
            let is_preparing = matches!(self.successor, Successor::Preparing { .. });
            let is_quiet = !is_preparing && !self.reclaim.is_busy(&self.pages);
            if !self.drain.is_end_tried || !is_quiet {
                return None;
            }
            // Ballast beyond the need is space for messages.
            let is_large = from_bytes > least_bytes + 2 * ahead_bytes;
            if from_bytes >= least_bytes && !is_large {
                return None;
            }
            // Require more space than the ballast takes in advance and the next segments need, so that the
            // disk is not full again at once.
            let spare_bytes = 2 * (ahead_bytes + self.options.segment_size_first_bytes);
            (least_bytes, spare_bytes)
        } else if self.drain.state.is_none() {
            let size_bytes = self.options.ballast_size_bytes;
            if from_bytes >= size_bytes {
                return None;
            }
            (size_bytes, 0)
        } else {
            if from_bytes >= least_bytes + ahead_bytes / 2 {
                return None;
            }
            (least_bytes + ahead_bytes, 0)
        };
        self.drain.ballast = Ballast::Making;
        // A smaller ballast is made from scratch.
        let kept_bytes = match from_bytes > size_bytes {
            true => 0,
            false => from_bytes,
        };
        let step_bytes = size_bytes.min(kept_bytes + BALLAST_STEP_BYTES);
        Some(MakeBallast {
            from_bytes,
            size_bytes: step_bytes,
            // All of it must have space before the first step.
            spare_bytes: spare_bytes + size_bytes - step_bytes,
            replaces: false,
        })
    }

    pub(super) fn ballast_done(&mut self, made: MadeBallast) -> Option<IoFailure> {
        self.drain.ballast_bytes = made.size_bytes;
        self.drain.ballast = Ballast::Idle;
        if made.size_bytes != self.drain.shrunk.0 {
            self.drain.shrunk = (0, 0);
        }
        match made.result {
            Ok(()) => self.end_draining(),
            Err(MakeError::Unfinished(failure)) if failure.is_no_descriptor() => {
                self.is_short_of_descriptors = true;
            }
            Err(MakeError::Unfinished(failure)) if failure.is_no_space() => {
                self.drain.ballast = Ballast::NoSpace;
                self.drain.is_end_tried = false;
                if !self.is_ballast_whole() {
                    self.begin_draining();
                }
            }
            Err(error) => return Some(error.into_failure()),
        }
        None
    }

    /// Notes that a snapshot or a segment has used the ballast's space.
    pub(super) fn ballast_taken(&mut self) {
        self.drain.ballast_bytes = 0;
        if self.drain.ballast == Ballast::NoSpace {
            self.drain.ballast = Ballast::Idle;
        }
        self.drain.is_end_tried = false;
    }

    /// Notes that a segment was prepared, or that it had no space.
    pub(super) fn prepared_while_draining(&mut self, is_there: bool) {
        if is_there {
            self.end_draining();
        } else {
            self.drain.is_end_tried = false;
        }
    }

    /// The size of a segment that is prepared while draining.
    pub(super) fn drain_capacity_bytes(&self) -> Option<u64> {
        let is_draining = self.drain.is_draining;
        is_draining.then_some(self.options.segment_size_first_bytes)
    }
}
