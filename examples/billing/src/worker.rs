//! Charges the transactions of work items.
//!
//! An item is deleted after its result is in the queue. A worker that dies in between leaves an item that is charged
//! again, with the same result.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Result;
use kew_worker::{Delivery, Failure, Handler, QueueLease, Target as _};
use tokio::time::sleep;

use crate::listen::{PacedAnnouncer, Tasks, listener, metrics_page, run};
use crate::message::{Charged, Item};
use crate::place::{ClaimSender, ITEMS, Place, RESULTS};

struct Worker {
    results: ClaimSender<Charged>,
    announcer: PacedAnnouncer,
    pause: Duration,
}

impl Handler<Item, QueueLease> for Worker {
    async fn handle(&self, delivery: Delivery<Item, QueueLease>) -> Result<(), Failure> {
        let charged = delivery.message().charge();
        // No other try would charge it.
        let charged = charged.map_err(|error| Failure::from(error).permanent("NoTariff"))?;
        sleep(self.pause).await;
        self.results.send(&charged).await?;
        self.announcer.announce();
        Ok(())
    }
}

/// Runs until the program is asked to stop. `pause` is the time that an item takes beside its computation, as a call of
/// another service would.
/// `metrics` is where its metrics page is, if it has one: the scaling agent reads it.
pub async fn serve(
    place: &Place,
    tasks_max: u32,
    pause: Duration,
    metrics: Option<SocketAddr>,
) -> Result<()> {
    let results = place.sender(RESULTS, "worker")?;
    let name = results.target().name();
    let worker = Worker {
        announcer: PacedAnnouncer::start(place.announcer(), name, "worker"),
        results,
        pause,
    };
    let tasks = Tasks {
        tasks_max,
        handlers_max: tasks_max,
    };
    let listener = listener(place, ITEMS, tasks, worker)?;
    match metrics {
        Some(address) => {
            tokio::select! {
                ran = run(place, "worker", &listener) => ran,
                served = metrics_page(address, &listener) => served,
            }
        }
        None => run(place, "worker", &listener).await,
    }
}
