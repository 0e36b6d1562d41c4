//! `kew queue show`: one queue, or the service.

use std::collections::BTreeMap;
use std::time::SystemTime;

use kew_client::QueueMessage;
use serde::Serialize;

use super::client::Client;
use super::failure::Failure;
use super::note;
use super::output::{Output, printable, rfc3339};
use super::progress::Progress;
use super::queues::{count_of, pairs};
use crate::queue_args::{CommonArgs, ShowArgs};

#[derive(Serialize)]
struct QueueReport<'a> {
    queue: &'a str,
    approximate_message_count: u64,
    metadata: BTreeMap<&'a str, &'a str>,
    /// The message that a receiver would get next; `None` if all are hidden.
    next_message: Option<NextReport<'a>>,
}

#[derive(Serialize)]
struct NextReport<'a> {
    id: &'a str,
    inserted: String,
    expires: String,
    age_seconds: u64,
    dequeue_count: u64,
}

#[derive(Serialize)]
struct ServiceReport<'a> {
    endpoint: &'a str,
    queues: u64,
    approximate_message_count: u64,
    /// `None` if the service has no second copy, or this credential has no right to read it.
    geo_replication: Option<ReplicationReport>,
}

#[derive(Serialize)]
struct ReplicationReport {
    status: String,
    last_sync: Option<String>,
}

pub(super) fn show(
    client: &Client,
    args: &ShowArgs,
    common: &CommonArgs,
    output: &mut Output,
) -> Result<(), Failure> {
    match &args.name {
        Some(name) => of_queue(client, name, output),
        None => of_service(client, common, output),
    }
}

fn of_queue(client: &Client, queue: &str, output: &mut Output) -> Result<(), Failure> {
    let properties = client.ask(|it| it.queue_properties(queue))?;
    let next = client.ask(|it| it.peek(queue, 1))?.pop();
    if output.json {
        return Ok(output.object(&QueueReport {
            queue,
            approximate_message_count: properties.approximate_message_count,
            metadata: pairs(&properties.metadata),
            next_message: next.as_ref().map(|message| NextReport {
                id: &message.id,
                inserted: rfc3339(message.inserted),
                expires: rfc3339(message.expires),
                age_seconds: age_seconds(message),
                dequeue_count: message.dequeue_count,
            }),
        })?);
    }
    output.line(&format!("queue     {queue}"))?;
    let count = properties.approximate_message_count;
    output.line(&format!("messages  {count}, hidden ones included"))?;
    for (name, value) in &properties.metadata {
        let pair = format!("{name}={value}");
        output.line(&format!("metadata  {}", printable(&pair)))?;
    }
    let next = match &next {
        Some(message) => format!(
            "put {} s ago, received {} times, id {}",
            age_seconds(message),
            message.dequeue_count,
            printable(&message.id)
        ),
        None => "none is visible".to_owned(),
    };
    Ok(output.line(&format!("next      {next}"))?)
}

/// How long ago the message was put, by this machine's clock.
fn age_seconds(message: &QueueMessage) -> u64 {
    SystemTime::now()
        .duration_since(message.inserted)
        .map_or(0, |age| age.as_secs())
}

fn of_service(client: &Client, common: &CommonArgs, output: &mut Output) -> Result<(), Failure> {
    let progress = Progress::new(common.progress, "queues counted");
    let (mut queues, mut messages) = (0_u64, 0_u64);
    for page in client.queues("", false) {
        for queue in page? {
            if let Some(count) = count_of(client, &queue.name)? {
                queues += 1;
                messages = messages.saturating_add(count);
            }
            progress.advance();
        }
    }
    drop(progress);
    let replication = match client.ask(|it| it.service_stats()) {
        Ok(stats) => Some(ReplicationReport {
            status: stats.status,
            last_sync: stats.last_sync.map(rfc3339),
        }),
        Err(error) => {
            if !output.json {
                note(&format!("cannot read the geo-replication status: {error}"));
            }
            None
        }
    };
    if output.json {
        return Ok(output.object(&ServiceReport {
            endpoint: client.url(),
            queues,
            approximate_message_count: messages,
            geo_replication: replication,
        })?);
    }
    output.line(&format!("endpoint  {}", printable(client.url())))?;
    output.line(&format!("queues    {queues}"))?;
    output.line(&format!("messages  {messages}, hidden ones included"))?;
    if let Some(replication) = replication {
        let since = replication.last_sync.unwrap_or_else(|| "unknown".into());
        let status = printable(&replication.status).into_owned();
        output.line(&format!("geo       {status}, last sync {since}"))?;
    }
    Ok(())
}
