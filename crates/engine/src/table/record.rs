//! A message of either service as the table holds it.

use std::sync::Arc;

use crate::vocabulary::{BodyLocation, LeaseGeneration, SequenceNumber, Timestamp};

/// What every message counts for besides its bytes, in the usage of its storage account or in the size of its bus
/// queue: about the size of its entry in the queue and in the log. Without it a quota would not bound empty
/// messages.
pub const MESSAGE_OVERHEAD_BYTES: u64 = 128;

/// How to interpret a message's body when it is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyEncoding {
    /// UTF-8 text, shown as it is.
    Text,
    /// Bytes, shown as Base64: the form that the 2008 dialect of Queue Storage puts.
    Raw,
}

/// A body, and how to understand it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed {
    /// How to interpret it.
    pub encoding: BodyEncoding,
    /// Where it is.
    pub location: BodyLocation,
}

/// The state of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageState {
    /// It can be received.
    Ready,
    /// A receiver holds it.
    Locked {
        /// Whether it is deferred again when the lock ends.
        deferred: bool,
    },
    /// It becomes ready later.
    Scheduled,
    /// It can be received by its sequence number only.
    Deferred,
}

/// Why the engine made a message a dead letter.
///
/// Source: Service Bus, *Moving messages to the dead-letter queue*.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeadLetterCause {
    /// It was delivered too often.
    MaxDeliveryCountExceeded,
    /// Its time to live ended.
    Expired,
    /// It was forwarded too often.
    MaxTransferHopCountExceeded,
    /// It belongs to no session, and its queue requires one.
    SessionIdIsNull,
    /// The queue it should be forwarded to does not exist or does not accept it.
    DestinationUnavailable,
    /// Its receiver dead-lettered it, with a reason.
    ByReceiver,
    /// A rule of its subscription failed. A change to its properties says why.
    FilterFailed,
    /// Its bytes are not what was written, so its topic's rules could not look at it.
    BodyDamaged,
    /// It was sent via its queue to another one, which does not exist or did not accept it. A change to its properties says
    /// which one, and why.
    TransferFailed,
    /// The same, because it belongs to no session, and the other queue requires one.
    TransferNeedsSession,
}

/// A message without its number, which follows from its place, and without its bytes. What few messages have
/// is in [`Side`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// When it came into its entity.
    pub enqueued_at: Timestamp,
    /// When it expires.
    pub expires_at: Timestamp,
    /// When its state ends: the lease, the lock or the schedule. The profile says what it is in other states.
    pub due_at: Timestamp,
    /// Where its body is.
    pub body: BodyLocation,
    /// The generation of its latest lease.
    pub generation: LeaseGeneration,
    /// How often it was delivered, or how many deliveries have failed: the profile says which.
    pub deliveries: u32,
    /// The entity's number for its session. 0 without one.
    pub session: u32,
    /// Its state.
    pub state: MessageState,
    /// Why it is a dead letter, or was one.
    pub cause: Option<DeadLetterCause>,
    /// How to interpret its body.
    pub encoding: BodyEncoding,
    /// How often it was forwarded.
    pub hops: u8,
}

/// A million messages are resident at once, and this is most of what they take.
const _: () = assert!(size_of::<Record>() == 56);

impl Record {
    /// A message as it arrives, that can be received at once and never expires.
    pub fn ready(enqueued_at: Timestamp, body: BodyLocation) -> Self {
        Self {
            enqueued_at,
            expires_at: Timestamp::NEVER,
            due_at: Timestamp::NEVER,
            body,
            generation: LeaseGeneration::default(),
            deliveries: 0,
            session: 0,
            state: MessageState::Ready,
            cause: None,
            encoding: BodyEncoding::Text,
            hops: 0,
        }
    }

    /// Gives it a lease, and another body if there is one.
    pub(crate) fn lease(&mut self, leased: &Leased) {
        self.generation = leased.generation;
        self.deliveries = leased.deliveries;
        self.stand(leased.state, leased.until);
        if let Some(body) = leased.body {
            self.encoding = body.encoding;
            self.body = body.location;
        }
    }

    /// Gives it a state that lasts until then. For a ready message that is its expiry.
    pub(crate) fn stand(&mut self, state: MessageState, until: Timestamp) {
        self.state = state;
        self.due_at = Timestamp::NEVER;
        match state {
            MessageState::Ready => self.expires_at = until,
            MessageState::Locked { .. } | MessageState::Scheduled => self.due_at = until,
            MessageState::Deferred => {}
        }
    }
}

/// What a lease makes of a record: all of its values.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Leased {
    pub(crate) generation: LeaseGeneration,
    pub(crate) deliveries: u32,
    pub(crate) state: MessageState,
    /// When the state ends.
    pub(crate) until: Timestamp,
    /// The body from now on, if it is another one.
    pub(crate) body: Option<Placed>,
}

/// What few messages have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Side {
    /// Its number in the queue it was first sent to, if that is another one.
    pub first_number: Option<SequenceNumber>,
    /// The name of the queue that made it a dead letter, if it was forwarded since.
    pub source: Option<Arc<str>>,
    /// Changes to its application properties, oldest first.
    pub overlays: Vec<BodyLocation>,
}

impl Side {
    /// The length of its source's name, if it has a source.
    pub(crate) fn source_length(&self) -> Option<u32> {
        let source = self.source.as_ref()?;
        Some(u32::try_from(source.len()).unwrap_or(u32::MAX))
    }

    /// Whether there is more than a first number: a queue counts that.
    pub(super) fn is_special(&self) -> bool {
        self.source.is_some() || !self.overlays.is_empty()
    }

    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// What a message with this body and these changes counts for.
pub(crate) fn size_bytes(body: BodyLocation, overlays: &[BodyLocation]) -> u64 {
    let overlays: u64 = overlays.iter().map(|it| u64::from(it.length)).sum();
    MESSAGE_OVERHEAD_BYTES + u64::from(body.length) + overlays
}
