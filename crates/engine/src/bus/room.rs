//! How much one command may ask for, and how much one answer may hold.
//!
//! A partition makes room for a whole command before it decides it. So the size of a command bounds what it
//! can write, and these limits bound the size of a command.

use super::BusRefusal;
use super::message::Message;
use crate::describe::{EVENT_SIZE_BYTES, SMALL_EVENT_SIZE_BYTES};

/// The most messages, locks or numbers in one command.
pub const ITEMS_MAX: usize = 5000;

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

/// The most bytes of an event that removes a message in one place and adds it in another: as any event, and
/// a varint of 36 bits and one of 56.
pub(super) const RESUBMITTED_SIZE_BYTES: u64 = EVENT_SIZE_BYTES + 16;
/// The most bytes of an event that clears a session's state: it names the session, and no body.
pub(super) const STATE_CLEARED_SIZE_BYTES: u64 =
    SMALL_EVENT_SIZE_BYTES + SESSION_ID_SIZE_BYTES_MAX as u64;

/// The most bytes of one due thing. [`Turn::tick`](crate::Turn::tick) counts them.
pub const DUE_SIZE_BYTES_MAX: u64 = EVENT_SIZE_BYTES + SESSION_ID_SIZE_BYTES_MAX as u64;

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
    pub(crate) fn takes(&mut self, message: &Message) -> bool {
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
