//! Shows messages without receiving them, and groups of dead letters.
//!
//! Kew is asked over its own interface first: it filters on the server, and knows which messages are locked. Other
//! namespaces are browsed over AMQP, and the command filters and counts.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::browse::{Look, browse, browse_some, message_numbered};
use super::failing::not_found;
use super::filter::Filter;
use super::own::{encode, in_path};
use super::view::{Lock, view_of};
use super::{Doors, Session};
use crate::operate_args::{BreakLockArgs, DeleteArgs, GetArgs, GroupsArgs, PeekArgs};
use crate::queue_command::{
    Align, Failure, Output, confirm, note, printable, printable_lines, table,
};

/// How many messages are asked for at once.
const PAGE_COUNT: u64 = 500;

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
    let messages = match peek_at_kew(&it.doors, args, entity)? {
        Some(messages) => messages,
        None => peek_over_amqp(&it.doors, args, entity)?,
    };
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

fn peek_at_kew(
    doors: &Doors,
    args: &PeekArgs,
    entity: &str,
) -> Result<Option<Vec<Value>>, Failure> {
    let own = doors.own();
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
        let page: Messages = match messages.is_empty() {
            true => match own.look(&path)? {
                Some(page) => page,
                None => return Ok(None),
            },
            false => own.get(&path)?,
        };
        messages.extend(page.messages);
        from = page.next;
    }
    Ok(Some(messages))
}

fn peek_over_amqp(doors: &Doors, args: &PeekArgs, entity: &str) -> Result<Vec<Value>, Failure> {
    let filter = Filter::new(&args.filter)?;
    let mut messages = Vec::new();
    browse(doors, entity, &filter, |message| {
        let view = view_of(&message, None);
        let view = match args.no_bodies {
            true => view.without_body(),
            false => view,
        };
        messages.push(json!(view));
        Ok(match (messages.len() as u64) < args.count {
            true => Look::On,
            false => Look::Enough,
        })
    })?;
    Ok(messages)
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

/// How many groups are shown at most, and how many messages are looked at, as at Kew.
const GROUPS_MAX: usize = 1000;
const SCAN_MAX: u64 = 100_000;
/// How much of each text counts, in characters.
const TEXT_LENGTH_MAX: usize = 256;

pub(super) fn groups(it: &mut Session, args: &GroupsArgs, entity: &str) -> Result<(), Failure> {
    let path = format!(
        "groups/{}?scan={SCAN_MAX}{}",
        in_path(entity),
        args.filter.to_query()
    );
    let found: Groups = match it.doors.own().look(&path)? {
        Some(found) => found,
        None => groups_over_amqp(&it.doors, args, entity)?,
    };
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

fn groups_over_amqp(doors: &Doors, args: &GroupsArgs, entity: &str) -> Result<Groups, Failure> {
    let filter = Filter::new(&args.filter)?;
    let mut groups: BTreeMap<[Option<String>; 4], Group> = BTreeMap::new();
    let mut others = 0;
    let next = browse_some(doors, entity, &filter, SCAN_MAX, |message| {
        let view = view_of(&message, None);
        let number = view.sequence_number;
        let cut = |text: Option<String>| {
            text.map(|text| text.chars().take(TEXT_LENGTH_MAX).collect::<String>())
        };
        let key = [
            view.dead_letter_reason,
            view.dead_letter_description,
            view.subject,
            view.content_type,
        ]
        .map(cut);
        if groups.len() == GROUPS_MAX && !groups.contains_key(&key) {
            others += 1;
            return Ok(Look::On);
        }
        let [reason, description, subject, content_type] = key.clone();
        let group = groups.entry(key).or_insert(Group {
            count: 0,
            reason,
            description,
            subject,
            content_type,
            first_sequence_number: number,
            last_sequence_number: number,
        });
        group.count += 1;
        group.last_sequence_number = number;
        Ok(Look::On)
    })?;
    let mut groups: Vec<Group> = groups.into_values().collect();
    groups.sort_by_key(|group| (std::cmp::Reverse(group.count), group.first_sequence_number));
    Ok(Groups {
        groups,
        others,
        next,
    })
}

pub(super) fn message(it: &mut Session, args: &GetArgs) -> Result<(), Failure> {
    let mode = match (args.lock, args.delete) {
        (true, _) => Some("lock"),
        (_, true) => Some("delete"),
        _ => None,
    };
    let path = format!("message/{}?number={}", in_path(&args.queue), args.number);
    let own = it.doors.own();
    let message: Value = match mode {
        None => match own.look(&path)? {
            Some(message) => message,
            None => one_over_amqp(&it.doors, &args.queue, args.number)?,
        },
        Some(mode) => own.call("POST", &format!("{path}&mode={mode}"), None)?,
    };
    object(&mut it.output, &message)
}

fn one_over_amqp(doors: &Doors, queue: &str, number: u64) -> Result<Value, Failure> {
    match message_numbered(doors, queue, number)? {
        Some(message) => Ok(json!(view_of(&message, None::<Lock>))),
        None => Err(no_message(queue, number)),
    }
}

pub(super) fn no_message(queue: &str, number: u64) -> Failure {
    not_found(format!(
        "{queue} has no message with sequence number {number}"
    ))
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
    let deleted: Value = it.doors.own().call("DELETE", &path, None)?;
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
            format!("session={}", encode(session))
        }
    };
    let path = format!("lock/{}?{whose}", in_path(&args.queue));
    let _: Value = it.doors.own().call("DELETE", &path, None)?;
    if it.output.json {
        return Ok(it.output.object(&json!({"broken": true}))?);
    }
    Ok(it.output.line("the lock is broken")?)
}
