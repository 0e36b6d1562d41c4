//! The cost of many idle things: connections, queues.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use bus_load::{Client, message};
use kew_amqp::LinkId;
use queue_load::Usage;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::Serialize;
use tokio::task::JoinSet;

use crate::amqp10::{is_accepted, send};
use crate::client::{connect, receiver};
use crate::options::{Entities, Idle, Idling, Target};
use crate::report::round;

/// How many connections are opened at a time.
const OPENING_MAX: usize = 64;

/// Files that the load generator itself may open, besides connections.
const OWN_FILES_MAX: u64 = 64;

/// The printed result.
#[derive(Debug, Serialize)]
pub(crate) struct Outcome {
    mode: &'static str,
    count: u32,
    /// The time to create them all.
    seconds: f64,
    server_rss_mib_before: Option<f64>,
    server_rss_mib: Option<f64>,
    /// The memory that each has added to the server.
    kib_each: Option<f64>,
    /// The server's processor use while idle, in cores.
    idle_cores: Option<f64>,
}

impl Outcome {
    fn new(mode: &'static str, count: u32, began: Instant, readings: [Option<Usage>; 2]) -> Self {
        let [before, after] = readings.map(|usage| usage.map(|usage| usage.resident_mib));
        let added = before.zip(after).map(|(before, after)| after - before);
        Self {
            mode,
            count,
            seconds: round(began.elapsed().as_secs_f64()),
            server_rss_mib_before: before.map(round),
            server_rss_mib: after.map(round),
            kib_each: added.map(|mib| round(mib * 1024.0 / f64::from(count))),
            idle_cores: None,
        }
    }
}

/// Opens connections, holds them, and checks that all still exist.
pub(crate) async fn idle(target: &Target, options: &Idle) -> Result<Outcome> {
    let (files_max, needed) = (raise_open_files(), u64::from(options.count) + OWN_FILES_MAX);
    if files_max < needed {
        bail!(
            "{} connections need {needed} open files, and this process may have {files_max} (ulimit -Hn)",
            options.count
        );
    }
    let usage = || target.pid.and_then(Usage::of);
    let (before, began) = (usage(), Instant::now());
    let mut opening = JoinSet::new();
    let mut idlers = Vec::new();
    for number in 0..options.count {
        let (target, options) = (target.clone(), options.clone());
        opening.spawn(async move {
            let opened = open(&target, &options).await;
            opened.with_context(|| format!("connection {number} of {}", options.count))
        });
        if opening.len() == OPENING_MAX {
            idlers.extend(opening.join_next().await.transpose()?.transpose()?);
        }
    }
    while let Some(opened) = opening.join_next().await {
        idlers.push(opened??);
    }
    let opened = usage();
    let mut outcome = Outcome::new("idle-connections", options.count, began, [before, opened]);
    tokio::time::sleep(Duration::from_secs_f64(options.seconds)).await;
    if let (Some(before), Some(after)) = (opened, usage()) {
        let cpu_seconds = after.cpu_seconds - before.cpu_seconds;
        outcome.idle_cores = Some(round(cpu_seconds / options.seconds.max(1e-9)));
    }
    for (number, client) in idlers.iter_mut().enumerate() {
        // Reads events that have already arrived, without waiting.
        let mut event = std::pin::pin!(client.event());
        let looked = std::future::poll_fn(|context| {
            std::task::Poll::Ready(match event.as_mut().poll(context) {
                std::task::Poll::Ready(Err(error)) => Err(error),
                _ => Ok(()),
            })
        });
        looked
            .await
            .with_context(|| format!("connection {number} was lost"))?;
    }
    Ok(outcome)
}

/// Raises the limit of open files as far as the process may, and returns it.
fn raise_open_files() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    let current = match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum,
        Err(_) => limit.current,
    };
    current.unwrap_or(u64::MAX)
}

async fn open(target: &Target, options: &Idle) -> Result<Client> {
    let mut client = connect(target).await?;
    if options.state == Idling::Receiving {
        let link = receiver(&mut client, &options.queue, target.settles).await?;
        client.connection.grant(link, 1);
        // The grant is written.
        client.exchange().await?;
    }
    Ok(client)
}

/// The name of a queue of many.
pub(crate) fn entity(number: u32) -> String {
    format!("entity-{number:05}")
}

/// Sends a message to each of many queues.
pub(crate) async fn entities(target: &Target, options: &Entities) -> Result<Outcome> {
    let usage = || target.pid.and_then(Usage::of);
    let (before, began) = (usage(), Instant::now());
    let mut client = connect(target).await?;
    let body = vec![b'x'; options.size as usize];
    for number in 0..options.count {
        let link = client.sender(&entity(number)).await?;
        let sent = send_one(&mut client, link, u64::from(number), &body).await;
        sent.with_context(|| format!("queue {number} of {}", options.count))?;
        client.detach(link).await?;
    }
    Ok(Outcome::new(
        "entities",
        options.count,
        began,
        [before, usage()],
    ))
}

async fn send_one(client: &mut Client, link: LinkId, number: u64, body: &[u8]) -> Result<()> {
    while !client.connection.can_send(link) {
        client.event().await?;
    }
    send(client, link, number, message(body, number, None))?;
    while !is_accepted(&client.event().await?)? {}
    Ok(())
}
