//! What a receive has brought.

use bytes::Bytes;
use kew_broker::{Answer, Broker, Rejection};
use kew_engine::bus::{BusCommand, BusOutcome, DeliveredMessage};
use kew_engine::{EntityName, Outcome};

use crate::ground::submit::Submitted;

/// Messages, and for each its bytes and the changes to its properties.
pub(crate) type Batch = Vec<(DeliveredMessage, Vec<Bytes>)>;

/// Whether a queue has anything to receive, of any session. To ask takes no room for an answer.
pub(crate) async fn has_some(broker: &Broker, queue: &EntityName) -> Result<bool, Rejection> {
    let read = BusCommand::ReadQueue {
        queue: queue.clone(),
    };
    match Submitted::new(broker, read).answer().await?.outcome {
        Outcome::Bus(BusOutcome::Queue(view)) => Ok(view.counts.ready > 0),
        // A look finds out what is wrong.
        _ => Ok(true),
    }
}

/// The messages of an answer, each with its bytes.
pub(crate) fn batch_of(answer: Answer) -> Batch {
    let Outcome::Bus(BusOutcome::Received(messages)) = answer.outcome else {
        return Batch::new();
    };
    let mut bodies = answer.bodies.into_iter();
    let with_bytes = |message: DeliveredMessage| {
        let parts = 1 + message.overlays.len();
        let bytes = bodies.by_ref().take(parts).collect();
        (message, bytes)
    };
    messages.into_iter().map(with_bytes).collect()
}
