//! Collects results, and keeps them as files.
//!
//! A result is deleted after its charges are in the archive, which takes each part once.

use anyhow::Result;
use kew_worker::{Delivery, Failure, Handler, QueueLease};

use crate::archive::{Archive, Format};
use crate::listen::{Tasks, listener, run};
use crate::message::Charged;
use crate::place::{Place, RESULTS};

const TASKS: Tasks = Tasks {
    tasks_max: 8,
    handlers_max: 32,
};

struct Controller<F>(Archive<F>);

impl<F: Format> Handler<Charged, QueueLease> for Controller<F> {
    async fn handle(&self, delivery: Delivery<Charged, QueueLease>) -> Result<(), Failure> {
        let charged = delivery.message();
        if self.0.collect(charged).await? {
            tracing::info!(package = charged.part.package, "complete");
        }
        Ok(())
    }
}

/// Runs until the program is asked to stop.
pub async fn serve<F: Format>(place: &Place) -> Result<()> {
    let controller = Controller(place.archive::<F>().await?);
    run(
        place,
        "controller",
        &listener(place, RESULTS, TASKS, controller)?,
    )
    .await
}
