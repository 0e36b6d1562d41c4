//! A guard that does the work of a message once, and an outbox, both in the application's own database.
//!
//! A queue delivers a message at least once. [`Guard::run`] makes its effect happen once: the outcome is recorded under
//! a business id, in the same transaction of the same database as the effect. A repeated request gets the recorded
//! outcome, and its handler does not run.
//!
//! - [`Guard`] looks up, runs a closure or a [`Handler`] with the open transaction, records and commits.
//! - A [`Request`] has the id and the content: another request with the same id is refused.
//! - `SqliteStore` (feature `sqlite`, the default) and `PostgresStore` (feature `postgres`) are the databases; the
//!   trait [`Store`] is for others.
//! - [`OutboxMessage`]s are written in the transaction, and a [`Pump`] sends them after the commit, at least once and
//!   in order. `BusPublisher` (feature `client`) sends to Service Bus.
//! - [`ErrorKind`] says of each error what can be done about it.
//!
//! The crate knows no queue and no listener: the handler of a listener calls the guard. It cannot cover effects outside
//! the database; `docs/idempotency.md` says what to do about those.

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

mod error;
mod guard;
mod key;
mod outbox;
mod outcome;
#[cfg(feature = "postgres")]
mod postgres;
mod random;
mod request;
#[cfg(feature = "sqlite")]
mod sqlite;
mod store;

pub use error::{ErrorKind, GuardError, StoreError};
pub use guard::{Answer, Guard, GuardOptions, Handler, HandlerFuture, Retention};
pub use key::{BusinessId, InvalidName, Key, Scope};
#[cfg(feature = "client")]
pub use outbox::BusPublisher;
pub use outbox::{
    Holder, OutboxMessage, OutboxStore, Pending, Publish, PublishError, Pump, PumpOptions, Pumped,
};
pub use outcome::{Json, Outcome, OutcomeError};
#[cfg(feature = "postgres")]
pub use postgres::{PostgresOptions, PostgresStore, PostgresTls, PostgresTransaction};
pub use request::{Fingerprint, Request};
#[cfg(feature = "sqlite")]
pub use sqlite::{SqliteOptions, SqliteStore, SqliteTransaction};
pub use store::{Begun, Record, Store, Transaction};

/// The client of PostgreSQL that handlers use.
#[cfg(feature = "postgres")]
pub use tokio_postgres;

/// The library of SQLite that handlers use.
#[cfg(feature = "sqlite")]
pub use rusqlite;
