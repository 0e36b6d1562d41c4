//! Draining a full disk: what is kept for it, when it begins, and when it is over.
//!
//! A disk must be drained to the last message, however many there are, without a restart. What that takes is
//! put aside in the ballast, which grows with the state: new messages have room only while it is
//! whole ([`Log::reserve`]). When there is no space for more of it, for a segment or for a snapshot, the log
//! *drains*: new messages have no room; settlements go on in small segments, and snapshots are written every
//! few of them, both in the ballast's space. So the space that settlements took comes back, and consumers may
//! take as many as they need. The log goes back to taking messages when the ballast is whole again and
//! a segment more was made.
//!
//! What the ballast must hold, where U is the size of a first segment, s the most that a snapshot takes, and
//! s1, s2 what the two that are kept take of that:
//!
//! - 3 s − s1 − s2 for snapshots: two are kept while a third is written;
//! - 3 max(U/2, s/8) for what is settled between three snapshots;
//! - 7 U: a segment that is used in part at either end, one that is prepared, one for what is lost where segments
//!   end, two that are kept by the changes to messages that they hold, and one for each of two recoveries.
//!
//! While draining, jobs that take the ballast's space and the one that makes it are never out together.

use std::collections::BTreeSet;

use super::Log;
use super::prepare::Successor;
use super::room::SPARE_MARKS_BYTES;
use crate::ballast::{Ballast, MadeBallast};
use crate::format::SEGMENT_HEADER_BLOCK_SIZE;
use crate::job::MakeBallast;
use crate::options::room_bytes;
use crate::segment::MakeError;
use crate::storage::IoFailure;
use crate::{LogOptions, LogPosition};

/// The ballast grows by so much at a time: a segment that somebody waits for is prepared in between.
const BALLAST_STEP_BYTES: u64 = 8 << 20;

/// In so many segments settlements may bring bodies while the log drains.
const SEGMENTS_WITH_BODIES_MAX: usize = 2;

/// What is kept to drain a full disk, and whether it is being drained.
pub(super) struct Drain {
    pub(super) ballast: Ballast,
    ballast_bytes: u64,
    /// The most that a snapshot takes, as the owner of the state said last; `None` before that.
    state_size_bytes: Option<u64>,
    is_draining: bool,
    /// While draining: something was freed, or time has passed, and it is to be seen if it can end.
    is_end_tried: bool,
    /// While draining: settlements wait for a segment.
    is_segment_wanted: bool,
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
            state_size_bytes: None,
            is_draining,
            is_end_tried: is_draining,
            is_segment_wanted: false,
            with_bodies: BTreeSet::new(),
        }
    }
}

/// What the owner of the state asks and says.
impl Log {
    /// Says how much a snapshot takes at most. From then on new messages have room only while what it takes to
    /// drain so much is put aside.
    pub fn keep_for_draining(&mut self, state_size_bytes: u64) {
        self.drain.state_size_bytes = Some(state_size_bytes);
    }

    /// Whether the disk was found full, and is being drained.
    pub fn is_draining(&self) -> bool {
        self.drain.is_draining
    }

    /// While draining, a snapshot is due after so many bytes.
    pub fn drain_interval_bytes(&self) -> u64 {
        let state_size_bytes = self.drain.state_size_bytes.unwrap_or(0);
        (self.options.segment_size_first_bytes / 2).max(state_size_bytes / 8)
    }

    /// Whether a settlement may bring a body now. What it brings keeps its segment, so that on a full disk only
    /// few segments may have any.
    pub fn takes_bodies(&self) -> bool {
        let with_bodies = &self.drain.with_bodies;
        !self.drain.is_draining
            || with_bodies.len() < SEGMENTS_WITH_BODIES_MAX
            || with_bodies.contains(&self.active.base())
    }

    /// The largest batch of settlements that is let through while draining.
    pub fn settlement_size_bytes_max(&self) -> u64 {
        let capacity_bytes = self.options.segment_size_first_bytes - SEGMENT_HEADER_BLOCK_SIZE;
        room_bytes(capacity_bytes).saturating_sub(SPARE_MARKS_BYTES)
    }

    /// Size of the file that keeps space for draining.
    pub(super) fn ballast_bytes(&self) -> u64 {
        self.drain.ballast_bytes
    }

    /// What the ballast must hold for new messages to have room.
    pub(super) fn ballast_least_bytes(&self) -> u64 {
        if self.drain.ballast == Ballast::Off {
            return 0;
        }
        let Some(state_size_bytes) = self.drain.state_size_bytes else {
            return match self.drain.is_draining {
                true => self.options.ballast_size_bytes,
                false => 0,
            };
        };
        let kept_bytes = self.reclaim.kept_size_bytes(state_size_bytes);
        let snapshots_bytes = state_size_bytes * 3 - kept_bytes;
        let settled_bytes = self.drain_interval_bytes() * 3;
        let segments_bytes = self.options.segment_size_first_bytes * 7;
        (snapshots_bytes + settled_bytes + segments_bytes).max(self.options.ballast_size_bytes)
    }

    /// Whether all is put aside that draining takes.
    pub(super) fn is_ballast_whole(&self) -> bool {
        self.drain.ballast_bytes >= self.ballast_least_bytes()
    }
}

/// When it begins, and when it is over.
impl Log {
    /// The disk is full.
    pub(super) fn begin_draining(&mut self) {
        if !self.drain.is_draining {
            self.drain.is_draining = true;
            self.drain.is_end_tried = false;
            self.drain.is_segment_wanted = false;
            // What is kept for use is worth more as space.
            self.reclaim.retire_surplus(&mut self.recycled);
        }
    }

    /// Something was freed, or time has passed.
    pub(super) fn try_to_end_draining(&mut self) {
        self.drain.is_end_tried = true;
        self.reclaim.retry_retire();
        if self.drain.ballast == Ballast::NoSpace {
            self.drain.ballast = Ballast::Idle;
        }
        if matches!(self.successor, Successor::NoSpace) {
            self.successor = Successor::Wanted;
        }
        // All may be there: a snapshot alone had no space.
        self.end_draining();
    }

    /// Takes messages again if there is what that needs.
    fn end_draining(&mut self) {
        let has_segment = matches!(self.successor, Successor::Ready(_));
        if self.drain.is_draining
            && self.drain.is_end_tried
            // The next snapshot may have what is put aside.
            && self.snapshot_error().is_none()
            && has_segment
            && self.is_ballast_whole()
        {
            self.drain.is_draining = false;
            self.drain.is_segment_wanted = false;
            self.drain.with_bodies.clear();
        }
    }

    /// Settlements found no room in the active segment.
    pub(super) fn want_segment_for_settlements(&mut self) {
        self.drain.is_segment_wanted = true;
    }

    /// The log went on in the next segment.
    pub(super) fn rolled_while_draining(&mut self) {
        self.drain.is_segment_wanted = false;
    }

    pub(super) fn note_bodies(&mut self) {
        if self.drain.is_draining {
            self.drain.with_bodies.insert(self.active.base());
        }
    }

    pub(super) fn forget_retired_bodies(&mut self) {
        let segments = &self.segments;
        let with_bodies = &mut self.drain.with_bodies;
        with_bodies.retain(|base| segments.contains_key(base));
    }
}

/// Jobs, and what becomes of them.
impl Log {
    /// Whether the next segment is to be prepared, and if so whether it may have the ballast's space.
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
        !self.drain.is_draining || (self.drain.ballast != Ballast::Making && !is_preparing)
    }

    pub(super) fn next_ballast(&mut self) -> Option<MakeBallast> {
        if self.drain.ballast != Ballast::Idle {
            return None;
        }
        let least_bytes = self.ballast_least_bytes();
        let ahead_bytes = self.options.segment_size_first_bytes.max(least_bytes / 8);
        let from_bytes = self.drain.ballast_bytes;
        let (size_bytes, spare_bytes) = if self.drain.is_draining {
            let is_preparing = matches!(self.successor, Successor::Preparing { .. });
            let is_quiet = !is_preparing && !self.reclaim.is_busy();
            if !self.drain.is_end_tried || !is_quiet {
                return None;
            }
            // More than is needed now is space for messages.
            let is_large = from_bytes > least_bytes + 2 * ahead_bytes;
            if from_bytes >= least_bytes && !is_large {
                return None;
            }
            // With more than the ballast takes ahead and the next segments do, so that the disk is not full again
            // at once.
            let spare_bytes = 2 * (ahead_bytes + self.options.segment_size_first_bytes);
            (least_bytes, spare_bytes)
        } else if self.drain.state_size_bytes.is_none() {
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
        // One that is to be smaller begins anew.
        let kept_bytes = match from_bytes > size_bytes {
            true => 0,
            false => from_bytes,
        };
        let step_bytes = size_bytes.min(kept_bytes + BALLAST_STEP_BYTES);
        Some(MakeBallast {
            from_bytes,
            size_bytes: step_bytes,
            // There must be space for all of it before the first step.
            spare_bytes: spare_bytes + size_bytes - step_bytes,
        })
    }

    pub(super) fn ballast_done(&mut self, made: MadeBallast) -> Option<IoFailure> {
        self.drain.ballast_bytes = made.size_bytes;
        self.drain.ballast = Ballast::Idle;
        match made.result {
            Ok(()) => self.end_draining(),
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

    /// A snapshot or a segment has its space now.
    pub(super) fn ballast_taken(&mut self) {
        self.drain.ballast_bytes = 0;
        if self.drain.ballast == Ballast::NoSpace {
            self.drain.ballast = Ballast::Idle;
        }
        self.drain.is_end_tried = false;
    }

    /// A segment was prepared, or there was no space for it.
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
