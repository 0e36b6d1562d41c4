//! Deterministic simulation of the whole broker under faults.
//!
//! Clients, the shipped step machines (partition, log, clock) and a faulty disk run on one thread
//! under a virtual clock; one seed decides everything. The workload sends commands, faults strike,
//! and the checker follows the history that clients see, including operations whose outcome they
//! never learn. First comes safety under faults. Then the faults stop, everything is drained, and
//! every acknowledged message must be there.
//!
//! It has no expectations about the broker's internals, only about what clients may see.

mod backups;
pub mod bus;
mod checker;
pub mod disk;
mod faults;
#[cfg(feature = "planted-bugs")]
pub mod planted;
mod random;
mod rare;
mod seam;
mod swarm;
mod trace;
mod workload;
mod world;

pub use checker::Violation;
pub use rare::{Rare, RareStates};
pub use world::{
    MUST_OCCUR_WITH_MEMBERS, Moment, Report, Watch, replay, replay_on_model, run, run_on_model,
};
