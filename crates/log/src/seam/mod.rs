//! What every kind of log shares with its owner.
//!
//! A partition has an [`OwnedLog`], and does not know of which kind it is.

mod ends;
mod files;
mod followed;
mod local;
mod owned;
mod tidy;
mod time;

pub use ends::LogEnd;
pub use files::LogFiles;
pub use followed::{
    AllPages, Batch, Batches, FollowError, FollowedLog, LogSource, PageChoice, Piece, Progress,
    Seen,
};
pub use local::{BeginSnapshotError, LocalLog, SnapshotStatus};
pub use owned::{
    AppendError, FullLimits, LogHealth, LogLimits, LogState, Need, OwnedLog, Reservation,
    ReserveError, Urgency,
};
pub use tidy::{LiveBytes, Tidied, VictimEnd};
pub use time::BootTime;
