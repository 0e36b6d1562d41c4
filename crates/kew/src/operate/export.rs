//! `kew bus message export`: messages as JSON lines, with all their properties. They stay in the queue.

use std::fs::File;
use std::io::{BufWriter, Write};

use kew_client::Received;
use serde_json::{Map, Value as Json, json};

use super::browse::{Look, browse};
use super::filter::Filter;
use super::view::view_of;
use super::{Session, dead_letters};
use crate::bus_tool_args::ExportMessagesArgs;
use crate::portable::{Record, record_of};
use crate::queue_command::{Failure, note};
use crate::safe_json;

pub(super) fn export(it: &mut Session, args: &ExportMessagesArgs) -> Result<(), Failure> {
    let queue = match args.dead_letter {
        true => dead_letters(&args.queue),
        false => args.queue.clone(),
    };
    let filter = Filter::new(&args.filter)?;
    let mut file = match &args.output {
        None => None,
        Some(path) => {
            let file = File::create_new(path).map_err(|error| {
                Failure::Usage(format!("cannot write {}: {error}", path.display()))
            })?;
            Some(BufWriter::new(file))
        }
    };
    let Session { doors, output } = it;
    let mut count = 0;
    let browsed = browse(doors, &queue, &filter, |message| {
        let record = record(&queue, &message)?;
        match &mut file {
            Some(file) => {
                safe_json::write(&mut *file, &record)?;
                file.write_all(b"\n")?;
            }
            None => output.object(&record)?,
        }
        count += 1;
        Ok(match args.count.is_none_or(|wanted| count < wanted) {
            true => Look::On,
            false => Look::Enough,
        })
    });
    let exported = format!("{count} messages were exported before");
    browsed.map_err(|failure| failure.after(exported))?;
    let Some(file) = file else {
        return Ok(());
    };
    let written = file.into_inner().map_err(|error| error.into_error());
    written.and_then(|file| file.sync_all())?;
    if output.json {
        return Ok(output.object(&json!({"queue": queue, "exported": count}))?);
    }
    note(&format!("exported {count} messages of {queue}"));
    Ok(())
}

/// The record of a message that the service has shown.
pub(super) fn record(queue: &str, message: &Received) -> Result<Record, Failure> {
    let number = message.sequence_number().unwrap_or_default();
    record_of(queue, facts_of(message), message.raw()).map_err(|what| Failure::Refused {
        message: format!("message {number} of {queue} cannot be read: {what}"),
        code: None,
    })
}

/// What the service says of a message.
fn facts_of(message: &Received) -> Map<String, Json> {
    let view = json!(view_of(message, None).without_body());
    let facts = [
        "sequence_number",
        "enqueued_sequence_number",
        "state",
        "enqueued_at",
        "expires_at",
        "delivery_count",
        "dead_letter_source",
    ];
    let facts = facts.into_iter().filter_map(|name| {
        let value = view.get(name).filter(|value| !value.is_null())?;
        Some((name.to_owned(), value.clone()))
    });
    facts.collect()
}
