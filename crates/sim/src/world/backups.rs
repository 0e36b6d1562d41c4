//! Backups of the partition while it runs. One is begun between two steps, and its files are copied a few at a time,
//! with steps in between: the partition retires segments, moves bodies and writes snapshots meanwhile. Then the backup
//! is restored, and everything is received from the restored partition: a checker that knows what clients knew when the
//! backup began looks on.
//!
//! The next backup goes to the same disk, and uses the copies of the one before. The copies are made of a disk as it is,
//! so that they meet none of the faults that are meant for the partition.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use kew_backup::{BackupError, Phase, Progress};
use kew_engine::{Command, Timestamp};
use kew_log::{BackupPlan, BeginBackupError, FaultyStorage, PinId, read_table};
use kew_planted::Seam;

use super::life::Life;
use super::{World, secret};
use crate::backups::{PAGES_HEADER_SIZE, pair_of, restored, take, unnoted};
use crate::bus;
use crate::checker::{Checker, Violation, promise, violated};
use crate::random::Stream;
use crate::rare::Rare;
use crate::seam::{self, BackupBegun, Disk, altered, files_of};
use crate::swarm::FaultRates;

/// No world takes more: each is restored, and emptied like a world at its end.
const TAKEN_MAX: u64 = 3;
/// How long files may be kept that only a backup has needed, in turns of 10 ms.
const KEPT_TURNS_MAX: u32 = 1_000;

/// The backups of a world.
pub(super) struct Backups {
    random: Stream,
    disk: FaultyStorage,
    taken: u64,
    under_way: Option<UnderWay>,
    /// A process died while a backup was copied.
    was_cut: bool,
    /// The names of all files that were kept for a backup, whatever has become of it.
    planned: BTreeSet<String>,
}

/// A backup that is being copied.
struct UnderWay {
    pin: PinId,
    is_pinned: bool,
    plan: BackupPlan,
    known: Known,
    /// How many steps pass between two runs, and the step before which nothing more is copied.
    pause: u64,
    next_at: u64,
    moved_before: u64,
    snapshots_before: u64,
}

/// What clients knew.
struct Known {
    checker: Checker,
    bus: Option<bus::checker::Checker>,
}

impl Backups {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            random: Stream::new(seed, "backups"),
            disk: FaultyStorage::new(),
            taken: 0,
            under_way: None,
            was_cut: false,
            planned: BTreeSet::new(),
        }
    }

    /// The process has ended, and with it what it kept.
    pub(super) fn forget(&mut self) {
        self.was_cut |= self.under_way.take().is_some();
    }
}

impl World {
    /// Begins a backup, or copies some more files of the one under way.
    pub(super) fn back_up(&mut self) -> Result<(), Violation> {
        if self.swarm.backup_per_mille == 0 || self.death().is_some() {
            return Ok(());
        }
        if let Some(under_way) = &self.backups.under_way {
            return match under_way.next_at <= self.report.steps {
                true => {
                    let files_max = 2 + self.backups.random.below(3);
                    self.copy_files(&few_files(files_max))
                }
                false => Ok(()),
            };
        }
        let backups = &mut self.backups;
        let is_next = backups.random.happens(self.swarm.backup_per_mille);
        match is_next && backups.taken < TAKEN_MAX {
            true => self.begin_backup(),
            false => Ok(()),
        }
    }

    fn begin_backup(&mut self) -> Result<(), Violation> {
        let known = self.known()?;
        let (pin, plan) = match self.life.partition.begin_backup() {
            Ok(begun) => begun,
            Err(BeginBackupError::Full | BeginBackupError::Ended(_)) => return Ok(()),
            Err(error @ (BeginBackupError::Busy | BeginBackupError::NoFiles)) => {
                return violated!(promise::BACKUP, "{error}, and no backup is under way");
            }
        };
        let is_pinned = true;
        let segments = plan.segments.iter().map(|segment| segment.name());
        let pages = plan.pages.iter().map(|pages| pages.name());
        let planned = segments.chain(pages).chain(plan.snapshot_name());
        self.backups.planned.extend(planned);
        let begun = altered(Seam::BackupBegun, BackupBegun { plan, is_pinned });
        let BackupBegun { plan, is_pinned } = begun;
        if !is_pinned {
            self.life.partition.end_backup(pin);
        }
        let position = plan.position.as_u64();
        self.trace.add("backup begun", &[position], &position);
        let pause = [1, 30, 250][self.backups.random.index(3)];
        self.backups.under_way = Some(UnderWay {
            pin,
            is_pinned,
            plan,
            known,
            pause,
            next_at: self.report.steps + pause,
            moved_before: self.life.partition.moved_count(),
            snapshots_before: self.report.snapshots,
        });
        Ok(())
    }

    /// What clients know now. What was decided and is not answered may be in the backup or not, and nothing else is.
    fn known(&self) -> Result<Known, Violation> {
        let mut known = Known {
            checker: self.checker.clone(),
            bus: self.bus.as_ref().map(|bus| bus.checker.clone()),
        };
        for asked in (self.life.order.iter()).filter_map(|id| self.history.get(id)) {
            let mut operation = asked.operation.clone();
            operation.until = operation.until.min(self.life.now);
            match &mut known.bus {
                Some(bus) if matches!(operation.command, Command::Bus(_)) => {
                    bus.check(&operation)?;
                }
                Some(_) | None => known.checker.check(&operation)?,
            }
        }
        Ok(known)
    }

    /// Copies files of the backup under way, and restores it if it is whole.
    fn copy_files(&mut self, progress: &Arc<dyn Progress>) -> Result<(), Violation> {
        let Some(mut under_way) = self.backups.under_way.take() else {
            return Ok(());
        };
        let files = files_of(self.life.partition.log());
        let held_bytes = files.backup_held_bytes(under_way.pin);
        if under_way.is_pinned && held_bytes.is_none() {
            self.report.rare.note(Rare::BackupGivenUp);
            return Ok(());
        }
        let is_kept = held_bytes.is_some_and(|bytes| bytes > 0);
        self.report.rare.note_if(is_kept, Rare::KeptForBackup);
        let source = self.storage.kill();
        let taken = seam::apart(|| take(&source, &under_way.plan, &self.backups.disk, progress));
        let how = taken.as_ref().map_or(0, |taken| taken.copied_bytes);
        self.trace.add("files copied", &[how], &taken);
        match taken {
            Ok(taken) => {
                let continued = self.backups.was_cut && taken.reused_bytes > 0;
                let is_mended = !taken.mended.is_empty();
                self.report.rare.note_if(continued, Rare::BackupContinued);
                self.report.rare.note_if(is_mended, Rare::BackupMended);
                self.backups.was_cut = false;
                self.taken(under_way)
            }
            Err(BackupError::Ended(_)) => {
                under_way.next_at = self.report.steps + under_way.pause;
                self.backups.under_way = Some(under_way);
                Ok(())
            }
            Err(BackupError::SourceDamaged { file, .. })
                if self.may_be_refused(&file, &under_way.plan) =>
            {
                self.unpin(under_way.pin);
                Ok(())
            }
            Err(error) => violated!(promise::BACKUP, "{error} ({error:?})"),
        }
    }

    /// Damage of a snapshot is named, and that of both copies of a page that it has, or of both headers of these files.
    /// A backup has the other copy of what is damaged in one.
    fn may_be_refused(&self, file: &str, plan: &BackupPlan) -> bool {
        let Some(pair) = pair_of(file) else {
            return self.damaged_files().any(|it| it == file);
        };
        let source = self.storage.kill();
        let read = plan.snapshot.and_then(|it| read_table(&source, it).ok());
        let pages = read.iter().flat_map(|read| read.table.pages());
        let pages = pages.filter(|page| page.place.pair == pair);
        let ranges = pages.map(|page| {
            let begin = u64::from(page.place.offset);
            begin..begin + u64::from(page.place.size_bytes)
        });
        let mut ranges = std::iter::once(0..u64::from(PAGES_HEADER_SIZE)).chain(ranges);
        ranges.any(|range| {
            let first = 2 * u64::from(pair);
            let files = [first, first + 1].map(|file| format!("pages-{file:020}"));
            files.iter().all(|file| self.is_damaged_in(file, &range))
        })
    }

    /// The log need not keep the files of a backup any longer.
    fn unpin(&mut self, pin: PinId) {
        if let Some(pin) = altered(Seam::BackupEnded, Some(pin)) {
            self.life.partition.end_backup(pin);
        }
    }

    /// All files are copied: the partition may remove its own.
    fn taken(&mut self, under_way: UnderWay) -> Result<(), Violation> {
        let UnderWay { plan, known, .. } = under_way;
        self.unpin(under_way.pin);
        self.backups.taken += 1;
        let rare = &mut self.report.rare;
        rare.note(Rare::BackupRestored);
        let has_moved = self.life.partition.moved_count() > under_way.moved_before;
        rare.note_if(has_moved, Rare::BodiesMovedDuringBackup);
        let has_snapshot = self.report.snapshots > under_way.snapshots_before;
        rare.note_if(has_snapshot, Rare::SnapshotDuringBackup);
        let salt = self.backups.random.next();
        let checked = seam::apart(|| self.check_restored(known, salt));
        let is_cold = checked.map_err(|violation| Violation {
            seen: format!("in a backup up to {}: {}", plan.position, violation.seen),
            ..violation
        })?;
        self.report.rare.note_if(is_cold, Rare::ColdBackupRestored);
        if let Some(bus) = &mut self.bus {
            bus.checker.note("a backup was restored");
            if is_cold {
                bus.checker
                    .note("a backup was restored with records on pages alone");
            }
        }
        Ok(())
    }

    /// Everything is received from the restored partition, and nothing that was settled before the backup. Returns
    /// whether it had records on pages alone when it was opened.
    fn check_restored(&self, known: Known, salt: u64) -> Result<bool, Violation> {
        let disk = match restored(&self.backups.disk) {
            Ok(disk) => Arc::new(disk),
            Err(error) => return violated!(promise::BACKUP, "{error} ({error:?})"),
        };
        let device = Arc::new(Disk::new(&disk));
        let wall = Timestamp::from_ms(self.reading.wall_us / 1000);
        let options = self.options.clone();
        let opened = seam::open(device.clone(), options, salt, secret(salt), wall);
        let (partition, recovery) = match opened {
            Ok(opened) => opened,
            Err(error) => return violated!(promise::BACKUP, "{error} ({error:?})"),
        };
        if let Some(cut) = recovery.tail_cut {
            return violated!(promise::BACKUP, "{cut:?} was cut");
        }
        let mut swarm = self.swarm.clone();
        (swarm.faults, swarm.backup_per_mille) = (FaultRates::default(), 0);
        let mut world = Self::with_swarm(salt, swarm, false);
        world.life = Life::begin(0, partition, &world.swarm, self.reading);
        (world.storage, world.device) = (disk, device);
        world.reading = self.reading;
        world.checker = known.checker;
        if let (Some(bus), Some(checker)) = (&mut world.bus, known.bus) {
            bus.checker = checker;
        }
        let is_cold = world.life.partition.state().resident().cold_runs > 0;
        world.drain().map(|()| is_cold)
    }

    /// Copies the rest of the backup under way.
    pub(super) fn end_backup(&mut self) -> Result<(), Violation> {
        self.copy_files(&unnoted())
    }

    /// L2: files that only a backup has needed are removed after it.
    pub(super) fn check_nothing_is_kept(&mut self) -> Result<(), Violation> {
        let mut nothing = None;
        for _ in 0..KEPT_TURNS_MAX {
            let kept = self.kept_for_nothing();
            if kept.is_empty() {
                let there = self.storage.files();
                let is_there = |name: &&String| there.iter().any(|(it, _)| it == *name);
                let removed = !self.backups.planned.iter().all(|name| is_there(&name));
                self.report.rare.note_if(removed, Rare::RemovedAfterBackup);
                return Ok(());
            }
            self.pass_time(|_| 10_000)?;
            self.turn_and_note(u64::MAX, &mut nothing)?;
            self.end_step();
        }
        violated!(
            promise::SPACE,
            "{:?} are kept, and no backup needs them",
            self.kept_for_nothing()
        )
    }

    /// The files of backups that are still on the disk, and that the log does not know any more.
    fn kept_for_nothing(&self) -> Vec<String> {
        if self.backups.planned.is_empty() {
            return Vec::new();
        }
        let files = files_of(self.life.partition.log());
        let there = self.storage.files().into_iter().map(|(name, _)| name);
        there
            .filter(|name| self.backups.planned.contains(name) && !files.has_file(name))
            .collect()
    }
}

/// Lets a run copy so many files, unless they are large.
fn few_files(count_max: u64) -> Arc<dyn Progress> {
    let left = AtomicU64::new(count_max);
    Arc::new(move |phase, _| match phase {
        Phase::Copy => {
            let one_less = |left: u64| left.checked_sub(1);
            let is_over =
                (left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less)).is_err();
            match is_over {
                true => Err("enough for now".into()),
                false => Ok(()),
            }
        }
        Phase::Check | Phase::Reuse | Phase::Verify => Ok(()),
    })
}
