//! Makes a partition of a restored backup, in which nothing means what clients may remember from after it.
//!
//! The server that was backed up has gone on. Its clients may hold ids, receipts and lock tokens from after the
//! backup. If numbers continued where the backup ends, such a receipt could settle another message. So the
//! restored log begins anew, as after a repair, with numbers far beyond.

use kew_engine::{Skip, State};
use kew_log::{LogPosition, OpenError, ReplayEnd, Salvage, Storage, replay};

use crate::partition::{Content, Replayed, to_log};
use crate::{Partition, PartitionOptions, RepairError};

/// The state in a backup.
pub struct Restore {
    state: State,
    end: ReplayEnd,
}

impl Restore {
    /// Reads the state as a start would, and changes nothing.
    pub fn read(storage: &dyn Storage) -> Result<Self, OpenError> {
        let mut replayed = Replayed(State::new());
        let end = replay(storage, &mut replayed)?;
        Ok(Self {
            state: replayed.0,
            end,
        })
    }

    /// Where the log ends that was read.
    pub fn position(&self) -> LogPosition {
        self.end.position
    }

    /// How many queues and messages there are.
    pub fn counts(&self) -> (usize, u64) {
        self.state.counts()
    }

    /// Lets a log begin anew with this state. `storage` holds the log that was read, or a copy of it.
    ///
    /// `entropy` seeds the segment salts. `secret` is for a log that was empty. Old segments without bodies, and
    /// old snapshots, are removed. A crash leaves a directory that must not be used.
    pub fn carry_out(
        mut self,
        storage: &dyn Storage,
        options: PartitionOptions,
        entropy: u64,
        secret: [u8; 16],
    ) -> Result<(), RestoreError> {
        self.state.skip_numbers(Skip::BACKUP);
        let mut content = Content::Shared(self.state.share());
        let live: Vec<_> = self.state.bodies().map(to_log).collect();
        let salvage = Salvage::look(storage)?;
        let rebuilt = salvage.rebuild(&options.log, &mut content, live, entropy)?;
        let wall = self.state.last_event_at();
        Partition::<()>::open_repaired(storage, options, entropy, secret, wall)?;
        Ok(kew_log::remove(storage, &rebuilt.set_aside).map_err(OpenError::from)?)
    }
}

/// Why a restored partition could not be made.
pub type RestoreError = RepairError;
