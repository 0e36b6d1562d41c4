//! Bus queues in the repair of a damaged log.
//!
//! A gap may hide that a queue was created. Then only the incarnation of one entity is known, and not
//! whether it is the queue or one of its sub-queues. At first the entity stands in alone. It becomes part of
//! a whole queue when everything was read.

use super::backlog::Backlog;
use super::effect::{BusLease, BusSession};
use super::queue::{BusQueue, Role, sub_queue_names};
use super::{BusEffect, BusFact, BusMessageState, Release};
use crate::repair::StoredMessage;
use crate::{
    BodyLocation, EntityName, Event, Fact, Incarnation, LeaseGeneration, Place, SequenceNumber,
    State, Timestamp,
};

/// How many sessions of a queue a gap may have hidden.
const SESSIONS_SKIPPED: u32 = 1 << 20;

/// The state of a session as a state holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredSessionState {
    /// The incarnation of its queue.
    pub queue: Incarnation,
    /// The name of its queue.
    pub queue_name: EntityName,
    /// The session.
    pub session: BusSession,
    /// The location of its bytes.
    pub body: BodyLocation,
}

impl State {
    /// Whether a bus queue or sub-queue of that incarnation exists.
    pub fn is_bus_queue(&self, queue: Incarnation) -> bool {
        self.bus.contains_key(&queue)
    }

    /// Every message of every bus queue.
    pub(crate) fn bus_messages(&self) -> impl Iterator<Item = StoredMessage<'_>> {
        self.bus.iter().flat_map(|(queue, entity)| {
            let messages = entity.backlog.messages();
            messages.map(|(sequence_number, message)| StoredMessage {
                queue: *queue,
                queue_name: &entity.name,
                sequence_number,
                inserted_at: message.enqueued_at,
                body: message.body,
                overlays: &message.overlays,
            })
        })
    }

    /// The states of all sessions that have one.
    pub fn session_states(&self) -> impl Iterator<Item = StoredSessionState> + '_ {
        self.bus.iter().flat_map(|(queue, entity)| {
            let sessions = entity.backlog.sessions.iter();
            sessions.filter_map(|(number, session)| {
                Some(StoredSessionState {
                    queue: *queue,
                    queue_name: entity.name.clone(),
                    session: BusSession {
                        number,
                        id: session.id.clone(),
                    },
                    body: session.state?,
                })
            })
        })
    }

    /// Creates an empty bus entity whose creation cannot be read. [`State::make_bus_queue`] later makes a
    /// whole queue of it.
    ///
    /// Does nothing if there is an entity of that incarnation, or if the name is taken.
    pub fn stand_in_bus(&mut self, queue: Incarnation, name: EntityName, at: Timestamp) {
        if self.queue_name(queue).is_some() || self.catalogue.contains_key(&name) {
            return;
        }
        self.next_incarnation = self.next_incarnation.max(queue.next());
        let entity = BusQueue::new(name, Role::Queue, super::BusQueueOptions::default(), at);
        self.insert_bus(queue, entity);
    }

    /// Makes a whole queue of that name. Existing entities keep their messages, and missing ones are empty.
    /// The queue takes the settings of the first existing entity.
    pub fn make_bus_queue(&mut self, queue: Incarnation, name: EntityName, at: Timestamp) {
        let options = self.bus.get(&queue).map(|entity| entity.options.clone());
        let options = options.unwrap_or_default();
        let [dead_letters, failed_transfers] = sub_queue_names(&name);
        let roles = [
            (name, Role::Queue),
            (dead_letters, Role::DeadLetters { of: queue }),
            (failed_transfers, Role::FailedTransfers { of: queue }),
        ];
        for (incarnation, (name, role)) in queue.with_sub_queues().into_iter().zip(roles) {
            let known = self.remove_bus(incarnation);
            let mut entity = BusQueue::new(name, role, options.clone(), at);
            if let Some(known) = known {
                entity.duplicates = known.duplicates;
                entity.backlog.set_next(known.backlog.next());
                entity.backlog.absorb(known.backlog);
            }
            self.next_incarnation = self.next_incarnation.max(incarnation.next());
            self.insert_bus(incarnation, entity);
        }
    }

    /// Removes an entity that cannot be part of a queue. Returns its name if it existed.
    pub fn drop_bus_queue(&mut self, queue: Incarnation) -> Option<EntityName> {
        self.remove_bus(queue).map(|entity| entity.name)
    }

    /// Gives a stand-in the name, role and settings that another reading has found.
    pub fn adopt_bus_queue(&mut self, queue: Incarnation, other: &Self) {
        let Some(known) = other.bus.get(&queue) else {
            return;
        };
        if self.catalogue.contains_key(&known.name) {
            return;
        }
        if let Some(own) = self.remove_bus(queue) {
            let (name, options) = (known.name.clone(), known.options.clone());
            let mut entity = BusQueue::new(name, known.role, options, known.created_at);
            entity.updated_at = own.updated_at;
            entity.used_at = own.used_at;
            entity.duplicates = own.duplicates;
            entity.backlog.set_next(own.backlog.next());
            entity.backlog.absorb(own.backlog);
            self.insert_bus(queue, entity);
        }
    }

    /// Applies effects as they fit this state, one by one: several can concern the same message. A message does
    /// not leave its entity for one that is not there.
    pub(crate) fn apply_fitting_bus(&mut self, at: Timestamp, effects: Vec<BusEffect>) {
        let mut goes_nowhere = false;
        for effect in effects {
            let stays = goes_nowhere && matches!(effect, BusEffect::Ended { .. });
            goes_nowhere = matches!(effect, BusEffect::Arrived { .. })
                && !self.bus.contains_key(&effect.entity());
            if !stays {
                let effects = vec![self.fitting_bus_effect(effect)];
                let fact = Fact::BusMessages { effects };
                self.apply(Event { at, fact });
            }
        }
    }

    fn fitting_bus_effect(&self, effect: BusEffect) -> BusEffect {
        let find = |at: &Place| self.bus.get(&at.entity)?.backlog.get(at.number);
        match effect {
            BusEffect::Arrived { .. }
            | BusEffect::SessionReleasing { .. }
            | BusEffect::SessionFreed { .. } => effect,
            BusEffect::Leased {
                at, lease, overlay, ..
            } => match find(&at) {
                Some(message) => message.leased(at, lease, overlay),
                None => effect,
            },
            BusEffect::Ended { at, .. } => find(&at).map_or(effect, |it| it.ended(at)),
        }
    }

    /// The fact as it fits this state: it may say of a session what is not true here.
    pub(crate) fn fitting_bus_fact(&self, fact: BusFact) -> BusFact {
        match fact {
            BusFact::SessionStateSet {
                queue,
                session,
                state,
                ..
            } => {
                let entity = self.bus.get(&queue);
                let found = entity.and_then(|entity| entity.backlog.sessions.find(&session.id));
                BusFact::SessionStateSet {
                    queue,
                    session,
                    was: found.and_then(|(_, session)| session.state),
                    state,
                }
            }
            BusFact::QueueCreated { .. }
            | BusFact::QueueUpdated { .. }
            | BusFact::QueueDeleted { .. }
            | BusFact::SessionLocked { .. }
            | BusFact::SessionRenewed { .. }
            | BusFact::Used { .. } => fact,
        }
    }

    pub(crate) fn insert_bus(&mut self, queue: Incarnation, entity: BusQueue) {
        self.catalogue.insert(entity.name.clone(), queue);
        let entity = BusQueue {
            deadline: None,
            ..entity
        };
        self.bus.insert(queue, entity);
        self.note_bus_deadline(queue);
    }

    /// Removes an entity, and its name unless a later entity has that.
    pub(super) fn remove_bus(&mut self, queue: Incarnation) -> Option<BusQueue> {
        let entity = self.bus.remove(&queue)?;
        if self.catalogue.get(&entity.name) == Some(&queue) {
            self.catalogue.remove(&entity.name);
        }
        if let Some(deadline) = entity.deadline {
            self.deadlines.remove(&(deadline, queue));
        }
        Some(entity)
    }

    /// Adds the bus queues that another reading has found. Returns the names of queues whose name is taken.
    pub(crate) fn absorb_bus(
        &mut self,
        other: impl Iterator<Item = (Incarnation, BusQueue)>,
    ) -> Vec<EntityName> {
        let mut refused = Vec::new();
        for (incarnation, entity) in other {
            if let Some(own) = self.bus.get_mut(&incarnation) {
                own.duplicates.absorb(&entity.duplicates);
                own.backlog.absorb(entity.backlog);
                self.note_bus_deadline(incarnation);
            } else if self.catalogue.contains_key(&entity.name) {
                refused.push(entity.name);
            } else {
                self.insert_bus(incarnation, entity);
            }
        }
        refused
    }

    /// See [`State::skip_numbers`]. Ends every lock: no lock token stays valid.
    pub(crate) fn skip_bus_numbers(&mut self, numbers: u64, generations: u32) {
        let queues: Vec<_> = self.bus.keys().copied().collect();
        for queue in queues {
            if let Some(entity) = self.bus.get_mut(&queue) {
                entity.backlog.skip(numbers, generations);
            }
            self.note_bus_deadline(queue);
        }
    }
}

impl Backlog {
    /// Adds the messages and session states that another reading of the same history has found.
    fn absorb(&mut self, other: Self) {
        let next = self.next().max(other.next());
        self.set_next(next);
        for (_, session) in other.sessions.iter() {
            if session.state.is_none() {
                continue;
            }
            let named = self.sessions.named(&session.id);
            let number = self.sessions.ensure(&named);
            let own = self.sessions.get(number);
            if own.is_some_and(|own| own.state.is_none()) {
                let (state, at) = (session.state, session.state_set_at);
                self.sessions.set_state(number, None, state, at);
            }
        }
        for (number, message) in other.messages() {
            if self.get(number).is_none() {
                let mut message = message.clone();
                let session = other.sessions.get(message.session);
                message.session = session.map_or(0, |session| {
                    let named = self.sessions.named(&session.id);
                    self.sessions.ensure(&named)
                });
                self.restore(number, message);
            }
        }
    }

    /// Ends all locks, and skips numbers and lease generations.
    fn skip(&mut self, numbers: u64, generations: u32) {
        let highest = (1 << SequenceNumber::BITS) - 1;
        let next = (self.next().as_u64() + numbers).min(highest);
        let after = |generation: LeaseGeneration| generation.as_u32().wrapping_add(generations);
        let all: Vec<_> = self.messages().map(|(number, _)| number).collect();
        for number in all {
            let Some(message) = self.get(number) else {
                continue;
            };
            let lease = match message.state {
                BusMessageState::Locked { .. } => message.released(Release::Unseen),
                BusMessageState::Ready | BusMessageState::Scheduled | BusMessageState::Deferred => {
                    BusLease {
                        generation: message.generation,
                        deliveries: message.delivery_count,
                        standing: message.standing(),
                    }
                }
            };
            let lease = BusLease {
                generation: LeaseGeneration::new(after(message.generation)),
                ..lease
            };
            let was = message.was();
            self.lease(number, &lease, None, &was);
        }
        let all: Vec<_> = self.sessions.iter().map(|(number, _)| number).collect();
        for number in all {
            self.sessions.change(number, |session| {
                session.generation = LeaseGeneration::new(after(session.generation));
                session.locked_until = Timestamp::ZERO;
            });
        }
        let last = self.sessions.last_number().saturating_add(SESSIONS_SKIPPED);
        self.sessions.set_last_number(last);
        self.set_next(SequenceNumber::new(next));
    }
}
