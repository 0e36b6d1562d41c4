//! Pages that the log's owner reads while it goes on, and files that stay for that.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::format::pair_of;
use super::{PageDamage, PageError, PageNumber, PagePlace, PageReader};
use crate::LogId;
use crate::storage::Storage;

/// Pages, with the places that they had when the log was asked. Their files stay until the log gets [`PagesRead`].
#[must_use = "their files stay until they are read"]
pub struct PagesToRead {
    storage: Arc<dyn Storage>,
    identity: LogId,
    places: BTreeMap<PageNumber, PagePlace>,
}

/// The end of a read.
#[must_use = "the log keeps the files until it knows"]
#[derive(Debug)]
pub struct PagesRead {
    /// The pair of files of each page.
    pub(super) pairs: Vec<u32>,
    /// Copies that are damaged, of pages that could be read.
    pub(super) damage: Vec<PageDamage>,
    /// Those of pages that could not.
    pub(super) lost: Vec<PageDamage>,
}

impl PagesRead {
    /// Copies that are damaged, or cannot be read. The other one was read instead, and is the only one.
    pub fn damage(&self) -> &[PageDamage] {
        &self.damage
    }

    /// Damaged copies of pages of which the other one is damaged, too.
    pub fn lost(&self) -> &[PageDamage] {
        &self.lost
    }
}

/// Reads groups of these pages.
pub struct GroupReader<'a> {
    reader: PageReader<'a>,
    places: &'a BTreeMap<PageNumber, PagePlace>,
    /// Pages of which something is damaged in both copies, as pair and offset.
    lost: BTreeSet<(u32, u64)>,
}

impl GroupReader<'_> {
    /// Reads a group of one of the pages, and verifies it.
    pub fn group(&mut self, number: PageNumber, index: usize) -> Result<Vec<u8>, PageError> {
        let place = self.places.get(&number).copied();
        let place = place.expect("only pages are read that were asked for");
        let read = self.reader.read_group(number, place, index);
        if let Err(PageError::Damaged(_)) = read {
            self.lost.insert((place.pair, place.offset.into()));
        }
        read
    }

    /// Whether both files of a page are there and known as its own: then what is damaged is their content.
    pub fn has_both_files(&self, number: PageNumber) -> bool {
        let place = self.places.get(&number);
        place.is_some_and(|place| !self.reader.has_lost_file(place.pair))
    }

    fn is_lost(&self, damage: &PageDamage) -> bool {
        let pair = pair_of(&damage.file);
        pair.is_some_and(|pair| self.lost.contains(&(pair, damage.offset)))
    }
}

impl PagesToRead {
    pub(super) fn new(
        storage: &Arc<dyn Storage>,
        identity: LogId,
        places: BTreeMap<PageNumber, PagePlace>,
    ) -> Self {
        Self {
            storage: Arc::clone(storage),
            identity,
            places,
        }
    }

    /// Reads them. Blocks.
    pub fn read<R>(self, read: impl FnOnce(&mut GroupReader<'_>) -> R) -> (R, PagesRead) {
        let mut reader = GroupReader {
            reader: PageReader::of_groups(&*self.storage, self.identity),
            places: &self.places,
            lost: BTreeSet::new(),
        };
        let result = read(&mut reader);
        let damage = reader.reader.damage().iter().cloned();
        let (lost, damage) = damage.partition(|damage| reader.is_lost(damage));
        let read = PagesRead {
            pairs: self.places.values().map(|place| place.pair).collect(),
            damage,
            lost,
        };
        (result, read)
    }
}
