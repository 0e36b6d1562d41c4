//! Page files and manifests: what is read is what was written, on a disk that loses power, bits and files.

mod reading;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use kew_log::{
    Fault, FaultyStorage, LogId, LogPosition, ManifestError, PageAppender, PageContent, PageError,
    PageNumber, PageOptions, PagePlace, PageReader, PageStore, PagesToRead, PlannedSnapshot,
    ReadManifest, Repeat, Restored, SnapshotContent, SnapshotError, SnapshotForm, Storage,
    read_manifest, read_table, remove_pairs,
};

use crate::random::Random;

const IDENTITY: LogId = LogId {
    cluster: 7,
    partition: 0,
};

/// Files end after a few pages.
const OPTIONS: PageOptions = PageOptions {
    file_size_bytes: 9000,
    copied_bytes_max: 2000,
    pairs_max: 4,
};

fn appender(entropy: u64, next: (u32, u64)) -> PageAppender {
    let next = (next.0, PageNumber::new(next.1));
    PageAppender::new(IDENTITY, OPTIONS, entropy, next)
}

fn page(groups: &[&[u8]]) -> PageContent {
    let mut page = PageContent::new(1);
    for group in groups {
        page.add_group(|out| out.extend_from_slice(group));
    }
    page
}

type At = (PageNumber, PagePlace);

/// Three pages in one pair of files.
fn three_pages(storage: &FaultyStorage) -> (Vec<At>, Vec<PageContent>) {
    let pages = vec![
        page(&[b"one", b"two"]),
        page(&[]),
        page(&[&[3; 500], b"", &[4; 700]]),
    ];
    let mut appender = appender(1, (0, 1));
    let append = |page| appender.append(storage, LogPosition::new(5), page).unwrap();
    let at = pages.iter().map(append).collect();
    appender.sync(storage).unwrap();
    (at, pages)
}

#[test]
fn pages_and_single_groups_are_read_as_they_were_written() {
    let storage = FaultyStorage::new();
    let (at, pages) = three_pages(&storage);
    let mut reader = PageReader::new(&storage, IDENTITY);
    for ((number, place), page) in at.iter().zip(&pages) {
        let read = reader.read(*number, *place).unwrap();
        assert_eq!((read.position, &read.content), (LogPosition::new(5), page));
        for (index, group) in page.groups().enumerate() {
            let read = reader.read_group(*number, *place, index).unwrap();
            assert_eq!(read, group);
        }
        let beyond = reader.read_group(*number, *place, page.group_count());
        assert!(matches!(beyond, Err(PageError::Damaged(_))));
    }
    assert_eq!(storage.files().len(), 2);
}

#[test]
fn a_page_is_not_taken_for_another_one() {
    let storage = FaultyStorage::new();
    let (at, _) = three_pages(&storage);
    let other = LogId {
        cluster: 8,
        ..IDENTITY
    };
    let cases = [
        (IDENTITY, at[0].0, at[2].1),
        (IDENTITY, at[2].0, at[0].1),
        (other, at[0].0, at[0].1),
    ];
    for (identity, number, place) in cases {
        let mut reader = PageReader::new(&storage, identity);
        let read = reader.read(number, place);
        assert!(matches!(read, Err(PageError::Damaged(_))), "{read:?}");
        assert_eq!(reader.damage().len(), 2);
    }
    let beyond = PagePlace {
        size_bytes: u32::MAX,
        ..at[0].1
    };
    let read = PageReader::new(&storage, IDENTITY).read(at[0].0, beyond);
    assert!(matches!(read, Err(PageError::Damaged(_))));
}

#[test]
fn rot_in_any_byte_of_a_copy_is_noticed_and_the_other_one_is_read() {
    let storage = FaultyStorage::new();
    let (at, pages) = three_pages(&storage);
    let files: Vec<String> = storage.files().into_iter().map(|(name, _)| name).collect();
    for ((number, place), page) in at.iter().zip(&pages) {
        let offsets = place.offset..place.offset + place.size_bytes;
        for offset in (0..52).chain(offsets) {
            let damaged = storage.kill();
            damaged.flip(&files[0], offset.into(), 1);
            let mut reader = PageReader::new(&damaged, IDENTITY);
            let read = reader.read(*number, *place).unwrap();
            assert_eq!(&read.content, page);
            assert_eq!(reader.damage().len(), 1, "byte {offset}");
            assert_eq!(reader.damage()[0].file, files[0]);
            // The pages behind a damaged header are whole.
            let whole = if offset < 52 { 2 } else { 1 };
            assert_eq!(reader.verify(*number, *place).unwrap(), whole);
            assert_eq!(reader.damage().len(), 1, "it is noted once");
            damaged.flip(&files[1], offset.into(), 1);
            let read = PageReader::new(&damaged, IDENTITY).read(*number, *place);
            assert!(matches!(read, Err(PageError::Damaged(_))), "byte {offset}");
        }
    }
    // A group is read without the others.
    let damaged = storage.kill();
    let (number, place) = at[2];
    for file in &files {
        damaged.flip(file, u64::from(place.offset + place.size_bytes) - 1, 1);
    }
    let mut reader = PageReader::new(&damaged, IDENTITY);
    assert_eq!(reader.read_group(number, place, 0).unwrap(), [3; 500]);
    assert!(reader.read_group(number, place, 2).is_err());
}

#[test]
fn a_file_that_is_missing_or_cut_or_cannot_be_read_costs_nothing_either() {
    let storage = FaultyStorage::new();
    let (at, pages) = three_pages(&storage);
    let files: Vec<String> = storage.files().into_iter().map(|(name, _)| name).collect();
    let (number, place) = at[2];
    for file in &files {
        let lost = storage.kill();
        lost.lose_file(file);
        let cut = storage.kill();
        cut.truncate(file, u64::from(place.offset) + 9);
        for damaged in [lost, cut] {
            let mut reader = PageReader::new(&damaged, IDENTITY);
            assert_eq!(reader.read(number, place).unwrap().content, pages[2]);
            assert_eq!(reader.verify(number, place).unwrap(), 1);
        }
    }
    // A read that fails is no damage: it may succeed later. Neither file can be opened here.
    let failing = storage.kill();
    failing.fail_after(0, Fault::Eio, Repeat::Sticky);
    let mut reader = PageReader::new(&failing, IDENTITY);
    assert!(matches!(reader.read(number, place), Err(PageError::Io(_))));
    assert_eq!(reader.damage(), []);
    failing.clear_faults();
    assert_eq!(reader.read(number, place).unwrap().content, pages[2]);
    // Nor if the other copy is damaged. Then it is tried again, group by group.
    let failing = storage.kill();
    failing.lose_file(&files[1]);
    failing.fail_after(0, Fault::Eio, Repeat::Once);
    let read = PageReader::new(&failing, IDENTITY).read(number, place);
    assert_eq!(read.unwrap().content, pages[2]);
    let begin = u64::from(place.offset);
    failing.spoil(&files[0], begin..begin + u64::from(place.size_bytes));
    let read = PageReader::new(&failing, IDENTITY).read(number, place);
    assert!(matches!(read, Err(PageError::Io(_))));
}

#[test]
fn damage_of_a_file_is_noted_once_and_that_of_its_pages_is_bounded() {
    let storage = FaultyStorage::new();
    let mut appender =
        PageAppender::new(IDENTITY, PageOptions::default(), 1, (0, PageNumber::new(1)));
    let one = page(&[&[1; 8]]);
    let mut append = |_| appender.append(&storage, LogPosition::new(5), &one);
    let at: Vec<At> = (0..500).map(|index| append(index).unwrap()).collect();
    appender.sync(&storage).unwrap();
    let first = "pages-00000000000000000000";
    let read_all = |storage: &FaultyStorage| {
        let mut reader = PageReader::new(storage, IDENTITY);
        for (number, place) in &at {
            assert_eq!(reader.read(*number, *place).unwrap().content, one);
        }
        reader.damage().to_vec()
    };
    let (header, lost, rotten) = (storage.kill(), storage.kill(), storage.kill());
    header.flip(first, 45, 1);
    // A page of the other file may be damaged at the same time.
    header.flip(
        "pages-00000000000000000001",
        u64::from(at[7].1.offset) + 33,
        1,
    );
    assert_eq!(read_all(&header).len(), 1);
    lost.lose_file(first);
    let damage = read_all(&lost);
    assert_eq!((damage.len(), damage[0].offset), (1, 0));
    for (_, place) in &at {
        rotten.flip(first, u64::from(place.offset) + 33, 1);
    }
    assert_eq!(read_all(&rotten).len(), 100);
    // A sector that cannot be read is noted, too.
    let unread = storage.kill();
    unread.spoil(
        first,
        u64::from(at[3].1.offset)..u64::from(at[3].1.offset) + 1,
    );
    let damage = read_all(&unread);
    assert_eq!(damage[0].offset, u64::from(at[3].1.offset));
}

#[test]
fn a_file_name_that_none_can_follow_refuses_a_start() {
    let storage = FaultyStorage::new();
    storage.put("pages-00000000008589934591", b"");
    let opened = PageStore::open(&storage, IDENTITY, OPTIONS, 1, Vec::new());
    assert!(opened.is_err());
}

#[test]
fn what_was_synced_is_not_written_again() {
    let storage = FaultyStorage::new();
    let mut appender = appender(1, (3, 1));
    let (_, first) = appender
        .append(&storage, LogPosition::new(5), &page(&[&[1; 100]]))
        .unwrap();
    appender.sync(&storage).unwrap();
    let (_, second) = appender
        .append(&storage, LogPosition::new(6), &page(&[&[2; 100]]))
        .unwrap();
    assert_eq!((first.pair, first.offset), (3, 4096));
    assert_eq!((second.pair, second.offset), (3, 8192));
    // The file is full: the next page begins another pair.
    let large = page(&[&[3; 900]]);
    let (_, third) = appender
        .append(&storage, LogPosition::new(6), &large)
        .unwrap();
    assert_eq!((third.pair, third.offset), (4, 4096));
    // A page that is larger than a file has one of its own.
    let huge = page(&[&[4; 20_000]]);
    let (number, fourth) = appender
        .append(&storage, LogPosition::new(6), &huge)
        .unwrap();
    assert_eq!((fourth.pair, fourth.offset), (5, 4096));
    appender.sync(&storage).unwrap();
    let read = PageReader::new(&storage, IDENTITY).read(number, fourth);
    assert_eq!(read.unwrap().content, huge);
}

#[test]
fn after_a_failed_write_or_sync_the_next_page_begins_a_new_pair() {
    for calls in 0..12 {
        let storage = FaultyStorage::new();
        let mut appender = appender(1, (0, 1));
        storage.fail_after(calls, Fault::Eio, Repeat::Once);
        let one = page(&[&[1; 100]]);
        let mut write = |storage: &FaultyStorage| {
            let (number, place) = appender.append(storage, LogPosition::new(5), &one)?;
            appender.sync(storage)?;
            Ok::<_, kew_log::IoFailure>((number, place))
        };
        let failed = write(&storage).is_err();
        storage.clear_faults();
        let (number, place) = write(&storage).unwrap();
        assert_eq!(place.pair, u32::from(failed), "call {calls}");
        let after = storage.crash(&mut |bound| bound - 1);
        let read = PageReader::new(&after, IDENTITY).read(number, place);
        assert_eq!(read.unwrap().content, one);
    }
}

/// Pieces of a state: values by key, each in a page of its own, with the page that has it.
#[derive(Clone, Debug, Default)]
struct Pieces(BTreeMap<u8, (Vec<u8>, Option<PageNumber>)>);

/// Pieces on their way into a manifest. Marks are given through a reference, as they are to shared pieces.
struct Content {
    pieces: Pieces,
    kept: Arc<Mutex<BTreeMap<u8, PageNumber>>>,
    cannot_make: Option<u8>,
}

impl Content {
    fn key(&self, index: usize) -> u8 {
        *self.pieces.0.keys().nth(index).unwrap()
    }
}

impl SnapshotContent for Content {
    fn plan(&mut self) -> PlannedSnapshot {
        PlannedSnapshot {
            parts: 1,
            pages: self.pieces.0.len(),
        }
    }

    fn put_part(&self, _: usize, out: &mut Vec<u8>) {
        out.extend(self.pieces.0.keys());
    }

    fn page(&self, index: usize) -> Option<PageNumber> {
        self.pieces.0[&self.key(index)].1
    }

    fn can_make(&self, index: usize) -> bool {
        self.cannot_make != Some(self.key(index))
    }

    fn put_page(&self, index: usize, page: &mut PageContent) {
        let key = self.key(index);
        page.begin(key);
        page.add_group(|out| out.extend_from_slice(&self.pieces.0[&key].0));
    }

    fn keep(&self, index: usize, page: PageNumber) {
        self.kept.lock().unwrap().insert(self.key(index), page);
    }
}

/// Why a manifest was not written, as the errors of reading.
fn failed(error: SnapshotError) -> ManifestError {
    match error {
        SnapshotError::Unfinished(failure) | SnapshotError::Unsure(failure) => failure.into(),
    }
}

/// A writer of manifests, as a partition is one: it keeps two.
struct Writer {
    storage: FaultyStorage,
    pieces: Pieces,
    store: PageStore,
    kept: Vec<LogPosition>,
    position: u64,
    /// The piece that is on its page alone.
    cannot_make: Option<u8>,
}

impl Writer {
    /// Starts with the newest manifest, or with none.
    fn start(storage: &FaultyStorage, entropy: u64) -> Result<Self, ManifestError> {
        let mut pieces = Pieces::default();
        let mut kept = Vec::new();
        let positions = positions(storage)?;
        for (index, position) in positions.iter().enumerate() {
            let read = match index + 1 == positions.len() {
                true => restore(storage, *position, &mut pieces)?,
                false => read_table(storage, *position)?,
            };
            kept.push((*position, read));
        }
        let store = PageStore::open(storage, IDENTITY, OPTIONS, entropy, kept);
        Ok(Self {
            storage: storage.clone(),
            pieces,
            store: store.map_err(ManifestError::Io)?,
            position: positions.last().map_or(0, |it| it.as_u64()),
            kept: positions,
            cannot_make: None,
        })
    }

    fn put(&mut self, key: u8, value: &[u8]) {
        self.pieces.0.insert(key, (value.to_vec(), None));
    }

    /// A page, to read it.
    fn read(&mut self, number: PageNumber) -> PagesToRead {
        let storage: Arc<dyn Storage> = Arc::new(self.storage.clone());
        self.store.read(&storage, [number])
    }

    /// Writes a manifest, and removes what is not needed any more.
    fn write(&mut self) -> Result<(), ManifestError> {
        self.position += 1;
        let position = LogPosition::new(self.position);
        let kept = Arc::new(Mutex::default());
        let mut content = Content {
            pieces: self.pieces.clone(),
            kept: Arc::clone(&kept),
            cannot_make: self.cannot_make,
        };
        let job = self
            .store
            .begin(position, 0, 0, SnapshotForm::Pages)
            .unwrap();
        assert!(
            self.store
                .begin(position, 0, 0, SnapshotForm::Pages)
                .is_none()
                && self.store.unneeded().is_empty()
        );
        let written = job.run(&self.storage, &mut content, |_| Ok(false));
        let written = self.store.complete(written);
        written.map_err(failed)?;
        for (key, page) in kept.lock().unwrap().iter() {
            self.pieces.0.get_mut(key).unwrap().1 = Some(*page);
        }
        self.kept.push(position);
        self.retire()
    }

    fn retire(&mut self) -> Result<(), ManifestError> {
        while self.kept.len() > 2 {
            let oldest = self.kept.remove(0);
            let name = format!("snapshot-{:020}", oldest.as_u64());
            let removed = self.storage.remove(&name);
            let synced = removed.and_then(|()| self.storage.sync_dir());
            synced.map_err(|error| ManifestError::Restore(oldest, error.into()))?;
            self.store.forget(oldest);
        }
        let unneeded = self.store.unneeded();
        let removed = remove_pairs(&self.storage, &unneeded);
        self.store.forget_pairs(&unneeded);
        removed.map_err(ManifestError::Io)
    }

    fn values(&self) -> BTreeMap<u8, Vec<u8>> {
        let pieces = self.pieces.0.iter();
        pieces
            .map(|(key, (value, _))| (*key, value.clone()))
            .collect()
    }

    fn numbers(&self) -> BTreeSet<PageNumber> {
        let pages = self.store.newest().pages().iter();
        pages.map(|page| page.number).collect()
    }

    /// The size of the files as they are.
    fn size_bytes(&self) -> u64 {
        let files = self.storage.files().into_iter();
        let pages = files.filter(|(name, _)| name.starts_with("pages-"));
        pages.map(|(_, size_bytes)| size_bytes).sum()
    }
}

/// The manifests in a directory, oldest first.
fn positions(storage: &FaultyStorage) -> Result<Vec<LogPosition>, ManifestError> {
    let names = storage.list();
    let names = names.map_err(|error| ManifestError::Restore(LogPosition::new(0), error.into()))?;
    let positions = names
        .iter()
        .filter_map(|name| name.strip_prefix("snapshot-"));
    let positions = positions.map(|it| LogPosition::new(it.parse().unwrap()));
    let positions: BTreeSet<LogPosition> = positions.collect();
    Ok(positions.into_iter().collect())
}

fn restore(
    storage: &FaultyStorage,
    position: LogPosition,
    pieces: &mut Pieces,
) -> Result<ReadManifest, ManifestError> {
    let mut keys = Vec::new();
    let read = read_manifest(storage, IDENTITY, position, &mut |restored| {
        match restored {
            Restored::Part(part) => keys = part.to_vec(),
            Restored::Page(number, page) => {
                let content = page.group(0).unwrap().to_vec();
                pieces.0.insert(page.kind, (content, Some(number)));
            }
        }
        Ok(())
    })?;
    assert!(keys.iter().eq(pieces.0.keys()));
    Ok(read)
}

#[test]
fn only_what_changed_is_written_and_a_start_reads_all_of_it() {
    let storage = FaultyStorage::new();
    let mut writer = Writer::start(&storage, 1).unwrap();
    for key in 0..20 {
        writer.put(key, &[key; 50]);
    }
    writer.write().unwrap();
    let first = writer.numbers();
    writer.put(3, b"changed");
    writer.put(30, b"new");
    writer.pieces.0.remove(&4);
    writer.write().unwrap();
    assert_eq!(writer.numbers().difference(&first).count(), 2);
    assert_eq!(first.difference(&writer.numbers()).count(), 2);
    let mut again = Writer::start(&storage.crash(&mut |bound| bound - 1), 2).unwrap();
    assert_eq!(again.values(), writer.values());
    // Marks are restored too, and a start appends to no file that was there.
    let before = again.numbers();
    again.put(5, b"changed");
    again.write().unwrap();
    let new: Vec<_> = again.numbers().difference(&before).copied().collect();
    assert_eq!(new.len(), 1);
    let place = again.store.newest().places()[&new[0]];
    assert!(
        writer
            .store
            .newest()
            .pages()
            .iter()
            .all(|page| page.place.pair < place.pair)
    );
}

#[test]
fn a_damaged_page_damages_a_manifest_only_with_its_copy() {
    let storage = FaultyStorage::new();
    let mut writer = Writer::start(&storage, 1).unwrap();
    writer.put(1, b"one");
    writer.put(2, b"two");
    writer.write().unwrap();
    let page = writer.store.newest().pages()[1];
    let at = u64::from(page.place.offset) + 41;
    let damaged = storage.kill();
    damaged.flip("pages-00000000000000000000", at, 8);
    let position = LogPosition::new(1);
    let read = read_manifest(&damaged, IDENTITY, position, &mut |_| Ok(())).unwrap();
    assert_eq!(read.damage.len(), 1);
    assert_eq!(read.damage[0].file, "pages-00000000000000000000");
    damaged.flip("pages-00000000000000000001", at, 8);
    let read = read_manifest(&damaged, IDENTITY, position, &mut |_| Ok(()));
    assert!(matches!(read, Err(ManifestError::Damaged(_))));
    // So does any byte of its own file.
    let (name, size) = storage.files().into_iter().next_back().unwrap();
    for offset in 0..size {
        let damaged = storage.kill();
        damaged.flip(&name, offset, 1);
        let read = read_manifest(&damaged, IDENTITY, position, &mut |_| Ok(()));
        assert!(read.is_err(), "byte {offset} of {name}");
    }
}

#[test]
fn the_pages_of_a_file_with_damage_are_written_again_elsewhere() {
    let storage = FaultyStorage::new();
    let mut writer = Writer::start(&storage, 1).unwrap();
    for key in 0..12 {
        writer.put(key, &[key; 300]);
    }
    writer.write().unwrap();
    writer.write().unwrap();
    let before = writer.numbers();
    let page = writer.store.newest().pages()[5];
    storage.flip(
        "pages-00000000000000000001",
        u64::from(page.place.offset) + 50,
        1,
    );
    // A start reads the first copy and sees nothing. A reader of both finds it.
    let mut writer = Writer::start(&storage, 2).unwrap();
    let mut reader = PageReader::new(&storage, IDENTITY);
    assert_eq!(reader.verify(page.number, page.place).unwrap(), 1);
    writer.store.note_damage(&reader.damage()[0].file);
    // The next one has all of them elsewhere, however few bytes are copied out of files that are only sparse.
    writer.write().unwrap();
    let pair = page.place.pair;
    assert!(!writer.store.newest().bytes_by_pair().contains_key(&pair));
    writer.write().unwrap();
    assert_eq!(writer.numbers(), before);
    let mut pairs = writer.store.newest().pages().iter().map(|it| it.place.pair);
    assert!(pairs.all(|pair| pair > 0));
    assert!(storage.content("pages-00000000000000000001").is_none());
    let again = Writer::start(&storage, 3).unwrap();
    assert_eq!(again.values(), writer.values());
}

#[test]
fn a_page_of_which_both_copies_are_damaged_is_made_again() {
    let storage = FaultyStorage::new();
    let mut writer = Writer::start(&storage, 1).unwrap();
    writer.put(1, b"one");
    writer.put(2, b"two");
    writer.write().unwrap();
    let before = writer.numbers();
    let page = writer.store.newest().pages()[0];
    let mut reader = PageReader::new(&storage, IDENTITY);
    for file in 0..2 {
        let at = u64::from(page.place.offset) + 41;
        storage.flip(&format!("pages-{file:020}"), at, 1);
    }
    assert!(reader.read(page.number, page.place).is_err());
    assert_eq!(reader.damage().len(), 2);
    writer.store.note_damage(&reader.damage()[0].file);
    writer.write().unwrap();
    assert_eq!(writer.numbers().intersection(&before).count(), 1);
    let again = Writer::start(&storage, 2);
    assert_eq!(again.unwrap().values(), writer.values());
}

/// Random changes, manifests and starts. Returns the values of the newest manifest that was acknowledged, and of one
/// that may be there, when the storage fails.
fn history(storage: &FaultyStorage, seed: u64, steps: usize) -> Told {
    let mut told = Told::default();
    let _ = live(storage, seed, steps, &mut told);
    told
}

#[derive(Debug, Default)]
struct Told {
    written: BTreeMap<u8, Vec<u8>>,
    begun: Option<BTreeMap<u8, Vec<u8>>>,
}

fn live(
    storage: &FaultyStorage,
    seed: u64,
    steps: usize,
    told: &mut Told,
) -> Result<(), ManifestError> {
    let mut random = Random::new(seed);
    let mut writer = Writer::start(storage, seed)?;
    for step in 0..steps {
        for _ in 0..random.below(4) {
            let key = u8::try_from(random.below(12)).unwrap();
            let value = vec![key; usize::try_from(random.below(900)).unwrap()];
            writer.put(key, &value);
        }
        if random.below(6) == 0 {
            writer = Writer::start(storage, seed + step as u64)?;
            assert!(writer.values() == told.written);
        } else {
            told.begun = Some(writer.values());
            writer.write()?;
            told.written = writer.values();
            told.begun = None;
        }
    }
    Ok(())
}

#[test]
fn a_power_cut_at_any_call_leaves_a_manifest_with_all_its_pages() {
    for seed in 0..3 {
        for calls in 0.. {
            let storage = FaultyStorage::new();
            storage.crash_after(calls);
            let told = history(&storage, seed, 8);
            storage.clear_faults();
            if storage.calls() < calls {
                break;
            }
            let mut random = Random::new(seed ^ calls);
            for _ in 0..3 {
                let after = storage.crash(&mut random.choice());
                let mut writer = Writer::start(&after, 99).unwrap();
                let values = writer.values();
                let is_expected = values == told.written || Some(&values) == told.begun.as_ref();
                assert!(is_expected, "seed {seed}, call {calls}");
                // And it goes on.
                writer.put(200, b"more");
                writer.write().unwrap();
                writer.write().unwrap();
                let again = Writer::start(&after.crash(&mut random.choice()), 100).unwrap();
                assert_eq!(again.values(), writer.values());
            }
        }
    }
}

#[test]
fn a_manifest_that_cannot_be_written_costs_nothing() {
    for fault in [Fault::Eio, Fault::Enospc, Fault::ShortWrite, Fault::Eintr] {
        for calls in 0.. {
            let storage = FaultyStorage::new();
            let mut writer = Writer::start(&storage, 1).unwrap();
            for key in 0..9 {
                writer.put(key, &[key; 900]);
            }
            writer.write().unwrap();
            writer.put(3, b"changed");
            writer.put(7, &[7; 1000]);
            let before = storage.calls();
            storage.fail_after(calls, fault, Repeat::Once);
            let _ = writer.write();
            let needed = storage.calls() - before;
            storage.clear_faults();
            writer.put(4, b"changed too");
            writer.write().unwrap();
            writer.write().unwrap();
            let again = Writer::start(&storage.crash(&mut |bound| bound - 1), 2).unwrap();
            assert_eq!(again.values(), writer.values(), "{fault:?} {calls}");
            if needed < calls {
                break;
            }
        }
    }
}

#[test]
fn on_a_full_disk_the_pages_of_a_failed_manifest_give_their_space_back() {
    let storage = FaultyStorage::new();
    let mut writer = Writer::start(&storage, 1).unwrap();
    for key in 0..9 {
        writer.put(key, &[key; 900]);
    }
    writer.write().unwrap();
    writer.write().unwrap();
    let used_bytes = storage.used_bytes();
    storage.set_capacity_bytes(Some(used_bytes + 20_000));
    for key in 0..9 {
        writer.put(key, &[!key; 2000]);
    }
    for _ in 0..5 {
        assert!(matches!(writer.write(), Err(ManifestError::Io(failure)) if failure.is_no_space()));
        assert!(
            storage.used_bytes() <= used_bytes + 9000,
            "what was appended to a pair that was there stays"
        );
    }
    storage.set_capacity_bytes(None);
    writer.write().unwrap();
    let again = Writer::start(&storage, 2).unwrap();
    assert_eq!(again.values(), writer.values());
}

#[test]
fn files_do_not_grow_without_bound() {
    let storage = FaultyStorage::new();
    let mut writer = Writer::start(&storage, 1).unwrap();
    let mut random = Random::new(5);
    let mut largest = 0;
    for step in 0..400 {
        // Some pieces never change, and lie between those that do.
        for _ in 0..3 {
            let key = u8::try_from(random.below(8)).unwrap();
            writer.put(key, &[key; 300]);
        }
        if step < 40 {
            writer.put(100 + u8::try_from(step).unwrap(), &[9; 20]);
        }
        writer.write().unwrap();
        if step % 50 == 49 {
            writer = Writer::start(&storage, step).unwrap();
        }
        largest = largest.max(writer.size_bytes());
    }
    let live: u64 = writer.store.newest().bytes_by_pair().values().sum();
    assert_eq!(live, 8 * 340 + 40 * 60);
    assert!(largest < 4 * live + 12 * 9000, "{largest} for {live}");
    let again = Writer::start(&storage, 7).unwrap();
    assert_eq!(again.values(), writer.values());
}
