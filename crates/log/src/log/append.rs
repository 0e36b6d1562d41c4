//! Records: batches, and rolls, which lead from a segment to the next. And marks, which are no records, and headers
//! that a scrub has found damaged.
//!
//! They are staged here. A commit writes and syncs them.

use std::sync::Arc;

use bytes::Bytes;

use crate::format::{
    BEAT_RECORD_SIZE, BEGINNING_OFFSET, RECORD_HEADER_SIZE, ROLL_RECORD_SIZE, RecordKind, Sealing,
    encode_beginning, seal_record,
};
use crate::job::Write;
use crate::{AppendError, BatchBuilder, LogPosition, Reservation};

use super::SegmentLog;
use super::prepare::Successor;

impl SegmentLog {
    /// Stages a batch, and returns the new end of the log. The batch is durable when
    /// [`durable`](Self::durable) has reached that position. An empty batch leaves no trace.
    pub fn append(
        &mut self,
        at: Reservation,
        batch: BatchBuilder,
    ) -> Result<LogPosition, AppendError> {
        self.check_ended()?;
        at.check(self.reserved, &batch, self.end)?;
        self.reserved = None;
        if batch.is_empty() {
            return Ok(self.end);
        }
        if batch.has_bodies() {
            self.note_bodies();
        }
        self.note_moved(batch.moved());
        self.tidying.look_soon();
        let position = self.end;
        let time_ms = batch.time_ms();
        let mut buffer = batch.into_buffer();
        // Readers may keep the buffer for a while, and most of a nearly empty buffer is wasted.
        if buffer.capacity() > 2 * buffer.len() {
            buffer.shrink_to(buffer.len().next_multiple_of(8));
        }
        let held_bytes = buffer.capacity();
        let record = self.stage_batch(buffer, time_ms);
        self.recent.push(position, record, held_bytes);
        self.recent.trim(self.durable);
        Ok(self.end)
    }

    /// Stages a mark, which lets recovery know that everything before it was durable. Returns whether it did.
    ///
    /// Call it when the log is idle and at shutdown. It does nothing while any record is not durable yet, or
    /// if nothing was appended since the last mark. It has no position: it is written beside the segments.
    pub fn mark(&mut self) -> bool {
        let is_due = self.ended.is_none() && self.unmarked && self.durable == self.end;
        if is_due {
            self.is_mark_staged = true;
            self.unmarked = false;
        }
        is_due
    }

    /// Stages a batch without entries, so that the log's end moves and a snapshot there differs from the last
    /// one. Returns whether it did. It does nothing if the segment has no room. Its time is never before the last one.
    ///
    /// A segment is freed only when two snapshots lie behind it.
    pub fn beat(&mut self, time_ms: u64) -> bool {
        let free_bytes = self.active.limit().as_u64() - self.end.as_u64();
        let has_room = free_bytes >= BEAT_RECORD_SIZE + ROLL_RECORD_SIZE;
        let is_due = self.ended.is_none() && self.durable == self.end && has_room;
        if is_due {
            self.stage_batch(vec![0; RECORD_HEADER_SIZE], time_ms);
        }
        is_due
    }

    /// Queues the header of a segment for the next commit. Returns whether it did: not if no commit writes to that
    /// segment any more, because its file may be closed.
    pub fn write_header(&mut self, file: &str) -> bool {
        let left = self.left.iter().map(|(_, segment)| segment);
        let mut open = left.chain([&self.active]);
        let open = open.find(|it| it.name == file && self.ended.is_none());
        let write = open.map(|segment| Write {
            segment: Arc::clone(segment),
            offset: 0,
            record: segment.first_block().into(),
        });
        let is_open = write.is_some();
        self.staged.extend(write);
        is_open
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
                let next = Arc::new(next.beginning_at(self.end));
                let passed = self.segments.insert(next.first(), Arc::clone(&next));
                // It was too small for a batch, and has nothing but a roll, which leads here.
                self.passed.extend(passed);
                let left = std::mem::replace(&mut self.active, next);
                self.left.push((self.end, left));
            }
            other => self.successor = other,
        }
    }

    /// Completes a batch and queues it for the next commit.
    fn stage_batch(&mut self, buffer: Vec<u8>, time_ms: u64) -> Bytes {
        self.reserved = None;
        self.time_ms = self.time_ms.max(time_ms);
        let (record, content) = self.stage(RecordKind::Batch, buffer);
        let size_bytes = record.len() as u64;
        self.chain = content;
        self.end = self.end.plus(size_bytes);
        self.reclaim.bytes_since_snapshot += size_bytes;
        self.unmarked = true;
        // Its record proves the same.
        self.is_mark_staged = false;
        record
    }

    /// Completes a record and queues it for the next commit. Returns it with its content checksum.
    fn stage(&mut self, kind: RecordKind, mut buffer: Vec<u8>) -> (Bytes, u32) {
        let position = self.end;
        let sealing = Sealing {
            chain_start: self.chain_start,
            seal: self.active.seal,
            kind,
            previous: self.chain,
            position,
            time_ms: self.time_ms,
            epoch: self.epoch,
            // A record staged now is written only after the commit under way has succeeded.
            durable: self.committing.unwrap_or(self.durable),
        };
        let content = seal_record(&mut buffer, sealing);
        assert!(
            position.plus(buffer.len() as u64) <= self.active.limit(),
            "a record fits its segment"
        );
        if position == self.active.first() && self.active.header.first.is_none() {
            let beginning = encode_beginning(self.active.seal, position).to_vec();
            self.stage_write(BEGINNING_OFFSET, beginning.into());
        }
        let record = Bytes::from(buffer);
        self.stage_write(self.active.offset_of(position), record.clone());
        (record, content)
    }

    fn stage_write(&mut self, offset: u64, record: Bytes) {
        self.staged.push(Write {
            segment: Arc::clone(&self.active),
            offset,
            record,
        });
    }
}
