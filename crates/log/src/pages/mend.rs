//! Copies of page files for a backup. A page lies in both files of a pair, so what is damaged in one of them is taken from
//! the other one, and the backup has both whole.

use std::io;

use super::format::{Copy, FILE_HEADER_SIZE, FileHeader, copy_of, name, pair_of};
use super::reader::header_of;
use super::{PageDamage, PageError, PageReader, ReadManifest, TablePage};
use crate::format::FormatError;
use crate::storage::{self, Action, IoFailure, Storage};

/// Damage in a file of pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageFileDamage {
    /// The first place.
    pub first: PageDamage,
    /// How many places there are: pages, and the header.
    pub places: u64,
}

/// A copy of a page file.
struct Copied<'a> {
    /// A directory with the copy alone, under the name of the file.
    view: &'a dyn Storage,
    name: &'a str,
    pair: u32,
    copy: Copy,
    found: Option<PageFileDamage>,
}

/// Checks the header of a copy of a page file, and the pages of a snapshot in it. Reads nothing else of it.
pub(crate) fn check_pages(
    view: &dyn Storage,
    snapshot: &ReadManifest,
    name: &str,
) -> Result<Option<PageFileDamage>, PageError> {
    let mut copied = Copied::new(view, name)?;
    if let Some(error) = copied.header_damage()? {
        copied.note(0, &error);
        return Ok(copied.found);
    }
    copied.check(snapshot, &mut |_| Ok(()))?;
    Ok(copied.found)
}

/// The same, and writes what is damaged as the source has it, in the same file or in the other one of its pair. Fails if it
/// has it in neither. The view shows what was written.
pub(crate) fn mend_pages(
    source: &dyn Storage,
    view: &dyn Storage,
    snapshot: &ReadManifest,
    name: &str,
    write: &mut dyn FnMut(u64, &[u8]) -> io::Result<()>,
) -> Result<Option<PageFileDamage>, PageError> {
    let mut copied = Copied::new(view, name)?;
    let mut write = |offset, bytes: &[u8]| {
        write(offset, bytes).map_err(|error| IoFailure::new(Action::Write, name, error))
    };
    if let Some(error) = copied.header_damage()? {
        write(0, &header_bytes(source, copied.pair, copied.copy)?)?;
        copied.note(0, &error);
    }
    let mut reader = PageReader::new(source, snapshot.header.log);
    copied.check(snapshot, &mut |page| {
        let bytes = reader.raw(page.number, page.place)?;
        Ok(write(page.place.offset.into(), &bytes)?)
    })?;
    Ok(copied.found)
}

impl<'a> Copied<'a> {
    fn new(view: &'a dyn Storage, name: &'a str) -> Result<Self, PageError> {
        let (pair, copy) = parts_of(name)?;
        Ok(Self {
            view,
            name,
            pair,
            copy,
            found: None,
        })
    }

    fn header_damage(&self) -> Result<Option<FormatError>, PageError> {
        match read_header(self.view, self.pair, self.copy)? {
            Ok(_) => Ok(None),
            Err(error) => Ok(Some(error)),
        }
    }

    /// Checks pages. Each that is damaged is noted, and passed on.
    fn check(
        &mut self,
        snapshot: &ReadManifest,
        pass: &mut dyn FnMut(&TablePage) -> Result<(), PageError>,
    ) -> Result<(), PageError> {
        let mut reader = PageReader::new(self.view, snapshot.header.log);
        for page in snapshot.table.pages() {
            if page.place.pair != self.pair {
                continue;
            }
            if let Some(error) = reader.damage_of(page.number, page.place, self.copy)? {
                pass(page)?;
                self.note(page.place.offset.into(), &error);
            }
        }
        Ok(())
    }

    fn note(&mut self, offset: u64, error: &FormatError) {
        let found = self.found.get_or_insert_with(|| PageFileDamage {
            first: PageDamage {
                file: self.name.to_owned(),
                offset,
                what: error.to_string(),
            },
            places: 0,
        });
        found.places += 1;
    }
}

fn parts_of(name: &str) -> Result<(u32, Copy), PageError> {
    let parts = pair_of(name).zip(copy_of(name));
    parts.ok_or_else(|| {
        PageError::Damaged(PageDamage {
            file: name.to_owned(),
            offset: 0,
            what: "this is not the name of a page file".to_owned(),
        })
    })
}

/// The checksum of the header that a file of pages has, or must have by the other file of its pair.
pub(crate) fn header_crc(storage: &dyn Storage, name: &str) -> Result<u32, PageError> {
    let (pair, copy) = parts_of(name)?;
    let bytes = header_bytes(storage, pair, copy)?;
    let crc = bytes.last_chunk().expect("a header is longer");
    Ok(u32::from_le_bytes(*crc))
}

/// The header of a file, from the other file of its pair if its own is damaged: only their numbers differ.
fn header_bytes(
    storage: &dyn Storage,
    pair: u32,
    copy: Copy,
) -> Result<[u8; FILE_HEADER_SIZE], PageError> {
    let mut damage = None;
    for from in [copy, copy.other()] {
        match read_header(storage, pair, from)? {
            Ok(header) => {
                let header = FileHeader {
                    number: copy.file_of(pair),
                    ..header
                };
                return Ok(header.encode());
            }
            Err(error) => damage.get_or_insert(PageDamage {
                file: name(pair, from),
                offset: 0,
                what: error.to_string(),
            }),
        };
    }
    let damage = damage.expect("both headers were read, and are damaged");
    Err(PageError::Damaged(damage))
}

/// Reads the header of a file. One that is missing or cannot be read is damaged.
fn read_header(
    storage: &dyn Storage,
    pair: u32,
    copy: Copy,
) -> Result<Result<FileHeader, FormatError>, PageError> {
    let file = name(pair, copy);
    let read = storage::open(storage, &file).and_then(|open| header_of(&*open, &file));
    match read {
        Err(failure) if failure.is_no_descriptor() => Err(failure.into()),
        Err(failure) if failure.is_not_found() => {
            Ok(Err(FormatError::Damaged("the page file is missing")))
        }
        Err(_) => Ok(Err(FormatError::Damaged(
            "the page file's header cannot be read",
        ))),
        Ok(Err(FormatError::Newer(found))) => Err(PageError::Newer { file, found }),
        Ok(Ok(header)) if header.number != copy.file_of(pair) => {
            Ok(Err(FormatError::Damaged("the page file is another one")))
        }
        Ok(header) => Ok(header),
    }
}
