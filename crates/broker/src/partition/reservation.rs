//! Reserves room in the log for a turn; on a full disk, only for commands that free messages.

use kew_engine::bus::DUE_SIZE_BYTES_MAX;
use kew_log::{LogEnd, Need, Reservation, ReserveError};

use super::Partition;
use super::space::{Space, due_bytes_on_full_disk};
use crate::Waiting;

/// Why nothing can be decided.
pub(super) enum NoRoom {
    /// Nothing can be before a job is done.
    WaitForJob,
    /// The log has ended.
    Ended(LogEnd),
}

impl<T> Partition<T> {
    /// Makes the log keep enough space to drain the state, including what the next batch adds to it.
    pub(super) fn keep_for_draining(&mut self) {
        let may_be_cold = self.limit_bytes().is_some() || self.state.needs_pages();
        let options = &self.options.log;
        let to_drain = self.measured.measure(&self.state, may_be_cold, options);
        self.log.keep_for_draining(to_drain);
    }

    /// Reserves room for due events and at least the first command. A turn without a reservation writes nothing.
    pub(super) fn reserve(
        &mut self,
        commands: &mut impl Waiting<T>,
    ) -> Result<(Option<Reservation>, Space), NoRoom> {
        let first = self.lanes.front_mut().or_else(|| commands.front_mut());
        let plenty = Space::plenty(self.log.limits(), self.options.due_budget);
        let first = first.map_or(0, |command| {
            plenty.needed_bytes(&command.describe(), &self.state)
        });
        let first = first.max(self.moves_size_bytes());
        // One that needs more is refused.
        let first = first.min(plenty.turn_bytes());
        let due_bytes = u64::from(self.options.tick_budget) * DUE_SIZE_BYTES_MAX;
        let aside_bytes = self.quarantine_size_bytes();
        let need = Need::grow(first + due_bytes + aside_bytes);
        match self.log.reserve(need) {
            Ok(reservation) => {
                self.is_out_of_space = false;
                self.is_without_room = false;
                return Ok((Some(reservation), plenty));
            }
            Err(ReserveError::NotPrepared) => return Err(NoRoom::WaitForJob),
            Err(ReserveError::NoSpace) => {}
            Err(ReserveError::Ended(end)) => return Err(NoRoom::Ended(end)),
        }
        self.is_out_of_space = true;
        self.reserve_for_settlement(commands)
    }

    /// Reserves room on a full disk for due events, and for the first command if it frees messages.
    fn reserve_for_settlement(
        &mut self,
        commands: &mut impl Waiting<T>,
    ) -> Result<(Option<Reservation>, Space), NoRoom> {
        let limits = self.log.limits();
        let full = limits
            .full
            .expect("a log that has no space says what it takes");
        let snapshots = self.log.snapshots();
        if snapshots.is_under_way && snapshots.bytes_since >= full.snapshot_after_bytes {
            // Settlements that outpaced the snapshots that free their space would use up all of it.
            return Err(NoRoom::WaitForJob);
        }
        let space = Space::on_full_disk(full);
        let first = self.lanes.front_mut().or_else(|| commands.front_mut());
        let first = first.map_or(0, |command| {
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
        let first = match space.takes_moves(moves_bytes) {
            true => first.max(moves_bytes),
            false => first,
        };
        let reserved = self
            .log
            .reserve(Need::free(first + due_bytes_on_full_disk()));
        self.is_without_room = matches!(reserved, Err(ReserveError::NoSpace));
        match reserved {
            Ok(reservation) => {
                // Another segment may take bodies that the one before did not.
                let full = self.log.limits().full.unwrap_or(full);
                Ok((Some(reservation), Space::on_full_disk(full)))
            }
            Err(ReserveError::NotPrepared) => Err(NoRoom::WaitForJob),
            Err(ReserveError::NoSpace) => Ok((None, Space::None)),
            Err(ReserveError::Ended(end)) => Err(NoRoom::Ended(end)),
        }
    }
}
