//! How much a manifest takes that has all pages anew, in pairs of files of its own.

use super::format::{ALIGNMENT, BLOCK_SIZE};
use super::{PageOptions, PageTable};

/// The most that a page takes in the table of a manifest if it lies behind the page before: the difference of the numbers,
/// one of the pairs, one of the offsets, and its size.
const TABLE_PAGE_SIZE_BYTES_MAX: u64 = 16;

/// What grows beside pages in the manifest itself: a page that is new counts for more than four times what it takes in the
/// table.
const MANIFEST_GROWTH_SHARE: u64 = 4;

/// How large a state is that is to be drained, as its owner counts it. All of these are upper bounds, and of one copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ToDrain {
    /// What its pages take, now and until it is drained, whatever the newest snapshot has.
    pub pages_bytes_max: u64,
    /// How much they have grown since the newest snapshot was begun.
    pub grown_bytes_max: u64,
    /// How much they grow while it is drained.
    pub consumed_bytes_max: u64,
    /// What the next batch adds.
    pub batch_bytes_max: u64,
}

impl ToDrain {
    /// The most that a manifest takes which is the first of its log.
    pub fn first_size_bytes_max(&self, options: &PageOptions) -> u64 {
        self.anew_size_bytes_max(options, None)
    }

    /// The most that a manifest takes which has all pages anew, now and while the state is drained. `newest` are the pages of
    /// the newest manifest with the size of its file, unless it says nothing of pages.
    pub(super) fn anew_size_bytes_max(
        &self,
        options: &PageOptions,
        newest: Option<(NewestPages, u64)>,
    ) -> u64 {
        let most_bytes = self.pages_bytes_max;
        let (pages_bytes, manifest_bytes) = match newest {
            None => (most_bytes, most_bytes),
            Some((newest, manifest_bytes)) => {
                let grown_bytes = self.grown_bytes_max;
                let bytes = newest.size_bytes.saturating_add(grown_bytes);
                let pages_bytes = bytes.saturating_add(self.consumed_bytes_max);
                let table_bytes = newest.count * TABLE_PAGE_SIZE_BYTES_MAX;
                let grown_bytes = grown_bytes / MANIFEST_GROWTH_SHARE;
                (
                    pages_bytes.min(most_bytes),
                    (manifest_bytes + table_bytes + grown_bytes).min(most_bytes),
                )
            }
        };
        files_bytes_max(options, pages_bytes)
            + manifest_bytes
            + u64::from(BLOCK_SIZE)
            + self.batch_bytes_max
    }
}

/// The pages of a manifest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct NewestPages {
    count: u64,
    /// What they take in a file.
    size_bytes: u64,
}

impl NewestPages {
    pub(super) fn of(table: &PageTable) -> Self {
        let pages = table.pages().iter();
        let sizes = pages.map(|page| page.place.size_bytes.next_multiple_of(ALIGNMENT));
        Self {
            count: table.pages().len() as u64,
            size_bytes: sizes.map(u64::from).sum(),
        }
    }

    /// What they take in pairs of their own, at most.
    pub(super) fn files_bytes_max(&self, options: &PageOptions) -> u64 {
        files_bytes_max(options, self.size_bytes)
    }
}

/// What pages of so many bytes take in both files of as many pairs as they need. The pages of two files that follow each
/// other have more bytes than one file takes beside its header: the first page of the second one had no room in the first.
fn files_bytes_max(options: &PageOptions, pages_bytes: u64) -> u64 {
    let room_bytes = u64::from(options.file_size_bytes.saturating_sub(BLOCK_SIZE).max(1));
    let pairs = 1 + 2 * pages_bytes / room_bytes;
    // The block of the header, and the last one, which is not full.
    let heads_bytes = pairs * 2 * u64::from(BLOCK_SIZE);
    2 * (pages_bytes + heads_bytes)
}
