//! Partition runners: take commands, decide, append, answer once durable.
//!
//! [`Partition`], [`Clock`] and [`Admission`] are step machines without threads, sockets or clocks.
//! [`Broker`] drives them: one thread decides and commits, two more do slow work on the disk. Front
//! ends use only [`Broker::submit`], and [`Broker::submit_among`] for many commands under way.

// A new command, answer or rejection fails to compile until every decision about it is written.
#![cfg_attr(
    not(test),
    deny(
        clippy::wildcard_enum_match_arm,
        clippy::match_wildcard_for_single_variants
    )
)]

mod admission;
mod answers;
mod backup;
mod bodies;
mod broker;
mod changes;
mod clock;
mod door;
mod follower;
mod metrics;
mod migrate;
mod overview;
mod ownership;
mod partition;
mod repair;
mod restore;
mod rotation;
mod runner;
mod waiters;
mod watch;

pub use admission::{Admission, AdmissionLimits, Admitted, Busy};
pub use answers::{Answers, Asker};
pub use backup::{BackupPin, BackupRefused};
pub use bodies::AnswerBodies;
pub use broker::{Answer, Broker, BrokerOptions, Failure, StartError};
pub use changes::ChangeWatch;
pub use clock::{Clock, ClockReading, Due, Moment, Spent};
pub use door::Door;
pub use migrate::{MigrateError, Migrated, OldPartition};
pub use ownership::Ownership;
pub use partition::{
    Answered, DamagedBody, OpenPartitionError, Partition, PartitionOptions, QuarantinedRun,
    Rejection, Reply, ResidentLimit, ScrubJob, ScrubOutcome, ScrubReport, TurnEnd,
};
// The losses of a repair have times.
pub use kew_engine::Timestamp;
// Front ends know in which epoch they have read something.
pub use kew_log::Epoch;
pub use repair::{Losses, LostMessage, LostRules, LostSessionState, Repair, RepairError};
pub use restore::{Restore, RestoreError};
pub use rotation::{Cost, Excess, Rotation, Share, Source, Target, Waiting};
pub use runner::Standing;
pub use watch::{Tell, Wake, Watch, Watchers};
