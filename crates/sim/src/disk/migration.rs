//! Migrations of an old directory: every call fails, the power goes off in every call, and bytes of it rot.

use std::fmt::Write as _;
use std::sync::Arc;

use kew_broker::{MigrateError, Migrated, OldPartition, PartitionOptions};
use kew_engine::RunLength;
use kew_log::{Fault, FaultyStorage, LogOptions, OpenError, Repeat, verify};

use super::contents::{Contents, after_power_cuts, faults_of, other};
use super::failure::{Failure, guard};
use super::setting::{Setting, violation};
use crate::checker::Violation;
use crate::random::Stream;
use crate::seam;

/// A directory of the format before, and what it holds.
pub struct OldDirectory {
    name: String,
    storage: FaultyStorage,
    holds: Contents,
    /// The last segment with batches, and what is held without the last one.
    shorter: (String, Contents),
}

/// What was tried.
#[derive(Clone, Copy, Debug, Default)]
pub struct MigrationCounts {
    /// Calls that failed.
    pub failed_calls: u64,
    /// How many of these migrations were refused.
    pub failed: u64,
    /// Calls in which the power went off.
    pub power_cuts: u64,
    /// Directories with rotten bytes.
    pub rotten: u64,
    /// How many of them were refused, were migrated with damaged bodies, and were migrated without their last batch.
    pub refused: u64,
    /// See above.
    pub damaged: u64,
    /// See above.
    pub shorter: u64,
}

impl MigrationCounts {
    /// Adds up.
    pub fn add(&mut self, other: &Self) {
        self.failed_calls += other.failed_calls;
        self.failed += other.failed;
        self.power_cuts += other.power_cuts;
        self.rotten += other.rotten;
        self.refused += other.refused;
        self.damaged += other.damaged;
        self.shorter += other.shorter;
    }
}

fn options() -> PartitionOptions {
    let options = Setting::WITH_BUS[0].options();
    PartitionOptions {
        // The directory says nothing of it.
        run_length: RunLength::UNTOLD,
        log: LogOptions {
            ballast_size_bytes: 0,
            ..options.log
        },
        ..options
    }
}

impl OldDirectory {
    /// The name for running only its migrations.
    pub fn case(&self) -> String {
        format!("migration/{}", self.name)
    }

    /// Takes the files. To be made without a planted bug: afterwards it is known what they hold.
    ///
    /// # Panics
    ///
    /// If a migration of them fails.
    pub fn new(name: &str, files: impl IntoIterator<Item = (String, Vec<u8>)>) -> Self {
        let storage = FaultyStorage::new();
        for (name, content) in files {
            storage.put(&name, &content);
        }
        let holds = held(&storage);
        assert!(holds.messages() > 20, "a directory with messages");
        let (file, last) = last_batch(&storage).expect("a directory with batches");
        let without = storage.kill();
        without.flip(&file, last, 1);
        let shorter = (file, held(&without));
        Self {
            name: name.to_owned(),
            storage,
            holds,
            shorter,
        }
    }

    /// Migrates it under every fault: each call meets so many of all kinds of faults.
    pub fn migrate(
        &self,
        seed: u64,
        faults_per_call: u64,
        rotten: u64,
    ) -> Result<MigrationCounts, Box<Failure>> {
        let case = self.case();
        guard(&case, seed, |place| {
            let mut trial = Trial {
                old: self,
                random: Stream::new(seed, &case),
                counts: MigrationCounts::default(),
                place,
            };
            trial.fail_calls(faults_per_call)?;
            trial.cut_power()?;
            for index in 0..rotten {
                trial.rot(index)?;
            }
            Ok(trial.counts)
        })
    }
}

fn held(old: &FaultyStorage) -> Contents {
    let new = FaultyStorage::new();
    migrate(old, &new).expect("the directory can be migrated");
    Contents::of(&new, options()).expect("the new log is whole")
}

/// The segment with the last batch, and a byte of that.
fn last_batch(old: &FaultyStorage) -> Option<(String, u64)> {
    const HEADER_BYTES: u64 = 4096;
    let names = old.files().into_iter().map(|(name, _)| name);
    let written = names.filter_map(|name| {
        let content = old.content(&name)?;
        let last = content.iter().rposition(|byte| *byte != 0)? as u64;
        (name.starts_with("segment") && last > HEADER_BYTES).then_some((name, last))
    });
    written.max()
}

fn migrate(old: &FaultyStorage, new: &FaultyStorage) -> Result<Migrated, MigrateError> {
    let new = Arc::new(seam::Disk::new(new));
    let old = OldPartition::read(&seam::Disk::new(old), &options())?;
    old.write_to(new, &options(), 11)
}

/// A migration does not touch the old directory.
fn is_as_it_was(old: &FaultyStorage, before: u64) -> Result<(), Violation> {
    match old.fingerprint() == before {
        true => Ok(()),
        false => Err(other("the old directory has changed")),
    }
}

struct Trial<'a> {
    old: &'a OldDirectory,
    random: Stream,
    counts: MigrationCounts,
    place: &'a mut String,
}

impl Trial<'_> {
    fn at(&mut self, place: impl std::fmt::Debug) {
        self.place.clear();
        let _ = write!(self.place, "{place:?}");
    }

    /// How many calls a migration makes of the old log and of the new one.
    fn calls(&self) -> Result<[u64; 2], Violation> {
        let (old, new) = (self.old.storage.kill(), FaultyStorage::new());
        let before = old.calls();
        self.migrated(&old, &new)?;
        Ok([old.calls() - before, new.calls()])
    }

    fn migrated(&self, old: &FaultyStorage, new: &FaultyStorage) -> Result<Migrated, Violation> {
        let migrated = migrate(old, new);
        migrated.map_err(|error| violation("a migration of a whole directory", &error))
    }

    /// When a migration has returned, all of the new log is durable, because the old one is removed then. Session
    /// states and changed properties have bodies too, so it may count more damage than that of messages.
    fn check(
        &mut self,
        new: &FaultyStorage,
        migrated: Migrated,
        may_be_damaged: bool,
    ) -> Result<u64, Violation> {
        let mut damaged = 0;
        for after in after_power_cuts(new, &mut self.random) {
            let contents = Contents::of(&after, options())?;
            if migrated.damaged == 0 {
                verify(&after).map_err(|error| violation("a migrated log", &error))?;
                contents.check(&self.old.holds, self.place)?;
            }
            damaged = contents.damaged_of(&self.old.holds)?;
            if damaged > migrated.damaged || !may_be_damaged && migrated.damaged > 0 {
                return Err(other("the migration counts other damage"));
            }
        }
        Ok(damaged)
    }

    /// The next start begins anew, with the old directory.
    fn check_next(&mut self, old: &FaultyStorage) -> Result<(), Violation> {
        let new = FaultyStorage::new();
        let migrated = self.migrated(old, &new)?;
        self.check(&new, migrated, false).map(drop)
    }

    fn fail_calls(&mut self, faults_per_call: u64) -> Result<(), Violation> {
        for (disk, count) in self.calls()?.into_iter().enumerate() {
            for call in 0..count {
                for fault in faults_of(call, faults_per_call) {
                    self.at(("a failing call", disk, call, fault));
                    self.fail(disk, call, fault)?;
                }
            }
        }
        Ok(())
    }

    fn fail(&mut self, disk: usize, call: u64, fault: Fault) -> Result<(), Violation> {
        self.counts.failed_calls += 1;
        let (old, new) = (self.old.storage.kill(), FaultyStorage::new());
        let failing = [&old, &new][disk];
        let before = old.fingerprint();
        failing.fail_after(call, fault, Repeat::Once);
        let migrated = migrate(&old, &new);
        failing.clear_faults();
        is_as_it_was(&old, before)?;
        match migrated {
            // A disk that cannot give back its bytes is damage. After every other failure they may be whole.
            Ok(migrated) => {
                let may_be_damaged = disk == 0 && fault == Fault::Eio;
                self.check(&new, migrated, may_be_damaged).map(drop)
            }
            Err(_) => {
                self.counts.failed += 1;
                self.check_next(&old)
            }
        }
    }

    fn cut_power(&mut self) -> Result<(), Violation> {
        let [_, count] = self.calls()?;
        for call in 0..count {
            self.at(("a power cut", call));
            self.counts.power_cuts += 1;
            let (old, new) = (self.old.storage.kill(), FaultyStorage::new());
            new.crash_after(call);
            let before = old.fingerprint();
            if migrate(&old, &new).is_ok() {
                return Err(other("a migration without its last calls counts"));
            }
            is_as_it_was(&old, before)?;
            self.check_next(&old)?;
        }
        Ok(())
    }

    /// Flips one to three bits, mostly where something was written.
    fn rot(&mut self, index: u64) -> Result<(), Violation> {
        let old = self.old.storage.kill();
        let files = old.files();
        let mut places = Vec::new();
        for _ in 0..[1, 1, 1, 2, 3][self.random.index(5)] {
            let (name, size_bytes) = &files[self.random.index(files.len())];
            let content = old.content(name).expect("it is there");
            let written = content.iter().rposition(|byte| *byte != 0).unwrap_or(0) as u64;
            let below = [*size_bytes, 64, written + 1, written + 1][self.random.index(4)];
            let (offset, mask) = (self.random.below(below), 1 << self.random.below(8));
            old.flip(name, offset, mask);
            places.push((name, offset, mask));
        }
        self.at(("rot", index, &places));
        self.counts.rotten += 1;
        let is_at_end = places.iter().any(|(name, ..)| **name == self.old.shorter.0);
        self.migrate_rotten(&old, is_at_end)
    }

    fn migrate_rotten(&mut self, old: &FaultyStorage, is_at_end: bool) -> Result<(), Violation> {
        let new = FaultyStorage::new();
        let before = old.fingerprint();
        let migrated = migrate(old, &new);
        is_as_it_was(old, before)?;
        match migrated {
            Ok(migrated) => {
                let contents = Contents::of(&new, options())?;
                // The old format cannot tell a damaged last batch from one that a power cut has cut off.
                let may_be_shorter = is_at_end && contents != self.old.holds;
                if may_be_shorter && contents == self.old.shorter.1 {
                    self.counts.shorter += 1;
                } else {
                    let damaged = self.check(&new, migrated, true)?;
                    self.counts.damaged += u64::from(damaged > 0);
                }
            }
            Err(MigrateError::Log(OpenError::Corrupt { file, .. }))
                if old.files().iter().any(|(name, _)| *name == file) =>
            {
                self.counts.refused += 1;
            }
            Err(error) => return Err(violation("a rotten directory", &error)),
        }
        Ok(())
    }
}
