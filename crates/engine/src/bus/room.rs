//! How much one command may ask for, and how many bytes of a batch it takes at most.
//!
//! The two belong together. A partition makes room for a whole command before it decides it. So the size of
//! the command bounds what it can write, and this file bounds the size of the command.

use std::collections::BTreeSet;

use bytes::Bytes;

use super::message::{Message, OVERLAYS_MAX};
use super::{
    BreakTarget, BusCommand, BusMessage, BusQueueOptions, BusRefusal, Disposition, Purge,
    ReceiveMode, Resubmission, SessionChoice, TransactionPart, TransactionTotals, TransactionWork,
};
use crate::EntityName;

/// The most messages, locks or numbers in one command.
pub const ITEMS_MAX: usize = 5000;

/// The most bytes of messages, or of changes to their properties, in one command.
///
/// Source: Service Bus quotas: a batch is at most 1 MB in every tier.
pub const BODIES_SIZE_BYTES_MAX: u64 = 1024 * 1024;

/// The most bytes of messages in one answer.
pub const ANSWER_SIZE_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// The longest id of a session, in bytes: 128 characters.
pub const SESSION_ID_SIZE_BYTES_MAX: usize = 512;

/// The most bytes of an event besides its texts: two varints of 56 bits, two of 36, two times, the location
/// of a body, a hash, and the batch's own tag and length.
const EVENT_SIZE_BYTES: u64 = 128;
/// The most bytes of an event with an effect that gives a message a lease: place, generation, deliveries, session
/// and two times. The place of a change to its properties takes [`PLACE_SIZE_BYTES`] more.
pub(crate) const LEASED_SIZE_BYTES: u64 = 64;
/// The most bytes of the same as one of many effects: without the event's header.
pub(crate) const RELEASED_SIZE_BYTES: u64 = 48;
/// The most bytes of a place in the log.
const PLACE_SIZE_BYTES: u64 = 14;
/// The most bytes of an effect that ends a message, without the changes to its properties.
const ENDED_SIZE_BYTES: u64 = 64;
/// The most bytes of an event that ends a message with as many changes as there can be.
pub(crate) const ENDED_SIZE_BYTES_MAX: u64 =
    ENDED_SIZE_BYTES + OVERLAYS_MAX as u64 * PLACE_SIZE_BYTES;
/// The room for each message of a command that takes as many as there is room for: it has a few changes.
const TAKEN_SIZE_BYTES: u64 = 96;
/// The most bytes of effects that add a message in one place and end it in another, besides changes to its
/// properties and texts.
const MOVED_SIZE_BYTES: u64 = 160;
/// The most bytes of an event that clears a session's state: it names the session and a place.
const STATE_CLEARED_SIZE_BYTES: u64 = 64 + SESSION_ID_SIZE_BYTES_MAX as u64;
/// The bytes that a batch adds to a body.
const BODY_OVERHEAD_BYTES: u64 = 16;

/// The most bytes of one due thing, for each unit of the budget that it takes.
/// [`Turn::tick`](crate::Turn::tick) counts them.
pub const DUE_SIZE_BYTES_MAX: u64 = MOVED_SIZE_BYTES + SESSION_ID_SIZE_BYTES_MAX as u64;

/// The most bytes of a message that moves with as many changes to its properties as there can be, and with the
/// longest session id and name of a queue. A due thing of that size takes two units.
const MOVED_SIZE_BYTES_MAX: u64 = 2 * DUE_SIZE_BYTES_MAX;

/// The most messages that a command releases with their session. Due work releases the others.
const RELEASED_AT_ONCE_MAX: usize = 1024;

/// How many messages a command releases with their session at most: few on a full disk.
pub(crate) fn released_at_once(due_budget: u32) -> usize {
    RELEASED_AT_ONCE_MAX.min(due_budget as usize * 16)
}

/// The most bytes of the effects that move a message, without the id of its session.
pub(crate) fn moved_size_bytes_max(message: &Message) -> u64 {
    let source = message.dead_letter_source.as_deref();
    let changes = message.overlays.len() as u64 * PLACE_SIZE_BYTES;
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

    /// Whether there is room for one more message.
    pub(crate) fn takes(&mut self, message: &Message) -> bool {
        let size_bytes = ENDED_SIZE_BYTES + message.overlays.len() as u64 * PLACE_SIZE_BYTES;
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

impl BusCommand {
    /// Refuses a command that asks for too much at once, in any state of the queue.
    pub(crate) fn check_size(&self) -> Result<(), BusRefusal> {
        match self {
            Self::Send { messages, .. } => {
                check_count(messages.len())?;
                check_session_id(longest(messages.iter().map(|it| &it.session)))?;
                check_bodies(messages.iter().map(|it| it.body.len() as u64).sum())
            }
            Self::Resubmit { resubmit, .. } => {
                let messages = &resubmit.messages;
                check_count(messages.len())?;
                check_session_id(longest(messages.iter().map(|it| &it.session)))?;
                check_bodies(messages.iter().map(|it| it.body.len() as u64).sum())
            }
            Self::Settle { settlements, .. } => {
                check_count(settlements.len())?;
                let overlays = settlements.iter().map(|(_, it)| it.overlay_size_bytes());
                check_bodies(overlays.sum())
            }
            Self::Transact { parts } => check_transaction(parts),
            Self::RenewLocks { locks, .. } => check_count(locks.len()),
            Self::CancelScheduled { numbers, .. } => check_count(numbers.len()),
            Self::ReceiveDeferred { read } => check_count(read.numbers.len()),
            Self::AcceptSession {
                session: SessionChoice::Named(id),
                ..
            }
            | Self::BreakLock {
                target: BreakTarget::Session(id),
                ..
            }
            | Self::ClearSessionStates { from: id, .. }
            | Self::ListSessions { from: id, .. } => check_session_id(id.len()),
            Self::AcceptSession {
                session: SessionChoice::Next,
                ..
            }
            | Self::BreakLock {
                target: BreakTarget::Message(_),
                ..
            }
            | Self::CreateQueue { .. }
            | Self::UpdateQueue { .. }
            | Self::DeleteQueue { .. }
            | Self::ReadQueue { .. }
            | Self::ListQueues { .. }
            | Self::Receive { .. }
            | Self::Peek { .. }
            | Self::ReadLocked { .. }
            | Self::RenewSession { .. }
            | Self::ReleaseSession { .. }
            | Self::ReadSessionState { .. }
            | Self::SetSessionState { .. }
            | Self::Purge { .. }
            | Self::TakeMessage { .. }
            | Self::DeleteMessage { .. }
            | Self::DeleteBatch { .. } => Ok(()),
        }
    }

    /// How many bytes of a batch the command takes at most, if at most `due_budget` due things in its queue
    /// are done first.
    pub fn size_bytes_max(&self, due_budget: u32) -> u64 {
        if self.check_size().is_err() {
            return 0;
        }
        let leased = |count: usize| count as u64 * LEASED_SIZE_BYTES;
        let taken = |count: usize| ENDED_SIZE_BYTES_MAX + count as u64 * TAKEN_SIZE_BYTES;
        let own = match self {
            Self::CreateQueue { queue, options } | Self::UpdateQueue { queue, options } => {
                queue_size_bytes(queue, options)
            }
            Self::Send { messages, .. } => messages.iter().map(message_size_bytes).sum(),
            Self::Receive {
                count,
                mode: ReceiveMode::PeekLock,
                ..
            } => leased(ITEMS_MAX.min(*count as usize)),
            Self::Receive { count, .. } | Self::DeleteBatch { count, .. } => {
                taken(ITEMS_MAX.min(*count as usize))
            }
            Self::Purge { purge, .. } if purge.is_dry_run => 0,
            Self::Purge { purge, .. } => taken(ITEMS_MAX.min(purge.count as usize)),
            Self::ClearSessionStates {
                is_dry_run: true, ..
            } => 0,
            Self::ClearSessionStates { count, .. } => {
                ITEMS_MAX.min(*count as usize) as u64 * STATE_CLEARED_SIZE_BYTES
            }
            Self::TakeMessage { .. } | Self::DeleteMessage { .. } => ENDED_SIZE_BYTES_MAX,
            Self::Resubmit { resubmit, .. } => {
                resubmit.messages.iter().map(resubmission_size_bytes).sum()
            }
            Self::Settle { settlements, .. } => {
                let each = settlements
                    .iter()
                    .map(|(_, disposition)| match disposition {
                        Disposition::Complete => TAKEN_SIZE_BYTES,
                        Disposition::Abandon { .. }
                        | Disposition::Defer { .. }
                        | Disposition::DeadLetter { .. }
                        | Disposition::Release => disposition.size_bytes_max(),
                    });
                ENDED_SIZE_BYTES_MAX + each.sum::<u64>()
            }
            Self::RenewLocks { locks, .. } => leased(locks.len()),
            // A scheduled message has no changes yet.
            Self::CancelScheduled { numbers, .. } => numbers.len() as u64 * ENDED_SIZE_BYTES,
            Self::ReceiveDeferred { read } => match read.mode {
                // A message that has expired is removed, and the command is refused.
                ReceiveMode::PeekLock => leased(read.numbers.len()) + MOVED_SIZE_BYTES_MAX,
                ReceiveMode::ReceiveAndDelete | ReceiveMode::DeleteOnceRead => {
                    read.numbers.len() as u64 * ENDED_SIZE_BYTES_MAX + MOVED_SIZE_BYTES_MAX
                }
            },
            Self::AcceptSession { .. } | Self::RenewSession { .. } => DUE_SIZE_BYTES_MAX,
            Self::BreakLock { .. } | Self::ReleaseSession { .. } => {
                DUE_SIZE_BYTES_MAX + released_at_once(due_budget) as u64 * RELEASED_SIZE_BYTES
            }
            Self::SetSessionState { state, .. } => {
                let size_bytes = state.as_ref().map_or(0, Bytes::len);
                DUE_SIZE_BYTES_MAX + BODY_OVERHEAD_BYTES + size_bytes as u64
            }
            Self::DeleteQueue { .. } => EVENT_SIZE_BYTES,
            Self::Transact { parts } => {
                // An event for the use of each queue, and at least one due thing in each.
                let queues: BTreeSet<_> = parts.iter().map(|part| &part.queue).collect();
                let used = queues.len() as u64 * (EVENT_SIZE_BYTES + DUE_SIZE_BYTES_MAX);
                used + parts
                    .iter()
                    .map(|part| work_size_bytes(&part.work))
                    .sum::<u64>()
            }
            Self::ReadQueue { .. }
            | Self::ListQueues { .. }
            | Self::Peek { .. }
            | Self::ReadLocked { .. }
            | Self::ReadSessionState { .. }
            | Self::ListSessions { .. } => 0,
        };
        // The event for the use of the queue counts as one more due thing.
        own + u64::from(due_budget + due_budget.min(1)) * DUE_SIZE_BYTES_MAX
    }

    /// Limits the number of messages that a command asks for.
    pub fn limit_count(&mut self, count: u32) {
        match self {
            Self::Receive { count: asked, .. }
            | Self::DeleteBatch { count: asked, .. }
            | Self::ClearSessionStates { count: asked, .. }
            | Self::Purge {
                purge: Purge { count: asked, .. },
                ..
            } => *asked = count.min(*asked),
            Self::CreateQueue { .. }
            | Self::UpdateQueue { .. }
            | Self::DeleteQueue { .. }
            | Self::ReadQueue { .. }
            | Self::ListQueues { .. }
            | Self::Send { .. }
            | Self::Settle { .. }
            | Self::RenewLocks { .. }
            | Self::Peek { .. }
            | Self::ReadLocked { .. }
            | Self::CancelScheduled { .. }
            | Self::ReceiveDeferred { .. }
            | Self::AcceptSession { .. }
            | Self::RenewSession { .. }
            | Self::ReleaseSession { .. }
            | Self::ReadSessionState { .. }
            | Self::SetSessionState { .. }
            | Self::ListSessions { .. }
            | Self::TakeMessage { .. }
            | Self::DeleteMessage { .. }
            | Self::BreakLock { .. }
            | Self::Resubmit { .. }
            | Self::Transact { .. } => {}
        }
    }
}

impl Disposition {
    fn size_bytes_max(&self) -> u64 {
        match self {
            Self::Complete => ENDED_SIZE_BYTES_MAX,
            Self::Release => LEASED_SIZE_BYTES,
            Self::Defer { .. } => {
                LEASED_SIZE_BYTES
                    + PLACE_SIZE_BYTES
                    + BODY_OVERHEAD_BYTES
                    + self.overlay_size_bytes()
            }
            // The message may become a dead letter.
            Self::Abandon { .. } | Self::DeadLetter { .. } => {
                MOVED_SIZE_BYTES_MAX + BODY_OVERHEAD_BYTES + self.overlay_size_bytes()
            }
        }
    }

    /// The bytes of the change to its message's properties.
    pub fn overlay_size_bytes(&self) -> u64 {
        match self {
            Self::Abandon { overlay } | Self::Defer { overlay } | Self::DeadLetter { overlay } => {
                overlay.as_ref().map_or(0, Bytes::len) as u64
            }
            Self::Complete | Self::Release => 0,
        }
    }
}

/// The length of the longest of these ids.
fn longest<'a>(sessions: impl Iterator<Item = &'a Option<Box<str>>>) -> usize {
    let lengths = sessions.map(|id| id.as_deref().map_or(0, str::len));
    lengths.max().unwrap_or(0)
}

fn check_count(count: usize) -> Result<(), BusRefusal> {
    if count > ITEMS_MAX {
        return Err(BusRefusal::TooMany {
            count: count as u64,
            limit: ITEMS_MAX as u64,
        });
    }
    Ok(())
}

/// Checks the bytes of all messages of a command, or of all changes to their properties.
fn check_bodies(size_bytes: u64) -> Result<(), BusRefusal> {
    if size_bytes > BODIES_SIZE_BYTES_MAX {
        return Err(BusRefusal::MessageTooLarge {
            size_bytes,
            limit_bytes: BODIES_SIZE_BYTES_MAX,
        });
    }
    Ok(())
}

fn check_session_id(size_bytes: usize) -> Result<(), BusRefusal> {
    if size_bytes > SESSION_ID_SIZE_BYTES_MAX {
        return Err(BusRefusal::SessionIdTooLong {
            size_bytes: size_bytes as u64,
            limit_bytes: SESSION_ID_SIZE_BYTES_MAX as u64,
        });
    }
    Ok(())
}

fn check_transaction(parts: &[TransactionPart]) -> Result<(), BusRefusal> {
    let mut totals = TransactionTotals::default();
    for part in parts {
        totals = totals.with(&part.work);
    }
    totals.check()?;
    for part in parts {
        if let TransactionWork::Send(messages) = &part.work {
            check_session_id(longest(messages.iter().map(|it| &it.session)))?;
        }
    }
    Ok(())
}

fn work_size_bytes(work: &TransactionWork) -> u64 {
    match work {
        TransactionWork::Send(messages) => messages.iter().map(message_size_bytes).sum(),
        TransactionWork::Settle(_, disposition) => disposition.size_bytes_max(),
        TransactionWork::CancelScheduled(numbers) => numbers.len() as u64 * ENDED_SIZE_BYTES,
    }
}

fn message_size_bytes(message: &BusMessage) -> u64 {
    let session = message.session.as_deref().map_or(0, str::len);
    EVENT_SIZE_BYTES + BODY_OVERHEAD_BYTES + (session + message.body.len()) as u64
}

fn resubmission_size_bytes(message: &Resubmission) -> u64 {
    let session = message.session.as_deref().map_or(0, str::len);
    EVENT_SIZE_BYTES
        + ENDED_SIZE_BYTES_MAX
        + BODY_OVERHEAD_BYTES
        + (session + message.body.len()) as u64
}

fn queue_size_bytes(queue: &EntityName, options: &BusQueueOptions) -> u64 {
    if options.check().is_err() {
        return 0;
    }
    let destinations = [&options.forward_to, &options.forward_dead_letters_to];
    let destinations = destinations.into_iter().flatten().map(|name| name.len());
    let texts = queue.account.len() + queue.name.len() + destinations.sum::<usize>();
    2 * EVENT_SIZE_BYTES + (texts + options.description.len()) as u64
}
