//! One reading of a damaged log: the resulting state, and what is missing.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;

use kew_engine::bus::BusFact;
use kew_engine::storage::{OwnEffect, StorageFact};
use kew_engine::{
    DecodedPage, Effect, EntityName, Event, Fact, Incarnation, NewBody, Place, RestoringPages,
    SequenceNumber, Service, State, Timestamp,
};
use kew_log::{BoxError, Gap, LogPosition, PageContent, PageLeft, PageNumber, Replay, Rescue};

use super::rules::ReadRules;
use super::{Losses, LostMessage};
use crate::follower::{decode, to_engine};

/// How many missing messages are noted one by one. The others are counted.
const HOLES_MAX: usize = 1_000_000;

/// How many of them one later message can show. After a repair or a restore, numbers of whole years are missing.
const HOLES_SHOWN_MAX: usize = 100_000;

/// A message that must have existed and is missing.
pub(super) struct Hole {
    inserted_from: Timestamp,
    inserted_until: Timestamp,
    pub(super) size_bytes: Option<u32>,
    why: String,
}

/// The resulting state of one reading of the log, and what is missing.
pub(super) struct Reading {
    pub(super) state: State,
    restoring: RestoringPages,
    account: String,
    /// A description of the last gap.
    gap: Option<String>,
    /// When the last event before the last gap happened.
    gap_from: Timestamp,
    /// The next sequence number of each queue at the last gap.
    pub(super) next_at_gap: BTreeMap<Incarnation, SequenceNumber>,
    /// Queues whose next number was not read: those below the next arrival may have been gone for long.
    pub(super) without_next: BTreeSet<Incarnation>,
    /// Queues whose creation was not read, by the names they were given.
    pub(super) stand_ins: BTreeMap<Incarnation, EntityName>,
    /// Topics whose creation was not read, and whose names their subscriptions have.
    pub(super) found_topics: BTreeMap<Incarnation, EntityName>,
    /// Those of which nothing shows to which service they belong. Until all is read, they count as queues of Queue Storage.
    pub(super) guessed: BTreeSet<Incarnation>,
    pub(super) deleted: BTreeSet<Incarnation>,
    /// Incarnations of bus queues, as opposed to their sub-queues.
    pub(super) first_of_queue: BTreeSet<Incarnation>,
    pub(super) holes: BTreeMap<(Incarnation, SequenceNumber), Hole>,
    /// How many more are missing at most, by queue.
    pub(super) more_holes: BTreeMap<Incarnation, u64>,
    /// What was read of the rules of subscriptions.
    pub(super) rules: ReadRules,
}

impl Reading {
    pub(super) fn new(account: &str) -> Self {
        Self {
            state: State::new(),
            restoring: RestoringPages::partial(),
            account: account.to_owned(),
            gap: None,
            gap_from: Timestamp::ZERO,
            next_at_gap: BTreeMap::new(),
            without_next: BTreeSet::new(),
            stand_ins: BTreeMap::new(),
            found_topics: BTreeMap::new(),
            guessed: BTreeSet::new(),
            deleted: BTreeSet::new(),
            first_of_queue: BTreeSet::new(),
            holes: BTreeMap::new(),
            more_holes: BTreeMap::new(),
            rules: ReadRules::default(),
        }
    }

    /// Adds what another reading has found.
    pub(super) fn absorb(&mut self, mut other: Self) -> Vec<EntityName> {
        self.agree_on_services(&mut other);
        self.agree_on_rules(&mut other);
        let unknown: Vec<_> = self.stand_ins.keys().copied().collect();
        for queue in unknown {
            if let Some(name) = other.state.queue_name(queue)
                && !other.stand_ins.contains_key(&queue)
            {
                if self.state.is_bus_queue(queue) {
                    self.state.adopt_bus_queue(queue, &other.state);
                } else {
                    self.state.rename(queue, name.clone());
                }
                self.stand_ins.remove(&queue);
            }
        }
        for (queue, name) in other.stand_ins {
            if self.state.queue_name(queue).is_none() {
                self.stand_ins.insert(queue, name);
                if other.guessed.contains(&queue) {
                    self.guessed.insert(queue);
                }
            }
        }
        for (queue, next) in other.next_at_gap {
            let own = self.next_at_gap.entry(queue).or_insert(next);
            *own = next.max(*own);
        }
        for (hole, found) in other.holes {
            self.holes.entry(hole).or_insert(found);
        }
        for (queue, count) in other.more_holes {
            let own = self.more_holes.entry(queue).or_default();
            *own = count.max(*own);
        }
        self.first_of_queue.extend(other.first_of_queue);
        self.state.absorb(other.state)
    }

    /// Corrects the services of queues that stand in: the other reading may know them. If both have only seen parts of a
    /// queue, it is one of Service Bus if either says so: none becomes that without evidence.
    fn agree_on_services(&mut self, other: &mut Self) {
        let known = |of: &Self| -> Vec<_> {
            let queues = of.state.queues();
            let known = queues.filter(|(queue, name)| {
                name.service == Service::ServiceBus || !of.stand_ins.contains_key(queue)
            });
            known.map(|(queue, name)| (queue, name.service)).collect()
        };
        for (queue, service) in known(other) {
            self.correct_service(service, queue, self.state.last_event_at());
        }
        for (queue, service) in known(self) {
            other.correct_service(service, queue, other.state.last_event_at());
        }
        let seen = |of: &Self, queue: &Incarnation| {
            of.state.queue_name(*queue).is_some() && !of.guessed.contains(queue)
        };
        self.guessed.retain(|queue| !seen(other, queue));
        other.guessed.retain(|queue| !seen(self, queue));
    }

    /// Lists what is missing at the end.
    pub(super) fn list(&mut self, losses: &mut Losses) {
        self.decide_on_services();
        losses.dropped.extend(self.complete_bus_queues());
        losses.rules = self.complete_rules(!losses.gaps.is_empty());
        let holes = mem::take(&mut self.holes);
        for ((queue, sequence_number), hole) in holes {
            let Some(name) = self.state.queue_name(queue) else {
                continue;
            };
            if !self.state.holds(queue, sequence_number) {
                losses.messages.push(LostMessage {
                    queue: name.clone(),
                    sequence_number,
                    id: self.state.id_of(queue, sequence_number),
                    inserted_from: hole.inserted_from,
                    inserted_until: hole.inserted_until,
                    size_bytes: hole.size_bytes,
                    why: hole.why,
                });
            }
        }
        for (queue, count) in mem::take(&mut self.more_holes) {
            if let Some(name) = self.state.queue_name(queue) {
                losses.more_messages.insert(name.clone(), count);
            }
        }
        losses.renamed = self.stand_ins.values().cloned().collect();
        losses.without_settings = self.found_topics.values().cloned().collect();
        for message in self.state.messages() {
            let next = self.next_at_gap.get(&message.queue);
            if next.is_some_and(|next| message.sequence_number < *next) {
                let count = losses
                    .may_return
                    .entry(message.queue_name.clone())
                    .or_default();
                *count += 1;
            }
        }
    }

    /// Restores what this event implies and a gap has hidden.
    fn prepare(&mut self, event: &Event) {
        let Some(why) = self.gap.clone() else {
            return;
        };
        match &event.fact {
            Fact::Storage(StorageFact::QueueCreated { name, .. }) => {
                self.delete_namesake(event.at, name, |queue| {
                    Fact::Storage(StorageFact::QueueDeleted { queue })
                });
            }
            Fact::Storage(
                StorageFact::QueueMetadataSet { queue, .. }
                | StorageFact::QueuePoliciesSet { queue, .. },
            ) => {
                self.stand_in(Service::QueueStorage, *queue, event.at);
            }
            Fact::Storage(
                fact @ (StorageFact::Messages { .. } | StorageFact::BodiesMoved { .. }),
            ) => {
                self.prepare_stored_messages(event.at, fact, &why);
            }
            Fact::Bus(fact @ (BusFact::Messages { .. } | BusFact::BodiesMoved { .. })) => {
                self.note_firsts(fact);
                self.prepare_bus_messages(event.at, fact, &why);
            }
            Fact::Storage(StorageFact::QueueDeleted { queue }) => {
                self.correct_service(Service::QueueStorage, *queue, event.at);
                self.holes.retain(|(of, _), _| of != queue);
                self.more_holes.remove(queue);
                self.stand_ins.remove(queue);
            }
            Fact::AccountRemoved { account } => {
                let gone = self.queues_of(account);
                self.holes.retain(|(of, _), _| !gone.contains(of));
                self.more_holes.retain(|of, _| !gone.contains(of));
                self.stand_ins.retain(|queue, _| !gone.contains(queue));
            }
            Fact::Bus(fact) => self.prepare_bus(event.at, fact),
            Fact::PartitionInitialized { .. }
            | Fact::ServicePropertiesSet { .. }
            | Fact::AccountPut { .. }
            | Fact::Quarantined { .. }
            | Fact::RunLost { .. } => {}
        }
    }

    /// Deletes an older queue of that name: its deletion was not read.
    pub(super) fn delete_namesake(
        &mut self,
        at: Timestamp,
        name: &EntityName,
        deleted: impl FnOnce(Incarnation) -> Fact,
    ) {
        let mut queues = self.state.queues();
        let old = queues.find(|(_, other)| *other == name).map(|(old, _)| old);
        drop(queues);
        if let Some(queue) = old {
            let fact = deleted(queue);
            self.state.apply(Event { at, fact });
        }
    }

    /// Restores what these effects and moves imply and a gap has hidden.
    fn prepare_stored_messages(&mut self, now: Timestamp, fact: &StorageFact, why: &str) {
        let service = Service::QueueStorage;
        for effect in fact.effects() {
            self.prepare_effect(service, now, effect, why, |reading, own| match own {
                OwnEffect::RangeEnded {
                    entity,
                    from,
                    until,
                } => {
                    reading.correct_service(service, *entity, now);
                    let gone = *from..*until;
                    let holes = &mut reading.holes;
                    holes.retain(|(of, number), _| of != entity || !gone.contains(number));
                }
            });
        }
        for moved in fact.moves() {
            self.stand_in(service, moved.entity(), now);
        }
    }

    /// Restores what an effect implies. `prepare_own` does so for one that only its service has.
    pub(super) fn prepare_effect<O>(
        &mut self,
        service: Service,
        now: Timestamp,
        effect: &Effect<O>,
        why: &str,
        prepare_own: impl FnOnce(&mut Self, &O),
    ) {
        match effect {
            Effect::Arrived { to, .. } => {
                self.note_arrival(service, *to, now, why);
                self.holes.remove(&(to.entity, to.number));
            }
            Effect::Leased { at, body, .. } => {
                self.stand_in(service, at.entity, now);
                let size_bytes = match body.as_deref() {
                    Some(NewBody::Other { body, .. }) => Some(body.location.length),
                    Some(NewBody::Change(_)) | None => None,
                };
                self.note_hole(at.entity, at.number, now, size_bytes, why);
            }
            Effect::Ended { at, .. } => {
                self.correct_service(service, at.entity, now);
                self.holes.remove(&(at.entity, at.number));
            }
            Effect::Own(own) => prepare_own(self, own),
        }
    }

    /// Notes that a message came into a queue. Messages with lower numbers that were never read came before it.
    fn note_arrival(&mut self, service: Service, to: Place, at: Timestamp, why: &str) {
        self.stand_in(service, to.entity, at);
        if self.without_next.remove(&to.entity) {
            return;
        }
        let Some(next) = self.state.next_sequence_number(to.entity) else {
            return;
        };
        for missed in next.until(to.number).take(HOLES_SHOWN_MAX) {
            self.note_hole(to.entity, missed, at, None, why);
        }
        let count = to.number.as_u64().saturating_sub(next.as_u64());
        let more = count.saturating_sub(HOLES_SHOWN_MAX as u64);
        if more > 0 {
            *self.more_holes.entry(to.entity).or_default() += more;
        }
    }

    /// A free name for a queue that has lost its own.
    pub(super) fn free_name(&self, service: Service, queue: Incarnation) -> EntityName {
        let mut others = self.state.queues();
        let like_it = others.find(|(_, name)| name.service == service);
        let account = like_it.map_or(&*self.account, |(_, name)| &*name.account);
        let plain = format!("recovered-{}", queue.as_u64());
        (0..)
            .map(|other| match other {
                0 => plain.clone(),
                other => format!("{plain}-{other}"),
            })
            .map(|name| EntityName {
                service,
                account: account.into(),
                name: name.into(),
            })
            .find(|name| !self.state.has_entity(name))
            .expect("one of endlessly many names is free")
    }

    fn queues_of(&self, account: &str) -> Vec<Incarnation> {
        let queues = self.state.queues();
        queues
            .filter(|(_, name)| name.service == Service::QueueStorage && *name.account == *account)
            .map(|(queue, _)| queue)
            .collect()
    }

    /// Creates a queue whose creation was not read, if it is not there.
    pub(super) fn stand_in(&mut self, service: Service, queue: Incarnation, at: Timestamp) {
        self.correct_service(service, queue, at);
        if self.state.queue_name(queue).is_some() || self.deleted.contains(&queue) {
            return;
        }
        let name = self.free_name(service, queue);
        self.state.stand_in(queue, name.clone(), at);
        self.stand_ins.insert(queue, name);
        self.without_next.insert(queue);
    }

    /// Gives a queue that stands in this service, if it has the other one: its pages alone did not show which it is.
    pub(super) fn correct_service(&mut self, service: Service, queue: Incarnation, at: Timestamp) {
        self.guessed.remove(&queue);
        let own = self.stand_ins.get(&queue);
        if own.is_some_and(|name| name.service != service) {
            let name = self.free_name(service, queue);
            self.state.change_service(queue, name.clone(), at);
            self.stand_ins.insert(queue, name);
        }
    }

    /// Creates the queue that a page belongs to, if the page with that is lost.
    fn stand_in_of_page(&mut self, page: &DecodedPage) {
        let Some(queue) = page.entity() else {
            return;
        };
        let at = self.state.last_event_at();
        if self.state.queue_name(queue).is_none() {
            let service = self.state.service_of_page(&self.restoring, page);
            self.stand_in(service.unwrap_or(Service::QueueStorage), queue, at);
            if service.is_none() && self.stand_ins.contains_key(&queue) {
                self.guessed.insert(queue);
            }
        }
        if page.is_of_bus() {
            self.correct_service(Service::ServiceBus, queue, at);
        }
        if page.is_of_no_sub_queue() && self.stand_ins.contains_key(&queue) {
            self.first_of_queue.insert(queue);
        }
        if let Some((topic, subscriptions)) = page.topic() {
            for subscription in subscriptions {
                self.stand_in_subscription(topic, subscription, at);
            }
        }
    }

    fn take_page(&mut self, page: PageNumber, decoded: DecodedPage) -> Result<(), BoxError> {
        self.stand_in_of_page(&decoded);
        let page = to_engine(page);
        let restored = (self.state).restore_decoded(&mut self.restoring, page, decoded);
        self.note_lost();
        Ok(restored?)
    }

    /// Notes the messages of which a damaged snapshot has nothing but the number.
    fn note_lost(&mut self) {
        for lost in self.restoring.take_lost() {
            if self.holes.len() >= HOLES_MAX {
                *self.more_holes.entry(lost.entity).or_default() += 1;
                continue;
            }
            self.holes.insert(
                (lost.entity, lost.number),
                Hole {
                    inserted_from: Timestamp::ZERO,
                    inserted_until: self.state.last_event_at(),
                    size_bytes: None,
                    why: "the page of the snapshot that it was on cannot be read".to_owned(),
                },
            );
        }
    }

    /// Notes which numbers were given out before a gap.
    fn note_next(&mut self) {
        for (queue, _) in self.state.queues() {
            let next = self.state.next_sequence_number(queue);
            self.next_at_gap.extend(next.map(|next| (queue, next)));
        }
    }

    fn note_hole(
        &mut self,
        queue: Incarnation,
        sequence_number: SequenceNumber,
        at: Timestamp,
        size_bytes: Option<u32>,
        why: &str,
    ) {
        if self.state.holds(queue, sequence_number) {
            return;
        }
        let is_known = self.holes.contains_key(&(queue, sequence_number));
        if !is_known && self.holes.len() >= HOLES_MAX {
            *self.more_holes.entry(queue).or_default() += 1;
            return;
        }
        let (from, until) = (self.gap_from, at);
        let hole = self
            .holes
            .entry((queue, sequence_number))
            .or_insert_with(|| Hole {
                inserted_from: from,
                inserted_until: until,
                size_bytes: None,
                why: why.to_owned(),
            });
        hole.size_bytes = size_bytes.or(hole.size_bytes);
    }
}

impl Reading {
    /// Remembers the entities that a fact deletes.
    fn note_deleted(&mut self, fact: &Fact) {
        match fact {
            Fact::Storage(StorageFact::QueueDeleted { queue }) => {
                self.deleted.insert(*queue);
            }
            Fact::Bus(BusFact::QueueDeleted { queue }) => {
                self.deleted.extend(queue.with_sub_queues());
            }
            Fact::AccountRemoved { account } => {
                let gone = self.queues_of(account);
                self.deleted.extend(gone);
            }
            Fact::PartitionInitialized { .. }
            | Fact::ServicePropertiesSet { .. }
            | Fact::AccountPut { .. }
            | Fact::Quarantined { .. }
            | Fact::RunLost { .. }
            | Fact::Storage(
                StorageFact::QueueCreated { .. }
                | StorageFact::QueueMetadataSet { .. }
                | StorageFact::Messages { .. }
                | StorageFact::QueuePoliciesSet { .. }
                | StorageFact::BodiesMoved { .. },
            )
            | Fact::Bus(
                BusFact::Messages { .. }
                | BusFact::QueueCreated { .. }
                | BusFact::TopicCreated { .. }
                | BusFact::SubscriptionCreated { .. }
                | BusFact::QueueUpdated { .. }
                | BusFact::EntityUpdated { .. }
                | BusFact::RulesChanged { .. }
                | BusFact::SessionLocked { .. }
                | BusFact::SessionRenewed { .. }
                | BusFact::SessionStateSet { .. }
                | BusFact::BodiesMoved { .. }
                | BusFact::Used { .. },
            ) => {}
        }
    }
}

impl Replay for Reading {
    fn begin(&mut self) {
        *self = Self::new(&self.account);
    }

    fn snapshot_part(&mut self, part: &[u8]) -> Result<(), BoxError> {
        Ok(self.state.restore(part)?)
    }

    fn snapshot_page(&mut self, page: PageNumber, content: &PageContent) -> Result<(), BoxError> {
        self.take_page(page, decode(content)?)
    }

    fn snapshot_page_left(&mut self, page: PageNumber, left: &PageLeft) -> Result<bool, BoxError> {
        let groups: Vec<_> = left.groups().collect();
        let decoded = DecodedPage::decode_damaged(left.kind, &groups)?;
        self.take_page(page, decoded)?;
        Ok(true)
    }

    fn snapshot_end(&mut self) -> Result<(), BoxError> {
        let completed = self.state.complete_pages(&mut self.restoring);
        self.note_lost();
        let restoring = mem::replace(&mut self.restoring, RestoringPages::partial());
        let finished = self.state.finish_pages(restoring);
        // Pages that were read after a gap have raised them.
        if self.gap.is_some() {
            self.note_next();
        }
        Ok(completed.and(finished)?)
    }

    fn event(&mut self, _record: LogPosition, event: &[u8]) -> Result<(), BoxError> {
        let event = self.state.read_event(event)?;
        self.prepare(&event);
        self.note_deleted(&event.fact);
        self.rules.note(&event.fact);
        self.state.apply_fitting(event);
        drop(self.state.take_waste());
        Ok(())
    }
}

impl Rescue for Reading {
    fn gap(&mut self, gap: &Gap) {
        self.rules.pass_gap();
        self.gap = Some(match gap.span {
            Some(_) => format!(
                "it was sent where {} cannot be read from byte {} on: {}",
                gap.file, gap.offset, gap.what
            ),
            None => format!(
                "it was in {} at byte {}: {}",
                gap.file, gap.offset, gap.what
            ),
        });
        self.gap_from = self.state.last_event_at();
        // A damaged snapshot can have many. They are noted at its end.
        if gap.span.is_some() {
            self.note_next();
        }
    }
}
