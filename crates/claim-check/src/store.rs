//! Where objects lie.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use object_store::ObjectStore;
use object_store::local::LocalFileSystem;
use object_store::memory::InMemory;

use crate::error::Error;

/// A store of objects.
#[derive(Clone, Debug)]
pub struct ClaimStore {
    pub(crate) objects: Arc<dyn ObjectStore>,
    /// The root, if the store is a folder.
    pub(crate) folder: Option<Arc<Path>>,
}

impl ClaimStore {
    /// A folder of this machine, or one that several machines mount. It is created if it does not exist.
    ///
    /// An object is on disk before its message is sent, also after a loss of power.
    pub fn folder(path: impl Into<PathBuf>) -> Result<Self, Error> {
        let path = path.into();
        let refused = |source: Box<dyn std::error::Error + Send + Sync>| Error::StoreRefused {
            source: format!("{}: {source}", path.display()).into(),
        };
        std::fs::create_dir_all(&path).map_err(|error| refused(error.into()))?;
        // The folder itself must survive a loss of power, too.
        if let Some(parent) = path.canonicalize().ok().as_deref().and_then(Path::parent) {
            std::fs::File::open(parent)
                .and_then(|parent| parent.sync_all())
                .map_err(|error| refused(error.into()))?;
        }
        let objects =
            LocalFileSystem::new_with_prefix(&path).map_err(|error| refused(error.into()))?;
        Ok(Self {
            objects: Arc::new(objects.with_fsync(true)),
            folder: Some(path.into()),
        })
    }

    /// The memory of this process, for tests.
    pub fn memory() -> Self {
        Self::new(InMemory::new())
    }

    /// A store of `object_store`, such as those of the features `aws`, `azure` and `gcp`.
    ///
    /// For a folder use [`ClaimStore::folder`]: it synchronizes, and sweeps unfinished writes too.
    pub fn new(objects: impl ObjectStore) -> Self {
        Self {
            objects: Arc::new(objects),
            folder: None,
        }
    }
}
