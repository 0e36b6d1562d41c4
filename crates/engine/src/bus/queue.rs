//! A bus queue, or one of its sub-queues.

use std::collections::{BTreeMap, BTreeSet};

use kew_planted::{Bug, is_planted};

use super::BusQueueOptions;
use super::backlog::Backlog;
use super::message::Message;
use crate::{BodyLocation, EntityName, Incarnation, SequenceNumber, State, Timestamp};

/// What a bus entity is to its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// It is the queue.
    Queue,
    /// It holds the dead letters of a queue.
    DeadLetters { of: Incarnation },
    /// It holds what a queue could not forward.
    FailedTransfers { of: Incarnation },
}

/// A queue and its two sub-queues.
pub(crate) const ENTITIES_PER_BUS_QUEUE: usize = 3;

/// Use is noted once in this part of the time after which an idle queue deletes itself.
const USE_PART: u64 = 10;

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct BusQueue {
    pub(crate) name: EntityName,
    pub(crate) role: Role,
    /// A sub-queue has those of its queue.
    pub(crate) options: BusQueueOptions,
    pub(crate) created_at: Timestamp,
    pub(crate) updated_at: Timestamp,
    /// When it was last used, as far as events tell.
    pub(crate) used_at: Timestamp,
    pub(crate) backlog: Backlog,
    pub(crate) duplicates: Duplicates,
    /// The deadline under which the state has this entity in its ordered set.
    pub(crate) deadline: Option<Timestamp>,
}

impl BusQueue {
    pub(crate) fn new(
        name: EntityName,
        role: Role,
        options: BusQueueOptions,
        created_at: Timestamp,
    ) -> Self {
        let by_session = options.requires_session && role == Role::Queue;
        Self {
            name,
            role,
            options,
            created_at,
            updated_at: created_at,
            used_at: created_at,
            backlog: Backlog::starting_at(SequenceNumber::FIRST, by_session),
            duplicates: Duplicates::default(),
            deadline: None,
        }
    }

    /// Where the bytes lie that are still needed.
    pub(crate) fn bodies(&self) -> impl Iterator<Item = BodyLocation> {
        let messages = self.backlog.messages().flat_map(|(_, message)| {
            let overlays = message.overlays.iter().copied();
            std::iter::once(message.body).chain(overlays)
        });
        let sessions = self.backlog.sessions.iter();
        messages.chain(sessions.filter_map(|(_, session)| session.state))
    }

    /// Whether its messages belong to sessions. Those of sub-queues are received without.
    pub(crate) fn requires_session(&self) -> bool {
        self.options.requires_session && self.role == Role::Queue
    }

    /// The session whose lock is a message's: nothing where messages are locked by themselves.
    pub(crate) fn locking_session(&self, message: &Message) -> Option<u32> {
        (self.requires_session() && message.session != 0).then_some(message.session)
    }

    /// When an idle queue deletes itself, if it ever does: not while it forwards, and not while somebody
    /// holds a lock or a message is scheduled.
    ///
    /// Source: Service Bus, *AutoDeleteOnIdle*.
    pub(crate) fn idle_deadline(&self) -> Option<Timestamp> {
        let idle_ms = self.options.auto_delete_on_idle_ms;
        let deletes_itself = self.role == Role::Queue
            && idle_ms != u64::MAX
            && self.options.forward_to.is_none()
            && !self.backlog.is_in_use();
        deletes_itself.then(|| self.used_at.plus_ms(idle_ms))
    }

    /// Whether its use at this time is worth an event: without one it would be forgotten that it was
    /// used, and the queue could delete itself while receivers ask for messages that never come.
    pub(crate) fn is_use_noted(&self, now: Timestamp) -> bool {
        let idle_ms = self.options.auto_delete_on_idle_ms;
        self.role == Role::Queue
            && idle_ms != u64::MAX
            && self.used_at.plus_ms(idle_ms / USE_PART).has_passed(now)
    }

    /// Where its messages go on to.
    pub(crate) fn destination(&self) -> Option<&str> {
        match self.role {
            Role::Queue => self.options.forward_to.as_deref(),
            Role::DeadLetters { .. } => self.options.forward_dead_letters_to.as_deref(),
            Role::FailedTransfers { .. } => None,
        }
    }

    /// When something is to be done by itself next. What waits to be forwarded is due at once.
    pub(crate) fn next_deadline(&self) -> Option<Timestamp> {
        let waits = self.destination().is_some() && self.backlog.has_ready();
        let forward = waits.then_some(Timestamp::ZERO);
        let backlog = self.backlog.next_deadline();
        backlog
            .into_iter()
            .chain(forward)
            .chain(self.idle_deadline())
            .min()
    }
}

/// The names of a queue's two sub-queues.
pub(crate) fn sub_queue_names(queue: &EntityName) -> [EntityName; 2] {
    ["$deadletterqueue", "$transfer/$deadletterqueue"].map(|suffix| EntityName {
        name: format!("{}/{suffix}", queue.name).into(),
        ..queue.clone()
    })
}

/// Message ids that were seen within the window, as keyed hashes of 128 bits.
///
/// What is older than the window is dropped as new ones come, so that it is a function of events.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Duplicates {
    seen_at: BTreeMap<u128, Timestamp>,
    by_time: BTreeSet<(Timestamp, u128)>,
}

impl Duplicates {
    /// Whether an id was seen within the window before `now`.
    pub(crate) fn has(&self, id: u128, window_ms: u64, now: Timestamp) -> bool {
        self.seen_at.get(&id).is_some_and(|at| {
            !at.plus_ms(window_ms).has_passed(now) || is_planted(Bug::BusWindowNeverEnds)
        })
    }

    /// Remembers an id and drops what is older than the window.
    pub(crate) fn note(&mut self, id: u128, window_ms: u64, at: Timestamp) {
        while let Some(&(oldest, other)) = self.by_time.first()
            && oldest.plus_ms(window_ms).has_passed(at)
        {
            self.by_time.pop_first();
            self.seen_at.remove(&other);
        }
        self.restore(id, at);
    }

    /// Puts back an id of a snapshot.
    pub(crate) fn restore(&mut self, id: u128, at: Timestamp) {
        if let Some(before) = self.seen_at.insert(id, at) {
            self.by_time.remove(&(before, id));
        }
        self.by_time.insert((at, id));
    }

    /// What a snapshot of it takes at most: a hash and a time for each id.
    pub(crate) fn snapshot_size_bytes_max(&self) -> u64 {
        self.seen_at.len() as u64 * 24
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u128, Timestamp)> {
        self.by_time.iter().map(|(at, id)| (*id, *at))
    }
}

impl State {
    /// Whether who receives from an entity must have a session, or the entity is gone.
    pub fn is_received_by_session(&self, entity: Incarnation) -> bool {
        self.bus.get(&entity).is_none_or(BusQueue::requires_session)
    }

    /// The bus queue of that name, if it has messages to receive without a session.
    pub fn has_ready(&self, name: &EntityName) -> Option<Incarnation> {
        let queue = *self.catalogue.get(name)?;
        self.bus.get(&queue)?.backlog.has_ready().then_some(queue)
    }
}
