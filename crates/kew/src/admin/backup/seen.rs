//! What is known of backups in progress and of the last whole one, for the metrics.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use kew_broker::BackupPin;
use kew_log::DataDir;
use kew_metrics::{Family, Unit};

/// What the metrics report.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// The time of the state in the last whole backup, in milliseconds since 1970-01-01 UTC; 0 for none.
    pub(super) last_at_ms: AtomicU64,
    /// How many backups are in progress: 0 or 1, and for a moment 2, when one ends and the next one begins.
    pub(super) in_progress: AtomicU64,
}

impl Seen {
    /// Reads the note that an earlier run has left.
    pub(crate) fn open(data_dir: Option<&Path>) -> Arc<Self> {
        let seen = Self::default();
        let last = data_dir.map(DataDir::last_backup);
        match last.transpose() {
            Ok(last) => seen.note(last.flatten().unwrap_or(UNIX_EPOCH)),
            Err(error) => tracing::warn!(%error, "cannot read when the last backup was taken"),
        }
        Arc::new(seen)
    }

    pub(super) fn note(&self, taken_at: SystemTime) {
        self.last_at_ms.store(ms(taken_at), Ordering::Relaxed);
    }

    /// The metrics about backups.
    pub(crate) fn metrics(&self) -> Vec<Family> {
        let age = Family::gauge(
            "kew_backup_age",
            Unit::Seconds,
            "Time since the state of the last whole backup",
        );
        let in_progress =
            Family::gauge("kew_backups_in_progress", Unit::None, "Backups in progress");
        let age = match self.last_at_ms.load(Ordering::Relaxed) {
            0 => age,
            at => {
                let since = Duration::from_millis(ms(SystemTime::now()).saturating_sub(at));
                age.amount(Vec::new(), since.as_secs_f64())
            }
        };
        let count = self.in_progress.load(Ordering::Relaxed);
        vec![age, in_progress.count(Vec::new(), count)]
    }
}

/// A pin that counts as a backup in progress.
pub(super) struct Held {
    /// Dropped before the count goes down.
    pin: Option<BackupPin>,
    seen: Arc<Seen>,
}

impl Held {
    pub(super) fn new(pin: BackupPin, seen: &Arc<Seen>) -> Self {
        seen.in_progress.fetch_add(1, Ordering::Relaxed);
        Self {
            pin: Some(pin),
            seen: Arc::clone(seen),
        }
    }

    /// Whether another server has taken the messages over, or did so during the backup.
    pub(super) fn is_left(&self) -> bool {
        self.pin.as_ref().is_some_and(BackupPin::is_left)
    }

    /// How many bytes only the pin keeps. `None` if it was given up.
    pub(super) async fn held_bytes(&self) -> Option<u64> {
        match &self.pin {
            Some(pin) => pin.held_bytes().await,
            None => None,
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.pin = None;
        self.seen.in_progress.fetch_sub(1, Ordering::Relaxed);
    }
}

pub(super) fn ms(time: SystemTime) -> u64 {
    let since_epoch = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX)
}
