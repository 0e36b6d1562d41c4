//! The special feature of each queue, and its possible settings.

use kew_engine::bus::{BusCommand, BusQueueOptions, EntityStatus};

use crate::bus::checker::life::Part;
use crate::bus::topics::{self, Kind};
use crate::bus::{BusSwarm, named, queue_name};
use crate::random::Stream;

/// The queue whose messages belong to sessions.
pub(in crate::bus) const WITH_SESSIONS: usize = 1;
/// The queue that detects duplicates.
pub(super) const WITH_DUPLICATES: usize = 2;
/// The queue that deletes itself.
const SHORT_LIVED: usize = 6;

/// How many queues a world with a chain has: the last two are its end, because they take any message.
pub(in crate::bus) const CHAIN_QUEUES: usize = 4;

const WINDOW_MS: u64 = 20_000;
/// The shortest time to idle.
const IDLE_MS: u64 = 300_000;
/// The longest lock.
const LOCK_MS_MAX: u64 = 20_000;

/// The settings of an ordinary queue, topic or subscription.
pub(crate) fn plain_options(queue: usize) -> BusQueueOptions {
    match topics::kind(queue) {
        Kind::Queue => {}
        Kind::Topic => {
            return BusQueueOptions {
                duplicate_window_ms: (queue == topics::DETECTING).then_some(WINDOW_MS),
                ..BusQueueOptions::default()
            };
        }
        Kind::Subscription { nth, .. } => return plain_subscription(nth),
    }
    BusQueueOptions {
        lock_duration_ms: LOCK_MS_MAX,
        max_delivery_count: 3,
        requires_session: queue == WITH_SESSIONS,
        duplicate_window_ms: (queue == WITH_DUPLICATES).then_some(WINDOW_MS),
        auto_delete_on_idle_ms: if queue == SHORT_LIVED {
            IDLE_MS
        } else {
            u64::MAX
        },
        ..BusQueueOptions::default()
    }
}

fn plain_subscription(nth: usize) -> BusQueueOptions {
    BusQueueOptions {
        lock_duration_ms: LOCK_MS_MAX,
        max_delivery_count: 3,
        requires_session: nth == topics::WITH_SESSIONS,
        auto_delete_on_idle_ms: if nth == topics::SHORT_LIVED {
            IDLE_MS
        } else {
            u64::MAX
        },
        ..BusQueueOptions::default()
    }
}

/// Settings for a topic. It has no others yet that mean something.
pub(super) fn topic_options(r: &mut Stream, topic: usize) -> BusQueueOptions {
    BusQueueOptions {
        default_time_to_live_ms: [u64::MAX, u64::MAX, 45_000][r.index(3)],
        size_bytes_max: if r.happens(150) {
            12_000
        } else {
            BusQueueOptions::default().size_bytes_max
        },
        ..plain_options(topic)
    }
}

/// Settings for a subscription. Only those of one are forwarded.
pub(super) fn subscription_options(
    r: &mut Stream,
    subscription: usize,
    swarm: &BusSwarm,
) -> BusQueueOptions {
    let is_forwarding = matches!(
        topics::kind(subscription),
        Kind::Subscription {
            nth: topics::FORWARDING,
            ..
        }
    );
    let per_mille = forwards_per_mille(subscription, 250, swarm);
    let mut other = || {
        let to = destination(r, subscription, swarm);
        (is_forwarding && r.happens(per_mille)).then(|| queue_name(to).into())
    };
    let (forward_to, forward_dead_letters_to) = (other(), other());
    BusQueueOptions {
        lock_duration_ms: [5_000, LOCK_MS_MAX][r.index(2)],
        max_delivery_count: [1, 3, 10][r.index(3)],
        default_time_to_live_ms: [u64::MAX, u64::MAX, 30_000][r.index(3)],
        dead_letters_expired: r.happens(500),
        forward_to,
        forward_dead_letters_to,
        status: match r.below(12) {
            0 => EntityStatus::Disabled,
            1 => EntityStatus::ReceiveDisabled,
            _ => EntityStatus::Active,
        },
        ..plain_options(subscription)
    }
}

/// Where an entity may forward to. What comes through the gathering topic comes no more to what forwards to that.
fn destination(r: &mut Stream, from: usize, swarm: &BusSwarm) -> usize {
    match (swarm.gather_per_mille(), topics::is_before(from)) {
        (0, _) => r.index(swarm.queues),
        (gather, true) if r.happens(gather) => topics::GATHERING,
        (_, true) => r.index(swarm.queues),
        (_, false) => topics::BEFORE + 1 + r.index(swarm.queues - topics::BEFORE - 1),
    }
}

/// How often it forwards. Where messages are gathered, those that may go there do so more often, and in some worlds all
/// others, too.
fn forwards_per_mille(from: usize, usual: u32, swarm: &BusSwarm) -> u32 {
    match (swarm.gather_per_mille(), topics::is_before(from)) {
        (0, _) => usual,
        (_, true) => 500,
        (_, false) if swarm.has_chain() => 800,
        (_, false) => usual,
    }
}

/// Commands by which messages are gathered, and then forwarded on and on between two queues. Later settings cut the chain
/// in some places, and close it in others.
pub(super) fn chain(swarm: &BusSwarm) -> impl Iterator<Item = BusCommand> {
    let forwarding = |topic: usize| topic + 1 + topics::FORWARDING;
    let [last, first] = [CHAIN_QUEUES - 1, CHAIN_QUEUES - 2];
    let links = [
        (topics::BEFORE, topics::GATHERING),
        (forwarding(topics::topic(0)), topics::GATHERING),
        (forwarding(topics::GATHERING), first),
        (first, last),
        (last, first),
    ];
    let links = links.into_iter().filter(|_| swarm.has_chain());
    links.map(|(from, to)| BusCommand::UpdateQueue {
        queue: named(from, Part::Queue),
        options: BusQueueOptions {
            forward_to: Some(queue_name(to).into()),
            ..plain_options(from)
        },
    })
}

/// Settings for a queue. Those that never change depend only on its number.
pub(super) fn options(r: &mut Stream, queue: usize, swarm: &BusSwarm) -> BusQueueOptions {
    let mut other = |per_mille| {
        let to = destination(r, queue, swarm);
        r.happens(forwards_per_mille(queue, per_mille, swarm))
            .then(|| queue_name(to).into())
    };
    let (forward_to, forward_dead_letters_to) = (other(250), other(150));
    // Seldom, so that its sessions are received too.
    let forwards = queue != WITH_SESSIONS || r.happens(300);
    BusQueueOptions {
        lock_duration_ms: [5_000, LOCK_MS_MAX][r.index(2)],
        max_delivery_count: [1, 3, 10][r.index(3)],
        default_time_to_live_ms: [u64::MAX, u64::MAX, 30_000][r.index(3)],
        dead_letters_expired: r.happens(500),
        forward_to: forward_to.filter(|_| forwards),
        forward_dead_letters_to,
        status: [
            EntityStatus::Active,
            EntityStatus::Active,
            EntityStatus::Active,
            EntityStatus::Active,
            EntityStatus::Active,
            EntityStatus::Disabled,
            EntityStatus::SendDisabled,
            EntityStatus::ReceiveDisabled,
        ][r.index(8)],
        size_bytes_max: if r.happens(100) {
            6_000
        } else {
            BusQueueOptions::default().size_bytes_max
        },
        ..plain_options(queue)
    }
}
