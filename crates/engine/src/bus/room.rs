//! How much one command may ask for, and how much one answer may hold.
//!
//! A partition makes room for a whole command before it decides it. So the size of a command bounds what it
//! can write, and these limits bound the size of a command.

use super::message::{Message, OVERLAYS_MAX};
use super::{BusRefusal, RangedOption};
use crate::catalogue::description::{BODY_OVERHEAD_BYTES, EVENT_SIZE_BYTES};

/// The most messages, locks or numbers in one command.
pub const ITEMS_MAX: usize = 5000;

/// The most subscriptions of a topic.
///
/// Source: Service Bus quotas.
pub const SUBSCRIPTIONS_MAX: usize = 2000;

/// The most copies that one command makes of the messages that it sends to a topic. Due work makes those of further
/// messages.
pub const COPIES_AT_ONCE_MAX: usize = 4096;

/// How many steps the rules of a topic take for the messages of one command: about a millisecond. A rule is begun only
/// while there are steps left. Due work compares further messages.
pub(super) const RULE_STEPS_MAX: u32 = 50_000;

/// The most bytes of a change that says why a message is a dead letter, which is accepted however full its queue is: a
/// reason and a description of 4,096 characters each, and their names.
///
/// Source: the SDKs of Service Bus refuse longer ones.
pub const REASON_SIZE_BYTES_MAX: usize = 10 * 1024;

/// How many steps of a turn a copy of a message takes.
pub(super) const COPY_STEPS: u64 = 32;

/// What the rules of a topic may add to copies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum CopyChanges {
    /// Nothing: no rule has an action, and none can fail.
    #[default]
    Nothing,
    /// Descriptions of failures.
    Failures,
    /// What actions change, too.
    Actions,
}

/// The most bytes of a copy that is as the one before it in another subscription: differences of entities and of
/// numbers, a time, and the number of a session.
pub(super) const COPIED_SIZE_BYTES: u64 = 32;

/// The most bytes of the copies of each message that are made at once, besides the first one: without changes, and with.
const AT_ONCE_SIZE_BYTES: u64 = 4 * 1024;

/// The most bytes of the copies that a command makes at once, with their changes. It is small, because room is made for it
/// before each command, and counts in the share of the topic. Due work makes what does not fit.
///
/// `messages` is how many there are, and the most bytes of the first copy of each together.
pub(crate) fn at_once_size_bytes_max(
    changes: CopyChanges,
    subscriptions: u64,
    (messages, firsts_size_bytes): (u64, u64),
) -> u64 {
    if subscriptions == 0 {
        return 0;
    }
    // Where they are few, each may be another one than the one before it.
    let copied = AT_ONCE_SIZE_BYTES.min(subscriptions * EVENT_SIZE_BYTES);
    let changed = match changes {
        CopyChanges::Nothing => 0,
        CopyChanges::Failures | CopyChanges::Actions => AT_ONCE_SIZE_BYTES,
    };
    let more = messages.saturating_mul(copied + changed);
    firsts_size_bytes + more.min(256 * 1024)
}

/// How many messages or sessions one command looks at, at most: about half a millisecond.
pub(super) const LOOKED_AT_MAX: usize = 4 * ITEMS_MAX;

/// The most bytes of messages, or of changes to their properties, in one command.
///
/// Source: Service Bus quotas: a batch is at most 1 MB in every tier.
pub const BODIES_SIZE_BYTES_MAX: u64 = 1024 * 1024;

/// The most bytes of messages in one answer.
pub const ANSWER_SIZE_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// The longest id of a session, in bytes: 128 characters.
pub const SESSION_ID_SIZE_BYTES_MAX: usize = 512;

/// The most bytes of an event with an effect that gives a message a lease: place, generation, deliveries, session
/// and two times. The place of a change to its properties takes [`PLACE_SIZE_BYTES`] more.
pub(crate) const LEASED_SIZE_BYTES: u64 = 64;
/// The most bytes of the same as one of many effects: without the event's header.
pub(crate) const RELEASED_SIZE_BYTES: u64 = 48;
/// The most bytes of a place in the log.
pub(super) const PLACE_SIZE_BYTES: u64 = 14;
/// The most bytes of an effect that ends a message, without the changes to its properties.
pub(super) const ENDED_SIZE_BYTES: u64 = 64;
/// The most bytes of the text that says where a failed transfer was to go, and why it could not.
pub(super) const TRANSFER_TEXT_SIZE_BYTES_MAX: usize = 512;
/// The most bytes that this text adds to the event of a message: as a change to its properties, with its place.
pub(super) const TRANSFER_FAILED_SIZE_BYTES: u64 =
    TRANSFER_TEXT_SIZE_BYTES_MAX as u64 + 64 + BODY_OVERHEAD_BYTES + PLACE_SIZE_BYTES;
/// The most bytes of an event that ends a message with as many changes as there can be.
pub(crate) const ENDED_SIZE_BYTES_MAX: u64 =
    ENDED_SIZE_BYTES + OVERLAYS_MAX as u64 * PLACE_SIZE_BYTES;
/// The room for each message of a command that takes as many as there is room for: it has nine changes. The largest
/// settlement, of [`ITEMS_MAX`] messages, then fits into a segment on a full disk.
pub(super) const TAKEN_SIZE_BYTES: u64 = 192;
/// The most bytes of an event that deletes an entity, beside others.
pub(crate) const DELETED_SIZE_BYTES: u64 = 32;
/// The longest name of a queue. That of a subscription has the name of its topic before it.
///
/// Source: Service Bus quotas: 260 characters.
pub(super) const NAME_SIZE_BYTES_MAX: usize = 260;
/// The most bytes of effects that add a message in one place and end it in another, besides changes to its
/// properties and texts.
pub(super) const MOVED_SIZE_BYTES: u64 = 160;
/// The most bytes of an event that clears a session's state: it names the session and a place.
pub(super) const STATE_CLEARED_SIZE_BYTES: u64 = 64 + SESSION_ID_SIZE_BYTES_MAX as u64;

/// The most bytes of one due thing, for each unit of the budget that it takes.
/// [`Turn::tick`](crate::Turn::tick) counts them.
pub const DUE_SIZE_BYTES_MAX: u64 = MOVED_SIZE_BYTES + SESSION_ID_SIZE_BYTES_MAX as u64;

/// The most bytes of a message that moves with as many changes to its properties as there can be, and with the
/// longest session id and name of a queue. A due thing of that size takes two units.
pub(super) const MOVED_SIZE_BYTES_MAX: u64 = 2 * DUE_SIZE_BYTES_MAX;

/// The most messages that a command releases with their session. Due work releases the others.
const RELEASED_AT_ONCE_MAX: usize = 1024;

/// How many messages a command releases with their session at most: few on a full disk.
pub(crate) fn released_at_once(due_budget: u32) -> usize {
    RELEASED_AT_ONCE_MAX.min(due_budget as usize * 16)
}

/// The most bytes of the effects that move a message, without the id of its session.
pub(crate) fn moved_size_bytes_max(message: &Message<'_>) -> u64 {
    let source = message.source();
    let changes = message.overlays().len() as u64 * PLACE_SIZE_BYTES;
    MOVED_SIZE_BYTES + changes + source.map_or(0, |source| source.len() as u64)
}

/// The room of a command that takes messages for good, as many as there is room for.
#[derive(Debug)]
pub(crate) struct TakenRoom {
    size_bytes: u64,
}

impl TakenRoom {
    pub(crate) fn new(count: usize) -> Self {
        Self {
            size_bytes: ENDED_SIZE_BYTES_MAX + count as u64 * TAKEN_SIZE_BYTES,
        }
    }

    /// The room of a receiver: there is enough for one message more that is damaged and becomes a dead letter.
    pub(crate) fn of_receiver(count: usize) -> Self {
        let Self { size_bytes } = Self::new(count);
        Self {
            size_bytes: size_bytes + MOVED_SIZE_BYTES_MAX,
        }
    }

    /// Whether there is room for one more message.
    pub(crate) fn takes(&mut self, message: &Message<'_>) -> bool {
        self.has(ENDED_SIZE_BYTES + message.overlays().len() as u64 * PLACE_SIZE_BYTES)
    }

    /// Whether there is room for so much more.
    pub(crate) fn has(&mut self, size_bytes: u64) -> bool {
        let fits = size_bytes <= self.size_bytes;
        if fits {
            self.size_bytes -= size_bytes;
        }
        fits
    }
}

/// How much one answer may hold: a number of messages, and a number of bytes unless the first message alone
/// has more. A client asks again for the rest.
#[derive(Debug)]
pub(crate) struct AnswerRoom {
    count: usize,
    size_bytes: u64,
    is_empty: bool,
}

impl AnswerRoom {
    pub(crate) fn new(count: u32) -> Self {
        Self {
            count: ITEMS_MAX.min(count as usize),
            size_bytes: ANSWER_SIZE_BYTES_MAX,
            is_empty: true,
        }
    }

    /// Whether there is room for one more message.
    pub(crate) fn takes(&mut self, message: &Message<'_>) -> bool {
        let size_bytes = message.size_bytes();
        let fits = self.count > 0 && (self.is_empty || size_bytes <= self.size_bytes);
        if fits {
            self.count -= 1;
            self.size_bytes = self.size_bytes.saturating_sub(size_bytes);
            self.is_empty = false;
        }
        fits
    }
}

pub(super) fn check_count(count: usize) -> Result<(), BusRefusal> {
    if count > ITEMS_MAX {
        return Err(BusRefusal::TooMany {
            count: count as u64,
            limit: ITEMS_MAX as u64,
        });
    }
    Ok(())
}

/// Checks the bytes of all messages of a command, or of all changes to their properties.
pub(super) fn check_bodies(size_bytes: u64) -> Result<(), BusRefusal> {
    if size_bytes > BODIES_SIZE_BYTES_MAX {
        return Err(BusRefusal::MessageTooLarge {
            size_bytes,
            limit_bytes: BODIES_SIZE_BYTES_MAX,
        });
    }
    Ok(())
}

pub(super) fn check_session_id(size_bytes: usize) -> Result<(), BusRefusal> {
    if size_bytes > SESSION_ID_SIZE_BYTES_MAX {
        return Err(BusRefusal::SessionIdTooLong {
            size_bytes: size_bytes as u64,
            limit_bytes: SESSION_ID_SIZE_BYTES_MAX as u64,
        });
    }
    Ok(())
}

/// Dead letters carry the name of their queue, and what moves has room for so much.
pub(super) fn check_name(name: &str) -> Result<(), BusRefusal> {
    RangedOption::NameLength.check(name.len() as u64)?;
    Ok(())
}
