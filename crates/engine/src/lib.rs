//! The rules of queues, messages and leases, as a pure, deterministic state machine.
//!
//! A [`Command`] asks. [`Turn::decide`] answers with an [`Outcome`] or a [`Refusal`] and emits [`Event`]s.
//! [`State::apply`] is total and is all that a replay runs. The log keeps events, not commands, so that a
//! newer version may decide differently and still reads every older log.
//!
//! The engine knows no clock, no protocol of a client and no file. Time comes in as `now`; message
//! bodies go out through a [`Journal`] and are remembered only as a [`BodyLocation`].

// A new command, fact, refusal or state fails to compile until every decision about it is written.
#![cfg_attr(
    not(test),
    deny(
        clippy::wildcard_enum_match_arm,
        clippy::match_wildcard_for_single_variants
    )
)]

mod bodies;
mod catalogue;
mod command;
mod describe;
mod effect;
mod event;
#[cfg(test)]
mod layers;
mod migrate;
mod moves;
mod outcome;
mod overview;
mod queues;
mod repair;
mod shared;
mod snapshot;
mod state;
mod table;
mod turn;
mod vocabulary;

pub mod bus;
pub mod storage;
pub mod wire;

pub use bodies::{BodyCursor, BodyOwner, FoundBodies, FoundBody, NeededBodies, NeededBody};
pub use catalogue::{
    AccountQuota, AccountRecord, AccountSecret, AccountUsage, Class, InvalidAccountSecret,
    QuotaLimit, Scope, Touches, Writes,
};
pub use command::Command;
pub use describe::{Checked, Description};
pub use effect::{
    Arrival, Bodies, BusSession, Effect, Effects, Lease, NewBody, NextCopy, Own, Rest, SessionOf,
    Standing, Was,
};
pub use event::{Event, Fact};
pub use moves::{BodyToMove, Holder, MovedBodies, MovedBody, Source};
pub use outcome::{BodiesMoved, Outcome, Refusal};
pub use overview::{BusQueueOverview, Overview, QueueOverview, TopicOverview};
pub use queues::{Flow, Moved, MovedOf, Receiving};
pub use repair::{Skip, StoredMessage};
pub use shared::Waste;
pub use snapshot::{
    DecodedPage, PageBytes, RestoringPages, Snapshot, SnapshotPages, SnapshotParts, StateSize,
};
pub use state::{Ahead, Evicted, FoundToWarm, Hand, Pass, State};
pub use table::{
    BodyEncoding, CountUnit, Group, GroupAhead, GroupRead, GroupToRead, KnownPages,
    LIVE_OVERHEAD_BYTES, Leaving, MESSAGE_OVERHEAD_BYTES, MessageState, Missing, Placed, Pressure,
    Record, Resident, RunId, RunLength, Side, Slots, Taken,
};
pub use turn::{DUE_BUDGET, Decision, Journal, Ticked, Tries, Turn};
pub use vocabulary::{
    BodyLocation, BodyMove, BodyRead, DecodeError, EntityName, Hold, Incarnation, LeaseGeneration,
    PageNumber, Place, SUBSCRIPTIONS, SUBSCRIPTIONS_LIST, SequenceNumber, Service, Timestamp,
    Token, VisibilityTimeout, topic_of_path,
};
