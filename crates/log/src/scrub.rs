//! Scrub: reads what is durable a file at a time, in pieces, to find damage before anybody needs the data.
//!
//! Files of a pass are the snapshots that are kept, both copies of each page that they name, and the segments: of the
//! one that is written to, what was durable when the pass came to it. The log only names the next file: it is read on
//! another thread, which waits between two pieces. A segment that is retired meanwhile is read to its end, because its
//! file is not used again before that. A damaged header of a segment that no commit writes to any more is written
//! again. Nothing else is changed.
//!
//! Data may come faster than a pass can read it. So it reads the segments that there were when it began, the snapshots
//! that were kept then, and each page once, in the order of their places, in which they were written. If a snapshot is
//! removed meanwhile, its pages are gone or named by the newest one: the pass goes on with that one, behind what it has
//! read, up to what was written when it began.

mod snapshots;

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use crate::batch::{Entries, Entry};
use crate::format::{
    RECORD_ALIGNMENT, RECORD_HEADER_SIZE, ROLL_RECORD_SIZE, RecordKind, SEGMENT_HEADER_BLOCK_SIZE,
    SegmentHeader, body_crc,
};
use crate::pages::{FirstParts, TablePage};
use crate::places::Places;
use crate::reader::records::{Record, RecordReader};
use crate::segment::Segment;
use crate::snapshot::PartReader;
use crate::storage::{self, IoFailure, Storage};
use crate::{LogId, LogPosition, PageNumber, PagePlace};

/// About how much a step reads. A commit that comes meanwhile waits for no more than that on the disk.
const STEP_BYTES: u64 = 256 * 1024;

/// How far a pass has come. A pass begins with the default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScrubCursor {
    /// Where the pass ends. `None` before it begins.
    pub(crate) limit: Option<ScrubLimit>,
    /// All snapshots up to here were read, or removed meanwhile.
    pub(crate) snapshot: Option<LogPosition>,
    /// All pages up to this place were read.
    pub(crate) page: Option<PagePlace>,
    /// The first and the last place of which both copies were damaged: what other snapshots name between them is looked
    /// at again.
    pub(crate) lost: Option<(PagePlace, PagePlace)>,
    /// A snapshot was removed before all of its pages were read.
    pub(crate) has_pages_left: bool,
    /// All segments up to the one with this first position were read.
    pub(crate) segment: Option<LogPosition>,
}

/// What was there when a pass began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ScrubLimit {
    /// The newest snapshot.
    pub(crate) snapshot: LogPosition,
    /// No page was behind this place.
    pub(crate) page: Option<PagePlace>,
    /// The log's end on the disk.
    pub(crate) end: LogPosition,
}

/// Data that was durable and cannot be read, or is not as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScrubDamage {
    /// The file's name.
    pub file: String,
    /// The offset in the file.
    pub offset: u64,
    /// What is wrong.
    pub what: String,
    /// The positions of the records that cannot be read. `None` for a snapshot or a file of pages.
    pub positions: Option<Range<LogPosition>>,
    /// False where nothing says that there was a record: behind the last one of a segment that a repair or a restore
    /// has kept, or in one that a repair has rewritten, which leaves what it could not read as it was. Bodies there may
    /// still be damaged since.
    pub is_certain: bool,
    /// Whether it was written again as it was, and is not damaged any more: the header of a segment.
    pub is_repaired: bool,
}

/// The result of reading one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scrubbed {
    /// Where the pass continues.
    pub next: ScrubCursor,
    /// How much was read.
    pub read_bytes: u64,
    /// All damage.
    pub damage: Vec<ScrubDamage>,
    /// Whether the file, or a part of it, was not read for lack of a descriptor.
    pub is_skipped: bool,
    /// A segment whose header is not as it was written, and may be written by a commit alone:
    /// [`LogFiles::write_header`](crate::LogFiles::write_header).
    pub header: Option<String>,
}

/// A file to read. Any thread may do that.
pub struct Scrub {
    storage: Arc<dyn Storage>,
    next: ScrubCursor,
    file: File,
    read_bytes: u64,
    damage: Vec<ScrubDamage>,
    /// Damaged places in snapshots and files of pages.
    places: Places,
    is_skipped: bool,
    /// Whether anything in the segment says that some of the log was durable. A repair leaves nothing that does.
    is_proven: bool,
    /// Whether a commit may still write to the segment. Then nothing else syncs its file: a failed write is reported to
    /// one sync only, and the commit needs that report.
    is_open: bool,
    /// Of such a segment, the name, once its header is known to be damaged and a commit can write it again.
    header: Option<String>,
    /// Everything before this position was durable.
    durable: LogPosition,
}

enum File {
    Segment {
        segment: Arc<Segment>,
        /// `None` until the header was read.
        at: Option<LogPosition>,
        limit: LogPosition,
    },
    Snapshot {
        position: LogPosition,
        parts: Option<(PartReader, FirstParts)>,
    },
    /// The pages that a snapshot names and the pass has not read, by place.
    Pages {
        snapshot: LogPosition,
        log: LogId,
        left: VecDeque<TablePage>,
        /// The first one of which both copies are damaged.
        lost: Option<PageNumber>,
    },
    Done,
}

impl Scrub {
    /// `taken_over` is where the next segment goes on, if it does: every record before was durable.
    pub(crate) fn of_segment(
        storage: Arc<dyn Storage>,
        segment: Arc<Segment>,
        limit: LogPosition,
        taken_over: Option<LogPosition>,
        cursor: ScrubCursor,
    ) -> Self {
        let next = ScrubCursor {
            segment: Some(segment.first()),
            ..cursor
        };
        let file = File::Segment {
            segment,
            at: None,
            limit,
        };
        Self {
            durable: taken_over.unwrap_or(LogPosition::new(0)),
            ..Self::of(storage, file, next)
        }
    }

    /// A segment that commits may still write to. Everything before `limit` is durable.
    pub(crate) fn of_open(
        storage: Arc<dyn Storage>,
        segment: Arc<Segment>,
        limit: LogPosition,
        cursor: ScrubCursor,
    ) -> Self {
        Self {
            is_proven: true,
            is_open: true,
            ..Self::of_segment(storage, segment, limit, Some(limit), cursor)
        }
    }

    pub(crate) fn of_snapshot(
        storage: Arc<dyn Storage>,
        position: LogPosition,
        cursor: ScrubCursor,
    ) -> Self {
        let next = ScrubCursor {
            snapshot: Some(position),
            ..cursor
        };
        let parts = None;
        Self::of(storage, File::Snapshot { position, parts }, next)
    }

    fn of(storage: Arc<dyn Storage>, file: File, next: ScrubCursor) -> Self {
        Self {
            storage,
            next,
            file,
            read_bytes: 0,
            damage: Vec::new(),
            places: Places::default(),
            is_skipped: false,
            is_proven: false,
            is_open: false,
            header: None,
            durable: LogPosition::new(0),
        }
    }

    /// Reads a piece. Returns how many bytes that were, and `None` at the end. Blocks.
    ///
    /// It stops for no damage: it goes on behind it. A file that cannot be opened for lack of a descriptor is left for
    /// the next pass.
    pub fn step(&mut self) -> Option<u64> {
        let read_bytes = match std::mem::replace(&mut self.file, File::Done) {
            File::Segment { segment, at, limit } => {
                let end = match at {
                    None => self.read_header(&segment),
                    Some(at) => self.read_records(&segment, at, limit),
                };
                let read_bytes = match at {
                    None => SEGMENT_HEADER_BLOCK_SIZE,
                    Some(at) => end.unwrap_or(limit).as_u64().saturating_sub(at.as_u64()),
                };
                if let Some(at) = end.filter(|end| *end < limit) {
                    let at = Some(at);
                    self.file = File::Segment { segment, at, limit };
                }
                read_bytes
            }
            File::Snapshot { position, parts } => self.read_part(position, parts)?,
            File::Pages {
                snapshot,
                log,
                left,
                lost,
            } => self.read_pages((snapshot, log), left, lost),
            File::Done => return None,
        };
        self.read_bytes += read_bytes;
        Some(read_bytes)
    }

    /// The result, once [`Scrub::step`] has returned `None`.
    pub fn finish(mut self) -> Scrubbed {
        self.note_more();
        let mut damage = std::mem::take(&mut self.damage);
        for found in &mut damage {
            found.is_certain |= self.was_durable(found);
        }
        Scrubbed {
            next: self.next,
            read_bytes: self.read_bytes,
            damage,
            is_skipped: self.is_skipped,
            header: self.header,
        }
    }

    /// Whether there was something where a hole begins.
    fn was_durable(&self, damage: &ScrubDamage) -> bool {
        let begin = damage.positions.as_ref().map(|it| it.start);
        self.is_proven && begin.is_some_and(|begin| begin < self.durable)
    }

    /// Reads a segment's header, which the next start needs. Returns where its records begin.
    fn read_header(&mut self, segment: &Segment) -> Option<LogPosition> {
        self.is_proven |= segment.header.durable > LogPosition::new(0);
        let (what, is_readable) = match header_damage(segment) {
            Ok(None) => return Some(segment.first()),
            Ok(Some(what)) => (what, true),
            Err(failure) if failure.is_no_descriptor() => {
                self.is_skipped = true;
                return None;
            }
            Err(failure) => (failure.to_string(), false),
        };
        let (is_repaired, what) = match self.is_open {
            true => (false, self.leave_header(segment, what, is_readable)),
            false => repair_header(segment, what),
        };
        self.damage.push(ScrubDamage {
            file: segment.name.clone(),
            offset: 0,
            what,
            positions: Some(segment.first()..segment.first()),
            is_certain: true,
            is_repaired,
        });
        Some(segment.first())
    }

    /// Leaves a damaged header to the next commit. A commit that fails ends the service, which goes on without a
    /// header: so one in a bad sector waits for the first pass after the segment was left. Returns what is to be said.
    fn leave_header(&mut self, segment: &Segment, what: String, is_readable: bool) -> String {
        if !is_readable {
            return format!(
                "{what}; it is not written again while messages are written to this segment"
            );
        }
        // A file that was cut is refused by the next start, whatever its header says.
        let len = storage::len(&*segment.file, &segment.name);
        let is_cut = !len.is_ok_and(|len| len >= segment.header.capacity_bytes);
        self.header = (!is_cut).then(|| segment.name.clone());
        what
    }

    /// Reads some records. Returns where the next ones begin; `None` if there are none.
    fn read_records(
        &mut self,
        segment: &Segment,
        from: LogPosition,
        limit: LogPosition,
    ) -> Option<LogPosition> {
        let offset = segment.offset_of(from);
        // From the disk and not from memory, where the bytes may be better.
        let forgotten = match self.is_open {
            true => (2 * STEP_BYTES).min(segment.offset_of(limit) - offset),
            // The system keeps what it has of a page that is forgotten in part.
            false => 2 * STEP_BYTES,
        };
        segment.file.forget_cached(offset, forgotten);
        let mut at = from;
        let next = match self.try_read_records(segment, &mut at, limit) {
            Ok(next) => next,
            Err(failure) if failure.is_no_descriptor() => {
                self.is_skipped = true;
                None
            }
            Err(failure) => {
                // What lies behind a bad sector may be whole. The next step looks for a record behind the read.
                let begun = failure.offset.unwrap_or(0).max(segment.offset_of(at));
                let skipped = begun - segment.offset_of(at) + STEP_BYTES;
                let end = at
                    .plus(skipped.next_multiple_of(RECORD_ALIGNMENT))
                    .min(limit);
                self.note_records(segment, at..end, failure.to_string());
                (end < limit).then_some(end)
            }
        };
        // The cache is for what clients read: most of all, what was written last.
        if !self.is_open {
            segment.file.forget_cached(offset, forgotten);
        }
        next
    }

    /// `at` is where the step begins, and how far it has come.
    fn try_read_records(
        &mut self,
        segment: &Segment,
        at: &mut LogPosition,
        limit: LogPosition,
    ) -> Result<Option<LogPosition>, IoFailure> {
        let read_end = match self.is_open {
            true => limit,
            // The roll that ends a segment reaches behind `limit`, if the segment that it led to is gone and was small.
            false => limit.plus(ROLL_RECORD_SIZE).min(segment.limit()),
        };
        let mut reader = RecordReader::until(segment, read_end);
        let step_end = at.plus(STEP_BYTES).min(limit);
        while *at < step_end {
            let hole = match reader.read(*at)? {
                Ok(record) => {
                    self.is_proven |= record.header.durable > LogPosition::new(0);
                    self.durable = self.durable.max(record.header.durable);
                    self.check_bodies(segment, &record);
                    if record.header.kind == RecordKind::Roll {
                        return Ok(None);
                    }
                    *at = record.end();
                    continue;
                }
                Err(error) => error,
            };
            // A search ends with its step too. The next one goes on with the same hole.
            let found = reader.find_in(at.plus(1)..step_end)?;
            let next = found.unwrap_or(step_end);
            self.note_records(segment, *at..next, hole.to_string());
            *at = next;
        }
        Ok(Some(*at))
    }

    /// A body has a checksum of its own, which was computed earlier than that of its record.
    fn check_bodies(&mut self, segment: &Segment, record: &Record<'_>) {
        if record.header.kind != RecordKind::Batch {
            return;
        }
        for entry in Entries::new(record.payload) {
            let (offset, what) = match entry {
                Ok(Entry::Event(_)) => continue,
                Ok(Entry::Body { offset, crc, body }) => {
                    if crc == body_crc(record.position, offset, body) {
                        continue;
                    }
                    (
                        u64::from(offset),
                        "a body does not match its checksum".into(),
                    )
                }
                Err(error) => (error.offset as u64, error.to_string()),
            };
            self.damage.push(ScrubDamage {
                file: segment.name.clone(),
                offset: segment.offset_of(record.position) + RECORD_HEADER_SIZE as u64 + offset,
                what,
                positions: Some(record.position..record.end()),
                is_certain: true,
                is_repaired: false,
            });
        }
    }

    /// Notes records that cannot be read. What follows on such records belongs to the same hole.
    fn note_records(&mut self, segment: &Segment, positions: Range<LogPosition>, what: String) {
        let before = self.damage.last_mut().filter(|it| !it.is_certain);
        if let Some(hole) = before.and_then(|it| it.positions.as_mut())
            && hole.end == positions.start
        {
            hole.end = positions.end;
            return;
        }
        self.damage.push(ScrubDamage {
            file: segment.name.clone(),
            offset: segment.offset_of(positions.start),
            what,
            positions: Some(positions),
            is_certain: false,
            is_repaired: false,
        });
    }
}

/// What is wrong with the first block of a segment on the disk, if anything is.
fn header_damage(segment: &Segment) -> Result<Option<String>, IoFailure> {
    let expected = segment.first_block();
    segment.file.forget_cached(0, SEGMENT_HEADER_BLOCK_SIZE);
    let mut bytes = vec![0; expected.len()];
    let read = storage::read_at(&*segment.file, &segment.name, &mut bytes, 0)?;
    bytes.truncate(read);
    if bytes == expected {
        return Ok(None);
    }
    let header = bytes.first_chunk().map(SegmentHeader::decode);
    Ok(Some(match header {
        Some(Err(error)) => error.to_string(),
        Some(Ok(header)) if header != segment.header => {
            "the header is that of another segment".into()
        }
        Some(Ok(_)) => "the block of the header is not as it was written".into(),
        None => "the file ends within its header".into(),
    }))
}

/// Writes a damaged header again, if it can. Returns whether it is whole now, and what is to be said.
fn repair_header(segment: &Segment, what: String) -> (bool, String) {
    // All of it is in memory, and nothing else writes to a segment that is durable and complete.
    match rewrite_header(segment) {
        Ok(None) => (true, what),
        Ok(Some(_)) => (false, what),
        Err(failure) => {
            let what = format!("{what}; to write it again failed: {failure}");
            (false, what)
        }
    }
}

/// Writes the first block again. Returns what is still wrong with it.
fn rewrite_header(segment: &Segment) -> Result<Option<String>, IoFailure> {
    // The next start refuses a file that was cut, whatever its header says.
    if storage::len(&*segment.file, &segment.name)? < segment.header.capacity_bytes {
        return header_damage(segment);
    }
    let written = storage::write_all_at(&*segment.file, &segment.name, &segment.first_block(), 0)
        .and_then(|()| storage::sync_data(&*segment.file, &segment.name));
    let damage = written.and_then(|()| header_damage(segment));
    // It counts as a file that is only read again.
    segment.file.release();
    damage
}
