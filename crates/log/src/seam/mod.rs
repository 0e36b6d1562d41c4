//! What every kind of log shares with its owner. So far that is how a log ends, and the time by which both wait.

mod ends;
mod time;

pub use ends::LogEnd;
pub use time::BootTime;
