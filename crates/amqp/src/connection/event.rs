//! The events of a connection, and the names of its parts.

use bytes::Bytes;

use super::slab::Key;
use crate::codec::{Map, Symbol, Text};
use crate::error::Error;
use crate::performative::{Attach, DeliveryState, Open, Tag, TransactionalState};

/// A session of a connection. The id is never reused, even if its channel is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionId(pub(crate) Key);

impl SessionId {
    /// The range of its links' ids, for maps with links as keys.
    pub fn links(self) -> std::ops::RangeInclusive<LinkId> {
        let [first, last] = [Key::FIRST, Key::LAST].map(|key| LinkId { session: self, key });
        first..=last
    }
}

/// A link of a connection. Never names another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LinkId {
    pub(crate) session: SessionId,
    pub(crate) key: Key,
}

impl LinkId {
    /// The session that it is part of.
    pub fn session(self) -> SessionId {
        self.session
    }
}

/// The direction of a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Direction {
    /// From the peer.
    Incoming,
    /// To the peer.
    Outgoing,
}

/// An unsettled delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeliveryId {
    pub(crate) session: SessionId,
    pub(crate) direction: Direction,
    pub(crate) id: u32,
}

impl DeliveryId {
    /// The direction of the delivery.
    pub fn direction(self) -> Direction {
        self.direction
    }
}

/// Which side did something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// The peer, which was answered.
    Peer,
    /// This connection, because its caller asked or because the peer broke a rule.
    Us,
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A client names its mechanism. Answer with `sasl_outcome` or `sasl_challenge`; until then
    /// nothing more is read.
    SaslInit {
        /// One of the offered mechanisms.
        mechanism: Symbol,
        /// The client's first response.
        response: Option<Bytes>,
        /// The host that the client names.
        hostname: Option<Text>,
    },
    /// A client answers a challenge. Answer like `SaslInit`.
    SaslResponse {
        /// The client's response.
        response: Bytes,
    },
    /// A server asks. Answer with `sasl_response`.
    SaslChallenge {
        /// The server's challenge.
        challenge: Bytes,
    },
    /// The peer's open. It was answered.
    Opened(Box<Open>),
    /// A session has begun: the peer's, which was answered, or one of ours that the peer answered.
    Begun {
        /// Which.
        session: SessionId,
        /// The peer's properties for it.
        properties: Option<Map>,
    },
    /// A session has ended, with all its links. Comes once for each session.
    Ended {
        /// Which.
        session: SessionId,
        /// Which side ended it.
        by: By,
        /// The error, if the other side did not ask for it.
        error: Option<Error>,
    },
    /// The peer attaches a link. Answer with `accept` or `refuse`, now or later.
    Attach {
        /// Which.
        link: LinkId,
        /// The peer's attach.
        attach: Box<Attach>,
    },
    /// The peer has answered an attach of ours. Without the terminus of its side the answer is a
    /// refusal, and `Detached` follows.
    Attached {
        /// Which.
        link: LinkId,
        /// The answer.
        attach: Box<Attach>,
    },
    /// A link is detached. Comes once for each link, but not if its session or connection ended,
    /// nor for a refused link.
    Detached {
        /// Which.
        link: LinkId,
        /// Which side detached it.
        by: By,
        /// Whether it was for good.
        is_closed: bool,
        /// The error, if the other side did not ask for it.
        error: Option<Error>,
    },
    /// The credit of a link that sends has changed.
    Credit {
        /// Which.
        link: LinkId,
        /// How many deliveries may go out.
        credit: u32,
        /// The peer wants unused credit back: send the messages that are available, then call
        /// `drained`.
        is_drain: bool,
        /// Other properties that the peer sent.
        properties: Option<Map>,
    },
    /// The peer's sender reports its state.
    Available {
        /// Which.
        link: LinkId,
        /// How many deliveries wait there, if the sender reports it.
        available: Option<u32>,
        /// Other properties that the peer sent.
        properties: Option<Map>,
    },
    /// A drain of ours is done: the peer has returned the unused credit.
    Drained {
        /// Which.
        link: LinkId,
    },
    /// A message arrived.
    Delivery(Delivery),
    /// A message arrived that is larger than its link allows, and was discarded. It used credit.
    /// Settle it, for example with a rejection; the link stays attached.
    Oversized(Oversized),
    /// The peer reports the state of a delivery.
    Disposition {
        /// The delivery. If it is settled now, its id is no longer valid.
        delivery: DeliveryId,
        /// The link of the delivery.
        link: LinkId,
        /// Its tag.
        tag: Tag,
        /// Whether the peer has settled it. If not, answer with `settle`.
        is_settled: bool,
        /// Its state. For an unsettled delivery it is an outcome, or part of a transaction, and
        /// comes once: an outcome does not change.
        state: Option<DeliveryState>,
    },
    /// The peer names deliveries as part of a transaction, and some of them are unknown or settled.
    /// The peer may still count them as part of it.
    Unmatched {
        /// The state that the peer sent.
        state: TransactionalState,
    },
    /// A session that could not take a message can take one again.
    Writable {
        /// Which.
        session: SessionId,
    },
    /// The connection has ended, with all sessions and links. Comes once, as the last event. The
    /// output that remains is in `take_output`.
    Closed {
        /// Which side ended it.
        by: By,
        /// The error, if the other side did not ask for it.
        error: Option<Error>,
    },
}

/// A complete message that arrived.
#[derive(Clone, Debug, PartialEq)]
pub struct Delivery {
    /// The link that it arrived on.
    pub link: LinkId,
    /// Its name until it is settled.
    pub delivery: DeliveryId,
    /// Its tag.
    pub tag: Tag,
    /// The format of the payload.
    pub message_format: u32,
    /// Whether the peer wants no answer.
    pub is_settled: bool,
    /// Its state at the sender: that of a transaction.
    pub state: Option<DeliveryState>,
    /// The message. It shares the buffer of the input: copy it if you keep it for long.
    pub payload: Bytes,
}

/// A message that arrived and is larger than its link allows.
#[derive(Clone, Debug, PartialEq)]
pub struct Oversized {
    /// The link that it arrived on.
    pub link: LinkId,
    /// Its id until it is settled. If the peer has settled it already, there is nothing to settle.
    pub delivery: DeliveryId,
    /// Its state at the sender: that of a transaction.
    pub state: Option<DeliveryState>,
    /// Its size and the allowed size, in the words of Service Bus.
    pub error: Error,
}

/// Why a message was not sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendRefusal {
    /// The link does not exist, or is not a sender.
    #[error("the link does not exist any more, or cannot send")]
    NoLink,
    /// The peer has given no credit.
    #[error("the link has no credit")]
    NoCredit,
    /// The session's window is closed, another message is still being sent, or the output is full.
    /// `Event::Writable` reports when that has changed.
    #[error("the session cannot send a message now")]
    Blocked,
    /// The number of unsettled deliveries has reached its limit. `Event::Writable` reports when there are fewer.
    #[error("{0} deliveries of the session are unsettled, which is the maximum")]
    Unsettled(usize),
    /// The peer does not accept messages of this size.
    #[error("a message of {size} bytes is above the peer's maximum of {limit} bytes")]
    TooLarge {
        /// Of the message, in bytes.
        size: u64,
        /// The peer's, in bytes.
        limit: u64,
    },
}

impl SendRefusal {
    /// Whether it is the session that cannot take a message now: another of its links may make room.
    pub fn is_of_session(&self) -> bool {
        match self {
            Self::Blocked | Self::Unsettled(_) => true,
            Self::NoLink | Self::NoCredit | Self::TooLarge { .. } => false,
        }
    }
}
