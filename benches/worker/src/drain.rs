//! Messages a second of a listener with an empty handler, or of a loop written by hand.

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use bytes::Bytes;
use kew_worker::{BusSource, Delivery, Listener, QueueSource, Raw, Source, Stop, handler_fn};
use queue_load::Usage;
use serde::Serialize;
use tokio::time::{sleep, timeout};

use crate::options::{Drain, Drainer, Service, Target};
use crate::target::QUEUE;
use crate::{by_hand, fill};

/// How exact the times are at which the measurement begins and ends.
const TICK: Duration = Duration::from_millis(1);

const DRAIN_TIMEOUT: Duration = Duration::from_secs(120);

/// The printed result.
#[derive(Debug, Serialize)]
pub(crate) struct Outcome {
    messages: u64,
    seconds: f64,
    rate: f64,
    /// Processor time of the client for each message, in microseconds.
    client_cpu_us: f64,
}

/// Fills the queue, drains it, and measures the second of these.
pub(crate) async fn run(target: &Target, options: &Drain) -> Result<Outcome> {
    fill::fill(target, options.service, options.count, options.size).await?;
    let drained = timeout(DRAIN_TIMEOUT, async {
        match (options.by, options.service) {
            (Drainer::Loop, service) => by_loop(target, options, service).await,
            (Drainer::Listener, Service::Queue) => {
                let client = target.queue_client(options.concurrency as usize)?;
                let source = QueueSource::new(client, "bench-account", QUEUE);
                by_listener(source, options).await
            }
            (Drainer::Listener, Service::Bus) => {
                let source = BusSource::new(target.bus_client()?, "bench-namespace", QUEUE);
                by_listener(source, options).await
            }
        }
    });
    drained
        .await
        .with_context(|| format!("the queue was not empty after {DRAIN_TIMEOUT:?}"))?
}

async fn by_loop(target: &Target, options: &Drain, service: Service) -> Result<Outcome> {
    let completed = Rc::new(Cell::new(0));
    let drain = async {
        match service {
            Service::Queue => by_hand::drain_queue(target, options, completed.clone()).await,
            Service::Bus => by_hand::drain_bus(target, options, completed.clone()).await,
        }
    };
    let measured = async { Ok(measure(options.count, || completed.get()).await) };
    let ((), outcome) = tokio::try_join!(drain, measured)?;
    ended(options, completed.get())?;
    Ok(outcome)
}

async fn by_listener<S: Source>(source: S, options: &Drain) -> Result<Outcome> {
    let handler = handler_fn(|_: Delivery<Bytes, S::Lease>| async { Ok(()) });
    let listener = Listener::builder(source, Raw)
        .subscribe(handler)
        .batch_size(options.batch)
        .handlers_max(options.concurrency * options.batch)
        .tasks_max(options.concurrency)
        .build();
    listener.start(options.concurrency)?;
    let outcome = measure(options.count, || listener.state().completed).await;
    while listener.state().completed < options.count {
        sleep(TICK).await;
    }
    listener.stop(Stop::default()).await;
    ended(options, listener.state().completed)?;
    Ok(outcome)
}

/// Measures from the end of the first tenth until the begin of the last.
async fn measure(count: u64, completed: impl Fn() -> u64) -> Outcome {
    let tenth = count / 10;
    let reach = async |goal| {
        while completed() < goal {
            sleep(TICK).await;
        }
        (
            completed(),
            Instant::now(),
            Usage::of(std::process::id()).map_or(f64::NAN, |it| it.cpu_seconds),
        )
    };
    let (first, began, cpu_before) = reach(tenth).await;
    let (last, ended, cpu_after) = reach(count - tenth).await;
    let (messages, seconds) = (last - first, (ended - began).as_secs_f64());
    let exact = as_f64(messages.max(1));
    Outcome {
        messages,
        seconds,
        rate: exact / seconds.max(1e-9),
        client_cpu_us: 1e6 * (cpu_after - cpu_before) / exact,
    }
}

fn ended(options: &Drain, completed: u64) -> Result<()> {
    if completed != options.count {
        bail!(
            "{completed} messages were completed, and {} were sent",
            options.count
        );
    }
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
pub(crate) fn as_f64(count: u64) -> f64 {
    count as f64
}
