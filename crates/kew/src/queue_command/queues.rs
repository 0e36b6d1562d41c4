//! `kew queue list`, `create`, `delete` and `purge`.

use std::collections::BTreeMap;
use std::time::Duration;

use kew_client::ListedQueue;
use serde::Serialize;

use super::client::{Client, ServiceError};
use super::confirm;
use super::failure::Failure;
use super::output::{Align, Output, table};
use super::progress::Progress;
use crate::queue_args::{CommonArgs, CreateArgs, DeleteArgs, ListArgs, PurgeArgs, When};

/// How many times in a row a purge may time out without deleting anything.
const FRUITLESS_PURGES_MAX: u32 = 10;

/// How long to pause after the service timed out.
const PURGE_PAUSE: Duration = Duration::from_millis(200);

#[derive(Serialize)]
struct QueueReport<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    approximate_message_count: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<BTreeMap<&'a str, &'a str>>,
}

#[derive(Serialize)]
struct CreateReport<'a> {
    queue: &'a str,
    created: bool,
}

#[derive(Serialize)]
struct DeleteReport<'a> {
    queue: &'a str,
    deleted: bool,
}

#[derive(Serialize)]
struct PurgeReport<'a> {
    queue: &'a str,
    cleared: bool,
    messages_before: u64,
}

pub(super) fn list(
    client: &Client,
    args: &ListArgs,
    common: &CommonArgs,
    output: &mut Output,
) -> Result<(), Failure> {
    let when = match args.counts {
        true => common.progress,
        false => When::Never,
    };
    let progress = Progress::new(when, "queues counted");
    if output.json {
        return output.array(|array| {
            for page in client.queues(&args.prefix, args.metadata) {
                for (queue, count) in counted(client, page?, args, &progress)? {
                    array.push(&QueueReport {
                        name: &queue.name,
                        approximate_message_count: count,
                        metadata: args.metadata.then(|| pairs(&queue.metadata)),
                    })?;
                }
            }
            Ok(())
        });
    }
    let mut is_first = true;
    for page in client.queues(&args.prefix, args.metadata) {
        let queues = counted(client, page?, args, &progress)?;
        let lines = queue_table(&queues, args);
        // A list may never end, so each page is aligned separately.
        progress.aside(|| {
            for line in lines.iter().skip(usize::from(!is_first)) {
                output.line(line)?;
            }
            output.flush()
        })?;
        is_first = false;
    }
    Ok(())
}

/// The queues with their counts, if these are requested. A queue that was deleted meanwhile is left
/// out.
fn counted(
    client: &Client,
    queues: Vec<ListedQueue>,
    args: &ListArgs,
    progress: &Progress,
) -> Result<Vec<(ListedQueue, Option<u64>)>, ServiceError> {
    if !args.counts {
        return Ok(queues.into_iter().map(|queue| (queue, None)).collect());
    }
    let mut counted = Vec::with_capacity(queues.len());
    for queue in queues {
        if let Some(count) = count_of(client, &queue.name)? {
            counted.push((queue, Some(count)));
        }
        progress.advance();
    }
    Ok(counted)
}

/// How many messages a queue has; `None` if it does not exist.
pub(super) fn count_of(client: &Client, queue: &str) -> Result<Option<u64>, ServiceError> {
    match client.ask(|it| it.queue_properties(queue)) {
        Ok(properties) => Ok(Some(properties.approximate_message_count)),
        Err(error) if error.code() == Some("QueueNotFound") => Ok(None),
        Err(error) => Err(error),
    }
}

fn queue_table(queues: &[(ListedQueue, Option<u64>)], args: &ListArgs) -> Vec<String> {
    let mut columns = vec![("NAME", Align::Left)];
    if args.counts {
        columns.push(("MESSAGES", Align::Right));
    }
    if args.metadata {
        columns.push(("METADATA", Align::Left));
    }
    let rows: Vec<Vec<String>> = queues
        .iter()
        .map(|(queue, count)| {
            let mut row = vec![queue.name.clone()];
            row.extend(count.map(|count| count.to_string()));
            if args.metadata {
                let pairs = queue.metadata.iter();
                let pairs: Vec<_> = pairs
                    .map(|(name, value)| format!("{name}={value}"))
                    .collect();
                row.push(pairs.join(" "));
            }
            row
        })
        .collect();
    table(&columns, &rows)
}

pub(super) fn pairs(metadata: &[(String, String)]) -> BTreeMap<&str, &str> {
    metadata
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect()
}

pub(super) fn create(
    client: &Client,
    args: &CreateArgs,
    output: &mut Output,
) -> Result<(), Failure> {
    let created = match client.ask(|it| it.create_queue(&args.name, &args.meta)) {
        Ok(created) => created,
        Err(error) if args.if_not_exists && error.code() == Some("QueueAlreadyExists") => false,
        Err(error) => return Err(error.into()),
    };
    if !created && !args.if_not_exists {
        return Err(Failure::Refused {
            message: format!("queue {} already exists", args.name),
            code: Some("QueueAlreadyExists"),
        });
    }
    if output.json {
        return Ok(output.object(&CreateReport {
            queue: &args.name,
            created,
        })?);
    }
    let what = if created {
        "created"
    } else {
        "already exists:"
    };
    Ok(output.line(&format!("{what} {}", args.name))?)
}

pub(super) fn delete(
    client: &Client,
    args: &DeleteArgs,
    output: &mut Output,
) -> Result<(), Failure> {
    if !args.yes.yes
        && let Some(count @ 1..) = count_of(client, &args.name)?
    {
        confirm(&format!(
            "Delete queue {} with its {count} messages?",
            args.name
        ))?;
    }
    let deleted = match client.ask(|it| it.delete_queue(&args.name)) {
        Ok(()) => true,
        Err(error) if args.if_exists && error.code() == Some("QueueNotFound") => false,
        Err(error) => return Err(error.into()),
    };
    if output.json {
        return Ok(output.object(&DeleteReport {
            queue: &args.name,
            deleted,
        })?);
    }
    let what = if deleted { "deleted" } else { "did not exist:" };
    Ok(output.line(&format!("{what} {}", args.name))?)
}

pub(super) fn purge(
    client: &Client,
    args: &PurgeArgs,
    common: &CommonArgs,
    output: &mut Output,
) -> Result<(), Failure> {
    let before = client.ask(|it| it.queue_properties(&args.name))?;
    let before = before.approximate_message_count;
    if before > 0 && !args.yes.yes {
        confirm(&format!(
            "Delete all {before} messages of queue {}?",
            args.name
        ))?;
    }
    clear_until_done(client, &args.name, before, common)?;
    if output.json {
        return Ok(output.object(&PurgeReport {
            queue: &args.name,
            cleared: true,
            messages_before: before,
        })?);
    }
    let queue = &args.name;
    Ok(output.line(&format!("cleared {queue}, which had {before} messages"))?)
}

/// Clears again as long as the service times out, because each attempt deletes some messages.
fn clear_until_done(
    client: &Client,
    queue: &str,
    before: u64,
    common: &CommonArgs,
) -> Result<(), Failure> {
    let progress = Progress::new(common.progress, "deleted");
    let (mut left, mut fruitless) = (before, 0);
    loop {
        let error = match client.ask(|it| it.clear_once(queue)) {
            Ok(()) => {
                progress.set(before);
                return Ok(());
            }
            Err(error) if error.code() == Some("OperationTimedOut") => error,
            Err(error) => return Err(error.into()),
        };
        let now = client.ask(|it| it.queue_properties(queue))?;
        let now = now.approximate_message_count;
        progress.set(before.saturating_sub(now));
        fruitless = if now < left { 0 } else { fruitless + 1 };
        if fruitless >= FRUITLESS_PURGES_MAX {
            return Err(Failure::from(error).after(format!("{now} messages are left")));
        }
        left = now;
        std::thread::sleep(PURGE_PAUSE);
    }
}
