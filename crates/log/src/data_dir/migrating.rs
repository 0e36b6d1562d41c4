//! A data directory of the format before: a start makes a log in the present one beside it, and then switches.
//!
//! The new log is made in a directory of its own, so nothing of the old one changes. The switch is the manifest,
//! which is replaced in one step. What is left to do then needs no decision, and any later open does it: remove
//! the old log, and give the new one its name. A crash before the switch leaves the old log, and the next start
//! begins anew; a crash after it leaves the new one.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::{
    DataDirError, Found, MIGRATED, OLD_FORMAT, PARTITION, failed, lock, read_manifest,
    write_manifest,
};
use crate::FileStorage;
use crate::storage::{create_directory, sync_directory};

/// A data directory of the format before, which this process alone uses until it is dropped.
#[derive(Debug)]
pub struct Migrating {
    path: PathBuf,
    id: String,
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
        let migrated = path.join(MIGRATED);
        remove_all(&migrated)?;
        create_directory(&migrated).map_err(failed("create", &migrated))?;
        Ok(Some(Self {
            path,
            id,
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

    /// Puts the new log, which is durable, in the place of the old one.
    pub fn finish(self) -> Result<(), DataDirError> {
        let migrated = self.path.join(MIGRATED);
        sync_directory(&migrated).map_err(failed("sync", &migrated))?;
        sync_directory(&self.path).map_err(failed("sync", &self.path))?;
        write_manifest(&self.path, &self.id)?;
        tidy(&self.path)
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
    remove_all(&partition)?;
    fs::rename(&migrated, &partition).map_err(failed("rename", &migrated))?;
    sync_directory(path).map_err(failed("sync", path))
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
