//! What every kind of log promises, as checks, and a log in memory that keeps it. For tests: nothing here is in the product.
//!
//! A [`Promise`] is checked on any log through the seam of `kew-log` alone. A [`Subject`] is a log, and what a test does to
//! it from outside. Each promise is also checked on a [`MemorySource`] that makes a [`Mistake`], and must not hold there. So
//! a check that notices nothing is noticed.

mod broken;
mod followed;
mod memory;
mod owner;
mod promises;
mod subject;

pub use broken::Broken;
pub use memory::{MemoryOptions, MemorySource, Mistake, Others};
pub use promises::{Check, PROMISES, Promise, Stated};
pub use subject::{MemorySubject, SegmentSubject, Subject};
