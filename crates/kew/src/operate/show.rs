//! Shows queues and messages.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use ureq::http::Method;

use super::{Session, in_path};
use crate::operate_args::{BreakLockArgs, DeleteArgs, GetArgs, GroupsArgs, PeekArgs, ShowArgs};
use crate::queue_command::{
    Align, Failure, Output, confirm, note, printable, printable_lines, table,
};

/// How many messages are asked for at once.
const PAGE_COUNT: u64 = 500;

/// A queue. Its other fields are printed as JSON only.
#[derive(Debug, Deserialize, Serialize)]
struct Queue {
    name: String,
    active_messages: u64,
    scheduled_messages: u64,
    dead_letters: u64,
    size_bytes: u64,
    status: String,
    #[serde(flatten)]
    rest: serde_json::Map<String, Value>,
}

#[derive(Deserialize)]
struct Queues {
    queues: Vec<Queue>,
    next: Option<u64>,
}

pub(super) fn list(it: &mut Session, with_dead_letters_only: bool) -> Result<(), Failure> {
    let mut queues = Vec::new();
    let mut skip = Some(0);
    while let Some(first) = skip {
        let page: Queues = it.client.get(&format!("queues?skip={first}"))?;
        queues.extend(page.queues);
        skip = page.next;
    }
    if with_dead_letters_only {
        queues.retain(|queue| queue.dead_letters > 0);
    }
    if it.output.json {
        return Ok(it.output.object(&queues)?);
    }
    let columns = [
        ("QUEUE", Align::Left),
        ("ACTIVE", Align::Right),
        ("SCHEDULED", Align::Right),
        ("DEAD", Align::Right),
        ("BYTES", Align::Right),
        ("STATUS", Align::Left),
    ];
    let row = |queue: &Queue| {
        vec![
            queue.name.clone(),
            queue.active_messages.to_string(),
            queue.scheduled_messages.to_string(),
            queue.dead_letters.to_string(),
            queue.size_bytes.to_string(),
            queue.status.clone(),
        ]
    };
    let rows: Vec<_> = queues.iter().map(row).collect();
    for line in table(&columns, &rows) {
        it.output.line(&line)?;
    }
    Ok(())
}

pub(super) fn queue(it: &mut Session, args: &ShowArgs) -> Result<(), Failure> {
    let queue: Value = it.client.get(&format!("queues/{}", in_path(&args.queue)))?;
    object(&mut it.output, &queue)
}

/// An object: as one line of JSON, or one field per line.
pub(super) fn object(output: &mut Output, object: &Value) -> Result<(), Failure> {
    if output.json {
        return Ok(output.object(object)?);
    }
    for (name, value) in object.as_object().into_iter().flatten() {
        let value = match value {
            Value::Null => continue,
            Value::String(text) if name == "body" => printable_lines(text).into_owned(),
            Value::String(text) => printable(text).into_owned(),
            value => printable(&value.to_string()).into_owned(),
        };
        output.line(&format!("{}: {value}", printable(name)))?;
    }
    Ok(())
}

#[derive(Deserialize)]
struct Messages {
    messages: Vec<Value>,
    next: Option<u64>,
}

pub(super) fn peek(it: &mut Session, args: &PeekArgs, entity: &str) -> Result<(), Failure> {
    let mut messages = Vec::new();
    let mut from = Some(args.filter.from.unwrap_or_default());
    while let Some(first) = from.filter(|_| (messages.len() as u64) < args.count) {
        let limit = PAGE_COUNT.min(args.count - messages.len() as u64);
        let query = super::FilterArgs {
            from: Some(first),
            ..args.filter.clone()
        }
        .to_query();
        let bodies = !args.no_bodies;
        let path = format!(
            "messages/{}?limit={limit}&bodies={bodies}{query}",
            in_path(entity)
        );
        let page: Messages = it.client.get(&path)?;
        messages.extend(page.messages);
        from = page.next;
    }
    if it.output.json {
        return Ok(it.output.object(&messages)?);
    }
    for (index, message) in messages.iter().enumerate() {
        if index > 0 {
            it.output.line("")?;
        }
        object(&mut it.output, message)?;
    }
    Ok(())
}

#[derive(Deserialize, Serialize)]
struct Group {
    count: u64,
    reason: Option<String>,
    description: Option<String>,
    subject: Option<String>,
    content_type: Option<String>,
    first_sequence_number: u64,
    last_sequence_number: u64,
}

#[derive(Deserialize)]
struct Groups {
    groups: Vec<Group>,
    others: u64,
    next: Option<u64>,
}

pub(super) fn groups(it: &mut Session, args: &GroupsArgs, entity: &str) -> Result<(), Failure> {
    let path = format!(
        "groups/{}?scan=100000{}",
        in_path(entity),
        args.filter.to_query()
    );
    let found: Groups = it.client.get(&path)?;
    if found.others > 0 {
        note(&format!(
            "{} messages of other groups are not shown",
            found.others
        ));
    }
    if let Some(next) = found.next {
        note(&format!(
            "there are more messages: continue with --from {next}"
        ));
    }
    if it.output.json {
        return Ok(it.output.object(&found.groups)?);
    }
    let columns = [
        ("COUNT", Align::Right),
        ("REASON", Align::Left),
        ("DESCRIPTION", Align::Left),
        ("SUBJECT", Align::Left),
        ("TYPE", Align::Left),
        ("FIRST", Align::Right),
        ("LAST", Align::Right),
    ];
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let row = |group: &Group| {
        vec![
            group.count.to_string(),
            text(&group.reason),
            text(&group.description),
            text(&group.subject),
            text(&group.content_type),
            group.first_sequence_number.to_string(),
            group.last_sequence_number.to_string(),
        ]
    };
    let rows: Vec<_> = found.groups.iter().map(row).collect();
    for line in table(&columns, &rows) {
        it.output.line(&line)?;
    }
    Ok(())
}

pub(super) fn message(it: &mut Session, args: &GetArgs) -> Result<(), Failure> {
    let mode = match (args.lock, args.delete) {
        (true, _) => Some("lock"),
        (_, true) => Some("delete"),
        _ => None,
    };
    let path = format!("message/{}?number={}", in_path(&args.queue), args.number);
    let message: Value = match mode {
        None => it.client.get(&path)?,
        Some(mode) => it
            .client
            .call(&Method::POST, &format!("{path}&mode={mode}"), None)?,
    };
    object(&mut it.output, &message)
}

pub(super) fn delete(it: &mut Session, args: &DeleteArgs) -> Result<(), Failure> {
    if args.caution.asks() {
        let queue = printable(&args.queue);
        confirm(&format!("Delete message {} of {queue}?", args.number))?;
    }
    let path = format!(
        "message/{}?number={}&with_locked={}&dry_run={}",
        in_path(&args.queue),
        args.number,
        args.with_locked,
        args.caution.dry_run,
    );
    let deleted: Value = it.client.call(&Method::DELETE, &path, None)?;
    if it.output.json {
        return Ok(it.output.object(&deleted)?);
    }
    let what = if args.caution.dry_run {
        "would delete"
    } else {
        "deleted"
    };
    Ok(it.output.line(&format!("{what} message {}", args.number))?)
}

pub(super) fn break_lock(it: &mut Session, args: &BreakLockArgs) -> Result<(), Failure> {
    let whose = match (&args.number, &args.session) {
        (Some(number), _) => format!("number={number}"),
        (None, session) => {
            let session = session.as_deref().unwrap_or_default();
            format!("session={}", super::encode(session))
        }
    };
    let path = format!("lock/{}?{whose}", in_path(&args.queue));
    let _: Value = it.client.call(&Method::DELETE, &path, None)?;
    if it.output.json {
        return Ok(it.output.object(&json!({"broken": true}))?);
    }
    Ok(it.output.line("the lock is broken")?)
}
