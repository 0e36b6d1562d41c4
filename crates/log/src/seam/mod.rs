//! What every kind of log shares with its owner.

mod ends;
mod local;
mod owned;
mod time;

pub use ends::LogEnd;
pub use local::{BeginSnapshotError, SnapshotStatus};
pub use owned::{AppendError, FullLimits, LogLimits, Need, Reservation, ReserveError, Urgency};
pub use time::BootTime;
