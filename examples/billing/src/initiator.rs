//! Splits packages into work items.
//!
//! A package is deleted after all of its items are in the queue. An initiator that dies before has sent some of them;
//! the next one sends all again, and the archive takes each part once.

use anyhow::Result;
use kew_worker::{AnnounceWhen, Delivery, Failure, Handler, QueueLease};

use crate::listen::{Tasks, listener, run};
use crate::message::{Item, Package};
use crate::place::{Announcer, ClaimSender, ITEMS, PACKAGES, Place};

/// Large packages need memory, so few at once.
const TASKS: Tasks = Tasks {
    tasks_max: 2,
    handlers_max: 2,
};

struct Initiator {
    items: ClaimSender<Item>,
    announcer: Announcer,
}

impl Handler<Package, QueueLease> for Initiator {
    async fn handle(&self, delivery: Delivery<Package, QueueLease>) -> Result<(), Failure> {
        let items = delivery.message().split();
        let when = AnnounceWhen::First;
        self.items
            .send_package(&items, &self.announcer, when)
            .await?;
        Ok(())
    }
}

/// Runs until the program is asked to stop.
pub async fn serve(place: &Place) -> Result<()> {
    let initiator = Initiator {
        items: place.sender(ITEMS, "initiator")?,
        announcer: place.announcer(),
    };
    run(
        place,
        "initiator",
        &listener(place, PACKAGES, TASKS, initiator)?,
    )
    .await
}
