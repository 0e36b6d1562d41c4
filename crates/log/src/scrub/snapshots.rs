//! Reads snapshots, and both copies of each page that they name.

use std::collections::VecDeque;
use std::sync::Arc;

use super::{File, STEP_BYTES, Scrub, ScrubDamage};
use crate::format::names;
use crate::pages::{FirstParts, PageError, PageReader, PageTable, TablePage};
use crate::snapshot::{PartReader, ReadError};
use crate::storage;
use crate::{LogId, LogPosition, PageDamage, PageNumber, PagePlace};

/// What a step has read of pages.
#[derive(Default)]
struct ReadPages {
    bytes: u64,
    first: Option<PagePlace>,
    last: Option<PagePlace>,
    /// The last one before any damage.
    whole: Option<PagePlace>,
    damage: Vec<PageDamage>,
    /// Those of which both copies are damaged.
    lost: Vec<TablePage>,
}

impl Scrub {
    /// Reads a part of a snapshot. Returns how much that was; `None` if the snapshot is not there any more.
    pub(super) fn read_part(
        &mut self,
        position: LogPosition,
        parts: Option<(PartReader, FirstParts)>,
    ) -> Option<u64> {
        let before = parts.as_ref().map_or(0, |(parts, _)| parts.offset());
        let opened = || {
            let parts = PartReader::open(&*self.storage, position)?;
            let first = FirstParts::of(&parts.header());
            Ok((parts, first))
        };
        let (mut parts, mut first) = match parts.map_or_else(opened, Ok) {
            Ok(parts) => parts,
            Err(error) => return self.note_snapshot(position, error),
        };
        parts.forget_cached(STEP_BYTES);
        match parts.next_part() {
            Ok(Some(part)) => {
                // The checksum is right, so what cannot be read was written so.
                let _ = first.take(part);
                let read_bytes = parts.offset() - before;
                let parts = Some((parts, first));
                self.file = File::Snapshot { position, parts };
                Some(read_bytes)
            }
            Ok(None) => {
                self.file = File::Pages {
                    snapshot: position,
                    log: parts.header().log,
                    left: self.pages_to_read(position, &first.into_table()),
                    lost: None,
                };
                Some(parts.offset() - before)
            }
            Err(error) => self.note_snapshot(position, error),
        }
    }

    /// The pages that the pass has not read and that were there when it began, by place, and those that it may have lost.
    fn pages_to_read(&self, snapshot: LogPosition, table: &PageTable) -> VecDeque<TablePage> {
        let limit = self.next.limit.unwrap_or_default();
        let pages = table.pages().iter().copied();
        let pages = pages.filter(|page| {
            let place = page.place;
            let is_new = !self.has_read(place) && Some(place) <= limit.page;
            let lost = self.next.lost.filter(|_| snapshot <= limit.snapshot);
            is_new || lost.is_some_and(|(first, last)| (first..=last).contains(&place))
        });
        let mut pages: Vec<_> = pages.collect();
        pages.sort_unstable_by_key(|page| page.place);
        pages.into()
    }

    fn has_read(&self, place: PagePlace) -> bool {
        Some(place) <= self.next.page
    }

    /// Reads both copies of some pages. Returns how much that was.
    pub(super) fn read_pages(
        &mut self,
        (snapshot, log): (LogPosition, LogId),
        mut left: VecDeque<TablePage>,
        lost: Option<PageNumber>,
    ) -> u64 {
        let file = names::snapshot(snapshot.as_u64());
        let read = self.read_some(log, &mut left);
        let is_gone = storage::open(&*self.storage, &file).is_err_and(|it| it.is_not_found());
        if is_gone && (!left.is_empty() || !read.damage.is_empty()) {
            // It was removed meanwhile, and perhaps pages before they were read. A pass goes on, whatever there is.
            self.next.page = self.next.page.max(read.whole.or(read.first));
            self.next.has_pages_left = true;
            return read.bytes;
        }
        self.next.page = self.next.page.max(read.last);
        for PageDamage { file, offset, what } in read.damage {
            self.note_file(file, offset, what);
        }
        for page in &read.lost {
            let (first, last) = self.next.lost.unwrap_or((page.place, page.place));
            self.next.lost = Some((first.min(page.place), last.max(page.place)));
        }
        let lost = lost.or_else(|| read.lost.first().map(|page| page.number));
        if !left.is_empty() {
            self.file = File::Pages {
                snapshot,
                log,
                left,
                lost,
            };
            return read.bytes;
        }
        self.next.has_pages_left = false;
        if let Some(lost) = lost.filter(|_| !is_gone) {
            let what = format!("both copies of its page {} are damaged", lost.as_u64());
            self.note_file(file, 0, what);
        }
        read.bytes
    }

    fn read_some(&mut self, log: LogId, left: &mut VecDeque<TablePage>) -> ReadPages {
        let storage = Arc::clone(&self.storage);
        let mut read = ReadPages::default();
        // What is wrong with pages that are read again is noted.
        let mut again = PageReader::from_disk(&*storage, log);
        let mut reader = PageReader::from_disk(&*storage, log);
        while read.bytes < STEP_BYTES
            && let Some(page) = left.pop_front()
        {
            read.bytes += 2 * u64::from(page.place.size_bytes);
            let reader = match self.has_read(page.place) {
                true => &mut again,
                false => &mut reader,
            };
            match reader.verify(page.number, page.place) {
                Ok(0) => read.lost.push(page),
                Ok(_) => {}
                // The log that is open is older, so another one has taken the file's place.
                Err(error @ PageError::Newer { .. }) => {
                    read.damage.push(PageDamage {
                        file: page.place.file(),
                        offset: 0,
                        what: error.to_string(),
                    });
                    read.lost.push(page);
                }
                Err(PageError::Io(_) | PageError::Damaged(_)) => {
                    self.is_skipped = true;
                    left.clear();
                }
            }
            read.first = read.first.or(Some(page.place));
            read.last = Some(page.place);
            if reader.damage().is_empty() && read.damage.is_empty() {
                read.whole = read.last;
            }
        }
        read.damage.extend_from_slice(reader.damage());
        read
    }

    fn note_snapshot(&mut self, position: LogPosition, error: ReadError) -> Option<u64> {
        let (offset, what) = match error {
            ReadError::Io(failure) if failure.is_not_found() => {
                // It was removed meanwhile. One that came after the pass began is not looked for again.
                let limit = self.next.limit.map(|limit| limit.snapshot);
                self.next.has_pages_left = Some(position) <= limit;
                return None;
            }
            ReadError::Io(failure) if failure.is_no_descriptor() => {
                self.is_skipped = true;
                return None;
            }
            ReadError::Io(failure) => (0, failure.to_string()),
            ReadError::Format(offset, error) => (offset, error.to_string()),
        };
        self.note_file(names::snapshot(position.as_u64()), offset, what);
        Some(0)
    }

    /// Notes damage to a snapshot or a file of pages.
    fn note_file(&mut self, file: String, offset: u64, what: String) {
        if self.places.add(&file, offset) {
            self.list_file(file, offset, what);
        }
    }

    /// Says how much is not listed.
    pub(super) fn note_more(&mut self) {
        for (file, more) in std::mem::take(&mut self.places).more() {
            self.list_file(file, more.offset, more.what());
        }
    }

    fn list_file(&mut self, file: String, offset: u64, what: String) {
        self.damage.push(ScrubDamage {
            file,
            offset,
            what,
            positions: None,
            is_certain: true,
            is_repaired: false,
        });
    }
}
