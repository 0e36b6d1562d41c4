//! `kew queue receive`, `peek`, `update` and `delete-message`.

use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kew_client::QueueMessage;
use serde::Serialize;

use super::client::Client;
use super::failure::Failure;
use super::note;
use super::output::{Output, printable, printable_lines, rfc3339};
use super::send::text_of;
use crate::queue_args::{DeleteMessageArgs, FormArgs, PeekArgs, ReceiveArgs, UpdateArgs};

/// The most messages that one request returns.
const GET_MAX: u64 = 32;

/// How often to poll an empty queue: at first, and later.
const POLL_MIN: Duration = Duration::from_millis(100);
const POLL_MAX: Duration = Duration::from_secs(1);

/// A message as JSON. Exactly one of `text` and `base64` is present.
#[derive(Serialize)]
struct MessageReport<'a> {
    id: &'a str,
    inserted: String,
    expires: String,
    dequeue_count: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    receipt: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_visible: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'a str>,
    /// The bytes that --base64 decoded, if they are not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    base64: Option<&'a str>,
}

#[derive(Serialize)]
struct UpdateReport<'a> {
    id: &'a str,
    receipt: &'a str,
    next_visible: String,
}

#[derive(Serialize)]
struct DeleteReport<'a> {
    id: &'a str,
    deleted: bool,
}

pub(super) fn receive(
    client: &Client,
    args: &ReceiveArgs,
    output: &mut Output,
) -> Result<(), Failure> {
    if !output.json {
        let mut shown = 0;
        return receive_all(client, args, |messages| {
            show_all(messages, args.form, &mut shown, output)?;
            Ok(output.flush()?)
        });
    }
    output.array(|array| {
        receive_all(client, args, |messages| {
            for message in messages {
                array.push(&report(message, &body(message, args.form)))?;
            }
            Ok(array.flush()?)
        })
    })
}

/// Receives as many messages as requested, or as exist. `print` has written each message before it
/// is deleted, so that no message is lost unseen.
fn receive_all(
    client: &Client,
    args: &ReceiveArgs,
    mut print: impl FnMut(&[QueueMessage]) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let deadline = args.wait.map(|wait| Instant::now() + wait);
    let (mut left, mut poll) = (args.count, POLL_MIN);
    while left > 0 {
        let asked = u32::try_from(left.min(GET_MAX)).unwrap_or(1);
        let messages = client.ask(|it| it.get(&args.name, asked, args.visibility))?;
        if messages.is_empty() {
            let rest = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            match rest {
                Some(rest) if left == args.count && !rest.is_zero() => {
                    std::thread::sleep(poll.min(rest));
                    poll = (poll * 2).min(POLL_MAX);
                    continue;
                }
                _ => break,
            }
        }
        print(&messages)?;
        if args.delete {
            delete_all(client, &args.name, &messages)?;
        }
        left = left.saturating_sub(messages.len() as u64);
    }
    if left == args.count {
        note(&format!("{} has no visible message", args.name));
    }
    Ok(())
}

fn delete_all(client: &Client, queue: &str, messages: &[QueueMessage]) -> Result<(), Failure> {
    for (index, message) in messages.iter().enumerate() {
        let receipt = message
            .receipt
            .as_ref()
            .map_or("", |receipt| &receipt.value);
        if let Err(error) = client.ask(|it| it.delete_message(queue, &message.id, receipt)) {
            let printed = messages.len() - index;
            let done = format!("the last {printed} messages were printed and not deleted");
            return Err(Failure::from(error).after(done));
        }
    }
    Ok(())
}

pub(super) fn peek(client: &Client, args: &PeekArgs, output: &mut Output) -> Result<(), Failure> {
    let messages = client.ask(|it| it.peek(&args.name, args.count))?;
    if messages.is_empty() {
        note(&format!("{} has no visible message", args.name));
    }
    if !output.json {
        return show_all(&messages, args.form, &mut 0, output);
    }
    output.array(|array| {
        for message in &messages {
            array.push(&report(message, &body(message, args.form)))?;
        }
        Ok(())
    })
}

pub(super) fn update(
    client: &Client,
    args: &UpdateArgs,
    output: &mut Output,
) -> Result<(), Failure> {
    let text = match &args.text {
        Some(text) => Some(text_of(text.as_bytes(), args.base64, "the text")?),
        None => None,
    };
    let receipt = client.ask(|it| {
        it.update(
            &args.name,
            &args.id,
            &args.receipt,
            args.visibility,
            text.as_deref(),
        )
    })?;
    let next_visible = rfc3339(receipt.next_visible);
    if output.json {
        return Ok(output.object(&UpdateReport {
            id: &args.id,
            receipt: &receipt.value,
            next_visible,
        })?);
    }
    output.line(&format!("receipt     {}", printable(&receipt.value)))?;
    Ok(output.line(&format!("visible at  {next_visible}"))?)
}

pub(super) fn delete(
    client: &Client,
    args: &DeleteMessageArgs,
    output: &mut Output,
) -> Result<(), Failure> {
    client.ask(|it| it.delete_message(&args.name, &args.id, &args.receipt))?;
    if output.json {
        return Ok(output.object(&DeleteReport {
            id: &args.id,
            deleted: true,
        })?);
    }
    Ok(output.line(&format!("deleted {}", printable(&args.id)))?)
}

/// A message's body in the form to show.
enum Body {
    Text(String),
    Bytes(Vec<u8>),
}

fn body(message: &QueueMessage, form: FormArgs) -> Body {
    if !form.base64 {
        return Body::Text(message.text.clone());
    }
    match STANDARD.decode(message.text.trim()) {
        Ok(bytes) => match String::from_utf8(bytes) {
            Ok(text) => Body::Text(text),
            Err(error) => Body::Bytes(error.into_bytes()),
        },
        Err(_) => {
            note(&format!(
                "message {} is not Base64 and is printed as it is",
                message.id
            ));
            Body::Text(message.text.clone())
        }
    }
}

fn report<'a>(message: &'a QueueMessage, body: &'a Body) -> MessageReport<'a> {
    let receipt = message.receipt.as_ref();
    let (text, base64) = match body {
        Body::Text(text) => (Some(text.as_str()), None),
        // The encoded form is what was sent.
        Body::Bytes(_) => (None, Some(message.text.trim())),
    };
    MessageReport {
        id: &message.id,
        inserted: rfc3339(message.inserted),
        expires: rfc3339(message.expires),
        dequeue_count: message.dequeue_count,
        receipt: receipt.map(|receipt| receipt.value.as_str()),
        next_visible: receipt.map(|receipt| rfc3339(receipt.next_visible)),
        text,
        base64,
    }
}

/// Shows messages for people, separated by empty lines; `shown` is how many came before.
fn show_all(
    messages: &[QueueMessage],
    form: FormArgs,
    shown: &mut u64,
    output: &mut Output,
) -> Result<(), Failure> {
    for message in messages {
        let body = body(message, form);
        if form.raw {
            show_raw(&body, output)?;
            continue;
        }
        if *shown > 0 {
            output.line("")?;
        }
        *shown += 1;
        show(message, &body, output)?;
    }
    Ok(())
}

fn show_raw(body: &Body, output: &mut Output) -> Result<(), Failure> {
    let bytes = match body {
        Body::Text(text) => text.as_bytes(),
        Body::Bytes(bytes) => bytes,
    };
    Ok(output.body(bytes)?)
}

fn show(message: &QueueMessage, body: &Body, output: &mut Output) -> Result<(), Failure> {
    output.line(&format!("id          {}", printable(&message.id)))?;
    if let Some(receipt) = &message.receipt {
        output.line(&format!("receipt     {}", printable(&receipt.value)))?;
        let visible = rfc3339(receipt.next_visible);
        output.line(&format!("visible at  {visible}"))?;
    }
    output.line(&format!("inserted    {}", rfc3339(message.inserted)))?;
    output.line(&format!("expires     {}", rfc3339(message.expires)))?;
    output.line(&format!("received    {} times", message.dequeue_count))?;
    match body {
        Body::Text(text) => output.line(&printable_lines(text))?,
        Body::Bytes(bytes) => output.line(&format!(
            "{} bytes of binary data: use --raw to write them to a file or a pipe",
            bytes.len()
        ))?,
    }
    Ok(())
}
