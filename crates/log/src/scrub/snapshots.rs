//! Reads snapshots, and both copies of each page that they name.

use std::collections::VecDeque;

use super::{File, STEP_BYTES, Scrub, ScrubDamage};
use crate::format::names;
use crate::pages::{FirstParts, PageReader, TablePage};
use crate::snapshot::{PartReader, ReadError};
use crate::storage::{self, Storage};
use crate::{LogId, LogPosition, PageDamage, PageNumber};

impl Scrub {
    /// Reads a part of a snapshot. Returns how much that was; `None` if the snapshot is not there any more.
    pub(super) fn read_part(
        &mut self,
        storage: &dyn Storage,
        position: LogPosition,
        parts: Option<(PartReader, FirstParts)>,
    ) -> Option<u64> {
        let before = parts.as_ref().map_or(0, |(parts, _)| parts.offset());
        let opened = || {
            let parts = PartReader::open(storage, position)?;
            let first = FirstParts::new(parts.header().has_pages);
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
                    left: first.into_table().pages().iter().copied().collect(),
                    lost: None,
                };
                Some(parts.offset() - before)
            }
            Err(error) => self.note_snapshot(position, error),
        }
    }

    /// Reads both copies of some pages. Returns how much that was.
    pub(super) fn read_pages(
        &mut self,
        storage: &dyn Storage,
        (snapshot, log): (LogPosition, LogId),
        mut left: VecDeque<TablePage>,
        mut lost: Option<PageNumber>,
    ) -> u64 {
        let mut reader = PageReader::from_disk(storage, log);
        let mut read_bytes = 0;
        while read_bytes < STEP_BYTES
            && let Some(page) = left.pop_front()
        {
            read_bytes += 2 * u64::from(page.place.size_bytes);
            match reader.verify(page.number, page.place) {
                Ok(0) => lost = lost.or(Some(page.number)),
                Ok(_) => {}
                Err(_) => {
                    self.is_skipped = true;
                    left.clear();
                }
            }
        }
        for damage in reader.damage() {
            let PageDamage { file, offset, what } = damage.clone();
            self.note_file(file, offset, what);
        }
        if !left.is_empty() {
            self.file = File::Pages {
                snapshot,
                log,
                left,
                lost,
            };
            return read_bytes;
        }
        let file = names::snapshot(snapshot.as_u64());
        let has_damage = !self.damage.is_empty();
        if has_damage && storage::open(storage, &file).is_err_and(|it| it.is_not_found()) {
            // It was removed meanwhile, and its pages after it.
            self.damage.clear();
        } else if let Some(lost) = lost {
            let what = format!("both copies of its page {} are damaged", lost.as_u64());
            self.note_file(file, 0, what);
        }
        read_bytes
    }

    fn note_snapshot(&mut self, position: LogPosition, error: ReadError) -> Option<u64> {
        let (offset, what) = match error {
            // It was removed meanwhile.
            ReadError::Io(failure) if failure.source.kind() == std::io::ErrorKind::NotFound => {
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
