//! When the last whole backup of a data directory was taken. A restart must not forget it.

use std::fs;
use std::io;
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
