//! What the agent tells, as lines of the log.

use crate::act::Happened;
use crate::agent::Note;

/// Writes a line.
pub fn log(group: &str, note: &Note) {
    match note {
        Note::Decided(decision) => tracing::info!(group, "{decision}"),
        Note::Unreadable { source, error } => {
            tracing::warn!(group, source, "{source} cannot be read: {error}");
        }
        Note::Readable(source) => tracing::info!(group, source, "{source} can be read again"),
        Note::Uncounted(error) => {
            tracing::warn!(group, "the instances cannot be counted: {error}");
        }
        Note::Counted => tracing::info!(group, "the instances can be counted again"),
        Note::Happened(happened) => match happened {
            Happened::Found(_)
            | Happened::Started(_)
            | Happened::Stopping(_)
            | Happened::Set(_)
            | Happened::Told(_)
            | Happened::Ended {
                was_stopped: true, ..
            } => tracing::info!(group, "{happened}"),
            Happened::Killed(_)
            | Happened::Ended {
                was_stopped: false, ..
            }
            | Happened::Delayed(_)
            | Happened::Full
            | Happened::Failed(_) => tracing::warn!(group, "{happened}"),
        },
    }
}
