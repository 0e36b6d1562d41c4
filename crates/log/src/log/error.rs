//! Errors of the log.

use thiserror::Error;

use crate::{Epoch, LogEnd, LogPosition};

/// Why there is no room for a batch.
#[derive(Clone, Debug, Error)]
pub enum ReserveError {
    /// The disk is full. Settlements may still find room.
    #[error("there is no space for another segment")]
    NoSpace,
    /// The next segment is still being prepared: run the pending job and ask again.
    #[error("the next segment is not prepared yet")]
    NotPrepared,
    /// The log has stopped.
    #[error(transparent)]
    Ended(#[from] LogEnd),
}

/// Why a batch was not staged. Nothing changed.
#[derive(Clone, Debug, Error)]
pub enum AppendError {
    /// Another owner has begun a newer epoch, or the reservation is of an older one.
    #[error("epoch {given} is not the current epoch {current}")]
    StaleEpoch {
        /// The epoch of the append.
        given: Epoch,
        /// The current epoch.
        current: Epoch,
    },
    /// Another record was appended since the reservation.
    #[error("position {given} is not the end of the log, {end}")]
    StalePosition {
        /// The position of the append or of its batch.
        given: LogPosition,
        /// The log's end.
        end: LogPosition,
    },
    /// The batch exceeds its reservation.
    #[error("a batch of {size_bytes} bytes is above the room of {room_bytes} bytes")]
    TooLarge {
        /// Size of the batch's payload.
        size_bytes: u64,
        /// The room in the segment.
        room_bytes: u64,
    },
    /// The log has stopped.
    #[error(transparent)]
    Ended(#[from] LogEnd),
}

/// Why no snapshot was begun.
#[derive(Clone, Debug, Error)]
pub enum BeginSnapshotError {
    /// Another snapshot is being written.
    #[error("another snapshot is being written")]
    Busy,
    /// The log has stopped.
    #[error(transparent)]
    Ended(#[from] LogEnd),
}
