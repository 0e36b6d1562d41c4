//! Workers lose leases: new messages ask for longer ones.
//!
//! A worker that often finds its lease over, because it was stopped or its database was slow, says so in the stores. Workers
//! cannot mend that: another one has the message by then. The web service can, because it writes the messages.

use std::time::Duration;

use kew_idempotency::StoreError;
use tokio::time::sleep;

use super::Bank;

/// How often the reports are read.
const READ_EVERY: Duration = Duration::from_secs(1);

/// What was read of the reports.
#[derive(Debug, Default)]
struct Read {
    /// The newest one.
    newest: i64,
}

impl Bank {
    /// Follows the workers' reports of lost leases. Never ends.
    pub async fn follow_lost_leases(&self) {
        let mut read = Read::default();
        loop {
            sleep(READ_EVERY).await;
            // The page shows what is wrong with the stores.
            if let Err(error) = self.read_losses(&mut read).await {
                tracing::debug!(%error, "the reports of lost leases were not read");
            }
        }
    }

    /// Doubles the lease of new messages if there are new reports. After an hour without one, they have the usual lease.
    async fn read_losses(&self, read: &mut Read) -> Result<(), StoreError> {
        let (losses, hint) = (self.ledger()?.losses().await?, self.queue.lease_hint());
        let Some(newest) = losses.first() else {
            hint.clear();
            return Ok(());
        };
        if newest.sequence > read.newest {
            read.newest = newest.sequence;
            let lease_s = u64::try_from(newest.lease_s).unwrap_or(0);
            let lease = hint.lengthen(Duration::from_secs(lease_s));
            tracing::warn!(?lease, "workers lose leases: they need longer ones");
        }
        Ok(())
    }
}
