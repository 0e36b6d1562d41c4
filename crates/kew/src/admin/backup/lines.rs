//! The lines between the command that copies and the server that keeps the files: JSON, one object a line.

use std::path::PathBuf;

use kew_log::BackupPlan;
use serde::{Deserialize, Serialize};

use crate::admin::Failure;

/// The path of the administration socket that begins a backup.
pub(crate) const PATH: &str = "/v1/backup";

/// The protocol that the connection changes to.
pub(crate) const PROTOCOL: &str = "kew-backup";

/// The longest line of the command, in bytes.
pub(super) const LINE_SIZE_BYTES_MAX: u64 = 1024;

/// A line of the server.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ServerLine {
    /// The first line.
    Begun(Begun),
    /// The answer to progress, and to the end.
    Noted,
    /// The files are not kept any more. The last line.
    Failed(Failure),
}

/// What to copy, and from where.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Begun {
    pub(crate) plan: BackupPlan,
    /// An absolute path.
    pub(crate) data_dir: PathBuf,
    /// The time of the plan, in milliseconds since 1970-01-01 UTC.
    pub(crate) taken_at_ms: u64,
}

/// A line of the command.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum CommandLine {
    /// How many bytes are copied and checked so far.
    Progress { done_bytes: u64 },
    /// The backup is whole. The last line.
    Whole { size_bytes: u64, copied_bytes: u64 },
}
