//! Looks up whether an entity exists.

use kew_broker::{Broker, Rejection};
use kew_engine::bus::{BusCommand, BusRefusal};
use kew_engine::{EntityName, Refusal};

use crate::ground::address::{entity_named, is_queue_name};
use crate::ground::submit::Submitted;

/// Whether a queue or sub-queue of that name exists.
pub(crate) async fn is_there(broker: &Broker, entity: EntityName) -> Result<bool, Rejection> {
    let read = BusCommand::ReadQueue { queue: entity };
    match Submitted::new(broker, read).answer().await {
        Ok(_) => Ok(true),
        Err(Rejection::Refused(Refusal::Bus(BusRefusal::QueueNotFound { .. }))) => Ok(false),
        Err(rejection) => Err(rejection),
    }
}

/// Whether a queue of that name, in lower case, exists.
pub(crate) async fn is_queue(broker: &Broker, name: &str) -> Result<bool, Rejection> {
    match entity_named(name).filter(|_| is_queue_name(name)) {
        Some(queue) => is_there(broker, queue).await,
        None => Ok(false),
    }
}
