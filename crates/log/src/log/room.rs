//! Room for a batch: in the active segment, or in the next one once it is prepared.

use crate::ballast::Ballast;
use crate::format::BEAT_RECORD_SIZE;
use crate::options::{BATCH_SIZE_BYTES_MAX, room_bytes};
use crate::{Need, Reservation, ReserveError, Urgency};

use super::SegmentLog;
use super::prepare::Successor;

/// The room that settlements leave in a full segment, for some [beats](SegmentLog::beat).
pub(super) const SPARE_BEATS_BYTES: u64 = 4 * BEAT_RECORD_SIZE;

impl SegmentLog {
    /// Reserves room for one batch, of the size needed and a minimum. Continues in the next segment if this one is
    /// nearly full.
    ///
    /// A need to grow may exceed the usual bound of a batch. If it needs a larger segment, one is made for it. There is
    /// never more room than [`BATCH_SIZE_BYTES_MAX`]. The reservation holds until the next call that appends or
    /// reserves.
    pub fn reserve(&mut self, need: Need) -> Result<Reservation, ReserveError> {
        let reserved = match need.urgency {
            Urgency::Grow => {
                let reserved = self.reserve_to_grow(need.size_bytes);
                self.tidying.note_growth(&reserved);
                reserved
            }
            Urgency::Free => {
                let reserved = self.reserve_to_free(need.size_bytes);
                self.tidying.note_freeing(&reserved);
                reserved
            }
        };
        self.reserved = reserved.as_ref().ok().copied();
        reserved
    }

    fn reserve_to_grow(&mut self, least: u64) -> Result<Reservation, ReserveError> {
        self.check_growth()?;
        let least = least.max(self.options.turn_space_min_bytes);
        let least = least.min(BATCH_SIZE_BYTES_MAX);
        let kept = self.options.settlement_reserve_bytes;
        let reserved = self.reserve_with(least, kept);
        self.wanted_room_bytes = match reserved {
            Err(ReserveError::NotPrepared) => least,
            Ok(_) | Err(ReserveError::NoSpace | ReserveError::Ended(_)) => 0,
        };
        reserved
    }

    fn reserve_to_free(&mut self, least: u64) -> Result<Reservation, ReserveError> {
        let least = least.max(self.options.settlement_turn_bytes());
        let least = least.min(self.settlement_size_bytes_max());
        let reserved = self.reserve_with(least, SPARE_BEATS_BYTES);
        if let Err(ReserveError::NotPrepared) = reserved {
            self.want_segment_for_settlements();
        }
        reserved
    }

    /// Whether there may be room for new messages at all.
    fn check_growth(&mut self) -> Result<(), ReserveError> {
        self.check_ended()?;
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
        self.check_ended()?;
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
                .min(self.options.batch_size_max_bytes.max(least))
                .min(BATCH_SIZE_BYTES_MAX),
        })
    }

    /// The room in the active segment. While no next segment is ready, `kept` bytes are held back.
    pub(super) fn free_room(&self, kept: u64) -> u64 {
        let room = self.active_room_bytes();
        match self.successor {
            Successor::Ready(_) => room,
            Successor::Wanted | Successor::Preparing { .. } | Successor::NoSpace => {
                room.saturating_sub(kept)
            }
        }
    }

    pub(super) fn active_room_bytes(&self) -> u64 {
        let limit = self.active.limit().as_u64();
        room_bytes(limit.saturating_sub(self.end.as_u64()))
    }
}
