//! Backups of a small log, with directories on a disk.
#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot continue has failed, and helpers are not marked as tests"
)]

mod faults;
mod pages;

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use kew_backup::{Backup, BackupError, Phase, Progress, Source, Taken, take};
use kew_log::{
    BackupPlan, BatchBuilder, BoxError, FileStorage, LogOptions, LogPosition, Need, Replay,
    SegmentLog, plan_backup, replay,
};

const ID: &str = "0123456789abcdef0123456789abcdef";

/// Counts events.
#[derive(Default)]
struct Count(u64);

impl Replay for Count {
    fn begin(&mut self) {
        self.0 = 0;
    }

    fn snapshot_part(&mut self, part: &[u8]) -> Result<(), BoxError> {
        self.0 = u64::from_le_bytes(part.try_into()?);
        Ok(())
    }

    fn event(&mut self, _record: LogPosition, _event: &[u8]) -> Result<(), BoxError> {
        self.0 += 1;
        Ok(())
    }
}

struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn source(&self) -> PathBuf {
        self.0.path().join("source")
    }

    fn backup(&self) -> PathBuf {
        self.0.path().join("backup")
    }

    /// Appends events with bodies, and a snapshot at the end.
    fn append(&self, events: u64) {
        let storage = Arc::new(FileStorage::open(self.source()).unwrap());
        let options = LogOptions {
            segment_size_first_bytes: 512 << 10,
            segment_size_max_bytes: 512 << 10,
            batch_size_max_bytes: 128 << 10,
            turn_space_min_bytes: 64 << 10,
            settlement_reserve_bytes: 64 << 10,
            ..LogOptions::default()
        };
        let mut count = Count::default();
        let (mut log, _) = SegmentLog::open(storage, options, events, &mut count).unwrap();
        for _ in 0..events {
            while let Some(job) = log.next_background_job() {
                log.complete(job.run()).unwrap();
            }
            let reservation = log.reserve(Need::grow(0)).unwrap();
            let mut batch = BatchBuilder::at(reservation.position);
            batch.push_body(&[7; 50_000]);
            batch.push_event(b"one");
            log.append(reservation, batch).unwrap();
            log.run_commit().unwrap();
        }
        let all = LogPosition::new(0)..log.end();
        let part = (count.0 + events).to_le_bytes().to_vec();
        log.snapshot(vec![part.into()], &all).unwrap();
        while let Some(job) = log.next_background_job() {
            log.complete(job.run()).unwrap();
        }
    }

    fn take(&self) -> Result<Taken, BackupError> {
        self.take_until(u64::MAX)
    }

    /// Takes a backup that is ended when so many bytes were copied or checked.
    fn take_until(&self, bytes_max: u64) -> Result<Taken, BackupError> {
        let done = AtomicU64::new(0);
        let count = move |phase, bytes| match phase {
            Phase::Copy | Phase::Check => {
                let before = done.fetch_add(bytes, Ordering::Relaxed);
                match before + bytes <= bytes_max {
                    true => Ok(()),
                    false => Err("ended".into()),
                }
            }
            Phase::Reuse | Phase::Verify => Ok(()),
        };
        self.take_as(ID, &(Arc::new(count) as Arc<dyn Progress>))
    }

    fn take_as(
        &self,
        data_dir_id: &str,
        progress: &Arc<dyn Progress>,
    ) -> Result<Taken, BackupError> {
        let storage = FileStorage::read_only(self.source()).unwrap();
        let plan = plan_backup(&storage).unwrap();
        self.take_plan_as(&plan, data_dir_id, progress)
    }

    /// Takes a backup of what was planned before.
    fn take_plan(&self, plan: &BackupPlan) -> Result<Taken, BackupError> {
        self.take_plan_as(plan, ID, &unnoted())
    }

    fn take_plan_as(
        &self,
        plan: &BackupPlan,
        data_dir_id: &str,
        progress: &Arc<dyn Progress>,
    ) -> Result<Taken, BackupError> {
        let storage = FileStorage::read_only(self.source()).unwrap();
        let source = Source {
            storage: &storage,
            plan,
            data_dir_id,
            taken_at: "2026-11-24T15:00:00Z",
            kew: "0.1.0",
        };
        take(&source, &self.backup(), progress)
    }

    fn open(&self) -> Result<Backup, BackupError> {
        Backup::open(&self.backup(), &unnoted())
    }

    /// The finished files, each with the number that the file system gave it.
    fn finished(&self) -> Vec<(PathBuf, u64)> {
        let all = self.stored().into_iter();
        let finished = all.filter(|path| !path.to_str().unwrap().contains("prepare-"));
        finished
            .map(|path| (path.clone(), fs::metadata(path).unwrap().ino()))
            .collect()
    }

    fn stored(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.backup().join("partition-0")).unwrap();
        let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        paths
    }
}

fn unnoted() -> Arc<dyn Progress> {
    Arc::new(|_, _| Ok(()))
}

fn flip(path: &Path, at: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at] ^= 1;
    fs::write(path, bytes).unwrap();
}

fn events_in(backup: &Backup) -> u64 {
    let mut count = Count::default();
    replay(backup.view(), &mut count).unwrap();
    count.0
}

#[test]
fn a_backup_that_is_ended_anywhere_continues() {
    let place = Place::new();
    place.append(30);
    let mut copied = 0;
    let mut ends = 0;
    let mut finished = Vec::new();
    let taken = loop {
        // A little more than a segment each time.
        match place.take_until(1_200_000) {
            Ok(taken) => break taken,
            Err(BackupError::Ended(_)) => ends += 1,
            Err(error) => panic!("{error}"),
        }
        assert!(matches!(place.open(), Err(BackupError::Unfinished { .. })));
        assert!(ends < 20, "it does not end");
        copied += 1;
        // What was finished before is still the same file.
        let now = place.finished();
        assert!(finished.iter().all(|file| now.contains(file)));
        finished = now;
    };
    let now = place.finished();
    assert!(!finished.is_empty() && finished.iter().all(|file| now.contains(file)));
    assert!(copied > 1 && taken.reused_bytes > taken.copied_bytes);
    let backup = place.open().unwrap();
    assert_eq!(events_in(&backup), 30);
    assert_eq!(*backup.manifest(), taken.manifest);

    let to = place.0.path().join("new");
    fs::create_dir(&to).unwrap();
    backup.copy_to(&to, &unnoted()).unwrap();
    let mut count = Count::default();
    let storage = Arc::new(FileStorage::open(&to).unwrap());
    SegmentLog::open(storage, LogOptions::default(), 1, &mut count).unwrap();
    assert_eq!(count.0, 30);
}

#[test]
fn the_backup_before_stays_whole_until_the_next_one_is() {
    let place = Place::new();
    place.append(30);
    let first = place.take().unwrap();
    place.append(20);
    assert!(matches!(
        place.take_until(700_000),
        Err(BackupError::Ended(_))
    ));
    let backup = place.open().unwrap();
    assert_eq!(*backup.manifest(), first.manifest);
    assert_eq!(events_in(&backup), 30);
    let busy = place.take();
    assert!(matches!(busy, Err(BackupError::InUse { .. })), "{busy:?}");
    drop(backup);

    let second = place.take().unwrap();
    assert!(second.reused_bytes > 1_000_000);
    assert_eq!(place.stored().len(), second.manifest.files.len());
    assert_eq!(events_in(&place.open().unwrap()), 50);
    let again = place.take().unwrap();
    assert_eq!((again.copied_bytes, again.manifest), (0, second.manifest));
}

/// A later run reads what it uses again, and replaces what has become damaged since.
#[test]
fn a_damaged_copy_is_copied_again() {
    let place = Place::new();
    place.append(30);
    place.take().unwrap();
    for file in place.stored() {
        flip(&file, 50_000.min(fs::read(&file).unwrap().len() - 1));
        assert!(matches!(place.open(), Err(BackupError::Damaged { .. })));
        let taken = place.take().unwrap();
        assert!(taken.copied_bytes > 0, "{file:?}");
        assert_eq!(events_in(&place.open().unwrap()), 30);
    }
}

#[test]
fn damage_is_named_where_it_is() {
    let place = Place::new();
    place.append(30);
    place.take().unwrap();
    let stored = place.stored();
    for file in [&stored[0], &stored[stored.len() - 1]] {
        let size = fs::metadata(file).unwrap().len();
        let middle = usize::try_from(size / 2).unwrap();
        flip(file, middle);
        let Err(BackupError::Damaged { damage }) = place.open() else {
            panic!("damage to {file:?} is not noticed");
        };
        assert_eq!(damage.len(), 1);
        assert_eq!(damage[0].file, file.display().to_string());
        assert!(damage[0].offset <= size / 2, "{damage:?}");
        flip(file, middle);
    }
    fs::remove_file(&stored[0]).unwrap();
    fs::write(&stored[1], b"short").unwrap();
    let Err(BackupError::Damaged { damage }) = place.open() else {
        panic!("a missing file is not noticed");
    };
    assert_eq!(damage.len(), 2);

    // At the source: nothing new is taken.
    let segment = place.source().join("segment-00000000000000000002");
    flip(&segment, 60_000);
    fs::remove_file(&stored[1]).unwrap();
    let refused = place.take();
    let Err(BackupError::SourceDamaged { file, offset, .. }) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!(file, "segment-00000000000000000002");
    assert!(offset <= 60_000);
}

/// Every byte is noted that is read, so that a rate bounds all of them.
#[test]
fn all_reading_is_noted() {
    let place = Place::new();
    place.append(30);
    let noted: Arc<[AtomicU64; 4]> = Arc::default();
    let count = Arc::clone(&noted);
    let progress: Arc<dyn Progress> = Arc::new(move |phase, bytes| {
        count[phase as usize].fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    });
    let take = || {
        for noted in &*noted {
            noted.store(0, Ordering::Relaxed);
        }
        let taken = place.take_as(ID, &progress).unwrap();
        let size_bytes = taken.manifest.size_bytes();
        let of = |phase| noted[phase as usize].load(Ordering::Relaxed);
        (size_bytes, of)
    };
    let (size_bytes, of) = take();
    assert_eq!(of(Phase::Copy), size_bytes);
    assert_eq!(of(Phase::Check), size_bytes);
    // Each file by itself, and then all that a start reads: here every segment is older than the snapshot.
    assert!(of(Phase::Verify) >= size_bytes, "{}", of(Phase::Verify));
    let (size_bytes, of) = take();
    assert_eq!((of(Phase::Copy), of(Phase::Check)), (0, 0));
    assert_eq!(of(Phase::Reuse), size_bytes);
    assert!(of(Phase::Verify) > 0);
}

#[test]
fn a_source_that_ends_early_is_damaged() {
    let place = Place::new();
    place.append(30);
    let segment = place.source().join("segment-00000000000000000002");
    let storage = FileStorage::read_only(place.source()).unwrap();
    let plan = plan_backup(&storage).unwrap();
    // Zeros follow the last record, so nothing but the size shows that they are missing.
    let planned = plan.segments.iter().find(|it| it.number == 2).unwrap();
    let file = fs::OpenOptions::new().write(true).open(&segment).unwrap();
    file.set_len(planned.copied_bytes - 1).unwrap();
    let source = Source {
        storage: &storage,
        plan: &plan,
        data_dir_id: ID,
        taken_at: "2026-11-24T15:00:00Z",
        kew: "0.1.0",
    };
    let refused = take(&source, &place.backup(), &unnoted());
    let Err(BackupError::SourceDamaged { file, offset, .. }) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!(file, "segment-00000000000000000002");
    assert_eq!(offset, planned.copied_bytes - 1);
}

/// Once the manifest is replaced, the new backup is the one that counts, whatever else fails.
#[test]
fn a_failed_removal_does_not_hide_that_the_backup_is_whole() {
    let place = Place::new();
    place.append(30);
    place.take().unwrap();
    // A directory cannot be removed as a file.
    let stuck = place
        .backup()
        .join("partition-0/segment-00000000000000000099-0000002a-100-deadbeef");
    fs::create_dir(&stuck).unwrap();
    place.append(5);
    let taken = place.take().unwrap();
    let not_removed = taken.not_removed.unwrap();
    assert!(not_removed.contains("cannot remove"), "{not_removed}");
    assert_eq!(events_in(&place.open().unwrap()), 35);
    fs::remove_dir(&stuck).unwrap();
    assert_eq!(place.take().unwrap().not_removed, None);
}

#[test]
fn an_unfinished_backup_belongs_to_its_data_directory_too() {
    let place = Place::new();
    place.append(30);
    assert!(matches!(
        place.take_until(700_000),
        Err(BackupError::Ended(_))
    ));
    let other = place.take_as("f00d", &unnoted());
    let Err(BackupError::OtherSource { found, given, .. }) = other else {
        panic!("{other:?}");
    };
    assert_eq!((found.as_str(), given.as_str()), (ID, "f00d"));
    place.take().unwrap();
    let other = place.take_as("f00d", &unnoted());
    assert!(matches!(other, Err(BackupError::OtherSource { .. })));
}

#[test]
fn what_is_not_a_backup_of_this_directory_is_left_alone() {
    let place = Place::new();
    place.append(3);
    fs::create_dir(place.backup()).unwrap();
    fs::write(place.backup().join("notes"), "mine").unwrap();
    let refused = place.take();
    assert!(matches!(refused, Err(BackupError::NotABackup { .. })));
    assert_eq!(fs::read_dir(place.backup()).unwrap().count(), 1);
    fs::remove_file(place.backup().join("notes")).unwrap();
    place.take().unwrap();

    let manifest = place.backup().join("BACKUP");
    let other = fs::read_to_string(&manifest).unwrap().replace(ID, "f00d");
    fs::write(&manifest, &other).unwrap();
    // Its checksum does not fit any more: that is noticed first.
    let refused = place.take();
    assert!(matches!(refused, Err(BackupError::DamagedManifest { .. })));
}
