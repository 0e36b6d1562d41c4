//! A directory of the operating system.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
#[cfg(target_os = "linux")]
use std::num::NonZeroU64;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{Storage, StorageFile};

const DIRECTORY_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;

/// A directory on disk. Only its owner may look inside.
#[derive(Debug)]
pub struct FileStorage {
    directory: PathBuf,
    access: Access,
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
        Ok(Self {
            directory,
            access: Access::ReadWrite,
        })
    }

    /// Opens a directory to inspect it: every change fails.
    pub fn read_only(directory: impl Into<PathBuf>) -> io::Result<Self> {
        let directory = directory.into();
        fs::read_dir(&directory)?;
        Ok(Self {
            directory,
            access: Access::ReadOnly,
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
        let path = self.path_to_change(name)?;
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(FILE_MODE)
            .open(path)?;
        Ok(Arc::new(file))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        let file = OpenOptions::new()
            .read(true)
            .write(self.access == Access::ReadWrite)
            .open(self.directory.join(name))?;
        Ok(Arc::new(file))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.path_to_change(from)?, self.path_to_change(to)?)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.path_to_change(name)?)
    }

    fn list(&self) -> io::Result<Vec<String>> {
        fs::read_dir(&self.directory)?
            .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
            .collect()
    }

    fn sync_dir(&self) -> io::Result<()> {
        sync_directory(&self.directory)
    }

    fn free_bytes(&self) -> Option<u64> {
        let found = rustix::fs::statvfs(&self.directory).ok()?;
        // Some file systems answer with nothing but zeros.
        (found.f_blocks > 0).then(|| found.f_bavail.saturating_mul(found.f_frsize))
    }
}

impl StorageFile for File {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        FileExt::read_at(self, buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        FileExt::write_at(self, bytes, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        // `fdatasync` on Linux. On Apple systems the standard library issues `F_FULLFSYNC`, here
        // and in `sync_all`: a plain `fsync` there stops at the drive's volatile cache.
        Self::sync_data(self)
    }

    #[cfg(target_os = "linux")]
    fn forget_cached(&self, offset: u64, size_bytes: u64) {
        if let Some(size_bytes) = NonZeroU64::new(size_bytes) {
            let forget = rustix::fs::Advice::DontNeed;
            let _ = rustix::fs::fadvise(self, offset, Some(size_bytes), forget);
        }
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }
}
