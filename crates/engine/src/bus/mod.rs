//! Azure Service Bus queues: the second profile of the one notion of a message and its lease.
//!
//! A bus queue differs from a storage queue in what it promises its receivers: order by sequence
//! number, locks that end and are counted, a dead-letter queue, sessions, schedules, deferral. So it
//! has a backlog of its own; catalogue, incarnations, tokens, journal and clock are shared.
//!
//! A queue comes with two sub-queues, for dead letters and for transfers that failed. They are
//! entities with incarnations of their own, the next two after the queue's, and live and die with it.

mod apply;
mod awaited;
mod backlog;
mod command;
mod decide;
mod describe;
mod duplicates;
mod effect;
pub(crate) mod event;
mod format;
mod ids;
mod message;
mod options;
mod outcome;
pub(crate) mod pages;
mod queue;
mod queues;
mod repair;
mod role;
mod room;
mod rules;
mod session;
pub(crate) mod snapshot;
mod takers;
mod totals;

pub use crate::catalogue::{ReceiveMode, Receives};
pub use crate::effect::BusSession;
pub use crate::table::{DeadLetterCause, MessageState as BusMessageState};
pub use awaited::{Arrival, Awaited};
pub(crate) use backlog::Kept;
pub use command::{
    BreakTarget, BusCommand, BusMessage, DeferredRead, Disposition, Purge, Resubmission, Resubmit,
    SessionChoice, TransactionPart, TransactionWork,
};
pub use decide::{Behind, Unread};
pub(crate) use decide::{By, DueSpent, DueStep, Ground, HandOut, Turn};
pub(crate) use duplicates::{Block as IdBlock, Duplicates, REMEMBERED_SIZE_BYTES, ReadBlock};
pub use effect::{Effect, Effects, Moved, MovedOf, OwnEffect, OwnHolder};
pub use event::BusFact;
pub use format::{
    ACTION_SIZE_BYTES_MAX, DESCRIPTION_SIZE_BYTES_MAX, Format, Known, Made, NoFormat, Unfit,
};
pub(crate) use message::{Message, Release, SOURCE_SIZE_BYTES_MAX, sent};
pub use options::{BusQueueOptions, EntityStatus, FixedOption, InvalidOption, RangedOption};
pub use outcome::{
    BatchDeleted, BusOutcome, BusQueueCounts, BusQueueView, BusRefusal, ClearedStates,
    DeliveredMessage, ListedSessions, NotSupported, PartRefusal, PeekedBusMessage, Purged,
    ResubmitVerdict, SessionLock, Verdict,
};
pub(crate) use queue::{BusQueue, ENTITIES_PER_BUS_QUEUE};
pub(crate) use queues::Queues;
pub use repair::StoredSessionState;
pub use role::EntityKind;
pub(crate) use role::Role;
pub use room::{
    ANSWER_SIZE_BYTES_MAX, BODIES_SIZE_BYTES_MAX, COPIES_AT_ONCE_MAX, DUE_SIZE_BYTES_MAX,
    ITEMS_MAX, REASON_SIZE_BYTES_MAX, SESSION_ID_SIZE_BYTES_MAX, SUBSCRIPTIONS_MAX,
};
pub(crate) use room::{
    CopyChanges, DELETED_SIZE_BYTES, RELEASED_SIZE_BYTES, at_once_size_bytes_max, released_at_once,
};
pub use rules::{
    AddedRule, BusRuleView, CompletedRules, KnownOfRules, NewRule, OTHER_RULES_MAX,
    RULES_SIZE_BYTES_MAX, SQL_RULES_MAX, TopicTally,
};
pub(crate) use rules::{
    BusRule, Matched, RuleChunk, put_part, put_rules, restore_rules, subscriptions_of_rules,
    use_rule_numbers,
};
pub use totals::{
    TRANSACTION_ENDED_MAX, TRANSACTION_MESSAGES_MAX, TRANSACTION_SIZE_BYTES_MAX,
    TransactionTooLarge, TransactionTotals,
};

#[cfg(test)]
pub(crate) mod tests;
