//! Bus queues: the commands of clients, and what the answers may show.
//!
//! They share a world with storage queues ([`crate::run`]): one partition, one log, the same
//! clients that give up, the same faults. Two worlds out of five have both kinds. Worlds with topics (`topics`) are
//! apart: a seed has topics in the one and none in the other.

pub(crate) mod checker;
mod drain;
mod occurring;
mod operator;
pub(crate) mod rules;
pub(crate) mod topics;
pub(crate) mod workload;

use kew_engine::{EntityName, Service};

use crate::random::Stream;
use crate::swarm::Swarm;
use crate::world::{Report, Watch, run_swarm};
use checker::life::{Entity, Part};
use topics::TopicSwarm;

pub use occurring::{MUST_OCCUR, MUST_OCCUR_WITH_TOPICS};

/// The namespace of all bus queues.
pub(crate) const NAMESPACE: &str = "sim";

const DEAD_LETTERS: &str = "/$deadletterqueue";
const FAILED_TRANSFERS: &str = "/$transfer/$deadletterqueue";

/// Runs one seed of a world with bus queues, as [`crate::run`] does of one without.
pub fn run(seed: u64, operations: u64, keep_trace: bool) -> Report {
    run_swarm(seed, Swarm::draw_bus(seed), operations, keep_trace, None)
}

/// Runs one seed as [`run`] does, and shows every step to `watch`.
pub fn replay(seed: u64, operations: u64, watch: Watch) -> Report {
    run_swarm(seed, Swarm::draw_bus(seed), operations, true, Some(watch))
}

/// Runs one seed of a world with topics, too.
pub fn run_with_topics(seed: u64, operations: u64, keep_trace: bool) -> Report {
    run_swarm(seed, Swarm::draw_topics(seed), operations, keep_trace, None)
}

/// Runs one seed as [`run_with_topics`] does, and shows every step to `watch`.
pub fn replay_with_topics(seed: u64, operations: u64, watch: Watch) -> Report {
    run_swarm(
        seed,
        Swarm::draw_topics(seed),
        operations,
        true,
        Some(watch),
    )
}

/// Runs one seed of a world with bus queues, in which two members own a replicated log in turn.
pub fn run_on_model(seed: u64, operations: u64, keep_trace: bool) -> Report {
    let swarm = Swarm::draw_bus_model(seed);
    run_swarm(seed, swarm, operations, keep_trace, None)
}

/// The same with topics, too.
pub fn run_with_topics_on_model(seed: u64, operations: u64, keep_trace: bool) -> Report {
    let swarm = Swarm::draw_topics_model(seed);
    run_swarm(seed, swarm, operations, keep_trace, None)
}

/// Runs one seed as [`run_with_topics_on_model`] does, and shows every step to `watch`.
pub fn replay_with_topics_on_model(seed: u64, operations: u64, watch: Watch) -> Report {
    let swarm = Swarm::draw_topics_model(seed);
    run_swarm(seed, swarm, operations, true, Some(watch))
}

/// Runs one seed as [`run_on_model`] does, and shows every step to `watch`.
pub fn replay_on_model(seed: u64, operations: u64, watch: Watch) -> Report {
    let swarm = Swarm::draw_bus_model(seed);
    run_swarm(seed, swarm, operations, true, Some(watch))
}

/// The properties of a world's bus queues.
#[derive(Clone, Debug)]
pub(crate) struct BusSwarm {
    /// How often a client's command is for a bus queue, and not for a storage queue.
    pub(crate) share_per_mille: u32,
    pub(crate) queues: usize,
    pub(crate) weights: [u64; workload::KINDS],
    pub(crate) body_size_max: u64,
    pub(crate) time_to_live_per_mille: u32,
    pub(crate) schedule_per_mille: u32,
    pub(crate) stale_lock_per_mille: u32,
    /// How often the command comes from an operator instead of a client.
    pub(crate) operator_per_mille: u32,
    /// So many of the queues never go.
    pub(crate) queues_lasting: usize,
    /// How often a client's command is a transaction.
    pub(crate) transact_per_mille: u32,
    /// Topics, if there are any.
    pub(crate) topics: Option<TopicSwarm>,
}

impl BusSwarm {
    pub(crate) fn draw(seed: u64) -> Self {
        let mut r = Stream::new(seed, "bus swarm");
        let mut operator = Stream::new(seed, "bus operator swarm");
        let share_per_mille = if r.happens(400) { 600 } else { 1000 };
        let queues = 2 + r.index(workload::QUEUES - 1);
        let operator_per_mille = [0, 60, 200][operator.index(3)];
        let mut transactions = Stream::new(seed, "bus transaction swarm");
        Self {
            transact_per_mille: [0, 80, 250][transactions.index(3)],
            share_per_mille,
            queues,
            operator_per_mille,
            queues_lasting: if operator_per_mille > 0 {
                operator::draw_lasting(&mut operator, queues)
            } else {
                0
            },
            weights: workload::weights(&mut r),
            body_size_max: [16, 200, 1500][r.index(3)],
            time_to_live_per_mille: [0, 100, 400][r.index(3)],
            schedule_per_mille: [0, 100, 300][r.index(3)],
            stale_lock_per_mille: [0, 100, 300][r.index(3)],
            topics: None,
        }
    }

    /// The same with topics, and few queues. All send and receive, because every entity is busy.
    pub(crate) fn draw_topics(seed: u64) -> Self {
        let mut r = Stream::new(seed, "bus swarm with topics");
        let plain = Self::draw(seed);
        let topics = TopicSwarm::draw(seed);
        let few = 2 + r.index(2);
        let queues = match topics.has_chain {
            true => workload::CHAIN_QUEUES,
            false => few,
        };
        // Purges of numbers that no client knows leave much open.
        let operator_per_mille = [0, 0, 60][r.index(3)];
        Self {
            share_per_mille: 1000,
            queues,
            operator_per_mille,
            queues_lasting: if operator_per_mille > 0 {
                operator::draw_lasting(&mut r, queues)
            } else {
                0
            },
            topics: Some(topics),
            ..plain
        }
    }

    /// The entity of the next command: a queue, or a subscription if there are any.
    pub(crate) fn pick(&self, r: &mut Stream) -> usize {
        let subscription = self.topics.as_ref().and_then(|topics| topics.pick(r));
        subscription.unwrap_or_else(|| r.index(self.queues))
    }

    /// How often messages are forwarded to the gathering topic, of those that may be.
    pub(crate) fn gather_per_mille(&self) -> u32 {
        self.topics.as_ref().map_or(0, |it| it.gather_per_mille)
    }

    /// Whether what is gathered is forwarded on and on.
    pub(crate) fn has_chain(&self) -> bool {
        self.topics.as_ref().is_some_and(|it| it.has_chain)
    }

    /// An entity whose messages belong to sessions.
    pub(crate) fn pick_with_sessions(&self, r: &mut Stream) -> usize {
        let topics = self.topics.as_ref();
        let subscription = topics.and_then(|topics| topics.with_sessions(r));
        subscription.unwrap_or(workload::WITH_SESSIONS)
    }
}

pub(crate) fn named(queue: usize, part: Part) -> EntityName {
    let suffix = match part {
        Part::Queue => "",
        Part::DeadLetters => DEAD_LETTERS,
        Part::FailedTransfers => FAILED_TRANSFERS,
        Part::Topic => unreachable!("no command names it"),
    };
    EntityName {
        service: Service::ServiceBus,
        account: NAMESPACE.into(),
        name: format!("{}{suffix}", queue_name(queue)).into(),
    }
}

pub(crate) fn queue_name(queue: usize) -> String {
    topics::name(queue)
}

/// The number of the queue, topic or subscription of that name.
pub(crate) fn queue_index(name: &str) -> usize {
    topics::named(name).expect("every entity has a number")
}

/// The entity with that name.
pub(crate) fn entity(name: &EntityName) -> Entity {
    let (queue, part) = if let Some(queue) = name.name.strip_suffix(FAILED_TRANSFERS) {
        (queue, Part::FailedTransfers)
    } else if let Some(queue) = name.name.strip_suffix(DEAD_LETTERS) {
        (queue, Part::DeadLetters)
    } else {
        (&*name.name, Part::Queue)
    };
    Entity {
        queue: queue_index(queue),
        part,
    }
}
