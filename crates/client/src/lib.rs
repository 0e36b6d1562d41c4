//! One asynchronous client of Azure Queue Storage and Azure Service Bus.
//!
//! It speaks the public protocols, so it works with Kew, with the cloud services, with Azurite and with the
//! emulator of Service Bus. It knows nothing of Kew's server.
//!
//! - [`ConnectionString`] reads the forms of all of them, and says which service is meant: a [`QueueAccount`] or a
//!   [`BusNamespace`].
//! - [`SharedKey`] and [`SasRule`] sign: requests, and shared access signatures.
//! - [`TokenSource`] gives bearer tokens.
//!
//! No type of this crate prints a key, a signature or a token.

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

mod connection_string;
mod credential;
mod secret;
mod sign;

pub use connection_string::{
    BusNamespace, BusTransport, ConnectionString, ConnectionStringError, Endpoint, QueueAccount,
};
pub use credential::{
    BearerToken, BusCredential, QueueCredential, TokenError, TokenFuture, TokenSource,
};
pub use secret::Secret;
pub use sign::{HttpRequest, QueueSas, SasError, SasRule, SharedKey};
