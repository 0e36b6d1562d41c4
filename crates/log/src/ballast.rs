//! Space put aside for a full disk.
//!
//! Snapshots free space and recovery begins with a new segment, so both must work on a disk that
//! has none left. A file that nobody reads keeps some for them: it is written ahead of need, removed
//! when one of the two finds the disk full, and made again when there is space. New messages never
//! get it.

use crate::segment::{MakeError, create_anew, fill_with_zeros};
use crate::storage::{self, IoFailure, Storage};

/// The file's name.
pub(crate) const NAME: &str = "ballast";
const NAME_IN_PREPARATION: &str = "prepare-ballast";

/// What is known of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ballast {
    /// The options ask for none.
    Off,
    /// To be made when somebody runs the job.
    Wanted,
    Making,
    Ready,
    /// The disk had no space for it.
    NoSpace,
}

/// Makes the file, durable in every respect.
pub(crate) fn make(storage: &dyn Storage, size_bytes: u64) -> Result<(), MakeError> {
    let made = create_anew(storage, NAME_IN_PREPARATION)
        .and_then(|file| {
            fill_with_zeros(&*file, NAME_IN_PREPARATION, size_bytes)?;
            storage::sync_data(&*file, NAME_IN_PREPARATION)
        })
        .and_then(|()| storage::rename(storage, NAME_IN_PREPARATION, NAME));
    if let Err(failure) = made {
        // Best effort: recovery removes temporaries too.
        let _ = storage::remove(storage, NAME_IN_PREPARATION);
        return Err(MakeError::Unfinished(failure));
    }
    storage::sync_dir(storage).map_err(MakeError::Unsure)
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
