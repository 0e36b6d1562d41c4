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
    let (mut count, mut last, mut unreadable) = (0, None, 0_u64);
    let browsed = browse(doors, &queue, &filter, |message| {
        let record = match record(&queue, &message) {
            Ok(record) => record,
            Err(failure) => {
                unreadable += 1;
                note(&failure.message());
                return Ok(Look::On);
            }
        };
        match &mut file {
            Some(file) => {
                safe_json::write(&mut *file, &record)?;
                file.write_all(b"\n")?;
            }
            None => output.object(&record)?,
        }
        count += 1;
        last = message.sequence_number();
        Ok(match args.count.is_none_or(|wanted| count < wanted) {
            true => Look::On,
            false => Look::Enough,
        })
    });
    let written = match file {
        // Also what a failure ends stays in the file.
        Some(file) => {
            let file = file.into_inner().map_err(|error| error.into_error());
            file.and_then(|file| file.sync_all()).map(|()| true)
        }
        None => Ok(false),
    };
    browsed.map_err(|failure| failure.after(stopped(count, last)))?;
    if written? {
        match output.json {
            true => output.object(&json!({"queue": queue, "exported": count}))?,
            false => note(&format!("exported {count} messages of {queue}")),
        }
    }
    match unreadable {
        0 => Ok(()),
        _ => Err(Failure::Refused {
            message: format!(
                "{unreadable} messages of {queue} cannot be read and were not exported"
            ),
            code: None,
        }),
    }
}

/// What was exported before a failure, and how to export the rest.
fn stopped(count: u64, last: Option<i64>) -> String {
    let exported = format!("{count} messages were exported before");
    match last.and_then(|number| number.checked_add(1)) {
        Some(next) => format!("{exported}; for the rest, use --from {next} and another output"),
        None => exported,
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_export_that_stopped_can_be_continued() {
        assert_eq!(stopped(0, None), "0 messages were exported before");
        assert!(stopped(2, Some(7)).ends_with("; for the rest, use --from 8 and another output"));
    }
}
