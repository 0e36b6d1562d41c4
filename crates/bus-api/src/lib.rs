//! Azure Service Bus over AMQP 1.0: queues, as unmodified SDKs use them.
//!
//! [`BusApi::serve`] drives one connection, a task for each. [`kew_amqp::Connection`] knows the
//! protocol, the broker knows the queues; what is here is what the service says between the two:
//!
//! - `sas`, `cbs`: who may do what, by signatures that a client puts to the node `$cbs`;
//! - `address`: which entity an address means, in all the forms that SDKs use;
//! - `inbound`, `outbound`: messages that come in and go out, with their annotations;
//! - `client`: the links of one connection: sends, receives, settlements;
//! - `management`: the requests to an entity's node `$management`;
//! - `import`: queues from the emulator's configuration file;
//! - `http`: what is asked over HTTP on the same port: management, messages, AMQP in WebSockets.
//!
//! What is not served is refused: topics and subscriptions (there are none to be found),
//! transactions (`amqp:not-implemented`), selectors and other filters (left out of the answer, as
//! the service does).

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]
#![cfg_attr(
    test,
    expect(clippy::unwrap_used, reason = "a test fails by panicking")
)]

mod address;
mod api;
mod authorize;
mod cbs;
mod client;
mod description;
mod driver;
mod first;
mod holdings;
#[cfg_attr(
    not(test),
    expect(dead_code, reason = "the parts that use it are being added")
)]
mod http;
mod import;
mod inbound;
mod limits;
mod management;
mod metrics;
mod observe;
mod origin;
mod outbound;
mod refusal;
mod request;
mod rights;
mod sas;
mod submit;

pub use api::{BusApi, ConnectionPermit, NAMESPACE, WELL_KNOWN_KEY, WELL_KNOWN_RULE};
pub use import::{ImportError, ImportedQueue, import, read_config};
pub use limits::Limits;
pub use origin::Origin;
pub use rights::{AuthorizationRule, InvalidRule, Right, Rights, WhichKey};
