//! Backups of a log: every call fails, and the power goes off in every call. Restores show what is there then.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kew_backup::{Backup, BackupError, Directory, Progress, Source, Taken, take_on};
use kew_log::{Fault, FaultyStorage, Folder, Repeat, Storage, plan_backup};

use super::contents::{Contents, after_power_cuts, faults_of, other};
use super::failure::{Failure, guard};
use super::setting::{Setting, violation};
use super::step::Step;
use crate::checker::Violation;
use crate::random::Stream;
use crate::seam;

/// The directory of the log's files in a backup. Both directories lie on one disk.
const FILES: &str = "partition-0/";

/// What was tried.
#[derive(Clone, Copy, Debug, Default)]
pub struct BackupCounts {
    /// Calls that failed.
    pub failed_calls: u64,
    /// How many of these backups were refused.
    pub failed: u64,
    /// Disks after a power cut.
    pub disks: u64,
}

/// Takes backups of a log under every fault, and restores them. Each call meets so many of all kinds of faults.
pub fn back_up(seed: u64, faults_per_call: u64) -> Result<BackupCounts, Box<Failure>> {
    guard("backup", seed, |place| {
        let mut host = Setting::RECYCLED.prepare(seed)?;
        let setting = host.setting();
        let first = host.tape().disk().kill();
        for step in [Step::Send, Step::SendDelayed, Step::Snapshot, Step::Send] {
            host.play(step)?;
        }
        host.carry_out_later()?;
        let source = host.tape().disk().kill();
        let (empty, earlier) = (FaultyStorage::new(), FaultyStorage::new());
        taken(&first, &earlier)?;
        let mut trial = Trial {
            setting,
            holds: [
                Contents::of(&first, setting.options())?,
                Contents::of(&source, setting.options())?,
            ],
            source,
            targets: [empty, earlier],
            random: Stream::new(seed, "backup"),
            counts: BackupCounts::default(),
            place,
        };
        trial.fail_calls(faults_per_call)?;
        trial.cut_power()?;
        Ok(trial.counts)
    })
}

fn unnoted() -> Arc<dyn Progress> {
    Arc::new(|_, _| Ok(()))
}

fn directory(disk: &FaultyStorage) -> Directory {
    let under = |prefix| {
        let disk = Arc::new(seam::Disk::new(disk));
        Arc::new(Folder::new(disk, prefix)) as Arc<dyn Storage>
    };
    Directory {
        path: PathBuf::from("backup"),
        top: under(""),
        files: under(FILES),
    }
}

fn take(source: &FaultyStorage, to: &FaultyStorage) -> Result<Taken, BackupError> {
    let storage = seam::Disk::new(source);
    let plan = plan_backup(&storage).map_err(BackupError::Source)?;
    let source = Source {
        storage: &storage,
        plan: &plan,
        data_dir_id: "id",
        taken_at: "2026-11-24T15:00:00Z",
        kew: "0.1.0",
    };
    take_on(&source, directory(to), &unnoted())
}

fn taken(source: &FaultyStorage, to: &FaultyStorage) -> Result<Taken, Violation> {
    take(source, to).map_err(|error| violation("a backup", &error))
}

fn restored(from: &FaultyStorage) -> Result<FaultyStorage, BackupError> {
    let backup = Backup::open_on(directory(from), &unnoted())?;
    let disk = FaultyStorage::new();
    let to: Arc<dyn Storage> = Arc::new(disk.clone());
    backup.copy_on(&to, Path::new("new"), &unnoted())?;
    Ok(disk)
}

struct Trial<'a> {
    setting: Setting,
    source: FaultyStorage,
    /// Of the earlier backup, and of the source.
    holds: [Contents; 2],
    /// Without a backup, and with the earlier one.
    targets: [FaultyStorage; 2],
    random: Stream,
    counts: BackupCounts,
    place: &'a mut String,
}

impl Trial<'_> {
    fn at(&mut self, place: impl std::fmt::Debug) {
        self.place.clear();
        let _ = write!(self.place, "{place:?}");
    }

    /// How many calls a backup makes of the source and of its target.
    fn calls(&self, target: &FaultyStorage) -> Result<[u64; 2], Violation> {
        let (source, to) = (self.source.kill(), target.kill());
        let before = [source.calls(), to.calls()];
        taken(&source, &to)?;
        Ok([source.calls() - before[0], to.calls() - before[1]])
    }

    /// The backup is restored with everything, also after a power cut.
    fn check(&mut self, target: &FaultyStorage) -> Result<(), Violation> {
        for after in after_power_cuts(target, &mut self.random) {
            let restored = restored(&after);
            let restored = restored.map_err(|error| violation("a whole backup", &error))?;
            let found = Contents::of(&restored, self.setting.options())?;
            found.check(&self.holds[1], self.place)?;
        }
        Ok(())
    }

    /// After an attempt that failed, the backup before is whole, or the new one is.
    fn check_unfinished(&self, index: usize, target: &FaultyStorage) -> Result<(), Violation> {
        let [earlier, all] = &self.holds;
        match restored(target) {
            Ok(restored) => {
                let found = Contents::of(&restored, self.setting.options())?;
                match found == *all || index == 1 && found == *earlier {
                    true => Ok(()),
                    false => Err(other("an unfinished backup holds something else")),
                }
            }
            Err(BackupError::Unfinished { .. }) if index == 0 => Ok(()),
            Err(error) => Err(violation("an unfinished backup", &error)),
        }
    }

    /// The next run continues, and makes it whole.
    fn check_next(&mut self, target: &FaultyStorage) -> Result<(), Violation> {
        taken(&self.source, target)?;
        self.check(target)
    }

    fn fail_calls(&mut self, faults_per_call: u64) -> Result<(), Violation> {
        for index in 0..self.targets.len() {
            let counts = self.calls(&self.targets[index])?;
            for (disk, count) in counts.into_iter().enumerate() {
                for call in 0..count {
                    for fault in faults_of(call, faults_per_call) {
                        self.at(("a failing call", index, disk, call, fault));
                        self.fail(index, disk, (call, fault))?;
                    }
                }
            }
        }
        Ok(())
    }

    fn fail(&mut self, index: usize, disk: usize, at: (u64, Fault)) -> Result<(), Violation> {
        self.counts.failed_calls += 1;
        let (source, to) = (self.source.kill(), self.targets[index].kill());
        let failing = [&source, &to][disk];
        failing.fail_after(at.0, at.1, Repeat::Once);
        let taken = take(&source, &to);
        failing.clear_faults();
        if taken.is_ok() {
            return self.check(&to);
        }
        self.counts.failed += 1;
        self.check_unfinished(index, &to)?;
        self.check_next(&to)
    }

    fn cut_power(&mut self) -> Result<(), Violation> {
        for (index, target) in self.targets.clone().iter().enumerate() {
            let [_, count] = self.calls(target)?;
            for call in 0..count {
                let to = target.kill();
                to.crash_after(call);
                // It may have done all that matters.
                let _ = take(&self.source, &to);
                for after in after_power_cuts(&to, &mut self.random) {
                    self.at(("a power cut", index, call));
                    self.counts.disks += 1;
                    self.check_unfinished(index, &after)?;
                    self.check_next(&after)?;
                }
            }
        }
        Ok(())
    }
}
