//! Data directories of every released format still open, and the bytes that are written today have
//! not changed.

use std::fs;
use std::path::{Path, PathBuf};

use kew_log::{DataDir, FaultyStorage, Log, OpenError, Storage, verify};

#[path = "../golden/scenario.rs"]
mod scenario;

use scenario::Words;

/// Every golden directory, by the version of its format.
const VERSIONS: &[u32] = &[1];

fn golden(version: u32) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    root.join(format!("tests/golden/v{version}"))
}

/// A copy in memory: a test writes to no golden directory.
fn load(version: u32) -> FaultyStorage {
    let storage = FaultyStorage::new();
    for entry in fs::read_dir(golden(version).join("partition-0")).unwrap() {
        let entry = entry.unwrap();
        let content = fs::read(entry.path()).unwrap();
        storage.put(entry.file_name().to_str().unwrap(), &content);
    }
    storage
}

fn open(storage: &dyn Storage) -> Result<(Log, Words), OpenError> {
    let mut words = Words::default();
    let (log, _) = Log::open(storage, scenario::options(), 3, &mut words)?;
    Ok((log, words))
}

#[test]
fn every_golden_directory_opens_with_its_content() {
    let expected = scenario::write(&FaultyStorage::new());
    for version in VERSIONS {
        let storage = load(*version);
        verify(&storage).unwrap();
        let (log, words) = open(&storage).unwrap();
        assert_eq!(words, expected.words);
        for (location, body) in &expected.bodies {
            assert_eq!(log.body(*location).unwrap().read().unwrap(), body);
        }
    }
}

#[test]
fn a_golden_directory_is_a_data_directory() {
    for version in VERSIONS {
        let temporary = tempfile::tempdir().unwrap();
        let from = golden(*version);
        let to = temporary.path();
        let manifest = fs::read_to_string(from.join("MANIFEST")).unwrap();
        assert_eq!(manifest, scenario::MANIFEST);
        fs::write(to.join("MANIFEST"), manifest).unwrap();
        fs::create_dir(to.join("partition-0")).unwrap();
        for entry in fs::read_dir(from.join("partition-0")).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap();
            fs::copy(&path, to.join("partition-0").join(name)).unwrap();
        }
        let directory = DataDir::open(to).unwrap();
        assert_eq!(directory.id(), "6b657720676f6c64656e206469726563");
        open(&directory.storage().unwrap()).unwrap();
    }
}

#[test]
fn the_same_history_is_written_in_the_same_bytes() {
    let storage = FaultyStorage::new();
    scenario::write(&storage);
    let stored = load(1);
    assert_eq!(storage.files(), stored.files());
    for (name, size) in storage.files() {
        assert_eq!(
            storage.content(&name),
            stored.content(&name),
            "{name} {size}"
        );
    }
}

#[test]
fn a_newer_format_is_refused_and_both_versions_are_named() {
    let files: Vec<String> = load(1).files().into_iter().map(|(name, _)| name).collect();
    let newest_snapshot = files.iter().rfind(|name| name.starts_with("snapshot-"));
    let segments = files.iter().filter(|name| name.starts_with("segment-"));
    for (name, crc_at) in segments
        .map(|name| (name, 64))
        .chain(newest_snapshot.map(|name| (name, 36)))
    {
        let storage = load(1);
        let mut header = storage.content(name).unwrap()[..crc_at].to_vec();
        header[8] = 7;
        let crc = crc32c::crc32c(&header);
        header.extend(crc.to_le_bytes());
        storage.corrupt(name, 0, &header);
        let error = open(&storage).err().unwrap();
        assert_eq!(
            error.to_string(),
            format!("{name} has format version 7, and this version of Kew reads versions up to 1")
        );
    }
}
