//! Files that are open as needed, so that a log of any length takes a bounded number of file descriptors.
//!
//! A handle stands for a file. Its descriptor may be closed while nothing uses it, and is opened again by the file's
//! name. Two kinds of files keep theirs. One is a file that was written: an error of a later write-back is reported only
//! to descriptors that were open meanwhile, and a commit must not depend on a free descriptor. It is released when it is
//! not written any more ([`StorageFile::release`]). The other is a file without a name: it was removed or replaced, and
//! something still reads it.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io;
#[cfg(target_os = "linux")]
use std::io::IoSliceMut;
#[cfg(target_os = "linux")]
use std::num::NonZeroU64;
use std::os::unix::fs::FileExt;
#[cfg(target_os = "linux")]
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
#[cfg(target_os = "linux")]
use std::sync::{TryLockError, TryLockResult};

#[cfg(target_os = "linux")]
use rustix::fs::{FallocateFlags, fallocate};
#[cfg(target_os = "linux")]
use rustix::io::{Errno, ReadWriteFlags, preadv2};

use super::{StorageFile, is_no_descriptor};

/// How many descriptors stay open without need.
pub(super) const IDLE_MAX: usize = 256;

/// The open files of a directory.
#[derive(Debug)]
pub(super) struct Descriptors {
    directory: PathBuf,
    /// How a file is opened again.
    opening: OpenOptions,
    idle_max: usize,
    files: Mutex<Files>,
}

#[derive(Debug, Default)]
struct Files {
    /// Counts uses, to know which file was used last.
    uses: u64,
    next_id: u64,
    by_id: BTreeMap<u64, Known>,
    /// The files that have a name and a handle.
    by_name: BTreeMap<String, u64>,
    /// The files that can be closed, by their last use.
    closable: BTreeMap<u64, u64>,
}

/// A file with handles.
#[derive(Debug)]
struct Known {
    handles: usize,
    /// `None` once the name was removed, or is that of another file.
    name: Option<String>,
    open: Option<Arc<File>>,
    used_at: u64,
    /// Whether it was written since it was last released.
    is_written: bool,
}

impl Known {
    fn is_closable(&self) -> bool {
        self.open.is_some() && self.name.is_some() && !self.is_written
    }
}

impl Files {
    fn add(&mut self, name: &str, file: File) -> u64 {
        self.next_id += 1;
        let id = self.next_id;
        let known = Known {
            handles: 1,
            name: Some(name.to_owned()),
            open: Some(Arc::new(file)),
            used_at: 0,
            is_written: false,
        };
        self.by_id.insert(id, known);
        // Something else has removed a file with this name: its handles lose it.
        if let Some(replaced) = self.by_name.insert(name.to_owned(), id) {
            self.change(replaced, |known| known.name = None);
        }
        self.change(id, |_| {});
        id
    }

    /// Changes what is known of a file, and counts it as used.
    fn change(&mut self, id: u64, change: impl FnOnce(&mut Known)) {
        let Some(known) = self.by_id.get_mut(&id) else {
            return;
        };
        self.closable.remove(&known.used_at);
        change(known);
        self.uses += 1;
        known.used_at = self.uses;
        if known.is_closable() {
            self.closable.insert(known.used_at, id);
        }
    }

    /// Closes the files that were used least recently, until so many that can be closed are open.
    fn close_beyond(&mut self, idle_max: usize) {
        while self.closable.len() > idle_max
            && let Some((_, id)) = self.closable.pop_first()
        {
            if let Some(known) = self.by_id.get_mut(&id) {
                known.open = None;
            }
        }
    }

    /// Forgets a handle. Returns the file if it was the last one: to close a large one that was removed takes time.
    fn drop_handle(&mut self, id: u64) -> Option<Arc<File>> {
        let known = self.by_id.get_mut(&id)?;
        known.handles -= 1;
        if known.handles > 0 {
            return None;
        }
        let known = self.by_id.remove(&id)?;
        self.closable.remove(&known.used_at);
        if let Some(name) = known.name {
            self.by_name.remove(&name);
        }
        known.open
    }
}

impl Descriptors {
    pub(super) fn of(directory: PathBuf, is_writable: bool, idle_max: usize) -> Arc<Self> {
        let mut opening = OpenOptions::new();
        opening.read(true).write(is_writable);
        Arc::new(Self {
            directory,
            opening,
            idle_max,
            files: Mutex::default(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Files> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Creates a file with these options.
    pub(super) fn create(
        self: &Arc<Self>,
        name: &str,
        options: &OpenOptions,
    ) -> io::Result<Arc<dyn StorageFile>> {
        let mut files = self.lock();
        let file = self.open_with(&mut files, name, options)?;
        let id = files.add(name, file);
        files.close_beyond(self.idle_max);
        Ok(self.handle(id))
    }

    /// Opens a file that exists. All handles of a file share its descriptor.
    pub(super) fn open(self: &Arc<Self>, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        let mut files = self.lock();
        let id = match files.by_name.get(name).copied() {
            Some(id) => {
                self.file(&mut files, id)?;
                files.change(id, |known| known.handles += 1);
                id
            }
            None => {
                let file = self.open_with(&mut files, name, &self.opening)?;
                files.add(name, file)
            }
        };
        files.close_beyond(self.idle_max);
        Ok(self.handle(id))
    }

    fn handle(self: &Arc<Self>, id: u64) -> Arc<dyn StorageFile> {
        Arc::new(Handle {
            id,
            descriptors: Arc::clone(self),
            written: Mutex::default(),
        })
    }

    /// Opens a file. If no descriptor is left, files that are not needed now are closed first.
    fn open_with(&self, files: &mut Files, name: &str, options: &OpenOptions) -> io::Result<File> {
        let path = self.directory.join(name);
        match options.open(&path) {
            Err(error) if is_no_descriptor(&error) => {
                files.close_beyond(0);
                options.open(&path)
            }
            opened => opened,
        }
    }

    /// The descriptor of a file, opened again if it was closed.
    fn file(&self, files: &mut Files, id: u64) -> io::Result<Arc<File>> {
        let known = files.by_id.get(&id).ok_or(io::ErrorKind::NotFound)?;
        if let Some(file) = &known.open {
            return Ok(Arc::clone(file));
        }
        let name = known.name.clone().ok_or(io::ErrorKind::NotFound)?;
        let file = Arc::new(self.open_with(files, &name, &self.opening)?);
        files.change(id, |known| known.open = Some(Arc::clone(&file)));
        Ok(file)
    }

    /// Makes sure that a file which loses its name can still be read. Without a free descriptor it cannot, and a later
    /// read fails.
    fn keep_open(&self, files: &mut Files, name: &str) {
        if let Some(id) = files.by_name.get(name).copied() {
            // A file that something else has removed is lost either way.
            let _ = self.file(files, id);
        }
    }

    /// Removes a file with `remove`. Its handles can still use it.
    pub(super) fn remove(
        &self,
        name: &str,
        remove: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        let mut files = self.lock();
        self.keep_open(&mut files, name);
        remove()?;
        if let Some(id) = files.by_name.remove(name) {
            files.change(id, |known| known.name = None);
        }
        Ok(())
    }

    /// Renames a file with `rename`. Its handles stay with it, and those of a file that is replaced with that one.
    pub(super) fn rename(
        &self,
        from: &str,
        to: &str,
        rename: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        let mut files = self.lock();
        self.keep_open(&mut files, to);
        rename()?;
        if let Some(replaced) = files.by_name.remove(to) {
            files.change(replaced, |known| known.name = None);
        }
        if let Some(id) = files.by_name.remove(from) {
            files.by_name.insert(to.to_owned(), id);
            files.change(id, |known| known.name = Some(to.to_owned()));
        }
        Ok(())
    }

    /// The descriptor of a file for one call.
    fn using(&self, id: u64, note: impl FnOnce(&mut Known)) -> io::Result<Arc<File>> {
        let mut files = self.lock();
        let file = self.file(&mut files, id)?;
        files.change(id, note);
        files.close_beyond(self.idle_max);
        Ok(file)
    }

    #[cfg(test)]
    fn open_count(&self) -> usize {
        let files = self.lock();
        let open = files.by_id.values().filter(|known| known.open.is_some());
        open.count()
    }
}

/// A handle of a file.
#[derive(Debug)]
struct Handle {
    id: u64,
    descriptors: Arc<Descriptors>,
    /// The file while it is written, so that a commit does not wait while another file is created or removed.
    written: Mutex<Option<Arc<File>>>,
}

impl Handle {
    fn file(&self) -> io::Result<Arc<File>> {
        match &*self.written() {
            Some(file) => Ok(Arc::clone(file)),
            None => self.descriptors.using(self.id, |_| {}),
        }
    }

    /// The file if it is open, and nobody opens or removes another one just now: that can take long.
    #[cfg(target_os = "linux")]
    fn file_at_hand(&self) -> Option<Arc<File>> {
        let written = at_once(self.written.try_lock())?;
        if let Some(file) = &*written {
            return Some(Arc::clone(file));
        }
        let mut files = at_once(self.descriptors.files.try_lock())?;
        let file = files.by_id.get(&self.id)?.open.clone()?;
        files.change(self.id, |_| {});
        Some(file)
    }

    fn file_to_write(&self) -> io::Result<Arc<File>> {
        let mut written = self.written();
        if let Some(file) = &*written {
            return Ok(Arc::clone(file));
        }
        let file = self
            .descriptors
            .using(self.id, |known| known.is_written = true)?;
        *written = Some(Arc::clone(&file));
        Ok(file)
    }

    fn written(&self) -> MutexGuard<'_, Option<Arc<File>>> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A lock that nobody else holds.
#[cfg(target_os = "linux")]
fn at_once<T>(tried: TryLockResult<MutexGuard<'_, T>>) -> Option<MutexGuard<'_, T>> {
    match tried {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // Closed after others can go on.
        let last = self.descriptors.lock().drop_handle(self.id);
        drop(last);
    }
}

impl StorageFile for Handle {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        FileExt::read_at(&*self.file()?, buffer, offset)
    }

    #[cfg(target_os = "linux")]
    fn read_cached_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let Some(file) = self.file_at_hand() else {
            return Err(io::ErrorKind::WouldBlock.into());
        };
        // A file system that cannot tell fails, which is as good an answer.
        let mut buffers = [IoSliceMut::new(buffer)];
        Ok(preadv2(
            &*file,
            &mut buffers,
            offset,
            ReadWriteFlags::NOWAIT,
        )?)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        FileExt::write_at(&*self.file_to_write()?, bytes, offset)
    }

    #[cfg(target_os = "linux")]
    fn allocate_at(&self, offset: u64, size_bytes: u64) -> io::Result<bool> {
        let file = self.file_to_write()?;
        match fallocate(&*file, FallocateFlags::KEEP_SIZE, offset, size_bytes) {
            Ok(()) => {}
            Err(error @ (Errno::NOSPC | Errno::DQUOT | Errno::FBIG | Errno::INTR | Errno::IO)) => {
                return Err(error.into());
            }
            // It cannot, or is not allowed to.
            Err(_) => return Ok(false),
        }
        // Some file systems say that they have done it, and take nothing.
        let taken_bytes = file.metadata()?.blocks() * 512;
        let is_taken = taken_bytes >= offset + size_bytes;
        if is_taken {
            file.set_len(offset + size_bytes)?;
        }
        Ok(is_taken)
    }

    fn sync_data(&self) -> io::Result<()> {
        // `fdatasync` on Linux. On Apple systems the standard library issues `F_FULLFSYNC`, here
        // and in `sync_all`: a plain `fsync` there stops at the drive's volatile cache.
        self.file()?.sync_data()
    }

    #[cfg(target_os = "linux")]
    fn forget_cached(&self, offset: u64, size_bytes: u64) {
        if let (Ok(file), Some(size_bytes)) = (self.file(), NonZeroU64::new(size_bytes)) {
            let forget = rustix::fs::Advice::DontNeed;
            let _ = rustix::fs::fadvise(&*file, offset, Some(size_bytes), forget);
        }
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.file()?.metadata()?.len())
    }

    fn release(&self) {
        *self.written() = None;
        let mut files = self.descriptors.lock();
        files.change(self.id, |known| known.is_written = false);
        files.close_beyond(self.descriptors.idle_max);
    }
}

#[cfg(test)]
#[path = "descriptors_tests.rs"]
mod tests;
