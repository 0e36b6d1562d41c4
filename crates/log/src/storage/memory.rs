//! A directory in memory, for a log that need not outlive its process.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Storage, StorageFile};

const CHUNK_SIZE: usize = 64 * 1024;

/// Files in memory. Ranges that were never written, or only with zeros, take none.
#[derive(Debug, Default)]
pub struct MemoryStorage {
    files: Mutex<BTreeMap<String, Arc<MemoryFile>>>,
}

impl MemoryStorage {
    /// An empty directory.
    pub fn new() -> Self {
        Self::default()
    }

    /// How much memory the contents of all files take.
    pub fn allocated_bytes(&self) -> u64 {
        lock(&self.files)
            .values()
            .map(|file| (lock(&file.content).chunks.len() * CHUNK_SIZE) as u64)
            .sum()
    }
}

impl Storage for MemoryStorage {
    fn create(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        let mut files = lock(&self.files);
        if files.contains_key(name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let file = Arc::new(MemoryFile::default());
        files.insert(name.to_owned(), Arc::clone(&file));
        Ok(file)
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        let files = lock(&self.files);
        let file = files.get(name).ok_or(io::ErrorKind::NotFound)?;
        Ok(Arc::clone(file) as Arc<dyn StorageFile>)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut files = lock(&self.files);
        let file = files.remove(from).ok_or(io::ErrorKind::NotFound)?;
        files.insert(to.to_owned(), file);
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        match lock(&self.files).remove(name) {
            Some(_) => Ok(()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn list(&self) -> io::Result<Vec<String>> {
        Ok(lock(&self.files).keys().cloned().collect())
    }

    fn sync_dir(&self) -> io::Result<()> {
        Ok(())
    }

    fn free_bytes(&self) -> Option<u64> {
        None
    }
}

#[derive(Debug, Default)]
struct MemoryFile {
    content: Mutex<Content>,
}

#[derive(Debug, Default)]
struct Content {
    /// By number; a chunk that is missing holds zeros.
    chunks: BTreeMap<u64, Box<[u8]>>,
    size_bytes: u64,
}

impl StorageFile for MemoryFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let content = lock(&self.content);
        let available = content.size_bytes.saturating_sub(offset);
        let count = buffer
            .len()
            .min(usize::try_from(available).unwrap_or(usize::MAX));
        for (chunk, within, range) in pieces(offset, count) {
            let target = &mut buffer[range];
            match content.chunks.get(&chunk) {
                Some(bytes) => target.copy_from_slice(&bytes[within..within + target.len()]),
                None => target.fill(0),
            }
        }
        Ok(count)
    }

    fn read_cached_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.read_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        let mut content = lock(&self.content);
        for (chunk, within, range) in pieces(offset, bytes.len()) {
            let source = &bytes[range];
            if let Some(target) = content.chunks.get_mut(&chunk) {
                target[within..within + source.len()].copy_from_slice(source);
            } else if source.iter().any(|byte| *byte != 0) {
                let mut target = vec![0; CHUNK_SIZE].into_boxed_slice();
                target[within..within + source.len()].copy_from_slice(source);
                content.chunks.insert(chunk, target);
            }
        }
        content.size_bytes = content.size_bytes.max(offset + bytes.len() as u64);
        Ok(bytes.len())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(lock(&self.content).size_bytes)
    }
}

/// Cuts a range of a file at the borders of chunks: the chunk's number, where in it the piece
/// begins, and which part of the caller's buffer it is.
fn pieces(offset: u64, count: usize) -> impl Iterator<Item = (u64, usize, std::ops::Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        if done == count {
            return None;
        }
        let at = offset + done as u64;
        let chunk = at / CHUNK_SIZE as u64;
        let within = usize::try_from(at % CHUNK_SIZE as u64).expect("below the size of a chunk");
        let begin = done;
        done += (CHUNK_SIZE - within).min(count - done);
        Some((chunk, within, begin..done))
    })
}

/// A panic elsewhere leaves the bytes in a state as after a failed write.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
