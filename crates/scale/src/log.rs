//! What the agent tells, as lines of the log.

use crate::act::Happened;
use crate::agent::Note;

/// Writes a line.
pub fn log(group: &str, note: &Note) {
    match note {
        Note::Decided(_) | Note::Counted | Note::NoSilentPage => tracing::info!(group, "{note}"),
        Note::Unreadable { source, .. } => tracing::warn!(group, source, "{note}"),
        Note::Readable(source) => tracing::info!(group, source, "{note}"),
        Note::Uncounted(_) | Note::SilentPage(_) => tracing::warn!(group, "{note}"),
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
            | Happened::Forgotten { .. }
            | Happened::Ended {
                was_stopped: false, ..
            }
            | Happened::Delayed { .. }
            | Happened::Full
            | Happened::Failed(_) => tracing::warn!(group, "{happened}"),
            // It is not told: see `Told`.
            Happened::Waiting => tracing::debug!(group, "{happened}"),
        },
    }
}
