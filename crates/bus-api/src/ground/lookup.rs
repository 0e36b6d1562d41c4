//! Looks up whether an entity exists.

use kew_broker::{Broker, Rejection};
use kew_engine::bus::{BusCommand, BusOutcome, BusRefusal, EntityKind};
use kew_engine::{EntityName, Outcome, Refusal};

use crate::ground::address::{entity_named, is_queue_name};
use crate::ground::submit::Submitted;

/// Whether an entity or sub-queue of that name exists.
pub(crate) async fn is_there(broker: &Broker, entity: EntityName) -> Result<bool, Rejection> {
    Ok(kind_of(broker, entity).await?.is_some())
}

/// What the entity of that name is, or what it is a sub-queue of, if it exists.
pub(crate) async fn kind_of(
    broker: &Broker,
    entity: EntityName,
) -> Result<Option<EntityKind>, Rejection> {
    let read = BusCommand::ReadQueue { queue: entity };
    match Submitted::new(broker, read).answer().await {
        Ok(answer) => Ok(match answer.outcome {
            Outcome::Bus(BusOutcome::Queue(view)) => Some(view.kind),
            _ => None,
        }),
        Err(Rejection::Refused(Refusal::Bus(BusRefusal::QueueNotFound { .. }))) => Ok(None),
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
