//! The messages of a receive.

use bytes::Bytes;
use kew_broker::{Answer, Broker, Rejection};
use kew_engine::bus::{BusCommand, BusOutcome, DeliveredMessage};
use kew_engine::{EntityName, Outcome};

use crate::ground::submit::Submitted;

/// Messages, with their bytes and the changes to their properties.
pub(crate) type Batch = Vec<(DeliveredMessage, Vec<Bytes>)>;

/// Whether a queue has a message to receive, of any session. The question takes no room for an
/// answer.
pub(crate) async fn has_some(broker: &Broker, queue: &EntityName) -> Result<bool, Rejection> {
    let read = BusCommand::ReadQueue {
        queue: queue.clone(),
    };
    match Submitted::new(broker, read).answer().await?.outcome {
        Outcome::Bus(BusOutcome::Queue(view)) => Ok(view.counts.ready > 0),
        // The receive that follows finds the error.
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
