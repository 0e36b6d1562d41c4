//! The directory of a backup:
//!
//! ```text
//! kew-backup.lock held by the process that writes or reads the backup; has the id of the data directory
//! BACKUP          the manifest; BACKUP.new while it is written
//! partition-0/    the files, each under a name that tells its content
//! ```

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::failed;
use crate::manifest::{Manifest, StoredFile, hex};
use crate::{BackupError, Progress, View};

pub(crate) const MANIFEST: &str = "BACKUP";
const MANIFEST_IN_PREPARATION: &str = "BACKUP.new";
const LOCK: &str = "kew-backup.lock";
const PARTITION: &str = "partition-0";
/// Begins the name of a file that is not complete or not checked.
const TEMPORARY: &str = "prepare-";
const LOST_AND_FOUND: &str = "lost+found";

/// The directory of a backup, locked.
#[derive(Debug)]
pub(crate) struct Destination {
    path: PathBuf,
    lock: Option<File>,
}

impl Destination {
    /// Opens the backup of a data directory to write to it. Creates the directory if it is missing. Removes
    /// unfinished files.
    pub(crate) fn open(path: &Path, data_dir_id: &str) -> Result<Self, BackupError> {
        kew_log::create_directory(path).map_err(failed("create", path))?;
        refuse_other(path)?;
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
        let destination = Self {
            path: path.to_owned(),
            lock: Some(lock),
        };
        destination.belong_to(data_dir_id)?;
        let partition = path.join(PARTITION);
        kew_log::create_directory(&partition).map_err(failed("create", &partition))?;
        for name in destination.names()? {
            if name.starts_with(TEMPORARY) {
                destination.remove(&name)?;
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
            path: path.to_owned(),
            lock,
        })
    }

    /// Refuses the directory if it belongs to another data directory, also before its first backup is whole.
    fn belong_to(&self, data_dir_id: &str) -> Result<(), BackupError> {
        let of_manifest = self.manifest()?.map(|manifest| manifest.data_dir_id);
        let found = match of_manifest {
            Some(id) => Some(id),
            None => self.noted_id()?,
        };
        match found {
            Some(found) if found != data_dir_id => Err(BackupError::OtherSource {
                path: self.path.clone(),
                found,
                given: data_dir_id.to_owned(),
            }),
            Some(_) => Ok(()),
            None => self.note_id(data_dir_id),
        }
    }

    /// The id in the lock's file. `None` if it has none, or was written in part.
    fn noted_id(&self) -> Result<Option<String>, BackupError> {
        let path = self.path.join(LOCK);
        let text = fs::read_to_string(&path).map_err(failed("read", &path))?;
        Ok(text.strip_suffix('\n').map(str::to_owned))
    }

    fn note_id(&self, data_dir_id: &str) -> Result<(), BackupError> {
        let Some(lock) = &self.lock else {
            return Ok(());
        };
        let path = self.path.join(LOCK);
        let text = format!("{data_dir_id}\n");
        let written = lock.set_len(0);
        let written = written.and_then(|()| lock.write_all_at(text.as_bytes(), 0));
        let written = written.and_then(|()| lock.sync_all());
        written.map_err(failed("write", &path))?;
        self.sync(&self.path)
    }

    /// The manifest, if the backup is whole.
    pub(crate) fn manifest(&self) -> Result<Option<Manifest>, BackupError> {
        let path = self.path.join(MANIFEST);
        match fs::read(&path) {
            Ok(json) => Manifest::from_json(&json, &path).map(Some),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed("read", &path)(error)),
        }
    }

    /// Replaces the manifest in one step: from then on this is the backup.
    pub(crate) fn replace_manifest(&self, manifest: &Manifest) -> Result<(), BackupError> {
        let temporary = self.path.join(MANIFEST_IN_PREPARATION);
        let path = self.path.join(MANIFEST);
        write_durably(&temporary, &manifest.to_json()).map_err(failed("write", &temporary))?;
        fs::rename(&temporary, &path).map_err(failed("create", &path))?;
        self.sync(&self.path)
            .map_err(|error| BackupError::NotSynced {
                source: Box::new(error),
            })
    }

    /// Removes the files that the backup does not have.
    pub(crate) fn remove_unneeded(&self, manifest: &Manifest) -> Result<(), BackupError> {
        let kept = manifest.files.iter().map(|file| file.stored_as.as_str());
        let kept: BTreeSet<&str> = kept.collect();
        for name in self.names()? {
            if StoredName::parse(&name).is_some() && !kept.contains(name.as_str()) {
                self.remove(&name)?;
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
            let path = self.path_of(&stored_as);
            let there = fs::metadata(&path).map_err(failed("read", &path))?;
            if there.len() == size_bytes {
                let crc = found.crc;
                return Ok(Some((stored_as, crc)));
            }
        }
        Ok(None)
    }

    /// Where a file is written until it is complete and checked.
    pub(crate) fn temporary(&self, name: &str) -> PathBuf {
        self.path_of(&format!("{TEMPORARY}{name}"))
    }

    /// Gives a file that is complete and checked its final name.
    pub(crate) fn keep(&self, temporary: &Path, file: &StoredFile) -> Result<(), BackupError> {
        let path = self.path_of(&file.stored_as);
        fs::rename(temporary, &path).map_err(failed("create", &path))?;
        self.sync(&self.path.join(PARTITION))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn path_of(&self, stored_as: &str) -> PathBuf {
        self.path.join(PARTITION).join(stored_as)
    }

    /// The files of a manifest as the log's directory.
    pub(crate) fn view(&self, files: &[StoredFile], progress: &Arc<dyn Progress>) -> View {
        let mut view = View::new(progress);
        for file in files {
            view.add(file, self.path_of(&file.stored_as));
        }
        view
    }

    fn names(&self) -> Result<Vec<String>, BackupError> {
        names_in(&self.path.join(PARTITION))
    }

    fn remove(&self, name: &str) -> Result<(), BackupError> {
        let path = self.path_of(name);
        fs::remove_file(&path).map_err(failed("remove", &path))
    }

    fn sync(&self, directory: &Path) -> Result<(), BackupError> {
        File::open(directory)
            .and_then(|directory| directory.sync_all())
            .map_err(failed("sync", directory))
    }
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
fn refuse_other(path: &Path) -> Result<(), BackupError> {
    let names = names_in(path)?;
    let entry = names.iter().find(|name| *name != LOST_AND_FOUND);
    match entry {
        Some(entry) if !names.iter().any(|name| name == LOCK) => Err(BackupError::NotABackup {
            path: path.to_owned(),
            entry: entry.clone(),
        }),
        _ => Ok(()),
    }
}

fn names_in(directory: &Path) -> Result<Vec<String>, BackupError> {
    let mut names = Vec::new();
    for entry in fs::read_dir(directory).map_err(failed("list", directory))? {
        let entry = entry.map_err(failed("list", directory))?;
        names.push(entry.file_name().to_string_lossy().into_owned());
    }
    names.sort_unstable();
    Ok(names)
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

fn write_durably(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
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
