//! Makes a partition of a restored backup, in which nothing means what clients may remember from after it.
//!
//! The server that was backed up has gone on. Its clients may hold ids, receipts and lock tokens from after the
//! backup. If numbers continued where the backup ends, such a receipt could settle another message. So the
//! restored log begins anew, as after a repair, with numbers far beyond.

use std::sync::Arc;

use kew_engine::{CountUnit, Skip, State};
use kew_log::{FirstFormatLog, LogPosition, OpenError, ReplayEnd, Salvage, Storage, replay};

use crate::follower::Replayed;
use crate::migrate::OldPartition;
use crate::partition::{Content, to_log};
use crate::{Partition, PartitionOptions, RepairError};

/// The state in a backup.
pub struct Restore(Read);

enum Read {
    Current {
        state: State,
        end: ReplayEnd,
    },
    /// A backup of a log of the format before.
    Old(OldPartition),
}

impl Restore {
    /// Reads the state as a start would, and changes nothing.
    pub fn read(storage: &dyn Storage) -> Result<Self, OpenError> {
        if FirstFormatLog::is_in(storage)? {
            let old = OldPartition::read(storage, &PartitionOptions::default())?;
            return Ok(Self(Read::Old(old)));
        }
        let mut replayed = Replayed::whole(CountUnit::DEFAULT);
        let end = replay(storage, &mut replayed)?;
        let state = replayed.state;
        Ok(Self(Read::Current { state, end }))
    }

    /// Where the log ends that was read.
    pub fn position(&self) -> LogPosition {
        match &self.0 {
            Read::Current { end, .. } => end.position,
            Read::Old(old) => old.end(),
        }
    }

    /// How many queues and messages there are.
    pub fn counts(&self) -> (usize, u64) {
        match &self.0 {
            Read::Current { state, .. } => state.counts(),
            Read::Old(old) => old.state().counts(),
        }
    }

    /// Whether a new log is written of the one that was read. Otherwise it needs the files of that one.
    pub fn is_copying(&self) -> bool {
        matches!(&self.0, Read::Old(_))
    }

    /// Lets a log begin anew with this state. `storage` holds the log that was read, or a copy of it.
    ///
    /// Of a log of the format before, a new one is written into a storage that must be empty.
    ///
    /// `entropy` seeds the segment salts. `secret` is for a log that was empty. Old segments without bodies, and
    /// old snapshots, are removed. A crash leaves a directory that must not be used.
    pub fn carry_out(
        self,
        storage: Arc<dyn Storage>,
        options: PartitionOptions,
        entropy: u64,
        secret: [u8; 16],
    ) -> Result<(), RestoreError> {
        let mut state = match self.0 {
            Read::Current { state, .. } => state,
            Read::Old(mut old) => {
                old.state_mut().skip_numbers(Skip::BACKUP);
                old.write_to(storage, &options, entropy)?;
                return Ok(());
            }
        };
        state.skip_numbers(Skip::BACKUP);
        let mut content = Content::Shared(state.share());
        let live: Vec<_> = state.bodies().map(to_log).collect();
        let salvage = Salvage::look(Arc::clone(&storage))?;
        let rebuilt = salvage.rebuild(&options.log, &mut content, live, entropy)?;
        let wall = state.last_event_at();
        Partition::<()>::open_repaired(Arc::clone(&storage), options, entropy, secret, wall)?;
        Ok(kew_log::remove(&*storage, &rebuilt.set_aside).map_err(OpenError::from)?)
    }
}

/// Why a restored partition could not be made.
pub type RestoreError = RepairError;
