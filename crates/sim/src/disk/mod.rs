//! Power cuts, failing calls and bit rot, at the level of a whole partition.
//!
//! The simulation draws its faults at random. Here they are enumerated: every short sequence of
//! operations with a power cut at every storage call, every call of a workload with every error of
//! the operating system, every kind of damage in every kind of file. The same checker decides by
//! what clients saw: nothing here knows how the log keeps its promises. What is made of a whole log, by
//! a migration or a backup, is compared with what it was made of.
//!
//! Every choice follows from a seed. A [`Failure`] names the case, and the environment variable
//! that replays it.

mod answers;
mod backup;
mod bus;
mod clients;
mod contents;
mod failure;
mod faults;
mod host;
mod migration;
mod power;
mod rot;
mod sessions;
mod setting;
mod step;
mod tape;
mod topics;
mod workload;

pub use backup::{
    BACKED_UP, BackupCounts, BackupRotCounts, back_up, backup_case, backup_rot_case, rot_backup,
};
pub use failure::Failure;
pub use faults::{
    FaultCounts, fail_every_call, fail_every_call_of_moves, fault_case, move_fault_case,
};
pub use migration::{MigrationCounts, OldDirectory};
pub use power::{Cut, PowerCounts, cut_power, sequences, sequences_of_bus, sequences_of_moves};
pub use rot::{
    ActiveCounts, AsideCounts, RotCounts, TailDamage, active_rot_case, aside_case, damage_tail,
    moved_rot_case, rot, rot_active, rot_case, rot_moved, set_aside,
};
pub use setting::Setting;
pub use step::Step;
pub use workload::WorkloadKind;
