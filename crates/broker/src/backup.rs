//! Pins for backups of a running partition.
//!
//! The runner begins and ends them between two turns. Nothing here reads a file: a backup copies the files of
//! its plan by itself, and a pin only keeps them in their place.

use std::fmt;
use std::sync::Arc;

use kew_log::{BackupPlan, BeginBackupError, PinId};
use thiserror::Error;
use tokio::sync::oneshot;

use crate::runner::{Opening, Shared};
use crate::{Broker, Partition, Standing};

/// The files of a backup stay until this is dropped, until the disk is full, or until another process owns the log.
pub struct BackupPin {
    shared: Arc<Shared>,
    /// The opening of the log that has the pin.
    opening: Opening,
    id: PinId,
    plan: BackupPlan,
}

/// Why no backup was begun.
#[derive(Clone, Debug, Error)]
pub enum BackupRefused {
    /// The log refused.
    #[error(transparent)]
    Log(#[from] BeginBackupError),
    /// Another server owns the partition.
    #[error("the partition has another owner")]
    NotOwner,
    /// The partition has stopped.
    #[error("the partition has stopped")]
    Stopped,
}

/// A request to the runner.
#[derive(Debug)]
pub(crate) enum BackupRequest {
    Begin(oneshot::Sender<Result<BackupPin, BeginBackupError>>),
    /// How many bytes are kept only for the pin; `None` if it was given up.
    Look(Opening, PinId, oneshot::Sender<Option<u64>>),
    End(Opening, PinId),
}

impl BackupRequest {
    /// Carries it out in this opening of the log. A pin that its receiver no longer waits for ends at once. One of an
    /// opening before was given up with it.
    pub(crate) fn carry_out<T>(
        self,
        partition: &mut Partition<T>,
        shared: &Arc<Shared>,
        opening: Opening,
    ) {
        match self {
            Self::Begin(answer) => {
                let begun = partition.begin_backup().map(|(id, plan)| BackupPin {
                    shared: Arc::clone(shared),
                    opening,
                    id,
                    plan,
                });
                let _ = answer.send(begun);
            }
            Self::Look(of, id, answer) => {
                let files = partition.log().files().filter(|_| of == opening);
                let held_bytes = files.and_then(|files| files.backup_held_bytes(id));
                let _ = answer.send(held_bytes);
            }
            Self::End(of, id) if of == opening => partition.end_backup(id),
            Self::End(..) => {}
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
            Err(_) if self.standing() == Standing::Stopped => Err(BackupRefused::Stopped),
            Err(_) => Err(BackupRefused::NotOwner),
        }
    }
}

impl BackupPin {
    /// What to copy.
    pub fn plan(&self) -> &BackupPlan {
        &self.plan
    }

    /// Whether another process has owned the log since the pin was made, so that it was given up.
    pub fn is_left(&self) -> bool {
        self.shared.has_left(self.opening)
    }

    /// The size of the files that are kept only for this backup, in bytes. `None` if the pin was given up,
    /// because the disk was full, or the partition has stopped or has another owner.
    pub async fn held_bytes(&self) -> Option<u64> {
        let (sender, answer) = oneshot::channel();
        self.shared
            .request_backup(BackupRequest::Look(self.opening, self.id, sender));
        answer.await.ok().flatten()
    }
}

impl Drop for BackupPin {
    fn drop(&mut self) {
        let end = BackupRequest::End(self.opening, self.id);
        self.shared.request_backup(end);
    }
}

impl fmt::Debug for BackupPin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BackupPin({:?})", self.id)
    }
}
