//! A directory of the operating system.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::descriptors::{Descriptors, IDLE_MAX};
use super::{Storage, StorageFile};

const DIRECTORY_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;

/// A directory on disk. Only its owner may look inside. Few of its files are open at once.
#[derive(Debug)]
pub struct FileStorage {
    directory: PathBuf,
    access: Access,
    /// The directory, open to make its names durable: that must not need a free descriptor.
    opened: File,
    descriptors: Arc<Descriptors>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    ReadWrite,
    ReadOnly,
}

impl FileStorage {
    /// Opens the directory, or creates it with mode 0700 if it is missing.
    ///
    /// A new directory's own name is made durable in its parent.
    pub fn open(directory: impl Into<PathBuf>) -> io::Result<Self> {
        let directory = directory.into();
        create_directory(&directory)?;
        Self::on(directory, Access::ReadWrite)
    }

    /// Opens a directory to inspect it: every change fails.
    pub fn read_only(directory: impl Into<PathBuf>) -> io::Result<Self> {
        let directory = directory.into();
        fs::read_dir(&directory)?;
        Self::on(directory, Access::ReadOnly)
    }

    fn on(directory: PathBuf, access: Access) -> io::Result<Self> {
        let is_writable = access == Access::ReadWrite;
        Ok(Self {
            opened: File::open(&directory)?,
            descriptors: Descriptors::of(directory.clone(), is_writable, IDLE_MAX),
            directory,
            access,
        })
    }

    /// Where the directory is.
    pub fn path(&self) -> &Path {
        &self.directory
    }

    fn path_to_change(&self, name: &str) -> io::Result<PathBuf> {
        match self.access {
            Access::ReadWrite => Ok(self.directory.join(name)),
            Access::ReadOnly => Err(io::ErrorKind::ReadOnlyFilesystem.into()),
        }
    }
}

/// Creates a missing directory and its missing parents, for their owner only, and makes their names durable.
/// A new user has no `~/.local/share`.
pub fn create_directory(directory: &Path) -> io::Result<()> {
    match create_one(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let parent = directory.parent();
            let Some(parent) = parent.filter(|it| !it.as_os_str().is_empty()) else {
                return Err(error);
            };
            create_directory(parent)?;
            create_one(directory)
        }
        created => created,
    }
}

fn create_one(directory: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(DIRECTORY_MODE).create(directory) {
        Ok(()) => match directory.parent() {
            Some(parent) if parent.as_os_str().is_empty() => sync_directory(Path::new(".")),
            Some(parent) => sync_directory(parent),
            None => Ok(()),
        },
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && directory.is_dir() => Ok(()),
        Err(error) => Err(error),
    }
}

/// Makes the names in a directory durable.
pub(crate) fn sync_directory(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

impl Storage for FileStorage {
    fn create(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        self.path_to_change(name)?;
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        options.create_new(true).mode(FILE_MODE);
        self.descriptors.create(name, &options)
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        self.descriptors.open(name)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let paths = (self.path_to_change(from)?, self.path_to_change(to)?);
        self.descriptors
            .rename(from, to, || fs::rename(&paths.0, &paths.1))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let path = self.path_to_change(name)?;
        self.descriptors.remove(name, || fs::remove_file(path))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        fs::read_dir(&self.directory)?
            .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
            .collect()
    }

    fn sync_dir(&self) -> io::Result<()> {
        self.opened.sync_all()
    }

    fn free_bytes(&self) -> Option<u64> {
        let found = rustix::fs::statvfs(&self.directory).ok()?;
        // Some file systems answer with nothing but zeros.
        (found.f_blocks > 0).then(|| found.f_bavail.saturating_mul(found.f_frsize))
    }
}
