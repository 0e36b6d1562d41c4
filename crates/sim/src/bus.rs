//! Bus queues: the commands of clients, and what the answers may show.
//!
//! They share a world with storage queues ([`crate::run`]): one partition, one log, the same
//! clients that give up, the same faults. Two worlds out of five have both kinds.

pub(crate) mod checker;
mod drain;
mod operator;
pub(crate) mod workload;

use kew_engine::{EntityName, Service};

use crate::random::Stream;
use crate::swarm::Swarm;
use crate::world::{Report, Watch, run_swarm};
use checker::life::{Entity, Part};

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

/// States that must occur over enough seeds, or the worlds prove less than they seem to.
pub const MUST_OCCUR: [&str; 61] = [
    "a command waited for bodies",
    "a dead letter went on to another queue",
    "a deferred message was purged",
    "a deferred message was received",
    "a duplicate was dropped",
    "a duplicate was dropped in a transaction",
    "a lock was ended that a refused transaction was to end",
    "a lock was lost",
    "a lock was renewed",
    "a locked message was purged",
    "a message could not go on",
    "a message that expired came back as a dead letter",
    "a message that its receiver gave up came back as a dead letter",
    "a message that was delivered too often came back as a dead letter",
    "a message was deferred",
    "a message was deleted by its number",
    "a message was delivered again",
    "a message was made a dead letter",
    "a message was not sent again for its id",
    "a message was refused by a full queue",
    "a message was sent again",
    "a message was taken by its number",
    "a message went on too often",
    "a message's lock was broken",
    "a queue was changed",
    "a queue was deleted",
    "a queue was not found",
    "a queue was perhaps gone, and was",
    "a queue was purged",
    "a scheduled message was cancelled",
    "a scheduled message was purged",
    "a session was refused that another receiver has",
    "a session was renewed",
    "a session's lock was broken",
    "a session's state was read",
    "a transaction completed one message and gave another back",
    "a transaction over three queues was cut by a power failure",
    "a transaction over three queues was done",
    "a transaction over three queues without an answer was done",
    "a transaction sent, settled and cancelled",
    "a transaction was cut by a kill",
    "a transaction was cut by a power failure",
    "a transaction was decided among other commands",
    "a transaction was done",
    "a transaction was refused by a disabled queue",
    "a transaction was refused by a full queue",
    "a transaction was refused for a lock",
    "a transaction was refused for a queue that is gone",
    "a transaction was refused for a queue that was made anew",
    "a transaction was refused for a scheduled message",
    "a transaction was refused, and parts of it would have done",
    "a transaction was to end a lock twice",
    "a transaction without an answer was done",
    "a transaction without an answer was not done",
    "an id was accepted again after its window",
    "messages were deleted at once",
    "states of sessions were cleared",
    "the lock of a session was lost",
    "the next session was accepted",
    "what a purge would take was counted",
    "what was sent without an answer was shown",
];

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
        }
    }
}

pub(crate) fn named(queue: usize, part: Part) -> EntityName {
    let suffix = match part {
        Part::Queue => "",
        Part::DeadLetters => DEAD_LETTERS,
        Part::FailedTransfers => FAILED_TRANSFERS,
    };
    EntityName {
        service: Service::ServiceBus,
        account: NAMESPACE.into(),
        name: format!("{}{suffix}", queue_name(queue)).into(),
    }
}

pub(crate) fn queue_name(queue: usize) -> String {
    format!("bus-{queue}")
}

/// The number of the queue of that name.
pub(crate) fn queue_index(name: &str) -> usize {
    let number = name.strip_prefix("bus-").and_then(|it| it.parse().ok());
    number.expect("every queue has a number")
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
