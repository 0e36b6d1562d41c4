//! A backup that was verified, and how its files are put into a new log's directory.

use std::path::Path;
use std::sync::Arc;

use kew_log::{Damage, FileStorage, LogPosition, Storage, check_file};

use crate::copy::{checksum, copy, is_zero, reused};
use crate::destination::Destination;
use crate::directory::{Place, names_in, size_of};
use crate::error::failed;
use crate::manifest::{Manifest, StoredFile, hex};
use crate::{BackupError, Directory, Phase, Progress, View};

/// A backup of which every byte was found as it was written. No other process changes it meanwhile.
#[derive(Debug)]
pub struct Backup {
    _destination: Destination,
    manifest: Manifest,
    view: View,
}

/// The size of the files in a backup, as its manifest states it. Checks none of them.
pub fn stated_size_bytes(path: &Path) -> Result<u64, BackupError> {
    let destination = Destination::open_to_read(path)?;
    manifest_of(&destination).map(|manifest| manifest.size_bytes())
}

fn manifest_of(destination: &Destination) -> Result<Manifest, BackupError> {
    destination
        .manifest()?
        .ok_or_else(|| BackupError::Unfinished {
            path: destination.path().to_owned(),
        })
}

impl Backup {
    /// Opens a backup and reads all of it. Names all damage.
    pub fn open(path: &Path, progress: &Arc<dyn Progress>) -> Result<Self, BackupError> {
        Self::verified(Destination::open_to_read(path)?, progress)
    }

    /// The same on a disk that this process alone uses.
    pub fn open_on(
        directory: Directory,
        progress: &Arc<dyn Progress>,
    ) -> Result<Self, BackupError> {
        Self::verified(Destination::to_read_on(directory), progress)
    }

    fn verified(
        destination: Destination,
        progress: &Arc<dyn Progress>,
    ) -> Result<Self, BackupError> {
        let manifest = manifest_of(&destination)?;
        let view = destination.view(&manifest.files, progress);
        let mut damage = Vec::new();
        for file in &manifest.files {
            damage.extend(check(&destination, &view, file, progress)?);
        }
        if !damage.is_empty() {
            return Err(BackupError::Damaged { damage });
        }
        Ok(Self {
            _destination: destination,
            manifest,
            view,
        })
    }

    /// What it has.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Its files as the log's directory that they came from, to read.
    pub fn view(&self) -> &View {
        &self.view
    }

    /// Copies its files into a log's directory, and reads them back. Files that an earlier run has copied there are
    /// used, if they are whole, and nothing else that is there stays. Returns how many bytes were there already.
    ///
    /// A file gets its name once it is durable and was read back. A sync that has failed cannot be made good by another
    /// one, so a file without its name is copied again. The names are durable when the directory is synced.
    pub fn copy_to(
        &self,
        directory: &Path,
        progress: &Arc<dyn Progress>,
    ) -> Result<u64, BackupError> {
        let storage = FileStorage::open(directory).map_err(failed("open", directory))?;
        self.copy_on(
            &(Arc::new(storage) as Arc<dyn Storage>),
            directory,
            progress,
        )
    }

    /// The same into any storage. `directory` names it in errors.
    pub fn copy_on(
        &self,
        storage: &Arc<dyn Storage>,
        directory: &Path,
        progress: &Arc<dyn Progress>,
    ) -> Result<u64, BackupError> {
        let there = names_in(&**storage, directory)?;
        for name in &there {
            if !self.manifest.files.iter().any(|file| file.name == *name) {
                Place::new(storage, name, directory).remove()?;
            }
        }
        let mut reused_bytes = 0;
        for file in &self.manifest.files {
            let to = Place::new(storage, &file.name, directory);
            if there.contains(&file.name) {
                if is_copied(&to, file, &**progress)? {
                    reused_bytes += file.size_bytes;
                    continue;
                }
                // It needs no room beside its copy.
                to.remove()?;
            }
            let temporary = Destination::temporary(&file.name);
            let temporary = Place::new(storage, &temporary, directory);
            self.copy_one(file, &temporary, &**progress)?;
            temporary.rename_to(&to)?;
        }
        Ok(reused_bytes)
    }

    fn copy_one(
        &self,
        file: &StoredFile,
        to: &Place<'_>,
        progress: &dyn Progress,
    ) -> Result<(), BackupError> {
        let from = self.view.open(&file.name);
        let from = from.map_err(failed("open", Path::new(&file.stored_as)))?;
        let (size_bytes, padded_bytes) = (file.size_bytes, file.restored_size_bytes);
        copy(
            &*from,
            &file.stored_as,
            to,
            size_bytes,
            padded_bytes,
            progress,
        )?;
        if hex(checksum(to, size_bytes, Phase::Check, progress)?) != file.crc32c {
            let path = to.path.clone();
            return Err(BackupError::CopyDamaged { path });
        }
        Ok(())
    }
}

/// Whether an earlier run has copied a file, and nothing has changed it since. The log may have begun anew there. What
/// cannot be read is copied again.
fn is_copied(
    to: &Place<'_>,
    file: &StoredFile,
    progress: &dyn Progress,
) -> Result<bool, BackupError> {
    match is_whole(to, file, progress) {
        Ok(true) => reused(progress, file.size_bytes).map(|()| true),
        Err(BackupError::Io { .. }) => Ok(false),
        other => other,
    }
}

fn is_whole(
    to: &Place<'_>,
    file: &StoredFile,
    progress: &dyn Progress,
) -> Result<bool, BackupError> {
    let there = size_of(&*to.open()?).map_err(failed("read", &to.path))?;
    if there != file.restored_size_bytes {
        return Ok(false);
    }
    // If it is not whole, its bytes are still to be copied.
    let crc = checksum(to, file.size_bytes, Phase::Verify, progress)?;
    Ok(hex(crc) == file.crc32c && is_zero(to, file.size_bytes..there)?)
}

/// The damage in one stored file.
fn check(
    destination: &Destination,
    view: &View,
    file: &StoredFile,
    progress: &Arc<dyn Progress>,
) -> Result<Vec<Damage>, BackupError> {
    let place = destination.file(&file.stored_as);
    let damaged = |offset, what: String| Damage {
        file: place.path.display().to_string(),
        offset,
        what,
    };
    let Some(there) = place.open_if_there()? else {
        return Ok(vec![damaged(0, "the file is missing".into())]);
    };
    let there = size_of(&*there).map_err(failed("read", &place.path))?;
    if there < file.size_bytes {
        let what = format!("the file ends here, and had {} bytes", file.size_bytes);
        return Ok(vec![damaged(there, what)]);
    }
    let crc = hex(checksum(
        &place,
        file.size_bytes,
        Phase::Check,
        &**progress,
    )?);
    if crc == file.crc32c {
        return Ok(Vec::new());
    }
    // Only records know where the damage is.
    let end = LogPosition::new(file.end);
    let found = check_file(view, &file.name, end).map_err(BackupError::Source)?;
    let mut found: Vec<_> = found
        .into_iter()
        .map(|it| damaged(it.offset, it.what))
        .collect();
    if found.is_empty() {
        let what = format!(
            "somewhere from here on: the checksum of the file is {crc} and must be {}",
            file.crc32c
        );
        found.push(damaged(0, what));
    }
    Ok(found)
}
