//! Backups and restores on disks in memory: every call fails, the power goes off in every call, and bytes rot.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kew_backup::{Backup, BackupError, Directory, Source, Taken, take_on};
use kew_log::{Fault, FaultyStorage, Repeat, Storage, StorageFile, plan_backup, replay};

use crate::pages::{Log, Words};
use crate::{ID, unnoted};

const PARTITION: &str = "partition-0/";
const LOCK: &str = "kew-backup.lock";

/// One of the two directories of a backup, on one disk: what a power cut leaves of both is drawn together.
struct Under {
    disk: FaultyStorage,
    prefix: &'static str,
}

impl Under {
    fn name(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }
}

impl Storage for Under {
    fn create(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        self.disk.create(&self.name(name))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        self.disk.open(&self.name(name))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.disk.rename(&self.name(from), &self.name(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.disk.remove(&self.name(name))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let names = self.disk.list()?.into_iter();
        let of_this = names.filter_map(|it| it.strip_prefix(self.prefix).map(str::to_owned));
        Ok(of_this.filter(|it| !it.contains('/')).collect())
    }

    fn sync_dir(&self) -> io::Result<()> {
        self.disk.sync_dir()
    }

    fn free_bytes(&self) -> Option<u64> {
        self.disk.free_bytes()
    }
}

fn on(disk: &FaultyStorage) -> Directory {
    let under = |prefix| {
        let disk = disk.clone();
        Arc::new(Under { disk, prefix }) as Arc<dyn Storage>
    };
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

fn restore(from: &FaultyStorage, to: &FaultyStorage) -> Result<(), BackupError> {
    let to: Arc<dyn Storage> = Arc::new(to.clone());
    open(from)?.copy_on(&to, Path::new("new"), &unnoted())
}

/// Disks with a log, with more of it later, and with a backup that has what was there first.
struct World {
    source: FaultyStorage,
    first: Vec<String>,
    all: Vec<String>,
    /// Empty, and with the first backup.
    targets: [FaultyStorage; 2],
}

fn world() -> World {
    let source = FaultyStorage::new();
    let mut log = Log::on(Arc::new(source.clone()));
    log.snapshot_with_all(&["one", "two", "three"]);
    for word in ["four", "five", "six", "seven", "eight", "nine"] {
        log.send(word);
    }
    let first = log.words.words.clone();
    let target = FaultyStorage::new();
    take(&source, &target).unwrap();
    log.send("ten");
    // If it cannot be read, the one before and the events behind it say the same.
    log.snapshot_with_all(&[]);
    for word in ["eleven", "twelve", "thirteen", "fourteen"] {
        log.send(word);
    }
    let all = log.words.words.clone();
    World {
        source,
        first,
        all,
        targets: [FaultyStorage::new(), target],
    }
}

impl World {
    /// What is there after an attempt that failed: the backup before, or the new one.
    fn check_unfinished(&self, has_first: bool, disk: &FaultyStorage, place: &str) {
        match open(disk) {
            Err(BackupError::Unfinished { .. }) if !has_first => {}
            Ok(backup) => {
                let words = words_in(backup.view());
                assert!(
                    words == self.all || has_first && words == self.first,
                    "{place}"
                );
            }
            Err(error) => panic!("{place}: {error}"),
        }
    }

    /// The next run makes the backup whole, also for a power cut right behind it.
    fn check_resumed(&self, disk: &FaultyStorage, place: &str) {
        let taken = take(&self.source, disk).unwrap_or_else(|error| panic!("{place}: {error}"));
        assert_eq!(taken.not_removed, None, "{place}");
        self.check_whole(disk, place);
    }

    fn check_whole(&self, disk: &FaultyStorage, place: &str) {
        for after in after_power_cuts(disk) {
            let backup = open(&after).unwrap_or_else(|error| panic!("{place}: {error}"));
            assert_eq!(words_in(backup.view()), self.all, "{place}");
        }
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

/// The disks that a power cut can leave: without anything that was not synced, and drawn ones.
fn after_power_cuts(disk: &FaultyStorage) -> [FaultyStorage; 3] {
    [0, 1, 2].map(|seed| {
        let mut dice = Dice(seed);
        disk.crash(&mut |below| match seed {
            0 => 0,
            _ => u32::try_from(dice.below(below.into())).unwrap(),
        })
    })
}

const FAULTS: [Fault; 7] = [
    Fault::Eio,
    Fault::Eacces,
    Fault::Emfile,
    Fault::Enospc,
    Fault::EnospcAtAll,
    Fault::ShortWrite,
    Fault::Eintr,
];

/// How many calls a backup makes of both disks.
fn calls(source: &FaultyStorage, target: &FaultyStorage) -> [u64; 2] {
    let (before, to) = (source.calls(), target.kill());
    let already = to.calls();
    take(source, &to).unwrap();
    [source.calls() - before, to.calls() - already]
}

#[test]
fn a_backup_of_which_any_call_fails_is_whole_with_the_next_run() {
    let world = world();
    let (mut failed, mut refused) = (0, 0);
    for (target, has_first) in world.targets.iter().zip([false, true]) {
        let counts = calls(&world.source, target);
        for (of_target, count) in [false, true].into_iter().zip(counts) {
            for (call, fault) in (0..count).flat_map(|call| FAULTS.map(|fault| (call, fault))) {
                let place = format!("{fault:?} in call {call}: {of_target}, {has_first}");
                let disk = target.kill();
                let failing = if of_target { &disk } else { &world.source };
                failing.fail_after(call, fault, Repeat::Once);
                let taken = take(&world.source, &disk);
                failing.clear_faults();
                failed += 1;
                match taken {
                    Ok(_) => world.check_whole(&disk, &place),
                    Err(error) => {
                        refused += 1;
                        assert!(!error.to_string().is_empty(), "{place}");
                        world.check_unfinished(has_first, &disk, &place);
                        world.check_resumed(&disk, &place);
                    }
                }
            }
        }
    }
    assert!(failed > 500 && refused > failed / 4, "{failed}, {refused}");
}

#[test]
fn a_power_cut_in_any_call_of_a_backup_costs_nothing() {
    let world = world();
    let (mut cuts, mut disks) = (0, 0);
    for (target, has_first) in world.targets.iter().zip([false, true]) {
        let [_, count] = calls(&world.source, target);
        for call in 0..count {
            let disk = target.kill();
            disk.crash_after(call);
            // After the switch, nothing but the removal of what is not needed any more is left.
            let _ = take(&world.source, &disk);
            cuts += 1;
            for (index, after) in after_power_cuts(&disk).iter().enumerate() {
                let place = format!("call {call}, disk {index}, {has_first}");
                disks += 1;
                world.check_unfinished(has_first, after, &place);
                world.check_resumed(after, &place);
            }
        }
    }
    assert!(cuts > 50 && disks > cuts, "{cuts}, {disks}");
}

#[test]
fn a_restore_of_which_any_call_fails_says_so() {
    let world = world();
    let [_, target] = &world.targets;
    take(&world.source, target).unwrap();
    let to = FaultyStorage::new();
    let before = target.calls();
    restore(target, &to).unwrap();
    assert_eq!(words_in(&to), world.all);
    let counts = [target.calls() - before, to.calls()];
    let (mut failed, mut refused) = (0, 0);
    for (of_new, count) in [false, true].into_iter().zip(counts) {
        for (call, fault) in (0..count).flat_map(|call| FAULTS.map(|fault| (call, fault))) {
            let to = FaultyStorage::new();
            let failing = if of_new { &to } else { target };
            failing.fail_after(call, fault, Repeat::Once);
            let restored = restore(target, &to);
            failing.clear_faults();
            failed += 1;
            match restored {
                Ok(()) => assert_eq!(words_in(&to), world.all, "{fault:?} in {call}, {of_new}"),
                Err(_) => refused += 1,
            }
            // The next attempt begins anew.
            let to = FaultyStorage::new();
            restore(target, &to).unwrap();
            assert_eq!(words_in(&to), world.all);
        }
    }
    assert!(failed > 200 && refused > failed / 4, "{failed}, {refused}");
}

#[test]
fn a_restore_finds_rot_of_every_file_of_a_backup() {
    let world = world();
    let [_, target] = &world.targets;
    take(&world.source, target).unwrap();
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
    let [_, target] = &world.targets;
    take(&world.source, target).unwrap();
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
