//! What every kind of log shares with its owner. So far that is the time by which both wait.

mod time;

pub use time::BootTime;
