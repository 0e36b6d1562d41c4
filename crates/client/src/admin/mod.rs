//! Management of Service Bus by ATOM documents over HTTP: queues, their settings, rules and counts.
//!
//! What a service says of a queue and this crate does not know is kept, and is sent back by an update: settings of
//! newer services are not lost. Topics, subscriptions and their rules are not there yet.
//!
//! Source: Service Bus, *Resource Provider REST API* (ATOM), and what its SDKs read and write.

mod client;
mod duration;
mod forward;
mod read;
mod request;
mod rules;
mod settings;
mod time;
mod write;

pub use client::{AdminOptions, BusAdmin, RawAnswer};
pub use rules::{QueueRule, Right};
pub use settings::{
    EntityStatus, NamespaceInfo, QueueDescription, QueuePage, QueueSettings, QueueState,
    UnknownElements,
};

/// What the content of a description is in.
const NAMESPACE: &str = "http://schemas.microsoft.com/netservices/2010/10/servicebus/connect";
