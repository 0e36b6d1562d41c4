//! Pins for backups of a running partition.
//!
//! The runner begins and ends them between two turns. Nothing here reads a file: a backup copies the files of
//! its plan by itself, and a pin only keeps them in their place.

use std::fmt;
use std::sync::Arc;

use kew_log::{BackupPlan, BeginBackupError, PinId};
use thiserror::Error;
use tokio::sync::oneshot;

use crate::runner::Shared;
use crate::{Broker, Partition};

/// The files of a backup stay until this is dropped, or until the disk is full.
pub struct BackupPin {
    shared: Arc<Shared>,
    id: PinId,
    plan: BackupPlan,
}

/// Why no backup was begun.
#[derive(Clone, Debug, Error)]
pub enum BackupRefused {
    /// The log refused.
    #[error(transparent)]
    Log(#[from] BeginBackupError),
    /// The partition has stopped.
    #[error("the partition has stopped")]
    Stopped,
}

/// A request to the runner.
#[derive(Debug)]
pub(crate) enum BackupRequest {
    Begin(oneshot::Sender<Result<BackupPin, BeginBackupError>>),
    /// How many bytes are kept only for the pin; `None` if it was given up.
    Look(PinId, oneshot::Sender<Option<u64>>),
    End(PinId),
}

impl BackupRequest {
    /// Carries it out. A pin that its receiver no longer waits for ends at once.
    pub(crate) fn carry_out<T>(self, partition: &mut Partition<T>, shared: &Arc<Shared>) {
        match self {
            Self::Begin(answer) => {
                let begun = partition.begin_backup().map(|(id, plan)| BackupPin {
                    shared: Arc::clone(shared),
                    id,
                    plan,
                });
                let _ = answer.send(begun);
            }
            Self::Look(id, answer) => {
                let files = partition.log().files();
                let held_bytes = files.and_then(|files| files.backup_held_bytes(id));
                let _ = answer.send(held_bytes);
            }
            Self::End(id) => partition.end_backup(id),
        }
    }
}

impl Broker {
    /// Begins a backup of everything that is durable now. There is one at a time.
    pub async fn begin_backup(&self) -> Result<BackupPin, BackupRefused> {
        let (sender, answer) = oneshot::channel();
        self.shared.request_backup(BackupRequest::Begin(sender));
        match answer.await {
            Ok(begun) => Ok(begun?),
            Err(_) => Err(BackupRefused::Stopped),
        }
    }
}

impl BackupPin {
    /// What to copy.
    pub fn plan(&self) -> &BackupPlan {
        &self.plan
    }

    /// The size of the files that are kept only for this backup, in bytes. `None` if the pin was given up,
    /// because the disk was full or the partition has stopped.
    pub async fn held_bytes(&self) -> Option<u64> {
        let (sender, answer) = oneshot::channel();
        self.shared
            .request_backup(BackupRequest::Look(self.id, sender));
        answer.await.ok().flatten()
    }
}

impl Drop for BackupPin {
    fn drop(&mut self) {
        self.shared.request_backup(BackupRequest::End(self.id));
    }
}

impl fmt::Debug for BackupPin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BackupPin({:?})", self.id)
    }
}
