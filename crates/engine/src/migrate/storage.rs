//! Events about messages of storage queues, before they carried their effects.

use crate::effect::{Lease, NewBody};
use crate::event::Fact;
use crate::state::State;
use crate::storage::message::{self, Message};
use crate::storage::{Effect, Effects, OwnEffect, StorageFact};
use crate::table::Placed;
use crate::table::codec::placed;
use crate::vocabulary::codec::{DecodeError, Reader, optional};
use crate::vocabulary::elements::{incarnation, sequence_number, time};
use crate::vocabulary::{
    BodyLocation, Incarnation, LeaseGeneration, Place, SequenceNumber, Timestamp,
};

pub(super) mod kind {
    pub(in crate::migrate) const MESSAGE_SENT: u8 = 5;
    pub(in crate::migrate) const MESSAGE_RECEIVED: u8 = 6;
    pub(in crate::migrate) const MESSAGE_UPDATED: u8 = 7;
    pub(in crate::migrate) const MESSAGE_DELETED: u8 = 8;
    pub(in crate::migrate) const QUEUE_CLEARED: u8 = 9;
    pub(in crate::migrate) const RUN_EXPIRED: u8 = 10;
}

/// How many sequence numbers a run had.
pub(super) const OLD_RUN_LENGTH: u64 = 128;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OldFact {
    MessageSent {
        at: Place,
        expires_at: Timestamp,
        visible_at: Timestamp,
        body: Placed,
    },
    /// One more delivery, and one more lease generation.
    MessageReceived {
        at: Place,
        visible_at: Timestamp,
    },
    /// One more lease generation.
    MessageUpdated {
        at: Place,
        visible_at: Timestamp,
        body: Option<Placed>,
    },
    MessageDeleted {
        at: Place,
    },
    /// Every message below `before` was deleted.
    QueueCleared {
        queue: Incarnation,
        before: SequenceNumber,
    },
    /// The messages of a run that had expired at the event's time were removed.
    RunExpired {
        queue: Incarnation,
        run: u64,
    },
}

impl OldFact {
    /// Whether an event of this kind is one of these.
    pub(super) fn is_kind(kind: u8) -> bool {
        (kind::MESSAGE_SENT..=kind::RUN_EXPIRED).contains(&kind)
    }

    /// Reads the rest of an event.
    pub(super) fn decode(kind: u8, r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(match kind {
            kind::MESSAGE_SENT => Self::MessageSent {
                at: place(r)?,
                expires_at: time(r)?,
                visible_at: time(r)?,
                body: placed(r)?,
            },
            kind::MESSAGE_RECEIVED => Self::MessageReceived {
                at: place(r)?,
                visible_at: time(r)?,
            },
            kind::MESSAGE_UPDATED => Self::MessageUpdated {
                at: place(r)?,
                visible_at: time(r)?,
                body: optional(r, placed)?,
            },
            kind::MESSAGE_DELETED => Self::MessageDeleted { at: place(r)? },
            kind::QUEUE_CLEARED => Self::QueueCleared {
                queue: incarnation(r)?,
                before: sequence_number(r)?,
            },
            kind::RUN_EXPIRED => Self::RunExpired {
                queue: incarnation(r)?,
                run: r.varint()?,
            },
            _ => return Err(r.error("event kind that is not known")),
        })
    }

    pub(super) fn upgrade(self, at: Timestamp, state: &State) -> Fact {
        let effects = match self {
            Self::MessageSent {
                at: to,
                expires_at,
                visible_at,
                body,
            } => arrived(state, at, to, expires_at, visible_at, body),
            Self::MessageReceived {
                at: place,
                visible_at,
            } => {
                let message = find(state, place);
                let lease = message.map_or_else(
                    || unknown_lease(visible_at),
                    |message| message.next_delivery(visible_at),
                );
                leased(message, place, lease, None).into()
            }
            Self::MessageUpdated {
                at: place,
                visible_at,
                body,
            } => {
                let message = find(state, place);
                let lease = message.map_or_else(
                    || unknown_lease(visible_at),
                    |message| message.next_lease(visible_at),
                );
                leased(message, place, lease, body).into()
            }
            Self::MessageDeleted { at: place } => match find(state, place) {
                Some(message) => message.ended(place).into(),
                None => Effect::missing_ended(place).into(),
            },
            Self::QueueCleared { queue, before } => cleared(state, queue, before),
            Self::RunExpired { queue, run } => expired(state, at, queue, run),
        };
        StorageFact::Messages { effects }.into()
    }
}

fn place(r: &mut Reader<'_>) -> Result<Place, DecodeError> {
    Ok(Place {
        entity: incarnation(r)?,
        number: sequence_number(r)?,
    })
}

fn find(state: &State, place: Place) -> Option<Message> {
    let entity = state.storage.get(&place.entity)?;
    entity.backlog.find(place.number)
}

/// A number that was used before meant nothing.
fn arrived(
    state: &State,
    at: Timestamp,
    to: Place,
    expires_at: Timestamp,
    visible_at: Timestamp,
    body: Placed,
) -> Effects {
    let entity = state.storage.get(&to.entity);
    if entity.is_some_and(|entity| to.number < entity.backlog.next()) {
        return Effects::default();
    }
    let due_at = (visible_at > at).then_some(visible_at);
    let message = Message::arrived(at, expires_at, due_at, body).into();
    Effect::Arrived { to, message }.into()
}

/// The lease of a message that is not there. Nothing takes its values.
fn unknown_lease(due_at: Timestamp) -> Lease {
    Lease {
        generation: LeaseGeneration::FIRST,
        deliveries: 0,
        standing: message::until(due_at),
    }
}

fn leased(message: Option<Message>, at: Place, lease: Lease, body: Option<Placed>) -> Effect {
    match message {
        Some(message) => message.leased(at, lease, body),
        None => {
            let was = BodyLocation::default();
            let body = body.map(|body| Box::new(NewBody::Other { body, was }));
            Effect::missing_leased(at, lease, body)
        }
    }
}

fn cleared(state: &State, queue: Incarnation, before: SequenceNumber) -> Effects {
    let backlog = state.storage.get(&queue).map(|entity| &entity.backlog);
    match backlog {
        // It was logged with the next number, so this is only for a log that was not written so.
        Some(backlog) if before < backlog.next() => backlog
            .messages()
            .take_while(|(number, _)| *number < before)
            .map(|(number, message)| {
                message.ended(Place {
                    entity: queue,
                    number,
                })
            })
            .collect(),
        Some(_) | None => Effect::Own(OwnEffect::RangeEnded {
            entity: queue,
            from: SequenceNumber::default(),
            until: before,
        })
        .into(),
    }
}

fn expired(state: &State, at: Timestamp, queue: Incarnation, run: u64) -> Effects {
    let backlog = state.storage.get(&queue).map(|entity| &entity.backlog);
    let messages = backlog.into_iter().flat_map(|backlog| {
        let from = run.saturating_mul(OLD_RUN_LENGTH);
        backlog.messages_between(from, from.saturating_add(OLD_RUN_LENGTH))
    });
    messages
        .filter(|(_, message)| message.is_expired(at))
        .map(|(number, message)| {
            message.ended(Place {
                entity: queue,
                number,
            })
        })
        .collect()
}
