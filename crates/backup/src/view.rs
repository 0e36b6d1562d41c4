//! The files of a backup as the log's directory that they came from, to read.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::Arc;

use kew_log::{Storage, StorageFile};

use crate::directory::Place;
use crate::manifest::StoredFile;
use crate::{Phase, Progress};

/// A directory of the stored files under their names in the log. Nothing can be changed.
pub struct View {
    files: BTreeMap<String, Viewed>,
    progress: Arc<dyn Progress>,
}

impl fmt::Debug for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.files.keys();
        f.debug_list().entries(names).finish()
    }
}

struct Viewed {
    storage: Arc<dyn Storage>,
    stored_as: String,
    stored_bytes: u64,
    size_bytes: u64,
}

impl View {
    /// Every byte that is read in it is noted.
    pub(crate) fn new(progress: &Arc<dyn Progress>) -> Self {
        Self {
            files: BTreeMap::new(),
            progress: Arc::clone(progress),
        }
    }

    pub(crate) fn add(&mut self, file: &StoredFile, place: &Place<'_>) {
        let viewed = Viewed {
            storage: Arc::clone(place.storage),
            stored_as: place.name.to_owned(),
            stored_bytes: file.size_bytes,
            size_bytes: file.restored_size_bytes,
        };
        self.files.insert(file.name.clone(), viewed);
    }
}

impl Storage for View {
    fn create(&self, _name: &str) -> io::Result<Arc<dyn StorageFile>> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        let viewed = self.files.get(name).ok_or(io::ErrorKind::NotFound)?;
        Ok(Arc::new(Padded {
            file: viewed.storage.open(&viewed.stored_as)?,
            stored_bytes: viewed.stored_bytes,
            size_bytes: viewed.size_bytes,
            progress: Arc::clone(&self.progress),
        }))
    }

    fn rename(&self, _from: &str, _to: &str) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn remove(&self, _name: &str) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.files.keys().cloned().collect())
    }

    fn sync_dir(&self) -> io::Result<()> {
        Ok(())
    }

    fn free_bytes(&self) -> Option<u64> {
        None
    }
}

/// A stored file, with the zeros that follow it when it is restored.
struct Padded {
    file: Arc<dyn StorageFile>,
    stored_bytes: u64,
    size_bytes: u64,
    progress: Arc<dyn Progress>,
}

impl StorageFile for Padded {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let left = |end: u64| usize::try_from(end.saturating_sub(offset)).unwrap_or(usize::MAX);
        let count = buffer.len().min(left(self.size_bytes));
        let buffer = &mut buffer[..count];
        let stored = count.min(left(self.stored_bytes));
        let read = match stored {
            0 => 0,
            stored => self.file.read_at(&mut buffer[..stored], offset)?,
        };
        match read {
            // The zeros. A file that ends too early reads as zeros too, which are no records.
            0 => {
                buffer.fill(0);
                Ok(count)
            }
            read => {
                // Copies stay where they are, so nothing has to end here.
                let _ = self.progress.note(Phase::Verify, read as u64);
                Ok(read)
            }
        }
    }

    fn write_at(&self, _bytes: &[u8], _offset: u64) -> io::Result<usize> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.size_bytes)
    }
}
