//! Records: batches, marks, and the one that leads from a segment to the next.
//!
//! Here they are staged. A commit writes and syncs them.

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
    /// Stages a batch, and says where the log then ends. The batch is durable when
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
        // Readers may hold on to it for a while; most of a buffer that is nearly empty is waste.
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

    /// Stages a mark, which tells recovery that all before it was durable, and says if it did.
    ///
    /// For an idle moment and for shutdown. It does nothing while anything is not durable yet, or
    /// if nothing was appended since the last mark.
    pub fn mark(&mut self) -> bool {
        let is_due = self.failed.is_none() && self.unmarked && self.durable == self.end;
        if is_due {
            self.stage_marks();
            self.unmarked = false;
        }
        is_due
    }

    /// Stages a mark although nothing was appended, so that the log's end moves and a snapshot there
    /// differs from the last one; says if it did. It does nothing where the segment has no room.
    ///
    /// For a full disk: a segment goes only when two snapshots lie behind it.
    pub fn force_mark(&mut self) -> bool {
        let free_bytes = self.active.header.limit().as_u64() - self.end.as_u64();
        // Room for the mark of the last batch, if it has none yet, and for a roll stays.
        let owed = if self.unmarked { MARK_RECORD_SIZE } else { 0 };
        let has_room = free_bytes >= MARK_RECORD_SIZE + owed + ROLL_RECORD_SIZE;
        let is_due = self.failed.is_none() && self.durable == self.end && has_room;
        if is_due {
            self.stage(RecordKind::Mark, vec![0; RECORD_HEADER_SIZE]);
            self.unmarked = false;
        }
        is_due
    }

    /// Stages a mark, and if there is room a second one in the next page of the disk: the loss of
    /// any one page then never takes the last batch and all that proves it.
    fn stage_marks(&mut self) {
        let end = self.active.offset_of(self.end) + MARK_RECORD_SIZE;
        let padding = end.next_multiple_of(PAGE_SIZE) - end;
        // Not from what is kept for settlements: on a full disk every one of them can be followed by
        // an idle moment, and pages of padding would leave nothing to drain the disk with.
        let room_bytes = self.free_room(self.options.settlement_reserve_bytes);
        if padding + MARK_RECORD_SIZE <= room_bytes {
            self.stage(
                RecordKind::Mark,
                vec![0; RECORD_HEADER_SIZE + memory_size(padding)],
            );
        }
        self.stage(RecordKind::Mark, vec![0; RECORD_HEADER_SIZE]);
    }

    /// Goes on in the prepared segment.
    pub(super) fn roll(&mut self) {
        match std::mem::replace(&mut self.successor, Successor::Wanted) {
            Successor::Ready(next) => {
                self.rolled_while_draining();
                self.retry_ballast();
                let mut buffer = vec![0; RECORD_HEADER_SIZE];
                buffer.extend_from_slice(&next.header.number.to_le_bytes());
                self.stage(RecordKind::Roll, buffer);
                self.end = next.first();
                self.segments.insert(next.base(), Arc::clone(&next));
                self.active = next;
            }
            other => self.successor = other,
        }
    }

    /// Completes a record and queues it for the next commit.
    fn stage(&mut self, kind: RecordKind, mut buffer: Vec<u8>) -> Bytes {
        let position = self.end;
        // What is staged now is written only after the commit that is on its way has succeeded.
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
