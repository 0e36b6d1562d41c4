//! Why a broker does not start, with full file names and what to do next.

use std::path::Path;

use anyhow::{Error, anyhow};
use kew_broker::{OpenPartitionError, StartError};
use kew_log::{DataDir, OpenError};

use crate::tls_command::quoted;

/// The error of a start with a data directory.
pub(crate) fn explain(error: StartError, data_dir: &Path) -> Error {
    let what = format!(
        "cannot start with the data directory {}",
        data_dir.display()
    );
    let StartError::Open(OpenPartitionError::Log(error)) = error else {
        return Error::new(error).context(what);
    };
    explain_log(error, data_dir).context(what)
}

/// The error of a log, with the full name of the file.
pub(crate) fn explain_log(error: OpenError, data_dir: &Path) -> Error {
    let log = DataDir::log_path(data_dir);
    match error {
        OpenError::Corrupt {
            file,
            offset,
            what: damage,
        } => anyhow!(
            "{} is damaged at byte {offset}: {damage}; restore a backup, or see what a repair would lose \
             with: kew log repair --data-dir {}",
            log.join(file).display(),
            quoted(&data_dir.display().to_string())
        ),
        // These name a file without its directory, or no file.
        other => Error::new(other).context(format!("cannot open the log in {}", log.display())),
    }
}
