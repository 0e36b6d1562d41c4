//! Why a backup or a restore failed, with what to do next.

use std::path::Path;

use anyhow::{Error, anyhow};
use kew_backup::BackupError;
use kew_log::DataDir;

use crate::cli::print_line;
use crate::tls_command::quoted;

/// The error of a backup.
pub(super) fn explain(error: BackupError, data_dir: &Path, to: &Path) -> Error {
    // The manifest is the new one by now.
    if let BackupError::NotSynced { .. } = &error {
        return Error::new(error).context(format!(
            "run kew backup again: the backup in {} may be the one before after a loss of power",
            to.display()
        ));
    }
    let log = DataDir::log_path(data_dir);
    let data_dir = quoted(&data_dir.display().to_string());
    let error = match error {
        BackupError::SourceDamaged { file, offset, what }
            if file.starts_with("pages-") => anyhow!(
            "{} is damaged at byte {offset}: {what}; if the server has the page in memory, it writes it elsewhere after the \
             next scrub has found that, once a day unless --scrub-rate is 0: then run kew backup again. If kew log damage \
             counts unreadable pages, it has not. If it still does a few minutes later, no later backup succeeds: stop the \
             server, copy the data directory, and see what a repair would lose with: kew log repair --data-dir {data_dir}",
            log.join(file).display()
        ),
        BackupError::SourceDamaged { file, offset, what } if file.starts_with("snapshot-") => anyhow!(
            "{} is damaged at byte {offset}: {what}; the server writes another snapshot when it has written \
             some more data, or when it stops: then run kew backup again",
            log.join(file).display()
        ),
        BackupError::SourceDamaged { file, offset, what } => anyhow!(
            "{} is damaged at byte {offset}: {what}; stop the server, and see what a repair would lose with: \
             kew log repair --data-dir {data_dir}",
            log.join(file).display()
        ),
        BackupError::SourceReplaced { file } => anyhow!(
            "{} was used again by the server while it was copied: run kew backup again to continue",
            log.join(file).display()
        ),
        error if error.is_no_space() => Error::new(error).context(
            "the disk of the backup is full: free space there, then run kew backup again to continue",
        ),
        other => other.into(),
    };
    error.context(format!(
        "no new backup in {}, and an earlier one there is unchanged",
        to.display()
    ))
}

/// The error of a backup that cannot be used. Lists all damage on standard output.
pub(crate) fn explain_damage(error: BackupError, from: &Path) -> Error {
    let context = format!("cannot use the backup {}", from.display());
    if let BackupError::Damaged { damage } = &error {
        for place in damage {
            print_line(&format!(
                "DAMAGED {} at byte {}: {}",
                place.file, place.offset, place.what
            ));
        }
        let text = anyhow!(
            "{error}; nothing was restored: use another copy of the backup, or take a new one with kew backup"
        );
        return text.context(context);
    }
    Error::new(error).context(context)
}
