//! The effects of an event on messages of either service.
//!
//! An effect carries absolute results, and says what the old message counted for. So each one concerns one
//! message, whole runs or one session, and can be applied without reading what it changes:
//! [`State::apply`](crate::State) asks only whether the message exists. What moves a message has two effects, of
//! which the first adds it in one place and the second ends it in the other. Both are in one event, because a
//! message must not be in two places or in none.
//!
//! Messages change through effects alone. What happens to a single message is the same in both services. Besides, each
//! has effects of its own ([`Effect::Own`]), in a type of its own: no effect on a storage queue can be about a session
//! or a topic, and none on a bus queue about a range. A profile writes its effects in bytes of its own.

mod many;

use std::sync::Arc;

pub use self::many::Effects;
use crate::table::{self, MessageState, Placed, Record, Side};
use crate::vocabulary::{
    BodyLocation, Incarnation, LeaseGeneration, Place, SequenceNumber, Timestamp,
};

/// A message's state, and until when it lasts if nothing happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// The state.
    pub state: MessageState,
    /// When the lease ends, the schedule is due or the time to live of a ready message is over;
    /// [`Timestamp::NEVER`] if nothing of that will be, or if the profile does not say.
    pub until: Timestamp,
}

impl Standing {
    /// A message that can be received until it expires.
    pub fn ready(expires_at: Timestamp) -> Self {
        Self {
            state: MessageState::Ready,
            until: expires_at,
        }
    }
}

impl Default for Standing {
    fn default() -> Self {
        Self::ready(Timestamp::NEVER)
    }
}

/// A message's lease from now on: all of its values, not their change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lease {
    /// The generation of the latest receipt or lock.
    pub generation: LeaseGeneration,
    /// How often the message was delivered, or how many deliveries have failed: the profile says which.
    pub deliveries: u32,
    /// The state. A ready message expires when that ends.
    pub standing: Standing,
}

/// What the old message counted for in the orders of its entity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Was {
    /// Its state, and its entry in the order by time.
    pub standing: Standing,
    /// The number of its session. 0 without one.
    pub session: u32,
}

/// The bytes of a message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bodies {
    /// The message as it was sent.
    pub sent: BodyLocation,
    /// Changes to its application properties, oldest first.
    pub overlays: Vec<BodyLocation>,
}

impl Bodies {
    /// The locations of all of them. An effect on a message that was not there has none.
    pub(crate) fn all(&self) -> impl Iterator<Item = BodyLocation> + '_ {
        let all = std::iter::once(self.sent).chain(self.overlays.iter().copied());
        all.filter(|it| it.is_of_a_body())
    }

    /// What a message with these bodies counts for.
    pub(crate) fn size_bytes(&self) -> u64 {
        table::size_bytes(self.sent, &self.overlays)
    }
}

/// A body that comes with a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewBody {
    /// In place of the old one.
    Other {
        /// The body from now on.
        body: Placed,
        /// The one that is no longer needed.
        was: BodyLocation,
    },
    /// One more change to the message's properties.
    Change(BodyLocation),
}

/// The message session of a message that comes into an entity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BusSession {
    /// The entity's number for it, above 0.
    pub number: u32,
    /// Its id.
    pub id: Box<str>,
}

/// The message session of a message, as its entity knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionOf<'a> {
    /// The entity's number for it, above 0.
    pub number: u32,
    /// Its id.
    pub id: &'a str,
}

impl BusSession {
    /// The same, as a message has it.
    pub(crate) fn as_of_message(&self) -> SessionOf<'_> {
        SessionOf {
            number: self.number,
            id: &self.id,
        }
    }
}

/// A message as it comes into an entity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// The message. It arrives at the time of the event. Its session's number is that of this entity, and 0 without one.
    pub record: Record,
    /// What few messages have; `None` if it has nothing of that. The copies of a message share it: a few bytes of an
    /// event are one of them.
    pub rest: Option<Arc<Rest>>,
}

/// What few messages have when they come into an entity. It is the same in each entity.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rest {
    /// What stays with the message.
    pub side: Side,
    /// The id of its session.
    pub session: Option<Box<str>>,
    /// The hash of its id, where duplicates are detected.
    pub id_hash: Option<u128>,
}

impl From<Record> for Arrival {
    fn from(record: Record) -> Self {
        Self { record, rest: None }
    }
}

impl Arrival {
    /// A message of a session, if it has one, with what few messages have. The session replaces those of the record and
    /// of `rest`.
    pub fn new(record: Record, session: Option<BusSession>, rest: Rest) -> Self {
        let (number, session) = session.map_or((0, None), |it| (it.number, Some(it.id)));
        let record = Record {
            session: number,
            ..record
        };
        Self::of(record, Rest { session, ..rest })
    }

    fn of(record: Record, rest: Rest) -> Self {
        let has_rest = rest != Rest::default();
        Self {
            record,
            rest: has_rest.then(|| Arc::new(rest)),
        }
    }

    /// Its session.
    pub fn session(&self) -> Option<SessionOf<'_>> {
        Some(SessionOf {
            number: self.record.session,
            id: self.rest.as_ref()?.session.as_deref()?,
        })
    }

    /// What stays with the message, and few messages have.
    pub fn side(&self) -> Option<&Side> {
        self.rest.as_ref().map(|rest| &rest.side)
    }

    /// Its number in the queue or topic that it was first sent to, if that is another one.
    pub fn first_number(&self) -> Option<SequenceNumber> {
        self.side()?.first_number
    }

    /// Changes to its application properties, oldest first.
    pub fn overlays(&self) -> &[BodyLocation] {
        self.side().map_or(&[], |side| &side.overlays)
    }

    /// The hash of its id, where duplicates are detected.
    pub fn id_hash(&self) -> Option<u128> {
        self.rest.as_ref()?.id_hash
    }

    /// The same with something else that few messages have, in the same session.
    #[must_use]
    pub fn with(self, change: impl FnOnce(&mut Rest)) -> Self {
        let mut rest = self.rest.map_or_else(Rest::default, Arc::unwrap_or_clone);
        change(&mut rest);
        Self::of(self.record, rest)
    }
}

/// What only one service has: an effect that is not about a single message, or a body that no message has.
pub trait Own {
    /// The entity that it is about.
    fn entity(&self) -> Incarnation;
}

/// An effect on a message, or one of the service's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect<O> {
    /// A message came into an entity, at the time of the event.
    Arrived {
        /// Its place.
        to: Place,
        /// The message.
        message: Arrival,
    },
    /// A message was handed to a receiver, or its lease was renewed or ended.
    Leased {
        /// Its place.
        at: Place,
        /// The lease from now on.
        lease: Lease,
        /// The body that comes with it, if there is one: few have that.
        body: Option<Box<NewBody>>,
        /// What the message counted for.
        was: Was,
    },
    /// A message is gone.
    Ended {
        /// Its place.
        at: Place,
        /// What the message counted for.
        was: Was,
        /// The bodies that are no longer needed here.
        bodies: Bodies,
        /// The length of the name that came with it as its source, if one did.
        source_length: Option<u32>,
    },
    /// One that only this service has.
    Own(O),
}

/// The first copy of a topic's message that is not made yet. Copies are made by subscription, oldest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct NextCopy {
    /// Its subscription. Those before it have all of theirs.
    pub subscription: Incarnation,
    /// The number of the rule whose action makes the copy. 0 is the copy without changes, which is the first one. A number
    /// above those of all rules is the dead letter of a failure, which is the last one.
    pub rule: u64,
}

impl<O> Effect<O> {
    /// The end of a message that is not there. It says that there was such a message, which a repair wants to know.
    pub(crate) fn missing_ended(at: Place) -> Self {
        Self::Ended {
            at,
            was: Was::default(),
            bodies: Bodies::default(),
            source_length: None,
        }
    }

    /// The lease of a message that is not there. Nothing takes its values.
    pub(crate) fn missing_leased(at: Place, lease: Lease, body: Option<Box<NewBody>>) -> Self {
        Self::Leased {
            at,
            lease,
            body,
            was: Was::default(),
        }
    }

    /// The message, if the effect concerns a single one.
    pub fn message(&self) -> Option<Place> {
        match self {
            Self::Arrived { to: at, .. } | Self::Leased { at, .. } | Self::Ended { at, .. } => {
                Some(*at)
            }
            Self::Own(_) => None,
        }
    }
}

impl<O: Own> Effect<O> {
    /// The entity that the effect changes.
    pub fn entity(&self) -> Incarnation {
        match self {
            Self::Arrived { to: at, .. } | Self::Leased { at, .. } | Self::Ended { at, .. } => {
                at.entity
            }
            Self::Own(own) => own.entity(),
        }
    }
}
