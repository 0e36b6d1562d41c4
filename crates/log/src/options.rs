//! The sizes of a log.

use crate::PageOptions;
use crate::format::{RECORD_HEADER_SIZE, ROLL_RECORD_SIZE};
use crate::format::{SEGMENT_HEADER_BLOCK_SIZE, record_size_bytes};

/// A segment's size is a multiple of this.
const SEGMENT_SIZE_UNIT_BYTES: u64 = 4096;
const SEGMENT_SIZE_BYTES_MAX: u64 = 1 << 30;
/// The least room that a turn with settlements only needs.
const SETTLEMENT_TURN_BYTES: u64 = 4096;

/// No batch is larger, whatever the options are. It holds for every kind of log, and is known before a decision.
pub const BATCH_SIZE_BYTES_MAX: u64 = 16 << 20;

/// Sizes and bounds. All may change between two opens of the same log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogOptions {
    /// Size of the first segment after an open. Later segments double in size. A multiple of 4 KiB.
    pub segment_size_first_bytes: u64,
    /// No segment is larger than this. The exceptions are a recovery's segment, which holds the records it
    /// copies, and a segment for one large batch.
    pub segment_size_max_bytes: u64,
    /// Bounds the payload of one batch, unless more room was reserved for it, up to [`BATCH_SIZE_BYTES_MAX`].
    pub batch_size_max_bytes: u64,
    /// The least room for a batch. With less, the log continues in the next segment.
    pub turn_space_min_bytes: u64,
    /// Space that only a batch of [`Urgency::Free`](crate::Urgency::Free) may use while no further segment is
    /// prepared, so that a full disk can be drained.
    pub settlement_reserve_bytes: u64,
    /// How many retired segments are kept for reuse.
    pub recycled_segments_max: usize,
    /// Size of the file that reserves space for snapshots and recovery on a full disk. 0 for none.
    pub ballast_size_bytes: u64,
    /// How many bytes of recent records stay in memory for readers.
    pub recent_bytes_max: usize,
    /// Sizes of page files.
    pub pages: PageOptions,
}

impl Default for LogOptions {
    fn default() -> Self {
        Self {
            segment_size_first_bytes: 1 << 20,
            segment_size_max_bytes: 64 << 20,
            batch_size_max_bytes: 1 << 20,
            turn_space_min_bytes: 192 << 10,
            settlement_reserve_bytes: 256 << 10,
            recycled_segments_max: 4,
            ballast_size_bytes: 4 << 20,
            recent_bytes_max: 8 << 20,
            pages: PageOptions::default(),
        }
    }
}

impl LogOptions {
    /// Returns what is wrong with the sizes, if anything.
    pub(crate) fn check(&self) -> Result<(), String> {
        let first = self.segment_size_first_bytes;
        let max = self.segment_size_max_bytes;
        if !first.is_multiple_of(SEGMENT_SIZE_UNIT_BYTES)
            || !max.is_multiple_of(SEGMENT_SIZE_UNIT_BYTES)
        {
            return Err(format!(
                "segment sizes {first} and {max} must be multiples of {SEGMENT_SIZE_UNIT_BYTES} bytes"
            ));
        }
        if first > max || max > SEGMENT_SIZE_BYTES_MAX {
            return Err(format!(
                "segment sizes must rise from the first, {first}, to the largest, {max}, and not exceed {SEGMENT_SIZE_BYTES_MAX} bytes"
            ));
        }
        if self.turn_space_min_bytes > self.batch_size_max_bytes {
            return Err(format!(
                "a turn's space of {} bytes is above the batch size of {} bytes",
                self.turn_space_min_bytes, self.batch_size_max_bytes
            ));
        }
        if self.batch_size_max_bytes > BATCH_SIZE_BYTES_MAX {
            return Err(format!(
                "a batch size of {} bytes is above the maximum of {BATCH_SIZE_BYTES_MAX} bytes",
                self.batch_size_max_bytes
            ));
        }
        let room = room_bytes(first - first.min(SEGMENT_HEADER_BLOCK_SIZE));
        let needed = self.turn_space_min_bytes + self.settlement_reserve_bytes;
        if room < needed {
            return Err(format!(
                "a first segment of {first} bytes has room for {room} bytes, and a turn with the settlement reserve needs {needed}"
            ));
        }
        Ok(())
    }

    /// The largest unit in which live bytes may be counted. One that lies in two segments keeps both, so it is much smaller than the
    /// smallest segment.
    pub fn unit_bytes(&self) -> u64 {
        self.segment_size_first_bytes / 16
    }

    pub(crate) fn settlement_turn_bytes(&self) -> u64 {
        self.turn_space_min_bytes.min(SETTLEMENT_TURN_BYTES)
    }

    /// Size of a segment that must hold `records_bytes` at once, and a turn after them.
    pub(crate) fn segment_size_for(&self, records_bytes: u64) -> u64 {
        let needed = SEGMENT_HEADER_BLOCK_SIZE
            + records_bytes
            + record_size_bytes(self.turn_space_min_bytes + self.settlement_reserve_bytes)
            + ROLL_RECORD_SIZE;
        let mut size = self.segment_size_first_bytes;
        while size < needed {
            size *= 2;
        }
        size
    }
}

/// The largest payload for which `free_bytes` of a segment are enough. There is always room for a roll after each
/// batch.
pub(crate) fn room_bytes(free_bytes: u64) -> u64 {
    free_bytes.saturating_sub(ROLL_RECORD_SIZE + RECORD_HEADER_SIZE as u64)
}
