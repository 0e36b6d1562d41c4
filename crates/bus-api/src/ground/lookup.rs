//! Whether an entity is there.

use kew_broker::{Broker, Rejection};
use kew_engine::bus::{BusCommand, BusRefusal};
use kew_engine::{EntityName, Refusal};

use crate::ground::address::{entity_named, is_queue_name};
use crate::ground::submit::Submitted;

/// Whether there is a queue or sub-queue of that name.
pub(crate) async fn is_there(broker: &Broker, entity: EntityName) -> Result<bool, Rejection> {
    let read = BusCommand::ReadQueue { queue: entity };
    match Submitted::new(broker, read).answer().await {
        Ok(_) => Ok(true),
        Err(Rejection::Refused(Refusal::Bus(BusRefusal::QueueNotFound { .. }))) => Ok(false),
        Err(rejection) => Err(rejection),
    }
}

/// Whether there is a queue of that name, which is in lower case.
pub(crate) async fn is_queue(broker: &Broker, name: &str) -> Result<bool, Rejection> {
    match entity_named(name).filter(|_| is_queue_name(name)) {
        Some(queue) => is_there(broker, queue).await,
        None => Ok(false),
    }
}
