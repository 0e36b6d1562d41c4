//! Space put aside for a full disk.
//!
//! What drains a full disk writes to it: settlements, snapshots that free segments, and a recovery begins
//! with a new segment. A file that nobody reads keeps space for them. It is written ahead of need and grows
//! with what there is to drain; it is removed when one of them finds the disk full, and made again when there
//! is space. New messages never get it. Nothing depends on the file: it may have any size, or be missing.

use crate::segment::{MakeError, create_anew, fill_with_zeros};
use crate::storage::{self, IoFailure, Storage};

/// The file's name.
pub(crate) const NAME: &str = "ballast";

/// What is known of the file, beside its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ballast {
    /// The options ask for none.
    Off,
    /// It is as large as could be made, or was not asked for yet.
    Idle,
    Making,
    /// The disk had no space for all of it.
    NoSpace,
}

/// What became of an attempt to make the file larger.
pub(crate) struct MadeBallast {
    /// Its size now.
    pub(crate) size_bytes: u64,
    pub(crate) result: Result<(), MakeError>,
}

/// Makes the file as large as is asked for, from the size that it has. What could be had of it stays if there
/// is not space for all.
///
/// `spare_bytes` must be left behind it, where that can be told.
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
        // Somebody has removed it: it is made anew the next time.
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

/// Gives the space back, and says whether there was any.
pub(crate) fn release(storage: &dyn Storage) -> Result<bool, IoFailure> {
    let was_there = storage::remove_if_there(storage, NAME)?;
    if was_there {
        // Some file systems free the blocks only with the change of the directory.
        storage::sync_dir(storage)?;
    }
    Ok(was_there)
}
