//! Bus queues in the repair of a damaged log.
//!
//! A gap may hide that a queue was created. Then only the incarnation of one entity is known, and not
//! whether it is the queue or one of its sub-queues. At first the entity stands in alone. It becomes part of
//! a whole queue when everything was read.

use std::collections::BTreeMap;

use super::backlog::{Backlog, Kept};
use super::queue::{BusQueue, ENTITIES_PER_BUS_QUEUE, sub_queue_names};
use super::queues::Queues;
use super::role::Role;
use super::rules::default_of_both;
use super::{BusFact, BusMessageState, Release};
use crate::catalogue::Catalogue;
use crate::effect::{BusSession, Lease};
use crate::queues::{Profile, Queue};
use crate::table::Live;
use crate::vocabulary::{
    BodyLocation, BodyMove, EntityName, Hold, Incarnation, LeaseGeneration, Place, Timestamp,
};

/// How many rules of a topic a gap may have hidden.
const RULES_SKIPPED: u64 = 1 << 20;

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

    /// Whether an entity is one of a queue of which another one is there.
    pub(crate) fn is_of_known_queue(&self, entity: Incarnation) -> bool {
        let firsts = std::iter::successors(Some(entity), |first| first.before());
        let mut others = firsts
            .take(ENTITIES_PER_BUS_QUEUE)
            .flat_map(|first| first.with_sub_queues());
        others.any(|other| {
            let known = self.get(&other).map(|it| it.whole(other));
            known.is_some_and(|(first, _)| first.with_sub_queues().contains(&entity))
        })
    }

    /// Makes a whole queue of that name. Existing entities keep their messages, and missing ones are empty.
    /// The queue takes its settings from the entity `like`, if that is there. A topic or a subscription that is there stays
    /// one.
    pub(crate) fn make_queue(
        &mut self,
        catalogue: &mut Catalogue,
        queue: Incarnation,
        (name, like): (EntityName, Incarnation),
        at: Timestamp,
    ) {
        let like = self.get(&like);
        let created_at = like.map_or(at, |like| like.created_at);
        let options = like.map(|like| like.options.clone()).unwrap_or_default();
        let [dead_letters, failed_transfers] = sub_queue_names(&name);
        let known = self.get(&queue).map(|it| it.role);
        let first = known.filter(|role| role.is_first());
        let roles = [
            (name, first.unwrap_or(Role::Queue)),
            (dead_letters, Role::DeadLetters { of: queue }),
            (failed_transfers, Role::FailedTransfers { of: queue }),
        ];
        for (incarnation, (name, role)) in queue.with_sub_queues().into_iter().zip(roles) {
            let known = self.take(catalogue, incarnation);
            let (options, length) = (options.clone(), catalogue.run_length);
            let mut entity = BusQueue::new(name, role, options, created_at, length);
            (entity.updated_at, entity.used_at) = (at, at);
            if let Some(known) = known {
                entity.duplicates = known.duplicates;
                (entity.topic, entity.rule) = (known.topic, known.rule);
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
            entity.topic = known.topic.as_ref().map(|topic| topic.again(length));
            if let (Some(found), Some(own)) = (&mut entity.topic, &own.topic) {
                found.absorb(own);
            }
            entity.rule = match own.role == known.role {
                true => default_of_both(own.rule, known.rule),
                false => known.rule,
            };
            entity.backlog.set_next(own.backlog.next());
            let mut live = catalogue.live.apart();
            entity.backlog.absorb(&own.backlog, &mut live);
            self.add(catalogue, queue, entity);
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
            BusFact::Messages { effects } => {
                self.apply_fitting_effects(catalogue, at, Vec::from(effects));
            }
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
            | BusFact::TopicCreated { .. }
            | BusFact::SubscriptionCreated { .. }
            | BusFact::QueueUpdated { .. }
            | BusFact::EntityUpdated { .. }
            | BusFact::RulesChanged { .. }
            | BusFact::QueueDeleted { .. }
            | BusFact::SessionLocked { .. }
            | BusFact::SessionRenewed { .. }
            | BusFact::Used { .. } => self.apply(catalogue, at, fact),
        }
    }

    /// Makes sure that a message counts each body that several have. The copy that did may be lost: then the first one of
    /// the others does.
    pub(crate) fn complete_holds(&mut self, catalogue: &mut Catalogue) {
        let bodies = || {
            self.iter().flat_map(|(entity, queue)| {
                let messages = queue.backlog.messages();
                messages.map(|message| {
                    let (entity, number) = (*entity, message.number());
                    (Place { entity, number }, message.body)
                })
            })
        };
        let mut uncounted = BTreeMap::new();
        for (holder, body) in bodies().filter(|(_, body)| body.hold() == Hold::Borrows) {
            uncounted.entry(body.with(Hold::Alone)).or_insert(holder);
        }
        for (_, body) in bodies().filter(|(_, body)| body.hold() != Hold::Borrows) {
            uncounted.remove(&body.with(Hold::Alone));
        }
        // One by one: a move has a copy of what is known of its message, and a damaged log can need millions of them.
        for (body, holder) in uncounted {
            let (from, to) = (body.with(Hold::Borrows), body.with(Hold::Lends));
            if let Some(moved) = self.moving(holder, BodyMove { from, to }) {
                self.move_bodies(catalogue, &[moved]);
            }
        }
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
            if let Some(topic) = &mut entity.topic {
                topic.skip_rule_numbers(RULES_SKIPPED);
            }
            entity.settle(catalogue, incarnation);
        }
    }
}

impl Backlog {
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
                    Lease {
                        generation: message.generation,
                        deliveries: message.deliveries,
                        standing: message.standing(),
                    }
                }
            };
            let lease = Lease {
                generation: LeaseGeneration::new(after(message.generation)),
                ..lease
            };
            let was = Kept::was(message.record());
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
