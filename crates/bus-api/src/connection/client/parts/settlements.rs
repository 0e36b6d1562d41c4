//! What settlements mean, and how many fit into one command.

use kew_amqp::DeliveryId;
use kew_amqp::performative::{DeliveryState, Modified, Outcome, Rejected};
use kew_bus_message::overlay_of;
use kew_engine::bus::{BusCommand, Disposition, ITEMS_MAX};
use kew_engine::{EntityName, Token};

use crate::metrics::Settled;

/// About how many bytes of changes to properties one command contains, unless a single message has
/// more. A command of this size fits on a full disk.
const CHANGES_SIZE_BYTES_MAX: u64 = 64 * 1024;

/// The settlements of one command.
pub(crate) struct Settlements {
    pub(crate) queue: EntityName,
    pub(crate) each: Vec<Settlement>,
}

impl Settlements {
    pub(crate) fn new(queue: EntityName, each: Vec<Settlement>) -> Self {
        Self { queue, each }
    }

    pub(crate) fn command(&self) -> BusCommand {
        let settlements = self.each.iter();
        BusCommand::Settle {
            queue: self.queue.clone(),
            settlements: settlements
                .map(|it| (it.lock, it.disposition.clone()))
                .collect(),
        }
    }
}

/// A settlement in progress.
pub(crate) struct Settlement {
    pub(crate) delivery: DeliveryId,
    pub(crate) lock: Token,
    pub(crate) disposition: Disposition,
    pub(crate) settled: Settled,
    /// The answer if it takes effect; `None` if the client has settled.
    pub(crate) reply: Option<DeliveryState>,
}

/// How many of these fit into one command, if not all: at least one.
pub(crate) fn too_many(settlements: &[Settlement]) -> Option<usize> {
    let mut size_bytes = 0;
    let taken = settlements.iter().take(ITEMS_MAX).take_while(|it| {
        size_bytes += it.disposition.overlay_size_bytes();
        size_bytes <= CHANGES_SIZE_BYTES_MAX
    });
    let count = taken.count().max(1);
    (count < settlements.len()).then_some(count)
}

pub(crate) fn overlay_size_bytes(disposition: &Disposition) -> usize {
    usize::try_from(disposition.overlay_size_bytes()).unwrap_or(usize::MAX)
}

/// The effect of an outcome on a message, and the answer to it.
pub(crate) struct Meaning {
    pub(crate) disposition: Disposition,
    pub(crate) reply: Outcome,
    pub(crate) settled: Settled,
}

pub(crate) fn meaning_of(outcome: &Outcome) -> Option<Meaning> {
    let (disposition, settled, reply) = match outcome {
        Outcome::Accepted => (Disposition::Complete, Settled::Complete, Outcome::Accepted),
        Outcome::Released => (Disposition::Release, Settled::Release, Outcome::Released),
        Outcome::Modified(modified) => {
            let overlay = modified.message_annotations.as_ref().and_then(overlay_of);
            let (disposition, settled) = if modified.undeliverable_here == Some(true) {
                (Disposition::Defer { overlay }, Settled::Defer)
            } else {
                (Disposition::Abandon { overlay }, Settled::Abandon)
            };
            // Its changes are not repeated: they may not fit into a frame of the client.
            let reply = Modified {
                message_annotations: None,
                ..*modified
            };
            (disposition, settled, Outcome::Modified(reply))
        }
        Outcome::Rejected(rejected) => {
            let info = rejected
                .error
                .as_ref()
                .and_then(|error| error.info.as_ref());
            let overlay = info.and_then(overlay_of);
            let letter = Disposition::DeadLetter { overlay };
            let reply = Outcome::Rejected(Rejected { error: None });
            (letter, Settled::DeadLetter, reply)
        }
        Outcome::Declared(_) => return None,
    };
    Some(Meaning {
        disposition,
        reply,
        settled,
    })
}
