//! Reads the whole parts and pages of a damaged snapshot.
//!
//! The checksum of a part continues the one stored before it. So each part can be checked by itself with the
//! stored checksum of its predecessor, even if the predecessor is damaged. Pages follow from the table in the first
//! parts, as far as that can be read.

use super::{Gap, Rescue, again};
use crate::format::{names, read_u32};
use crate::pages::{FirstParts, PageError, PageReader, PageTable, TablePage};
use crate::recovery::{OpenError, manifest_error};
use crate::segment::memory_size;
use crate::snapshot::{HEADER_SIZE, PART_HEADER_SIZE, SnapshotHeader, TRAILER_SIZE, part_crc};
use crate::storage::{self, IoFailure, Storage, StorageFile};
use crate::{LogId, LogPosition};

/// How much of a file is read at once: a bad sector costs no more than this.
const SECTOR_SIZE: usize = 512;

pub(super) fn read(
    storage: &dyn Storage,
    position: LogPosition,
    log: Option<LogId>,
    rescue: &mut dyn Rescue,
) -> Result<Vec<Gap>, OpenError> {
    let name = names::snapshot(position.as_u64());
    let file = storage::open(storage, &name)?;
    let bytes = read_around(&*file, &name)?;
    let mut gaps = Gaps {
        rescue,
        found: Vec::new(),
    };
    let header = bytes.first_chunk().map(SnapshotHeader::decode);
    let header = header.and_then(Result::ok);
    let first = header.as_ref().map(FirstParts::of);
    let table = read_parts((&name, position), &bytes, first, &mut gaps);
    let log = header.map(|header| header.log).or(log);
    read_pages(storage, log.unwrap_or_default(), &table, &mut gaps)?;
    if let Err(error) = gaps.rescue.snapshot_end() {
        gaps.add(&name, 0, format!("what was read cannot be used: {error}"));
    }
    Ok(gaps.found)
}

/// The bytes of a file, with zeros for what lies in bad sectors.
fn read_around(file: &dyn StorageFile, name: &str) -> Result<Vec<u8>, IoFailure> {
    let mut bytes = vec![0; memory_size(storage::len(file, name)?)];
    let pieces = bytes.chunks_mut(SECTOR_SIZE);
    for (at, piece) in (0..).step_by(SECTOR_SIZE).zip(pieces) {
        let read = || storage::read_at(file, name, piece, at).map(|_| ());
        match again(read, IoFailure::is_bad_sector) {
            Err(failure) if failure.is_bad_sector() => {}
            read => read?,
        }
    }
    Ok(bytes)
}

/// The gaps that were found, and who learns of them.
struct Gaps<'a> {
    rescue: &'a mut dyn Rescue,
    found: Vec<Gap>,
}

impl Gaps<'_> {
    fn add(&mut self, file: &str, offset: u64, what: impl Into<String>) {
        let gap = Gap {
            file: file.to_owned(),
            offset,
            span: None,
            what: what.into(),
        };
        self.rescue.gap(&gap);
        self.found.push(gap);
    }
}

/// Passes on the parts of the file that are whole. Returns what can be read of the table of pages. If nothing says whether
/// there is one, the first part shows it.
fn read_parts(
    (name, position): (&str, LogPosition),
    bytes: &[u8],
    first: Option<FirstParts>,
    gaps: &mut Gaps<'_>,
) -> PageTable {
    let mut first = first;
    let mut at = HEADER_SIZE;
    let mut before = crc_at(bytes, HEADER_SIZE - 4);
    loop {
        let offset = at as u64;
        let Some(part) = Part::at(bytes, at) else {
            if !is_trailer(bytes, at) {
                gaps.add(name, offset, "the snapshot ends too early");
            }
            return first.map(FirstParts::into_table).unwrap_or_default();
        };
        if part.is_whole(before) {
            let can_be_first = FirstParts::can_be_first(part.bytes);
            let first = first.get_or_insert_with(|| FirstParts::new(can_be_first));
            let used = match first.take(part.bytes) {
                Ok(true) => Ok(()),
                Ok(false) => gaps.rescue.snapshot_part(part.bytes),
                Err(what) => Err(what.into()),
            };
            if let Err(error) = used {
                gaps.add(name, offset, format!("a part cannot be used: {error}"));
            }
            at += PART_HEADER_SIZE + part.bytes.len();
        } else {
            gaps.add(name, offset, "a part does not match its checksum");
            let first = first.get_or_insert_with(|| FirstParts::new(true));
            first.pass_over();
            at = part.next(bytes, at, position);
        }
        before = part.crc;
    }
}

/// Passes on the pages of which a copy is whole.
fn read_pages(
    storage: &dyn Storage,
    log: LogId,
    table: &PageTable,
    gaps: &mut Gaps<'_>,
) -> Result<(), OpenError> {
    let mut reader = PageReader::new(storage, log);
    for page in table.pages() {
        let is_damage = |error: &PageError| match error {
            PageError::Damaged(_) => true,
            PageError::Io(failure) => failure.is_bad_sector(),
            PageError::Newer { .. } => false,
        };
        match again(|| reader.read(page.number, page.place), is_damage) {
            Ok(read) => {
                let number = page.number;
                if let Err(error) = gaps.rescue.snapshot_page(number, &read.content) {
                    let (file, offset) = (page.place.file(), page.place.offset.into());
                    gaps.add(&file, offset, format!("a page cannot be used: {error}"));
                }
            }
            Err(error @ PageError::Newer { .. }) => {
                return Err(manifest_error(error.into()));
            }
            Err(PageError::Damaged(damage)) => {
                let what = format!("{}, and so is its copy", damage.what);
                gaps.add(&damage.file, damage.offset, what);
                pass_on_left(&mut reader, page, gaps)?;
            }
            Err(PageError::Io(failure)) if !failure.is_bad_sector() => {
                return Err(failure.into());
            }
            Err(PageError::Io(failure)) => {
                gaps.add(
                    &page.place.file(),
                    page.place.offset.into(),
                    failure.to_string(),
                );
            }
        }
    }
    Ok(())
}

/// Passes on what is left of a page of which both copies are damaged.
fn pass_on_left(
    reader: &mut PageReader<'_>,
    page: &TablePage,
    gaps: &mut Gaps<'_>,
) -> Result<(), OpenError> {
    let left = match reader.read_left(page.number, page.place) {
        Ok(left) => left,
        Err(PageError::Io(failure)) if failure.is_bad_sector() => return Ok(()),
        Err(error) => return Err(manifest_error(error.into())),
    };
    if let Err(error) = gaps.rescue.snapshot_page_left(page.number, &left) {
        let (file, offset) = (page.place.file(), page.place.offset.into());
        gaps.add(&file, offset, format!("a page cannot be used: {error}"));
    }
    Ok(())
}

fn crc_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).map_or(0, |crc| read_u32(crc, 0))
}

fn is_trailer(bytes: &[u8], at: usize) -> bool {
    bytes
        .get(at..)
        .is_some_and(|rest| rest.len() == TRAILER_SIZE && rest.starts_with(b"DONE"))
}

struct Part<'a> {
    header: [u8; PART_HEADER_SIZE],
    /// Its content, as far as the file goes.
    bytes: &'a [u8],
    is_complete: bool,
    crc: u32,
}

impl<'a> Part<'a> {
    fn at(file: &'a [u8], at: usize) -> Option<Self> {
        if is_trailer(file, at) {
            return None;
        }
        let (header, rest) = file.get(at..)?.split_first_chunk()?;
        let length = read_u32(header, 8) as usize;
        Some(Self {
            header: *header,
            bytes: &rest[..length.min(rest.len())],
            is_complete: length <= rest.len(),
            crc: read_u32(header, 12),
        })
    }

    fn is_whole(&self, before: u32) -> bool {
        self.is_complete && part_crc(before, &self.header, self.bytes) == self.crc
    }

    /// Where the next part begins, if this one is damaged: where its length says, or if nothing
    /// begins there, where the position that stands before every part shows again.
    fn next(&self, file: &[u8], at: usize, position: LogPosition) -> usize {
        let mark = position.as_u64().to_le_bytes();
        let by_length = at + PART_HEADER_SIZE + self.bytes.len();
        let begins = |next: usize| {
            is_trailer(file, next) || file.get(next..).is_some_and(|rest| rest.starts_with(&mark))
        };
        if self.is_complete && begins(by_length) {
            return by_length;
        }
        (at + 8..file.len())
            .find(|next| begins(*next))
            .unwrap_or(file.len())
    }
}
