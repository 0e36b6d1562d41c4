//! The data directory: which process may use it, and which format it has.
//!
//! It holds a lock, a manifest, and a directory for each partition. A directory that is not empty and has no
//! manifest belongs to something else, and is left alone.

mod last_backup;
mod migrating;
mod restoring;

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use thiserror::Error;

use crate::storage::FileStorage;
use crate::storage::{create_directory, sync_directory};

pub use migrating::Migrating;
pub use restoring::Restoring;

/// The format that this version reads and writes.
const FORMAT: u32 = 2;
/// The one before it, which a start brings to the present one.
const OLD_FORMAT: u32 = 1;
const LOCK: &str = "lock";
const MANIFEST: &str = "MANIFEST";
const MANIFEST_IN_PREPARATION: &str = "MANIFEST.new";
const PARTITION: &str = "partition-0";
/// The log in the present format, while and just after it is made of an old one.
const MIGRATED: &str = "migrated-0";
/// Certificates and keys, which may exist before any data. Nothing here reads them.
const TLS: &str = "tls";
/// Entries that file systems put into the root of a new volume.
const LOST_AND_FOUND: &str = "lost+found";
/// Marks a directory that a restore has begun to fill.
const RESTORING: &str = "RESTORING";
const ID_SIZE: usize = 16;

/// A data directory that this process alone uses, until it is dropped.
#[derive(Debug)]
pub struct DataDir {
    path: PathBuf,
    id: String,
    /// The system releases the lock when the file is closed, also after a crash.
    _lock: File,
}

/// A log to inspect. While it is held, no server starts on the directory. Other processes may inspect it
/// too.
#[derive(Debug)]
pub struct Inspection {
    storage: FileStorage,
    /// `None` for a copy of a data directory that has no lock.
    _lock: Option<File>,
}

impl Inspection {
    /// The storage of the log. Every change to it fails.
    pub fn storage(&self) -> &FileStorage {
        &self.storage
    }
}

/// Why a data directory cannot be used.
#[derive(Debug, Error)]
pub enum DataDirError {
    /// The file system failed.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// The operation.
        action: &'static str,
        /// Its file or directory.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Another process has the lock.
    #[error("the data directory {} is in use by another process", path.display())]
    InUse {
        /// The data directory.
        path: PathBuf,
    },
    /// Not empty, and without a manifest.
    #[error(
        "the directory {} is not empty and has no {MANIFEST}, so it is not a data directory of Kew; it holds {entry}",
        path.display()
    )]
    NotOurs {
        /// The directory.
        path: PathBuf,
        /// One of its entries.
        entry: String,
    },
    /// A restore into it was begun and has not ended.
    #[error(
        "a restore into {} has not finished: run kew restore again, or remove the directory",
        path.display()
    )]
    Restoring {
        /// The directory.
        path: PathBuf,
    },
    /// A restore needs an empty directory.
    #[error(
        "the directory {} is not empty: it holds {entry}; name a directory that is empty or does not exist",
        path.display()
    )]
    NotEmpty {
        /// The directory.
        path: PathBuf,
        /// One of its entries.
        entry: String,
    },
    /// There is no data directory to inspect.
    #[error("{} is not a data directory of Kew: it has no {MANIFEST}", path.display())]
    Missing {
        /// The directory.
        path: PathBuf,
    },
    /// A newer Kew has written here.
    #[error(
        "the data directory {} has format {found}, and this version of Kew reads formats up to {supported}",
        path.display()
    )]
    NewerFormat {
        /// The data directory.
        path: PathBuf,
        /// Its format.
        found: u32,
        /// The newest format that can be read.
        supported: u32,
    },
    /// An older Kew has written here, and no start of this version has brought the directory to its format.
    #[error(
        "the data directory {} has format {found}: start kew serve with it once, which brings it to format {current}",
        path.display()
    )]
    OldFormat {
        /// The data directory.
        path: PathBuf,
        /// Its format.
        found: u32,
        /// The format that this version writes.
        current: u32,
    },
    /// It is not known which of two logs counts.
    #[error(
        "the data directory {} holds two logs of format {FORMAT}, {PARTITION} and {MIGRATED}: \
         move the one that does not count out of it",
        path.display()
    )]
    TwoLogs {
        /// The data directory.
        path: PathBuf,
    },
    /// A log cannot be replaced by another one.
    #[error(
        "{} must be a directory of the same file system as the directory that holds it: \
         move its files there first",
        path.display()
    )]
    NotMovable {
        /// The directory of the log.
        path: PathBuf,
    },
    /// The manifest is not one that Kew writes.
    #[error("{} is damaged: {what}", path.display())]
    DamagedManifest {
        /// The manifest.
        path: PathBuf,
        /// The error in it.
        what: String,
    },
}

impl DataDir {
    /// Opens and locks a data directory. Creates one if the directory is empty or missing.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, DataDirError> {
        let path = path.into();
        create_directory(&path).map_err(failed("create", &path))?;
        // Checked before anything is created, so that a wrong path leaves no trace.
        refuse_foreign(&path)?;
        let lock = lock(&path)?;
        let id = match read_current_manifest(&path)? {
            Some(id) => id,
            None => create_manifest(&path)?,
        };
        migrating::tidy(&path)?;
        let partition = path.join(PARTITION);
        create_directory(&partition).map_err(failed("create", &partition))?;
        Ok(Self {
            path,
            id,
            _lock: lock,
        })
    }

    /// Opens and locks a data directory that exists.
    pub fn open_existing(path: impl Into<PathBuf>) -> Result<Self, DataDirError> {
        let path = path.into();
        match read_current_manifest(&path)? {
            Some(_) => Self::open(path),
            None => Err(DataDirError::Missing { path }),
        }
    }

    /// The storage of the partition's log, to inspect. Every change to it fails.
    pub fn read_only_storage(&self) -> Result<FileStorage, DataDirError> {
        let path = self.path.join(PARTITION);
        FileStorage::read_only(&path).map_err(failed("open", &path))
    }

    /// The storage of the partition's log.
    pub fn storage(&self) -> Result<FileStorage, DataDirError> {
        let path = self.path.join(PARTITION);
        FileStorage::open(&path).map_err(failed("open", &path))
    }

    /// Opens a data directory's log to inspect it; changes nothing. Refused while a server uses the
    /// directory, because a log that is being written to looks damaged.
    pub fn inspect(path: &Path) -> Result<Inspection, DataDirError> {
        if read_current_manifest(path)?.is_none() {
            return Err(DataDirError::Missing {
                path: path.to_owned(),
            });
        }
        let lock = lock_to_look(path)?;
        migrating::refuse_two_logs(path)?;
        let partition = migrating::log_path(path);
        let storage = FileStorage::read_only(&partition).map_err(failed("open", &partition))?;
        Ok(Inspection {
            storage,
            _lock: lock,
        })
    }

    /// The id of a data directory.
    pub fn id_of(path: &Path) -> Result<String, DataDirError> {
        let missing = || DataDirError::Missing {
            path: path.to_owned(),
        };
        read_current_manifest(path)?.ok_or_else(missing)
    }

    /// The directory with a data directory's log. Names of its files are relative to it.
    pub fn log_path(path: &Path) -> PathBuf {
        migrating::log_path(path)
    }

    /// The file that the process using a data directory locks.
    pub fn lock_path(path: &Path) -> PathBuf {
        path.join(LOCK)
    }

    /// Where the directory is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A unique id of this directory, in hexadecimal digits.
    pub fn id(&self) -> &str {
        &self.id
    }
}

fn refuse_foreign(path: &Path) -> Result<(), DataDirError> {
    let names = names_in(path)?;
    let has = |wanted: &str| names.iter().any(|name| name == wanted);
    if has(RESTORING) && !has(MANIFEST) {
        return Err(DataDirError::Restoring {
            path: path.to_owned(),
        });
    }
    let ours = [LOCK, MANIFEST_IN_PREPARATION, TLS, LOST_AND_FOUND];
    let foreign = names.iter().find(|name| !ours.contains(&&***name));
    match foreign {
        Some(entry) if !has(MANIFEST) => Err(DataDirError::NotOurs {
            path: path.to_owned(),
            entry: entry.clone(),
        }),
        _ => Ok(()),
    }
}

fn names_in(directory: &Path) -> Result<Vec<String>, DataDirError> {
    let mut names = Vec::new();
    for entry in fs::read_dir(directory).map_err(failed("list", directory))? {
        let entry = entry.map_err(failed("list", directory))?;
        names.push(entry.file_name().to_string_lossy().into_owned());
    }
    names.sort_unstable();
    Ok(names)
}

fn lock(directory: &Path) -> Result<File, DataDirError> {
    let path = directory.join(LOCK);
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&path)
        .map_err(failed("open", &path))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(DataDirError::InUse {
            path: directory.to_owned(),
        }),
        Err(TryLockError::Error(error)) => Err(failed("lock", &path)(error)),
    }
}

/// Shared by all processes that inspect the directory.
fn lock_to_look(directory: &Path) -> Result<Option<File>, DataDirError> {
    let path = directory.join(LOCK);
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed("open", &path)(error)),
    };
    match file.try_lock_shared() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Err(DataDirError::InUse {
            path: directory.to_owned(),
        }),
        Err(TryLockError::Error(error)) => Err(failed("lock", &path)(error)),
    }
}

#[derive(Deserialize)]
struct Format {
    format: u32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Manifest {
    #[serde(rename = "format")]
    _format: u32,
    id: String,
}

/// What a manifest says.
struct Found {
    format: u32,
    id: String,
}

/// The directory's id, or `None` if there is no manifest. An older format is refused.
fn read_current_manifest(directory: &Path) -> Result<Option<String>, DataDirError> {
    match read_manifest(directory)? {
        Some(Found { format, .. }) if format < FORMAT => Err(DataDirError::OldFormat {
            path: directory.to_owned(),
            found: format,
            current: FORMAT,
        }),
        found => Ok(found.map(|found| found.id)),
    }
}

/// The manifest of any format up to the present one, or `None` if there is none.
fn read_manifest(directory: &Path) -> Result<Option<Found>, DataDirError> {
    let path = directory.join(MANIFEST);
    let bytes = match fs::read(&path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed("read", &path)(error)),
    };
    let damaged = |what: String| DataDirError::DamagedManifest {
        path: path.clone(),
        what,
    };
    let text = String::from_utf8(bytes).map_err(|_| damaged("it is not text".to_owned()))?;
    // Read the format first: the other fields depend on it.
    let Format { format } = toml::from_str(&text).map_err(|e| damaged(e.message().to_owned()))?;
    if format > FORMAT {
        return Err(DataDirError::NewerFormat {
            path: directory.to_owned(),
            found: format,
            supported: FORMAT,
        });
    }
    if format == 0 {
        return Err(damaged("there is no format 0".to_owned()));
    }
    let Manifest { id, .. } = toml::from_str(&text).map_err(|e| damaged(e.message().to_owned()))?;
    if id.len() != 2 * ID_SIZE || !id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(damaged(format!(
            "the id {id:?} is not {} hexadecimal digits",
            2 * ID_SIZE
        )));
    }
    Ok(Some(Found { format, id }))
}

fn create_manifest(directory: &Path) -> Result<String, DataDirError> {
    let mut random = [0; ID_SIZE];
    getrandom::fill(&mut random)
        .map_err(|error| failed("make an id for", directory)(io::Error::other(error)))?;
    let id: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    write_manifest(directory, &id)?;
    Ok(id)
}

/// Says that the directory has the present format, in one step.
fn write_manifest(directory: &Path, id: &str) -> Result<(), DataDirError> {
    let text = format!(
        "# Kew wrote this file. It says how to read the directory.\nformat = {FORMAT}\nid = \"{id}\"\n"
    );
    let temporary = directory.join(MANIFEST_IN_PREPARATION);
    let path = directory.join(MANIFEST);
    write_durably(&temporary, text.as_bytes()).map_err(failed("write", &temporary))?;
    fs::rename(&temporary, &path).map_err(failed("create", &path))?;
    sync_directory(directory).map_err(failed("sync", directory))
}

fn write_durably(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

fn failed(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> DataDirError + use<> {
    let path = path.to_owned();
    move |source| DataDirError::Io {
        action,
        path,
        source,
    }
}

#[cfg(test)]
#[path = "data_dir_tests.rs"]
mod tests;
