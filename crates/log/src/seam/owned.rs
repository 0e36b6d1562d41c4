//! A log as its owner has it.

use thiserror::Error;

use super::LocalLog;
use crate::{BatchBuilder, BootTime, Epoch, LogEnd, LogPosition};

/// A log that only its owner appends to.
///
/// An end is shown by [`complete`](LocalLog::complete) and [`reserve`](Self::reserve) first. So a batch is never
/// refused within the turn that has reserved room for it.
pub trait OwnedLog: LocalLog {
    /// What the log takes now.
    fn limits(&self) -> LogLimits;

    /// Reserves room for one batch, of the size needed and a minimum. There may be more room than that.
    fn reserve(&mut self, need: Need) -> Result<Reservation, ReserveError>;

    /// Stages a batch, and returns the new end of the log. The batch is durable when
    /// [`durable`](LocalLog::durable) has reached that position. An empty batch leaves no trace.
    fn append(&mut self, at: Reservation, batch: BatchBuilder) -> Result<LogPosition, AppendError>;

    /// Stages a batch without entries, which has this time, or the log's last one if that is later. So the log's end moves,
    /// and a snapshot there differs from the last one. Returns whether it did. It does nothing if there is no room, or if
    /// something is not durable yet.
    fn beat(&mut self, time_ms: u64) -> bool;

    /// Stages a mark, which lets a start know that everything before it was durable. Returns whether it did. It does
    /// nothing while a record is not durable yet, or if nothing was appended since the last mark.
    fn mark(&mut self) -> bool;

    /// Where the next record goes.
    fn end(&self) -> LogPosition;

    /// No other process owns the log before this time. [`BootTime::NEVER`] says that none ever does, for as long as this
    /// opening lasts; then it does not change. [`BootTime::ZERO`] says that one may own it already.
    fn owned_until(&self) -> BootTime;

    /// How the log is.
    fn health(&self) -> LogHealth;

    /// The owner is about to end: jobs that wait for other machines come back soon. What they have done is unknown then, and
    /// the owner takes none of their outcomes.
    fn stop(&mut self);
}

/// Room that the owner needs for one batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Need {
    /// What the batch is for.
    pub urgency: Urgency,
    /// The size of the batch. There is a minimum, so 0 asks for the room of an ordinary batch.
    pub size_bytes: u64,
}

/// What a batch is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Urgency {
    /// The batch brings something new. It has no room while the space for draining is not reserved.
    Grow,
    /// The batch frees space or keeps promises. On a full disk it may use the remaining and the reserved space.
    Free,
}

impl Need {
    /// Room for a batch that brings something new.
    pub const fn grow(size_bytes: u64) -> Self {
        Self {
            urgency: Urgency::Grow,
            size_bytes,
        }
    }

    /// Room for a batch that frees space.
    pub const fn free(size_bytes: u64) -> Self {
        Self {
            urgency: Urgency::Free,
            size_bytes,
        }
    }
}

/// Permission to append one batch, which may be empty. It holds until the log next appends or reserves. One that was
/// refused holds on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reservation {
    /// The position to build the batch for.
    pub position: LogPosition,
    /// Bounds the batch's [`len_bytes`](crate::BatchBuilder::len_bytes).
    pub room_bytes: u64,
    /// Of the opening that it is for.
    pub(crate) epoch: Epoch,
}

impl Reservation {
    /// Room for a batch of the owner that has begun this epoch.
    pub const fn new(epoch: Epoch, position: LogPosition, room_bytes: u64) -> Self {
        Self {
            position,
            room_bytes,
            epoch,
        }
    }

    /// Checks that a batch may be appended with it to a log with this end, which has last given `valid` and not used it.
    pub fn check(
        self,
        valid: Option<Self>,
        batch: &BatchBuilder,
        end: LogPosition,
    ) -> Result<(), AppendError> {
        let mut positions = [self.position, batch.position()].into_iter();
        let elsewhere = positions.find(|given| *given != end);
        // One that was used, or is of another opening, may be for the same position.
        let stale = elsewhere.or_else(|| (valid != Some(self)).then_some(end));
        if let Some(given) = stale {
            return Err(AppendError::Stale { given, end });
        }
        let size_bytes = batch.len_bytes() as u64;
        if size_bytes > self.room_bytes {
            return Err(AppendError::TooLarge {
                size_bytes,
                room_bytes: self.room_bytes,
            });
        }
        Ok(())
    }
}

/// What a log takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogLimits {
    /// No batch is larger. It never changes, so it is known before a decision.
    pub batch_size_bytes_max: u64,
    /// How often an idle owner beats, so that the next one's clock does not begin before a time that this one has shown.
    /// `None` if no other machine can own the log. It never changes.
    pub heartbeat_ms: Option<u64>,
    /// What a full disk takes. `None` while the disk is not full.
    pub full: Option<FullLimits>,
}

/// What a log takes while its disk is full and is drained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FullLimits {
    /// The largest batch that frees space.
    pub batch_size_bytes_max: u64,
    /// A snapshot is due after this many bytes.
    pub snapshot_after_bytes: u64,
    /// Whether a settlement may bring a body now. The body keeps its segment in use, so only few segments may have any.
    pub takes_bodies: bool,
    /// Whether bodies that only move may come now, so that one segment is left for settlements.
    pub takes_moves: bool,
}

/// How a log is.
#[derive(Clone, Debug)]
pub struct LogHealth {
    /// Whether it takes batches.
    pub state: LogState,
    /// Whether a job had no file descriptor. It is tried again soon.
    pub is_short_of_descriptors: bool,
}

/// Whether a log takes batches.
#[derive(Clone, Debug)]
pub enum LogState {
    /// It takes all batches.
    Ready,
    /// The disk is full: it takes batches that free space.
    Full,
    /// Too few other machines have answered since this time, so nothing becomes durable. It takes batches while it has room.
    NoQuorum {
        /// When the first request began that has no answer.
        since: BootTime,
    },
    /// It takes none any more.
    Ended(LogEnd),
}

/// Why there is no room for a batch.
#[derive(Clone, Debug, Error)]
pub enum ReserveError {
    /// The disk is full: [`LogLimits::full`] says what it takes. A batch that frees space may still find room.
    #[error("there is no space for another segment")]
    NoSpace,
    /// The next segment is still being prepared: run the pending job and ask again.
    #[error("the next segment is not prepared yet")]
    NotPrepared,
    /// The log has ended.
    #[error(transparent)]
    Ended(#[from] LogEnd),
}

/// Why a batch was not staged. Nothing changed.
#[derive(Clone, Debug, Error)]
pub enum AppendError {
    /// The reservation was used, another one followed it, it is of another opening, or the batch is for another position.
    #[error(
        "a batch for position {given} has no valid reservation: the log ends at position {end}"
    )]
    Stale {
        /// The position of the reservation or of the batch.
        given: LogPosition,
        /// The log's end.
        end: LogPosition,
    },
    /// The batch exceeds its reservation.
    #[error("a batch of {size_bytes} bytes is above the room of {room_bytes} bytes")]
    TooLarge {
        /// Size of the batch's payload.
        size_bytes: u64,
        /// The room that was reserved.
        room_bytes: u64,
    },
    /// The log has ended.
    #[error(transparent)]
    Ended(#[from] LogEnd),
}
