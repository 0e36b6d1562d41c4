//! Data directories of every released format still open, and the bytes that are written today have
//! not changed.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kew_log::{
    DataDir, FaultyStorage, FirstFormatBody, FirstFormatLog, LogPosition, OpenError, SegmentLog,
    Storage, verify,
};

#[path = "../golden/scenario.rs"]
pub(crate) mod scenario;

use scenario::Words;

/// Every golden directory of the present format, by its version.
const VERSIONS: &[u32] = &[2];

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

fn written(storage: &FaultyStorage) -> scenario::Expected {
    let storage: Arc<dyn Storage> = Arc::new(storage.clone());
    scenario::write(&storage)
}

fn open(storage: impl Storage + 'static) -> Result<(SegmentLog, Words), OpenError> {
    let mut words = Words::default();
    let (log, _) = SegmentLog::open(Arc::new(storage), scenario::options(), 3, &mut words)?;
    Ok((log, words))
}

#[test]
fn every_golden_directory_opens_with_its_content() {
    let expected = written(&FaultyStorage::new());
    for version in VERSIONS {
        let storage = load(*version);
        verify(&storage).unwrap();
        let (log, words) = open(storage.clone()).unwrap();
        assert_eq!(words, expected.words);
        for (location, body) in &expected.bodies {
            assert_eq!(log.body(*location).unwrap().read().unwrap(), body);
        }
    }
}

/// The places of the history's bodies in the golden directory of format 1: record, offset and length.
const FIRST_FORMAT_BODIES: [(u64, u32, u32); 10] = [
    (4096, 7, 700),
    (4848, 7, 700),
    (5600, 7, 700),
    (6352, 7, 700),
    (12288, 7, 700),
    (13040, 7, 700),
    (13792, 6, 10),
    (13856, 7, 300),
    (14208, 6, 0),
    (14256, 6, 100),
];

/// The same history, as format 1 had it.
#[test]
fn a_golden_directory_of_the_first_format_is_read() {
    let expected = written(&FaultyStorage::new());
    for lost in ["", "snapshot-00000000000000014256"] {
        let storage = load(1);
        let files = storage.files();
        if !lost.is_empty() {
            storage.lose_file(lost);
        }
        let mut words = Words::default();
        let log = FirstFormatLog::read(&storage, &mut words).unwrap();
        assert_eq!(words, expected.words);
        let mut bodies = Vec::new();
        for (position, offset, length) in FIRST_FORMAT_BODIES {
            let location = kew_log::BodyLocation {
                record: LogPosition::new(position),
                offset,
                length,
            };
            match log.body(location).unwrap() {
                FirstFormatBody::Whole(body) => bodies.push(body.to_vec()),
                FirstFormatBody::Damaged(_) => panic!("{location:?} is damaged"),
            }
        }
        let expected = expected.bodies.iter().map(|(_, body)| body.clone());
        assert_eq!(bodies, expected.collect::<Vec<_>>());
        assert!(lost.is_empty() == (storage.files() == files));
    }
}

/// Damage to what was durable refuses the migration, as it refused a start; what was never acknowledged is cut.
#[test]
fn damage_in_a_directory_of_the_first_format_is_named() {
    let read = |storage: &FaultyStorage| FirstFormatLog::read(storage, &mut Words::default());
    let files: Vec<_> = load(1).files();
    for (name, size) in &files {
        for at in (0..*size).step_by(97) {
            let storage = load(1);
            storage.flip(name, at, 0x10);
            match read(&storage) {
                Ok(log) => assert_eq!(log.end(), read(&load(1)).unwrap().end(), "{name} {at}"),
                Err(OpenError::Corrupt { file, offset, .. }) => {
                    assert_eq!(&file, name);
                    assert!(offset <= at, "{name} {at}: {offset}");
                }
                Err(error) => panic!("{name} {at}: {error}"),
            }
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
        open(directory.storage().unwrap()).unwrap();
    }
}

#[test]
fn the_same_history_is_written_in_the_same_bytes() {
    let storage = FaultyStorage::new();
    written(&storage);
    let stored = load(2);
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
    let files: Vec<String> = load(2).files().into_iter().map(|(name, _)| name).collect();
    let newest_snapshot = files.iter().rfind(|name| name.starts_with("snapshot-"));
    let segments = files.iter().filter(|name| name.starts_with("segment-"));
    for (name, crc_at) in segments
        .map(|name| (name, 64))
        .chain(newest_snapshot.map(|name| (name, 36)))
    {
        let storage = load(2);
        let mut header = storage.content(name).unwrap()[..crc_at].to_vec();
        header[8] = 7;
        let crc = crc32c::crc32c(&header);
        header.extend(crc.to_le_bytes());
        storage.corrupt(name, 0, &header);
        let error = open(storage.clone()).err().unwrap();
        assert_eq!(
            error.to_string(),
            format!("{name} has format version 7, and this version of Kew reads versions up to 2")
        );
    }
}
