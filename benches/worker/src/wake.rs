//! The time from an announcement to an idle listener until its handler begins.

use std::time::Duration;

use anyhow::{Context as _, Result};
use bytes::Bytes;
use kew_client::{Message, PutOptions};
use kew_worker::{
    Announce as _, Announcement, BusAnnouncements, BusAnnouncer, BusSource, Delivery, IdleBackOff,
    Listener, ListenerBuilder, LocalPush, QueueSource, Raw, Source, Stop, handler_fn,
};
use queue_load::percentile;
use serde::Serialize;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};

use crate::options::{Push, Service, Target, Wake};
use crate::target::QUEUE;

const WAKE_TIMEOUT: Duration = Duration::from_secs(30);

/// How long a look into an empty queue of Service Bus takes.
const LOOK: Duration = Duration::from_millis(150);

const PREFIX: &str = "bench-push-";

/// The printed result.
#[derive(Debug, Serialize)]
pub(crate) struct Outcome {
    count: usize,
    p50_ms: f64,
    p90_ms: f64,
    p99_ms: f64,
    max_ms: f64,
}

/// Announces to a listener that has no task, again and again.
pub(crate) async fn run(target: &Target, options: &Wake) -> Result<Outcome> {
    match options.service {
        Service::Queue => {
            let client = target.queue_client(64)?;
            client.create_queue(QUEUE, &[]).await?;
            let source = QueueSource::new(client.clone(), "bench-account", QUEUE);
            let put = async || {
                client.put(QUEUE, "work", PutOptions::default()).await?;
                Ok(())
            };
            wake(target, options, source, put).await
        }
        Service::Bus => {
            let client = target.bus_client()?;
            let sender = client.sender(QUEUE).await?;
            let source = BusSource::new(client, "bench-namespace", QUEUE);
            let source = source.admin(target.bus_admin()?);
            let put = async || Ok(sender.send(&Message::new("work")).await?);
            wake(target, options, source, put).await
        }
    }
}

/// Who announces.
enum Announcer {
    Local(LocalPush),
    Bus(BusAnnouncer),
}

impl Announcer {
    async fn announce(&self, announcement: &Announcement) -> Result<()> {
        match self {
            Self::Local(it) => it.announce(announcement).await?,
            Self::Bus(it) => it.announce(announcement).await?,
        }
        Ok(())
    }
}

async fn wake<S: Source>(
    target: &Target,
    options: &Wake,
    source: S,
    put: impl AsyncFn() -> Result<()>,
) -> Result<Outcome> {
    let announcement = Announcement::new(source.name(), "bench");
    let (began, mut begins) = mpsc::unbounded_channel();
    let handler = handler_fn(move |_: Delivery<Bytes, S::Lease>| {
        let _ = began.send(Instant::now());
        async { Ok(()) }
    });
    // Tasks end at their first empty look, so that each announcement meets a listener without a task. A look into a
    // queue of Service Bus takes as long as the sleep, in which a message must arrive.
    let ends_at_once = IdleBackOff {
        minimum: LOOK,
        maximum: LOOK,
    };
    let builder = Listener::builder(source, Raw)
        .subscribe(handler)
        .idle(ends_at_once);
    let (builder, announcer) = with_push(target, options.push, builder)?;
    let listener = builder.build();
    listener.start(1)?;

    let mut took_ms = Vec::new();
    for _ in 0..options.count {
        timeout(WAKE_TIMEOUT, until_idle(&listener))
            .await
            .context("the listener did not become idle")?;
        put().await?;
        let announced = Instant::now();
        announcer.announce(&announcement).await?;
        let begun = timeout(WAKE_TIMEOUT, begins.recv()).await;
        let begun = begun.context("the listener did not wake up")?;
        let begun = begun.context("the handler is gone")?;
        took_ms.push((begun - announced).as_secs_f64() * 1e3);
    }
    listener.stop(Stop::default()).await;
    took_ms.sort_by(f64::total_cmp);
    let rank = |share| percentile(&took_ms, share);
    Ok(Outcome {
        count: took_ms.len(),
        p50_ms: rank(0.5),
        p90_ms: rank(0.9),
        p99_ms: rank(0.99),
        max_ms: rank(1.0),
    })
}

fn with_push<S: Source>(
    target: &Target,
    push: Push,
    builder: ListenerBuilder<Bytes, S>,
) -> Result<(ListenerBuilder<Bytes, S>, Announcer)> {
    Ok(match push {
        Push::Local => {
            let push = LocalPush::new();
            (builder.push(push.subscribe()), Announcer::Local(push))
        }
        Push::Bus => {
            let (client, admin) = (target.bus_client()?, target.bus_admin()?);
            let announcer = BusAnnouncer::new(target.bus_client()?, admin.clone(), PREFIX);
            let queue = format!("{PREFIX}{}", std::process::id());
            let heard = BusAnnouncements::new(client, Some(admin), &queue);
            (builder.push(heard), Announcer::Bus(announcer))
        }
    })
}

/// Waits until no task runs and no message is held. The last task ends only when push works.
async fn until_idle<S: Source>(listener: &Listener<Bytes, S>) {
    loop {
        let state = listener.state();
        if state.active_tasks == 0 && state.in_flight == 0 {
            return;
        }
        sleep(Duration::from_millis(1)).await;
    }
}
