//! Counts for metrics: how many messages each queue has, how old they are, and what became of those of topics.
//!
//! Reading them has no effect that a command could notice, emits no event and takes a bounded number of
//! steps. A reader continues where the last slice ended, and commands are served in between.

use crate::bus::{BusQueue, TopicTally};
use crate::queues::Flow;
use crate::state::State;
use crate::vocabulary::{EntityName, Incarnation, Timestamp};

/// A queue's messages at one time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueOverview {
    /// The queue's name.
    pub name: EntityName,
    /// Messages that are leased or delayed.
    pub hidden: u64,
    /// All messages, including expired ones that no tick has removed yet.
    pub total: u64,
    /// When the oldest one was sent.
    pub oldest_at: Option<Timestamp>,
    /// Messages that came and were deleted since the partition was opened.
    pub flow: Flow,
}

/// The messages of a bus queue or subscription, and of its sub-queues, at one time. Each message is in one of the counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BusQueueOverview {
    /// The name of the queue, or of the subscription with that of its topic.
    pub name: EntityName,
    /// Messages that can be received, including expired ones that no tick has removed yet.
    pub active: u64,
    /// Messages that a receiver has locked.
    pub locked: u64,
    /// Messages that can be received by their number only.
    pub deferred: u64,
    /// Messages that become active later.
    pub scheduled: u64,
    /// Dead letters, in any state.
    pub dead_letters: u64,
    /// Messages that could not be forwarded, in any state.
    pub failed_transfers: u64,
    /// Bytes of all of these, of session states, and of remembered ids.
    pub size_bytes: u64,
    /// Sessions that a receiver has locked.
    pub sessions_locked: u64,
    /// When the oldest message was enqueued. Scheduled messages and sub-queues do not count.
    pub oldest_at: Option<Timestamp>,
    /// Messages that came and were completed since the partition was opened. Scheduled messages come when they become
    /// active, and sub-queues do not count.
    pub flow: Flow,
}

/// A topic at one time, with the messages that are in itself and not in its subscriptions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicOverview {
    /// Its name.
    pub name: EntityName,
    /// What became of its messages since the partition was opened.
    pub tally: TopicTally,
    /// Messages that it has dropped since then because their ids were known.
    pub duplicates: u64,
    /// Messages that wait for their copies.
    pub pending: u64,
    /// Messages that become active later.
    pub scheduled: u64,
    /// Messages that were sent via it and did not reach their destination, and those of its own that rules could not look
    /// at, in any state.
    pub failed_transfers: u64,
    /// Bytes of all of these, of remembered ids, and of its subscriptions: what it takes of its quota.
    pub size_bytes: u64,
    /// When the oldest of them was sent.
    pub oldest_at: Option<Timestamp>,
    /// The rules in force of its subscriptions.
    pub rules: u64,
}

/// One slice of the queues.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overview {
    /// In the order of creation.
    pub queues: Vec<QueueOverview>,
    /// Queues and subscriptions of Service Bus, in the order of creation.
    pub bus_queues: Vec<BusQueueOverview>,
    /// Topics of Service Bus, in the order of creation.
    pub topics: Vec<TopicOverview>,
    /// The queue before which, or in the middle of which, the steps ran out; `None` at the end.
    pub next: Option<Incarnation>,
}

impl State {
    /// Reads queues from `from` on, or from the first one, in at most `steps` steps. Each queue takes one
    /// step, and so does each of its messages that became visible, or was found to be scheduled, since the
    /// last read.
    pub fn overview(
        &mut self,
        from: Option<Incarnation>,
        now: Timestamp,
        mut steps: u32,
    ) -> Overview {
        let mut overview = Overview::default();
        let mut from = from.unwrap_or(Incarnation::new(0));
        // Both kinds of queues get their incarnations from one counter.
        while let Some((incarnation, is_bus)) = self.next_queue(from) {
            let is_read = steps > 0
                && if is_bus {
                    self.read_bus_queue(incarnation, now, &mut steps, &mut overview)
                } else {
                    self.read_queue(incarnation, now, &mut steps, &mut overview)
                };
            if !is_read {
                overview.next = Some(incarnation);
                break;
            }
            steps = steps.saturating_sub(1);
            from = incarnation.next();
        }
        overview
    }

    /// The first queue from an incarnation on, and whether it is a bus queue.
    fn next_queue(&self, from: Incarnation) -> Option<(Incarnation, bool)> {
        let stored = self.storage.range(from..).next();
        // At most two other entities lie between: a queue's sub-queues.
        let mut bus = self.bus.range(from..);
        let bus = bus.find(|(_, entity)| entity.role.is_first());
        let stored = stored.map(|(incarnation, _)| (*incarnation, false));
        let bus = bus.map(|(incarnation, _)| (*incarnation, true));
        stored.into_iter().chain(bus).min()
    }

    fn read_queue(
        &mut self,
        incarnation: Incarnation,
        now: Timestamp,
        steps: &mut u32,
        overview: &mut Overview,
    ) -> bool {
        let Some(entity) = self.storage.get_mut(&incarnation) else {
            return true;
        };
        if !entity.backlog.pass_shown(now, steps) {
            return false;
        }
        overview.queues.push(QueueOverview {
            name: entity.name.clone(),
            hidden: entity.backlog.hidden_count(),
            total: entity.backlog.count(),
            oldest_at: entity.backlog.table().first_enqueued_at(),
            flow: *entity.flow,
        });
        true
    }

    fn read_bus_queue(
        &mut self,
        incarnation: Incarnation,
        now: Timestamp,
        steps: &mut u32,
        overview: &mut Overview,
    ) -> bool {
        let Some(queue) = self.bus.get_mut(&incarnation) else {
            return true;
        };
        if !queue.backlog.pass_scheduled(steps) {
            return false;
        }
        if !queue.role.is_received_from() {
            self.read_topic(incarnation, now, steps, overview);
            return true;
        }
        let entities = incarnation.with_sub_queues();
        let [Some(queue), dead, failed] = entities.map(|entity| self.bus.get(&entity)) else {
            return true;
        };
        let count = |sub: Option<&BusQueue>| sub.map_or(0, |sub| sub.backlog.count());
        let size = |sub: Option<&BusQueue>| sub.map_or(0, |sub| sub.size_bytes(now));
        let backlog = &queue.backlog;
        overview.bus_queues.push(BusQueueOverview {
            name: queue.name.clone(),
            active: backlog.ready_count(),
            locked: backlog.locked_count(),
            deferred: backlog.deferred_count(),
            scheduled: backlog.scheduled_count(),
            dead_letters: count(dead),
            failed_transfers: count(failed),
            size_bytes: queue.size_bytes(now) + size(dead) + size(failed),
            sessions_locked: backlog.sessions.locked_count(),
            oldest_at: backlog.oldest_at(),
            flow: *queue.flow,
        });
        true
    }

    /// Each subscription takes a step, too: for the size, the largest one may have to be found.
    fn read_topic(
        &self,
        incarnation: Incarnation,
        now: Timestamp,
        steps: &mut u32,
        overview: &mut Overview,
    ) {
        let topic = self.bus.get(&incarnation);
        let Some((topic, rules)) = topic.and_then(|it| Some((it, it.topic.as_ref()?))) else {
            return;
        };
        let subscriptions = self.catalogue.subscription_count(incarnation);
        *steps = steps.saturating_sub(u32::try_from(subscriptions).unwrap_or(u32::MAX));
        let defaults = self.catalogue.families.default_count_of(incarnation);
        let own = incarnation.with_sub_queues().into_iter();
        let own = own.filter_map(|entity| self.bus.get(&entity));
        let own: u64 = own.map(|entity| entity.size_bytes(now)).sum();
        let [_, _, failed] = incarnation.with_sub_queues();
        let failed = self.bus.get(&failed);
        let backlog = &topic.backlog;
        overview.topics.push(TopicOverview {
            name: topic.name.clone(),
            tally: *rules.tally,
            duplicates: topic.flow.duplicates,
            pending: backlog.pending_count(),
            scheduled: backlog.scheduled_count(),
            failed_transfers: failed.map_or(0, |it| it.backlog.count()),
            size_bytes: own.saturating_add(self.catalogue.subscriptions_size_bytes(incarnation)),
            oldest_at: backlog.oldest_at(),
            rules: (rules.in_force_count() + defaults) as u64,
        });
    }

    /// How many messages of storage queues ticks of this state have removed because they had expired.
    pub fn expired_count(&self) -> u64 {
        self.expired.count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Event, Fact};
    use crate::storage::message::Message;
    use crate::storage::{Effect, StorageFact};
    use crate::table::{BodyEncoding, Placed};
    use crate::turn::{Journal, Turn};
    use crate::vocabulary::{BodyLocation, Place, SequenceNumber};

    /// A journal that keeps nothing.
    struct Nowhere;

    impl Journal for Nowhere {
        fn store_body(&mut self, _: &[u8]) -> BodyLocation {
            panic!("a tick stores no body")
        }

        fn record(&mut self, _: &Event) {}
    }

    fn at(ms: u64, fact: Fact) -> Event {
        Event {
            at: Timestamp::from_ms(ms),
            fact,
        }
    }

    fn sent(now: u64, queue: u64, number: u64, visible_at: u64) -> Event {
        let to = Place {
            entity: Incarnation::new(queue),
            number: SequenceNumber::new(number),
        };
        let location = BodyLocation::new(0, 0, 0);
        let body = Placed {
            encoding: BodyEncoding::Text,
            location,
        };
        let ms = Timestamp::from_ms;
        let message = Message::arrived(ms(now), ms(1000), Some(ms(visible_at)), body).into();
        let effect = Effect::Arrived { to, message };
        let effects = effect.into();
        at(now, Fact::Storage(StorageFact::Messages { effects }))
    }

    fn three_queues() -> State {
        let mut state = State::new();
        for queue in 1..=3 {
            let name = EntityName::storage_queue("acct", format!("queue{queue}"));
            state.apply(at(
                1,
                Fact::Storage(StorageFact::QueueCreated {
                    queue: Incarnation::new(queue),
                    name,
                    metadata: crate::storage::Metadata::default(),
                }),
            ));
        }
        for number in 1..=10 {
            state.apply(sent(number + 1, 2, number, number * 10));
        }
        state
    }

    /// Hidden, total and oldest of each queue, and how many slices it took.
    fn read(state: &mut State, now: u64, steps: u32) -> (Vec<(u64, u64, Option<u64>)>, usize) {
        let (mut from, mut read, mut slices) = (None, Vec::new(), 0);
        loop {
            let slice = state.overview(from, Timestamp::from_ms(now), steps);
            slices += 1;
            read.extend(slice.queues.iter().map(|queue| {
                let oldest = queue.oldest_at.map(Timestamp::as_ms);
                (queue.hidden, queue.total, oldest)
            }));
            from = slice.next;
            if from.is_none() {
                return (read, slices);
            }
        }
    }

    #[test]
    fn slices_add_up_to_what_is_there_at_the_time() {
        let mut state = three_queues();
        let expected = |hidden, total| vec![(0, 0, None), (hidden, total, Some(2)), (0, 0, None)];
        assert_eq!(read(&mut state, 11, 1000), (expected(9, 10), 1));
        // Eight messages show meanwhile; a step each, and one each queue.
        let (shown, slices) = read(&mut state, 95, 2);
        assert_eq!((shown, slices), (expected(1, 10), 6));
        let ticked = Turn::new(&mut state, Timestamp::from_ms(1000), &mut Nowhere).tick(1);
        assert!(!ticked.more_is_due);
        let empty = vec![(0, 0, None); 3];
        assert_eq!(read(&mut state, 1000, 1000), (empty, 1));
        assert_eq!(state.expired_count(), 10);
    }

    #[test]
    fn reading_leaves_the_state_as_it_was() {
        let mut state = three_queues();
        read(&mut state, 50, 3);
        assert_eq!(state, three_queues());
    }
}
