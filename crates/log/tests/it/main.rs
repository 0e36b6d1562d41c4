//! The log through its public door, over disks that fail.
#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on has failed, and helpers are not marked as tests"
)]

mod crash;
mod damage;
mod faults;
mod golden;
mod life;
mod looking;
mod node;
mod random;
mod recycle;
mod search;
mod space;
mod storage;
