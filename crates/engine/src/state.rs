//! The state of a partition, and how events change it.

mod ahead;
mod awaited;
mod cold;
mod hand;
mod rewriting;

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use crate::bus::{self, BusFact, BusQueue, CopyChanges, ENTITIES_PER_BUS_QUEUE, Role};
use crate::catalogue::{
    AccountRecord, AccountUsage, Accounts, AllProperties, Catalogue, Families, FamilySize,
};
use crate::event::{Event, Fact};
use crate::queues::Queue;
use crate::shared::{HeadMarks, Waste};
use crate::storage::{self, StorageFact};
use crate::table::{CountUnit, Live, Resident, Run, RunLength, Spread, Table};
use crate::vocabulary::token::TokenCipher;
use crate::vocabulary::{BodyLocation, EntityName, Hint, Incarnation, Timestamp, topic_of_path};

pub use self::ahead::Ahead;
pub use self::hand::{Evicted, Hand, Pass};
pub use self::rewriting::FoundToWarm;

/// The whole state of a partition: the sum of its events.
///
/// Changes come through [`State::apply`] alone. It is total: any event that any version wrote
/// applies without error, and one that no longer fits (its queue or message is gone) changes
/// nothing.
#[derive(Debug, PartialEq)]
pub struct State {
    pub(crate) catalogue: Catalogue,
    pub(crate) storage: storage::Queues,
    pub(crate) bus: bus::Queues,
    /// A hint, because what is forgotten without an event has a time too.
    pub(crate) last_event_at: Hint<Timestamp>,
    /// How many messages have expired, for metrics.
    pub(crate) expired: Tally,
    /// What comes first in a snapshot that is being gathered.
    pub(crate) gathering: Hint<Option<SnapshotHead>>,
}

/// The partition and its accounts as a snapshot shares them.
#[derive(Clone, Debug)]
pub(crate) struct SnapshotHead {
    /// The partition's own part.
    pub(crate) partition: Vec<u8>,
    pub(crate) run_length: RunLength,
    pub(crate) unit: CountUnit,
    /// The marks of the heads of storage queues and bus queues.
    pub(crate) head_marks: [HeadMarks; 2],
    pub(crate) accounts: Arc<Accounts>,
    pub(crate) service_properties: Arc<AllProperties>,
}

/// A count for metrics. It is not part of the state: two states that differ only in it are equal.
#[derive(Debug, Default)]
pub(crate) struct Tally(u64);

impl Tally {
    pub(crate) fn add(&mut self, count: u64) {
        self.0 += count;
    }

    pub(crate) fn count(&self) -> u64 {
        self.0
    }
}

impl PartialEq for Tally {
    fn eq(&self, _: &Self) -> bool {
        true
    }
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
            catalogue: Catalogue::new(),
            storage: storage::Queues::default(),
            bus: bus::Queues::default(),
            last_event_at: Hint::new(Timestamp::ZERO),
            expired: Tally::default(),
            gathering: Hint::default(),
        }
    }

    /// The same, with the bytes that are still needed counted in another unit of positions. No decision depends
    /// on it.
    pub fn counting_in(unit: CountUnit) -> Self {
        let mut state = Self::new();
        state.catalogue.live = Live::new(unit);
        state
    }

    /// Makes an event part of the state.
    pub fn apply(&mut self, event: Event) {
        *self.last_event_at = self.last_event_at().max(event.at);
        let catalogue = &mut self.catalogue;
        match event.fact {
            Fact::PartitionInitialized { secret, run_length } => {
                catalogue.cipher = Some(TokenCipher::new(secret));
                catalogue.run_length = run_length;
            }
            Fact::ServicePropertiesSet {
                service,
                account,
                properties,
            } => {
                let place = (service, account);
                Arc::make_mut(&mut catalogue.service_properties).insert(place, properties);
            }
            Fact::AccountPut { account } => {
                let accounts = Arc::make_mut(&mut catalogue.accounts);
                accounts.insert(account.name.clone(), account);
            }
            Fact::AccountRemoved { account } => self.remove_account(&account),
            Fact::Quarantined {
                entity,
                first,
                messages,
            } => {
                self.storage
                    .quarantine(catalogue, entity, (first, messages));
                self.bus.quarantine(catalogue, entity, (first, messages));
            }
            Fact::RunLost { entity, number } => {
                self.storage.end_lost(catalogue, entity, number);
                self.bus.end_lost(catalogue, entity, number);
            }
            Fact::Storage(fact) => self.apply_storage(event.at, fact),
            Fact::Bus(fact) => self.apply_bus(event.at, fact),
        }
    }

    /// Begins to count for metrics what comes into queues and leaves them.
    pub fn begin_tallies(&mut self) {
        *self.catalogue.tallies = true;
    }

    fn remove_account(&mut self, account: &Arc<str>) {
        self.storage.delete_all_of(&mut self.catalogue, account);
        self.catalogue.remove_account(account);
    }

    /// An incarnation has one entity, of either profile.
    fn apply_storage(&mut self, at: Timestamp, fact: StorageFact) {
        let is_taken = match &fact {
            StorageFact::QueueCreated { queue, .. } => self.bus.contains_key(queue),
            StorageFact::QueueDeleted { .. }
            | StorageFact::QueueMetadataSet { .. }
            | StorageFact::Messages { .. }
            | StorageFact::QueuePoliciesSet { .. }
            | StorageFact::BodiesMoved { .. } => false,
        };
        if !is_taken {
            self.storage.apply(&mut self.catalogue, at, fact);
        }
    }

    fn apply_bus(&mut self, at: Timestamp, fact: BusFact) {
        let is_taken = fact.created().is_some_and(|first| {
            let entities = first.with_sub_queues();
            entities.iter().any(|it| self.storage.contains_key(it))
        });
        if !is_taken {
            self.bus.apply(&mut self.catalogue, at, fact);
        }
    }

    /// Whether a fact says what is true of the messages that it is about to change. It must when it is decided;
    /// applying it does not ask.
    pub(crate) fn is_described_by(&self, fact: &Fact) -> bool {
        match fact {
            Fact::Storage(fact) => {
                let (mut effects, mut moves) = (fact.effects().iter(), fact.moves().iter());
                effects.all(|it| self.storage.is_exact(it))
                    && moves.all(|it| self.storage.is_exact_move(it))
            }
            Fact::Bus(fact) => {
                let (mut effects, mut moves) = (fact.effects().iter(), fact.moves().iter());
                effects.all(|it| self.bus.is_exact(it))
                    && moves.all(|it| self.bus.is_exact_move(it))
            }
            Fact::PartitionInitialized { .. }
            | Fact::ServicePropertiesSet { .. }
            | Fact::AccountPut { .. }
            | Fact::AccountRemoved { .. } => true,
            Fact::Quarantined {
                entity,
                first,
                messages,
            } => {
                let messages = (*first, *messages);
                self.storage.has_all(*entity, messages) || self.bus.has_all(*entity, messages)
            }
            Fact::RunLost { entity, number } => {
                self.storage.is_lost(*entity, *number) || self.bus.is_lost(*entity, *number)
            }
        }
    }

    /// Notes that a tick has served an entity: others that are due come before it now.
    pub(crate) fn serve(&mut self, incarnation: Incarnation, now: Timestamp) {
        let deadlines = &mut self.catalogue.deadlines;
        if let Some(entity) = self.storage.get_mut(&incarnation) {
            let deadline = entity.next_deadline();
            deadlines.serve(incarnation, &mut entity.deadline, deadline, now);
        } else if let Some(entity) = self.bus.get_mut(&incarnation) {
            let deadline = entity.next_deadline();
            deadlines.serve(incarnation, &mut entity.deadline, deadline, now);
        }
    }

    /// Whether a tick has something to do for an entity.
    pub fn is_due(&self, incarnation: Incarnation, now: Timestamp) -> bool {
        let stored = self.storage.get(&incarnation);
        let bus = || self.bus.get(&incarnation);
        let entity = match stored {
            Some(entity) => Some((entity.deadline.rests, entity.next_deadline())),
            None => bus().map(|entity| (entity.deadline.rests, entity.next_deadline())),
        };
        let deadline = entity.and_then(|(rests, deadline)| deadline.filter(|_| !rests));
        deadline.is_some_and(|deadline| deadline.has_passed(now))
    }

    /// Lets an entity rest, or ends its rest: meanwhile no tick does what is due of it, and it has no deadline. A tick
    /// lets an entity rest that needs what is not in memory.
    pub fn let_rest(&mut self, incarnation: Incarnation, rests: bool) {
        let deadlines = &mut self.catalogue.deadlines;
        if let Some(entity) = self.storage.get_mut(&incarnation) {
            let deadline = entity.next_deadline();
            entity.deadline.rests = rests;
            deadlines.note(incarnation, &mut entity.deadline, deadline);
        } else if let Some(entity) = self.bus.get_mut(&incarnation) {
            let deadline = entity.next_deadline();
            entity.deadline.rests = rests;
            deadlines.note(incarnation, &mut entity.deadline, deadline);
        }
    }

    /// Whether the partition has the secret that its tokens are made with.
    pub fn is_initialized(&self) -> bool {
        self.catalogue.cipher.is_some()
    }

    /// The time of the latest event, or of later due work without one: the runner's clock never shows less.
    pub fn last_event_at(&self) -> Timestamp {
        *self.last_event_at
    }

    /// How many messages, sessions and ids were copied since the last call because a snapshot had them, with steps
    /// for entities that were gathered because they changed. A turn that has copied many ends early.
    pub fn take_copied(&mut self) -> u64 {
        let gathered = self.storage.take_steps() + self.bus.take_steps();
        std::mem::take(&mut *self.catalogue.copied) + gathered
    }

    /// How many runs were restored of which their pages said something that their messages do not.
    pub fn healed_runs(&self) -> u64 {
        *self.catalogue.healed_runs
    }

    /// What has left the state since the last call and takes long to free, if there is anything.
    pub fn take_waste(&mut self) -> Option<Waste> {
        let waste = &mut *self.catalogue.waste;
        (!waste.is_empty()).then(|| std::mem::take(waste))
    }

    /// When a tick is due next, if one ever is.
    pub fn next_deadline(&self) -> Option<Timestamp> {
        self.catalogue.next_deadline()
    }

    /// How many queues and how many messages there are.
    pub fn counts(&self) -> (usize, u64) {
        let stored = self.storage.values().map(|entity| entity.backlog.count());
        let bus = self.bus.values().map(|queue| queue.backlog.count());
        let queues = self.storage.len() + self.bus.len() / ENTITIES_PER_BUS_QUEUE;
        (queues, stored.chain(bus).sum())
    }

    /// Every account in the state, in ascending order of their names' bytes.
    pub fn accounts(&self) -> impl Iterator<Item = &AccountRecord> {
        self.catalogue.accounts.values()
    }

    /// The usage of an account, even if the account was never put.
    pub fn usage_of(&self, account: &str) -> AccountUsage {
        self.catalogue.usage_of(account)
    }

    /// The locations of the bodies that are still needed. All records are in memory.
    pub fn bodies(&self) -> impl Iterator<Item = BodyLocation> + '_ {
        self.storage
            .values()
            .flat_map(|entity| entity.backlog.table().entries())
            .map(|entry| entry.record.body)
            .chain(self.bus.values().flat_map(BusQueue::bodies))
    }

    /// The unit of positions in which the bytes of bodies are counted.
    pub fn count_unit(&self) -> CountUnit {
        self.catalogue.live.unit()
    }

    /// The bytes of the log that are still needed: of each body, its length and [`LIVE_OVERHEAD_BYTES`].
    ///
    /// [`LIVE_OVERHEAD_BYTES`]: crate::LIVE_OVERHEAD_BYTES
    pub fn live_bytes(&self) -> u64 {
        self.catalogue.live.size_bytes()
    }

    /// The same, of the bodies in the units of positions that a range touches.
    pub fn live_bytes_in(&self, positions: Range<u64>) -> u64 {
        self.catalogue.live.size_bytes_in(positions)
    }

    /// Whether there are any.
    pub fn is_any_live_in(&self, positions: Range<u64>) -> bool {
        self.catalogue.live.has_any_in(positions)
    }

    /// Asserts that the counted bytes are those of the bodies that are still needed. Walks all of them: for tests.
    pub fn check_live_bytes(&self) {
        let (mut walked, mut of_sessions) = (self.catalogue.live.apart(), Spread::default());
        let mut resident = Resident::default();
        let stored = self.storage.values().map(|entity| entity.backlog.table());
        let bus = self.bus.values().map(|queue| queue.backlog.table());
        for run in stored.chain(bus).flat_map(Table::runs) {
            run.count_again(&mut walked);
            resident.add(run.resident());
        }
        for queue in self.bus.values() {
            resident.add(queue.resident_ids());
        }
        for state in self.bus.session_states() {
            walked.add(&mut of_sessions, state.body);
        }
        assert_eq!(self.catalogue.live, walked, "bytes that are still needed");
        assert_eq!(self.resident(), resident, "records in memory");
        self.check_families();
    }

    /// Asserts that topics count what their subscriptions have, and queues what other messages count of their bodies; and that
    /// they know which of these there are, and which still have the rule `$Default` of their creation.
    fn check_families(&self) {
        let mut counted = Families::default();
        let mut subscriptions = BTreeSet::new();
        for (subscription, queue) in self.bus.iter() {
            if let Some(topic) = queue.role.topic() {
                counted.join(*subscription, topic);
                counted.note_default(*subscription, queue.rule.map(|it| it.since));
                subscriptions.insert((topic, *subscription));
            }
        }
        assert_eq!(self.catalogue.subscriptions, subscriptions);
        for (entity, queue) in self.bus.iter() {
            let table = queue.backlog.table();
            let borrowed: u64 = table.runs().map(Run::borrowed_bytes).sum();
            assert_eq!(borrowed, table.borrowed_bytes(), "what {entity:?} borrows");
            let of = queue.role.first_of(*entity);
            counted.count(of, FamilySize::default(), queue.family_size());
        }
        assert_eq!(
            self.catalogue.families, counted,
            "sizes and rules of subscriptions"
        );
        let copying = self.bus.keys().copied();
        let copying = copying.filter(|it| self.is_topic(*it) && self.passes_on(*it));
        assert_eq!(
            self.catalogue.copying,
            copying.collect(),
            "topics that make copies"
        );
    }

    /// How many subscriptions an entity of that name has: none, unless it is a topic.
    pub(crate) fn subscription_count(&self, name: &EntityName) -> u64 {
        self.copying(name).0
    }

    /// The same, and what its rules may add to copies.
    pub(crate) fn copying(&self, name: &EntityName) -> (u64, CopyChanges) {
        let nothing = (0, CopyChanges::Nothing);
        // Where there are no topics, nothing has to be found: each command that sends asks.
        if self.catalogue.subscriptions.is_empty() {
            return nothing;
        }
        let Some(found) = self.catalogue.find(name) else {
            return nothing;
        };
        let count = self.catalogue.subscription_count(found);
        match count {
            // Most are queues.
            0 => nothing,
            _ => (count, self.bus.changes_of_copies(found)),
        }
    }

    /// How many copies a topic owes for what waits in it, if every subscription gets each message.
    pub(crate) fn owed_copies(&self, name: &EntityName) -> u64 {
        let found = self.catalogue.find(name);
        let Some(topic) = found.filter(|it| self.catalogue.copying.contains(it)) else {
            return 0;
        };
        let waiting = self.bus.get(&topic).map(|it| it.backlog.pending_count());
        let subscriptions = self.catalogue.subscription_count(topic).max(1);
        waiting.unwrap_or(0).saturating_mul(subscriptions)
    }

    /// Whether an entity is a topic.
    pub fn is_topic(&self, entity: Incarnation) -> bool {
        self.bus.get(&entity).is_some_and(|it| it.topic.is_some())
    }

    /// Whether a message of an entity waits to go on: in a topic for its copies, elsewhere to be forwarded.
    pub fn passes_on(&self, entity: Incarnation) -> bool {
        let found = self.bus.get(&entity);
        found.is_some_and(|it| match it.topic {
            Some(_) => it.backlog.has_ready(),
            None => it.destination().is_some() && it.backlog.has_to_forward(),
        })
    }

    /// Takes over what a restart forgets and a tick goes by: which entity it has served last, who rests, and which family of a
    /// topic is the largest.
    #[cfg(test)]
    pub(crate) fn take_over_hints(&mut self, before: &Self) {
        self.catalogue
            .families
            .take_over(&before.catalogue.families);
        let deadlines = &mut self.catalogue.deadlines;
        for (entity, before) in before.storage.iter() {
            let queue = self.storage.get_physical(entity);
            let queue = queue.expect("a restart loses no queue");
            let deadline = queue.next_deadline();
            deadlines.take_over(*entity, (&mut queue.deadline, *before.deadline), deadline);
        }
        for (entity, before) in before.bus.iter() {
            let queue = self.bus.get_physical(entity);
            let queue = queue.expect("a restart loses no queue");
            let deadline = queue.next_deadline();
            deadlines.take_over(*entity, (&mut queue.deadline, *before.deadline), deadline);
        }
    }

    /// Whether a comparison of a message with rules is to go on: after a restart it would begin again.
    #[cfg(test)]
    pub(crate) fn is_comparing(&self) -> bool {
        let mut topics = self.bus.values().filter_map(|it| it.topic.as_ref());
        topics.any(|it| it.has_matched())
    }

    /// The Service Bus queues whose names are kept for subscriptions, and for lists of them. Earlier versions allowed that.
    pub fn queues_named_as_subscriptions(&self) -> impl Iterator<Item = &EntityName> {
        let queues = self.bus.values().filter(|it| it.role == Role::Queue);
        let names = queues.map(|it| &it.name);
        names.filter(|it| topic_of_path(&it.name).is_some())
    }

    /// Whether an entity of that name exists.
    pub fn has_entity(&self, name: &EntityName) -> bool {
        self.catalogue.find(name).is_some()
    }

    /// Whether an entity of that incarnation exists.
    pub(crate) fn has_incarnation(&self, entity: Incarnation) -> bool {
        self.storage.contains_key(&entity) || self.bus.contains_key(&entity)
    }
}
