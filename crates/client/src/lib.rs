//! One asynchronous client of Azure Queue Storage and Azure Service Bus.
//!
//! It speaks the public protocols, so it works with Kew, with the cloud services, with Azurite and with the
//! emulator of Service Bus. It knows nothing of Kew's server.
//!
//! - [`ConnectionString`] reads the forms of all of them, and says which service is meant: a [`QueueAccount`] or a
//!   [`BusNamespace`].
//! - [`SharedKey`] and [`SasRule`] sign: requests, and shared access signatures.
//! - [`TokenSource`] gives bearer tokens.
//! - [`QueueClient`] speaks to Queue Storage over HTTP and HTTPS.
//! - [`BusClient`] speaks to Service Bus over AMQP: it sends, receives, settles, and recovers.
//! - [`Transaction`] has sends and settlements take effect together.
//! - [`BusAdmin`] manages queues, topics, subscriptions and rules of Service Bus, by ATOM over HTTP and HTTPS.
//! - [`Route`] makes connections to other services, with the same trust.
//! - [`enum@ErrorKind`] says of each error what can be done about it.
//!
//! No type of this crate prints a key, a signature or a token.

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

mod admin;
mod bus;
mod connection_string;
mod credential;
mod error;
mod http;
mod queue;
mod retry;
mod secret;
mod sign;
mod transport;
mod uuid;

pub use admin::{
    AdminOptions, BusAdmin, CorrelationFilter, Description, EntityDescription, EntityState,
    EntityStatus, Filter, FilterValue, NamespaceInfo, NewRule, Page, QueueDescription, QueueRule,
    QueueSettings, RawAnswer, Right, RuleDescription, RuleSettings, Sql, SubscriptionDescription,
    SubscriptionSettings, TopicDescription, TopicSettings, UnknownElements,
};
pub use bus::{
    Batch, BusClient, BusOptions, Changes, DeletingReceiver, Encoded, Entity, HeldLock, Lock,
    Locked, Message, MessageState, Received, Receiver, ReceiverOptions, Sender, SessionChoice,
    SessionReceiver, Transaction, Unseen,
};

pub use connection_string::{
    BusNamespace, BusTransport, ConnectionString, ConnectionStringError, Delegation, Endpoint,
    QueueAccount,
};
pub use credential::{
    BearerToken, BusCredential, QueueCredential, TokenError, TokenFuture, TokenSource,
};
pub use error::{Error, ErrorKind};
pub use http::xml::is_allowed as is_xml_character;
pub use kew_amqp::codec::{Uuid, Value};
pub use kew_amqp::message::BodyKind;
pub use queue::{
    AccessPolicy, CorsRule, ListedQueue, Logging, Metrics, PutMessage, PutOptions, QueueClient,
    QueueMessage, QueueOptions, QueueProperties, Receipt, ServiceProperties, ServiceStats,
};
pub use retry::Retry;
pub use secret::Secret;
pub use sign::{HttpRequest, QueueSas, SasError, SasRule, SharedKey};
pub use transport::{Dial, DialFuture, Route, Stream};
pub use uuid::uuid_of;
