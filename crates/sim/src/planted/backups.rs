//! Backups that do not keep, name or check what they need.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use kew_log::{PinId, StorageFile};
use kew_planted::{Hook, Seam};

use super::hooks::on;
use crate::seam::{BackupBegun, Opened};

/// The log removes and uses again the files that a backup copies.
pub(super) fn pins_ignored() -> Hook {
    on(Seam::BackupBegun, |begun: &mut BackupBegun| {
        begun.is_pinned = false;
    })
}

/// The log keeps what a backup has copied, as if it went on.
pub(super) fn pin_left() -> Hook {
    on(Seam::BackupEnded, |pin: &mut Option<PinId>| *pin = None)
}

/// A backup has what a start replays, and not the oldest segment that is kept for its bodies.
pub(super) fn bodies_not_planned() -> Hook {
    on(Seam::BackupBegun, |begun: &mut BackupBegun| {
        let plan = &mut begun.plan;
        // A snapshot lies in the last segment that a start needs, or in one before it.
        if plan.snapshot.is_some() && plan.segments.len() > 2 {
            plan.segments.remove(0);
        }
    })
}

/// A copy is not checked on its disk: what is read back is what was written, from memory.
pub(super) fn copy_not_verified() -> Hook {
    let mut written: BTreeMap<String, Arc<Mutex<Vec<u8>>>> = BTreeMap::new();
    on(Seam::File, move |(name, file): &mut Opened| {
        if name.contains("prepare-") {
            *file = Arc::new(Echo {
                file: Arc::clone(file),
                written: Arc::clone(written.entry(name.clone()).or_default()),
            });
        }
    })
}

/// A file that is read as it was written.
struct Echo {
    file: Arc<dyn StorageFile>,
    written: Arc<Mutex<Vec<u8>>>,
}

impl StorageFile for Echo {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let count = self.file.read_at(buffer, offset)?;
        let written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        let from = usize::try_from(offset).map_err(io::Error::other)?;
        let known = written.get(from..).unwrap_or_default();
        let known = &known[..count.min(known.len())];
        buffer[..known.len()].copy_from_slice(known);
        Ok(count)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        let count = self.file.write_at(bytes, offset)?;
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        let from = usize::try_from(offset).map_err(io::Error::other)?;
        if from == 0 {
            written.clear();
        }
        let end = from + count;
        let size = written.len().max(end);
        written.resize(size, 0);
        written[from..end].copy_from_slice(&bytes[..count]);
        Ok(count)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }
}
