//! A snapshot names pages that do not have its content, or pages that are gone.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use kew_log::{
    LogPosition, PageContent, PageNumber, PlannedSnapshot, SnapshotContent, Storage, StorageFile,
    read_table,
};
use kew_planted::{Hook, Keeper, Seam};

use super::hooks::on;
use crate::seam::{Gone, Opened, Renamed};

/// The kinds of pages, as their bytes name them.
const HEADS: u8 = 1;
const SESSIONS: u8 = 2;
pub(super) const DIRECTORY: u8 = 4;
const RUN: u8 = 5;

/// The page of a piece, whatever it has, by what names the piece.
type Known = Arc<Mutex<BTreeMap<Vec<u64>, PageNumber>>>;

/// A change to a queue's settings does not take the page of its head away.
pub(super) fn changed_head_keeps_page() -> Hook {
    named_again(HEADS)
}

/// A change to a session does not take the page of it away.
pub(super) fn changed_session_keeps_page() -> Hook {
    named_again(SESSIONS)
}

/// A change to runs does not take the page of their directory away.
pub(super) fn changed_directory_keeps_page() -> Hook {
    named_again(DIRECTORY)
}

/// A run that changed much keeps its page, and its changes do not lie in the directory.
pub(super) fn changed_run_keeps_page() -> Hook {
    named_again(RUN)
}

/// No bug: a snapshot names the pages that have its pieces.
pub(super) fn nothing() -> Hook {
    named_again(0)
}

fn named_again(kind: u8) -> Hook {
    let known = Known::default();
    on(
        Seam::Snapshot,
        move |content: &mut Box<dyn SnapshotContent>| {
            let inner = std::mem::replace(content, Box::new(Vec::new()));
            let known = Arc::clone(&known);
            *content = Box::new(NamedAgain { inner, known, kind });
        },
    )
}

/// A snapshot that names the page again that a piece of one kind had first, although the piece changed.
struct NamedAgain {
    inner: Box<dyn SnapshotContent>,
    known: Known,
    kind: u8,
}

impl NamedAgain {
    /// What names a piece: none if its page is of another kind.
    fn name(&self, index: usize) -> Option<Vec<u64>> {
        if !self.inner.can_make(index) {
            return None;
        }
        let mut page = PageContent::default();
        self.inner.put_page(index, &mut page);
        // Behind the version.
        let (_, mut bytes) = page.group(0)?.split_first()?;
        let mut numbers = Vec::new();
        while numbers.len() < 6
            && let Some(number) = varint(&mut bytes)
        {
            numbers.push(number);
        }
        (page.kind == self.kind).then_some(())?;
        match (page.kind, numbers.as_slice()) {
            // The service, and the group.
            (HEADS, [service, group, ..]) => Some(vec![*service, *group]),
            (SESSIONS, [queue, ..]) => Some(vec![*queue]),
            // The entity, the length of runs, the unit, how many runs, and the index of the first.
            (DIRECTORY, [entity, _, _, _, first, ..]) => Some(vec![*entity, first / 64]),
            (RUN, [entity, _, _, index, ..]) => Some(vec![*entity, *index]),
            _ => None,
        }
    }
}

impl SnapshotContent for NamedAgain {
    fn plan(&mut self) -> PlannedSnapshot {
        self.inner.plan()
    }

    fn put_part(&self, index: usize, out: &mut Vec<u8>) {
        self.inner.put_part(index, out);
    }

    fn page(&self, index: usize) -> Option<PageNumber> {
        let known = || {
            let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            known.get(&self.name(index)?).copied()
        };
        self.inner.page(index).or_else(known)
    }

    fn can_make(&self, index: usize) -> bool {
        self.inner.can_make(index)
    }

    fn put_page(&self, index: usize, page: &mut PageContent) {
        self.inner.put_page(index, page);
    }

    fn keep(&self, index: usize, page: PageNumber) {
        if let Some(name) = self.name(index) {
            let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            known.insert(name, page);
        }
        self.inner.keep(index, page);
    }
}

pub(super) fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

/// A run is taken out of memory while a snapshot is written, or although the newest one names another page of it.
pub(super) fn evicted_at_any_time() -> Hook {
    ignored(Keeper::Pages)
}

/// A run is taken out of memory although something waits for its records.
pub(super) fn pins_ignored() -> Hook {
    ignored(Keeper::Pins)
}

fn ignored(what: Keeper) -> Hook {
    on(
        Seam::MayEvict,
        move |(keeper, is_kept): &mut (Keeper, bool)| *is_kept &= *keeper != what,
    )
}

/// The pages of the older snapshot go as soon as a newer one has its name.
pub(super) fn pages_of_older_removed() -> Hook {
    on(Seam::Renamed, |(disk, name): &mut Renamed| {
        if !name.starts_with("snapshot-") || name.contains('.') {
            return;
        }
        let named = |name: &str| {
            let digits = name.strip_prefix("snapshot-")?;
            let position = LogPosition::new(digits.parse().ok()?);
            let read = read_table(disk, position).ok()?;
            Some(read.table.pages().iter().map(|it| it.place.pair).collect())
        };
        let Some(newest): Option<BTreeSet<u32>> = named(name) else {
            return;
        };
        let names = disk.list().unwrap_or_default();
        let older = names.iter().filter(|it| *it != name);
        let older: BTreeSet<u32> = older.filter_map(|it| named(it)).flatten().collect();
        for pair in older.difference(&newest) {
            for number in [2 * u64::from(*pair), 2 * u64::from(*pair) + 1] {
                let _ = disk.remove(&format!("pages-{number:020}"));
            }
        }
    })
}

/// A scrub takes a snapshot for damaged that was removed meanwhile, and pages that were removed with it.
pub(super) fn removed_is_damaged() -> Hook {
    on(Seam::Gone, |(_, file): &mut Gone| {
        *file = Some(Arc::new(Empty));
    })
}

struct Empty;

impl StorageFile for Empty {
    fn read_at(&self, _: &mut [u8], _: u64) -> io::Result<usize> {
        Ok(0)
    }

    fn write_at(&self, _: &[u8], _: u64) -> io::Result<usize> {
        Err(io::ErrorKind::StorageFull.into())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(0)
    }
}

/// What is written as the second copy of a page is something else.
pub(super) fn second_copy_differs() -> Hook {
    on(Seam::File, |(name, file): &mut Opened| {
        let number: Option<u64> = name.strip_prefix("pages-").and_then(|it| it.parse().ok());
        if number.is_some_and(|it| !it.is_multiple_of(2)) {
            *file = Arc::new(Differs(Arc::clone(file)));
        }
    })
}

struct Differs(Arc<dyn StorageFile>);

impl StorageFile for Differs {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        let mut bytes = bytes.to_vec();
        if offset > 0
            && let Some(first) = bytes.first_mut()
        {
            *first ^= 1;
        }
        self.0.write_at(&bytes, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }
}
