//! A bus queue, or one of its sub-queues.

use super::BusQueueOptions;
use super::backlog::{Backlog, Kept};
use super::duplicates::{Duplicates, REMEMBERED_ID_SIZE_BYTES};
use super::message::Message;
use super::role::Role;
use super::rules::{DefaultRule, Topic, default_of_both};
use crate::bus::{Effect, Moved, MovedOf};
use crate::catalogue::{Catalogue, Deadline, FamilySize};
use crate::effect::Was;
use crate::queues::{Flow, Queue};
use crate::table::{Entry, Live, MessageState, Resident, RunLength, Slots, numbers_of};
use crate::vocabulary::{BodyLocation, EntityName, Hint, Incarnation, SequenceNumber, Timestamp};

/// A queue, topic or subscription, and its two sub-queues.
pub(crate) const ENTITIES_PER_BUS_QUEUE: usize = 3;

/// How many steps of a turn it takes to take a rule out of what is compiled.
const DROP_STEPS: u64 = 16;

/// Use is recorded at most once in this part of the time after which an idle queue deletes itself.
const USE_PART: u64 = 10;

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct BusQueue {
    pub(crate) name: EntityName,
    pub(crate) role: Role,
    /// The settings. A sub-queue has its queue's settings, but not those that only topics and subscriptions have.
    pub(crate) options: BusQueueOptions,
    pub(crate) created_at: Timestamp,
    pub(crate) updated_at: Timestamp,
    /// When the entity was last used, according to the events.
    pub(crate) used_at: Timestamp,
    pub(crate) backlog: Backlog,
    pub(crate) duplicates: Duplicates,
    /// What it has as a topic, if it is one.
    pub(crate) topic: Option<Topic>,
    /// The rule `$Default` of its creation, if it is a subscription that still has it.
    pub(crate) rule: Option<DefaultRule>,
    /// What it counts for in its family, if it is in one.
    pub(crate) counted: Hint<FamilySize>,
    /// Since when its family has its `rule`, as far as it was told.
    pub(crate) told: Hint<Option<SequenceNumber>>,
    /// What its ids count for in memory.
    pub(crate) counted_ids: Hint<Resident>,
    /// Its place among the deadlines of the catalogue.
    pub(crate) deadline: Hint<Deadline>,
    /// What came and was completed, for metrics.
    pub(crate) flow: Hint<Flow>,
}

impl BusQueue {
    pub(crate) fn new(
        name: EntityName,
        role: Role,
        options: BusQueueOptions,
        created_at: Timestamp,
        length: RunLength,
    ) -> Self {
        let by_session = options.requires_session && role.is_first();
        let topic = (role == Role::Topic).then(|| Topic::new(length));
        Self {
            name,
            role,
            options,
            created_at,
            updated_at: created_at,
            used_at: created_at,
            backlog: Backlog::starting_at(length, SequenceNumber::FIRST, by_session),
            duplicates: Duplicates::new(length),
            topic,
            rule: None,
            counted: Hint::default(),
            told: Hint::default(),
            counted_ids: Hint::default(),
            deadline: Hint::default(),
            flow: Hint::default(),
        }
    }

    /// The queue that it is, or is a sub-queue of, and that queue's name.
    pub(crate) fn whole(&self, own: Incarnation) -> (Incarnation, EntityName) {
        let (queue, suffix) = match self.role {
            Role::Queue | Role::Topic | Role::Subscription { .. } => (own, None),
            Role::DeadLetters { of } => (of, Some(SUB_QUEUES[0])),
            Role::FailedTransfers { of } => (of, Some(SUB_QUEUES[1])),
        };
        let name = suffix.and_then(|suffix| self.name.name.strip_suffix(suffix));
        let name = name.and_then(|name| name.strip_suffix('/'));
        let name = EntityName {
            name: name.unwrap_or(&self.name.name).into(),
            ..self.name.clone()
        };
        (queue, name)
    }

    /// The locations of the bodies that are still needed.
    pub(crate) fn bodies(&self) -> impl Iterator<Item = BodyLocation> {
        let bodies = |entry: Entry<'_>| entry.bodies().collect::<Vec<_>>();
        let messages = self.backlog.table().entries().flat_map(bodies);
        let sessions = self.backlog.sessions.iter();
        messages.chain(sessions.filter_map(|(_, session)| session.state))
    }

    /// Whether its messages belong to sessions. Messages of sub-queues are received without.
    pub(crate) fn requires_session(&self) -> bool {
        self.options.requires_session && self.role.is_first()
    }

    /// The session whose lock covers the message. `None` if messages are locked one by one.
    pub(crate) fn locking_session(&self, message: &Message<'_>) -> Option<u32> {
        (self.requires_session() && message.session != 0).then_some(message.session)
    }

    /// The time before which ids do not count any more when the queue gets these settings. An id beyond the
    /// present window must not count again when the window grows.
    pub(crate) fn ids_from(&self, options: &BusQueueOptions, now: Timestamp) -> Timestamp {
        match self.options.duplicate_window_ms {
            Some(window_ms) if options.duplicate_window_ms > Some(window_ms) => {
                let beyond_ms = (now.as_ms() + 1).saturating_sub(window_ms);
                Timestamp::from_ms(beyond_ms)
            }
            Some(_) | None => Timestamp::ZERO,
        }
    }

    /// When an idle queue deletes itself, if it ever does. A queue that forwards, has locks or has scheduled
    /// messages is not idle, nor is a topic that has messages to copy.
    ///
    /// Source: Service Bus, *AutoDeleteOnIdle*.
    pub(crate) fn idle_deadline(&self) -> Option<Timestamp> {
        let idle_ms = self.options.auto_delete_on_idle_ms;
        let deletes_itself = self.role.is_first()
            && idle_ms != u64::MAX
            && self.options.forward_to.is_none()
            && !self.backlog.is_in_use()
            && (self.role != Role::Topic
                || self.backlog.count() == self.backlog.table().aside_count());
        deletes_itself.then(|| self.used_at.plus_ms(idle_ms))
    }

    /// Whether its use at this time is worth an event. Without one, the queue could delete itself while
    /// receivers wait for messages that do not come.
    pub(crate) fn is_use_noted(&self, now: Timestamp) -> bool {
        let idle_ms = self.options.auto_delete_on_idle_ms;
        self.role.is_first()
            && idle_ms != u64::MAX
            && self.used_at.plus_ms(idle_ms / USE_PART).has_passed(now)
    }

    /// Its size: messages, session states, and remembered ids.
    pub(crate) fn size_bytes(&self, now: Timestamp) -> u64 {
        let window_ms = self.options.duplicate_window_ms;
        let ids = window_ms.map_or(0, |window_ms| self.duplicates.count(window_ms, now));
        self.backlog.size_bytes() + ids * REMEMBERED_ID_SIZE_BYTES
    }

    /// What it counts for in a family. Subscriptions and their sub-queues remember no ids.
    pub(crate) fn family_size(&self) -> FamilySize {
        let size_bytes = self.backlog.size_bytes();
        let borrowed_bytes = self.backlog.table().borrowed_bytes();
        FamilySize {
            size_bytes,
            charge_bytes: size_bytes.saturating_sub(borrowed_bytes),
        }
    }

    /// What the id of a message, if it has one, adds to the queue's size.
    pub(crate) fn remembered_size_bytes(&self, id: Option<&str>) -> u64 {
        match (id, self.options.duplicate_window_ms) {
            (Some(_), Some(_)) => REMEMBERED_ID_SIZE_BYTES,
            (None, _) | (_, None) => 0,
        }
    }

    /// The queue it forwards its messages to.
    pub(crate) fn destination(&self) -> Option<&str> {
        match self.role {
            Role::Topic => None,
            Role::Queue | Role::Subscription { .. } => self.options.forward_to.as_deref(),
            Role::DeadLetters { .. } => self.options.forward_dead_letters_to.as_deref(),
            Role::FailedTransfers { .. } => None,
        }
    }

    /// When there are ids to forget, or earlier.
    pub(crate) fn ids_deadline(&self) -> Option<Timestamp> {
        let window_ms = self.options.duplicate_window_ms?;
        self.duplicates.next_deadline(window_ms)
    }
}

impl Queue for BusQueue {
    type Profile = Kept;

    fn name(&self) -> &EntityName {
        &self.name
    }

    fn backlog(&self) -> &Backlog {
        &self.backlog
    }

    fn backlog_mut(&mut self) -> &mut Backlog {
        &mut self.backlog
    }

    fn deadline(&mut self) -> &mut Hint<Deadline> {
        &mut self.deadline
    }

    /// When something becomes due next. A message that waits to be forwarded, or for its copies, is due at once: the
    /// latter does not expire.
    fn next_deadline(&self) -> Option<Timestamp> {
        let (waits, expiry) = match self.role {
            Role::Topic => (self.backlog.has_ready(), None),
            Role::Queue
            | Role::Subscription { .. }
            | Role::DeadLetters { .. }
            | Role::FailedTransfers { .. } => {
                let waits = self.destination().is_some() && self.backlog.has_to_forward();
                (waits, self.backlog.table().next_expiry())
            }
        };
        let at_once = waits.then_some(Timestamp::ZERO);
        let end = self.backlog.next_end();
        end.into_iter()
            .chain(expiry)
            .chain(at_once)
            .chain(self.ids_deadline())
            .chain(self.idle_deadline())
            .min()
    }

    /// Every effect is a use, but a copy that comes or expires is no use of its subscription. A message with an id is
    /// one to remember.
    fn note(&mut self, at: Timestamp, effect: &Effect) {
        if self.role.topic().is_none() || !is_of_topic(effect, at) {
            self.used_at = at;
        }
        if let Some(topic) = &mut self.topic {
            topic.note(effect);
        }
        if let Some(hash) = effect.id_hash()
            && let Some(window_ms) = self.options.duplicate_window_ms
        {
            self.duplicates.note(hash, window_ms, at);
        }
    }

    fn note_move(&mut self, moved: &Moved) {
        if let (Some(topic), MovedOf::Message { at, .. }) = (&mut self.topic, &moved.of) {
            topic.note_move(at.number, moved.body.to);
        }
    }

    fn note_set_aside(&mut self, first: SequenceNumber, messages: Slots) {
        if let Some(topic) = &mut self.topic {
            topic.note_set_aside(numbers_of(first, messages));
        }
    }

    fn gives_copies(&self) -> bool {
        self.role == Role::Topic
    }

    /// A scheduled message comes when it becomes active: until then it is not there for receivers.
    fn tally(&mut self, at: Timestamp, effect: &Effect) {
        let is_scheduled = |state| state == MessageState::Scheduled;
        match effect {
            Effect::Arrived { message, .. } => {
                self.flow.arrived += u64::from(!is_scheduled(message.record.state));
            }
            Effect::Ended { was, .. } => {
                let is_handled = !is_scheduled(was.standing.state) && !has_expired(was, at);
                self.flow.completed += u64::from(is_handled);
            }
            Effect::Leased { .. } | Effect::Own(_) => {}
        }
    }

    fn absorb(&mut self, other: &Self) {
        self.duplicates.absorb(&other.duplicates);
        if let (Some(own), Some(theirs)) = (&mut self.topic, &other.topic) {
            own.absorb(theirs);
        }
        if self.role == other.role {
            self.rule = default_of_both(self.rule, other.rule);
        }
    }

    fn join(&mut self, catalogue: &mut Catalogue, incarnation: Incarnation) {
        self.forget_family();
        self.counted_ids = Hint::default();
        match self.role {
            Role::Queue => {
                catalogue.bus_queues.insert(self.name.clone(), incarnation);
            }
            Role::Topic => {
                catalogue.topics.insert(self.name.clone(), incarnation);
            }
            Role::Subscription { of } => {
                catalogue.subscriptions.insert((of, incarnation));
                catalogue.families.join(incarnation, of);
            }
            Role::DeadLetters { .. } | Role::FailedTransfers { .. } => {}
        }
    }

    fn depart(&self, catalogue: &mut Catalogue, incarnation: Incarnation) {
        let nothing = Resident::default();
        catalogue.live.recount(*self.counted_ids, nothing);
        match self.role {
            // A later one keeps its name.
            Role::Queue if catalogue.bus_queues.get(&self.name) == Some(&incarnation) => {
                catalogue.bus_queues.remove(&self.name);
            }
            Role::Topic => {
                if catalogue.topics.get(&self.name) == Some(&incarnation) {
                    catalogue.topics.remove(&self.name);
                }
                catalogue.copying.remove(&incarnation);
            }
            Role::Subscription { of } => {
                catalogue.subscriptions.remove(&(of, incarnation));
                catalogue.families.depart(incarnation);
            }
            Role::DeadLetters { of } | Role::FailedTransfers { of } => {
                let nothing = FamilySize::default();
                catalogue.families.count(of, *self.counted, nothing);
            }
            Role::Queue => {}
        }
    }

    fn count(&mut self, catalogue: &mut Catalogue, incarnation: Incarnation) {
        self.count_in_family(catalogue, incarnation);
        *catalogue.copied += self.duplicates.take_copied();
        self.count_ids(&mut catalogue.live);
        if let Some(topic) = &mut self.topic {
            let dropped = topic.drop_retired(self.backlog.table().first_ready());
            *catalogue.copied += topic.take_copied() + dropped * DROP_STEPS;
            match self.backlog.has_ready() {
                true => catalogue.copying.insert(incarnation),
                false => catalogue.copying.remove(&incarnation),
            };
        }
    }
}

impl BusQueue {
    /// Counts which of its ids are in memory.
    pub(crate) fn count_ids(&mut self, live: &mut Live) {
        let resident = self.resident_ids();
        if resident != *self.counted_ids {
            live.recount(*self.counted_ids, resident);
            *self.counted_ids = resident;
        }
    }

    /// What its ids count for in memory.
    pub(crate) fn resident_ids(&self) -> Resident {
        let (ids, cold_blocks) = self.duplicates.resident();
        Resident {
            ids,
            cold_blocks,
            ..Resident::default()
        }
    }

    /// Tells its family what it counts for now.
    fn count_in_family(&mut self, catalogue: &mut Catalogue, incarnation: Incarnation) {
        let of = match self.role {
            Role::Queue | Role::Topic => return,
            Role::Subscription { .. } => incarnation,
            Role::DeadLetters { of } | Role::FailedTransfers { of } => of,
        };
        let size = self.family_size();
        if size != *self.counted && catalogue.families.count(of, *self.counted, size) {
            *self.counted = size;
        }
        // Only subscriptions have one.
        let since = self.rule.map(|rule| rule.since);
        if since != *self.told && catalogue.families.note_default(of, since) {
            *self.told = since;
        }
    }

    /// Its family knows nothing of it yet.
    pub(crate) fn forget_family(&mut self) {
        self.counted = Hint::default();
        self.told = Hint::default();
    }
}

/// What the names of a queue's two sub-queues end with.
const SUB_QUEUES: [&str; 2] = ["$deadletterqueue", "$transfer/$deadletterqueue"];

/// The names of a queue's two sub-queues.
pub(crate) fn sub_queue_names(queue: &EntityName) -> [EntityName; 2] {
    SUB_QUEUES.map(|suffix| EntityName {
        name: format!("{}/{suffix}", queue.name).into(),
        ..queue.clone()
    })
}

/// Whether what happens to a subscription's message is the topic's doing, or that of time.
fn is_of_topic(effect: &Effect, at: Timestamp) -> bool {
    match effect {
        Effect::Arrived { .. } => true,
        Effect::Ended { was, .. } => has_expired(was, at),
        Effect::Leased { .. } | Effect::Own(_) => false,
    }
}

/// Whether a message ended because its time to live did. Only a ready one expires, and nobody takes one that has.
fn has_expired(was: &Was, at: Timestamp) -> bool {
    was.standing.state == MessageState::Ready && was.standing.until.has_passed(at)
}
