//! Pages that the log's owner reads while it goes on, and files that stay for that.

use std::collections::BTreeMap;

use super::{PageDamage, PageError, PageNumber, PagePlace, PageReader};
use crate::LogId;
use crate::storage::Storage;

/// Pages, with the places that they had when the log was asked. Their files stay until the log gets [`PagesRead`].
#[must_use = "their files stay until they are read"]
#[derive(Debug)]
pub struct PagesToRead {
    identity: LogId,
    places: BTreeMap<PageNumber, PagePlace>,
}

/// The end of a read.
#[must_use = "the log keeps the files until it knows"]
#[derive(Debug)]
pub struct PagesRead {
    /// The pair of files of each page.
    pub(super) pairs: Vec<u32>,
    /// Copies that are damaged.
    pub(super) damage: Vec<PageDamage>,
}

impl PagesRead {
    /// Copies that are damaged, or cannot be read. Others were read instead, unless these were damaged too.
    pub fn damage(&self) -> &[PageDamage] {
        &self.damage
    }
}

/// Reads groups of these pages.
pub struct GroupReader<'a> {
    reader: PageReader<'a>,
    places: &'a BTreeMap<PageNumber, PagePlace>,
}

impl GroupReader<'_> {
    /// Reads a group of one of the pages, and verifies it.
    pub fn group(&mut self, number: PageNumber, index: usize) -> Result<Vec<u8>, PageError> {
        let place = self.places.get(&number).copied();
        let place = place.expect("only pages are read that were asked for");
        self.reader.read_group(number, place, index)
    }
}

impl PagesToRead {
    pub(super) fn new(identity: LogId, places: BTreeMap<PageNumber, PagePlace>) -> Self {
        Self { identity, places }
    }

    /// Reads them. Blocks.
    pub fn read<R>(
        self,
        storage: &dyn Storage,
        read: impl FnOnce(&mut GroupReader<'_>) -> R,
    ) -> (R, PagesRead) {
        let mut reader = GroupReader {
            reader: PageReader::new(storage, self.identity),
            places: &self.places,
        };
        let result = read(&mut reader);
        let damage = reader.reader.damage().to_vec();
        let pairs = self.places.values().map(|place| place.pair).collect();
        (result, PagesRead { pairs, damage })
    }
}
