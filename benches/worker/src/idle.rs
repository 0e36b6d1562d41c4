//! The requests of a client that waits for messages of Queue Storage, as Kew counts them.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use bytes::Bytes;
use kew_worker::{Delivery, Listener, LocalPush, QueueLease, QueueSource, Raw, Stop, handler_fn};
use queue_load::Client;
use serde::Serialize;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use crate::drain::as_f64;
use crate::metrics::requests;
use crate::options::{Idle, Target, Waiter};

/// An empty queue that nothing else uses.
const EMPTY: &str = "bench-empty";

const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// The printed result.
#[derive(Debug, Serialize)]
pub(crate) struct Outcome {
    /// Requests until the listener had as few tasks as it keeps.
    until_idle: u64,
    /// Requests of the measurement.
    requests: u64,
    seconds: f64,
    /// What an hour costs that begins with all tasks.
    per_hour: f64,
}

/// Waits for messages that do not come.
pub(crate) async fn run(target: &Target, options: &Idle) -> Result<Outcome> {
    Client::new(target.endpoint())
        .create_queue(EMPTY, &[])
        .await?;
    let before = requests(target.queue_address).await?;
    match options.by {
        Waiter::Loop => {
            let loops = by_hand(target, options.tasks);
            // Its tasks never become fewer.
            sleep(Duration::from_secs(1)).await;
            let first = requests(target.queue_address).await?;
            let outcome = measure(target, options, first, first).await?;
            drop(loops);
            Ok(outcome)
        }
        Waiter::BackOff => listener(target, options, before, None).await,
        Waiter::Push => listener(target, options, before, Some(LocalPush::new())).await,
    }
}

/// One receive a second and task, on connections of the load generator's client.
fn by_hand(target: &Target, tasks: u32) -> JoinSet<Result<()>> {
    let endpoint = target.endpoint();
    let mut loops = JoinSet::new();
    for _ in 0..tasks {
        let mut client = Client::new(endpoint.clone());
        loops.spawn(async move {
            let mut seconds = interval(Duration::from_secs(1));
            seconds.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                seconds.tick().await;
                client.get(EMPTY, 1, 30).await?;
            }
        });
    }
    loops
}

async fn listener(
    target: &Target,
    options: &Idle,
    before: u64,
    push: Option<LocalPush>,
) -> Result<Outcome> {
    let client = target.queue_client(options.tasks as usize)?;
    let source = QueueSource::new(client, "bench-account", EMPTY);
    let handler = handler_fn(|_: Delivery<Bytes, QueueLease>| async { Ok(()) });
    let mut builder = Listener::builder(source, Raw)
        .subscribe(handler)
        .handlers_max(options.tasks);
    let mut kept_tasks = 1;
    if let Some(push) = &push {
        builder = builder.push(push.subscribe());
        kept_tasks = 0;
    }
    let listener = builder.build();
    listener.start(options.tasks)?;
    let becomes_idle = async {
        while listener.state().active_tasks > kept_tasks {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(IDLE_TIMEOUT, becomes_idle)
        .await
        .context("the listener kept its tasks")?;
    let first = requests(target.queue_address).await?;
    let outcome = measure(target, options, before, first).await?;
    listener.stop(Stop::default()).await;
    Ok(outcome)
}

async fn measure(target: &Target, options: &Idle, before: u64, first: u64) -> Result<Outcome> {
    let began = Instant::now();
    sleep(Duration::from_secs(options.seconds)).await;
    let last = requests(target.queue_address).await?;
    let seconds = began.elapsed().as_secs_f64();
    let (until_idle, requests) = (first - before, last - first);
    Ok(Outcome {
        until_idle,
        requests,
        seconds,
        per_hour: as_f64(until_idle) + as_f64(requests) * 3600.0 / seconds,
    })
}
