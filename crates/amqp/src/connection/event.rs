//! What a connection tells its caller, and the names of things in it.

use bytes::Bytes;

use super::slab::Key;
use crate::codec::{Map, Symbol, Text};
use crate::error::Error;
use crate::performative::{Attach, DeliveryState, Open, Tag, TransactionalState};

/// A session of a connection. Never names another one, also when its channel is used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionId(pub(crate) Key);

impl SessionId {
    /// Between which names those of its links lie, for whoever keeps things by link.
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

/// Which way a delivery goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Direction {
    /// From the peer.
    Incoming,
    /// To the peer.
    Outgoing,
}

/// A delivery that is not settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeliveryId {
    pub(crate) session: SessionId,
    pub(crate) direction: Direction,
    pub(crate) id: u32,
}

impl DeliveryId {
    /// Which way it goes.
    pub fn direction(self) -> Direction {
        self.direction
    }
}

/// Who did something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// The peer, which was answered.
    Peer,
    /// This connection, on its caller's word or because the peer broke a rule.
    Us,
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A client says who it is. Answer with `sasl_outcome` or `sasl_challenge`; until then nothing
    /// more is read.
    SaslInit {
        /// One of those that were offered.
        mechanism: Symbol,
        /// What it says first.
        response: Option<Bytes>,
        /// The host that it speaks to.
        hostname: Option<Text>,
    },
    /// A client answers a challenge. Answer like `SaslInit`.
    SaslResponse {
        /// What it says.
        response: Bytes,
    },
    /// A server asks. Answer with `sasl_response`.
    SaslChallenge {
        /// What it asks.
        challenge: Bytes,
    },
    /// The peer's open. It was answered.
    Opened(Box<Open>),
    /// A session is there: the peer's, which was answered, or one of ours that was.
    Begun {
        /// Which.
        session: SessionId,
        /// What the peer says of it.
        properties: Option<Map>,
    },
    /// A session and all its links are gone. Comes once for each session.
    Ended {
        /// Which.
        session: SessionId,
        /// Whose doing it is.
        by: By,
        /// Why, if not as asked.
        error: Option<Error>,
    },
    /// The peer attaches a link. Answer with `accept` or `refuse`, now or later.
    Attach {
        /// Which.
        link: LinkId,
        /// What it asks for.
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
    /// A link is gone. Comes once for each link, except with its session or connection, and not
    /// for one that was refused.
    Detached {
        /// Which.
        link: LinkId,
        /// Whose doing it is.
        by: By,
        /// Whether it was for good.
        is_closed: bool,
        /// Why, if not as asked.
        error: Option<Error>,
    },
    /// The credit of a link that sends has changed.
    Credit {
        /// Which.
        link: LinkId,
        /// How many deliveries may go out.
        credit: u32,
        /// The rest is to be given back: send what is there, then call `drained`.
        is_drain: bool,
        /// What else the peer says.
        properties: Option<Map>,
    },
    /// The peer's sender tells of itself.
    Available {
        /// Which.
        link: LinkId,
        /// How many deliveries wait there, if it says.
        available: Option<u32>,
        /// What else it says.
        properties: Option<Map>,
    },
    /// A drain of ours is done: the peer has given back what was left.
    Drained {
        /// Which.
        link: LinkId,
    },
    /// A message came in.
    Delivery(Delivery),
    /// A message came in that is larger than its link takes, and was thrown away. It took credit.
    /// Settle it, with a rejection for example; the link goes on.
    Oversized(Oversized),
    /// The peer tells of a delivery.
    Disposition {
        /// Which. If it is settled now, it can no longer be named.
        delivery: DeliveryId,
        /// The link that it went over.
        link: LinkId,
        /// Its tag.
        tag: Tag,
        /// Whether the peer has forgotten it. If not, answer with `settle`.
        is_settled: bool,
        /// Its state. Of one that is not settled it is an outcome, or part of a transaction, and comes once: an
        /// outcome does not change.
        state: Option<DeliveryState>,
    },
    /// The peer tells of deliveries as part of a transaction, and not all of them are known (any more).
    /// It may take them for part of it all the same.
    Unmatched {
        /// What it tells.
        state: TransactionalState,
    },
    /// A session that could not take a message can take one again.
    Writable {
        /// Which.
        session: SessionId,
    },
    /// The connection is at its end, with all sessions and links. Comes once, and last. What is
    /// still to be sent is in `take_output`.
    Closed {
        /// Whose doing it is.
        by: By,
        /// Why, if not as asked.
        error: Option<Error>,
    },
}

/// A message that came in, whole.
#[derive(Clone, Debug, PartialEq)]
pub struct Delivery {
    /// The link that it came over.
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
    /// The message. It shares the buffer of the input: keep a copy of what you keep for long.
    pub payload: Bytes,
}

/// A message that came in and is larger than its link takes.
#[derive(Clone, Debug, PartialEq)]
pub struct Oversized {
    /// The link that it came over.
    pub link: LinkId,
    /// Its name until it is settled. If the peer has settled it already, there is nothing to settle.
    pub delivery: DeliveryId,
    /// Its state at the sender: that of a transaction.
    pub state: Option<DeliveryState>,
    /// How large it is, and how large it may be, in the words of Service Bus.
    pub error: Error,
}

/// Why a message was not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendRefusal {
    /// There is no such link, or it does not send.
    #[error("the link is gone or does not send")]
    NoLink,
    /// The peer has given no credit.
    #[error("the link has no credit")]
    NoCredit,
    /// The session's window is closed, a message is still on its way out, or the output is full.
    /// `Event::Writable` tells when that has changed.
    #[error("the session can take no message now")]
    Blocked,
    /// As many deliveries are unsettled as there may be.
    #[error("{0} deliveries of the session are unsettled, no more are allowed")]
    Unsettled(usize),
    /// The peer does not take messages of this size.
    #[error("a message of {size} bytes is above the peer's maximum of {limit}")]
    TooLarge {
        /// Of the message, in bytes.
        size: u64,
        /// The peer's, in bytes.
        limit: u64,
    },
}
