//! The state of a partition, and how events change it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use kew_planted::{Bug, is_planted};

use crate::bus::{BusQueue, ENTITIES_PER_BUS_QUEUE};
use crate::entity::Entity;
use crate::hint::Hint;
use crate::overview::Tally;
use crate::token::TokenCipher;
use crate::{
    AccountRecord, AccountUsage, BodyLocation, EntityName, Event, Fact, Incarnation, Service,
    Timestamp,
};

/// The whole state of a partition: the sum of its events.
///
/// Changes come through [`State::apply`] alone. It is total: any event that any version wrote
/// applies without error, and one that no longer fits (its queue or message is gone) changes
/// nothing.
#[derive(Debug, PartialEq)]
pub struct State {
    pub(crate) cipher: Option<TokenCipher>,
    pub(crate) next_incarnation: Incarnation,
    pub(crate) catalogue: BTreeMap<EntityName, Incarnation>,
    pub(crate) entities: BTreeMap<Incarnation, Entity>,
    pub(crate) bus: BTreeMap<Incarnation, BusQueue>,
    /// The entities with a deadline.
    pub(crate) deadlines: Hint<BTreeSet<(Timestamp, Incarnation)>>,
    pub(crate) last_event_at: Timestamp,
    pub(crate) accounts: BTreeMap<Arc<str>, AccountRecord>,
    /// The usage of each account with queues, even if the account was never put.
    pub(crate) usage: BTreeMap<Arc<str>, AccountUsage>,
    pub(crate) service_properties: BTreeMap<(Service, Arc<str>), Bytes>,
    /// How many messages have expired, for metrics.
    pub(crate) expired: Tally,
}

impl Default for State {
    fn default() -> Self {
        Self::new()
    }
}

impl State {
    /// A partition before its first event.
    pub fn new() -> Self {
        Self {
            cipher: None,
            next_incarnation: Incarnation::new(1),
            catalogue: BTreeMap::new(),
            entities: BTreeMap::new(),
            bus: BTreeMap::new(),
            deadlines: Hint::default(),
            last_event_at: Timestamp::ZERO,
            accounts: BTreeMap::new(),
            usage: BTreeMap::new(),
            service_properties: BTreeMap::new(),
            expired: Tally::default(),
        }
    }

    /// Makes an event part of the state.
    pub fn apply(&mut self, event: Event) {
        self.last_event_at = self.last_event_at.max(event.at);
        self.apply_fact(event.at, event.fact);
    }

    fn apply_fact(&mut self, at: Timestamp, fact: Fact) {
        match fact {
            Fact::PartitionInitialized { secret } => self.cipher = Some(TokenCipher::new(secret)),
            Fact::QueueCreated {
                queue,
                name,
                metadata,
            } => self.create(queue, Entity::new(name, metadata, at)),
            Fact::QueueDeleted { queue } => self.delete(queue),
            Fact::QueueMetadataSet { queue, metadata } => {
                if let Some(entity) = self.entities.get_mut(&queue) {
                    entity.metadata = metadata;
                }
            }
            Fact::Messages { effects } => self.apply_effects(at, &effects),
            Fact::BusMessages { effects } => self.apply_bus_effects(at, &effects),
            Fact::Bus(fact) => self.apply_bus(at, fact),
            Fact::QueuePoliciesSet { queue, policies } => {
                if let Some(entity) = self.entities.get_mut(&queue) {
                    entity.policies = policies;
                }
            }
            Fact::ServicePropertiesSet {
                service,
                account,
                properties,
            } => {
                let place = (service, account);
                self.service_properties.insert(place, properties);
            }
            Fact::AccountPut { account } => {
                self.accounts.insert(account.name.clone(), account);
            }
            Fact::AccountRemoved { account } => self.remove_account(&account),
        }
    }

    /// Nothing happens if there is an entity of that incarnation. A lower incarnation than the next one may be
    /// new: in a replay, the next one can come from a later time than the entities.
    pub(crate) fn create(&mut self, incarnation: Incarnation, entity: Entity) {
        if self.entities.contains_key(&incarnation) || self.bus.contains_key(&incarnation) {
            return;
        }
        self.next_incarnation = self.next_incarnation.max(incarnation.next());
        self.insert(incarnation, entity);
    }

    /// Adds an entity that has no deadline yet and is not counted in its account's usage.
    pub(crate) fn insert(&mut self, incarnation: Incarnation, entity: Entity) {
        let usage = self.usage.entry(entity.name.account.clone()).or_default();
        usage.queues += 1;
        // A damaged history may use a name twice: the later entity gets it.
        self.catalogue.insert(entity.name.clone(), incarnation);
        self.entities.insert(incarnation, entity);
    }

    pub(crate) fn delete(&mut self, incarnation: Incarnation) {
        let Some(entity) = self.entities.remove(&incarnation) else {
            return;
        };
        if self.catalogue.get(&entity.name) == Some(&incarnation) {
            self.catalogue.remove(&entity.name);
        }
        if let Some(deadline) = *entity.deadline {
            self.deadlines.remove(&(deadline, incarnation));
        }
        self.uncount(&entity);
    }

    /// Removes a deleted entity from its account's usage.
    pub(crate) fn uncount(&mut self, entity: &Entity) {
        let account = &entity.name.account;
        let Some(usage) = self.usage.get_mut(account) else {
            return;
        };
        usage.queues -= 1;
        usage.size_bytes -= entity.counted_bytes;
        if usage.queues == 0 {
            self.usage.remove(account);
        }
    }

    fn remove_account(&mut self, account: &Arc<str>) {
        let of_account = |(_, entity): &(&Incarnation, &Entity)| entity.name.account == *account;
        let queues: Vec<Incarnation> = self
            .entities
            .iter()
            .filter(of_account)
            .map(|(incarnation, _)| *incarnation)
            .collect();
        for queue in queues {
            self.delete(queue);
        }
        // A namespace of Service Bus may have the same name.
        self.service_properties
            .retain(|(service, other), _| *service != Service::QueueStorage || other != account);
        if !is_planted(Bug::AccountNotForgotten) {
            self.accounts.remove(account);
        }
    }

    /// Updates the usage and the deadline of an entity.
    pub(crate) fn settle(&mut self, incarnation: Incarnation) {
        if let Some(entity) = self.entities.get_mut(&incarnation) {
            settle(incarnation, entity, &mut self.usage, &mut self.deadlines);
        }
    }

    /// Whether the partition has the secret that its tokens are made with.
    pub fn is_initialized(&self) -> bool {
        self.cipher.is_some()
    }

    /// The time of the latest event: the runner's clock never shows less.
    pub fn last_event_at(&self) -> Timestamp {
        self.last_event_at
    }

    /// When a tick is due next, if one ever is.
    pub fn next_deadline(&self) -> Option<Timestamp> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }

    /// How many queues and how many messages there are.
    pub fn counts(&self) -> (usize, u64) {
        let stored = self.entities.values().map(|entity| entity.backlog.count());
        let bus = self.bus.values().map(|queue| queue.backlog.count());
        let queues = self.entities.len() + self.bus.len() / ENTITIES_PER_BUS_QUEUE;
        (queues, stored.chain(bus).sum())
    }

    /// Every account in the state, in ascending order of their names' bytes.
    pub fn accounts(&self) -> impl Iterator<Item = &AccountRecord> {
        self.accounts.values()
    }

    /// The usage of an account, even if the account was never put.
    pub fn usage_of(&self, account: &str) -> AccountUsage {
        self.usage.get(account).copied().unwrap_or_default()
    }

    /// The locations of the bodies that are still needed.
    pub fn bodies(&self) -> impl Iterator<Item = BodyLocation> + '_ {
        self.entities
            .values()
            .flat_map(|entity| entity.backlog.messages())
            .map(|(_, message)| message.body)
            .chain(self.bus.values().flat_map(BusQueue::bodies))
    }

    /// Whether an entity of that name exists.
    pub fn has_entity(&self, name: &EntityName) -> bool {
        self.catalogue.contains_key(name)
    }

    pub(crate) fn find(&self, name: &EntityName) -> Option<(Incarnation, &Entity)> {
        let incarnation = *self.catalogue.get(name)?;
        Some((incarnation, self.entities.get(&incarnation)?))
    }
}

/// Updates the usage and the deadline of an entity whose backlog has changed.
pub(crate) fn settle(
    incarnation: Incarnation,
    entity: &mut Entity,
    usage: &mut BTreeMap<Arc<str>, AccountUsage>,
    deadlines: &mut BTreeSet<(Timestamp, Incarnation)>,
) {
    let deadline = entity.backlog.next_expiry();
    if deadline != *entity.deadline {
        if let Some(old) = *entity.deadline {
            deadlines.remove(&(old, incarnation));
        }
        if let Some(new) = deadline {
            deadlines.insert((new, incarnation));
        }
        *entity.deadline = deadline;
    }
    let size_bytes = entity.backlog.size_bytes();
    if size_bytes != entity.counted_bytes {
        let usage = usage.entry(entity.name.account.clone()).or_default();
        usage.size_bytes = usage.size_bytes - entity.counted_bytes + size_bytes;
        entity.counted_bytes = size_bytes;
    }
}
