//! When the last whole backup of a data directory was taken. A restart must not forget it.

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, fchown};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::Deserialize;

use super::{DataDir, DataDirError, failed, write_durably};

const LAST_BACKUP: &str = "LAST_BACKUP";
const LAST_BACKUP_IN_PREPARATION: &str = "LAST_BACKUP.new";

#[derive(Deserialize)]
struct LastBackup {
    taken_at_ms: u64,
}

impl DataDir {
    /// Notes that a backup with the state of this time is whole.
    pub fn note_backup(path: &Path, taken_at: SystemTime) -> Result<(), DataDirError> {
        let since_epoch = taken_at.duration_since(UNIX_EPOCH).unwrap_or_default();
        let text = format!(
            "# Kew wrote this file: the time of the last whole backup.\ntaken_at_ms = {}\n",
            since_epoch.as_millis()
        );
        let temporary = path.join(LAST_BACKUP_IN_PREPARATION);
        let path = path.join(LAST_BACKUP);
        write_durably(&temporary, text.as_bytes()).map_err(failed("write", &temporary))?;
        give_to_owner_of_directory(&temporary);
        fs::rename(&temporary, &path).map_err(failed("create", &path))
    }

    /// The time of the state in the last whole backup. `None` if there was none, or if the note is unreadable:
    /// it is only for an alert, and a missing value raises one too.
    pub fn last_backup(path: &Path) -> io::Result<Option<SystemTime>> {
        let text = match fs::read_to_string(path.join(LAST_BACKUP)) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let read: Option<LastBackup> = toml::from_str(&text).ok();
        Ok(read.and_then(|it| UNIX_EPOCH.checked_add(Duration::from_millis(it.taken_at_ms))))
    }
}

/// A server under another user must be able to read a note that root has written. Only root can change an owner: if
/// it fails, that is no error.
fn give_to_owner_of_directory(file: &Path) {
    let Some(directory) = file.parent().and_then(|it| fs::metadata(it).ok()) else {
        return;
    };
    let no_follow = i32::try_from(rustix::fs::OFlags::NOFOLLOW.bits()).unwrap_or_default();
    let opened = fs::OpenOptions::new()
        .write(true)
        .custom_flags(no_follow)
        .open(file);
    if let Ok(file) = opened
        // A name that leads elsewhere too is not ours.
        && file.metadata().is_ok_and(|it| it.nlink() == 1 && it.uid() != directory.uid())
    {
        let _ = fchown(&file, Some(directory.uid()), Some(directory.gid()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_belongs_to_the_owner_of_the_directory() {
        let place = tempfile::tempdir().unwrap();
        // Only root can do that. For others, the owners are the same already.
        let _ = std::os::unix::fs::chown(place.path(), Some(1234), Some(1234));
        let owner = fs::metadata(place.path()).unwrap().uid();
        for at_s in [1, 2] {
            let taken_at = UNIX_EPOCH + Duration::from_secs(at_s);
            DataDir::note_backup(place.path(), taken_at).unwrap();
            let note = fs::metadata(place.path().join(LAST_BACKUP)).unwrap();
            assert_eq!(note.uid(), owner);
            assert_eq!(DataDir::last_backup(place.path()).unwrap(), Some(taken_at));
        }
    }
}
