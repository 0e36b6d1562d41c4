//! A billing system: packages of transactions are split, charged and collected by programs that scale.
//!
//! An example of an application on `kew-worker` and `kew-claim-check`. `README.md` says how to start it. Three kinds of
//! programs work, and each of them can be killed at any moment:
//!
//! - [`initiator`]s split packages into work items;
//! - [`worker`]s charge the transactions of an item;
//! - [`controller`]s collect the results of a package, and keep them as files.
//!
//! [`transaction`] and [`message`] are the model. [`place`] has the queues, [`archive`] the files, [`listen`] what all
//! listeners have in common. [`submit`] is the customer, [`check`] compares files with what was submitted to the last
//! transaction, and [`page`] shows how far the work is. [`measure`] measures what saves requests. [`start`] starts programs,
//! and [`supervise`] keeps them running.

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]
#![cfg_attr(
    test,
    expect(clippy::unwrap_used, reason = "a test fails by panicking")
)]

pub mod archive;
pub mod check;
pub mod cli;
pub mod controller;
pub mod initiator;
pub mod journal;
pub mod listen;
pub mod measure;
pub mod message;
pub mod page;
pub mod place;
pub mod program;
mod run;
pub mod start;
pub mod submit;
pub mod supervise;
pub mod transaction;
pub mod worker;
