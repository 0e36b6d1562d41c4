//! A data directory of the format before: a start makes a log in the present one beside it, and then switches.
//!
//! The new log is made in a directory of its own, so nothing of the old one changes. The switch is the manifest,
//! which is replaced in one step. What is left to do then needs no decision, and any later open does it: remove
//! the old log, and give the new one its name. A crash before the switch leaves the old log, and the next start
//! begins anew; a crash after it leaves the new one.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::{
    DataDirError, Found, MIGRATED, OLD_FORMAT, PARTITION, failed, lock, names_in, read_manifest,
    write_manifest,
};
use crate::format::names::{self, Name};
use crate::storage::{create_directory, sync_directory};
use crate::{FileStorage, FirstFormatLog, Storage as _};

/// A data directory of the format before, which this process alone uses until it is dropped. If it is dropped
/// unfinished, the new log is removed.
#[derive(Debug)]
pub struct Migrating {
    path: PathBuf,
    id: String,
    /// Whether the directory may have the present format.
    is_switching: bool,
    _lock: fs::File,
}

impl Migrating {
    /// Opens and locks a data directory if it has the format before. What an earlier attempt has left is removed.
    pub fn begin(path: impl Into<PathBuf>) -> Result<Option<Self>, DataDirError> {
        let path = path.into();
        if !is_old(&path)? {
            return Ok(None);
        }
        let lock = lock(&path)?;
        // Another process may have finished meanwhile.
        let Some(Found { id, .. }) = read_manifest(&path)?.filter(|it| it.format == OLD_FORMAT)
        else {
            return Ok(None);
        };
        let (partition, migrated) = (path.join(PARTITION), path.join(MIGRATED));
        // The first start may have been killed before it made it.
        create_directory(&partition).map_err(failed("create", &partition))?;
        refuse_mount_point(&path, &partition)?;
        remove_all(&migrated)?;
        create_directory(&migrated).map_err(failed("create", &migrated))?;
        Ok(Some(Self {
            path,
            id,
            is_switching: false,
            _lock: lock,
        }))
    }

    /// The storage of the old log. Every change to it fails.
    pub fn old_storage(&self) -> Result<FileStorage, DataDirError> {
        let path = self.path.join(PARTITION);
        FileStorage::read_only(&path).map_err(failed("open", &path))
    }

    /// The storage of the new log, which is empty in the beginning.
    pub fn new_storage(&self) -> Result<FileStorage, DataDirError> {
        let path = self.path.join(MIGRATED);
        FileStorage::open(&path).map_err(failed("open", &path))
    }

    /// Puts the new log, which is durable, in the place of the old one. After an error, the next open of the directory
    /// goes on with what it finds.
    pub fn finish(mut self) -> Result<(), DataDirError> {
        let migrated = self.path.join(MIGRATED);
        sync_directory(&migrated).map_err(failed("sync", &migrated))?;
        sync_directory(&self.path).map_err(failed("sync", &self.path))?;
        self.is_switching = true;
        write_manifest(&self.path, &self.id)?;
        tidy(&self.path)
    }
}

impl Drop for Migrating {
    fn drop(&mut self) {
        if !self.is_switching {
            // Best effort: the next attempt removes it too. Its space may be needed until then.
            let _ = remove_all(&self.path.join(MIGRATED));
        }
    }
}

fn is_old(path: &Path) -> Result<bool, DataDirError> {
    let found = read_manifest(path)?;
    Ok(found.is_some_and(|it| it.format == OLD_FORMAT))
}

/// In a directory of the present format: puts a new log in the place of an old one, if that was not done yet.
pub(super) fn tidy(path: &Path) -> Result<(), DataDirError> {
    let (migrated, partition) = (path.join(MIGRATED), path.join(PARTITION));
    if !migrated.try_exists().map_err(failed("find", &migrated))? {
        return Ok(());
    }
    refuse_two_logs(path)?;
    // The process that switched may have been killed before it synced the manifest. Until that is durable, the old log
    // is needed.
    sync_directory(path).map_err(failed("sync", path))?;
    keep_others(&partition, &migrated)?;
    remove_all(&partition)?;
    fs::rename(&migrated, &partition).map_err(failed("rename", &migrated))?;
    sync_directory(path).map_err(failed("sync", path))
}

/// Refuses a directory with a log of the present format beside the one that a migration made: it is not known which one
/// counts.
pub(super) fn refuse_two_logs(path: &Path) -> Result<(), DataDirError> {
    let (migrated, partition) = (path.join(MIGRATED), path.join(PARTITION));
    if !migrated.is_dir() || !partition.is_dir() {
        return Ok(());
    }
    let look = failed("read", &partition);
    let log = FileStorage::read_only(&partition).and_then(|it| is_present_format(&it));
    match log.map_err(look)? {
        true => Err(DataDirError::TwoLogs {
            path: path.to_owned(),
        }),
        false => Ok(()),
    }
}

fn is_present_format(storage: &FileStorage) -> io::Result<bool> {
    for name in storage.list()? {
        if let Name::Segment(_) | Name::Snapshot(_) = names::parse(&name)
            && !FirstFormatLog::has(storage, &name).map_err(io::Error::other)?
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Moves what is not a part of the old log: files that a repair has set aside, and those of others.
fn keep_others(partition: &Path, migrated: &Path) -> Result<(), DataDirError> {
    if !partition.is_dir() {
        return Ok(());
    }
    for name in names_in(partition)? {
        if let Name::SetAside | Name::Foreign = names::parse(&name) {
            let (from, to) = (partition.join(&name), migrated.join(&name));
            fs::rename(&from, &to).map_err(failed("move", &from))?;
        }
    }
    sync_directory(migrated).map_err(failed("sync", migrated))
}

/// The new log takes the place of the old one with a rename, which cannot leave a file system.
fn refuse_mount_point(path: &Path, partition: &Path) -> Result<(), DataDirError> {
    let device = |at: &Path| fs::symlink_metadata(at).map(|it| (it.dev(), it.is_dir()));
    let of_path = fs::metadata(path).map_err(failed("read", path))?.dev();
    let (of_partition, is_dir) = device(partition).map_err(failed("read", partition))?;
    match is_dir && of_partition == of_path {
        true => Ok(()),
        false => Err(DataDirError::NotMovable {
            path: partition.to_owned(),
        }),
    }
}

/// The directory with the log of a directory of the present format.
pub(super) fn log_path(path: &Path) -> PathBuf {
    let migrated = path.join(MIGRATED);
    match migrated.is_dir() {
        true => migrated,
        false => path.join(PARTITION),
    }
}

fn remove_all(path: &Path) -> Result<(), DataDirError> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed("remove", path)(error)),
        _ => Ok(()),
    }
}
