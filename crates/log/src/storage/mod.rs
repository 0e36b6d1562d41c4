//! The storage that a log needs: a directory of files, and ways to make both durable.
//!
//! The trait is small so that a faulty disk can replace a real one. Written data is durable only after
//! [`StorageFile::sync_data`]. Created, renamed and removed names are durable only after
//! [`Storage::sync_dir`]. The helpers below retry interrupted calls, but never a sync.

mod descriptors;
mod faulty;
mod file;
mod folder;
mod memory;

use std::fmt;
use std::io;
use std::sync::Arc;

use thiserror::Error;

pub use faulty::{Fault, FaultyStorage, Repeat};
pub(crate) use file::sync_directory;
pub use file::{FileStorage, create_directory};
pub use folder::Folder;
pub use memory::MemoryStorage;

/// A directory of files without subdirectories.
pub trait Storage: Send + Sync {
    /// Creates an empty file. Fails if the name is taken.
    fn create(&self, name: &str) -> io::Result<Arc<dyn StorageFile>>;

    /// Opens a file that exists.
    fn open(&self, name: &str) -> io::Result<Arc<dyn StorageFile>>;

    /// Renames a file, and replaces the file that had the new name.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file's name. Open handles can still use the file.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// The names of all files, in no particular order.
    fn list(&self) -> io::Result<Vec<String>>;

    /// Makes every create, rename and remove so far durable.
    fn sync_dir(&self) -> io::Result<()>;

    /// How much can still be written, if that is known. Other programs may use the space, and quotas may not
    /// show in it.
    fn free_bytes(&self) -> Option<u64>;
}

/// A file, open for reading and writing at any offset and from any thread.
pub trait StorageFile: Send + Sync {
    /// Reads from `offset` on and returns how much was read. It is less than asked for only at the end of
    /// the file or after an interruption, and 0 only at the end.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;

    /// The same without waiting for a device. It fails with [`io::ErrorKind::WouldBlock`] if the bytes may not be in memory,
    /// which is all that some storages can say.
    fn read_cached_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let _ = (buffer, offset);
        Err(io::ErrorKind::WouldBlock.into())
    }

    /// Writes at `offset`, also past the end. Returns how much was written, which may be less than given.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize>;

    /// Takes the space of so many bytes at the end of the file, which are zeros then, without writing them. Returns whether
    /// it did: not every storage can.
    fn allocate_at(&self, offset: u64, size_bytes: u64) -> io::Result<bool> {
        let _ = (offset, size_bytes);
        Ok(false)
    }

    /// Makes everything written to this file so far durable, with the size that it needs.
    ///
    /// After a failure the state of the written data is unknown, and a second call that succeeds does not
    /// change that.
    fn sync_data(&self) -> io::Result<()>;

    /// Asks to forget what is in memory of these bytes, which were synced, so that the next read comes from the disk.
    /// Nothing depends on it.
    fn forget_cached(&self, offset: u64, size_bytes: u64) {
        let _ = (offset, size_bytes);
    }

    /// Size of the file.
    fn len(&self) -> io::Result<u64>;

    /// Says that everything written was synced, and that the file is only read from now on. So a storage that keeps
    /// few files open may close it until it is used again, which can then fail. It may be written again nevertheless.
    fn release(&self) {}

    /// Whether the file has no bytes.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
}

/// The operation on a file that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Creating it.
    Create,
    /// Opening it.
    Open,
    /// Reading from it.
    Read,
    /// Writing to it.
    Write,
    /// Making its bytes durable.
    Sync,
    /// Giving it another name.
    Rename,
    /// Removing it.
    Remove,
    /// Listing the directory.
    List,
    /// Making the directory durable.
    SyncDirectory,
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Create => "create",
            Self::Open => "open",
            Self::Read => "read",
            Self::Write => "write",
            Self::Sync => "sync",
            Self::Rename => "rename",
            Self::Remove => "remove",
            Self::List => "list",
            Self::SyncDirectory => "sync",
        })
    }
}

/// A failed operation on the storage: the operation, its file, and the offset.
#[derive(Clone, Debug, Error)]
#[error("cannot {action} {file}{}: {source}", display_offset(.offset))]
pub struct IoFailure {
    /// The operation.
    pub action: Action,
    /// The file's name in its directory.
    pub file: String,
    /// The offset in the file, for reads and writes.
    pub offset: Option<u64>,
    /// The storage's error.
    pub source: Arc<io::Error>,
}

fn display_offset(offset: &Option<u64>) -> String {
    offset.map_or(String::new(), |offset| format!(" at byte {offset}"))
}

impl IoFailure {
    pub(crate) fn new(action: Action, file: &str, source: io::Error) -> Self {
        Self {
            action,
            file: file.to_owned(),
            offset: None,
            source: Arc::new(source),
        }
    }

    fn at(action: Action, file: &str, offset: u64, source: io::Error) -> Self {
        Self {
            offset: Some(offset),
            ..Self::new(action, file, source)
        }
    }

    /// Whether the process or the system has no file descriptor left. Nothing was written, and the same call may succeed
    /// later.
    pub fn is_no_descriptor(&self) -> bool {
        is_no_descriptor(&self.source)
    }

    /// Whether the disk cannot give back what is stored there: that is damage. After any other failure the bytes may be
    /// whole, and another read may succeed.
    pub fn is_bad_sector(&self) -> bool {
        use rustix::io::Errno;
        let codes = [Errno::IO, Errno::BADMSG, Errno::ILSEQ, Errno::NODATA];
        let code = self.source.raw_os_error();
        let mut codes = codes.iter().map(|errno| errno.raw_os_error());
        self.action == Action::Read && codes.any(|bad| code == Some(bad))
    }

    /// Whether there is no such file.
    pub fn is_not_found(&self) -> bool {
        self.source.kind() == io::ErrorKind::NotFound
    }

    /// Whether the cause was a full disk or an exhausted quota.
    pub fn is_no_space(&self) -> bool {
        matches!(
            self.source.kind(),
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
        )
    }
}

fn is_no_descriptor(error: &io::Error) -> bool {
    let exhausted = [rustix::io::Errno::MFILE, rustix::io::Errno::NFILE];
    let code = error.raw_os_error();
    exhausted
        .iter()
        .any(|errno| code == Some(errno.raw_os_error()))
}

pub(crate) fn create(storage: &dyn Storage, name: &str) -> Result<Arc<dyn StorageFile>, IoFailure> {
    uninterrupted(|| storage.create(name))
        .map_err(|error| IoFailure::new(Action::Create, name, error))
}

pub(crate) fn open(storage: &dyn Storage, name: &str) -> Result<Arc<dyn StorageFile>, IoFailure> {
    uninterrupted(|| storage.open(name)).map_err(|error| IoFailure::new(Action::Open, name, error))
}

pub(crate) fn rename(storage: &dyn Storage, from: &str, to: &str) -> Result<(), IoFailure> {
    uninterrupted(|| storage.rename(from, to))
        .map_err(|error| IoFailure::new(Action::Rename, from, error))
}

/// Removes a file. A missing file is no error.
pub(crate) fn remove(storage: &dyn Storage, name: &str) -> Result<(), IoFailure> {
    remove_if_there(storage, name).map(|_| ())
}

/// Removes a file. Returns whether there was one.
pub(crate) fn remove_if_there(storage: &dyn Storage, name: &str) -> Result<bool, IoFailure> {
    match uninterrupted(|| storage.remove(name)) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(IoFailure::new(Action::Remove, name, error)),
    }
}

/// All names, in order.
pub(crate) fn list(storage: &dyn Storage) -> Result<Vec<String>, IoFailure> {
    let mut names = uninterrupted(|| storage.list())
        .map_err(|error| IoFailure::new(Action::List, "the directory", error))?;
    names.sort_unstable();
    Ok(names)
}

pub(crate) fn sync_dir(storage: &dyn Storage) -> Result<(), IoFailure> {
    storage
        .sync_dir()
        .map_err(|error| IoFailure::new(Action::SyncDirectory, "the directory", error))
}

/// Takes the space from an offset on, up to a size, if the storage can do that without writing. Returns whether it did.
pub(crate) fn allocate(
    file: &dyn StorageFile,
    name: &str,
    from_bytes: u64,
    size_bytes: u64,
) -> Result<bool, IoFailure> {
    uninterrupted(|| file.allocate_at(from_bytes, size_bytes - from_bytes))
        .map_err(|error| IoFailure::at(Action::Write, name, from_bytes, error))
}

pub(crate) fn len(file: &dyn StorageFile, name: &str) -> Result<u64, IoFailure> {
    uninterrupted(|| file.len()).map_err(|error| IoFailure::new(Action::Read, name, error))
}

/// Reads until `buffer` is full or the file ends. Returns how much was read.
pub(crate) fn read_at(
    file: &dyn StorageFile,
    name: &str,
    buffer: &mut [u8],
    offset: u64,
) -> Result<usize, IoFailure> {
    let mut filled = 0;
    while filled < buffer.len() {
        let at = offset + filled as u64;
        match file.read_at(&mut buffer[filled..], at) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(IoFailure::at(Action::Read, name, at, error)),
        }
    }
    Ok(filled)
}

pub(crate) fn write_all_at(
    file: &dyn StorageFile,
    name: &str,
    bytes: &[u8],
    offset: u64,
) -> Result<(), IoFailure> {
    let mut written = 0;
    while written < bytes.len() {
        let at = offset + written as u64;
        let failed = |error| Err(IoFailure::at(Action::Write, name, at, error));
        match file.write_at(&bytes[written..], at) {
            Ok(0) => return failed(io::ErrorKind::WriteZero.into()),
            Ok(count) => written += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return failed(error),
        }
    }
    Ok(())
}

/// Never retried: after a failed sync the kernel may have dropped what it could not write, and a
/// second sync would report success.
pub(crate) fn sync_data(file: &dyn StorageFile, name: &str) -> Result<(), IoFailure> {
    file.sync_data()
        .map_err(|error| IoFailure::new(Action::Sync, name, error))
}

fn uninterrupted<T>(mut operation: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match operation() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
