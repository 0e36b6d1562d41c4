//! Random old histories of a queue that forwards to another one, and what they meant before.

use std::sync::Arc;

use super::*;
use crate::bus::BusMessageState;
use crate::table::Record;

const FIRST: u64 = 10;
const SECOND: u64 = 20;

/// A session as old events made it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct OldSession {
    generation: u32,
    locked_until: Timestamp,
    state: Option<BodyLocation>,
}

/// A message as old events made it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct OldMessage {
    /// Without its session, which is beside it.
    record: Record,
    first_number: SequenceNumber,
    source: Option<Arc<str>>,
    overlays: Vec<BodyLocation>,
}

/// A queue or sub-queue as old events made it: what earlier versions did, without orders and counts.
#[derive(Debug)]
struct OldQueue {
    messages: BTreeMap<u64, (OldMessage, Option<String>)>,
    sessions: BTreeMap<String, OldSession>,
    next: u64,
    by_session: bool,
    used_at: Timestamp,
}

type Model = BTreeMap<u64, OldQueue>;

fn of_queue(by_session: bool) -> OldQueue {
    OldQueue {
        messages: BTreeMap::new(),
        sessions: BTreeMap::new(),
        next: 1,
        by_session,
        used_at: created_at(),
    }
}

fn created_at() -> Timestamp {
    Timestamp::from_ms(1)
}

impl OldQueue {
    fn push(&mut self, number: u64, message: OldMessage, session: Option<String>) {
        if number >= self.next {
            self.next = number + 1;
            if let Some(session) = &session {
                self.sessions.entry(session.clone()).or_default();
            }
            self.messages.insert(number, (message, session));
        }
    }

    /// Forgets the sessions that nothing keeps.
    fn forget(&mut self) {
        let messages = &self.messages;
        self.sessions.retain(|id, session| {
            let has_messages = messages.values().any(|(_, of)| of.as_ref() == Some(id));
            has_messages || session.state.is_some() || session.locked_until != Timestamp::ZERO
        });
    }

    fn change(&mut self, at: Place, change: impl FnOnce(&mut OldMessage)) {
        if let Some((message, _)) = self.messages.get_mut(&at.number.as_u64()) {
            change(message);
        }
    }
}

fn release(message: &mut OldMessage, release: Release, overlay: Option<BodyLocation>) {
    let was_deferred = message.record.state == BusMessageState::Locked { deferred: true };
    message.record.state = if was_deferred || release == Release::Deferred {
        BusMessageState::Deferred
    } else {
        BusMessageState::Ready
    };
    message.record.due_at = Timestamp::NEVER;
    message.record.deliveries += u32::from(release == Release::Failed);
    message.overlays.extend(overlay);
}

fn is_timed(state: BusMessageState) -> bool {
    match state {
        BusMessageState::Locked { .. } | BusMessageState::Scheduled => true,
        BusMessageState::Ready | BusMessageState::Deferred => false,
    }
}

fn new_message(now: Timestamp, arrival: &OldArrival) -> OldMessage {
    let ready = Record {
        expires_at: arrival.expires_at,
        ..Record::ready(now, arrival.body)
    };
    let record = match arrival.scheduled_at {
        Timestamp::ZERO => ready,
        due_at => Record {
            due_at,
            state: BusMessageState::Scheduled,
            ..ready
        },
    };
    OldMessage {
        record,
        first_number: arrival.to.number,
        source: None,
        overlays: Vec::new(),
    }
}

fn move_message(
    model: &mut Model,
    now: Timestamp,
    (at, to): (Place, Place),
    cause: Option<DeadLetterCause>,
    overlay: Option<BodyLocation>,
) {
    let from = model.get_mut(&at.entity.as_u64()).unwrap();
    from.used_at = now;
    let known = from.messages.remove(&at.number.as_u64());
    let Some((mut message, session)) = known else {
        return;
    };
    message.record.state = BusMessageState::Ready;
    message.record.due_at = Timestamp::NEVER;
    message.record.enqueued_at = now;
    message.overlays.extend(overlay);
    if cause == Some(DeadLetterCause::MaxDeliveryCountExceeded) {
        message.record.deliveries += 1;
    }
    if cause.is_some() {
        message.record.expires_at = Timestamp::NEVER;
        message.record.cause = cause;
    } else {
        message.record.hops += 1;
        message.record.deliveries = 0;
        if at.entity.as_u64() == FIRST + 1 {
            message.source = Some(Arc::from("first"));
        }
    }
    let destination = model.get_mut(&to.entity.as_u64()).unwrap();
    destination.used_at = now;
    destination.push(to.number.as_u64(), message, session);
}

fn apply(model: &mut Model, now: Timestamp, fact: &OldFact) {
    let of = |at: &Place| at.entity.as_u64();
    match fact {
        OldFact::QueueUpdated { .. } => unreachable!("it is tested with its queue"),
        OldFact::Sent(arrival) => {
            let queue = model.get_mut(&of(&arrival.to)).unwrap();
            queue.used_at = now;
            let session = arrival.session.as_deref().map(str::to_owned);
            let message = new_message(now, arrival);
            queue.push(arrival.to.number.as_u64(), message, session);
        }
        OldFact::Activated {
            at,
            number,
            expires_at,
        } => {
            let queue = model.get_mut(&of(at)).unwrap();
            queue.used_at = now;
            if let Some((message, session)) = queue.messages.remove(&at.number.as_u64()) {
                let record = Record {
                    enqueued_at: now,
                    expires_at: *expires_at,
                    due_at: Timestamp::NEVER,
                    state: BusMessageState::Ready,
                    ..message.record
                };
                let message = OldMessage {
                    record,
                    first_number: *number,
                    ..message
                };
                queue.push(number.as_u64(), message, session);
            }
        }
        OldFact::Locked { at, until } => {
            let queue = model.get_mut(&of(at)).unwrap();
            queue.used_at = now;
            queue.change(*at, |message| {
                message.record.generation = message.record.generation.next();
                message.record.due_at = *until;
                message.record.state = BusMessageState::Locked {
                    deferred: message.record.state == BusMessageState::Deferred,
                };
            });
        }
        OldFact::LockRenewed { at, until } => {
            let queue = model.get_mut(&of(at)).unwrap();
            queue.used_at = now;
            queue.change(*at, |message| {
                // In other states the time meant nothing.
                if is_timed(message.record.state) {
                    message.record.due_at = *until;
                }
            });
        }
        OldFact::Released {
            at,
            release: how,
            overlay,
        } => {
            let queue = model.get_mut(&of(at)).unwrap();
            queue.used_at = now;
            queue.change(*at, |message| release(message, *how, *overlay));
        }
        OldFact::Removed { at } => {
            let queue = model.get_mut(&of(at)).unwrap();
            queue.used_at = now;
            queue.messages.remove(&at.number.as_u64());
        }
        OldFact::Moved {
            at,
            to,
            cause,
            overlay,
        } => move_message(model, now, (*at, *to), *cause, *overlay),
        OldFact::SessionLocked {
            queue,
            session,
            until,
        } => {
            let queue = model.get_mut(&queue.as_u64()).unwrap();
            queue.used_at = now;
            let session = queue.sessions.entry(session.to_string()).or_default();
            session.generation += 1;
            session.locked_until = *until;
        }
        OldFact::SessionReleased { queue, session } => {
            let queue = model.get_mut(&queue.as_u64()).unwrap();
            queue.used_at = now;
            if let Some(found) = queue.sessions.get_mut(&**session) {
                found.locked_until = Timestamp::ZERO;
                let by_session = queue.by_session;
                let of_session = queue.messages.values_mut().filter(|(message, of)| {
                    let is_locked = matches!(message.record.state, BusMessageState::Locked { .. });
                    by_session && is_locked && of.as_deref() == Some(&**session)
                });
                for (message, _) in of_session {
                    release(message, Release::Unseen, None);
                }
            }
        }
        OldFact::SessionStateSet {
            queue,
            session,
            state,
        } => {
            let queue = model.get_mut(&queue.as_u64()).unwrap();
            queue.used_at = now;
            let session = queue.sessions.entry(session.to_string()).or_default();
            session.state = *state;
        }
        OldFact::Resubmitted { at, arrival } => {
            let from = model.get_mut(&of(at)).unwrap();
            from.used_at = now;
            from.messages.remove(&at.number.as_u64());
            let sent = OldFact::Sent(arrival.clone());
            apply(model, now, &sent);
        }
    }
    model.values_mut().for_each(OldQueue::forget);
}

/// A fact, from random numbers: `next` is the next number of each queue, by incarnation.
fn fact_from(model: &Model, now: Timestamp, (kind, number, session, ms): Random) -> OldFact {
    let queue = if kind % 2 == 0 { FIRST } else { SECOND };
    let next = |queue: u64| model[&queue].next;
    let at = place(queue, 1 + number % next(queue).max(2));
    let session_id = Box::<str>::from(format!("s{}", session % 3));
    let until = now.plus_ms(ms);
    let location = body(u32::try_from(ms).unwrap()).location;
    let overlay = (session % 2 == 0).then_some(location);
    let arrival = |to: Place| OldArrival {
        to,
        expires_at: if ms % 3 == 0 { Timestamp::NEVER } else { until },
        scheduled_at: if ms % 5 == 0 { until } else { Timestamp::ZERO },
        session: (session < 4).then(|| session_id.clone()),
        id_hash: None,
        body: location,
    };
    let is_there = |at: &Place| {
        let queue = &model[&at.entity.as_u64()];
        queue.messages.contains_key(&at.number.as_u64())
    };
    match kind / 2 {
        0..=4 => OldFact::Sent(arrival(place(queue, next(queue) + number % 7 / 6))),
        5 => OldFact::Activated {
            at,
            number: SequenceNumber::new(next(queue)),
            expires_at: until,
        },
        6 | 7 => OldFact::Locked {
            at,
            until: if ms % 2 == 0 { Timestamp::NEVER } else { until },
        },
        8 => OldFact::LockRenewed { at, until },
        9 => OldFact::Released {
            at,
            release: match number % 3 {
                0 => Release::Failed,
                1 => Release::Unseen,
                _ => Release::Deferred,
            },
            overlay,
        },
        10 => OldFact::Removed { at },
        11 => OldFact::Moved {
            at,
            to: place(queue + 1, next(queue + 1)),
            cause: Some(match ms % 2 {
                0 => DeadLetterCause::MaxDeliveryCountExceeded,
                _ => DeadLetterCause::ByReceiver,
            }),
            overlay,
        },
        12 => OldFact::Moved {
            at: place(FIRST + 1, 1 + number % next(FIRST + 1).max(2)),
            to: place(SECOND, next(SECOND)),
            cause: None,
            overlay: None,
        },
        13 => OldFact::SessionLocked {
            queue: at.entity,
            session: session_id,
            until,
        },
        14 => OldFact::SessionReleased {
            queue: at.entity,
            session: session_id,
        },
        15 => OldFact::SessionStateSet {
            queue: at.entity,
            session: session_id,
            state: overlay,
        },
        _ => {
            let at = place(SECOND + 1, 1 + number % next(SECOND + 1).max(2));
            let arrival = OldArrival {
                scheduled_at: Timestamp::ZERO,
                ..arrival(place(FIRST, next(FIRST)))
            };
            if is_there(&at) {
                OldFact::Resubmitted { at, arrival }
            } else {
                OldFact::Removed { at }
            }
        }
    }
}

type Random = (u8, u64, u8, u64);

/// The state has what the model has, and counts it right.
fn check(state: &State, model: &Model) {
    state.check_live_bytes();
    for (incarnation, old) in model {
        let entity = &state.bus[&Incarnation::new(*incarnation)];
        let backlog = &entity.backlog;
        let sessions = &backlog.sessions;
        let messages: BTreeMap<_, _> = backlog
            .messages()
            .map(|message| {
                let session = sessions.get(message.session);
                let session = session.map(|session| session.id.to_string());
                let number = message.number().as_u64();
                let message = OldMessage {
                    record: Record {
                        session: 0,
                        ..*message
                    },
                    first_number: message.first_number(),
                    source: message.source().cloned(),
                    overlays: message.overlays().to_vec(),
                };
                (number, (message, session))
            })
            .collect();
        assert_eq!(messages, old.messages);
        let sessions: BTreeMap<_, _> = sessions
            .iter()
            .map(|(_, session)| {
                let old = OldSession {
                    generation: session.generation.as_u32(),
                    locked_until: session.locked_until,
                    state: session.state,
                };
                (session.id.to_string(), old)
            })
            .collect();
        assert_eq!(sessions, old.sessions);
        assert_eq!(backlog.next().as_u64(), old.next);
        backlog.check();
    }
}

fn created(queue: u64, name: &str, requires_session: bool) -> Event {
    Event {
        at: created_at(),
        fact: Fact::Bus(BusFact::QueueCreated {
            queue: Incarnation::new(queue),
            name: EntityName {
                service: Service::ServiceBus,
                account: "ns".into(),
                name: name.into(),
            },
            options: BusQueueOptions {
                requires_session,
                ..BusQueueOptions::default()
            },
        }),
    }
}

proptest! {
    #[test]
    fn an_upgraded_history_of_bus_queues_gives_what_it_gave_before(
        history in prop::collection::vec((0_u8..34, 0_u64..60, 0_u8..6, 0_u64..500), 1..300),
        by_session: bool,
    ) {
        let mut state = State::new();
        let mut model = Model::new();
        for (queue, name) in [(FIRST, "first"), (SECOND, "second")] {
            state.apply(created(queue, name, by_session));
            for entity in queue..queue + 3 {
                model.insert(entity, of_queue(by_session && entity == queue));
            }
        }
        let mut now = Timestamp::from_ms(1000);
        for random in history {
            now = now.plus_ms(random.3 % 10);
            let fact = fact_from(&model, now, random);
            apply(&mut model, now, &fact);
            let event = state.read_event(&fact.encode(now)).unwrap();
            prop_assert_eq!(event.at, now);
            // Upgrading to what can be written.
            let mut written = Vec::new();
            event.encode(&mut written);
            prop_assert_eq!(Event::decode(&written), Ok(event.clone()));
            state.apply(event);
            prop_assert_eq!(state.last_event_at(), now);
        }
        check(&state, &model);
    }
}
