//! The rules of queues, messages and leases, as a pure, deterministic state machine.
//!
//! A [`Command`] asks. [`Turn::decide`] answers with an [`Outcome`] or a [`Refusal`] and emits [`Event`]s.
//! [`State::apply`] is total and is all that a replay runs. The log keeps events, not commands, so that a
//! newer version may decide differently and still reads every older log.
//!
//! The engine knows no clock, no bytes on the wire and no file. Time comes in as `now`; message
//! bodies go out through a [`Journal`] and are remembered only as a [`BodyLocation`].

// A new command, fact, refusal or state fails to compile until every decision about it is written.
#![cfg_attr(
    not(test),
    deny(
        clippy::wildcard_enum_match_arm,
        clippy::match_wildcard_for_single_variants
    )
)]

mod account;
mod backlog;
pub mod bus;
mod codec;
mod command;
mod decide;
mod describe;
mod effect;
mod entity;
mod event;
mod hint;
mod journal;
mod message;
mod metadata;
mod migrate;
mod name;
mod outcome;
mod overview;
mod policy;
mod profile;
mod repair;
mod snapshot;
mod snapshot_size;
mod state;
mod tick;
mod time;
mod timed;
mod token;

pub use account::{
    AccountQuota, AccountRecord, AccountSecret, AccountUsage, InvalidAccountSecret,
    MESSAGE_OVERHEAD_BYTES, QuotaLimit,
};
pub use codec::DecodeError;
pub use command::Command;
pub use decide::{DUE_BUDGET, Decision, Scope, Turn};
pub use describe::{Class, Description, Touches, Writes};
pub use effect::{Effect, Effects, Lease, Place, Placed, Was};
pub use event::{Event, Fact};
pub use journal::{BodyLocation, Journal};
pub use message::BodyEncoding;
pub use metadata::Metadata;
pub use name::{EntityName, Service};
pub use outcome::{
    ListedQueue, Outcome, PeekedMessage, QueuePage, QueueView, ReceivedMessage, Refusal,
    SentMessage,
};
pub use overview::{BusQueueOverview, Overview, QueueOverview};
pub use policy::{AccessPolicies, AccessPolicy, InvalidAccessPolicies, PolicyTime};
pub use repair::StoredMessage;
pub use state::State;
pub use tick::Ticked;
pub use time::{Timestamp, VisibilityTimeout};
pub use token::{Incarnation, LeaseGeneration, SequenceNumber, Token};
