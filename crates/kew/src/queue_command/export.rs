//! `kew queue export`: messages as JSON lines.
//!
//! Queue Storage shows only its first messages without receiving them. So an export receives all messages, which hides
//! them for a while, and makes them visible again at the end. If it is killed, they become visible by themselves.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::time::Duration;

use kew_client::QueueMessage;
use serde_json::{Map, Value as Json, json};

use super::client::Client;
use super::failure::Failure;
use super::note;
use super::output::{Output, rfc3339};
use crate::portable::{Record, record_of_text};
use crate::queue_args::ExportArgs;
use crate::safe_json;

/// The most messages that one request returns.
pub(super) const GET_MAX: u32 = 32;

/// A longer life means that the message never expires: the service reports the year 9999.
const LIFE_MAX: Duration = Duration::from_hours(24 * 365 * 1000);

pub(super) fn export(
    client: &Client,
    args: &ExportArgs,
    output: &mut Output,
) -> Result<(), Failure> {
    let file = args.output.as_deref().map(|path| {
        let file = File::create_new(path);
        file.map_err(|error| Failure::Usage(format!("cannot write {}: {error}", path.display())))
    });
    let mut sink = Sink {
        file: file.transpose()?.map(BufWriter::new),
        output,
    };
    let mut hidden = Vec::new();
    let exported = export_all(client, args, &mut sink, &mut hidden);
    // Whatever happened, messages that stay are given back.
    let given_back = give_back(client, &args.name, &hidden);
    let count = exported?;
    given_back?;
    let is_file = sink.file.is_some();
    if output.json && is_file {
        return Ok(output.object(&json!({"queue": args.name, "exported": count}))?);
    }
    note(&format!("exported {count} messages of {}", args.name));
    Ok(())
}

/// Where records go.
struct Sink<'a> {
    file: Option<BufWriter<File>>,
    output: &'a mut Output,
}

impl Sink<'_> {
    fn write(&mut self, record: &Record) -> Result<(), Failure> {
        match &mut self.file {
            Some(file) => {
                safe_json::write(&mut *file, record)?;
                Ok(file.write_all(b"\n")?)
            }
            None => Ok(self.output.object(record)?),
        }
    }

    /// Has everything written where it goes, on the disk if that is a file.
    fn sync(&mut self) -> Result<(), Failure> {
        match &mut self.file {
            Some(file) => {
                file.flush()?;
                Ok(file.get_ref().sync_all()?)
            }
            None => Ok(self.output.flush()?),
        }
    }
}

/// A message that was received: its id and its receipt.
pub(super) type Hidden = (String, String);

fn export_all(
    client: &Client,
    args: &ExportArgs,
    sink: &mut Sink<'_>,
    hidden: &mut Vec<Hidden>,
) -> Result<u64, Failure> {
    let mut seen = BTreeSet::new();
    let mut count = 0;
    let partly = |failure: Failure, count: u64| {
        failure.after(format!("{count} messages were exported before"))
    };
    loop {
        let messages = client.ask(|it| it.get(&args.name, GET_MAX, Some(args.visibility)));
        let messages = messages.map_err(|error| partly(error.into(), count))?;
        if messages.is_empty() {
            sink.sync()?;
            return Ok(count);
        }
        let first = count;
        for message in &messages {
            let receipt = message.receipt.as_ref();
            let receipt = receipt.map_or_else(String::new, |receipt| receipt.value.clone());
            hidden.push((message.id.clone(), receipt));
            if !seen.insert(message.id.clone()) {
                let message =
                    "--visibility is shorter than the export: messages came again".to_owned();
                let failure = Failure::Refused {
                    message,
                    code: None,
                };
                return Err(partly(failure, count));
            }
            sink.write(&record(&args.name, message))?;
            count += 1;
        }
        if args.delete {
            // Only what is safe is deleted.
            sink.sync()?;
            for (id, receipt) in std::mem::take(hidden) {
                let deleted = client.ask(|it| it.delete_message(&args.name, &id, &receipt));
                deleted.map_err(|error| {
                    let failure = partly(error.into(), first);
                    failure.after(format!("message {id} was exported and not deleted"))
                })?;
            }
        }
    }
}

/// Makes messages visible again. Each is tried.
pub(super) fn give_back(client: &Client, queue: &str, hidden: &[Hidden]) -> Result<(), Failure> {
    let mut given_back = Ok(());
    for (id, receipt) in hidden {
        let updated = client.ask(|it| it.update(queue, id, receipt, 0, None));
        let updated = updated.map(drop).map_err(|error| {
            let failure = Failure::from(error);
            failure.after(format!(
                "message {id} was exported, and stays hidden for a while"
            ))
        });
        given_back = given_back.and(updated);
    }
    given_back
}

pub(super) fn record(queue: &str, message: &QueueMessage) -> Record {
    let life = message.expires.duration_since(message.inserted);
    let life = life.ok().filter(|&life| life < LIFE_MAX);
    let facts: Map<String, Json> = [
        ("message_id", json!(message.id)),
        ("inserted", json!(rfc3339(message.inserted))),
        ("expires", json!(rfc3339(message.expires))),
        (
            "dequeue_count",
            json!(message.dequeue_count.saturating_sub(1)),
        ),
    ]
    .into_iter()
    .map(|(name, value)| (name.to_owned(), value))
    .collect();
    record_of_text(queue, facts, &message.text, life)
}
