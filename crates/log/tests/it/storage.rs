//! The same log in a real directory.

use kew_log::{BatchBuilder, DataDir, FileStorage, Log, Storage, StorageFile, verify};

use crate::node::{Messages, small};

#[test]
fn a_log_lives_in_a_directory() {
    let temporary = tempfile::tempdir().unwrap();
    let path = temporary.path().join("data");
    let location;
    {
        let directory = DataDir::open(&path).unwrap();
        let storage = directory.storage().unwrap();
        let mut messages = Messages::default();
        let (mut log, _) = Log::open(&storage, small(), 5, &mut messages).unwrap();
        while let Some(job) = log.next_job() {
            let outcome = job.run(&storage);
            log.complete(outcome).unwrap();
        }
        let reservation = log.reserve().unwrap();
        let mut batch = BatchBuilder::at(reservation.position);
        location = batch.push_body(b"hello");
        log.append(reservation.epoch, reservation.position, batch)
            .unwrap();
        log.run_commit().unwrap();
        assert!(log.mark());
        log.run_commit().unwrap();

        let report = verify(&directory.read_only_storage().unwrap()).unwrap();
        assert_eq!(report.segments.len(), 2);
        assert_eq!(report.end, log.end());
    }
    let directory = DataDir::open(&path).unwrap();
    let storage = directory.storage().unwrap();
    let (log, _) = Log::open(&storage, small(), 6, &mut Messages::default()).unwrap();
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
