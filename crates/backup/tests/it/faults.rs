//! Restores on disks in memory: every call fails, and bytes of the backup rot. `crates/sim` has the same for backups,
//! and power cuts.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use kew_backup::{Backup, BackupError, Directory, Source, Taken, take_on};
use kew_log::{Fault, FaultyStorage, Folder, Repeat, Storage, plan_backup, replay};

use crate::pages::{Log, Words};
use crate::{ID, unnoted};

const PARTITION: &str = "partition-0/";
const LOCK: &str = "kew-backup.lock";

/// Both directories of a backup lie on one disk.
fn on(disk: &FaultyStorage) -> Directory {
    let under = |prefix| Arc::new(Folder::new(Arc::new(disk.clone()), prefix)) as Arc<dyn Storage>;
    Directory {
        path: PathBuf::from("backup"),
        top: under(""),
        files: under(PARTITION),
    }
}

fn take(source: &FaultyStorage, to: &FaultyStorage) -> Result<Taken, BackupError> {
    let plan = plan_backup(source).map_err(BackupError::Source)?;
    let source = Source {
        storage: source,
        plan: &plan,
        data_dir_id: ID,
        taken_at: "2026-11-24T15:00:00Z",
        kew: "0.1.0",
    };
    take_on(&source, on(to), &unnoted())
}

fn open(disk: &FaultyStorage) -> Result<Backup, BackupError> {
    Backup::open_on(on(disk), &unnoted())
}

fn words_in(storage: &dyn Storage) -> Vec<String> {
    let mut words = Words::default();
    replay(storage, &mut words).unwrap();
    words.words
}

fn words_of(disk: &FaultyStorage) -> Vec<String> {
    words_in(open(disk).unwrap().view())
}

/// Returns how many bytes were there already.
fn restore(from: &FaultyStorage, to: &FaultyStorage) -> Result<u64, BackupError> {
    let to: Arc<dyn Storage> = Arc::new(to.clone());
    open(from)?.copy_on(&to, Path::new("new"), &unnoted())
}

/// Disks with a log and with its backup, which took up an earlier one.
struct World {
    source: FaultyStorage,
    backup: FaultyStorage,
    all: Vec<String>,
}

fn world() -> World {
    let source = FaultyStorage::new();
    let mut log = Log::on(Arc::new(source.clone()));
    log.snapshot_with_all(&["one", "two", "three"]);
    for word in ["four", "five", "six", "seven", "eight", "nine"] {
        log.send(word);
    }
    let backup = FaultyStorage::new();
    take(&source, &backup).unwrap();
    log.send("ten");
    // If it cannot be read, the one before and the events behind it say the same.
    log.snapshot_with_all(&[]);
    for word in ["eleven", "twelve", "thirteen", "fourteen"] {
        log.send(word);
    }
    take(&source, &backup).unwrap();
    World {
        source,
        backup,
        all: log.words.words.clone(),
    }
}

impl World {
    /// The next run makes the backup whole.
    fn check_resumed(&self, disk: &FaultyStorage, place: &str) {
        let taken = take(&self.source, disk).unwrap_or_else(|error| panic!("{place}: {error}"));
        assert_eq!(taken.not_removed, None, "{place}");
        assert_eq!(words_of(disk), self.all, "{place}");
    }
}

/// Numbers determined by a seed (a short SplitMix64).
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (mixed ^ (mixed >> 27)) % bound
    }
}

#[test]
fn a_restore_of_which_any_call_fails_says_so_and_the_next_goes_on() {
    let world = world();
    let target = &world.backup;
    let to = FaultyStorage::new();
    let before = target.calls();
    assert_eq!(restore(target, &to).unwrap(), 0);
    assert_eq!(words_in(&to), world.all);
    let counts = [target.calls() - before, to.calls()];
    let size_bytes = open(target).unwrap().manifest().size_bytes();
    assert_eq!(restore(target, &to).unwrap(), size_bytes);
    let (mut failed, mut refused, mut resumed) = (0, 0, 0);
    for (of_new, count) in [false, true].into_iter().zip(counts) {
        for (call, fault) in (0..count).flat_map(|call| Fault::ALL.map(|fault| (call, fault))) {
            let to = FaultyStorage::new();
            let failing = if of_new { &to } else { target };
            failing.fail_after(call, fault, Repeat::Once);
            let restored = restore(target, &to);
            failing.clear_faults();
            failed += 1;
            match restored {
                Ok(_) => assert_eq!(words_in(&to), world.all, "{fault:?} in {call}, {of_new}"),
                Err(_) => refused += 1,
            }
            // Names become durable when the directory becomes a data directory.
            for after in [to.kill(), named_crash(&to)] {
                let reused = restore(target, &after).unwrap();
                resumed += u64::from(reused > 0 && reused < size_bytes);
                after.sync_dir().unwrap();
                assert_eq!(words_in(&after.crash(&mut |_| 0)), world.all);
            }
        }
    }
    assert!(failed > 200 && refused > failed / 4, "{failed}, {refused}");
    assert!(resumed > failed / 4, "{resumed} of {failed}");
}

/// After a power cut that left all names, and no byte that was not synced.
fn named_crash(disk: &FaultyStorage) -> FaultyStorage {
    disk.sync_dir().unwrap();
    disk.crash(&mut |_| 0)
}

fn contents(disk: &FaultyStorage) -> Vec<(String, Option<Vec<u8>>)> {
    let names = disk.files().into_iter().map(|(name, _)| name);
    names
        .map(|name| (name.clone(), disk.content(&name)))
        .collect()
}

/// What may have happened to a file that an earlier run has copied.
#[derive(Clone, Copy, Debug)]
enum Change {
    Flip(u64),
    Other,
    Unreadable,
}

/// What lies there may be of another backup, or of a log that has begun anew.
#[test]
fn a_restore_copies_what_has_changed_and_removes_what_is_not_its_own() {
    let world = world();
    let target = &world.backup;
    let whole = FaultyStorage::new();
    restore(target, &whole).unwrap();
    let of_one = |name: &str| {
        let manifest = open(target).unwrap().manifest().clone();
        let file = manifest.files.into_iter().find(|file| file.name == name);
        file.unwrap()
    };
    for (name, size_bytes) in whole.files() {
        let file = of_one(&name);
        let places = [0, file.size_bytes / 2, file.size_bytes - 1, size_bytes - 1];
        let changes = places.map(Change::Flip);
        for change in changes
            .into_iter()
            .chain([Change::Other, Change::Unreadable])
        {
            let changed = whole.kill();
            match change {
                Change::Flip(place) => changed.flip(&name, place, 1),
                Change::Other => changed.put(&name, &[7; 9000]),
                Change::Unreadable => changed.spoil(&name, 0..1),
            }
            changed.put("segment-99999999999999999999", b"of another log");
            let reused = restore(target, &changed).unwrap();
            let all = open(target).unwrap().manifest().size_bytes();
            assert_eq!(reused, all - file.size_bytes, "{name}: {change:?}");
            assert!(contents(&changed) == contents(&whole), "{name}: {change:?}");
        }
    }
}

#[test]
fn a_restore_finds_rot_of_every_file_of_a_backup() {
    let world = world();
    let target = &world.backup;
    let whole = open(target).unwrap().manifest().clone();
    let (mut flips, mut harmless) = (0, 0);
    for (name, size_bytes) in target.files() {
        if name == LOCK {
            continue;
        }
        for seed in 0..200 {
            let mut dice = Dice(seed);
            let (offset, mask) = (dice.below(size_bytes), 1 << dice.below(8));
            let place = format!("{name}, byte {offset}, {mask:#x}");
            let rotten = target.kill();
            rotten.flip(&name, offset, mask);
            flips += 1;
            match open(&rotten) {
                Err(BackupError::Damaged { damage }) => {
                    assert_eq!(damage.len(), 1, "{place}: {damage:?}");
                    assert_eq!(damage[0].file, format!("backup/{name}"), "{place}");
                    assert!(damage[0].offset <= offset, "{place}: {damage:?}");
                    // The next run copies it again.
                    world.check_resumed(&rotten, &place);
                }
                Err(BackupError::DamagedManifest { .. } | BackupError::NewerFormat { .. }) => {
                    assert_eq!(name, "BACKUP", "{place}");
                }
                // White space between the fields of the manifest.
                Ok(backup) if name == "BACKUP" && *backup.manifest() == whole => {
                    harmless += 1;
                    assert_eq!(words_in(backup.view()), world.all);
                }
                Ok(_) => panic!("{place} is not noticed"),
                Err(error) => panic!("{place}: {error}"),
            }
        }
    }
    assert!(flips > 1000 && harmless < 100, "{flips}, {harmless}");
}

/// The backup was verified, and then it rots: what is copied is read back.
#[test]
fn a_restore_does_not_pass_on_rot_that_came_after_the_check() {
    let world = world();
    let target = &world.backup;
    let files = target.files().into_iter();
    for (name, size_bytes) in files.filter(|(name, _)| name.starts_with(PARTITION)) {
        let rotten = target.kill();
        let backup = open(&rotten).unwrap();
        rotten.flip(&name, size_bytes / 2, 1);
        let to: Arc<dyn Storage> = Arc::new(FaultyStorage::new());
        let restored = backup.copy_on(&to, Path::new("new"), &unnoted());
        let noticed = matches!(restored, Err(BackupError::CopyDamaged { .. }));
        assert!(noticed, "{name}: {restored:?}");
    }
    assert_eq!(words_of(target), world.all);
}
