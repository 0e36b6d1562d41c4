//! Manifests: snapshots that name pages.
//!
//! A manifest is a snapshot's file whose first parts are a table of pages. What is written each time lies in the file, as
//! parts. What the last manifest has too is named again and not written. A reader restores the parts of the file, and
//! then the pages in the order of the table.

use std::collections::BTreeSet;

use thiserror::Error;

use super::table::{Varints, put_varint};
use super::{
    PageAppender, PageContent, PageDamage, PageError, PageNumber, PagePlace, PageReader, PageTable,
};
use crate::format::names;
use crate::replay::BoxError;
use crate::snapshot::{
    self, PartReader, ReadError, SnapshotContent, SnapshotError, SnapshotHeader,
};
use crate::storage::{IoFailure, Storage};
use crate::{LogId, LogPosition};

/// How many parts and pages a manifest has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannedManifest {
    /// Parts that lie in its file. They are restored first.
    pub parts: usize,
    /// Pages.
    pub pages: usize,
}

/// The content of a manifest. The job that writes it asks for one piece after the other.
pub trait ManifestContent: Send {
    /// Plans the pieces. The same each time.
    fn plan(&mut self) -> PlannedManifest;

    /// Appends the bytes of a part to an empty buffer.
    fn put_part(&self, index: usize, out: &mut Vec<u8>);

    /// The page that has a piece's content already, if it is named by the newest manifest.
    fn page(&self, index: usize) -> Option<PageNumber>;

    /// Makes the page of a piece.
    fn put_page(&self, index: usize, page: &mut PageContent);

    /// Notes the page that has a piece's content. Called when the manifest is durable, and never for one that is not.
    fn keep(&self, index: usize, page: PageNumber);
}

/// What is written, and what is there.
#[derive(Debug)]
pub(super) struct ManifestPlan<'a> {
    /// The state includes all records before this position, and no later ones.
    pub(super) position: LogPosition,
    /// Content checksum of the batch before that position.
    pub(super) chain: u32,
    /// The partition's time at that position, in milliseconds.
    pub(super) time_ms: u64,
    /// The pages that the newest manifest names.
    pub(super) newest: &'a PageTable,
    /// The pairs of files whose pages are to lie elsewhere.
    pub(super) to_empty: &'a BTreeSet<u32>,
}

/// Why a manifest was not written, or cannot be read.
#[derive(Debug, Error)]
pub enum ManifestError {
    /// The storage failed. If it was a write, there is no such manifest.
    #[error(transparent)]
    Io(IoFailure),
    /// It was written. Whether its name is durable is unknown.
    #[error(transparent)]
    Unsure(IoFailure),
    /// It, or both copies of a page of it, are not what was written.
    #[error("{} is damaged at byte {}: {}", .0.file, .0.offset, .0.what)]
    Damaged(PageDamage),
    /// What it has cannot be restored.
    #[error("a part of the snapshot at {0} cannot be restored: {1}")]
    Restore(LogPosition, BoxError),
}

impl From<IoFailure> for ManifestError {
    fn from(failure: IoFailure) -> Self {
        Self::Io(failure)
    }
}

impl From<SnapshotError> for ManifestError {
    fn from(error: SnapshotError) -> Self {
        match error {
            SnapshotError::Unfinished(failure) => Self::Io(failure),
            SnapshotError::Unsure(failure) => Self::Unsure(failure),
        }
    }
}

impl From<PageError> for ManifestError {
    fn from(error: PageError) -> Self {
        match error {
            PageError::Io(failure) => Self::Io(failure),
            PageError::Damaged(damage) => Self::Damaged(damage),
        }
    }
}

/// Writes a manifest, and the pages that it needs and that are not there. When this returns, all of it is durable, and
/// the content has been told its pages. Returns them, and the size of the manifest's file.
pub(super) fn write_manifest(
    storage: &dyn Storage,
    appender: &mut PageAppender,
    plan: &ManifestPlan<'_>,
    content: &mut dyn ManifestContent,
) -> Result<(PageTable, u64), ManifestError> {
    let planned = content.plan();
    let table = write_pages(storage, appender, plan, planned.pages, content)?;
    appender.sync(storage)?;
    let header = SnapshotHeader {
        log: appender.identity(),
        position: plan.position,
        chain: plan.chain,
        time_ms: plan.time_ms,
        part_count: 0,
        begins_anew: false,
        has_pages: true,
    };
    let mut file = ManifestFile {
        first: first_parts(&table, appender.next_number()),
        rest: planned.parts,
        content,
    };
    let size_bytes = snapshot::write(storage, header, &mut file)?;
    for (index, page) in table.pages().iter().enumerate() {
        content.keep(index, page.number);
    }
    Ok((table, size_bytes))
}

/// Writes the pages that are not there.
fn write_pages(
    storage: &dyn Storage,
    appender: &mut PageAppender,
    plan: &ManifestPlan<'_>,
    count: usize,
    content: &dyn ManifestContent,
) -> Result<PageTable, ManifestError> {
    let places = plan.newest.places();
    let mut copies = Copies {
        reader: PageReader::new(storage, appender.identity()),
        bytes_left: appender.options().copied_bytes_max,
        plan,
    };
    let (mut table, mut page) = (PageTable::default(), PageContent::default());
    for index in 0..count {
        let kept = content.page(index);
        let known = kept.and_then(|number| Some((number, *places.get(&number)?)));
        let known = match known {
            Some((number, place)) => copies.place(storage, appender, number, place)?,
            None => None,
        };
        let (number, place) = match known {
            Some(known) => known,
            None => {
                content.put_page(index, &mut page);
                appender.append(storage, plan.position, &page)?
            }
        };
        table.push(number, place);
    }
    Ok(table)
}

/// Copies pages out of files that are to be emptied.
struct Copies<'a> {
    reader: PageReader<'a>,
    bytes_left: u64,
    plan: &'a ManifestPlan<'a>,
}

impl Copies<'_> {
    /// Where a page lies that is there: in its place, or in a new one. `None` if it cannot be copied because it is
    /// damaged, and is to be made again.
    fn place(
        &mut self,
        storage: &dyn Storage,
        appender: &mut PageAppender,
        number: PageNumber,
        place: PagePlace,
    ) -> Result<Option<(PageNumber, PagePlace)>, ManifestError> {
        let size_bytes = u64::from(place.size_bytes);
        let stays = !self.plan.to_empty.contains(&place.pair) || size_bytes > self.bytes_left;
        if stays {
            return Ok(Some((number, place)));
        }
        let read = match self.reader.read(number, place) {
            Ok(read) => read,
            Err(PageError::Io(failure)) => return Err(failure.into()),
            Err(PageError::Damaged(_)) => return Ok(None),
        };
        self.bytes_left -= size_bytes;
        let copied = appender.append_as(storage, number, read.position, &read.content)?;
        Ok(Some((number, copied)))
    }
}

/// The parts before the content's: how many of them there are and the number of the next page, then the table.
fn first_parts(table: &PageTable, next: PageNumber) -> Vec<Vec<u8>> {
    let of_table = table.parts();
    let mut first = Vec::new();
    put_varint(&mut first, of_table.len() as u64);
    put_varint(&mut first, next.as_u64());
    std::iter::once(first).chain(of_table).collect()
}

/// A manifest's file as the parts of a snapshot.
struct ManifestFile<'a> {
    first: Vec<Vec<u8>>,
    rest: usize,
    content: &'a mut dyn ManifestContent,
}

impl SnapshotContent for ManifestFile<'_> {
    fn plan(&mut self) -> usize {
        self.first.len() + self.rest
    }

    fn put_part(&self, index: usize, out: &mut Vec<u8>) {
        match self.first.get(index) {
            Some(part) => out.extend_from_slice(part),
            None => self.content.put_part(index - self.first.len(), out),
        }
    }
}

/// A piece of a manifest, as it is restored.
#[derive(Debug)]
pub enum Restored<'a> {
    /// A part of its file.
    Part(&'a [u8]),
    /// A page.
    Page(PageNumber, &'a PageContent),
}

/// What was read of a manifest.
#[derive(Debug)]
pub struct ReadManifest {
    /// Content checksum of the batch before its position.
    pub chain: u32,
    /// Its pages.
    pub table: PageTable,
    /// No kept page has this number or a higher one.
    pub next_number: PageNumber,
    /// Damaged copies of its pages. The other copies are whole.
    pub damage: Vec<PageDamage>,
}

/// Reads a manifest, or a snapshot without pages, and passes on its pieces. It is whole only if this returns without an
/// error; what was passed on before an error must be discarded.
pub fn read_manifest(
    storage: &dyn Storage,
    identity: LogId,
    position: LogPosition,
    restore: &mut dyn FnMut(Restored<'_>) -> Result<(), BoxError>,
) -> Result<ReadManifest, ManifestError> {
    let mut read = read_file(storage, Some(identity), position, restore)?;
    let mut reader = PageReader::new(storage, identity);
    for page in read.table.pages() {
        let content = reader.read(page.number, page.place)?.content;
        restore(Restored::Page(page.number, &content))
            .map_err(|error| ManifestError::Restore(position, error))?;
    }
    read.damage.extend_from_slice(reader.damage());
    Ok(read)
}

/// Reads the table of a manifest that is kept, and not its pages.
pub fn read_table(
    storage: &dyn Storage,
    position: LogPosition,
) -> Result<ReadManifest, ManifestError> {
    read_file(storage, None, position, &mut |_| Ok(()))
}

/// Reads the file alone, and passes on its parts.
fn read_file(
    storage: &dyn Storage,
    identity: Option<LogId>,
    position: LogPosition,
    restore: &mut dyn FnMut(Restored<'_>) -> Result<(), BoxError>,
) -> Result<ReadManifest, ManifestError> {
    let name = names::snapshot(position.as_u64());
    let damaged = |offset: u64, what: &str| {
        ManifestError::Damaged(PageDamage {
            file: name.clone(),
            offset,
            what: what.to_owned(),
        })
    };
    let failed = |error: ReadError| match error {
        ReadError::Io(failure) => ManifestError::Io(failure),
        ReadError::Format(offset, error) => damaged(offset, &error.to_string()),
        ReadError::Replay(position, error) => ManifestError::Restore(position, error),
    };
    let mut parts = PartReader::open(storage, position).map_err(failed)?;
    let header = parts.header();
    if identity.is_some_and(|identity| identity != header.log) {
        return Err(damaged(0, "the manifest is one of another log"));
    }
    let mut first = FirstParts::new(header.has_pages);
    loop {
        let at = parts.offset();
        let Some(part) = parts.next_part().map_err(failed)? else {
            break;
        };
        if !first.take(part).map_err(|what| damaged(at, what))? {
            restore(Restored::Part(part))
                .map_err(|error| ManifestError::Restore(position, error))?;
        }
    }
    let read = first.finish(header.chain);
    read.ok_or_else(|| damaged(0, "the table of pages is not whole"))
}

/// Reads the table, as its parts come.
struct FirstParts {
    /// The parts of the table that are missing. `None` before the first part.
    missing: Option<u64>,
    table: PageTable,
    next_number: PageNumber,
}

impl FirstParts {
    fn new(has_pages: bool) -> Self {
        Self {
            missing: (!has_pages).then_some(0),
            table: PageTable::default(),
            next_number: PageNumber::default(),
        }
    }

    /// Returns whether it was one of the table's.
    fn take(&mut self, part: &[u8]) -> Result<bool, &'static str> {
        match self.missing {
            None => {
                let mut r = Varints(part);
                let both = r.next().zip(r.next());
                let (count, next) = both.ok_or("the manifest does not say what it names")?;
                self.missing = Some(count);
                self.next_number = PageNumber::new(next);
                Ok(true)
            }
            Some(0) => Ok(false),
            Some(count) => {
                self.table.add_part(part)?;
                self.missing = Some(count - 1);
                Ok(true)
            }
        }
    }

    fn finish(self, chain: u32) -> Option<ReadManifest> {
        (self.missing == Some(0)).then_some(ReadManifest {
            chain,
            table: self.table,
            next_number: self.next_number,
            damage: Vec::new(),
        })
    }
}
