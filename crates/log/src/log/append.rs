//! Records: batches, marks, and rolls, which lead from a segment to the next.
//!
//! They are staged here. A commit writes and syncs them.

use std::sync::Arc;

use bytes::Bytes;

use crate::format::{
    MARK_RECORD_SIZE, PAGE_SIZE, RECORD_HEADER_SIZE, ROLL_RECORD_SIZE, RecordKind, seal_record,
};
use crate::job::Write;
use crate::segment::memory_size;
use crate::{BatchBuilder, Epoch, LogPosition};

use super::prepare::Successor;
use super::{AppendError, Log};

impl Log {
    /// Stages a batch, and returns the new end of the log. The batch is durable when
    /// [`durable`](Self::durable) has reached that position. An empty batch leaves no trace.
    pub fn append(
        &mut self,
        epoch: Epoch,
        expected: LogPosition,
        batch: BatchBuilder,
    ) -> Result<LogPosition, AppendError> {
        self.check_failed()?;
        if epoch != self.epoch {
            return Err(AppendError::StaleEpoch {
                given: epoch,
                current: self.epoch,
            });
        }
        for given in [expected, batch.position()] {
            if given != self.end {
                let end = self.end;
                return Err(AppendError::StalePosition { given, end });
            }
        }
        let size_bytes = batch.len_bytes() as u64;
        let room_bytes = self.active_room_bytes();
        if size_bytes > room_bytes {
            return Err(AppendError::TooLarge {
                size_bytes,
                room_bytes,
            });
        }
        if batch.is_empty() {
            return Ok(self.end);
        }
        if batch.has_bodies() {
            self.note_bodies();
        }
        let position = self.end;
        let mut buffer = batch.into_buffer();
        // Readers may keep the buffer for a while, and most of a nearly empty buffer is wasted.
        if buffer.capacity() > 2 * buffer.len() {
            buffer.shrink_to(buffer.len().next_multiple_of(8));
        }
        let held_bytes = buffer.capacity();
        let record = self.stage(RecordKind::Batch, buffer);
        self.recent.push(position, record, held_bytes);
        self.recent.trim(self.durable);
        self.unmarked = true;
        Ok(self.end)
    }

    /// Stages a mark, which lets recovery know that everything before it was durable. Returns whether it
    /// did.
    ///
    /// Call it when the log is idle and at shutdown. It does nothing while any record is not durable yet, or
    /// if nothing was appended since the last mark.
    pub fn mark(&mut self) -> bool {
        let is_due = self.failed.is_none() && self.unmarked && self.durable == self.end;
        if is_due {
            self.stage_marks();
            self.unmarked = false;
        }
        is_due
    }

    /// Stages a mark even if nothing was appended, so that the log's end moves and a snapshot there differs
    /// from the last one. Returns whether it did. It does nothing if the segment has no room.
    ///
    /// Used on a full disk: a segment is freed only when two snapshots lie behind it.
    pub fn force_mark(&mut self) -> bool {
        let free_bytes = self.active.header.limit().as_u64() - self.end.as_u64();
        // Keep room for the mark of the last batch, if it has none yet, and for a roll.
        let owed = if self.unmarked { MARK_RECORD_SIZE } else { 0 };
        let has_room = free_bytes >= MARK_RECORD_SIZE + owed + ROLL_RECORD_SIZE;
        let is_due = self.failed.is_none() && self.durable == self.end && has_room;
        if is_due {
            self.stage(RecordKind::Mark, vec![0; RECORD_HEADER_SIZE]);
            self.unmarked = false;
        }
        is_due
    }

    /// Stages a mark and, if there is room, a second one in the next page of the disk. So the loss of any
    /// one page never takes both the last batch and its proof.
    fn stage_marks(&mut self) {
        let end = self.active.offset_of(self.end) + MARK_RECORD_SIZE;
        let padding = end.next_multiple_of(PAGE_SIZE) - end;
        // Do not use the room kept for settlements: on a full disk each settlement can be followed by an
        // idle moment, and pages of padding would leave nothing to drain the disk with.
        let room_bytes = self.free_room(self.options.settlement_reserve_bytes);
        if padding + MARK_RECORD_SIZE <= room_bytes {
            self.stage(
                RecordKind::Mark,
                vec![0; RECORD_HEADER_SIZE + memory_size(padding)],
            );
        }
        self.stage(RecordKind::Mark, vec![0; RECORD_HEADER_SIZE]);
    }

    /// Continues in the prepared segment.
    pub(super) fn roll(&mut self) {
        match std::mem::replace(&mut self.successor, Successor::Wanted) {
            Successor::Ready(next) => {
                self.rolled_while_draining();
                self.retry_ballast();
                let mut buffer = vec![0; RECORD_HEADER_SIZE];
                buffer.extend_from_slice(&next.header.number.to_le_bytes());
                self.stage(RecordKind::Roll, buffer);
                let left_at = self.end;
                self.end = next.first();
                self.segments.insert(next.base(), Arc::clone(&next));
                let left = std::mem::replace(&mut self.active, next);
                self.left.push((left_at, left));
            }
            other => self.successor = other,
        }
    }

    /// Completes a record and queues it for the next commit.
    fn stage(&mut self, kind: RecordKind, mut buffer: Vec<u8>) -> Bytes {
        let position = self.end;
        // A record staged now is written only after the commit under way has succeeded.
        let durable = self.committing.unwrap_or(self.durable);
        let seal = self.active.header.seal();
        self.chain = seal_record(&mut buffer, seal, position, kind, self.chain, durable);
        let size_bytes = buffer.len() as u64;
        self.end = position.plus(size_bytes);
        assert!(
            self.end <= self.active.header.limit(),
            "a record fits its segment"
        );
        self.reclaim.bytes_since_snapshot += size_bytes;
        let record = Bytes::from(buffer);
        self.staged.push(Write {
            segment: Arc::clone(&self.active),
            position,
            record: record.clone(),
        });
        record
    }
}
