//! The directory of a backup:
//!
//! ```text
//! kew-backup.lock held by the process that writes or reads the backup; has the id of the data directory
//! BACKUP          the manifest; BACKUP.new while it is written
//! partition-0/    the files, each under a name that tells its content
//! ```

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::Arc;

use kew_log::{FileStorage, Storage};

use crate::copy::write_all;
use crate::directory::{Directory, Place, names_in, size_of, sync};
use crate::error::failed;
use crate::manifest::{Manifest, StoredFile, hex};
use crate::{BackupError, Progress, View};

pub(crate) const MANIFEST: &str = "BACKUP";
const MANIFEST_IN_PREPARATION: &str = "BACKUP.new";
const LOCK: &str = "kew-backup.lock";
/// Begins the name of a file that is not complete or not checked.
const TEMPORARY: &str = "prepare-";
const LOST_AND_FOUND: &str = "lost+found";

/// The directory of a backup, locked.
#[derive(Debug)]
pub(crate) struct Destination {
    directory: Directory,
    _lock: Option<File>,
}

impl Destination {
    /// Opens the backup of a data directory to write to it. Creates the directory if it is missing. Removes
    /// unfinished files.
    pub(crate) fn open(path: &Path, data_dir_id: &str) -> Result<Self, BackupError> {
        let top = FileStorage::open(path).map_err(failed("create", path))?;
        let top: Arc<dyn Storage> = Arc::new(top);
        refuse_other(&*top, path)?;
        let lock_path = path.join(LOCK);
        let lock = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&lock_path)
            .map_err(failed("open", &lock_path))?;
        let lock = locked(lock, File::try_lock, path)?;
        belong_to(&top, path, data_dir_id)?;
        let directory = Directory::open(path, top)?;
        Self::begin(directory, Some(lock))
    }

    /// The same on a disk that this process alone uses.
    pub(crate) fn open_on(directory: Directory, data_dir_id: &str) -> Result<Self, BackupError> {
        let path = &directory.path;
        refuse_other(&*directory.top, path)?;
        belong_to(&directory.top, path, data_dir_id)?;
        Self::begin(directory, None)
    }

    fn begin(directory: Directory, lock: Option<File>) -> Result<Self, BackupError> {
        let destination = Self {
            directory,
            _lock: lock,
        };
        for name in destination.names()? {
            if name.starts_with(TEMPORARY) {
                destination.file(&name).remove()?;
            }
        }
        Ok(destination)
    }

    /// Opens a backup to read it. Changes nothing, so it may be on a disk that cannot be written to.
    pub(crate) fn open_to_read(path: &Path) -> Result<Self, BackupError> {
        let lock_path = path.join(LOCK);
        let lock = match File::open(&lock_path) {
            Ok(lock) => Some(locked(lock, File::try_lock_shared, path)?),
            // A copy of a backup may lack it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(failed("open", &lock_path)(error)),
        };
        Ok(Self {
            directory: Directory::read_only(path)?,
            _lock: lock,
        })
    }

    /// The same on a disk that this process alone uses.
    pub(crate) fn to_read_on(directory: Directory) -> Self {
        Self {
            directory,
            _lock: None,
        }
    }

    /// The manifest, if the backup is whole.
    pub(crate) fn manifest(&self) -> Result<Option<Manifest>, BackupError> {
        manifest_in(&self.directory.beside(MANIFEST))
    }

    /// Replaces the manifest in one step: from then on this is the backup.
    pub(crate) fn replace_manifest(&self, manifest: &Manifest) -> Result<(), BackupError> {
        let temporary = self.directory.beside(MANIFEST_IN_PREPARATION);
        let file = temporary.create()?;
        let written = write_all(&*file, &manifest.to_json(), 0);
        let written = written.and_then(|()| file.sync_data());
        written.map_err(failed("write", &temporary.path))?;
        temporary.rename_to(&self.directory.beside(MANIFEST))?;
        sync(&*self.directory.top, self.path()).map_err(|error| BackupError::NotSynced {
            source: Box::new(error),
        })
    }

    /// Removes the files that the backup does not have.
    pub(crate) fn remove_unneeded(&self, manifest: &Manifest) -> Result<(), BackupError> {
        let kept = manifest.files.iter().map(|file| file.stored_as.as_str());
        let kept: BTreeSet<&str> = kept.collect();
        for name in self.names()? {
            if StoredName::parse(&name).is_some() && !kept.contains(name.as_str()) {
                self.file(&name).remove()?;
            }
        }
        Ok(())
    }

    /// The file with this content that an earlier run has copied and checked.
    pub(crate) fn find(
        &self,
        name: &str,
        identity: u32,
        size_bytes: u64,
    ) -> Result<Option<(String, u32)>, BackupError> {
        for stored_as in self.names()? {
            let found = StoredName::parse(&stored_as);
            let found = found.filter(|found| {
                (found.name, found.identity, found.size_bytes) == (name, identity, size_bytes)
            });
            let Some(found) = found else { continue };
            let place = self.file(&stored_as);
            let there = size_of(&*place.open()?).map_err(failed("read", &place.path))?;
            if there == size_bytes {
                let crc = found.crc;
                return Ok(Some((stored_as, crc)));
            }
        }
        Ok(None)
    }

    /// The name under which a file is written until it is complete and checked.
    pub(crate) fn temporary(name: &str) -> String {
        format!("{TEMPORARY}{name}")
    }

    /// Gives a file that is complete and checked its final name.
    pub(crate) fn keep(&self, temporary: &Place<'_>, file: &StoredFile) -> Result<(), BackupError> {
        temporary.rename_to(&self.file(&file.stored_as))?;
        sync(&*self.directory.files, &self.directory.partition())
    }

    pub(crate) fn path(&self) -> &Path {
        &self.directory.path
    }

    /// A file of the log, under the name that it has in the backup.
    pub(crate) fn file<'a>(&'a self, stored_as: &'a str) -> Place<'a> {
        self.directory.file(stored_as)
    }

    /// The files of a manifest as the log's directory.
    pub(crate) fn view(&self, files: &[StoredFile], progress: &Arc<dyn Progress>) -> View {
        let mut view = View::new(progress);
        for file in files {
            view.add(file, &self.file(&file.stored_as));
        }
        view
    }

    fn names(&self) -> Result<Vec<String>, BackupError> {
        names_in(&*self.directory.files, &self.directory.partition())
    }
}

/// Refuses the directory if it belongs to another data directory, also before its first backup is whole.
fn belong_to(top: &Arc<dyn Storage>, path: &Path, data_dir_id: &str) -> Result<(), BackupError> {
    let of_manifest = manifest_in(&Place::new(top, MANIFEST, path))?;
    let lock = Place::new(top, LOCK, path);
    let found = match of_manifest {
        Some(manifest) => Some(manifest.data_dir_id),
        None => noted_id(&lock)?,
    };
    match found {
        Some(found) if found != data_dir_id => Err(BackupError::OtherSource {
            path: path.to_owned(),
            found,
            given: data_dir_id.to_owned(),
        }),
        Some(_) => Ok(()),
        None => {
            note_id(&lock, data_dir_id)?;
            sync(&**top, path)
        }
    }
}

/// The id in the lock's file. `None` if it has none, or was written in part.
fn noted_id(lock: &Place<'_>) -> Result<Option<String>, BackupError> {
    let text = lock.read()?.and_then(|bytes| String::from_utf8(bytes).ok());
    let line = text.as_deref().and_then(|text| text.split_once('\n'));
    Ok(line.map(|(id, _)| id.to_owned()))
}

fn note_id(lock: &Place<'_>, data_dir_id: &str) -> Result<(), BackupError> {
    let file = match lock.open_if_there()? {
        Some(file) => file,
        None => lock.create()?,
    };
    let written = write_all(&*file, format!("{data_dir_id}\n").as_bytes(), 0);
    let written = written.and_then(|()| file.sync_data());
    written.map_err(failed("write", &lock.path))
}

fn manifest_in(place: &Place<'_>) -> Result<Option<Manifest>, BackupError> {
    let json = place.read()?;
    json.map(|json| Manifest::from_json(&json, &place.path))
        .transpose()
}

/// The name of a stored file, which tells its content.
struct StoredName<'a> {
    name: &'a str,
    identity: u32,
    size_bytes: u64,
    crc: u32,
}

pub(crate) fn stored_name(name: &str, identity: u32, size_bytes: u64, crc: u32) -> String {
    format!("{name}-{}-{size_bytes}-{}", hex(identity), hex(crc))
}

impl<'a> StoredName<'a> {
    fn parse(stored_as: &'a str) -> Option<Self> {
        let mut parts = stored_as.rsplitn(4, '-');
        let crc = u32::from_str_radix(parts.next()?, 16).ok()?;
        let size_bytes = parts.next()?.parse().ok()?;
        let identity = u32::from_str_radix(parts.next()?, 16).ok()?;
        let name = parts.next()?;
        let is_ours = stored_name(name, identity, size_bytes, crc) == stored_as;
        let kinds = ["segment-", "snapshot-", "pages-"];
        let is_of_log = kinds.iter().any(|kind| name.starts_with(kind));
        (is_ours && is_of_log).then_some(Self {
            name,
            identity,
            size_bytes,
            crc,
        })
    }
}

/// A directory that is not empty and was not made by a backup is left alone.
fn refuse_other(top: &dyn Storage, path: &Path) -> Result<(), BackupError> {
    let names = names_in(top, path)?;
    let entry = names.iter().find(|name| *name != LOST_AND_FOUND);
    match entry {
        Some(entry) if !names.iter().any(|name| name == LOCK) => Err(BackupError::NotABackup {
            path: path.to_owned(),
            entry: entry.clone(),
        }),
        _ => Ok(()),
    }
}

fn locked(
    file: File,
    lock: impl FnOnce(&File) -> Result<(), TryLockError>,
    path: &Path,
) -> Result<File, BackupError> {
    match lock(&file) {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(BackupError::InUse {
            path: path.to_owned(),
        }),
        Err(TryLockError::Error(error)) => Err(failed("lock", path)(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stored_name_tells_the_content_and_others_are_not_ours() {
        let name = stored_name("segment-00000000000000000007", 0xab, 4096, 0xdead_beef);
        assert_eq!(name, "segment-00000000000000000007-000000ab-4096-deadbeef");
        let parsed = StoredName::parse(&name).expect("it is ours");
        assert_eq!(parsed.name, "segment-00000000000000000007");
        assert_eq!((parsed.identity, parsed.size_bytes), (0xab, 4096));
        assert_eq!(parsed.crc, 0xdead_beef);
        for other in [
            "segment-00000000000000000007",
            "notes-000000ab-4096-deadbeef",
            "segment-1-ab-4096-deadbeef",
            "prepare-segment-00000000000000000007",
        ] {
            assert!(StoredName::parse(other).is_none(), "{other}");
        }
    }
}
