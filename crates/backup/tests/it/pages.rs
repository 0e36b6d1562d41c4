//! Backups of a log whose snapshots have pages, each in two files.

use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use kew_backup::{BackupError, Taken};
use kew_log::{
    BatchBuilder, BoxError, FileStorage, LogOptions, LogPosition, Need, OpenError, PageContent,
    PageNumber, PlannedSnapshot, ReadManifest, Replay, SegmentLog, SnapshotContent, Storage,
    check_pages, pages_of, replay,
};

use crate::{Place, flip};

/// A state of some words, each on a page.
#[derive(Clone, Default)]
pub(crate) struct Words {
    pub(crate) words: Vec<String>,
    pages: Arc<Mutex<BTreeMap<usize, PageNumber>>>,
}

impl SnapshotContent for Words {
    fn plan(&mut self) -> PlannedSnapshot {
        PlannedSnapshot {
            parts: 0,
            pages: self.words.len(),
        }
    }

    fn put_part(&self, _: usize, _: &mut Vec<u8>) {}

    fn page(&self, index: usize) -> Option<PageNumber> {
        self.pages.lock().unwrap().get(&index).copied()
    }

    fn put_page(&self, index: usize, page: &mut PageContent) {
        page.begin(1);
        page.add_group(|out| out.extend_from_slice(self.words[index].as_bytes()));
    }

    fn keep(&self, index: usize, page: PageNumber) {
        self.pages.lock().unwrap().insert(index, page);
    }
}

impl Replay for Words {
    fn begin(&mut self) {
        *self = Self::default();
    }

    fn snapshot_part(&mut self, _: &[u8]) -> Result<(), BoxError> {
        Err("there is none".into())
    }

    fn snapshot_page(&mut self, _: PageNumber, content: &PageContent) -> Result<(), BoxError> {
        let word = content.group(0).ok_or("the page is empty")?;
        self.words.push(String::from_utf8(word.to_vec())?);
        Ok(())
    }

    fn event(&mut self, _: LogPosition, event: &[u8]) -> Result<(), BoxError> {
        self.words.push(String::from_utf8(event.to_vec())?);
        Ok(())
    }
}

/// A log that is open, and its state.
pub(crate) struct Log {
    log: SegmentLog,
    pub(crate) words: Words,
}

impl Log {
    fn new(place: &Place) -> Self {
        Self::on(Arc::new(FileStorage::open(place.source()).unwrap()))
    }

    pub(crate) fn on(storage: Arc<dyn Storage>) -> Self {
        let options = LogOptions {
            segment_size_first_bytes: 64 << 10,
            segment_size_max_bytes: 64 << 10,
            batch_size_max_bytes: 16 << 10,
            turn_space_min_bytes: 8 << 10,
            settlement_reserve_bytes: 8 << 10,
            ballast_size_bytes: 0,
            ..LogOptions::default()
        };
        let mut words = Words::default();
        let (log, _) = SegmentLog::open(storage, options, 1, &mut words).unwrap();
        Self { log, words }
    }

    /// Appends a word as an event, with a body.
    pub(crate) fn send(&mut self, word: &str) {
        self.jobs();
        let reservation = self.log.reserve(Need::grow(0)).unwrap();
        let mut batch = BatchBuilder::at(reservation.position);
        batch.push_body(&[7; 15_000]);
        batch.push_event(word.as_bytes());
        self.log.append(reservation, batch).unwrap();
        self.log.run_commit().unwrap();
        self.words.words.push(word.to_owned());
    }

    /// Writes a snapshot with new words.
    fn snapshot(&mut self, new: &[&str]) {
        let nothing = self.log.end()..self.log.end();
        self.snapshot_of(new, &nothing);
    }

    /// The same. All bodies are still needed.
    pub(crate) fn snapshot_with_all(&mut self, new: &[&str]) {
        let all = LogPosition::new(0)..self.log.end();
        self.snapshot_of(new, &all);
    }

    fn snapshot_of(&mut self, new: &[&str], live: &Range<LogPosition>) {
        self.words.words.extend(new.iter().map(|it| it.repeat(99)));
        self.log.beat(0);
        self.jobs();
        self.log.snapshot(self.words.clone(), live).unwrap();
        self.jobs();
    }

    fn jobs(&mut self) {
        while let Some(job) = self.log.next_job() {
            self.log.complete(job.run()).unwrap();
        }
    }
}

/// A source with two snapshots, of which the newer one has written one of four pages.
fn written(place: &Place) -> Log {
    let mut source = Log::new(place);
    source.snapshot(&["one", "two", "three"]);
    source.snapshot(&["four"]);
    source
}

/// The newest snapshot of the source.
fn newest(place: &Place) -> ReadManifest {
    let storage = FileStorage::read_only(place.source()).unwrap();
    let plan = kew_log::plan_backup(&storage).unwrap();
    pages_of(&storage, plan.snapshot.unwrap()).unwrap()
}

fn page_files(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let is_pages = |path: &PathBuf| path.display().to_string().contains("/pages-");
    let mut paths: Vec<_> = paths.filter(is_pages).collect();
    paths.sort();
    paths
}

/// Both files of the backup have all pages, and what is restored of them is what was written.
fn check_whole(place: &Place, source: &Log) {
    let backup = place.open().unwrap();
    let snapshot = newest(place);
    let mut count = 0;
    for file in &backup.manifest().files {
        if file.name.starts_with("pages-") {
            let found = check_pages(backup.view(), &snapshot, &file.name).unwrap();
            assert_eq!(found, None, "{}", file.name);
            count += 1;
        }
    }
    assert_eq!(count, 2);
    let mut words = Words::default();
    replay(backup.view(), &mut words).unwrap();
    assert_eq!(words.words, source.words.words);
}

fn mended(taken: &Taken) -> Vec<(String, u64, u64)> {
    let mended = taken.mended.iter();
    mended
        .map(|it| (it.first.file.clone(), it.first.offset, it.places))
        .collect()
}

/// Where the pages of a snapshot are.
fn offsets(place: &Place) -> Vec<usize> {
    let snapshot = newest(place);
    let mut offsets: Vec<usize> = (snapshot.table.pages().iter())
        .map(|page| page.place.offset.try_into().unwrap())
        .collect();
    offsets.sort_unstable();
    offsets
}

#[test]
fn what_is_damaged_in_a_file_of_pages_is_taken_from_the_other_one() {
    for copy in 0..2 {
        for damage in ["page", "header", "both", "missing", "cut"] {
            let place = Place::new();
            let source = written(&place);
            let offsets = offsets(&place);
            let files = page_files(&place.source());
            let (file, other) = (&files[copy], &files[1 - copy]);
            let (at, places) = match damage {
                "page" => (offsets[1], 1),
                "header" => (0, 1),
                "both" => (0, 2),
                "missing" => (0, 5),
                _ => (offsets[2], 2),
            };
            match damage {
                "page" => flip(file, offsets[1] + 35),
                "header" => flip(file, 45),
                "both" => {
                    flip(file, 45);
                    flip(file, offsets[1] + 35);
                    // Another page of the other file: each is whole somewhere.
                    flip(other, offsets[2] + 35);
                }
                "missing" => fs::remove_file(file).unwrap(),
                _ => {
                    let bytes = fs::read(file).unwrap();
                    fs::write(file, &bytes[..offsets[2] + 9]).unwrap();
                }
            }
            let taken = place.take().unwrap();
            let name = file.file_name().unwrap().to_str().unwrap().to_owned();
            let found = mended(&taken);
            assert!(found.contains(&(name, at as u64, places)), "{found:?}");
            assert_eq!(found.len(), if damage == "both" { 2 } else { 1 });
            check_whole(&place, &source);
            // What is there is whole, and is not copied again.
            let again = place.take().unwrap();
            assert_eq!((again.copied_bytes, again.mended), (0, vec![]), "{damage}");
            check_whole(&place, &source);
        }
    }
}

/// The last bytes of a page may be zeros, which are read where a file was cut. Then nothing of it is damaged.
#[test]
fn a_file_that_lacks_zeros_at_its_end_is_whole() {
    for copy in 0..2 {
        let place = Place::new();
        let source = written(&place);
        let storage = FileStorage::read_only(place.source()).unwrap();
        let mut plan = kew_log::plan_backup(&storage).unwrap();
        let file = &page_files(&place.source())[copy];
        // As if the last page had more of them.
        plan.pages[copy].copied_bytes = fs::metadata(file).unwrap().len() + 500;
        let taken = place.take_plan(&plan).unwrap();
        assert_eq!(taken.mended, []);
        check_whole(&place, &source);
    }
}

#[test]
fn a_page_of_which_both_copies_are_damaged_fails_the_backup() {
    let place = Place::new();
    let _source = written(&place);
    let offset = offsets(&place)[1];
    let files = page_files(&place.source());
    place.take().unwrap();
    let storage = FileStorage::read_only(place.source()).unwrap();
    let plan = kew_log::plan_backup(&storage).unwrap();
    for file in &files {
        flip(file, offset + 35);
    }
    for stored in page_files(&place.backup().join("partition-0")) {
        fs::remove_file(stored).unwrap();
    }
    let refused = place.take_plan(&plan);
    let Err(BackupError::SourceDamaged {
        file, offset: at, ..
    }) = refused
    else {
        panic!("{refused:?}");
    };
    assert!(file.starts_with("pages-"), "{file}");
    assert_eq!(at, offset as u64);
}

/// The checksum of a stored file shows only that it is as it was stored.
#[test]
fn a_stored_file_with_a_damaged_page_is_not_used_again() {
    let place = Place::new();
    let mut source = written(&place);
    place.take().unwrap();
    let offset = offsets(&place)[1];
    let stored = page_files(&place.backup().join("partition-0")).remove(1);
    flip(&stored, offset + 35);
    let crc = crc32c::crc32c(&fs::read(&stored).unwrap());
    let name = stored.display().to_string();
    let (name, _) = name.rsplit_once('-').unwrap();
    fs::rename(&stored, format!("{name}-{crc:08x}")).unwrap();
    // Nothing that the plan has of these files is new.
    source.log.beat(0);
    source.jobs();
    let taken = place.take().unwrap();
    assert!(taken.copied_bytes > 0);
    assert_eq!(taken.mended, []);
    check_whole_files(&place);
}

fn check_whole_files(place: &Place) {
    let backup = place.open().unwrap();
    let snapshot = newest(place);
    for file in &backup.manifest().files {
        if file.name.starts_with("pages-") {
            let found = check_pages(backup.view(), &snapshot, &file.name).unwrap();
            assert_eq!(found, None, "{}", file.name);
        }
    }
}

#[test]
fn a_file_of_pages_of_a_newer_version_is_no_damage() {
    for copy in 0..2 {
        let place = Place::new();
        let _source = written(&place);
        let storage = FileStorage::read_only(place.source()).unwrap();
        let plan = kew_log::plan_backup(&storage).unwrap();
        let file = page_files(&place.source()).remove(copy);
        let mut bytes = fs::read(&file).unwrap();
        bytes[8] = 7;
        let crc = crc32c::crc32c(&bytes[..48]);
        bytes[48..52].copy_from_slice(&crc.to_le_bytes());
        fs::write(&file, bytes).unwrap();
        let refused = place.take_plan(&plan);
        assert!(
            matches!(
                refused,
                Err(BackupError::Source(OpenError::NewerFormat { found: 7, .. }))
            ),
            "{refused:?}"
        );
    }
}
