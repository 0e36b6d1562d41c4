//! Many sessions of a queue, drained by a few receivers that each take the next free one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use bus_load::{Client, body_of, message, receiver_attach};
use kew_amqp::codec::{Map, Symbol, Value};
use kew_amqp::message::Message;
use kew_amqp::performative::{Attach, DeliveryState};
use kew_amqp::{Event, LinkId};
use serde::Serialize;
use tokio::task::JoinSet;

use crate::amqp10::{is_accepted, send};
use crate::client::connect;
use crate::ends::{stamp_of, stamped};
use crate::options::{Sessions, Target};
use crate::report::round;

/// The filter that selects a session: null selects the next free session.
const SESSION_FILTER: &str = "com.microsoft:session-filter";
/// How many sends may wait for their settlement while sessions are filled.
const IN_FLIGHT_MAX: usize = 200;

/// The printed result.
#[derive(Debug, Serialize)]
pub(crate) struct Outcome {
    mode: &'static str,
    sessions: u32,
    messages: u64,
    receivers: u32,
    fill_seconds: f64,
    drain_seconds: f64,
    sessions_per_second: f64,
    /// The longest time for which a receiver got nothing although there were messages for it.
    longest_wait_ms: u64,
}

/// Fills the sessions and drains them.
pub(crate) async fn run(target: &Target, options: &Sessions) -> Result<Outcome> {
    let began = Instant::now();
    fill(target, options)
        .await
        .context("cannot fill sessions")?;
    let fill_seconds = began.elapsed().as_secs_f64();
    let messages = u64::from(options.count) * u64::from(options.messages);
    let drain = Arc::new(Drain {
        target: target.clone(),
        options: options.clone(),
        accepted: AtomicU32::new(0),
        completed: AtomicU64::new(0),
        longest_wait_ms: AtomicU64::new(0),
    });
    let began = Instant::now();
    let mut receivers = JoinSet::new();
    for number in 0..options.receivers {
        let drain = Arc::clone(&drain);
        receivers.spawn(async move {
            let drained = drain.receive().await;
            drained.with_context(|| format!("receiver {number}"))
        });
    }
    // When the last session is taken, its receiver finishes it, and the others stop waiting at the
    // end.
    while drain.completed.load(Ordering::Relaxed) < messages {
        let ended = receivers.join_next().await;
        ended.context("all receivers have ended too early")???;
    }
    let drain_seconds = began.elapsed().as_secs_f64();
    Ok(Outcome {
        mode: "sessions",
        sessions: options.count,
        messages,
        receivers: options.receivers,
        fill_seconds: round(fill_seconds),
        drain_seconds: round(drain_seconds),
        sessions_per_second: round(f64::from(options.count) / drain_seconds),
        longest_wait_ms: drain.longest_wait_ms.load(Ordering::Relaxed),
    })
}

/// Sends to all sessions in turn, so that the messages of each are spread over the queue.
async fn fill(target: &Target, options: &Sessions) -> Result<()> {
    let mut client = connect(target).await?;
    let link = client.sender(&options.queue).await?;
    let mut unsettled = 0;
    for place in 0..u64::from(options.messages) {
        for session in 0..options.count {
            while unsettled >= IN_FLIGHT_MAX || !client.connection.can_send(link) {
                unsettled -= usize::from(is_accepted(&client.event().await?)?);
            }
            let number = place * u64::from(options.count) + u64::from(session);
            let body = stamped(place, options.size);
            let message = message(&body, number, Some(&format!("session-{session}")));
            send(&mut client, link, number, message)?;
            unsettled += 1;
        }
    }
    while unsettled > 0 {
        unsettled -= usize::from(is_accepted(&client.event().await?)?);
    }
    Ok(())
}

struct Drain {
    target: Target,
    options: Sessions,
    /// Sessions that were taken.
    accepted: AtomicU32,
    completed: AtomicU64,
    longest_wait_ms: AtomicU64,
}

impl Drain {
    /// Drains sessions until none is left.
    async fn receive(&self) -> Result<()> {
        let mut client = connect(&self.target).await?;
        while self.accepted.fetch_add(1, Ordering::Relaxed) < self.options.count {
            let attach = self.waited(client.attach(session_attach(&self.options.queue)));
            let (link, answer) = attach.await.context("no session came")?;
            let session = answer.source.and_then(|source| source.filter);
            let session =
                session.and_then(|filter| filter.get(SESSION_FILTER).map(|it| it.value()));
            self.drain(&mut client, link)
                .await
                .with_context(|| format!("session {session:?}"))?;
            client.detach(link).await?;
        }
        Ok(())
    }

    /// Receives and completes the messages of a session.
    async fn drain(&self, client: &mut Client, link: LinkId) -> Result<()> {
        client.connection.grant(link, self.options.messages);
        let (mut received, mut completed) = (0_u32, 0);
        while completed < self.options.messages {
            let waited = self.waited(client.event()).await;
            let event =
                waited.with_context(|| format!("{received} arrived, {completed} completed"))?;
            if let Event::Delivery(delivery) = event {
                let place = stamp_of(&body_of(&Message::scan(delivery.payload)?)?)?;
                if place != u64::from(received) {
                    bail!("message {place} arrived instead of {received}");
                }
                received += 1;
                let accepted = DeliveryState::ACCEPTED;
                client.connection.update(delivery.delivery, accepted);
            } else if is_accepted(&event)? {
                completed += 1;
                self.completed.fetch_add(1, Ordering::Relaxed);
            }
        }
        Ok(())
    }

    /// Waits, but fails after the time limit.
    async fn waited<T>(
        &self,
        awaited: impl Future<Output = Result<T, bus_load::Error>>,
    ) -> Result<T> {
        let began = Instant::now();
        let limit = Duration::from_secs_f64(self.options.stall);
        let came = tokio::time::timeout(limit, awaited).await;
        let ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.longest_wait_ms.fetch_max(ms, Ordering::Relaxed);
        Ok(came.with_context(|| format!("stalled: nothing arrived for {limit:?}"))??)
    }
}

/// An attach for the next free session.
fn session_attach(queue: &str) -> Attach {
    let mut attach = receiver_attach(queue);
    if let Some(source) = &mut attach.source {
        source.filter = Some(Map::build(|map| {
            map.entry(&Symbol::from_static(SESSION_FILTER), &Value::Null);
        }));
    }
    attach
}
