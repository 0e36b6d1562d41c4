//! Management of Service Bus by ATOM documents over HTTP: queues, topics, subscriptions and their rules, with settings,
//! authorization rules and counts.
//!
//! - `client`: the operations; `path`: where they go; `request`: what they send, and what signs it;
//! - `settings`, `rule`, `authorization`: what can be set; `description`: what a service says beside that;
//! - `elements`: what all descriptions have in common; `read` and `write`: their documents.
//!
//! What a service says of an entity and this crate does not know is kept, and is sent back by an update: settings of newer
//! services are not lost.
//!
//! Source: Service Bus, *Resource Provider REST API* (ATOM), and what its SDKs read and write.

mod authorization;
mod client;
mod description;
mod duration;
mod elements;
mod entities;
mod filter_value;
mod forward;
mod path;
mod read;
mod request;
mod rule;
mod settings;
mod time;
mod write;

pub use authorization::{QueueRule, Right};
pub use client::{AdminOptions, BusAdmin, RawAnswer};
pub use description::{
    Description, EntityDescription, EntityState, EntityStatus, NamespaceInfo, Page,
    QueueDescription, RuleDescription, SubscriptionDescription, TopicDescription, UnknownElements,
};
pub use filter_value::FilterValue;
pub use rule::{CorrelationFilter, Filter, NewRule, RuleSettings, Sql};
pub use settings::{QueueSettings, SubscriptionSettings, TopicSettings};

/// What the content of a description is in.
const NAMESPACE: &str = "http://schemas.microsoft.com/netservices/2010/10/servicebus/connect";

/// What the attribute `type` is in.
const INSTANCE: &str = "http://www.w3.org/2001/XMLSchema-instance";
