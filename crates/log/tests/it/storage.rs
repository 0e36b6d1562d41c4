//! The same log in a real directory.

use std::process::Command;
use std::sync::Arc;

use kew_log::{
    BatchBuilder, BodyError, BodyLocation, BootTime, DataDir, FileStorage, LogOptions, LogState,
    Need, ScrubCursor, SegmentLog, Storage, StorageFile, verify,
};

use crate::node::{Messages, small};

#[test]
fn a_log_lives_in_a_directory() {
    let temporary = tempfile::tempdir().unwrap();
    let path = temporary.path().join("data");
    let location;
    {
        let directory = DataDir::open(&path).unwrap();
        let storage = Arc::new(directory.storage().unwrap());
        let mut messages = Messages::default();
        let (mut log, _) = SegmentLog::open(storage, small(), 5, &mut messages).unwrap();
        while let Some(job) = log.next_job() {
            let outcome = job.run();
            log.complete(outcome).unwrap();
        }
        let reservation = log.reserve(Need::grow(0)).unwrap();
        let mut batch = BatchBuilder::at(reservation.position);
        location = batch.push_body(b"hello");
        log.append(reservation, batch).unwrap();
        log.run_commit().unwrap();
        assert!(log.mark());
        log.run_commit().unwrap();

        let report = verify(&directory.read_only_storage().unwrap()).unwrap();
        assert_eq!(report.segments.len(), 2);
        assert_eq!(report.end, log.end());
    }
    let directory = DataDir::open(&path).unwrap();
    let storage = Arc::new(directory.storage().unwrap());
    let (log, _) = SegmentLog::open(storage, small(), 6, &mut Messages::default()).unwrap();
    let body = log.body(location).unwrap();
    assert_eq!(body.read().unwrap(), b"hello"[..]);
}

#[test]
fn file_storage_keeps_the_rules_of_its_trait() {
    use std::os::unix::fs::PermissionsExt as _;
    let temporary = tempfile::tempdir().unwrap();
    let path = temporary.path().join("log");
    let storage = FileStorage::open(&path).unwrap();
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);

    let file = storage.create("a").unwrap();
    let taken = storage.create("a").err().unwrap();
    assert_eq!(taken.kind(), std::io::ErrorKind::AlreadyExists);
    assert!(storage.open("b").is_err());
    assert_eq!(file.write_at(b"text", 10).unwrap(), 4);
    assert_eq!(file.len().unwrap(), 14);
    assert!(!file.is_empty().unwrap());
    file.sync_data().unwrap();
    storage.create("b").unwrap();
    storage.rename("a", "b").unwrap();
    storage.sync_dir().unwrap();
    assert_eq!(storage.list().unwrap(), ["b"]);
    let mut buffer = [9; 8];
    let again = storage.open("b").unwrap();
    assert_eq!(again.read_at(&mut buffer, 8).unwrap(), 6);
    assert_eq!(&buffer[..6], b"\0\0text");
    assert_eq!(again.read_at(&mut buffer, 14).unwrap(), 0);
    storage.remove("b").unwrap();
    assert!(storage.list().unwrap().is_empty());
    assert_eq!(again.read_at(&mut buffer, 10).unwrap(), 4);

    let looking = FileStorage::read_only(&path).unwrap();
    for refused in [
        looking.create("c").err(),
        looking.rename("c", "d").err(),
        looking.remove("c").err(),
    ] {
        let kind = refused.unwrap().kind();
        assert_eq!(kind, std::io::ErrorKind::ReadOnlyFilesystem);
    }
    assert!(FileStorage::read_only(path.join("missing")).is_err());
    let _: &dyn StorageFile = &*again;
}

/// Appends a body, and carries out all jobs. Returns `None` if the log waits for a descriptor.
fn append(log: &mut SegmentLog, body: &[u8]) -> Option<BodyLocation> {
    while let Some(job) = log.next_job() {
        log.complete(job.run()).unwrap();
    }
    let reservation = log.reserve(Need::grow(body.len() as u64 + 64)).ok()?;
    let mut batch = BatchBuilder::at(reservation.position);
    let location = batch.push_body(body);
    log.append(reservation, batch).unwrap();
    log.run_commit().unwrap();
    Some(location)
}

/// Takes all descriptors that are left.
fn take_all(taken: &mut Vec<std::fs::File>) {
    while let Ok(file) = std::fs::File::open("/dev/null") {
        taken.push(file);
    }
}

/// Takes those too that a storage keeps for files which it does not need now.
fn take_those_of(storage: &FileStorage, taken: &mut Vec<std::fs::File>) {
    take_all(taken);
    // It closes them to create a file. There may be none.
    let _ = storage.create(&format!("extra-{}", taken.len()));
    take_all(taken);
}

/// Runs a test of this file again, in a process that may have few files open.
fn with_few_descriptors(test: &str) {
    let this = std::env::current_exe().unwrap();
    let limited = format!("ulimit -n 48 && exec '{}' --exact {test}", this.display());
    let status = Command::new("sh")
        .args(["-c", &limited])
        .env("KEW_FEW_DESCRIPTORS", "1")
        .status()
        .unwrap();
    assert!(status.success(), "{status}");
}

#[test]
fn a_log_of_many_segments_needs_few_descriptors() {
    if std::env::var_os("KEW_FEW_DESCRIPTORS").is_none() {
        with_few_descriptors("storage::a_log_of_many_segments_needs_few_descriptors");
        return;
    }
    let temporary = tempfile::tempdir().unwrap();
    let storage = Arc::new(FileStorage::open(temporary.path()).unwrap());
    let options = LogOptions {
        recent_bytes_max: 0,
        ..small()
    };
    let (mut log, _) =
        SegmentLog::open(storage.clone(), options, 5, &mut Messages::default()).unwrap();
    let body = |number: u8| vec![number; 2000];
    let bodies: Vec<_> = (0..200)
        .map(|it| (it, append(&mut log, &body(it)).unwrap()))
        .collect();
    assert!(log.segments().count() > 20);
    let read = |log: &SegmentLog, at| log.body(at).unwrap().read();
    for (number, at) in &bodies {
        assert_eq!(read(&log, *at).unwrap(), body(*number));
    }
    let mut taken = Vec::new();
    let first = bodies[0].1;
    take_all(&mut taken);
    // The log goes on with those that it has.
    let mut appended: Vec<_> = (0..50)
        .map(|_| append(&mut log, &body(7)).unwrap())
        .collect();
    assert_eq!(read(&log, first).unwrap(), body(0));
    // Without these it goes on until it needs another segment: the active one and the next one are open.
    loop {
        take_those_of(&storage, &mut taken);
        match append(&mut log, &body(7)) {
            Some(at) => appended.push(at),
            None => break,
        }
        assert!(appended.len() < 1000);
    }
    assert!(
        log.health().is_short_of_descriptors && !matches!(log.health().state, LogState::Ended(_))
    );
    let failed = read(&log, first).unwrap_err();
    assert!(
        matches!(&failed, BodyError::Io(failure) if failure.is_no_descriptor()),
        "{failed}"
    );
    // That is no damage.
    let mut cursor = ScrubCursor::default();
    while let Some(mut scrub) = log.next_scrub(cursor) {
        while scrub.step().is_some() {}
        let scrubbed = scrub.finish();
        assert_eq!(scrubbed.damage, []);
        cursor = scrubbed.next;
    }
    // They are there again.
    drop(taken);
    assert_eq!(read(&log, first).unwrap(), body(0));
    let nothing = log.end()..log.end();
    log.tidy(BootTime::ZERO.plus_ms(100), &nothing, false);
    appended.push(append(&mut log, &body(7)).unwrap());
    for at in appended {
        assert_eq!(read(&log, at).unwrap(), body(7));
    }
}
