//! A client of Azure Queue Storage for the command line: Kew, Azurite and the service itself.
//!
//! It blocks, holds no state but its connections, and can be shared by threads. It knows the
//! protocol, and nothing of terminals or of Kew's internals. Secrets (account keys and shared
//! access signatures) appear in no error and in no `Debug`.
//!
//! Source: the Queue Storage REST API, version [`VERSION`].
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

mod account;
mod client;
mod connection_string;
mod error;
mod http;
mod model;
mod retry;
mod sas;
mod shared_key;
mod xml;

pub use account::Account;
pub use client::{Client, Options, PutOptions, QueuePages};
pub use connection_string::ConnectionStringError;
pub use error::{Error, Refusal};
pub use http::tls_config;
pub use model::{Message, Queue, QueueProperties, Receipt, Sent, ServiceStats};
pub use sas::{SasError, SasOptions};
pub use xml::is_allowed as is_xml_character;

/// The version of the protocol that requests name. It has all that this client uses, and is old
/// enough for emulators that refuse newer versions.
pub const VERSION: &str = "2024-11-04";
