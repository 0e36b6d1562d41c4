//! `kew queue import`: JSON lines that an export has written, sent one after another.

use std::time::SystemTime;

use kew_client::PutOptions;
use serde_json::json;

use super::client::Client;
use super::failure::Failure;
use super::output::{Output, printable};
use crate::importing::{Lines, SharedProgress};
use crate::portable::{Record, Text, text_of};
use crate::queue_args::ImportArgs;

/// Expires never, as the service writes it.
const NEVER: i64 = -1;

pub(super) fn import(
    client: &Client,
    args: &ImportArgs,
    output: &mut Output,
) -> Result<(), Failure> {
    let mut lines = Lines::open(args.file.as_deref(), args.from_line)?;
    let text = |record: Record| text_of(&record, SystemTime::now());
    if args.dry_run {
        let right = lines.check(text)?;
        if output.json {
            return Ok(output.object(&json!({"queue": args.name, "sent": 0, "right": right}))?);
        }
        return Ok(output.line(&format!("would send {right} messages"))?);
    }
    let progress = SharedProgress::new(args.from_line);
    client
        .runtime()
        .spawn(progress.clone().end_early(output.json));
    loop {
        let next = lines.next(text);
        let next = next.map_err(|failure| progress.get().failed(failure, None))?;
        let Some(text) = next else {
            break;
        };
        let line = lines.number;
        progress.send(line..=line, 1, || {
            let put = client.ask(|it| it.put(&args.name, &text.text, options(&text)));
            put.map(drop).map_err(Failure::from)
        })?;
    }
    let sent = progress.get().sent;
    if output.json {
        let report = json!({"queue": args.name, "sent": sent, "last_line": lines.number});
        return Ok(output.object(&report)?);
    }
    let messages = if sent == 1 { "message" } else { "messages" };
    let line = format!("sent {sent} {messages} to {}", printable(&args.name));
    Ok(output.line(&line)?)
}

pub(super) fn options(text: &Text) -> PutOptions {
    // Neither is shorter than the record says.
    let hidden = text.hidden.as_millis().div_ceil(1000);
    let life = text
        .time_to_live
        .map(|life| life.as_millis().div_ceil(1000));
    PutOptions {
        visibility_timeout: u32::try_from(hidden).ok().filter(|&seconds| seconds > 0),
        time_to_live: Some(life.map_or(NEVER, |life| i64::try_from(life).unwrap_or(i64::MAX))),
    }
}
