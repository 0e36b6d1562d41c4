//! Events about bus queues, before they carried their results.

mod upgrade;

use crate::bus::event::codec::{cause, options};
use crate::bus::{BusQueueOptions, DeadLetterCause, Release};
use crate::vocabulary::codec::{DecodeError, Reader, optional};
use crate::vocabulary::elements::{incarnation, location, sequence_number, time};
use crate::vocabulary::{BodyLocation, Incarnation, Place, SequenceNumber, Timestamp};

pub(super) mod kind {
    pub(in crate::migrate) const QUEUE_UPDATED: u8 = 65;
    pub(in crate::migrate) const SENT: u8 = 67;
    pub(in crate::migrate) const ACTIVATED: u8 = 68;
    pub(in crate::migrate) const LOCKED: u8 = 69;
    pub(in crate::migrate) const LOCK_RENEWED: u8 = 70;
    pub(in crate::migrate) const RELEASED: u8 = 71;
    pub(in crate::migrate) const REMOVED: u8 = 72;
    pub(in crate::migrate) const MOVED: u8 = 73;
    pub(in crate::migrate) const SESSION_LOCKED: u8 = 74;
    pub(in crate::migrate) const SESSION_RELEASED: u8 = 76;
    pub(in crate::migrate) const SESSION_STATE_SET: u8 = 77;
    pub(in crate::migrate) const RESUBMITTED: u8 = 80;
}

/// A message that came into a queue, as old events have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OldArrival {
    pub(super) to: Place,
    pub(super) expires_at: Timestamp,
    /// [`Timestamp::ZERO`] if it was ready.
    pub(super) scheduled_at: Timestamp,
    pub(super) session: Option<Box<str>>,
    pub(super) id_hash: Option<u128>,
    pub(super) body: BodyLocation,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum OldFact {
    /// Ids beyond the window before were dropped.
    QueueUpdated {
        queue: Incarnation,
        options: BusQueueOptions,
    },
    /// A session began if there was none of that id.
    Sent(OldArrival),
    /// A scheduled message got a new number.
    Activated {
        at: Place,
        number: SequenceNumber,
        expires_at: Timestamp,
    },
    /// One more lease generation.
    Locked {
        at: Place,
        until: Timestamp,
    },
    LockRenewed {
        at: Place,
        until: Timestamp,
    },
    Released {
        at: Place,
        release: Release,
        overlay: Option<BodyLocation>,
    },
    Removed {
        at: Place,
    },
    /// A message became a dead letter or, without a cause, was forwarded.
    Moved {
        at: Place,
        to: Place,
        cause: Option<DeadLetterCause>,
        overlay: Option<BodyLocation>,
    },
    /// One more lease generation. A session began if there was none of that id.
    SessionLocked {
        queue: Incarnation,
        session: Box<str>,
        until: Timestamp,
    },
    /// All messages of the session that were locked were released.
    SessionReleased {
        queue: Incarnation,
        session: Box<str>,
    },
    SessionStateSet {
        queue: Incarnation,
        session: Box<str>,
        state: Option<BodyLocation>,
    },
    /// A message was removed, and sent elsewhere as a new one.
    Resubmitted {
        at: Place,
        arrival: OldArrival,
    },
}

impl OldFact {
    /// Whether an event of this kind is one of these.
    pub(super) fn is_kind(kind: u8) -> bool {
        matches!(
            kind,
            kind::QUEUE_UPDATED | kind::SENT
                ..=kind::SESSION_LOCKED
                    | kind::SESSION_RELEASED
                    | kind::SESSION_STATE_SET
                    | kind::RESUBMITTED
        )
    }

    /// Reads the rest of an event.
    pub(super) fn decode(kind: u8, r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let queue = incarnation(r)?;
        let place = |r: &mut Reader<'_>| {
            let entity = queue;
            sequence_number(r).map(|number| Place { entity, number })
        };
        Ok(match kind {
            kind::QUEUE_UPDATED => Self::QueueUpdated {
                queue,
                options: options(r)?,
            },
            kind::SENT => Self::Sent(OldArrival {
                to: place(r)?,
                expires_at: time(r)?,
                scheduled_at: time(r)?,
                session: optional(r, |r| Ok(r.str()?.into()))?,
                id_hash: optional(r, |r| Ok(u128::from_be_bytes(r.array()?)))?,
                body: location(r)?,
            }),
            kind::ACTIVATED => Self::Activated {
                at: place(r)?,
                number: sequence_number(r)?,
                expires_at: time(r)?,
            },
            kind::LOCKED => Self::Locked {
                at: place(r)?,
                until: time(r)?,
            },
            kind::LOCK_RENEWED => Self::LockRenewed {
                at: place(r)?,
                until: time(r)?,
            },
            kind::RELEASED => Self::Released {
                at: place(r)?,
                release: release(r)?,
                overlay: optional(r, location)?,
            },
            kind::REMOVED => Self::Removed { at: place(r)? },
            kind::MOVED => Self::Moved {
                at: place(r)?,
                to: other_place(r)?,
                cause: optional(r, cause)?,
                overlay: optional(r, location)?,
            },
            kind::SESSION_LOCKED => Self::SessionLocked {
                queue,
                session: r.str()?.into(),
                until: time(r)?,
            },
            kind::SESSION_RELEASED => Self::SessionReleased {
                queue,
                session: r.str()?.into(),
            },
            kind::SESSION_STATE_SET => Self::SessionStateSet {
                queue,
                session: r.str()?.into(),
                state: optional(r, location)?,
            },
            kind::RESUBMITTED => Self::Resubmitted {
                at: place(r)?,
                arrival: OldArrival {
                    to: other_place(r)?,
                    expires_at: time(r)?,
                    scheduled_at: Timestamp::ZERO,
                    session: optional(r, |r| Ok(r.str()?.into()))?,
                    id_hash: optional(r, |r| Ok(u128::from_be_bytes(r.array()?)))?,
                    body: location(r)?,
                },
            },
            _ => return Err(r.error("event kind that is not known")),
        })
    }
}

fn other_place(r: &mut Reader<'_>) -> Result<Place, DecodeError> {
    Ok(Place {
        entity: incarnation(r)?,
        number: sequence_number(r)?,
    })
}

fn release(r: &mut Reader<'_>) -> Result<Release, DecodeError> {
    Ok(match r.u8()? {
        1 => Release::Failed,
        2 => Release::Unseen,
        3 => Release::Deferred,
        _ => return Err(r.error("release that is not known")),
    })
}
