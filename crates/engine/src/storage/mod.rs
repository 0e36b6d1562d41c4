//! Azure Queue Storage as a profile of the one notion of a message and its lease: visibility timeouts and pop
//! receipts.
//!
//! When a visibility timeout ends, nothing happens: the message is visible again, and the last receipt still
//! works until another receiver gets the message. So a holder may delete it late. There is no dead-letter
//! queue: consumers separate poison messages themselves, by the delivery count.

pub(crate) mod backlog;
mod command;
mod decide;
mod describe;
mod effect;
mod entity;
pub(crate) mod event;
mod limits;
pub(crate) mod message;
pub(crate) mod metadata;
mod outcome;
pub(crate) mod policy;
mod queues;
mod repair;
pub(crate) mod snapshot;

pub(crate) use self::backlog::Stored;
pub(crate) use self::backlog::expiry::ENDED_COUNT_MAX;
pub use self::command::StorageCommand;
pub(crate) use self::decide::{Ground, Turn};
pub use self::effect::{Effect, Effects, Moved, OwnEffect, OwnHolder};
pub(crate) use self::entity::Entity;
pub use self::event::StorageFact;
pub use self::metadata::Metadata;
pub use self::outcome::{
    ListedQueue, PeekedMessage, QueuePage, QueueView, ReceivedMessage, SentMessage, StorageOutcome,
    StorageRefusal,
};
pub use self::policy::{AccessPolicies, AccessPolicy, InvalidAccessPolicies, PolicyTime};
pub(crate) use self::queues::Queues;

#[cfg(test)]
mod tests;
