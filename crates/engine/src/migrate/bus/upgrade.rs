//! What old events about bus queues are in this version.

use super::{OldArrival, OldFact};
use crate::bus::effect::{BusArrival, BusLease, BusSession, BusWas, Standing};
use crate::bus::{
    BusBodies, BusEffect, BusFact, BusMessageState, BusQueue, DeadLetterCause, Message, Release,
    Role,
};
use crate::event::Fact;
use crate::state::State;
use crate::vocabulary::{
    BodyLocation, Incarnation, LeaseGeneration, Place, SequenceNumber, Timestamp,
};

impl OldFact {
    pub(in crate::migrate) fn upgrade(self, at: Timestamp, state: &State) -> Fact {
        match self {
            Self::QueueUpdated { queue, options } => {
                let entity = state.bus.get(&queue);
                let ids_from = entity.map(|entity| entity.ids_from(&options, at));
                Fact::Bus(BusFact::QueueUpdated {
                    queue,
                    options,
                    ids_from: ids_from.unwrap_or_default(),
                })
            }
            Self::Sent(arrival) => {
                let entity = state.bus.get(&arrival.to.entity);
                let queue = arrival.to.entity;
                // A number that was used before meant nothing.
                if entity.is_some_and(|it| arrival.to.number < it.backlog.next()) {
                    return Fact::Bus(BusFact::Used { queue });
                }
                effects(vec![arrived(state, arrival)])
            }
            Self::Activated {
                at,
                number,
                expires_at,
            } => activated(state, at, number, expires_at),
            Self::Locked { at, until } => leased(state, at, None, |it| it.locked(until)),
            Self::LockRenewed { at, until } => renewed(state, at, until),
            Self::Released {
                at,
                release,
                overlay,
            } => leased(state, at, overlay, |it| it.released(release)),
            Self::Removed { at } => effects(vec![ended(state, at)]),
            Self::Moved {
                at,
                to,
                cause,
                overlay,
            } => moved(state, at, to, cause, overlay),
            Self::SessionLocked {
                queue,
                session,
                until,
            } => {
                let known = state.bus.get(&queue);
                let known = known.and_then(|entity| entity.backlog.sessions.find(&session));
                let before = known.map_or(LeaseGeneration::default(), |(_, it)| it.generation);
                Fact::Bus(BusFact::SessionLocked {
                    queue,
                    session: session_named(state, queue, session),
                    generation: before.next(),
                    until,
                })
            }
            Self::SessionReleased { queue, session } => session_released(state, queue, session),
            Self::SessionStateSet {
                queue,
                session,
                state: location,
            } => {
                let known = state.bus.get(&queue);
                let known = known.and_then(|entity| entity.backlog.sessions.find(&session));
                Fact::Bus(BusFact::SessionStateSet {
                    queue,
                    was: known.and_then(|(_, session)| session.state),
                    session: session_named(state, queue, session),
                    state: location,
                })
            }
            Self::Resubmitted { at, arrival } => {
                if !state.bus.contains_key(&arrival.to.entity) {
                    return effects(Vec::new());
                }
                effects(vec![arrived(state, arrival), ended(state, at)])
            }
        }
    }
}

fn effects(effects: Vec<BusEffect>) -> Fact {
    BusFact::Messages { effects }.into()
}

fn find(state: &State, at: Place) -> Option<(&BusQueue, Message<'_>)> {
    let entity = state.bus.get(&at.entity)?;
    Some((entity, entity.backlog.get(at.number)?))
}

/// The session's number in an entity: its own, or the next one.
fn session_named(state: &State, queue: Incarnation, id: Box<str>) -> BusSession {
    match state.bus.get(&queue) {
        Some(entity) => entity.backlog.sessions.named(&id),
        None => BusSession { number: 1, id },
    }
}

fn arrived(state: &State, old: OldArrival) -> BusEffect {
    let is_scheduled = old.scheduled_at != Timestamp::ZERO;
    let queue = old.to.entity;
    let session = old.session.map(|id| session_named(state, queue, id));
    BusEffect::Arrived {
        to: old.to,
        message: Box::new(BusArrival {
            scheduled_at: is_scheduled.then_some(old.scheduled_at),
            session,
            id_hash: old.id_hash,
            ..BusArrival::sent(old.expires_at, old.body)
        }),
    }
}

fn ended(state: &State, at: Place) -> BusEffect {
    match find(state, at) {
        Some((_, message)) => message.ended(at),
        None => missing_ended(at),
    }
}

/// The end of a message that is not there. It says that there was such a message, which a repair wants to know.
fn missing_ended(at: Place) -> BusEffect {
    BusEffect::Ended {
        at,
        was: BusWas::default(),
        bodies: BusBodies {
            sent: BodyLocation {
                record: 0,
                offset: 0,
                length: 0,
            },
            overlays: Vec::new(),
        },
        source_length: None,
    }
}

/// The lease of a message that is not there. Nothing takes its values.
fn missing_leased(at: Place) -> BusEffect {
    BusEffect::Leased {
        at,
        lease: BusLease {
            generation: LeaseGeneration::default(),
            deliveries: 0,
            standing: Standing::default(),
        },
        overlay: None,
        was: BusWas::default(),
    }
}

fn leased(
    state: &State,
    at: Place,
    overlay: Option<BodyLocation>,
    lease: impl FnOnce(&Message<'_>) -> BusLease,
) -> Fact {
    effects(vec![match find(state, at) {
        Some((_, message)) => message.leased(at, lease(&message), overlay),
        None => missing_leased(at),
    }])
}

/// Only a lock could be renewed.
fn renewed(state: &State, at: Place, until: Timestamp) -> Fact {
    let message = find(state, at).map(|(_, message)| message.state);
    match message {
        Some(BusMessageState::Ready | BusMessageState::Deferred) => {
            let queue = at.entity;
            Fact::Bus(BusFact::Used { queue })
        }
        Some(BusMessageState::Locked { .. } | BusMessageState::Scheduled) | None => {
            leased(state, at, None, |message| message.renewed(until))
        }
    }
}

fn activated(state: &State, at: Place, number: SequenceNumber, expires_at: Timestamp) -> Fact {
    let to = Place { number, ..at };
    let Some((entity, message)) = find(state, at) else {
        return effects(vec![missing_ended(at), missing_leased(to)]);
    };
    let session = entity.backlog.sessions.get(message.session);
    let session = session.map(|session| entity.backlog.sessions.named(&session.id));
    let arrival = BusArrival {
        expires_at,
        first_number: None,
        ..message.arriving(session)
    };
    let message = Box::new(arrival);
    effects(vec![BusEffect::Arrived { to, message }, ended(state, at)])
}

fn moved(
    state: &State,
    at: Place,
    to: Place,
    cause: Option<DeadLetterCause>,
    overlay: Option<BodyLocation>,
) -> Fact {
    let Some(destination) = state.bus.get(&to.entity) else {
        return effects(Vec::new());
    };
    let Some((from, known)) = find(state, at) else {
        return effects(vec![missing_ended(at), missing_leased(to)]);
    };
    let session = from.backlog.sessions.get(known.session);
    let session = session.map(|session| destination.backlog.sessions.named(&session.id));
    let mut message = known.arriving(session);
    message.bodies.overlays.extend(overlay);
    match cause {
        Some(cause) => {
            let is_counted = cause == DeadLetterCause::MaxDeliveryCountExceeded;
            message.deliveries = message.deliveries.saturating_add(is_counted.into());
            message.expires_at = Timestamp::NEVER;
            message.cause = Some(cause);
        }
        None => {
            message.deliveries = 0;
            message.hops = message.hops.saturating_add(1);
            if let Role::DeadLetters { of } = from.role {
                let source = state.bus.get(&of);
                let source = source.map(|source| (*source.name.name).into());
                message.source = source.or(message.source);
            }
        }
    }
    let message = Box::new(message);
    effects(vec![BusEffect::Arrived { to, message }, known.ended(at)])
}

fn session_released(state: &State, queue: Incarnation, session: Box<str>) -> Fact {
    let entity = state.bus.get(&queue);
    let found = entity.and_then(|entity| entity.backlog.sessions.find(&session));
    let locked = found
        .into_iter()
        .flat_map(|(_, session)| &session.messages.locked);
    let released = locked.filter_map(|number| {
        let at = Place {
            entity: queue,
            number: *number,
        };
        let (_, message) = find(state, at)?;
        Some(message.leased(at, message.released(Release::Unseen), None))
    });
    effects(
        released
            .chain([BusEffect::SessionFreed { queue, session }])
            .collect(),
    )
}
