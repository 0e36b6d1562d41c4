//! Pins: the files that a backup copies are not removed while it lasts.
//!
//! A pin changes nothing for the log itself: it forgets segments and snapshots as always. Only the removal of
//! their files waits. So a backup never slows a writer. When the disk is full, the pin is given up at once.

use std::collections::BTreeSet;
use std::sync::Arc;

use thiserror::Error;

use super::SegmentLog;
use crate::backup::{BackupPlan, PlannedPages, PlannedSegment};
use crate::job::Unneeded;
use crate::segment::Segment;
use crate::{LogEnd, LogPosition};

/// Identifies a pin among those of one open log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PinId(u64);

/// Why no backup was begun.
#[derive(Clone, Debug, Error)]
pub enum BeginBackupError {
    /// There is one backup at a time.
    #[error("another backup is in progress")]
    Busy,
    /// Every file that can be removed is needed as space.
    #[error("the disk is full")]
    Full,
    /// The log has no files to copy.
    #[error("the log has no files")]
    NoFiles,
    /// The log has stopped.
    #[error(transparent)]
    Ended(#[from] LogEnd),
}

/// The pins of a log. There is one at most.
#[derive(Default)]
pub(super) struct Pins {
    begun: u64,
    pin: Option<Pin>,
}

struct Pin {
    id: PinId,
    snapshot: Option<LogPosition>,
    /// The first positions of segments.
    segments: BTreeSet<LogPosition>,
}

impl Pins {
    pub(super) fn is_snapshot_pinned(&self, position: LogPosition) -> bool {
        self.pin
            .as_ref()
            .is_some_and(|pin| pin.snapshot == Some(position))
    }

    pub(super) fn is_segment_pinned(&self, segment: &Segment) -> bool {
        self.pin
            .as_ref()
            .is_some_and(|pin| pin.segments.contains(&segment.first()))
    }

    /// Takes the files that no pin holds.
    pub(super) fn take_free(&self, unneeded: &mut Unneeded) -> Unneeded {
        let Unneeded {
            snapshots,
            pairs,
            segments,
            surplus,
        } = unneeded;
        Unneeded {
            // No snapshot that is there names a page in them, also none that is pinned.
            pairs: std::mem::take(pairs),
            snapshots: snapshots
                .extract_if(.., |position| !self.is_snapshot_pinned(*position))
                .collect(),
            segments: segments
                .extract_if(.., |segment| !self.is_segment_pinned(segment))
                .collect(),
            surplus: std::mem::take(surplus),
        }
    }

    /// Whether any of these files is held by no pin.
    pub(super) fn has_free(&self, unneeded: &Unneeded) -> bool {
        let Unneeded {
            snapshots,
            pairs: _,
            segments,
            surplus,
        } = unneeded;
        !surplus.is_empty()
            || snapshots.iter().any(|it| !self.is_snapshot_pinned(*it))
            || segments.iter().any(|it| !self.is_segment_pinned(it))
    }

    pub(super) fn give_up(&mut self) {
        self.pin = None;
    }
}

impl SegmentLog {
    /// Begins a backup of everything that is durable now. The files of its plan stay until
    /// [`SegmentLog::end_backup`], or until the disk is full.
    pub fn begin_backup(&mut self) -> Result<(PinId, BackupPlan), BeginBackupError> {
        self.check_ended()?;
        if self.is_draining() {
            return Err(BeginBackupError::Full);
        }
        if self.reclaim.pins.pin.is_some() {
            return Err(BeginBackupError::Busy);
        }
        let segments = self.needed_from_last_snapshot();
        let position = self.durable;
        let named = self.last_snapshot().map(|at| self.pages.named_by(at));
        let named = named.unwrap_or_default();
        let plan = BackupPlan {
            position,
            snapshot: self.last_snapshot(),
            pages: PlannedPages::of(named),
            segments: segments
                .iter()
                .map(|(segment, next)| PlannedSegment::of(segment, next.as_deref(), position))
                .collect(),
        };
        let pins = &mut self.reclaim.pins;
        pins.begun += 1;
        let id = PinId(pins.begun);
        pins.pin = Some(Pin {
            id,
            snapshot: plan.snapshot,
            segments: segments
                .iter()
                .map(|(segment, _)| segment.first())
                .collect(),
        });
        Ok((id, plan))
    }

    /// The size of the files that are kept only for a backup, in bytes. `None` if its pin was given up.
    pub fn backup_held_bytes(&self, id: PinId) -> Option<u64> {
        self.reclaim.pins.pin.as_ref().filter(|pin| pin.id == id)?;
        Some(self.reclaim.held_bytes(&self.pages))
    }

    /// Ends a backup. The files that were kept for it are removed in the background.
    pub fn end_backup(&mut self, id: PinId) {
        let pins = &mut self.reclaim.pins;
        pins.pin.take_if(|pin| pin.id == id);
    }

    /// The segments that a start from the newest snapshot needs, up to the durable end, each with the segment
    /// after it.
    fn needed_from_last_snapshot(&self) -> Vec<(Arc<Segment>, Option<Arc<Segment>>)> {
        let unneeded = match (self.last_snapshot(), self.reclaim.live_at_last_snapshot()) {
            (Some(snapshot), Some(live)) => self.unneeded(snapshot, live),
            // Without that knowledge, everything that exists is needed.
            (None, _) | (_, None) => Vec::new(),
        };
        let next = self.segments.values().skip(1).map(Some);
        let next = next.chain(std::iter::once(None));
        let all = self.segments.values().zip(next);
        // A segment that begins at the durable end belongs to it, unless nothing is in it yet.
        all.filter(|(segment, _)| segment.first() <= self.durable)
            .filter(|(segment, _)| !unneeded.contains(&segment.first()))
            .map(|(segment, next)| (Arc::clone(segment), next.cloned()))
            .collect()
    }
}
