//! Space reserved for a full disk.
//!
//! Draining a full disk needs space itself: for settlements, for snapshots that free segments, and for the
//! new segment of a recovery. A file that is never read reserves this space. It is made in advance, where possible without
//! writing it, and grows with the amount there is to drain. It is removed when one of these writes finds the disk full, and
//! made again when there is space. New messages never get its space. Nothing depends on the file: it may
//! have any size, or be missing.

use crate::segment::{MakeError, create_anew, fill_with_zeros};
use crate::storage::{self, IoFailure, Storage, StorageFile};

/// The file's name.
pub(crate) const NAME: &str = "ballast";

/// The name of a smaller one until it takes the place of the present one. A start removes such files.
const PREPARED: &str = "prepare-ballast";

/// The state of the file, apart from its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ballast {
    /// The options ask for no file.
    Off,
    /// It is as large as possible, or was not asked for yet.
    Idle,
    Making,
    /// The disk had no space for all of it.
    NoSpace,
}

/// The result of an attempt to make the file larger.
pub(crate) struct MadeBallast {
    /// Its size now.
    pub(crate) size_bytes: u64,
    pub(crate) result: Result<(), MakeError>,
}

/// Makes the file as large as asked, starting from its present size. If there is not enough space, it keeps
/// what it got.
///
/// `spare_bytes` must be left on the disk, if that can be determined.
pub(crate) fn make(
    storage: &dyn Storage,
    from_bytes: u64,
    size_bytes: u64,
    spare_bytes: u64,
) -> MadeBallast {
    let done = |size_bytes, result| MadeBallast { size_bytes, result };
    if let Some(free_bytes) = storage.free_bytes()
        && free_bytes < size_bytes - from_bytes + spare_bytes
    {
        let full = std::io::Error::from(std::io::ErrorKind::StorageFull);
        let failure = IoFailure::new(crate::Action::Write, NAME, full);
        return done(from_bytes, Err(MakeError::Unfinished(failure)));
    }
    let opened = match from_bytes {
        0 => create_anew(storage, NAME),
        _ => storage::open(storage, NAME),
    };
    let file = match opened {
        Ok(file) => file,
        // The file was removed by something else: it is made again the next time.
        Err(failure) if failure.source.kind() == std::io::ErrorKind::NotFound => {
            return done(0, Ok(()));
        }
        Err(failure) => return done(from_bytes, Err(MakeError::Unfinished(failure))),
    };
    let filled = take_space(&*file, NAME, from_bytes, size_bytes);
    if let Err(failure) = filled {
        let reached = storage::len(&*file, NAME).unwrap_or(from_bytes);
        return done(reached, Err(MakeError::Unfinished(failure)));
    }
    let named = match from_bytes {
        0 => storage::sync_dir(storage).map_err(MakeError::Unsure),
        _ => Ok(()),
    };
    done(size_bytes, named)
}

/// Makes a smaller file, and puts it in the place of the present one. So there is always a file. If there is no space
/// for it, and for as much beside it, the present one stays.
pub(crate) fn replace(storage: &dyn Storage, from_bytes: u64, size_bytes: u64) -> MadeBallast {
    let done = |size_bytes, result| MadeBallast { size_bytes, result };
    let free_bytes = storage.free_bytes();
    if free_bytes.is_some_and(|free_bytes| free_bytes < 2 * size_bytes) {
        return done(from_bytes, Ok(()));
    }
    let made = create_anew(storage, PREPARED).and_then(|file| {
        take_space(&*file, PREPARED, 0, size_bytes)?;
        storage::rename(storage, PREPARED, NAME)
    });
    match made {
        Ok(()) => {
            let named = storage::sync_dir(storage).map_err(MakeError::Unsure);
            done(size_bytes, named)
        }
        Err(failure) => {
            // Best effort: the next start removes the file too.
            let _ = storage::remove(storage, PREPARED);
            match failure.is_no_space() {
                true => done(from_bytes, Ok(())),
                false => done(from_bytes, Err(MakeError::Unfinished(failure))),
            }
        }
    }
}

/// Makes a file larger, durably.
fn take_space(
    file: &dyn StorageFile,
    name: &str,
    from_bytes: u64,
    size_bytes: u64,
) -> Result<(), IoFailure> {
    if !storage::allocate(file, name, from_bytes, size_bytes)? {
        fill_with_zeros(file, name, from_bytes, size_bytes)?;
    }
    storage::sync_data(file, name)
}

/// Removes the file. Returns whether there was one.
pub(crate) fn release(storage: &dyn Storage) -> Result<bool, IoFailure> {
    let was_there = storage::remove_if_there(storage, NAME)?;
    if was_there {
        // Some file systems free the blocks only when the directory is synced.
        storage::sync_dir(storage)?;
    }
    Ok(was_there)
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::os::unix::fs::MetadataExt;
    use std::sync::Arc;

    use super::*;
    use crate::FaultyStorage;
    use crate::storage::FileStorage;

    /// Allocates nothing: it fails, or says so.
    struct Allocating(Arc<dyn StorageFile>, Option<io::ErrorKind>);

    impl StorageFile for Allocating {
        fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
            self.0.read_at(buffer, offset)
        }

        fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
            self.0.write_at(bytes, offset)
        }

        fn allocate_at(&self, _: u64, _: u64) -> io::Result<bool> {
            self.1.map_or(Ok(false), |kind| Err(kind.into()))
        }

        fn sync_data(&self) -> io::Result<()> {
            self.0.sync_data()
        }

        fn len(&self) -> io::Result<u64> {
            self.0.len()
        }
    }

    #[test]
    fn what_cannot_be_allocated_is_full_or_is_written() {
        let disk = FaultyStorage::new();
        let file = disk.create(NAME).unwrap();
        take_space(&Allocating(Arc::clone(&file), None), NAME, 0, 10_000).unwrap();
        assert_eq!(disk.content(NAME).unwrap(), [0; 10_000]);
        let full = Allocating(file, Some(io::ErrorKind::StorageFull));
        let failure = take_space(&full, NAME, 10_000, 20_000).unwrap_err();
        assert!(failure.is_no_space());
        assert_eq!(full.len().unwrap(), 10_000);
    }

    /// Whether it is written or not: a file with holes reserves nothing.
    #[test]
    fn it_takes_its_space_on_the_disk() {
        let place = tempfile::tempdir().unwrap();
        let storage = FileStorage::open(place.path()).unwrap();
        let of_file = || {
            let file = std::fs::metadata(place.path().join(NAME)).unwrap();
            (file.len(), file.blocks() * 512)
        };
        let mut from_bytes = 0;
        for size_bytes in [10_000, 3 << 20, (3 << 20) + 1] {
            let made = make(&storage, from_bytes, size_bytes, 0);
            assert!(made.result.is_ok());
            assert_eq!(made.size_bytes, size_bytes);
            let (length, taken_bytes) = of_file();
            assert_eq!(length, size_bytes);
            assert!(taken_bytes >= size_bytes, "{taken_bytes} of {size_bytes}");
            from_bytes = size_bytes;
        }
        let smaller = replace(&storage, from_bytes, 1 << 20);
        assert!(smaller.result.is_ok());
        let (length, taken_bytes) = of_file();
        assert_eq!(length, 1 << 20);
        assert!((1 << 20..2 << 20).contains(&taken_bytes), "{taken_bytes}");
    }
}
