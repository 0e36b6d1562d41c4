//! The known facts about a queue besides its messages.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use kew_engine::bus::BusQueueOptions;
use kew_engine::{Timestamp, Token};

use super::life::{Entity, Part, Span, Surroundings};
use crate::bus::queue_index;
use crate::bus::rules::Rule;

/// The lock of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SessionLock {
    Free,
    Held { token: Option<Token>, until: Span },
}

impl SessionLock {
    pub(crate) fn may_be_free(self, now: Timestamp) -> bool {
        match self {
            Self::Free => true,
            Self::Held { until, .. } => until.may_have_passed(now),
        }
    }

    pub(crate) fn must_be_free(self, now: Timestamp) -> bool {
        match self {
            Self::Free => true,
            Self::Held { until, .. } => until.has_passed(now),
        }
    }

    pub(crate) fn is_of(self, token: Token) -> bool {
        matches!(self, Self::Held { token: Some(own), .. } if own == token)
    }
}

/// The possible states of a session.
#[derive(Clone, Debug)]
pub(crate) struct Session {
    pub(crate) locks: Vec<SessionLock>,
    pub(crate) states: Vec<Option<Bytes>>,
}

impl Default for Session {
    fn default() -> Self {
        Self {
            locks: vec![SessionLock::Free],
            states: vec![None],
        }
    }
}

impl Session {
    pub(crate) fn may_lock(&mut self, lock: SessionLock) {
        if let SessionLock::Held { token, until } = lock {
            for known in &mut self.locks {
                if let SessionLock::Held {
                    token: own,
                    until: known,
                } = known
                    && *own == token
                {
                    *known = known.hull(until);
                    return;
                }
            }
        }
        if !self.locks.contains(&lock) {
            self.locks.push(lock);
        }
    }

    pub(crate) fn may_have_state(&mut self, state: Option<Bytes>) {
        if !self.states.contains(&state) {
            self.states.push(state);
        }
    }

    /// Whether the lock may hold.
    pub(crate) fn may_be_held_by(&self, token: Token, now: Timestamp) -> bool {
        let holds = |lock: &SessionLock| lock.is_of(token) && !lock.must_be_free(now);
        self.locks.iter().any(holds)
    }

    /// Whether the lock must hold.
    pub(crate) fn must_be_held_by(&self, token: Token, now: Timestamp) -> bool {
        let holds = |lock: &SessionLock| lock.is_of(token) && !lock.may_be_free(now);
        self.locks.iter().all(holds)
    }

    pub(crate) fn may_be_free(&self, now: Timestamp) -> bool {
        self.locks.iter().any(|lock| lock.may_be_free(now))
    }

    pub(crate) fn must_be_free(&self, now: Timestamp) -> bool {
        self.locks.iter().all(|lock| lock.must_be_free(now))
    }
}

/// The owner of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) message: u64,
    pub(crate) is_scheduled: bool,
}

/// The possible states of a queue.
#[derive(Clone, Debug)]
pub(crate) struct Queue {
    /// Its settings, or `None` if it does not exist.
    pub(crate) possible: Vec<Option<BusQueueOptions>>,
    /// The rule of a subscription.
    pub(crate) rules: Vec<Rule>,
    /// It may have been deleted and created again since it was last seen.
    pub(crate) is_perhaps_new: bool,
    /// When it was last used with an observed answer.
    pub(crate) used_at: Timestamp,
    /// When each id was accepted last.
    pub(crate) ids: BTreeMap<Box<str>, Vec<Option<Span>>>,
    /// Those that may have been accepted more than once.
    pub(crate) again: BTreeSet<Box<str>>,
    pub(crate) sessions: BTreeMap<Box<str>, Session>,
    pub(crate) numbers: BTreeMap<(Part, u64), Owner>,
    pub(crate) last_number: u64,
    /// The sizes of messages that may wait in a topic, by their places among all that were published.
    pub(crate) stored: BTreeMap<u64, u64>,
    /// The sizes of messages that were scheduled in a topic or forwarded to it, by the numbers in their bodies. When their time
    /// comes, or they come, they wait there, also those that nobody is to get. They are removed once it is known that they do
    /// not wait any more.
    pub(crate) scheduled: BTreeMap<u64, u64>,
}

impl Default for Queue {
    fn default() -> Self {
        Self {
            possible: vec![None],
            rules: vec![Rule::All],
            is_perhaps_new: false,
            used_at: Timestamp::ZERO,
            ids: BTreeMap::new(),
            again: BTreeSet::new(),
            sessions: BTreeMap::new(),
            numbers: BTreeMap::new(),
            last_number: 0,
            stored: BTreeMap::new(),
            scheduled: BTreeMap::new(),
        }
    }
}

impl Queue {
    pub(crate) fn may_be(&mut self, possible: Option<BusQueueOptions>) {
        if !self.possible.contains(&possible) {
            self.possible.push(possible);
        }
    }

    pub(crate) fn options(&self) -> impl Iterator<Item = &BusQueueOptions> {
        self.possible.iter().flatten()
    }

    pub(crate) fn may_be_absent(&self) -> bool {
        self.possible.contains(&None)
    }

    pub(crate) fn may_have_rule(&mut self, rule: Rule) {
        if !self.rules.contains(&rule) {
            self.rules.push(rule);
        }
    }

    /// The queue was just created.
    pub(crate) fn begin(&mut self, options: BusQueueOptions, now: Timestamp) {
        *self = Self {
            possible: vec![Some(options)],
            used_at: now,
            ..Self::default()
        };
    }

    /// It may have been created anew: facts about its numbers may be wrong.
    pub(crate) fn forget(&mut self) {
        self.is_perhaps_new = true;
        self.numbers.clear();
        self.last_number = 0;
        for times in self.ids.values_mut() {
            if !times.contains(&None) {
                times.push(None);
            }
        }
        for session in self.sessions.values_mut() {
            session.may_lock(SessionLock::Free);
            session.may_have_state(None);
        }
    }

    /// An id may have been accepted then.
    pub(crate) fn may_be_accepted(&mut self, id: &str, when: Span) {
        let times = self.ids.entry(id.into()).or_insert_with(|| vec![None]);
        if times.iter().any(Option::is_some) {
            self.again.insert(id.into());
        }
        times.push(Some(when));
    }

    pub(crate) fn session(&mut self, id: &str) -> &mut Session {
        self.sessions.entry(id.into()).or_default()
    }
}

/// All queues, and the moment since which nothing is known.
#[derive(Clone, Debug)]
pub(crate) struct Queues(pub(crate) Vec<Queue>, pub(crate) Timestamp);

impl Default for Queues {
    fn default() -> Self {
        Self(Vec::new(), Timestamp::ZERO)
    }
}

impl Queues {
    pub(crate) fn get(&mut self, queue: usize) -> &mut Queue {
        if self.0.len() <= queue {
            self.0.resize_with(queue + 1, Queue::default);
        }
        &mut self.0[queue]
    }

    /// The possible settings of an entity's queue.
    pub(crate) fn of(&self, entity: Entity) -> impl Iterator<Item = &BusQueueOptions> {
        self.options(entity.queue)
    }
}

impl Surroundings for Queues {
    fn options(&self, queue: usize) -> impl Iterator<Item = &BusQueueOptions> {
        self.0.get(queue).into_iter().flat_map(Queue::options)
    }

    fn since(&self) -> Timestamp {
        self.1
    }

    fn may_be_free(&self, queue: usize, session: &str, now: Timestamp) -> bool {
        let queue = self.0.get(queue);
        let session = queue.and_then(|queue| queue.sessions.get(session));
        session.is_none_or(|session| session.may_be_free(now))
    }

    fn destination(&self, name: &str) -> usize {
        queue_index(name)
    }

    fn copies(&self, subscription: usize, number: u64) -> Vec<Option<Vec<u64>>> {
        let Some(known) = self.0.get(subscription) else {
            return vec![None];
        };
        let may_be_there = known.options().next().is_some();
        let rules = known.rules.iter().filter(|_| may_be_there);
        let absent = known.may_be_absent().then_some(None);
        let copies = absent.into_iter().chain(rules.map(|it| it.copy(number)));
        copies.collect()
    }

    fn may_not_take(&self, queue: usize) -> bool {
        let Some(queue) = self.0.get(queue) else {
            return true;
        };
        let takes = |options: &BusQueueOptions| {
            let default = BusQueueOptions::default().size_bytes_max;
            options.status.allows_send() && options.size_bytes_max >= default
        };
        !queue
            .possible
            .iter()
            .all(|possible| possible.as_ref().is_some_and(takes))
    }
}
