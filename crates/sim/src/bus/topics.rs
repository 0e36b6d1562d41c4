//! Topics and subscriptions: their numbers among the entities of a world, their names, and how many there are.
//!
//! A subscription is a queue to the checker and to most of the workload. Its number is above those of queues, and its
//! copies are messages of their own, which have the number in their body and that of their subscription.

use std::ops::Range;

use super::workload::QUEUES;
use crate::random::Stream;

/// How many topics there are at most.
const TOPICS: usize = 2;
/// How many subscriptions a topic has at most: more than a tick copies into when nearly all of its budget is used up.
const SUBSCRIPTIONS: usize = 6;
/// A topic and its subscriptions.
const FAMILY: usize = 1 + SUBSCRIPTIONS;
/// Messages have lower numbers in their bodies.
const COPIES_FROM: u32 = 48;

/// The topic to which others forward messages. What has come through it is never forwarded to it again, so no two copies of a
/// message meet.
pub(crate) const GATHERING: usize = topic(1);
/// The queue that forwards to it. What has come through that topic is not forwarded to this queue, nor resubmitted there.
pub(crate) const BEFORE: usize = 0;
/// The topic that detects duplicates.
pub(crate) const DETECTING: usize = topic(0);
/// The subscription whose messages may be forwarded: so no two copies of a message meet in a queue.
pub(crate) const FORWARDING: usize = 0;
/// The subscription whose messages belong to sessions.
pub(crate) const WITH_SESSIONS: usize = 1;
/// The subscription that deletes itself.
pub(crate) const SHORT_LIVED: usize = 3;

/// What an entity is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Queue,
    Topic,
    /// The number of its topic, and its own number there.
    Subscription {
        of: usize,
        nth: usize,
    },
}

pub(crate) fn kind(queue: usize) -> Kind {
    let Some(above) = queue.checked_sub(QUEUES) else {
        return Kind::Queue;
    };
    match above % FAMILY {
        0 => Kind::Topic,
        place => Kind::Subscription {
            of: queue - place,
            nth: place - 1,
        },
    }
}

/// The number of a topic.
pub(crate) const fn topic(nth: usize) -> usize {
    QUEUES + nth * FAMILY
}

/// The topic of a subscription.
pub(crate) fn topic_of(queue: usize) -> Option<usize> {
    match kind(queue) {
        Kind::Subscription { of, .. } => Some(of),
        Kind::Queue | Kind::Topic => None,
    }
}

/// All that a topic may have. Other entities have none.
pub(crate) fn subscriptions_of(queue: usize) -> Range<usize> {
    match kind(queue) {
        Kind::Topic => queue + 1..queue + FAMILY,
        Kind::Queue | Kind::Subscription { .. } => queue..queue,
    }
}

/// The entity whose limits hold for another one, and whose size counts.
pub(crate) fn charged(queue: usize) -> usize {
    topic_of(queue).unwrap_or(queue)
}

/// The number by which the checker knows a message, given the number in its body and an entity that has it. Queues and
/// topics get no copies but those of [`FORWARDING`].
pub(crate) fn number_in(queue: usize, number: u64) -> u64 {
    match kind(queue) {
        Kind::Subscription {
            nth: FORWARDING, ..
        }
        | Kind::Queue
        | Kind::Topic => number,
        Kind::Subscription { of, nth } => {
            let copy = of - QUEUES + nth;
            number | (copy as u64) << COPIES_FROM
        }
    }
}

/// The number in the body of a message.
pub(crate) fn number_in_body(number: u64) -> u64 {
    number & ((1 << COPIES_FROM) - 1)
}

/// Whether what an entity has may come to the gathering topic: the queue, and the subscription of the other topic that
/// forwards.
pub(crate) fn is_before(entity: usize) -> bool {
    match kind(entity) {
        Kind::Queue => entity == BEFORE,
        Kind::Subscription { of, nth } => of != GATHERING && nth == FORWARDING,
        Kind::Topic => false,
    }
}

pub(crate) fn name(queue: usize) -> String {
    match kind(queue) {
        Kind::Queue => format!("bus-{queue}"),
        Kind::Topic => format!("topic-{queue}"),
        Kind::Subscription { of, nth } => format!("topic-{of}/subscriptions/to-{nth}"),
    }
}

/// The entity of that name, if any has it.
pub(crate) fn named(name: &str) -> Option<usize> {
    if let Some(queue) = name.strip_prefix("bus-") {
        return queue.parse().ok();
    }
    let topic = name.strip_prefix("topic-")?;
    match topic.split_once("/subscriptions/to-") {
        None => topic.parse().ok(),
        Some((of, nth)) => {
            let (of, nth): (usize, usize) = (of.parse().ok()?, nth.parse().ok()?);
            Some(of + 1 + nth)
        }
    }
}

/// The topics of a world.
#[derive(Clone, Debug)]
pub(crate) struct TopicSwarm {
    /// The numbers of topics.
    pub(crate) topics: Vec<usize>,
    /// The numbers of subscriptions, also of those that do not exist now.
    pub(crate) subscriptions: Vec<usize>,
    /// How often a command is for a subscription, and not for a queue.
    share_per_mille: u32,
    /// How often a subscription or a topic is deleted instead of another command.
    pub(crate) delete_per_mille: u32,
    /// How often the rule of a subscription is replaced instead of another command.
    pub(crate) rule_per_mille: u32,
    /// How often a message is scheduled.
    pub(crate) schedule_per_mille: u32,
    /// How often messages are forwarded to [`GATHERING`], of those that may be.
    pub(crate) gather_per_mille: u32,
    /// Whether what is gathered is forwarded on and on, to the end of its hops.
    pub(crate) has_chain: bool,
    /// How many copies a command makes at once, if that is not what is usual. Of the others, the messages wait.
    pub(crate) copies_at_once: Option<u64>,
    /// How many copies a topic may owe before those who send to it wait, if that is not what is usual.
    pub(crate) copies_owed_max: Option<u64>,
}

impl TopicSwarm {
    pub(crate) fn draw(seed: u64) -> Self {
        let mut r = Stream::new(seed, "topic swarm");
        let mut waiting = Stream::new(seed, "copies at once");
        let mut owing = Stream::new(seed, "copies owed");
        let mut scheduling = Stream::new(seed, "topic schedules");
        let mut gathering = Stream::new(seed, "forwards to topics");
        let topics: Vec<_> = (0..1 + r.index(TOPICS)).map(topic).collect();
        let mut subscriptions = Vec::new();
        for topic in &topics {
            let count = 1 + r.index(SUBSCRIPTIONS);
            subscriptions.extend(subscriptions_of(*topic).take(count));
        }
        let gathers = topics.contains(&GATHERING);
        let gather_per_mille = match gathers {
            true => [0, 400, 700, 900][gathering.index(4)],
            false => 0,
        };
        let mut chains = Stream::new(seed, "chains of forwards");
        Self {
            has_chain: gather_per_mille > 0 && chains.happens(250),
            gather_per_mille,
            topics,
            subscriptions,
            share_per_mille: [600, 900][r.index(2)],
            delete_per_mille: [0, 4, 20][r.index(3)],
            rule_per_mille: [0, 10, 40][r.index(3)],
            schedule_per_mille: [0, 0, 150, 400][scheduling.index(4)],
            copies_at_once: [Some(0), Some(1), Some(3), None][waiting.index(4)],
            copies_owed_max: [Some(0), Some(2), Some(8), None][owing.index(4)],
        }
    }

    /// A subscription, or `None` if a queue has its turn.
    pub(crate) fn pick(&self, r: &mut Stream) -> Option<usize> {
        r.happens(self.share_per_mille)
            .then(|| self.subscriptions[r.index(self.subscriptions.len())])
    }

    /// The topic of a subscription, or any topic.
    pub(crate) fn topic_for(&self, queue: usize, r: &mut Stream) -> usize {
        topic_of(queue).unwrap_or_else(|| self.topics[r.index(self.topics.len())])
    }

    /// A subscription with sessions.
    pub(crate) fn with_sessions(&self, r: &mut Stream) -> Option<usize> {
        let is_it = |queue: &&usize| {
            matches!(
                kind(**queue),
                Kind::Subscription {
                    nth: WITH_SESSIONS,
                    ..
                }
            )
        };
        let all: Vec<_> = self.subscriptions.iter().filter(is_it).collect();
        (!all.is_empty() && r.happens(700)).then(|| *all[r.index(all.len())])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_entity_has_a_name_and_a_number() {
        for queue in 0..topic(TOPICS) {
            assert_eq!(named(&name(queue)), Some(queue));
        }
        let topic = topic(1);
        assert_eq!(kind(topic), Kind::Topic);
        assert!(subscriptions_of(topic).all(|it| topic_of(it) == Some(topic)));
        let copies: Vec<_> = subscriptions_of(topic).map(|it| number_in(it, 7)).collect();
        assert!(copies.is_sorted_by(|one, next| one < next));
        assert!(copies.iter().all(|it| number_in_body(*it) == 7));
        assert_eq!(copies[FORWARDING], number_in(0, 7));
        let others = subscriptions_of(super::topic(0)).map(|it| number_in(it, 7));
        assert!(others.skip(1).all(|it| !copies.contains(&it)));
    }
}
