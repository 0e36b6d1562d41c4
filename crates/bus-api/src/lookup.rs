//! Whether an entity is there.

use kew_broker::Rejection;
use kew_engine::bus::{BusCommand, BusRefusal};
use kew_engine::{EntityName, Refusal};

use crate::address::{entity_named, is_queue_name};
use crate::api::Shared;
use crate::submit::Submitted;

impl Shared {
    /// Whether there is a queue or sub-queue of that name.
    pub(crate) async fn is_there(&self, entity: EntityName) -> Result<bool, Rejection> {
        let read = BusCommand::ReadQueue { queue: entity };
        match Submitted::new(&self.broker, read).answer().await {
            Ok(_) => Ok(true),
            Err(Rejection::Refused(Refusal::Bus(BusRefusal::QueueNotFound { .. }))) => Ok(false),
            Err(rejection) => Err(rejection),
        }
    }

    /// Whether there is a queue of that name, which is in lower case.
    pub(crate) async fn is_queue(&self, name: &str) -> Result<bool, Rejection> {
        match entity_named(name).filter(|_| is_queue_name(name)) {
            Some(queue) => self.is_there(queue).await,
            None => Ok(false),
        }
    }
}
