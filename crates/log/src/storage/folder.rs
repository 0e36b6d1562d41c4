//! Folders on one disk.

use std::io;
use std::sync::Arc;

use super::{Storage, StorageFile};

/// A folder of a storage: the files whose names begin with the folder's. So several directories can lie on one
/// [`FaultyStorage`](super::FaultyStorage), and a power cut strikes all of them at once.
pub struct Folder {
    storage: Arc<dyn Storage>,
    prefix: &'static str,
}

impl Folder {
    /// The folder of that name, which ends with a slash. The empty name is that of the storage itself, without its
    /// folders.
    pub fn new(storage: Arc<dyn Storage>, prefix: &'static str) -> Self {
        Self { storage, prefix }
    }

    fn name(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }
}

impl Storage for Folder {
    fn create(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        self.storage.create(&self.name(name))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        self.storage.open(&self.name(name))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.storage.rename(&self.name(from), &self.name(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.storage.remove(&self.name(name))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let names = self.storage.list()?.into_iter();
        let of_this = names.filter_map(|it| it.strip_prefix(self.prefix).map(str::to_owned));
        Ok(of_this.filter(|it| !it.contains('/')).collect())
    }

    fn sync_dir(&self) -> io::Result<()> {
        self.storage.sync_dir()
    }

    fn free_bytes(&self) -> Option<u64> {
        self.storage.free_bytes()
    }
}
