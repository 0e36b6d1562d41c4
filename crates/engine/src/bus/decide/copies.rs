//! A copy of a message of a topic: the only place where one is made, at once or by due work.

use std::sync::Arc;

use bytes::Bytes;

use super::super::message::{Message, takes_overlay};
use super::super::queue::BusQueue;
use super::super::room::{COPIED_SIZE_BYTES, PLACE_SIZE_BYTES};
use super::super::{DeadLetterCause, Made, message};
use super::Turn;
use super::effects::place;
use crate::bus::Effect;
use crate::catalogue::description::{BODY_OVERHEAD_BYTES, EVENT_SIZE_BYTES};
use crate::effect::{Arrival, Rest};
use crate::table::{Record, Side};
use crate::vocabulary::{BodyLocation, Hold, Incarnation, SequenceNumber, Timestamp};

/// The end of the year 9999: the latest time that SDKs can read. What ends later does not end.
const LAST: Timestamp = Timestamp::from_ms(253_402_300_799_999);

/// What a subscription gets of a message.
#[derive(Clone, Debug)]
pub(super) enum Copy {
    /// The message as it was sent.
    Plain,
    /// The message with the changes of an action.
    Changed(Box<Made>),
    /// A dead letter because a rule failed, with a change that says why if there is room for one.
    Failed(Option<Bytes>),
}

impl Copy {
    /// The changes to the properties.
    pub(super) fn overlay(&self) -> Option<&Bytes> {
        match self {
            Self::Plain => None,
            Self::Changed(made) => Some(&made.overlay),
            Self::Failed(description) => description.as_ref(),
        }
    }

    /// The session that the copy belongs to, given that of the message.
    fn session<'a>(&'a self, original: Option<&'a str>) -> Option<&'a str> {
        match self {
            Self::Changed(made) => match &made.session {
                Some(changed) => changed.as_deref(),
                None => original,
            },
            Self::Plain | Self::Failed(_) => original,
        }
    }
}

/// A message of a topic, as its copies need it.
#[derive(Debug)]
pub(super) struct Original {
    /// When the topic accepted it.
    accepted_at: Timestamp,
    /// When its life ends: by its own time to live, and by that of the topic.
    expires_at: Timestamp,
    /// How often it was forwarded.
    hops: u8,
    /// Why it was a dead letter before it was forwarded.
    cause: Option<DeadLetterCause>,
    body: BodyLocation,
    session: Option<Box<str>>,
    /// What all copies have that change nothing.
    rest: Arc<Rest>,
}

impl Original {
    /// A message that took this number of its topic.
    pub(super) fn new(
        number: SequenceNumber,
        accepted_at: Timestamp,
        expires_at: Timestamp,
        body: BodyLocation,
        session: Option<Box<str>>,
    ) -> Self {
        let side = Side {
            first_number: Some(number),
            ..Side::default()
        };
        let rest = Rest {
            side,
            session: session.clone(),
            id_hash: None,
        };
        Self {
            accepted_at,
            expires_at,
            hops: 0,
            cause: None,
            body,
            session,
            rest: Arc::new(rest),
        }
    }

    /// A message that waits in its topic. One that was forwarded there keeps what it has.
    pub(super) fn waiting(message: &Message<'_>, session: Option<Box<str>>) -> Self {
        let rest = Rest {
            side: message.side(),
            session: session.clone(),
            id_hash: None,
        };
        Self {
            accepted_at: message.enqueued_at,
            expires_at: message.expires_at,
            hops: message.hops,
            cause: message.cause,
            body: message.body,
            session,
            rest: Arc::new(rest),
        }
    }

    /// What the message in the topic counts of its body, if that came from another entity.
    pub(super) fn hold_of_forwarded(&self) -> Option<Hold> {
        (self.hops > 0).then(|| self.body.hold())
    }

    /// The most bytes of what few messages have: the places of changes, and the name of a source.
    pub(super) fn side_size_bytes(&self) -> u64 {
        let Side {
            source, overlays, ..
        } = &self.rest.side;
        let source = source.as_ref().map_or(0, |it| it.len());
        overlays.len() as u64 * PLACE_SIZE_BYTES + source as u64
    }

    /// Whether a copy has room for one more change.
    pub(super) fn takes(&self, overlay: &Bytes) -> bool {
        takes_overlay(&self.rest.side.overlays, overlay)
    }

    /// The dead letter of a failure, without a description if there is no room for it.
    pub(super) fn fitting(&self, failed: Copy) -> Copy {
        match failed.overlay() {
            Some(overlay) if !self.takes(overlay) => Copy::Failed(None),
            Some(_) | None => failed,
        }
    }

    /// Its session.
    pub(super) fn session(&self) -> Option<&str> {
        self.session.as_deref()
    }
}

/// The most bytes of a batch that copies take which are made one after the other, with their changes.
#[derive(Clone, Debug, Default)]
pub(super) struct CopiesSize {
    pub(super) size_bytes: u64,
    /// The cause of the copy before, if it has no changes.
    before: Option<Option<DeadLetterCause>>,
    /// The most bytes of what each copy has that is written in full. With changes, each is.
    side_bytes: u64,
    has_changes: bool,
}

impl CopiesSize {
    /// Of a message that waits.
    pub(super) fn of(original: &Original) -> Self {
        Self {
            side_bytes: original.side_size_bytes(),
            has_changes: !original.rest.side.overlays.is_empty(),
            ..Self::default()
        }
    }

    /// The same with one more copy in a subscription.
    pub(super) fn with(
        &self,
        turn: &Turn<'_>,
        subscription: Incarnation,
        copy: &Copy,
        session: Option<&str>,
    ) -> Self {
        let cause = Turn::cause_of(turn.bus(subscription), copy, session);
        let overlay = copy.overlay().map(|it| it.len() as u64);
        let is_copied = overlay.is_none() && !self.has_changes && self.before == Some(cause);
        let own = match is_copied {
            true => COPIED_SIZE_BYTES,
            false => {
                let session = copy.session(session).map_or(0, str::len) as u64;
                EVENT_SIZE_BYTES + session + self.side_bytes
            }
        };
        let changes = overlay.map_or(0, |it| PLACE_SIZE_BYTES + BODY_OVERHEAD_BYTES + it);
        Self {
            size_bytes: self.size_bytes + own + changes,
            before: overlay.is_none().then_some(cause),
            ..*self
        }
    }

    /// Another message follows.
    pub(super) fn end_message(&mut self) {
        self.before = None;
    }
}

impl Turn<'_> {
    /// Why a copy is a dead letter, if it is one.
    ///
    /// Source: Service Bus, *Overview of dead-letter queues* (`Session id is null.`).
    fn cause_of(
        subscription: &BusQueue,
        copy: &Copy,
        session: Option<&str>,
    ) -> Option<DeadLetterCause> {
        match copy {
            Copy::Failed(_) => Some(DeadLetterCause::FilterFailed),
            Copy::Plain | Copy::Changed(_) => {
                let is_needed = subscription.requires_session();
                (is_needed && copy.session(session).is_none())
                    .then_some(DeadLetterCause::SessionIdIsNull)
            }
        }
    }

    /// When a message's life ends that comes into a topic now.
    pub(super) fn life_in_topic(
        &self,
        topic: Incarnation,
        from: Timestamp,
        own_ms: Option<u64>,
    ) -> Timestamp {
        let lives_ms = self.bus(topic).options.default_time_to_live_ms;
        from.plus_ms(own_ms.map_or(lives_ms, |own_ms| own_ms.min(lives_ms)))
    }

    /// Makes a copy. Returns whether it is a dead letter.
    ///
    /// Source: Service Bus, *Message expiration*.
    pub(super) fn copy(
        &mut self,
        topic: Incarnation,
        subscription: Incarnation,
        original: &Original,
        (copy, hold): (&Copy, Hold),
    ) -> bool {
        let now = self.now();
        let session = copy.session(original.session());
        let rest = match copy.overlay() {
            None => Arc::clone(&original.rest),
            Some(overlay) => {
                let mut rest = Rest::clone(&original.rest);
                rest.session = session.map(Into::into);
                rest.side.overlays.push(self.store_body(overlay));
                Arc::new(rest)
            }
        };
        let in_topic = match copy {
            Copy::Changed(made) => match made.time_to_live_ms {
                Some(own_ms) => self.life_in_topic(topic, original.accepted_at, own_ms),
                None => original.expires_at,
            },
            Copy::Plain | Copy::Failed(_) => original.expires_at,
        };
        // Ten copies of each message are usual: an entity is looked up once.
        let entity = self.bus(subscription);
        let cause = Self::cause_of(entity, copy, original.session());
        let lives_ms = entity.options.default_time_to_live_ms;
        let (to, backlog, expires_at) = match cause {
            // A dead letter does not expire.
            Some(_) => {
                let dead = subscription.next();
                (dead, self.bus_backlog(dead), Timestamp::NEVER)
            }
            None => {
                let expires_at = in_topic.min(now.plus_ms(lives_ms));
                (subscription, &entity.backlog, expires_at)
            }
        };
        let expires_at = match expires_at <= LAST {
            true => expires_at,
            false => Timestamp::NEVER,
        };
        let record = Record {
            session: session.map_or(0, |id| backlog.sessions.number_for(id)),
            cause: cause.or(original.cause),
            hops: original.hops,
            ..message::sent(now, expires_at, None, original.body.with(hold))
        };
        let to = place(to, backlog.next());
        let message = Arrival {
            record,
            rest: Some(rest),
        };
        self.emit_bus_effect(Effect::Arrived { to, message });
        cause.is_some()
    }
}
