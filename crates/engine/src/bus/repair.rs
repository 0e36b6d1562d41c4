//! Bus queues in the repair of a damaged log.
//!
//! A gap may hide that a queue was created. Then only the incarnation of one entity is known, and not
//! whether it is the queue or one of its sub-queues. At first the entity stands in alone. It becomes part of
//! a whole queue when everything was read.

use super::backlog::Backlog;
use super::effect::{BusLease, BusSession};
use super::queue::{BusQueue, Role, sub_queue_names};
use super::queues::Queues;
use super::{BusEffect, BusFact, BusMessageState, Release};
use crate::catalogue::Catalogue;
use crate::table::Live;
use crate::vocabulary::{BodyLocation, EntityName, Incarnation, LeaseGeneration, Place, Timestamp};

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

impl Queues {
    /// The states of all sessions that have one.
    pub(crate) fn session_states(&self) -> impl Iterator<Item = StoredSessionState> + '_ {
        self.iter().flat_map(|(queue, entity)| {
            let sessions = entity.backlog.sessions.iter();
            sessions.filter_map(|(number, session)| {
                Some(StoredSessionState {
                    queue: *queue,
                    queue_name: entity.name.clone(),
                    session: BusSession {
                        number,
                        id: session.id(),
                    },
                    body: session.state?,
                })
            })
        })
    }

    /// Creates an empty entity whose creation cannot be read. [`Queues::make_queue`] later makes a whole queue
    /// of it.
    pub(crate) fn stand_in(
        &mut self,
        catalogue: &mut Catalogue,
        queue: Incarnation,
        name: EntityName,
        at: Timestamp,
    ) {
        catalogue.use_incarnation(queue);
        let options = super::BusQueueOptions::default();
        let entity = BusQueue::new(name, Role::Queue, options, at, catalogue.run_length);
        self.add(catalogue, queue, entity);
    }

    /// Makes a whole queue of that name. Existing entities keep their messages, and missing ones are empty.
    /// The queue takes the settings of the first existing entity.
    pub(crate) fn make_queue(
        &mut self,
        catalogue: &mut Catalogue,
        queue: Incarnation,
        name: EntityName,
        at: Timestamp,
    ) {
        let options = self.get(&queue).map(|entity| entity.options.clone());
        let options = options.unwrap_or_default();
        let [dead_letters, failed_transfers] = sub_queue_names(&name);
        let roles = [
            (name, Role::Queue),
            (dead_letters, Role::DeadLetters { of: queue }),
            (failed_transfers, Role::FailedTransfers { of: queue }),
        ];
        for (incarnation, (name, role)) in queue.with_sub_queues().into_iter().zip(roles) {
            let known = self.take(catalogue, incarnation);
            let mut entity = BusQueue::new(name, role, options.clone(), at, catalogue.run_length);
            if let Some(known) = known {
                entity.duplicates = known.duplicates;
                entity.backlog.set_next(known.backlog.next());
                let mut live = catalogue.live.apart();
                entity.backlog.absorb(&known.backlog, &mut live);
            }
            catalogue.use_incarnation(incarnation);
            self.add(catalogue, incarnation, entity);
        }
    }

    /// Gives a stand-in the name, role and settings that another reading has found.
    pub(crate) fn adopt(&mut self, catalogue: &mut Catalogue, queue: Incarnation, other: &Self) {
        let Some(known) = other.get(&queue) else {
            return;
        };
        if catalogue.find(&known.name).is_some() {
            return;
        }
        if let Some(own) = self.take(catalogue, queue) {
            let (name, options) = (known.name.clone(), known.options.clone());
            let (role, length) = (known.role, catalogue.run_length);
            let mut entity = BusQueue::new(name, role, options, known.created_at, length);
            entity.updated_at = own.updated_at;
            entity.used_at = own.used_at;
            entity.duplicates = own.duplicates;
            entity.backlog.set_next(own.backlog.next());
            let mut live = catalogue.live.apart();
            entity.backlog.absorb(&own.backlog, &mut live);
            self.add(catalogue, queue, entity);
        }
    }

    /// Applies effects as they fit this state, one by one: several can concern the same message. A message does
    /// not leave its entity for one that is not there.
    fn apply_fitting_effects(
        &mut self,
        catalogue: &mut Catalogue,
        at: Timestamp,
        effects: Vec<BusEffect>,
    ) {
        let mut goes_nowhere = false;
        for effect in effects {
            let stays = goes_nowhere && matches!(effect, BusEffect::Ended { .. });
            goes_nowhere =
                matches!(effect, BusEffect::Arrived { .. }) && !self.contains_key(&effect.entity());
            if !stays {
                let effect = self.fitting_effect(effect);
                self.apply_effects(catalogue, at, &[effect]);
            }
        }
    }

    fn fitting_effect(&self, effect: BusEffect) -> BusEffect {
        let find = |at: &Place| self.get(&at.entity)?.backlog.get(at.number);
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

    /// Applies a fact as it fits this state: it may say of a message or of a session what is not true here.
    pub(crate) fn apply_fitting(
        &mut self,
        catalogue: &mut Catalogue,
        at: Timestamp,
        fact: BusFact,
    ) {
        match fact {
            BusFact::Messages { effects } => self.apply_fitting_effects(catalogue, at, effects),
            BusFact::SessionStateSet {
                queue,
                session,
                state,
                ..
            } => {
                let entity = self.get(&queue);
                let found = entity.and_then(|entity| entity.backlog.sessions.find(&session.id));
                let was = found.and_then(|(_, session)| session.state);
                let fact = BusFact::SessionStateSet {
                    queue,
                    session,
                    was,
                    state,
                };
                self.apply(catalogue, at, fact);
            }
            BusFact::BodiesMoved { moves } => self.move_bodies_fitting(catalogue, &moves),
            BusFact::QueueCreated { .. }
            | BusFact::QueueUpdated { .. }
            | BusFact::QueueDeleted { .. }
            | BusFact::SessionLocked { .. }
            | BusFact::SessionRenewed { .. }
            | BusFact::Used { .. } => self.apply(catalogue, at, fact),
        }
    }

    /// Adds the bus queues that another reading has found. Returns the names of queues whose name is taken.
    pub(crate) fn absorb(&mut self, catalogue: &mut Catalogue, other: Self) -> Vec<EntityName> {
        let mut refused = Vec::new();
        for (incarnation, entity) in other {
            if let Some(own) = self.get_mut(&incarnation) {
                own.duplicates.absorb(&entity.duplicates);
                own.backlog.absorb(&entity.backlog, &mut catalogue.live);
                own.note_deadline(catalogue, incarnation);
            } else if catalogue.find(&entity.name).is_some() {
                refused.push(entity.name);
            } else {
                self.add(catalogue, incarnation, entity);
            }
        }
        refused
    }

    /// Skips all numbers that may have been given out. Ends every lock: no lock token stays valid.
    pub(crate) fn skip_numbers(
        &mut self,
        catalogue: &mut Catalogue,
        numbers: u64,
        generations: u32,
    ) {
        for (incarnation, entity) in self.iter_mut() {
            let live = &mut catalogue.live;
            entity.backlog.skip(numbers, generations, live);
            entity.note_deadline(catalogue, incarnation);
        }
    }
}

impl Backlog {
    /// Adds the messages and session states that another reading of the same history has found.
    fn absorb(&mut self, other: &Self, live: &mut Live) {
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
                self.sessions.set_state(number, None, state, at, live);
            }
        }
        for message in other.messages() {
            if self.get(message.number()).is_none() {
                let mut record = *message.record();
                let session = other.sessions.get(record.session);
                record.session = session.map_or(0, |session| {
                    let named = self.sessions.named(&session.id);
                    self.sessions.ensure(&named)
                });
                let side = message.side().cloned().unwrap_or_default();
                self.insert(message.number(), record, side, live);
            }
        }
    }

    /// Ends all locks, and skips numbers and lease generations.
    fn skip(&mut self, numbers: u64, generations: u32, live: &mut Live) {
        let after = |generation: LeaseGeneration| generation.as_u32().wrapping_add(generations);
        let all: Vec<_> = self.messages().map(|message| message.number()).collect();
        for number in all {
            let Some(message) = self.get(number) else {
                continue;
            };
            let lease = match message.state {
                BusMessageState::Locked { .. } => message.released(Release::Unseen),
                BusMessageState::Ready | BusMessageState::Scheduled | BusMessageState::Deferred => {
                    BusLease {
                        generation: message.generation,
                        deliveries: message.deliveries,
                        standing: message.standing(),
                    }
                }
            };
            let lease = BusLease {
                generation: LeaseGeneration::new(after(message.generation)),
                ..lease
            };
            let was = message.was();
            self.lease(number, &lease, None, &was, live);
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
        self.skip_numbers(numbers);
    }
}
