//! `kew bus list`, `show`, `create`, `update` and `delete`: management by ATOM.

use kew_client::QueueSettings;
use serde_json::{Value, json};

use super::failing::{not_found, status_of_failure};
use super::own::in_path;
use super::settings::{QueueView, apply};
use super::{Doors, Session, show};
use crate::bus_entity_args::{CreateArgs, DeleteQueueArgs, UpdateArgs};
use crate::operate_args::ShowArgs;
use crate::queue_command::{Align, Failure, confirm, printable, table};

/// Which queues to list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Listed {
    All,
    WithDeadLetters,
}

pub(super) fn list(it: &mut Session, listed: Listed) -> Result<(), Failure> {
    let mut queues = all_queues(&it.doors)?;
    if listed == Listed::WithDeadLetters {
        queues.retain(|queue| queue.dead_letters.unwrap_or_default() > 0);
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
    let count = |count: Option<u64>| count.map_or_else(|| "-".to_owned(), |it| it.to_string());
    let row = |queue: &QueueView| {
        vec![
            queue.name.clone(),
            count(queue.active_messages),
            count(queue.scheduled_messages),
            count(queue.dead_letters),
            count(queue.size_bytes),
            queue.status.clone().unwrap_or_default(),
        ]
    };
    let rows: Vec<_> = queues.iter().map(row).collect();
    for line in table(&columns, &rows) {
        it.output.line(&line)?;
    }
    Ok(())
}

/// All queues with their counts and settings.
pub(super) fn all_queues(doors: &Doors) -> Result<Vec<QueueView>, Failure> {
    let mut queues = Vec::new();
    let mut skip = Some(0);
    while let Some(first) = skip {
        let page = doors.over_http(doors.admin.queues(first))?;
        queues.extend(page.items.into_iter().map(QueueView::of));
        skip = page.next;
    }
    Ok(queues)
}

/// One queue, if it exists.
pub(super) fn queue_named(doors: &Doors, name: &str) -> Result<Option<QueueView>, Failure> {
    match doors.over_http(doors.admin.queue(name)) {
        Ok(queue) => Ok(Some(QueueView::of(queue))),
        Err(failure) if status_of_failure(&failure) == Some(404) => Ok(None),
        Err(failure) => Err(failure),
    }
}

pub(super) fn show(it: &mut Session, args: &ShowArgs) -> Result<(), Failure> {
    let queue = match args.queue.contains('$') {
        // Management knows no sub-queues.
        true => it
            .doors
            .own()
            .get(&format!("queues/{}", in_path(&args.queue)))?,
        false => match queue_named(&it.doors, &args.queue)? {
            Some(queue) => json!(queue),
            None => return Err(no_queue(&args.queue)),
        },
    };
    let queue: Value = queue;
    show::object(&mut it.output, &queue)
}

pub(super) fn no_queue(name: &str) -> Failure {
    not_found(format!("the queue '{name}' could not be found"))
}

pub(super) fn create(it: &mut Session, args: &CreateArgs) -> Result<(), Failure> {
    if args.settings.duplicate_window.is_some() && !args.detect_duplicates {
        let message = "--duplicate-window has no effect without --detect-duplicates";
        return Err(Failure::Usage(message.into()));
    }
    let mut settings = QueueSettings {
        requires_session: Some(args.sessions),
        requires_duplicate_detection: Some(args.detect_duplicates),
        ..QueueSettings::default()
    };
    apply(&mut settings, &args.settings)?;
    let doors = &it.doors;
    let created = match doors.over_http(doors.admin.create_queue(&args.name, &settings)) {
        Ok(_) => true,
        Err(failure) if args.if_not_exists && status_of_failure(&failure) == Some(409) => false,
        Err(failure) => return Err(failure),
    };
    if it.output.json {
        let report = json!({"queue": args.name, "created": created});
        return Ok(it.output.object(&report)?);
    }
    let what = match created {
        true => "created",
        false => "already exists:",
    };
    Ok(it
        .output
        .line(&format!("{what} {}", printable(&args.name)))?)
}

pub(super) fn update(it: &mut Session, args: &UpdateArgs) -> Result<(), Failure> {
    let doors = &it.doors;
    // An update replaces everything, so unchanged settings must be sent again.
    let mut settings = doors.over_http(doors.admin.queue(&args.name))?.settings;
    apply(&mut settings, &args.settings)?;
    // Without this element they stay, and are not written back by a client that may not see their keys.
    settings.authorization_rules = None;
    doors.over_http(doors.admin.update_queue(&args.name, &settings))?;
    if it.output.json {
        let report = json!({"queue": args.name, "updated": true});
        return Ok(it.output.object(&report)?);
    }
    Ok(it
        .output
        .line(&format!("updated {}", printable(&args.name)))?)
}

pub(super) fn delete(it: &mut Session, args: &DeleteQueueArgs) -> Result<(), Failure> {
    if !args.yes.yes {
        let queue = printable(&args.name);
        confirm(&format!("Delete queue {queue} with all its messages?"))?;
    }
    let doors = &it.doors;
    // The same request would delete a topic with its subscriptions. This one fails if the name is not a queue's.
    queue_named(doors, &args.name)?;
    let deleted = match doors.over_http(doors.admin.delete_queue(&args.name)) {
        Ok(()) => true,
        Err(failure) if args.if_exists && status_of_failure(&failure) == Some(404) => false,
        Err(failure) => return Err(failure),
    };
    if it.output.json {
        let report = json!({"queue": args.name, "deleted": deleted});
        return Ok(it.output.object(&report)?);
    }
    let what = match deleted {
        true => "deleted",
        false => "did not exist:",
    };
    Ok(it
        .output
        .line(&format!("{what} {}", printable(&args.name)))?)
}
