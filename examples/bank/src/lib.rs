//! A bank that accepts transactions, queues them, and books each one once.
//!
//! An example of an application on `kew-worker`. `README.md` says how to start it. Three programs share this crate:
//! `bank-web` confirms transactions, `bank-worker` books them, and `bank` starts everything, replays peaks and checks.
//!
//! - [`contract`] is the edge: calls and answers in JSON. [`partner`] is the same in another data model.
//! - [`transaction`], [`names`] and [`money`] are the core's model, and [`message`] its two shapes in the queue.
//! - [`request`] is what a transaction id stands for.
//! - [`ledger`] has the stores and the guard; [`queue`] is the queue of either service.

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]
#![cfg_attr(
    test,
    expect(clippy::unwrap_used, reason = "a test fails by panicking")
)]

pub mod audit;
pub mod caller;
pub mod chance;
pub mod client;
pub mod contract;
pub mod fitness;
pub mod ledger;
pub mod message;
pub mod money;
pub mod names;
pub mod partner;
pub mod program;
pub mod queue;
pub mod replay;
pub mod request;
pub mod returns;
pub mod settings;
pub mod start;
pub mod transaction;
pub mod web;
pub mod worker;
