//! What every kind of log promises, as checks, and two logs that keep it: one in memory, and a model of one that
//! several machines agree on. For tests: nothing here is in the product.
//!
//! A [`Promise`] is checked on any log only through the seam of `kew-log`. A [`Subject`] is a log, and what a test does
//! to it from outside. Each promise is also checked on a [`MemorySource`] or a [`Model`] that makes a [`Mistake`], and
//! must not hold there. So a check that notices nothing is noticed.

mod broken;
mod followed;
mod memory;
mod model;
mod owner;
mod promises;
mod random;
mod subject;
mod world;

pub use broken::Broken;
pub use memory::{MemoryOptions, MemorySource, Mistake, Others};
pub use model::{LinkCounts, LinkOptions, MemberClock, Model, ModelOptions, ModelSource};
pub use promises::{Check, PROMISES, Promise};
pub use subject::{
    Difference, Lost, MemorySubject, ModelSubject, SegmentSubject, Subject, altered,
};
pub use world::{Happened, run_world};
