//! Manifests: snapshots that name pages.
//!
//! A manifest is a snapshot's file whose first parts are a table of pages. What is written each time lies in the file, as
//! parts. What the last manifest has too is named again and not written. A snapshot without pages has no table.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use thiserror::Error;

use super::table::{ByNumber, InPair, put_varint};
use super::{
    NewestPages, PageAppender, PageContent, PageDamage, PageError, PageNumber, PagePlace,
    PageReader, PageTable,
};
use crate::LogPosition;
use crate::replay::BoxError;
use crate::snapshot::{self, Parts, SnapshotError, SnapshotHeader};
use crate::storage::{IoFailure, Storage};

/// How many parts and pages a snapshot has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannedSnapshot {
    /// Parts that lie in its file. They are restored first.
    pub parts: usize,
    /// Pages.
    pub pages: usize,
}

/// What a snapshot's file has itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SnapshotForm {
    /// What is written each time. The rest lies in pages, and those that did not change are named where they lie.
    Pages,
    /// The same, but all pages lie in files of their own: those that did not change are copied. On a full disk: how much that
    /// takes, and what goes with it, does not depend on other snapshots.
    Anew,
}

/// The content of a snapshot. The job that writes it asks for one piece after the other, so that no more than one is in
/// memory as bytes.
pub trait SnapshotContent: Send {
    /// Plans the pieces. The same each time, whatever the form.
    fn plan(&mut self) -> PlannedSnapshot;

    /// Appends the bytes of a part to an empty buffer. Called after the plan was made.
    fn put_part(&self, index: usize, out: &mut Vec<u8>);

    /// The page that has a piece's content already, if the newest snapshot names it.
    fn page(&self, index: usize) -> Option<PageNumber>;

    /// Whether the page of a piece can be made. Otherwise the newest snapshot names it, and the next one names it where it
    /// lies, also if it cannot be copied.
    fn can_make(&self, _index: usize) -> bool {
        true
    }

    /// Makes the page of a piece.
    fn put_page(&self, index: usize, page: &mut PageContent);

    /// Notes the page that has a piece's content. Called when the snapshot is durable, and never for one that is not.
    fn keep(&self, index: usize, page: PageNumber);
}

/// A snapshot without pages.
impl SnapshotContent for Vec<Bytes> {
    fn plan(&mut self) -> PlannedSnapshot {
        PlannedSnapshot {
            parts: self.len(),
            pages: 0,
        }
    }

    fn put_part(&self, index: usize, out: &mut Vec<u8>) {
        out.extend_from_slice(&self[index]);
    }

    fn page(&self, _: usize) -> Option<PageNumber> {
        None
    }

    fn put_page(&self, _: usize, _: &mut PageContent) {}

    fn keep(&self, _: usize, _: PageNumber) {}
}

/// What is written, and what is there.
#[derive(Debug)]
pub(super) struct ManifestPlan<'a> {
    /// Of the manifest, but for the numbers of its parts and whether there are pages.
    pub(super) header: SnapshotHeader,
    pub(super) form: SnapshotForm,
    /// The pages that the newest manifest names.
    pub(super) newest: &'a PageTable,
    /// The pairs of files whose pages are to lie elsewhere, and how many bytes may be moved out of each for that.
    pub(super) to_empty: &'a BTreeMap<u32, u64>,
    /// Pairs with a damaged page: all of their pages are to lie elsewhere.
    pub(super) damaged: &'a BTreeSet<u32>,
    /// Pages that the newest manifest names although they cannot be read.
    pub(super) unreadable: &'a BTreeSet<PageNumber>,
}

/// A manifest that is durable.
#[derive(Debug)]
pub(super) struct Written {
    pub(super) table: PageTable,
    /// The bytes of its pages in each pair of files, of one copy, and where the last one ends there.
    pub(super) by_pair: BTreeMap<u32, InPair>,
    pub(super) by_number: ByNumber,
    pub(super) pages: NewestPages,
    /// The size of its file.
    pub(super) size_bytes: u64,
    /// What was written for it: its file, and both copies of new pages.
    pub(super) written_bytes: u64,
    /// The bytes of new pages, of one copy, without those that were only moved.
    pub(super) new_bytes: u64,
    /// Pages that it names although they cannot be read: a start may need them.
    pub(super) unreadable: BTreeSet<PageNumber>,
}

/// Why a manifest cannot be read.
#[derive(Debug, Error)]
pub enum ManifestError {
    /// The storage failed.
    #[error(transparent)]
    Io(IoFailure),
    /// It, or both copies of a page of it, are not what was written.
    #[error("{} is damaged at byte {}: {}", .0.file, .0.offset, .0.what)]
    Damaged(PageDamage),
    /// It is one of another log.
    #[error("{0} is a snapshot of another log")]
    OtherLog(String),
    /// A newer Kew has written it.
    #[error("{file} has format version {found}, which this version of Kew does not read")]
    Newer {
        /// The file.
        file: String,
        /// The version of its format.
        found: u32,
    },
    /// What it has cannot be restored.
    #[error("a part of the snapshot at {0} cannot be restored: {1}")]
    Restore(LogPosition, BoxError),
}

impl ManifestError {
    /// Whether it is damage: the same is wrong each time that it is read.
    pub(crate) fn is_lasting(&self) -> bool {
        match self {
            Self::Damaged(_) => true,
            Self::Io(failure) => failure.is_bad_sector(),
            Self::OtherLog(_) | Self::Newer { .. } | Self::Restore(..) => false,
        }
    }
}

impl From<IoFailure> for ManifestError {
    fn from(failure: IoFailure) -> Self {
        Self::Io(failure)
    }
}

impl From<PageError> for ManifestError {
    fn from(error: PageError) -> Self {
        match error {
            PageError::Io(failure) => Self::Io(failure),
            PageError::Newer { file, found } => Self::Newer { file, found },
            PageError::Damaged(damage) => Self::Damaged(PageDamage {
                what: format!("{}, and so is its copy", damage.what),
                ..damage
            }),
        }
    }
}

/// Writes a manifest, and the pages that it needs and that are not there. When this returns, all of it is durable, and
/// the content has been told its pages.
///
/// If it fails before the manifest has its name, nothing is left of it but what it has appended to a pair of files that
/// was there before.
pub(super) fn write_manifest(
    storage: &dyn Storage,
    appender: &mut PageAppender,
    plan: &ManifestPlan<'_>,
    content: &mut dyn SnapshotContent,
) -> Result<Written, SnapshotError> {
    let first_new = appender.next_pair();
    let written = try_write_manifest(storage, appender, plan, content);
    if let Err(SnapshotError::Unfinished(_)) = &written {
        appender.take_back(storage, first_new);
    }
    written
}

fn try_write_manifest(
    storage: &dyn Storage,
    appender: &mut PageAppender,
    plan: &ManifestPlan<'_>,
    content: &mut dyn SnapshotContent,
) -> Result<Written, SnapshotError> {
    let planned = content.plan();
    let appended_before = appender.appended_bytes();
    let WrittenPages {
        table,
        new_bytes,
        unreadable,
    } = write_pages(storage, appender, plan, planned.pages, content)?;
    appender.sync(storage)?;
    let has_pages = planned.pages > 0;
    let first = match has_pages {
        true => first_parts(&table, appender.next_number()),
        false => Vec::new(),
    };
    let header = SnapshotHeader {
        has_pages,
        table_parts: u32::try_from(first.len().saturating_sub(1)).unwrap_or_default(),
        ..plan.header
    };
    let size_bytes = {
        let file = ManifestFile {
            first,
            rest: planned.parts,
            content: &*content,
        };
        snapshot::write(storage, header, &file)?
    };
    for (index, page) in table.pages().iter().enumerate() {
        content.keep(index, page.number);
    }
    let appended_bytes = appender.appended_bytes() - appended_before;
    Ok(Written {
        by_pair: table.by_pair(),
        by_number: table.by_number(),
        pages: NewestPages::of(&table),
        table,
        size_bytes,
        written_bytes: size_bytes + 2 * appended_bytes,
        new_bytes,
        unreadable,
    })
}

/// The pages of a manifest.
#[derive(Default)]
struct WrittenPages {
    table: PageTable,
    new_bytes: u64,
    unreadable: BTreeSet<PageNumber>,
}

/// Writes the pages that are not there.
fn write_pages(
    storage: &dyn Storage,
    appender: &mut PageAppender,
    plan: &ManifestPlan<'_>,
    count: usize,
    content: &dyn SnapshotContent,
) -> Result<WrittenPages, SnapshotError> {
    let places = plan.newest.places();
    let mut copies = Copies {
        reader: PageReader::new(storage, appender.identity()),
        bytes_left: plan.to_empty.clone(),
        plan,
    };
    let (mut written, mut page) = (WrittenPages::default(), PageContent::default());
    for index in 0..count {
        let kept = content.page(index);
        let known = kept.and_then(|number| Some((number, *places.get(&number)?)));
        let known = match known {
            Some((number, place)) => {
                let placed = copies.place(storage, appender, number, place)?;
                let is_left = placed.is_none() && !content.can_make(index);
                let was_unreadable = placed == known && plan.unreadable.contains(&number);
                if is_left || was_unreadable {
                    written.unreadable.insert(number);
                }
                placed.or_else(|| is_left.then_some((number, place)))
            }
            None => None,
        };
        let (number, place) = match known {
            Some(known) => known,
            None => {
                assert!(
                    content.can_make(index),
                    "a page is named that the newest snapshot lacks"
                );
                content.put_page(index, &mut page);
                let (number, place) = appender.append(storage, plan.header.position, &page)?;
                written.new_bytes += u64::from(place.size_bytes);
                (number, place)
            }
        };
        written.table.push(number, place);
    }
    Ok(written)
}

/// Copies pages out of files that are to be emptied. For a manifest with all pages anew, these are all files.
struct Copies<'a> {
    reader: PageReader<'a>,
    /// How much may still be moved out of each pair that is to be emptied.
    bytes_left: BTreeMap<u32, u64>,
    plan: &'a ManifestPlan<'a>,
}

impl Copies<'_> {
    /// Where a page lies that is there: in its place, or in a new one. `None` if it cannot be copied because it cannot be
    /// read, and is to be made again.
    fn place(
        &mut self,
        storage: &dyn Storage,
        appender: &mut PageAppender,
        number: PageNumber,
        place: PagePlace,
    ) -> Result<Option<(PageNumber, PagePlace)>, SnapshotError> {
        let size_bytes = u64::from(place.size_bytes);
        let is_left =
            self.plan.form == SnapshotForm::Anew || self.plan.damaged.contains(&place.pair);
        let bytes_left = self.bytes_left.get_mut(&place.pair);
        let bytes_left = bytes_left.filter(|left| size_bytes <= **left);
        if !is_left && bytes_left.is_none() {
            return Ok(Some((number, place)));
        }
        let read = match self.reader.read(number, place) {
            Ok(read) => read,
            Err(PageError::Io(failure)) if failure.is_no_descriptor() => return Err(failure.into()),
            // A bad sector is damage, too.
            Err(PageError::Io(_) | PageError::Damaged(_) | PageError::Newer { .. }) => {
                return Ok(None);
            }
        };
        if let Some(left) = bytes_left {
            *left -= size_bytes;
        }
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
    content: &'a dyn SnapshotContent,
}

impl Parts for ManifestFile<'_> {
    fn count(&self) -> usize {
        self.first.len() + self.rest
    }

    fn put(&self, index: usize, out: &mut Vec<u8>) {
        match self.first.get(index) {
            Some(part) => out.extend_from_slice(part),
            None => self.content.put_part(index - self.first.len(), out),
        }
    }
}
