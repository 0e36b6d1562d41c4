//! Pages: immutable pieces of the state, each written to two files, and the files that hold them.
//!
//! A page has a number, and only the log knows where it lies. Its content is opaque: a kind, and a few groups of bytes
//! that can be read one by one. Files come in pairs with the same pages at the same offsets, so that damage to one copy
//! loses nothing. A start begins a pair of its own, and what was synced is never written again.
//!
//! A *manifest* is a snapshot's file that names its pages. Pages that no manifest names do not count, and a pair of files
//! goes when no kept manifest names a page in it. `docs/core.md` says why.
//!
//! Invariants: a manifest is durable only after all its pages are; a pair of files has one salt, and the name of a pair
//! never stands for two of them in one manifest's life.

mod anew;
mod appender;
mod files;
mod format;
mod manifest;
mod mend;
mod reader;
mod reading;
mod restored;
mod store;
mod table;

use self::anew::NewestPages;
pub use self::anew::ToDrain;
pub use self::appender::PageAppender;
use self::files::PageFiles;
pub use self::files::remove_pairs;
pub(crate) use self::format::{file_numbers, pair_of};
pub use self::manifest::{ManifestError, PlannedSnapshot, SnapshotContent, SnapshotForm};
use self::manifest::{ManifestPlan, Written, write_manifest};
pub use self::mend::PageFileDamage;
pub(crate) use self::mend::{check_pages, header_crc, mend_pages};
pub(crate) use self::reader::{NOTED_MAX, header_damage};
pub use self::reader::{PageDamage, PageError, PageReader, ReadPage};
pub use self::reading::{GroupReader, PagesRead, PagesToRead};
pub(crate) use self::restored::{
    FirstParts, Instead, Reading, Replaying, read_file, replay_manifest,
};
pub use self::restored::{ReadManifest, Restored, read_manifest, read_table};
pub use self::store::{PageStore, WriteManifest, WrittenManifest};
pub(crate) use self::table::{InPair, bytes_by_pair};
pub use self::table::{PageTable, TablePage};

/// The number of a page. While a manifest is kept, no other page gets a number that was used
/// before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageNumber(u64);

impl PageNumber {
    /// The page of that number.
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// The number.
    pub const fn as_u64(self) -> u64 {
        self.0
    }
}

/// Where both copies of a page lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PagePlace {
    /// The pair of files.
    pub pair: u32,
    /// Where the page begins in each of them.
    pub offset: u32,
    /// Its size with its header.
    pub size_bytes: u32,
}

impl PagePlace {
    /// The name of the first of the two files.
    pub(crate) fn file(&self) -> String {
        format::name(self.pair, format::Copy::First)
    }
}

/// The content of a page, in groups that can be read one by one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageContent {
    /// What kind of page it is, for the owner of the state.
    pub kind: u8,
    bytes: Vec<u8>,
    /// Where each group ends.
    ends: Vec<usize>,
}

impl PageContent {
    /// A page without groups.
    pub fn new(kind: u8) -> Self {
        Self {
            kind,
            bytes: Vec::new(),
            ends: Vec::new(),
        }
    }

    /// Makes it an empty page of a kind, and keeps its memory.
    pub fn begin(&mut self, kind: u8) {
        self.kind = kind;
        self.bytes.clear();
        self.ends.clear();
    }

    /// Adds a group: the bytes that `put` appends.
    pub fn add_group(&mut self, put: impl FnOnce(&mut Vec<u8>)) {
        put(&mut self.bytes);
        self.ends.push(self.bytes.len());
    }

    /// How many groups it has.
    pub fn group_count(&self) -> usize {
        self.ends.len()
    }

    /// The bytes of a group.
    pub fn group(&self, index: usize) -> Option<&[u8]> {
        let end = *self.ends.get(index)?;
        let before = index.checked_sub(1).and_then(|it| self.ends.get(it));
        self.bytes.get(before.copied().unwrap_or(0)..end)
    }

    /// All groups, in order.
    pub fn groups(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.ends.len()).filter_map(|index| self.group(index))
    }

    /// The bytes of all groups together.
    pub fn size_bytes(&self) -> usize {
        self.bytes.len()
    }
}

/// What is left of a page of which both copies are damaged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageLeft {
    /// What kind of page it is. Without any group, nothing says that.
    pub kind: u8,
    groups: Vec<Option<Vec<u8>>>,
}

impl PageLeft {
    /// Its groups, in order, each with its bytes if they can be read. None of them if it is not even known how many there
    /// were.
    pub fn groups(&self) -> impl Iterator<Item = Option<&[u8]>> {
        self.groups.iter().map(Option::as_deref)
    }
}

/// Sizes of page files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageOptions {
    /// A file has at most so many bytes, unless one page needs more.
    pub file_size_bytes: u32,
    /// A snapshot copies at most so many bytes out of nearly empty files, or as many as the last one wrote of new pages.
    pub copied_bytes_max: u64,
    /// More pairs of files than this are too many, unless there are pages to fill half of them.
    pub pairs_max: usize,
}

impl Default for PageOptions {
    fn default() -> Self {
        Self {
            file_size_bytes: 64 << 20,
            copied_bytes_max: 16 << 20,
            pairs_max: 16,
        }
    }
}
