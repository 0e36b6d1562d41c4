//! Azure Service Bus over AMQP 1.0: queues, as unmodified SDKs use them.
//!
//! [`BusApi::serve`] drives one connection, a task for each, and [`BusApi::turn_away`] tells one that
//! is not served why. [`kew_amqp::Connection`] knows the protocol, the broker knows the queues; what is
//! here is what the service says between the two:
//!
//! - `rights`, `rules`: authorization rules, of the namespace and of queues;
//! - `authorize`, `sas`: what a credential allows; `cbs`: those that a client puts to the node `$cbs`;
//!   `grants`: what all of a connection's allow; `operation`: the right that each operation needs;
//! - `description`: what is kept with a queue besides its settings;
//! - `address`: which entity an address means, in all the forms that SDKs use; `lookup`: whether it is there;
//! - `inbound`, `outbound`: messages that come in and go out, with their annotations;
//! - `client`: the links of one connection: sends, receives, settlements;
//! - `claims`: locks that open transactions are to end;
//! - `management`: the requests to an entity's node `$management`;
//! - `config`, `import`, `export`: queues from the emulator's configuration file, and back;
//! - `http`: what is asked over HTTP on the same port: management, messages, AMQP in WebSockets.
//!
//! What is not served is refused: topics and subscriptions (there are none to be found), sends through
//! another entity, browsing links and dynamic nodes (`amqp:not-implemented`), selectors and other filters
//! (left out of the answer, as the service does).

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]
#![cfg_attr(
    test,
    expect(clippy::unwrap_used, reason = "a test fails by panicking")
)]

mod address;
mod api;
mod authorize;
mod cbs;
mod claims;
mod client;
mod config;
mod description;
mod driver;
mod duration;
mod export;
mod first;
mod grants;
mod holdings;
mod http;
mod import;
mod inbound;
mod limits;
mod lookup;
mod management;
mod message_view;
mod metrics;
mod observe;
mod operation;
mod origin;
mod outbound;
mod refusal;
mod request;
mod rights;
mod rules;
mod sas;
mod submit;
mod turn_away;

pub use api::{BusApi, BusApiOptions, NAMESPACE, WELL_KNOWN_KEY, WELL_KNOWN_RULE};
pub use config::{BusConfig, ImportError, ImportedQueue, read_config};
pub use http::is_custom_header;
pub use import::import;
pub use limits::Limits;
pub use message_view::MessageView;
pub use operation::{HttpOperation, ManagementOperation};
pub use origin::Origin;
pub use outbound::{DEAD_LETTER_DESCRIPTION, DEAD_LETTER_REASON};
pub use rights::{AuthorizationRule, InvalidRule, Right, Rights, WhichKey};
pub use rules::RuleError;
pub use sas::sign_token;
pub use turn_away::TurnedAway;
