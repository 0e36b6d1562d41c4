//! What old events about bus queues are in this version.

use super::{OldArrival, OldFact};
use crate::bus::{
    self, BusFact, BusMessageState, BusQueue, DeadLetterCause, Effect, Message, OwnEffect, Release,
    Role,
};
use crate::effect::{Arrival, BusSession, Lease, Rest};
use crate::event::Fact;
use crate::state::State;
use crate::vocabulary::{
    BodyLocation, Incarnation, LeaseGeneration, Place, SequenceNumber, Timestamp,
};

impl OldFact {
    pub(in crate::migrate) fn upgrade(self, now: Timestamp, state: &State) -> Fact {
        match self {
            Self::QueueUpdated { queue, options } => {
                let entity = state.bus.get(&queue);
                let ids_from = entity.map(|entity| entity.ids_from(&options, now));
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
                effects(vec![arrived(state, now, arrival)])
            }
            Self::Activated {
                at,
                number,
                expires_at,
            } => activated(state, now, at, number, expires_at),
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
            } => moved(state, now, at, to, (cause, overlay)),
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
                effects(vec![arrived(state, now, arrival), ended(state, at)])
            }
        }
    }
}

fn effects(effects: Vec<Effect>) -> Fact {
    let effects = effects.into();
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

fn arrived(state: &State, now: Timestamp, old: OldArrival) -> Effect {
    let is_scheduled = old.scheduled_at != Timestamp::ZERO;
    let scheduled_at = is_scheduled.then_some(old.scheduled_at);
    let queue = old.to.entity;
    let session = old.session.map(|id| session_named(state, queue, id));
    let rest = Rest {
        id_hash: old.id_hash,
        ..Rest::default()
    };
    let record = bus::sent(now, old.expires_at, scheduled_at, old.body);
    Effect::Arrived {
        to: old.to,
        message: Arrival::new(record, session, rest),
    }
}

fn ended(state: &State, at: Place) -> Effect {
    match find(state, at) {
        Some((_, message)) => message.ended(at),
        None => Effect::missing_ended(at),
    }
}

fn missing_leased(at: Place) -> Effect {
    Effect::missing_leased(at, Lease::default(), None)
}

fn leased(
    state: &State,
    at: Place,
    overlay: Option<BodyLocation>,
    lease: impl FnOnce(&Message<'_>) -> Lease,
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

fn activated(
    state: &State,
    now: Timestamp,
    at: Place,
    number: SequenceNumber,
    expires_at: Timestamp,
) -> Fact {
    let to = Place { number, ..at };
    let Some((entity, message)) = find(state, at) else {
        return effects(vec![Effect::missing_ended(at), missing_leased(to)]);
    };
    let session = entity.backlog.sessions.get(message.session);
    let session = session.map(|session| entity.backlog.sessions.named(&session.id));
    let arriving = message.arriving(now, session);
    let mut message = arriving.with(|rest| rest.side.first_number = None);
    message.record.expires_at = expires_at;
    effects(vec![Effect::Arrived { to, message }, ended(state, at)])
}

fn moved(
    state: &State,
    now: Timestamp,
    at: Place,
    to: Place,
    (cause, overlay): (Option<DeadLetterCause>, Option<BodyLocation>),
) -> Fact {
    let Some(destination) = state.bus.get(&to.entity) else {
        return effects(Vec::new());
    };
    let Some((from, known)) = find(state, at) else {
        return effects(vec![Effect::missing_ended(at), missing_leased(to)]);
    };
    let session = from.backlog.sessions.get(known.session);
    let session = session.map(|session| destination.backlog.sessions.named(&session.id));
    let arriving = known.arriving(now, session);
    let mut message = arriving.with(|rest| rest.side.overlays.extend(overlay));
    let record = &mut message.record;
    match cause {
        Some(cause) => {
            let is_counted = cause == DeadLetterCause::MaxDeliveryCountExceeded;
            record.deliveries = record.deliveries.saturating_add(is_counted.into());
            record.expires_at = Timestamp::NEVER;
            record.cause = Some(cause);
        }
        None => {
            record.deliveries = 0;
            record.hops = record.hops.saturating_add(1);
            if let Role::DeadLetters { of } = from.role {
                let source = state.bus.get(&of);
                let source = source.map(|source| (*source.name.name).into());
                message =
                    message.with(|rest| rest.side.source = source.or(rest.side.source.take()));
            }
        }
    }
    effects(vec![Effect::Arrived { to, message }, known.ended(at)])
}

fn session_released(state: &State, queue: Incarnation, session: Box<str>) -> Fact {
    let entity = state.bus.get(&queue);
    let found = entity.and_then(|entity| entity.backlog.sessions.find(&session));
    let locked = found
        .into_iter()
        .flat_map(|(_, session)| session.messages.locked());
    let released = locked.filter_map(|number| {
        let at = Place {
            entity: queue,
            number,
        };
        let (_, message) = find(state, at)?;
        Some(message.leased(at, message.released(Release::Unseen), None))
    });
    effects(
        released
            .chain([Effect::Own(OwnEffect::SessionFreed { queue, session })])
            .collect(),
    )
}
