//! The disk of a backup: two directories, so that a faulty disk can replace a real one.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kew_log::{FileStorage, MemoryStorage, Storage, StorageFile};

use crate::BackupError;
use crate::error::failed;

const PARTITION: &str = "partition-0";

/// Where a backup lies.
#[derive(Clone)]
pub struct Directory {
    /// Names it in errors.
    pub path: PathBuf,
    /// Has the manifest.
    pub top: Arc<dyn Storage>,
    /// Has the files of the log.
    pub files: Arc<dyn Storage>,
}

impl fmt::Debug for Directory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Directory").field(&self.path).finish()
    }
}

impl Directory {
    /// Opens a directory of the system, whose files are created if they are missing.
    pub(crate) fn open(path: &Path, top: Arc<dyn Storage>) -> Result<Self, BackupError> {
        let partition = path.join(PARTITION);
        let files = FileStorage::open(&partition).map_err(failed("create", &partition))?;
        Ok(Self {
            path: path.to_owned(),
            top,
            files: Arc::new(files),
        })
    }

    /// Opens a directory of the system, in which nothing can be changed.
    pub(crate) fn read_only(path: &Path) -> Result<Self, BackupError> {
        let top = FileStorage::read_only(path).map_err(failed("read", path))?;
        let partition = path.join(PARTITION);
        let files: Arc<dyn Storage> = match FileStorage::read_only(&partition) {
            Ok(files) => Arc::new(files),
            // Then each of its files is.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Arc::new(MemoryStorage::new()),
            Err(error) => return Err(failed("read", &partition)(error)),
        };
        Ok(Self {
            path: path.to_owned(),
            top: Arc::new(top),
            files,
        })
    }

    /// A file of the log, under the name that it has in the backup.
    pub(crate) fn file<'a>(&'a self, stored_as: &'a str) -> Place<'a> {
        Place {
            storage: &self.files,
            name: stored_as,
            path: self.partition().join(stored_as),
        }
    }

    /// A file beside the directory of those of the log.
    pub(crate) fn beside<'a>(&'a self, name: &'a str) -> Place<'a> {
        Place::new(&self.top, name, &self.path)
    }

    /// The path of the directory with the files of the log.
    pub(crate) fn partition(&self) -> PathBuf {
        self.path.join(PARTITION)
    }
}

/// A file, which need not exist, and the path that names it in errors.
pub(crate) struct Place<'a> {
    pub(crate) storage: &'a Arc<dyn Storage>,
    pub(crate) name: &'a str,
    pub(crate) path: PathBuf,
}

impl<'a> Place<'a> {
    pub(crate) fn new(storage: &'a Arc<dyn Storage>, name: &'a str, directory: &Path) -> Self {
        Self {
            storage,
            name,
            path: directory.join(name),
        }
    }

    /// Creates the file anew.
    pub(crate) fn create(&self) -> Result<Arc<dyn StorageFile>, BackupError> {
        match uninterrupted(|| self.storage.create(self.name)) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                self.remove()?;
                uninterrupted(|| self.storage.create(self.name))
            }
            created => created,
        }
        .map_err(failed("create", &self.path))
    }

    pub(crate) fn open(&self) -> Result<Arc<dyn StorageFile>, BackupError> {
        uninterrupted(|| self.storage.open(self.name)).map_err(failed("open", &self.path))
    }

    /// The same for a file that may be missing.
    pub(crate) fn open_if_there(&self) -> Result<Option<Arc<dyn StorageFile>>, BackupError> {
        match uninterrupted(|| self.storage.open(self.name)) {
            Ok(file) => Ok(Some(file)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed("read", &self.path)(error)),
        }
    }

    /// All bytes of the file, if there is one.
    pub(crate) fn read(&self) -> Result<Option<Vec<u8>>, BackupError> {
        let Some(file) = self.open_if_there()? else {
            return Ok(None);
        };
        let read = size_of(&*file).and_then(|size_bytes| {
            let size = usize::try_from(size_bytes).map_err(io::Error::other)?;
            let mut bytes = vec![0; size];
            let mut filled = 0;
            while filled < size {
                let piece = &mut bytes[filled..];
                match uninterrupted(|| file.read_at(piece, filled as u64))? {
                    0 => break,
                    count => filled += count,
                }
            }
            bytes.truncate(filled);
            Ok(bytes)
        });
        read.map(Some).map_err(failed("read", &self.path))
    }

    pub(crate) fn rename_to(&self, to: &Self) -> Result<(), BackupError> {
        let renamed = uninterrupted(|| self.storage.rename(self.name, to.name));
        renamed.map_err(failed("create", &to.path))
    }

    pub(crate) fn remove(&self) -> Result<(), BackupError> {
        uninterrupted(|| self.storage.remove(self.name)).map_err(failed("remove", &self.path))
    }
}

/// The size of a file.
pub(crate) fn size_of(file: &dyn StorageFile) -> io::Result<u64> {
    uninterrupted(|| file.len())
}

/// Makes the names in a directory durable.
pub(crate) fn sync(storage: &dyn Storage, path: &Path) -> Result<(), BackupError> {
    storage.sync_dir().map_err(failed("sync", path))
}

/// The names in a directory, in order.
pub(crate) fn names_in(storage: &dyn Storage, path: &Path) -> Result<Vec<String>, BackupError> {
    let names = uninterrupted(|| storage.list());
    let mut names = names.map_err(failed("list", path))?;
    names.sort_unstable();
    Ok(names)
}

fn uninterrupted<T>(mut operation: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match operation() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}
