//! The log does not do with its files what it must.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use kew_log::{JobKind, StorageFile};
use kew_planted::{Hook, Seam};

use super::hooks::on;
use crate::seam::Opened;

/// A commit writes and does not sync.
pub(super) fn commit_not_synced() -> Hook {
    let is_commit = Arc::new(AtomicBool::new(false));
    Box::new(move |seam, value| {
        if seam == Seam::Job
            && let Some(kind) = value.downcast_ref::<Option<JobKind>>()
        {
            is_commit.store(*kind == Some(JobKind::Commit), Ordering::Relaxed);
        }
        if seam == Seam::File
            && let Some((_, file)) = value.downcast_mut::<Opened>()
        {
            *file = Arc::new(Unsynced {
                file: Arc::clone(file),
                is_left_out: Arc::clone(&is_commit),
            });
        }
    })
}

/// A snapshot names pages that are not synced.
pub(super) fn pages_not_synced() -> Hook {
    not_synced("pages-")
}

/// A migration does not sync the segments that it writes.
pub(super) fn segments_not_synced() -> Hook {
    not_synced("segment-")
}

/// A backup does not sync the files that it copies.
pub(super) fn copies_not_synced() -> Hook {
    not_synced("prepare-")
}

fn not_synced(kind: &'static str) -> Hook {
    on(Seam::File, move |(name, file): &mut Opened| {
        if name.contains(kind) {
            *file = Arc::new(Unsynced {
                file: Arc::clone(file),
                is_left_out: Arc::new(AtomicBool::new(true)),
            });
        }
    })
}

/// A failed sync is repeated, and trusted if the second one succeeds.
pub(super) fn sync_tried_again() -> Hook {
    on(Seam::File, |(_, file): &mut Opened| {
        *file = Arc::new(SyncedAgain(Arc::clone(file)));
    })
}

/// The directory is not synced after names changed.
pub(super) fn directory_not_synced() -> Hook {
    on(Seam::DirectorySync, |is_synced: &mut bool| {
        *is_synced = false;
    })
}

/// A write that failed because the disk is full counts as done.
pub(super) fn full_disk_ignored() -> Hook {
    on(Seam::File, |(_, file): &mut Opened| {
        *file = Arc::new(NeverFull(Arc::clone(file)));
    })
}

/// A damaged header of a segment is not written again.
pub(super) fn header_not_written() -> Hook {
    on(Seam::File, |(name, file): &mut Opened| {
        if name.contains("segment-") {
            *file = Arc::new(Unmended {
                file: Arc::clone(file),
                header: Mutex::default(),
            });
        }
    })
}

/// A mark is not written.
pub(super) fn mark_not_written() -> Hook {
    on(Seam::File, |(name, file): &mut Opened| {
        if name.ends_with("proof") {
            *file = Arc::new(Unmarked(Arc::clone(file)));
        }
    })
}

struct Unmarked(Arc<dyn StorageFile>);

impl StorageFile for Unmarked {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        match bytes.starts_with(b"KEWPROOF") {
            true => Ok(bytes.len()),
            false => self.0.write_at(bytes, offset),
        }
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }
}

/// The size of the block that a segment's header begins.
const HEADER_BLOCK_SIZE: usize = 4096;

/// Does not write a block that was written like that before, through the same handle. What is written when a segment is
/// made passes, and so does where its records begin, which its first commit adds.
struct Unmended {
    file: Arc<dyn StorageFile>,
    /// The block with the header, as it was written last.
    header: Mutex<Vec<u8>>,
}

impl Unmended {
    /// Whether this writes the same block again.
    fn is_again(&self, bytes: &[u8], offset: u64) -> bool {
        let block = bytes.get(..HEADER_BLOCK_SIZE).filter(|_| offset == 0);
        let Some(block) = block.filter(|it| it.starts_with(b"KEWSEG")) else {
            return false;
        };
        let mut header = self.header.lock().unwrap_or_else(PoisonError::into_inner);
        let is_again = *header == block;
        *header = block.to_vec();
        is_again
    }
}

impl StorageFile for Unmended {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        match self.is_again(bytes, offset) {
            true => Ok(bytes.len()),
            false => self.file.write_at(bytes, offset),
        }
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }
}

struct Unsynced {
    file: Arc<dyn StorageFile>,
    is_left_out: Arc<AtomicBool>,
}

impl StorageFile for Unsynced {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.file.write_at(bytes, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        match self.is_left_out.load(Ordering::Relaxed) {
            true => Ok(()),
            false => self.file.sync_data(),
        }
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }
}

struct SyncedAgain(Arc<dyn StorageFile>);

impl StorageFile for SyncedAgain {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.0.write_at(bytes, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data().or_else(|_| self.0.sync_data())
    }

    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }
}

struct NeverFull(Arc<dyn StorageFile>);

impl StorageFile for NeverFull {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        match self.0.write_at(bytes, offset) {
            Err(error) if error.kind() == io::ErrorKind::StorageFull => Ok(bytes.len()),
            written => written,
        }
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }
}
