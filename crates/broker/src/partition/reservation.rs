//! Reserves room in the log for a turn; on a full disk, only for commands that free messages.

use kew_engine::bus::DUE_SIZE_BYTES_MAX;
use kew_log::{BootTime, Log, Reservation, ReserveError};

use super::Partition;
use super::space::{SETTLEMENT_TICK_BUDGET, Space};
use crate::Waiting;

/// Nothing can be decided before a job is done.
pub(super) struct WaitForJob;

impl<T> Partition<T> {
    /// Makes the log keep enough space to drain the state, including what the next batch adds to it.
    pub(super) fn keep_for_draining(&mut self) {
        let may_be_cold = self.limit_bytes().is_some() || self.state.needs_pages();
        let options = &self.options.log;
        let to_drain = self.measured.measure(&self.state, may_be_cold, options);
        self.log.keep_for_draining(to_drain);
    }

    /// Reserves room for due events and at least the first command.
    pub(super) fn reserve(
        &mut self,
        now: BootTime,
        commands: &mut impl Waiting<T>,
    ) -> Result<(Reservation, Space), WaitForJob> {
        let first = self.lanes.front_mut().or_else(|| commands.front_mut());
        let plenty = Space::Plenty {
            due_budget: self.options.due_budget,
        };
        let first = first.map_or(0, |command| {
            plenty.needed_bytes(&command.describe(), &self.state)
        });
        let first = first.max(self.moves_size_bytes());
        // One that needs more is refused.
        let first = first.min(plenty.turn_bytes());
        let due_bytes = u64::from(self.options.tick_budget) * DUE_SIZE_BYTES_MAX;
        let aside_bytes = self.quarantine_size_bytes();
        let reserved = self.log.reserve_room(first + due_bytes + aside_bytes);
        match reserved {
            Ok(reservation) => {
                self.space_retry_at = None;
                self.is_without_room = false;
                return Ok((reservation, plenty));
            }
            Err(ReserveError::NotPrepared) => return Err(WaitForJob),
            Err(ReserveError::NoSpace) => {}
            Err(ReserveError::Ended(_)) => {
                self.stopped = true;
                return Err(WaitForJob);
            }
        }
        // Retry at once the first time: there may be something to free.
        self.space_retry_at.get_or_insert(now);
        self.reserve_for_settlement(commands)
    }

    /// Reserves room on a full disk for due events, and for the first command if it frees messages.
    fn reserve_for_settlement(
        &mut self,
        commands: &mut impl Waiting<T>,
    ) -> Result<(Reservation, Space), WaitForJob> {
        let interval_bytes = self.log.drain_interval_bytes();
        if self.log.is_snapshotting() && self.log.bytes_since_snapshot() >= interval_bytes {
            // Settlements that outpaced the snapshots that free their space would use up all of it.
            return Err(WaitForJob);
        }
        let due_bytes = u64::from(SETTLEMENT_TICK_BUDGET) * DUE_SIZE_BYTES_MAX;
        let size_bytes_max = self.log.settlement_size_bytes_max();
        let settlement_only = |log: &Log| Space::SettlementOnly {
            size_bytes_max: size_bytes_max.saturating_sub(due_bytes),
            takes_bodies: log.takes_bodies(),
        };
        let first = self.lanes.front_mut().or_else(|| commands.front_mut());
        let first = first.map_or(0, |command| {
            let space = settlement_only(&self.log);
            space.trim(command, &self.state);
            let command = command.describe();
            let needed = space.needed_bytes(&command, &self.state);
            if space.admits(&command, needed) {
                needed
            } else {
                0
            }
        });
        let moves_bytes = self.moves_size_bytes();
        let first = match settlement_only(&self.log).takes_moves(moves_bytes, &self.log) {
            true => first.max(moves_bytes),
            false => first,
        };
        let reserved = self.log.reserve_for_settlement(first + due_bytes);
        self.is_without_room = matches!(reserved, Err(ReserveError::NoSpace));
        match reserved {
            Ok(reservation) => Ok((reservation, settlement_only(&self.log))),
            Err(ReserveError::NotPrepared) => Err(WaitForJob),
            Err(ReserveError::NoSpace) => Ok((self.nothing_reserved(), Space::None)),
            Err(ReserveError::Ended(_)) => {
                self.stopped = true;
                Err(WaitForJob)
            }
        }
    }

    /// An empty reservation, for a turn that must not write anything.
    fn nothing_reserved(&self) -> Reservation {
        Reservation {
            epoch: self.log.epoch(),
            position: self.log.end(),
            room_bytes: 0,
        }
    }
}
