//! Entities and who owns them: names, incarnations and deadlines; accounts, and what they may use.
//!
//! The entities themselves are in their profiles. The catalogue knows their names and their next deadlines, and
//! gives out incarnations, of which each has at most one entity.

pub(crate) mod account;
mod deadlines;
mod decision;
pub(crate) mod description;
mod families;
mod quota;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;

pub use self::account::{
    AccountQuota, AccountRecord, AccountSecret, AccountUsage, InvalidAccountSecret, QuotaLimit,
};
pub(crate) use self::deadlines::{Deadline, Deadlines, LOOKS_PER_UNIT};
pub(crate) use self::decision::Decision;
pub use self::decision::Scope;
pub(crate) use self::description::Description;
pub use self::description::{Class, ReceiveMode, Receives, Touches, Writes};
pub(crate) use self::families::{Families, FamilySize};
pub(crate) use self::quota::QuotaExceeded;
use crate::shared::Waste;
use crate::table::{CountUnit, Live, RunLength};
use crate::vocabulary::token::TokenCipher;
use crate::vocabulary::{EntityName, Hint, Incarnation, Service, Timestamp};

pub(crate) type Accounts = BTreeMap<Arc<str>, AccountRecord>;

/// The properties of each account's services.
pub(crate) type AllProperties = BTreeMap<(Service, Arc<str>), Bytes>;

#[derive(Debug, PartialEq)]
pub(crate) struct Catalogue {
    pub(crate) cipher: Option<TokenCipher>,
    /// How many numbers share a run, in every entity.
    pub(crate) run_length: RunLength,
    pub(crate) next_incarnation: Incarnation,
    pub(crate) names: BTreeMap<EntityName, Incarnation>,
    /// The bus queues, without their sub-queues.
    pub(crate) bus_queues: BTreeMap<EntityName, Incarnation>,
    /// The bus topics.
    pub(crate) topics: BTreeMap<EntityName, Incarnation>,
    /// The subscriptions of bus topics, each behind its topic: the oldest first.
    pub(crate) subscriptions: BTreeSet<(Incarnation, Incarnation)>,
    /// What these count for in the sizes of their topics.
    pub(crate) families: Families,
    /// The topics with a message that waits for its copies.
    pub(crate) copying: BTreeSet<Incarnation>,
    /// The entities with a deadline.
    pub(crate) deadlines: Hint<Deadlines>,
    /// A snapshot shares them. A change while it does copies all of them: 0.1 ms for 1,000.
    pub(crate) accounts: Arc<Accounts>,
    /// The usage of each account with queues, even if the account was never put.
    pub(crate) usage: BTreeMap<Arc<str>, AccountUsage>,
    pub(crate) service_properties: Arc<AllProperties>,
    /// The bytes of the log that are still needed.
    pub(crate) live: Live,
    /// How many messages, sessions and ids were copied because a snapshot had them. To copy takes time, and is no
    /// part of the state.
    pub(crate) copied: Hint<u64>,
    /// How many runs were restored of which their pages said something that their messages do not.
    pub(crate) healed_runs: Hint<u64>,
    /// What has left the queues and takes long to free. No part of the state.
    pub(crate) waste: Hint<Waste>,
    /// Whether queues count for metrics what comes and leaves. They do not during a replay.
    pub(crate) tallies: Hint<bool>,
    /// How many subscriptions were walked over.
    #[cfg(test)]
    pub(crate) walked: Hint<std::cell::Cell<u64>>,
}

impl Catalogue {
    /// The catalogue of a partition before its first event.
    pub(crate) fn new() -> Self {
        Self {
            cipher: None,
            run_length: RunLength::UNTOLD,
            next_incarnation: Incarnation::new(1),
            names: BTreeMap::new(),
            bus_queues: BTreeMap::new(),
            topics: BTreeMap::new(),
            subscriptions: BTreeSet::new(),
            families: Families::default(),
            copying: BTreeSet::new(),
            deadlines: Hint::default(),
            accounts: Arc::default(),
            usage: BTreeMap::new(),
            service_properties: Arc::default(),
            live: Live::new(CountUnit::DEFAULT),
            copied: Hint::default(),
            healed_runs: Hint::default(),
            waste: Hint::default(),
            tallies: Hint::default(),
            #[cfg(test)]
            walked: Hint::default(),
        }
    }

    pub(crate) fn cipher(&self) -> &TokenCipher {
        self.cipher
            .as_ref()
            .expect("the runner initializes a partition before it takes other commands")
    }

    /// The entity of that name.
    pub(crate) fn find(&self, name: &EntityName) -> Option<Incarnation> {
        self.names.get(name).copied()
    }

    /// The bus queues of a namespace, in the order of their names, from a name on.
    pub(crate) fn bus_queues_from(
        &self,
        namespace: &Arc<str>,
        from: Box<str>,
    ) -> impl Iterator<Item = Incarnation> + '_ {
        of_namespace(&self.bus_queues, namespace, from)
    }

    /// The topics of a namespace, in the order of their names.
    pub(crate) fn topics_of(&self, namespace: &Arc<str>) -> impl Iterator<Item = Incarnation> + '_ {
        of_namespace(&self.topics, namespace, Box::default())
    }

    /// The subscriptions of a topic, oldest first. There may be 2,000: a send, a receive or a settlement walks over them only
    /// to find the largest family of a full topic.
    pub(crate) fn subscriptions_of(
        &self,
        topic: Incarnation,
    ) -> impl Iterator<Item = Incarnation> + '_ {
        let all = self.subscriptions.range((topic, Incarnation::default())..);
        let own = all.take_while(move |(of, _)| *of == topic);
        #[cfg(test)]
        let own = own.inspect(|_| self.walked.set(self.walked.get() + 1));
        own.map(|(_, subscription)| *subscription)
    }

    /// How many they are.
    pub(crate) fn subscription_count(&self, topic: Incarnation) -> u64 {
        self.families.count_of(topic)
    }

    /// The size of the largest family of a topic.
    pub(crate) fn largest_family_bytes(&self, topic: Incarnation) -> u64 {
        self.families.largest(topic, self.subscriptions_of(topic))
    }

    /// What the subscriptions of a topic count for in its size.
    pub(crate) fn subscriptions_size_bytes(&self, topic: Incarnation) -> u64 {
        let charged = self.families.charge_bytes(topic);
        charged.max(self.largest_family_bytes(topic))
    }

    /// Finds the largest family of a topic and the next one. Returns how many families were looked at.
    pub(crate) fn find_largest_families(&mut self, topic: Incarnation) -> u64 {
        self.families.forget_largest(topic);
        self.keep_largest_family(topic)
    }

    /// Finds the largest family of a topic, if it is not known. That is no part of the state. Returns how many families were
    /// looked at.
    pub(crate) fn keep_largest_family(&mut self, topic: Incarnation) -> u64 {
        let own = (topic, Incarnation::default())..;
        let own = self.subscriptions.range(own);
        let own = own.take_while(|(of, _)| *of == topic);
        #[cfg(test)]
        let own = own.inspect(|_| self.walked.set(self.walked.get() + 1));
        let own = own.map(|(_, subscription)| *subscription);
        self.families.keep_largest(topic, own)
    }

    /// Gives a name to an entity. A damaged history may use one twice: the later entity gets it.
    pub(crate) fn name(&mut self, name: EntityName, entity: Incarnation) {
        self.names.insert(name, entity);
    }

    /// Forgets an entity with its deadline. A later entity keeps its name.
    pub(crate) fn forget(&mut self, name: &EntityName, entity: Incarnation, deadline: &Deadline) {
        if self.find(name) == Some(entity) {
            self.names.remove(name);
        }
        self.deadlines.remove(entity, deadline);
    }

    /// Makes sure that no other entity gets this incarnation.
    pub(crate) fn use_incarnation(&mut self, entity: Incarnation) {
        self.next_incarnation = self.next_incarnation.max(entity.next());
    }

    /// When something of an entity becomes due next.
    pub(crate) fn next_deadline(&self) -> Option<Timestamp> {
        self.deadlines.first().map(|(deadline, _)| deadline)
    }

    /// Adds what another reading of the same history has found and is missing here, but no entity.
    pub(crate) fn absorb(&mut self, other: Self) {
        self.next_incarnation = self.next_incarnation.max(other.next_incarnation);
        if self.cipher.is_none() {
            self.cipher = other.cipher;
            self.run_length = other.run_length;
        }
        // For an account in both, the keys here are the later ones.
        let accounts = Arc::make_mut(&mut self.accounts);
        for (name, account) in Arc::unwrap_or_clone(other.accounts) {
            accounts.entry(name).or_insert(account);
        }
        let all = Arc::make_mut(&mut self.service_properties);
        for (place, properties) in Arc::unwrap_or_clone(other.service_properties) {
            all.entry(place).or_insert(properties);
        }
    }

    /// Leaves out the next `count` incarnations.
    pub(crate) fn skip_incarnations(&mut self, count: u64) {
        let highest = (1 << Incarnation::BITS) - 1;
        let next = self.next_incarnation.as_u64() + count;
        self.next_incarnation = Incarnation::new(next.min(highest));
    }

    /// Removes an account, and the properties of its Queue Storage: a namespace of Service Bus may have the same
    /// name.
    pub(crate) fn remove_account(&mut self, account: &Arc<str>) {
        Arc::make_mut(&mut self.service_properties)
            .retain(|(service, other), _| *service != Service::QueueStorage || other != account);
        Arc::make_mut(&mut self.accounts).remove(account);
    }
}

/// The bus entities of a namespace among these, in the order of their names, from a name on.
fn of_namespace<'a>(
    all: &'a BTreeMap<EntityName, Incarnation>,
    namespace: &Arc<str>,
    from: Box<str>,
) -> impl Iterator<Item = Incarnation> + 'a {
    let first = EntityName {
        service: Service::ServiceBus,
        account: namespace.clone(),
        name: from,
    };
    let namespace = namespace.clone();
    let all = all.range(first..);
    let own = all.take_while(move |(name, _)| name.account == namespace);
    own.map(|(_, entity)| *entity)
}
