//! Backups on a disk of the simulation: how one is taken, and how it is restored.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use kew_backup::{Backup, BackupError, Directory, Progress, Source, Taken, take_on};
use kew_log::{BackupPlan, FaultyStorage, Folder, Storage};

use crate::seam;

/// The directory of the log's files in a backup. Both directories lie on one disk.
pub(crate) const FILES: &str = "partition-0/";

/// The size of the header of a file of pages.
pub(crate) const PAGES_HEADER_SIZE: u32 = 52;

/// The pair of a file of pages of a log.
pub(crate) fn pair_of(file: &str) -> Option<u32> {
    let number: u32 = file.strip_prefix("pages-")?.parse().ok()?;
    Some(number / 2)
}

/// Notes nothing, and bounds nothing.
pub(crate) fn unnoted() -> Arc<dyn Progress> {
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

/// Copies the files of a plan.
pub(crate) fn take(
    source: &FaultyStorage,
    plan: &BackupPlan,
    to: &FaultyStorage,
    progress: &Arc<dyn Progress>,
) -> Result<Taken, BackupError> {
    let source = Source {
        storage: &seam::Disk::new(source),
        plan,
        data_dir_id: "id",
        taken_at: "2026-11-24T15:00:00Z",
        kew: "0.1.0",
    };
    take_on(&source, directory(to), progress)
}

/// Checks a backup, and copies its files to a new disk.
pub(crate) fn restored(from: &FaultyStorage) -> Result<FaultyStorage, BackupError> {
    let disk = FaultyStorage::new();
    restore_to(&disk, from, &unnoted()).map(|()| disk)
}

/// The same to a disk that there is.
pub(crate) fn restore_to(
    disk: &FaultyStorage,
    from: &FaultyStorage,
    progress: &Arc<dyn Progress>,
) -> Result<(), BackupError> {
    let backup = Backup::open_on(directory(from), &unnoted())?;
    let to: Arc<dyn Storage> = Arc::new(seam::Disk::new(disk));
    backup.copy_on(&to, Path::new("new"), progress)?;
    Ok(())
}
