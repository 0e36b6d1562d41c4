//! A data directory that a restore fills. It has no manifest before it is whole, so nothing else opens it.

use std::fs;
use std::path::{Path, PathBuf};

use super::{
    DataDirError, LOCK, LOST_AND_FOUND, MANIFEST_IN_PREPARATION, PARTITION, RESTORING, TLS,
    create_manifest, failed, lock, names_in, write_durably,
};
use crate::FileStorage;
use crate::storage::{create_directory, sync_directory};

/// A data directory that this process alone fills, until it is dropped. If it is dropped unfinished, the next
/// restore finds what is there.
#[derive(Debug)]
pub struct Restoring {
    path: PathBuf,
    _lock: fs::File,
}

impl Restoring {
    /// Creates a data directory in a directory that is missing, empty, or left by an unfinished restore, whose files
    /// stay. Certificates may be there already.
    pub fn begin(path: impl Into<PathBuf>) -> Result<Self, DataDirError> {
        let path = path.into();
        create_directory(&path).map_err(failed("create", &path))?;
        // Checked before anything is created, so that a wrong path leaves no trace.
        refuse_used(&path)?;
        let lock = lock(&path)?;
        // Another restore may have finished meanwhile.
        refuse_used(&path)?;
        let mark = path.join(RESTORING);
        write_durably(&mark, b"").map_err(failed("write", &mark))?;
        sync_directory(&path).map_err(failed("sync", &path))?;
        let partition = path.join(PARTITION);
        create_directory(&partition).map_err(failed("create", &partition))?;
        Ok(Self { path, _lock: lock })
    }

    /// Removes all that an earlier restore has left.
    pub fn clear(&self) -> Result<(), DataDirError> {
        let partition = self.log_path();
        fs::remove_dir_all(&partition).map_err(failed("remove", &partition))?;
        create_directory(&partition).map_err(failed("create", &partition))
    }

    /// The directory for the log's files.
    pub fn log_path(&self) -> PathBuf {
        self.path.join(PARTITION)
    }

    /// The storage of the partition's log.
    pub fn storage(&self) -> Result<FileStorage, DataDirError> {
        let path = self.log_path();
        FileStorage::open(&path).map_err(failed("open", &path))
    }

    /// Makes it a data directory, with an id of its own, in one step.
    pub fn finish(self) -> Result<(), DataDirError> {
        let partition = self.log_path();
        sync_directory(&partition).map_err(failed("sync", &partition))?;
        create_manifest(&self.path)?;
        let mark = self.path.join(RESTORING);
        fs::remove_file(&mark).map_err(failed("remove", &mark))
    }
}

fn refuse_used(path: &Path) -> Result<(), DataDirError> {
    let names = names_in(path)?;
    let mut allowed = vec![LOCK, TLS, LOST_AND_FOUND];
    if names.iter().any(|name| name == RESTORING) {
        allowed.extend([RESTORING, PARTITION, MANIFEST_IN_PREPARATION]);
    }
    match names.into_iter().find(|name| !allowed.contains(&&**name)) {
        None => Ok(()),
        Some(entry) => Err(DataDirError::NotEmpty {
            path: path.to_owned(),
            entry,
        }),
    }
}
