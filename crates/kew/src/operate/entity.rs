//! `kew bus list`, `show`, `create`, `update` and `delete`: management by ATOM. `topics` has the same for topics and
//! subscriptions.

use kew_client::{EntityDescription, QueueSettings};
use serde_json::{Value, json};

use super::failing::{not_found, status_of_failure};
use super::own::in_path;
use super::settings::{EntityView, apply};
use super::topics::{topics_if_any, topics_with_subscriptions};
use super::{Doors, Session, show};
use crate::bus_entity_args::{CreateArgs, DeleteQueueArgs, UpdateArgs};
use crate::operate_args::ShowArgs;
use crate::queue_command::{Align, Failure, confirm, note, printable, table};

/// What to list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Listed {
    /// All queues.
    All,
    /// Queues, topics and subscriptions with dead letters or failed transfers.
    WithDeadLetters,
}

/// A kind of entity, as commands and their reports call it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Queue,
    Topic,
    Subscription,
}

impl Kind {
    fn of(entity: &EntityDescription) -> Option<Self> {
        match entity {
            EntityDescription::Queue(_) => Some(Self::Queue),
            EntityDescription::Topic(_) => Some(Self::Topic),
            EntityDescription::Subscription(_) => Some(Self::Subscription),
            _ => None,
        }
    }

    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Queue => "queue",
            Self::Topic => "topic",
            Self::Subscription => "subscription",
        }
    }

    /// What the commands for this kind begin with.
    fn command(self) -> &'static str {
        match self {
            Self::Queue => "kew bus",
            Self::Topic => "kew bus topic",
            Self::Subscription => "kew bus subscription",
        }
    }
}

pub(super) fn list(it: &mut Session, listed: Listed) -> Result<(), Failure> {
    let mut entities = all_queues(&it.doors)?;
    match listed {
        Listed::All => note_topics(topics_if_any(&it.doors)?.len()),
        Listed::WithDeadLetters => {
            entities.extend(topics_with_subscriptions(&it.doors, |_| true)?);
            let has = |count: Option<u64>| count.unwrap_or_default() > 0;
            entities.retain(|it| has(it.dead_letters) || has(it.failed_transfers));
            if let Some(first) = entities.iter().find(|it| has(it.failed_transfers)) {
                note(&format!(
                    "failed transfers are in {0}/$transfer/$deadletterqueue: kew dlq peek '{0}/$transfer/$deadletterqueue' \
                     shows them",
                    printable(&first.name)
                ));
            }
        }
    }
    print(it, "QUEUE", &entities)
}

fn note_topics(count: usize) {
    match count {
        0 => {}
        1 => note("there is 1 topic: kew bus topic list shows it"),
        _ => note(&format!(
            "there are {count} topics: kew bus topic list shows them"
        )),
    }
}

/// Prints queues or subscriptions with their counts.
pub(super) fn print(
    it: &mut Session,
    heading: &'static str,
    entities: &[EntityView],
) -> Result<(), Failure> {
    if it.output.json {
        return Ok(it.output.object(&entities)?);
    }
    let columns = [
        (heading, Align::Left),
        ("ACTIVE", Align::Right),
        ("SCHEDULED", Align::Right),
        ("DEAD", Align::Right),
        ("FAILED", Align::Right),
        ("BYTES", Align::Right),
        ("STATUS", Align::Left),
    ];
    let row = |entity: &EntityView| {
        vec![
            entity.name.clone(),
            shown(entity.active_messages),
            shown(entity.scheduled_messages),
            shown(entity.dead_letters),
            shown(entity.failed_transfers),
            shown(entity.size_bytes),
            entity.status.clone().unwrap_or_default(),
        ]
    };
    let rows: Vec<_> = entities.iter().map(row).collect();
    for line in table(&columns, &rows) {
        it.output.line(&line)?;
    }
    Ok(())
}

/// A count in a table.
pub(super) fn shown(count: Option<u64>) -> String {
    count.map_or_else(|| "-".to_owned(), |it| it.to_string())
}

/// All queues with their counts and settings.
pub(super) fn all_queues(doors: &Doors) -> Result<Vec<EntityView>, Failure> {
    let mut queues = Vec::new();
    let mut skip = Some(0);
    while let Some(first) = skip {
        let page = doors.over_http(doors.admin.queues(first))?;
        queues.extend(page.items.into_iter().map(EntityView::of_queue));
        skip = page.next;
    }
    Ok(queues)
}

/// The queue, topic or subscription of that name, if it exists.
pub(super) fn entity_named(
    doors: &Doors,
    name: &str,
) -> Result<Option<EntityDescription>, Failure> {
    match doors.over_http(doors.admin.entity(name)) {
        Ok(entity) => Ok(Some(entity)),
        Err(failure) if status_of_failure(&failure) == Some(404) => Ok(None),
        Err(failure) => Err(failure),
    }
}

/// Whether a topic has this name. If that cannot be found out, not.
pub(super) fn is_topic(doors: &Doors, name: &str) -> bool {
    let found = entity_named(doors, name).ok().flatten();
    found.as_ref().and_then(Kind::of) == Some(Kind::Topic)
}

/// Refuses a name that belongs to an entity of another kind.
pub(super) fn must_be(doors: &Doors, kind: Kind, name: &str) -> Result<(), Failure> {
    let found = entity_named(doors, name)?;
    match found.as_ref().and_then(Kind::of) {
        Some(other) if other != kind => Err(Failure::Refused {
            message: format!(
                "'{name}' is a {}, and no {}: use {}",
                other.word(),
                kind.word(),
                other.command()
            ),
            code: Some("OtherKind"),
        }),
        Some(_) | None => Ok(()),
    }
}

pub(super) fn show(it: &mut Session, args: &ShowArgs) -> Result<(), Failure> {
    let entity = match args.queue.contains('$') {
        // Management knows no sub-queues.
        true => it
            .doors
            .own()
            .get(&format!("queues/{}", in_path(&args.queue)))?,
        false => {
            let found = entity_named(&it.doors, &args.queue)?;
            let view = found.and_then(|found| EntityView::of(found, &args.queue));
            json!(view.ok_or_else(|| no_queue(&args.queue))?)
        }
    };
    let entity: Value = entity;
    show::object(&mut it.output, &entity)
}

pub(super) fn no_queue(name: &str) -> Failure {
    not_found(format!("the queue '{name}' could not be found"))
}

pub(super) fn create(it: &mut Session, args: &CreateArgs) -> Result<(), Failure> {
    if args.settings.sending.duplicate_window.is_some() && !args.detect_duplicates {
        let message = "--duplicate-window has no effect without --detect-duplicates";
        return Err(Failure::Usage(message.into()));
    }
    let mut settings = QueueSettings {
        requires_session: Some(args.sessions),
        requires_duplicate_detection: Some(args.detect_duplicates),
        ..QueueSettings::default()
    };
    apply(&mut settings, &args.settings)?;
    let created = it
        .doors
        .over_http(it.doors.admin.create_queue(&args.name, &settings));
    tell_created(
        it,
        Kind::Queue,
        &args.name,
        created.map(drop),
        args.if_not_exists,
    )
}

pub(super) fn update(it: &mut Session, args: &UpdateArgs) -> Result<(), Failure> {
    let doors = &it.doors;
    must_be(doors, Kind::Queue, &args.name)?;
    // An update replaces everything, so unchanged settings must be sent again.
    let mut settings = doors.over_http(doors.admin.queue(&args.name))?.settings;
    apply(&mut settings, &args.settings)?;
    // Without this element they stay, and are not written back by a client that may not see their keys.
    settings.authorization_rules = None;
    doors.over_http(doors.admin.update_queue(&args.name, &settings))?;
    tell(it, Kind::Queue, &args.name, "updated", true, "")
}

pub(super) fn delete(it: &mut Session, args: &DeleteQueueArgs) -> Result<(), Failure> {
    if !args.yes.yes {
        let queue = printable(&args.name);
        confirm(&format!("Delete queue {queue} with all its messages?"))?;
    }
    // The same request would delete a topic with its subscriptions.
    must_be(&it.doors, Kind::Queue, &args.name)?;
    let deleted = it.doors.over_http(it.doors.admin.delete_queue(&args.name));
    tell_deleted(it, Kind::Queue, &args.name, deleted, args.if_exists)
}

/// Says that something was created, or was there already if that is as good.
pub(super) fn tell_created(
    it: &mut Session,
    kind: Kind,
    name: &str,
    created: Result<(), Failure>,
    or_exists: bool,
) -> Result<(), Failure> {
    let created = done(created, or_exists, 409)?;
    tell(it, kind, name, "created", created, "already exists:")
}

/// Says that something was deleted, or did not exist if that is as good.
pub(super) fn tell_deleted(
    it: &mut Session,
    kind: Kind,
    name: &str,
    deleted: Result<(), Failure>,
    or_missing: bool,
) -> Result<(), Failure> {
    let deleted = done(deleted, or_missing, 404)?;
    tell(it, kind, name, "deleted", deleted, "did not exist:")
}

/// Whether something was done. If it `may_be_so`, that status says that there was nothing to do.
pub(super) fn done(
    result: Result<(), Failure>,
    may_be_so: bool,
    status: u16,
) -> Result<bool, Failure> {
    match result {
        Ok(()) => Ok(true),
        Err(failure) if may_be_so && status_of_failure(&failure) == Some(status) => Ok(false),
        Err(failure) => Err(failure),
    }
}

pub(super) fn tell(
    it: &mut Session,
    kind: Kind,
    name: &str,
    verb: &str,
    is_done: bool,
    otherwise: &str,
) -> Result<(), Failure> {
    if it.output.json {
        let report = json!({kind.word(): name, verb: is_done});
        return Ok(it.output.object(&report)?);
    }
    let what = if is_done { verb } else { otherwise };
    Ok(it.output.line(&format!("{what} {}", printable(name)))?)
}
