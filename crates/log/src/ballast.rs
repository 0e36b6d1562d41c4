//! Space reserved for a full disk.
//!
//! Draining a full disk needs space itself: for settlements, for snapshots that free segments, and for the
//! new segment of a recovery. A file that is never read reserves this space. It is written in advance and
//! grows with the amount there is to drain. It is removed when one of these writes finds the disk full, and
//! made again when there is space. New messages never get its space. Nothing depends on the file: it may
//! have any size, or be missing.

use crate::segment::{MakeError, create_anew, fill_with_zeros};
use crate::storage::{self, IoFailure, Storage};

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
    let filled = fill_with_zeros(&*file, NAME, from_bytes, size_bytes)
        .and_then(|()| storage::sync_data(&*file, NAME));
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
        fill_with_zeros(&*file, PREPARED, 0, size_bytes)?;
        storage::sync_data(&*file, PREPARED)?;
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

/// Removes the file. Returns whether there was one.
pub(crate) fn release(storage: &dyn Storage) -> Result<bool, IoFailure> {
    let was_there = storage::remove_if_there(storage, NAME)?;
    if was_there {
        // Some file systems free the blocks only when the directory is synced.
        storage::sync_dir(storage)?;
    }
    Ok(was_there)
}
