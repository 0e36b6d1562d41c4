//! Azure Service Bus over AMQP 1.0: queues, as unmodified SDKs use them.
//!
//! [`BusApi::serve`] drives one connection, in a task of its own, and [`BusApi::turn_away`] tells a
//! client why it is not served. [`kew_amqp::Connection`] knows the protocol, and the broker knows
//! the queues. This crate has the service's behaviour between the two:
//!
//! - `ground`: names, limits, addresses, texts of refusals, and calls of the broker;
//! - `metrics`: what is counted and logged; `memory`: the memory of connections, and its limits;
//! - `messages`: incoming and outgoing messages, with their annotations;
//! - `authorization`: rules with their rights, credentials, and the right that each operation
//!   needs;
//! - `configuration`: queues from the emulator's configuration file, and back;
//! - `definitions`: rules of subscriptions in the forms of AMQP and of HTTP;
//! - `management`: the requests to an entity's node `$management`;
//! - `connection`: AMQP: sends, receives, settlements and transactions over the links of one connection;
//! - `http`: requests over HTTP on the same port: management, messages, AMQP in WebSockets;
//! - `shared`: the state that all connections share; `api`: the front end's handle, for the server.
//!
//! A part may import only those before it: the test in `layers` has the order.
//!
//! Unsupported features are refused: sends through another entity, browsing links and dynamic nodes
//! (`amqp:not-implemented`). Selectors and other filters are left out of the answer, as in Azure.

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]
#![cfg_attr(
    test,
    expect(clippy::unwrap_used, reason = "a test fails by panicking")
)]

mod api;
mod authorization;
mod configuration;
mod connection;
mod definitions;
mod ground;
mod http;
#[cfg(test)]
mod layers;
mod management;
mod memory;
mod messages;
mod metrics;
mod shared;

pub use api::{BusApi, BusApiOptions};
pub use authorization::operation::{HttpOperation, ManagementOperation};
pub use authorization::rights::{AuthorizationRule, InvalidRule, Right, Rights};
pub use authorization::rules::{BusRules, RuleScope, RuleStore};
pub use authorization::sas::sign_token;
pub use configuration::config::{ImportError, Imported, read_config};
pub use configuration::export::ExportError;
pub use configuration::file::BusConfig;
pub use configuration::import::import;
pub use ground::constants::{NAMESPACE, WELL_KNOWN_KEY, WELL_KNOWN_RULE};
pub use ground::limits::Limits;
pub use ground::origin::Origin;
pub use ground::turned_away::TurnedAway;
pub use http::is_custom_header;
pub use kew_bus_message::{DEAD_LETTER_DESCRIPTION, DEAD_LETTER_REASON};
pub use messages::view::MessageView;
