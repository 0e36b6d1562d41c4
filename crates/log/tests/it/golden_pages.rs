//! A data directory with pages that an earlier build has written opens with its content, and the bytes that are written
//! today have not changed.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use kew_log::{FaultyStorage, SegmentLog, Storage, inspect, verify};

use crate::golden::scenario;

#[path = "../golden/pages.rs"]
mod pages;

use pages::Words;

/// A copy in memory: a test writes to no golden directory.
fn load() -> FaultyStorage {
    let storage = FaultyStorage::new();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for entry in fs::read_dir(root.join("tests/golden/v2-pages/partition-0")).unwrap() {
        let entry = entry.unwrap();
        let content = fs::read(entry.path()).unwrap();
        storage.put(entry.file_name().to_str().unwrap(), &content);
    }
    storage
}

fn written(storage: &FaultyStorage) -> Vec<String> {
    let storage: Arc<dyn Storage> = Arc::new(storage.clone());
    pages::write(&storage)
}

fn words_of(storage: &FaultyStorage) -> Vec<String> {
    let mut words = Words::default();
    SegmentLog::open(Arc::new(storage.clone()), pages::options(), 3, &mut words).unwrap();
    words.words
}

#[test]
fn the_golden_directory_with_pages_opens_with_its_content() {
    let storage = load();
    let report = verify(&storage).unwrap();
    let files: Vec<&str> = report.pages.iter().map(|it| it.file.as_str()).collect();
    let pairs = [0, 1, 2, 3].map(|number| format!("pages-{number:020}"));
    assert_eq!(files, pairs);
    assert!(
        report
            .snapshots
            .iter()
            .all(|it| it.is_whole && it.pages >= 6)
    );
    let expected = written(&FaultyStorage::new());
    assert_eq!(expected.len(), 7);
    assert_eq!(words_of(&storage), expected);
}

/// Each page can be read from its second copy alone.
#[test]
fn the_second_copies_of_the_golden_directory_have_all_pages() {
    let expected = words_of(&load());
    let storage = load();
    for (name, size) in storage.files() {
        let number = name.strip_prefix("pages-").map(|it| it.parse::<u64>());
        if let Some(Ok(number)) = number
            && number % 2 == 0
        {
            storage.truncate(&name, size / 2);
            storage.lose_file(&name);
        }
    }
    assert!(!inspect(&storage).unwrap().damage.is_empty());
    assert_eq!(words_of(&storage), expected);
}

#[test]
fn the_history_with_pages_is_written_in_the_same_bytes() {
    let (storage, stored) = (FaultyStorage::new(), load());
    written(&storage);
    assert_eq!(storage.files(), stored.files());
    for (name, size) in storage.files() {
        let (now, then) = (storage.content(&name), stored.content(&name));
        assert!(now == then, "{name} of {size} bytes is another one");
    }
}

/// A file of pages of a newer version is no damage, whichever of the two it is. Nothing that was written is touched.
#[test]
fn newer_files_of_pages_are_refused() {
    for copies in [&[0][..], &[0, 1]] {
        let storage = load();
        for copy in copies {
            newer(&storage, *copy);
        }
        let files = storage.files();
        let refused = SegmentLog::open(
            Arc::new(storage.clone()),
            pages::options(),
            3,
            &mut Words::default(),
        )
        .err();
        let said = refused.map(|error| error.to_string());
        let expected = "pages-00000000000000000000 has format version 7, and this version of Kew reads versions up to 2";
        assert_eq!(said.as_deref(), Some(expected));
        assert_eq!(verify(&storage).unwrap_err().to_string(), expected);
        let salvage = kew_log::Salvage::look(Arc::new(storage.clone())).err();
        assert_eq!(salvage.map(|it| it.to_string()).as_deref(), Some(expected));
        let damage = inspect(&storage).unwrap().damage;
        assert_eq!(damage.len(), 1, "{damage:?}");
        assert_eq!(damage[0].what, expected);
        assert_eq!(storage.files(), files);
    }
    // A start does not look at second copies, and an inspection does. If a first one is damaged, it is needed.
    let storage = load();
    newer(&storage, 1);
    let expected = "pages-00000000000000000001 has format version 7";
    let found = verify(&storage).unwrap_err().to_string();
    assert!(found.starts_with(expected), "{found}");
    words_of(&storage.kill());
    storage.lose_file("pages-00000000000000000000");
    let refused = SegmentLog::open(
        Arc::new(storage.clone()),
        pages::options(),
        3,
        &mut Words::default(),
    )
    .err();
    let said = refused.map(|error| error.to_string()).unwrap_or_default();
    assert!(said.starts_with(expected), "{said}");
}

/// Gives a file of the first pair the header of a newer version.
fn newer(storage: &FaultyStorage, number: u64) {
    let file = format!("pages-{number:020}");
    let mut header = storage.content(&file).unwrap()[..48].to_vec();
    header[8] = 7;
    let crc = crc32c::crc32c(&header);
    header.extend(crc.to_le_bytes());
    storage.corrupt(&file, 0, &header);
}
