//! Azure Service Bus over AMQP 1.0: queues, as unmodified SDKs use them.
//!
//! [`BusApi::serve`] drives one connection, a task for each, and [`BusApi::turn_away`] tells one that
//! is not served why. [`kew_amqp::Connection`] knows the protocol, the broker knows the queues; what is
//! here is what the service says between the two:
//!
//! - `ground`: names, bounds, addresses, what a refusal says, and how the broker is asked;
//! - `metrics`: what is counted and logged; `memory`: what connections hold, and the bounds on it;
//! - `messages`: messages as they come in and go out, with their annotations;
//! - `authorization`: rules with their rights, what a credential allows, the right that each operation needs;
//! - `configuration`: queues from the emulator's configuration file, and back;
//! - `management`: the requests to an entity's node `$management`;
//! - `connection`: AMQP: sends, receives, settlements and transactions over the links of one connection;
//! - `http`: what is asked over HTTP on the same port: management, messages, AMQP in WebSockets;
//! - `shared`: what all connections share; `api`: the handle that the server holds.
//!
//! A part imports those before it, and none after it: the test in `layers` says the order.
//!
//! What is not served is refused: topics and subscriptions (there are none to be found), sends through
//! another entity, browsing links and dynamic nodes (`amqp:not-implemented`), selectors and other filters
//! (left out of the answer, as the service does).

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]
#![cfg_attr(
    test,
    expect(clippy::unwrap_used, reason = "a test fails by panicking")
)]

mod api;
mod authorization;
mod configuration;
mod connection;
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
pub use configuration::config::{BusConfig, ImportError, ImportedQueue, read_config};
pub use configuration::import::import;
pub use ground::constants::{NAMESPACE, WELL_KNOWN_KEY, WELL_KNOWN_RULE};
pub use ground::limits::Limits;
pub use ground::origin::Origin;
pub use ground::turned_away::TurnedAway;
pub use http::is_custom_header;
pub use messages::outbound::{DEAD_LETTER_DESCRIPTION, DEAD_LETTER_REASON};
pub use messages::view::MessageView;
