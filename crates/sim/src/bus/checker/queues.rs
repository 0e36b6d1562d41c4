//! Queues themselves: made, changed, deleted, read and listed.

use bytes::Bytes;
use kew_engine::bus::{
    BusCommand, BusOutcome, BusQueueCounts, BusQueueOptions, BusQueueView, Disposition,
    REASON_SIZE_BYTES_MAX,
};
use kew_engine::{EntityName, Incarnation};

use super::life::{Entity, Fate, Life, Part, Stage};
use super::{ANSWERS_FIT, Answered, COUNTS, Checker, NO_LOSS, QUEUES, entity};
use crate::bus::queue_index;
use crate::bus::rules::Rule;
use crate::bus::topics::{self, Kind};
use crate::checker::{Violation, violated};

/// The size of a message besides its bytes, in its queue's size.
const OVERHEAD_SIZE_BYTES: u64 = 128;
/// The size of a change to a message's properties.
pub(super) const CHANGE_SIZE_BYTES: u64 = size_of::<u64>() as u64;
/// The size of a remembered id.
const REMEMBERED_ID_SIZE_BYTES: u64 = 128;

/// The least and the greatest possible value.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Bounds {
    pub(super) least: u64,
    pub(super) most: u64,
}

impl Bounds {
    pub(super) fn has(self, value: u64) -> bool {
        self.least <= value && value <= self.most
    }

    pub(super) fn plus(self, other: Self) -> Self {
        Self {
            least: self.least + other.least,
            most: self.most + other.most,
        }
    }
}

impl Checker {
    pub(super) fn managed(&mut self, answered: &Answered<'_>) -> Result<(), Violation> {
        match (answered.command, answered.outcome) {
            (BusCommand::CreateQueue { queue, options }, BusOutcome::QueueCreated(view)) => {
                self.is_as_asked(queue, options, view)?;
                self.created(queue, options, answered)?;
                self.learn_incarnation(entity(queue), view.incarnation)
            }
            (BusCommand::UpdateQueue { queue, options }, BusOutcome::QueueUpdated(view)) => {
                self.is_as_asked(queue, options, view)?;
                let known = self.queues.get(entity(queue).queue);
                known.possible = vec![Some(options.clone())];
                self.note("a queue was changed");
                Ok(())
            }
            (BusCommand::DeleteQueue { queue }, BusOutcome::QueueDeleted) => {
                let queue = entity(queue).queue;
                self.note("a queue was deleted");
                self.gone_for_good(queue)?;
                self.subscriptions_are_gone(queue)
            }
            (BusCommand::ReadQueue { queue }, BusOutcome::Queue(view)) => self.read(queue, view),
            (BusCommand::ListQueues { .. }, BusOutcome::Queues(views)) => {
                self.all_listed(views, |queue| topics::kind(queue) == Kind::Queue)
            }
            (BusCommand::SetRule { .. } | BusCommand::ReadRule { .. }, _) => {
                self.managed_rule(answered)
            }
            _ => self.managed_topic(answered),
        }
    }

    fn managed_rule(&mut self, answered: &Answered<'_>) -> Result<(), Violation> {
        match (answered.command, answered.outcome) {
            (
                BusCommand::SetRule {
                    subscription, rule, ..
                },
                BusOutcome::RuleReplaced(view),
            ) if *view.definition == *rule.definition.bytes() => {
                self.note("a rule was replaced");
                let known = self.queues.get(entity(subscription).queue);
                known.rules = Rule::with(&view.definition).into_iter().collect();
                Ok(())
            }
            (BusCommand::ReadRule { subscription, .. }, BusOutcome::Rule(view)) => {
                let rule = Rule::with(&view.definition);
                let known = self.queues.get(entity(subscription).queue);
                let before = known.rules.clone();
                known.rules.retain(|it| Some(*it) == rule);
                if known.rules.is_empty() {
                    return violated!(QUEUES, "{subscription:?} has {rule:?}, of {before:?}");
                }
                Ok(())
            }
            (command, outcome) => violated!(ANSWERS_FIT, "{command:?}: {outcome:?}"),
        }
    }

    fn managed_topic(&mut self, answered: &Answered<'_>) -> Result<(), Violation> {
        match (answered.command, answered.outcome) {
            (BusCommand::CreateTopic { topic, options }, BusOutcome::QueueCreated(view)) => {
                self.is_as_asked(topic, options, view)?;
                for subscription in topics::subscriptions_of(entity(topic).queue) {
                    self.is_absent(subscription)?;
                }
                self.created(topic, options, answered)?;
                self.learn_incarnation(entity(topic), view.incarnation)
            }
            (
                BusCommand::CreateSubscription {
                    topic,
                    subscription,
                    options,
                    // The workload names none.
                    rule: _,
                },
                BusOutcome::QueueCreated(view),
            ) => {
                self.is_as_asked(subscription, options, view)?;
                self.is_there(entity(topic).queue, view)?;
                self.created(subscription, options, answered)?;
                self.learn_incarnation(entity(subscription), view.incarnation)
            }
            (BusCommand::ListTopics { .. }, BusOutcome::Queues(views)) => {
                self.all_listed(views, |queue| topics::kind(queue) == Kind::Topic)
            }
            (BusCommand::ListSubscriptions { topic, .. }, BusOutcome::Queues(views)) => {
                let topic = Some(entity(topic).queue);
                self.note("subscriptions were listed");
                self.all_listed(views, |queue| topics::topic_of(queue) == topic)
            }
            (command, outcome) => violated!(ANSWERS_FIT, "{command:?}: {outcome:?}"),
        }
    }

    fn is_as_asked(
        &self,
        queue: &EntityName,
        options: &BusQueueOptions,
        view: &BusQueueView,
    ) -> Result<(), Violation> {
        if view.options != *options || view.name != queue.name {
            return violated!(QUEUES, "{options:?} asked for, of {queue:?}: {view:?}");
        }
        Ok(())
    }

    fn created(
        &mut self,
        name: &EntityName,
        options: &BusQueueOptions,
        answered: &Answered<'_>,
    ) -> Result<(), Violation> {
        let index = entity(name).queue;
        if !self.queues.get(index).may_be_absent() {
            return violated!(QUEUES, "{} is there, and was made again", name.name);
        }
        self.gone_for_good(index)?;
        self.queues.get(index).begin(options.clone(), answered.at);
        Ok(())
    }

    /// A queue does not exist, nor do its messages.
    pub(super) fn gone_for_good(&mut self, index: usize) -> Result<(), Violation> {
        let known = self.queues.get(index);
        if known.may_be_absent() && known.options().next().is_some() {
            self.note("a queue was perhaps gone, and was");
        }
        *self.queues.get(index) = super::Queue::default();
        self.lost_are_gone(index);
        self.change_all(NO_LOSS, "its queue is gone", |message| {
            message.follow(|fate| {
                match fate {
                    // Whether it was gathered before is not known.
                    Fate::GoneWith(queue) if *queue == index => {
                        vec![Fate::Gone, Fate::GoneGathered]
                    }
                    fate if fate.is_of(index) => vec![Fate::Gone],
                    fate => vec![fate.clone()],
                }
            });
        })
    }

    fn read(&mut self, name: &EntityName, view: &BusQueueView) -> Result<(), Violation> {
        let entity = entity(name);
        self.is_as_known(entity.queue, view)?;
        self.learn_incarnation(entity, view.incarnation)?;
        self.check_counts(entity, view)
    }

    /// The counts of a view are possible, and tell what waits.
    fn check_counts(&mut self, entity: Entity, view: &BusQueueView) -> Result<(), Violation> {
        self.check_bounds(entity, view)?;
        match topics::kind(entity.queue) {
            Kind::Topic => self.learn_waiting(entity.queue, view),
            Kind::Queue | Kind::Subscription { .. } => Ok(()),
        }
    }

    /// The incarnations of one name follow one another. Sub-queues follow directly after their
    /// queue.
    fn learn_incarnation(
        &mut self,
        entity: Entity,
        incarnation: Incarnation,
    ) -> Result<(), Violation> {
        let mut next = incarnation.as_u64();
        for part in [Part::Queue, Part::DeadLetters, Part::FailedTransfers] {
            if part < entity.part {
                continue;
            }
            let entity = Entity { part, ..entity };
            let before = self.incarnations.insert(entity, next);
            if let Some(before) = before.filter(|before| *before > next) {
                return violated!(QUEUES, "{entity:?} is {next}, and was {before}");
            }
            next += 1;
        }
        Ok(())
    }

    fn is_as_known(&mut self, queue: usize, view: &BusQueueView) -> Result<(), Violation> {
        let known = self.queues.get(queue);
        let before = known.possible.clone();
        known
            .possible
            .retain(|possible| possible.as_ref() == Some(&view.options));
        if known.possible.is_empty() {
            return violated!(QUEUES, "{before:?}: {view:?}");
        }
        Ok(())
    }

    fn check_bounds(&self, entity: Entity, view: &BusQueueView) -> Result<(), Violation> {
        let BusQueueCounts {
            active,
            ready,
            scheduled,
            dead_letters,
            failed_transfers,
            size_bytes,
            subscriptions,
        } = view.counts;
        let is_whole = entity.part == Part::Queue;
        let part = |part| {
            let entity = Entity { part, ..entity };
            let here = self.bounds(move |life| u64::from(life.entity == entity));
            here.plus(self.lost_count(entity))
        };
        let is_scheduled = |life: &Life| matches!(life.stage, Stage::Scheduled { .. });
        let here = |wants: bool| {
            self.bounds(move |life| u64::from(life.entity == entity && is_scheduled(life) == wants))
        };
        let here_now = match topics::kind(entity.queue) {
            Kind::Topic => self.stored(entity.queue).0,
            // What is set aside counts as if it could be received.
            Kind::Queue | Kind::Subscription { .. } => here(false).plus(self.lost_count(entity)),
        };
        let scheduled_now = match topics::kind(entity.queue) {
            Kind::Topic if is_whole => self.scheduled_in(entity.queue).0,
            Kind::Topic | Kind::Queue | Kind::Subscription { .. } => here(true),
        };
        let mut fits = ready <= active && here_now.has(active) && scheduled_now.has(scheduled);
        if is_whole {
            fits &= part(Part::DeadLetters).has(dead_letters)
                && part(Part::FailedTransfers).has(failed_transfers)
                && self.size_bytes(entity.queue).has(size_bytes);
        } else {
            fits &= dead_letters == 0 && failed_transfers == 0;
        }
        fits &= self.subscription_count(entity).has(subscriptions);
        if !fits {
            let size_bytes = self.size_bytes(entity.queue);
            return violated!(
                COUNTS,
                "{entity:?} has {:?} active, {:?} scheduled, {:?} dead, {:?} failed, {size_bytes:?}: {:?}",
                here_now,
                scheduled_now,
                part(Part::DeadLetters),
                part(Part::FailedTransfers),
                view.counts
            );
        }
        Ok(())
    }

    /// The bounds for the sum of this value over all messages.
    pub(super) fn bounds(&self, of: impl Fn(&Life) -> u64) -> Bounds {
        let mut sum = Bounds::default();
        for message in self.messages.values() {
            let each = message.fates().map(|fate| fate.life().map_or(0, &of));
            let (least, most) = each.fold((u64::MAX, 0), |(least, most), one: u64| {
                (least.min(one), most.max(one))
            });
            sum.least += least.min(most);
            sum.most += most;
        }
        sum
    }

    /// How many subscriptions a topic has.
    pub(super) fn subscription_count(&self, entity: Entity) -> Bounds {
        let mut count = Bounds::default();
        if entity.part == Part::Queue {
            for subscription in topics::subscriptions_of(entity.queue) {
                let known = self.queues.0.get(subscription);
                let may_exist = known.is_some_and(|known| known.options().next().is_some());
                let must_exist = known.is_some_and(|known| !known.may_be_absent());
                count.least += u64::from(must_exist);
                count.most += u64::from(may_exist);
            }
        }
        count
    }

    /// The size of a queue with its sub-queues, session states and remembered ids, and of a topic with its
    /// subscriptions. A copy may count nothing for its body, because another one counts or has counted it. But a topic is
    /// at least as large as each of its subscriptions.
    pub(super) fn size_bytes(&self, queue: usize) -> Bounds {
        let mut sum = self.own_size_bytes(queue, Life::size_bytes);
        let mut largest = 0;
        for subscription in topics::subscriptions_of(queue) {
            let own = self.own_size_bytes(subscription, Life::size_bytes);
            let borrowed = |life: &Life| life.size_bytes() - life.content.body.len() as u64;
            sum.least += self.own_size_bytes(subscription, borrowed).least;
            sum.most += own.most;
            largest = largest.max(own.least);
        }
        sum.least = sum.least.max(largest);
        sum
    }

    fn own_size_bytes(&self, queue: usize, of: impl Fn(&Life) -> u64) -> Bounds {
        let mut sum = self.bounds(|life| {
            match life.entity.queue == queue && life.entity.part != Part::Topic {
                true => of(life),
                false => 0,
            }
        });
        sum = sum.plus(self.lost_bounds(queue, &of));
        sum.most += self.stored(queue).1.most;
        let (_, scheduled) = self.scheduled_in(queue);
        sum.least += scheduled.least;
        sum.most += scheduled.most;
        let known = self.queues.0.get(queue);
        // If the queue is gone, so are its states.
        let must_exist = known.is_some_and(|known| !known.may_be_absent());
        for (id, session) in known.into_iter().flat_map(|known| &known.sessions) {
            let sizes = session.states.iter();
            let sizes = sizes.map(|state| state.as_ref().map_or(0, |it| state_size_bytes(id, it)));
            if must_exist {
                sum.least += sizes.clone().min().unwrap_or(0);
            }
            sum.most += sizes.max().unwrap_or(0);
        }
        // Ids outside the window no longer count, which is not modelled here.
        let remembered = known.into_iter().flat_map(|known| known.ids.values());
        let remembered = remembered.filter(|times| times.iter().any(Option::is_some));
        // One that comes again in the second in which its window ends counts twice.
        let again = known.map_or(0, |known| known.again.len());
        sum.most += (remembered.count() + again) as u64 * REMEMBERED_ID_SIZE_BYTES;
        sum
    }

    /// A queue accepts messages exactly as long as it has room for them.
    pub(super) fn check_room_was_there(
        &self,
        queue: usize,
        (taken_bytes, freed_bytes): (u64, u64),
    ) -> Result<(), Violation> {
        let queue = topics::charged(queue);
        let limit_bytes = self.queues.of(Entity {
            queue,
            part: Part::Queue,
        });
        let limit_bytes = limit_bytes.map(|it| it.size_bytes_max).max().unwrap_or(0);
        let least = self.size_bytes(queue).least + taken_bytes;
        if least > limit_bytes.saturating_add(freed_bytes) {
            return violated!(QUEUES, "{least} bytes were taken, above {limit_bytes}");
        }
        Ok(())
    }

    /// A queue was too full.
    pub(super) fn is_full(&mut self, queue: usize, taken_bytes: u64) -> Result<(), Violation> {
        let queue = topics::charged(queue);
        let entity = Entity {
            queue,
            part: Part::Queue,
        };
        let options = || self.queues.of(entity);
        let detects = options().any(|it| it.duplicate_window_ms.is_some());
        let limit_bytes = options().map(|it| it.size_bytes_max).min().unwrap_or(0);
        // Each message may add an id, and each id has at least this size.
        let ids = match detects {
            true => taken_bytes / OVERHEAD_SIZE_BYTES,
            false => 0,
        };
        let ids_bytes = ids * REMEMBERED_ID_SIZE_BYTES;
        let most = self.size_bytes(queue).most + taken_bytes + ids_bytes;
        if most <= limit_bytes {
            return violated!(QUEUES, "{most} bytes were refused, of {limit_bytes}");
        }
        self.note("a message was refused by a full queue");
        if topics::kind(queue) == Kind::Topic {
            self.note("a message was refused by a full topic");
        }
        Ok(())
    }

    /// A queue was too full for a change to a message's properties, after this many bytes of
    /// earlier changes in the command.
    pub(super) fn is_full_for_change(
        &mut self,
        queue: usize,
        disposition: &Disposition,
        taken_bytes: u64,
    ) -> Result<(), Violation> {
        let queue = topics::charged(queue);
        let limit_bytes = self.queues.of(Entity {
            queue,
            part: Part::Queue,
        });
        let limit_bytes = limit_bytes.map(|it| it.size_bytes_max).min().unwrap_or(0);
        let limit_bytes = limit_bytes.saturating_add(limit_bytes / 10);
        let change_bytes = disposition.overlay_size_bytes();
        let is_reason = matches!(disposition, Disposition::DeadLetter { .. })
            && change_bytes <= REASON_SIZE_BYTES_MAX as u64;
        let most = self.size_bytes(queue).most + taken_bytes + change_bytes;
        if change_bytes == 0 || is_reason || most <= limit_bytes {
            return violated!(
                QUEUES,
                "{disposition:?} was refused: {most} of {limit_bytes} bytes"
            );
        }
        self.note("a change was refused by a full queue");
        Ok(())
    }

    /// A list shows those of these entities that must exist, and none that cannot.
    fn all_listed(
        &mut self,
        views: &[BusQueueView],
        is_wanted: impl Fn(usize) -> bool,
    ) -> Result<(), Violation> {
        if !views.is_sorted_by(|one, next| one.name < next.name) {
            return violated!(ANSWERS_FIT, "{views:?}");
        }
        for view in views {
            let index = queue_index(&view.name);
            if !is_wanted(index) {
                return violated!(ANSWERS_FIT, "{view:?} does not belong into the list");
            }
            self.is_there(index, view)?;
            self.is_as_known(index, view)?;
            let entity = Entity {
                queue: index,
                part: Part::Queue,
            };
            self.learn_incarnation(entity, view.incarnation)?;
            self.check_counts(entity, view)?;
        }
        for index in 0..self.queues.0.len() {
            let is_listed = |view: &BusQueueView| queue_index(&view.name) == index;
            if is_wanted(index) && !views.iter().any(is_listed) {
                self.is_absent(index)?;
            }
        }
        Ok(())
    }

    /// A topic does not exist, nor do its subscriptions.
    fn subscriptions_are_gone(&mut self, topic: usize) -> Result<(), Violation> {
        for subscription in topics::subscriptions_of(topic) {
            let known = self.queues.get(subscription);
            if known.options().next().is_some() {
                self.note("a subscription was deleted with its topic");
            }
            self.gone_for_good(subscription)?;
        }
        Ok(())
    }

    /// A queue was not found. If it is a topic, it has no subscriptions.
    pub(super) fn is_absent(&mut self, index: usize) -> Result<(), Violation> {
        for subscription in topics::subscriptions_of(index) {
            self.is_absent(subscription)?;
        }
        if !self.queues.get(index).may_be_absent() {
            let known = self.queues.get(index);
            return violated!(QUEUES, "queue {index} is not found: {:?}", known.possible);
        }
        self.gone_for_good(index)
    }
}

/// The size of messages without changes.
pub(super) fn size_of_all<'a>(bodies: impl IntoIterator<Item = &'a Bytes>) -> u64 {
    let sizes = bodies.into_iter();
    sizes
        .map(|body| OVERHEAD_SIZE_BYTES + body.len() as u64)
        .sum()
}

/// The size of a state in its queue.
pub(super) fn state_size_bytes(session: &str, state: &Bytes) -> u64 {
    OVERHEAD_SIZE_BYTES + (session.len() + state.len()) as u64
}

impl Life {
    /// Its size in its queue.
    pub(super) fn size_bytes(&self) -> u64 {
        let overlays = self.overlays.len() as u64 * CHANGE_SIZE_BYTES;
        OVERHEAD_SIZE_BYTES + self.content.body.len() as u64 + overlays
    }
}

#[cfg(test)]
mod tests {
    use kew_engine::Timestamp;

    use super::*;
    use crate::bus::workload::plain_options;

    /// Nobody knows whether the queue was deleted, until an answer shows that it is there.
    #[test]
    fn states_count_for_sure_while_their_queue_is_there_for_sure() {
        let mut checker = Checker::default();
        let topic = topics::topic(0);
        let own = topic + 1 + topics::WITH_SESSIONS;
        for queue in [topic, own] {
            let known = checker.queues.get(queue);
            known.begin(plain_options(queue), Timestamp::ZERO);
        }
        let session = checker.queues.get(own).session("session-1");
        session.states = vec![Some("26".into())];
        assert_eq!(checker.size_bytes(topic).least, 139);
        checker.queues.get(own).may_be(None);
        assert_eq!(checker.size_bytes(topic).least, 0);
        checker.is_there(own, &"").unwrap();
        assert_eq!(checker.size_bytes(topic).least, 139);
    }
}
