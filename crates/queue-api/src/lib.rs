//! Azure Queue Storage over HTTP: parses, authorizes and translates requests.
//!
//! A [`QueueApi`] serves connections: it reads a request, authenticates it, turns it into a command
//! for the broker, and the outcome into an answer. It stores no messages. It knows no queues, no
//! files, and no sockets but those that it gets.
//!
//! Requests are authorized with Shared Key, with the shared access signatures of an account, of a queue
//! and of a user, and with the bearer tokens of [`Issuers`].
//!
//! Where Azure and its documentation disagree, Kew follows Azure. `docs/queue-storage.md` lists
//! every such decision, and which test shows which behaviour.

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

mod account_store;
mod accounts;
mod address;
mod api;
mod auth;
mod connection;
mod cors;
mod date;
mod deletions;
mod error;
mod health;
mod id;
mod limits;
mod md5;
mod message_text;
mod metadata;
mod metrics;
mod observe;
mod operation;
mod operator;
mod origin;
mod parameter;
mod policies;
mod properties;
mod public_key;
mod query;
mod reply;
mod request;
mod route;
mod sharing;
mod spelling;
mod version;

pub use account_store::{AccountStore, StorageAccounts};
pub use accounts::{Account, AccountKey, Accounts, InvalidAccount, ServedAccounts};
pub use api::{QueueApi, QueueApiOptions, WallClock};
pub use auth::{InvalidKeys, Issuer, IssuerOptions, Issuers, Role};
pub use limits::Limits;
pub use operator::{OperatorOptions, OtherMetrics, Reach};
pub use origin::Origin;
