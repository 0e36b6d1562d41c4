//! Pages that the log's owner reads while it goes on, and files that stay for that.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::format::pair_of;
use super::{PageContent, PageDamage, PageError, PageNumber, PagePlace, PageReader};
use crate::LogId;
use crate::storage::Storage;

/// Pages, with the places that they had when the log was asked. Their files stay until the log gets [`PagesRead`].
#[must_use = "their files stay until they are read"]
pub struct PagesToRead(Pages);

enum Pages {
    InFiles {
        storage: Arc<dyn Storage>,
        identity: LogId,
        places: BTreeMap<PageNumber, PagePlace>,
    },
    InMemory(BTreeMap<PageNumber, Arc<PageContent>>),
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
pub struct GroupReader<'a>(Source<'a>);

enum Source<'a> {
    Files(Box<FileReader<'a>>),
    Memory(&'a BTreeMap<PageNumber, Arc<PageContent>>),
}

struct FileReader<'a> {
    reader: PageReader<'a>,
    places: &'a BTreeMap<PageNumber, PagePlace>,
    /// Pages of which something is damaged in both copies, as pair and offset.
    lost: BTreeSet<(u32, u64)>,
}

impl GroupReader<'_> {
    /// Reads a group of one of the pages, and verifies it.
    pub fn group(&mut self, number: PageNumber, index: usize) -> Result<Vec<u8>, PageError> {
        match &mut self.0 {
            Source::Files(files) => files.group(number, index),
            Source::Memory(pages) => {
                let page = pages.get(&number);
                let page = page.expect("only pages are read that were asked for");
                let group = page.group(index).map(<[u8]>::to_vec);
                group.ok_or_else(|| {
                    PageError::Damaged(PageDamage {
                        file: format!("page {} in memory", number.as_u64()),
                        offset: 0,
                        what: format!("it has no group {index}"),
                    })
                })
            }
        }
    }

    /// Whether both files of a page are there and known as its own: then what is damaged is their content.
    pub fn has_both_files(&self, number: PageNumber) -> bool {
        match &self.0 {
            Source::Files(files) => files.has_both_files(number),
            Source::Memory(pages) => pages.contains_key(&number),
        }
    }
}

impl FileReader<'_> {
    fn group(&mut self, number: PageNumber, index: usize) -> Result<Vec<u8>, PageError> {
        let place = self.places.get(&number).copied();
        let place = place.expect("only pages are read that were asked for");
        let read = self.reader.read_group(number, place, index);
        if let Err(PageError::Damaged(_)) = read {
            self.lost.insert((place.pair, place.offset.into()));
        }
        read
    }

    fn has_both_files(&self, number: PageNumber) -> bool {
        let place = self.places.get(&number);
        place.is_some_and(|place| !self.reader.has_lost_file(place.pair))
    }

    fn end(&self) -> PagesRead {
        let damage = self.reader.damage().iter().cloned();
        let (lost, damage) = damage.partition(|damage| self.is_lost(damage));
        PagesRead {
            pairs: self.places.values().map(|place| place.pair).collect(),
            damage,
            lost,
        }
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
        Self(Pages::InFiles {
            storage: Arc::clone(storage),
            identity,
            places,
        })
    }

    /// Pages that are in memory, of a log that has no files.
    pub fn of(pages: BTreeMap<PageNumber, Arc<PageContent>>) -> Self {
        Self(Pages::InMemory(pages))
    }

    /// Reads them. Blocks.
    pub fn read<R>(self, read: impl FnOnce(&mut GroupReader<'_>) -> R) -> (R, PagesRead) {
        let mut reader = GroupReader(match &self.0 {
            Pages::InFiles {
                storage,
                identity,
                places,
            } => Source::Files(Box::new(FileReader {
                reader: PageReader::of_groups(&**storage, *identity),
                places,
                lost: BTreeSet::new(),
            })),
            Pages::InMemory(pages) => Source::Memory(pages),
        });
        let result = read(&mut reader);
        let read = match reader.0 {
            Source::Files(files) => files.end(),
            Source::Memory(_) => PagesRead {
                pairs: Vec::new(),
                damage: Vec::new(),
                lost: Vec::new(),
            },
        };
        (result, read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_in_memory_are_read_by_groups() {
        let number = PageNumber::new(3);
        let mut page = PageContent::new(1);
        page.add_group(|out| out.extend(b"one"));
        page.add_group(|out| out.extend(b"two"));
        let pages = PagesToRead::of(BTreeMap::from([(number, Arc::new(page))]));
        let (groups, read) = pages.read(|reader| {
            assert!(reader.has_both_files(number));
            [0, 1, 2].map(|index| reader.group(number, index).ok())
        });
        assert_eq!(groups, [Some(b"one".to_vec()), Some(b"two".to_vec()), None]);
        assert!(read.damage().is_empty() && read.lost().is_empty());
    }
}
