//! Bit rot of backups: of what is copied, of the copies, of a restored directory that is restored again, and of what a
//! disk writes while files are copied to it. A backup and a restore name the damage, or give what the source holds.
//! They never give something else.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use kew_backup::{BackupError, Phase, Progress};
use kew_log::{
    BackupPlan, FaultyStorage, LogPosition, OpenError, PagePlace, plan_backup, read_table,
};

use super::World;
use crate::backups::{FILES, PAGES_HEADER_SIZE, pair_of, restore_to, restored, take, unnoted};
use crate::checker::Violation;
use crate::disk::contents::Contents;
use crate::disk::failure::{Failure, guard};
use crate::disk::setting::{Setting, violation};
use crate::random::Stream;

const SECTOR_SIZE: u64 = 512;

/// A file has this name until it is complete and checked.
const TEMPORARY: &str = "prepare-";

/// What was damaged, and the results.
#[derive(Clone, Copy, Debug, Default)]
pub struct BackupRotCounts {
    /// Damages, one at a time.
    pub injections: u64,
    /// The source was damaged, and no backup was made: the damage was named.
    pub source_refused: u64,
    /// The same because both copies of a page were damaged.
    pub source_pages_refused: u64,
    /// The same, and a page was copied from its other copy.
    pub source_mended: u64,
    /// The same, and the other copies of other pages are damaged, too.
    pub source_both_mended: u64,
    /// The same, and the backup has none of it.
    pub source_harmless: u64,
    /// The copies were damaged, and not restored: the damage was named.
    pub copy_refused: u64,
    /// The same, and what was restored has none of it.
    pub copy_harmless: u64,
    /// The next backup replaced damaged copies.
    pub copy_replaced: u64,
    /// A restored directory was damaged, and the next restore made it whole.
    pub restored_again: u64,
    /// The disk of a backup wrote other bytes, and the backup was refused.
    pub unlike_in_backup: u64,
    /// The disk of a restored directory wrote other bytes, and the restore was refused.
    pub unlike_in_restore: u64,
}

impl BackupRotCounts {
    /// Adds up.
    pub fn add(&mut self, other: &Self) {
        self.injections += other.injections;
        self.source_refused += other.source_refused;
        self.source_pages_refused += other.source_pages_refused;
        self.source_mended += other.source_mended;
        self.source_both_mended += other.source_both_mended;
        self.source_harmless += other.source_harmless;
        self.copy_refused += other.copy_refused;
        self.copy_harmless += other.copy_harmless;
        self.copy_replaced += other.copy_replaced;
        self.restored_again += other.restored_again;
        self.unlike_in_backup += other.unlike_in_backup;
        self.unlike_in_restore += other.unlike_in_restore;
    }
}

/// The name of a world, for running only that.
pub fn backup_rot_case(setting: Setting) -> String {
    format!("backup-rot/{}", setting.name)
}

/// Damages backups of one world in `injections` ways, one after the other.
pub fn rot_backup(
    setting: Setting,
    seed: u64,
    injections: u64,
) -> Result<BackupRotCounts, Box<Failure>> {
    let case = backup_rot_case(setting);
    guard(&case, seed, |place| {
        let mut trial = Trial::prepare(setting, seed, &case)?;
        for number in 0..injections {
            place.clear();
            let _ = write!(place, "injection {number}");
            trial.counts.injections += 1;
            match number % 5 {
                0 | 1 => trial.damage_source(place)?,
                2 => trial.damage_copy(place)?,
                3 => trial.damage_restored(place)?,
                _ => trial.write_other_bytes()?,
            }
        }
        Ok(trial.counts)
    })
}

struct Trial {
    setting: Setting,
    source: FaultyStorage,
    plan: BackupPlan,
    /// Of all snapshots, each with its snapshot.
    pages: Vec<(LogPosition, PagePlace)>,
    /// Without a backup, with an earlier one, and with that of the source.
    targets: [FaultyStorage; 3],
    holds: Contents,
    random: Stream,
    counts: BackupRotCounts,
}

impl Trial {
    fn prepare(setting: Setting, seed: u64, case: &str) -> Result<Self, Violation> {
        let World { first, source, .. } = World::prepare(setting, seed)?;
        let plan = plan_backup(&source).map_err(|error| violation("a whole log", &error))?;
        let (earlier, whole) = (FaultyStorage::new(), FaultyStorage::new());
        super::taken(&first, &earlier)?;
        super::taken(&first, &whole)?;
        super::taken(&source, &whole)?;
        Ok(Self {
            setting,
            holds: Contents::of(&source, setting.options())?,
            pages: pages_of(&source),
            source,
            plan,
            targets: [FaultyStorage::new(), earlier, whole],
            random: Stream::new(seed, case),
            counts: BackupRotCounts::default(),
        })
    }

    /// What is restored of a backup that counts as whole.
    fn check(&self, target: &FaultyStorage) -> Result<(), Violation> {
        let restored = restored(target).map_err(|error| violation("a whole backup", &error))?;
        self.check_directory(&restored)
    }

    fn check_directory(&self, disk: &FaultyStorage) -> Result<(), Violation> {
        let found = Contents::of(disk, self.setting.options())?;
        found.check(&self.holds, "bit rot")
    }

    /// Takes a backup of a damaged source, with the plan of a server that does not know of the damage, or with one that
    /// is made of the damaged files.
    fn damage_source(&mut self, place: &mut String) -> Result<(), Violation> {
        let source = self.source.kill();
        let damaged = match self.random.happens(250) && !self.pages.is_empty() {
            true => Vec::from(self.damage_pages(&source)),
            false => vec![damage(&source, "", &mut self.random)],
        };
        let _ = write!(place, ", {damaged:?} of the source");
        let to = self.targets[self.random.index(2)].kill();
        let plan = match self.random.happens(500) {
            true => self.plan.clone(),
            false => match plan_backup(&source) {
                Ok(plan) => plan,
                Err(error) => {
                    return self.is_refused(None, &BackupError::Source(error), &damaged);
                }
            },
        };
        match take(&source, &plan, &to, &unnoted()) {
            Ok(taken) => {
                let names: Vec<&str> = taken.mended.iter().map(|it| &*it.first.file).collect();
                if let Some(other) = names.iter().find(|it| !has(&damaged, it)) {
                    return Err(not_damaged(other));
                }
                match names.len() {
                    0 => self.counts.source_harmless += 1,
                    1 => self.counts.source_mended += 1,
                    _ => self.counts.source_both_mended += 1,
                }
                self.check(&to)
            }
            Err(error) => self.is_refused(Some(&plan), &error, &damaged),
        }
    }

    /// Damages both files of a pair: in the same page or in two.
    fn damage_pages(&mut self, disk: &FaultyStorage) -> [Damaged; 2] {
        let (_, first) = self.pages[self.random.index(self.pages.len())];
        let places = self.pages.iter().map(|(_, place)| *place);
        let of_pair: Vec<PagePlace> = places.filter(|it| it.pair == first.pair).collect();
        let second = of_pair[self.random.index(of_pair.len())];
        let mut damage = |copy: u64, page: PagePlace| {
            let file = format!("pages-{:020}", 2 * u64::from(page.pair) + copy);
            let at = u64::from(page.offset) + self.random.below(page.size_bytes.into());
            damage_at(disk, file, at, &mut self.random)
        };
        [damage(0, first), damage(1, second)]
    }

    /// A backup is refused for what is there once: a page is there twice. Pages of another snapshot than that of its
    /// plan do not count. There is no plan only if each snapshot is damaged.
    fn is_refused(
        &mut self,
        plan: Option<&BackupPlan>,
        error: &BackupError,
        damaged: &[Damaged],
    ) -> Result<(), Violation> {
        self.counts.source_refused += 1;
        check_is_named(error, damaged)?;
        let Some(pair) = named(error).iter().find_map(|file| pair_of(file)) else {
            return Ok(());
        };
        self.counts.source_pages_refused += 1;
        let header = PagePlace {
            pair,
            offset: 0,
            size_bytes: PAGES_HEADER_SIZE,
        };
        let snapshots: BTreeSet<LogPosition> = match plan {
            Some(plan) => plan.snapshot.into_iter().collect(),
            None => self.pages.iter().map(|(snapshot, _)| *snapshot).collect(),
        };
        let are_both = |place: &PagePlace| {
            let begin = u64::from(place.offset);
            let end = begin + u64::from(place.size_bytes);
            let is_damaged = |it: &Damaged| it.bytes.start < end && begin < it.bytes.end;
            damaged.len() == 2 && damaged.iter().all(is_damaged)
        };
        let is_lost = |snapshot: &LogPosition| {
            let of = self.pages.iter().filter(|(of, _)| of == snapshot);
            let mut places = of.map(|(_, place)| place).chain([&header]);
            places.any(|place| place.pair == pair && are_both(place))
        };
        match !snapshots.is_empty() && snapshots.iter().all(is_lost) {
            true => Ok(()),
            false => Err(violation("one copy of each page is whole", error)),
        }
    }

    /// Restores a damaged backup, and takes the next one into its directory.
    fn damage_copy(&mut self, place: &mut String) -> Result<(), Violation> {
        let to = self.targets[2].kill();
        let damaged = [damage(&to, "", &mut self.random)];
        let _ = write!(place, ", {damaged:?} of the backup");
        match restored(&to) {
            Ok(disk) => {
                self.counts.copy_harmless += 1;
                self.check_directory(&disk)?;
            }
            Err(error) => {
                self.counts.copy_refused += 1;
                check_is_named(&error, &damaged)?;
            }
        }
        match take(&self.source, &self.plan, &to, &unnoted()) {
            Ok(_) => {
                self.counts.copy_replaced += 1;
                self.check(&to)
            }
            Err(error) if damaged[0].file.starts_with(FILES) => {
                Err(violation("the next backup replaces damaged copies", &error))
            }
            Err(error) => check_is_named(&error, &damaged),
        }
    }

    /// Restores into a directory that was restored before, and damaged since.
    fn damage_restored(&mut self, place: &mut String) -> Result<(), Violation> {
        let whole = &self.targets[2];
        let disk = restored(whole).map_err(|error| violation("a whole backup", &error))?;
        let damaged = damage(&disk, "", &mut self.random);
        let _ = write!(place, ", {damaged:?} of the restored directory");
        let again = restore_to(&disk, whole, &unnoted());
        again.map_err(|error| violation("a restore", &error))?;
        self.counts.restored_again += 1;
        self.check_directory(&disk)
    }

    /// The disk of a backup, and then that of a restored directory, writes a bit that differs.
    fn write_other_bytes(&mut self) -> Result<(), Violation> {
        let files = (self.plan.segments.len() + self.plan.pages.len()) as u64;
        let nth = self.random.below(files);
        let to = FaultyStorage::new();
        let progress = unlike(&to, FILES, nth, self.random.next());
        match take(&self.source, &self.plan, &to, &progress) {
            Ok(_) => self.check(&to)?,
            Err(error) => {
                self.counts.unlike_in_backup += 1;
                check_is_temporary(&error)?;
            }
        }
        let disk = FaultyStorage::new();
        let progress = unlike(&disk, "", nth, self.random.next());
        match restore_to(&disk, &self.targets[2], &progress) {
            Ok(()) => self.check_directory(&disk),
            Err(error) => {
                self.counts.unlike_in_restore += 1;
                check_is_temporary(&error)
            }
        }
    }
}

/// Flips a bit of the file that is being written, once the nth piece is copied.
fn unlike(disk: &FaultyStorage, folder: &str, nth: u64, which: u64) -> Arc<dyn Progress> {
    let (disk, prefix) = (disk.clone(), format!("{folder}{TEMPORARY}"));
    let copied = AtomicU64::new(0);
    Arc::new(move |phase: Phase, _| {
        if phase == Phase::Copy && copied.fetch_add(1, Ordering::Relaxed) == nth {
            let files = disk.files().into_iter();
            let mut written = files.filter(|(name, size)| name.starts_with(&prefix) && *size > 0);
            if let Some((name, size_bytes)) = written.next() {
                disk.flip(&name, which % size_bytes, 1 << (which % 7));
            }
        }
        Ok(())
    })
}

/// What was damaged in a file.
#[derive(Debug)]
struct Damaged {
    file: String,
    bytes: Range<u64>,
}

/// Damages a file below a folder: a bit, a sector of garbage, or the end.
fn damage(disk: &FaultyStorage, folder: &str, random: &mut Stream) -> Damaged {
    let files = disk.files().into_iter();
    let files = files.filter(|(name, size)| name.starts_with(folder) && *size > 0);
    let files: Vec<(String, u64)> = files.collect();
    let (file, size_bytes) = files[random.index(files.len())].clone();
    let at = used(disk, &file, size_bytes, random);
    damage_at(disk, file, at, random)
}

fn damage_at(disk: &FaultyStorage, file: String, at: u64, random: &mut Stream) -> Damaged {
    let size_bytes = disk.content(&file).map_or(0, |it| it.len() as u64);
    let bytes = match random.below(4) {
        0 | 1 => {
            disk.flip(&file, at, 1 << random.below(8));
            at..at + 1
        }
        2 => {
            let begin = at / SECTOR_SIZE * SECTOR_SIZE;
            let count = SECTOR_SIZE.min(size_bytes - begin);
            let garbage: Vec<u8> = (0..count).map(|_| random.next().to_le_bytes()[0]).collect();
            disk.corrupt(&file, begin, &garbage);
            begin..begin + count
        }
        _ => {
            disk.truncate(&file, at);
            at..u64::MAX
        }
    };
    Damaged { file, bytes }
}

/// A byte of a file, which is not zero if a few attempts find one: most of a segment is not used yet.
fn used(disk: &FaultyStorage, name: &str, size_bytes: u64, random: &mut Stream) -> u64 {
    let content = disk.content(name).unwrap_or_default();
    let is_used = |at: &u64| {
        let byte = usize::try_from(*at).ok().and_then(|at| content.get(at));
        byte.is_some_and(|byte| *byte != 0)
    };
    let mut tries = (0..20).map(|_| random.below(size_bytes));
    let first = tries.next().unwrap_or_default();
    tries.find(is_used).unwrap_or(first)
}

/// An error names what is damaged, and nothing else.
fn check_is_named(error: &BackupError, damaged: &[Damaged]) -> Result<(), Violation> {
    check_names(error, |file| has(damaged, file))
}

/// An error names a file that is not complete yet.
fn check_is_temporary(error: &BackupError) -> Result<(), Violation> {
    check_names(error, |file| name_of(file).starts_with(TEMPORARY))
}

fn check_names(error: &BackupError, is_right: impl Fn(&str) -> bool) -> Result<(), Violation> {
    let named = named(error);
    if named.is_empty() {
        return Err(violation("damage was not named", error));
    }
    match named.iter().find(|it| !is_right(it)) {
        Some(other) => Err(Violation {
            seen: format!("{other} in {error} ({error:?})"),
            ..not_damaged(other)
        }),
        None => Ok(()),
    }
}

fn not_damaged(file: &str) -> Violation {
    Violation {
        promise: "a backup names what is damaged",
        seen: format!("{file} is named"),
    }
}

/// The files that an error names.
fn named(error: &BackupError) -> Vec<String> {
    match error {
        BackupError::SourceDamaged { file, .. }
        | BackupError::SourceReplaced { file }
        | BackupError::EndsEarly { file, .. }
        | BackupError::Source(OpenError::Corrupt { file, .. }) => vec![file.clone()],
        BackupError::Damaged { damage } => damage.iter().map(|it| it.file.clone()).collect(),
        BackupError::CopyDamaged { path }
        | BackupError::DamagedManifest { path, .. }
        | BackupError::NewerFormat { path, .. } => vec![path.display().to_string()],
        BackupError::Io { .. }
        | BackupError::NotSynced { .. }
        | BackupError::Source(_)
        | BackupError::NotABackup { .. }
        | BackupError::OtherSource { .. }
        | BackupError::InUse { .. }
        | BackupError::Unfinished { .. }
        | BackupError::Ended(_) => Vec::new(),
    }
}

/// Whether a file is one of those that are damaged.
fn has(damaged: &[Damaged], file: &str) -> bool {
    let mut damaged = damaged.iter();
    damaged.any(|it| name_of(&it.file) == name_of(file))
}

/// A path ends with the name of its file.
fn name_of(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or_default()
}

/// The pages that the snapshots of a log name, each with its snapshot.
fn pages_of(disk: &FaultyStorage) -> Vec<(LogPosition, PagePlace)> {
    let names = disk.files().into_iter().map(|(name, _)| name);
    let snapshots = names.filter_map(|name| name.strip_prefix("snapshot-")?.parse().ok());
    let snapshots = snapshots.map(LogPosition::new);
    let tables = snapshots.filter_map(|at| Some((at, read_table(disk, at).ok()?)));
    let pages = tables.flat_map(|(at, it)| {
        let pages = it.table.pages().to_vec().into_iter();
        pages.map(move |page| (at, page.place))
    });
    pages.collect()
}
