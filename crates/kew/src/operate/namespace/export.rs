//! The lines of a namespace: definitions of queues, and then for each queue the states of its sessions and its messages.

use kew_client::{QueueDescription, ReceiverOptions, SessionChoice};

use super::definition::definition_of;
use super::existing::Browse;
use super::{Namespace, Place};
use crate::operate::Doors;
use crate::operate::entity::no_queue;
use crate::operate::export::record;
use crate::operate::failing::status_of_failure;
use crate::operate::topics::topics_if_any;
use crate::portable::{Defined, Line, SessionState};
use crate::queue_command::{Failure, note};
use crate::transfer_args::ExportArgs;

/// Where lines go.
type Write<'a> = dyn FnMut(Line) -> Result<(), Failure> + 'a;

/// A queue whose content is exported after all definitions.
struct Listed {
    name: String,
    has_sessions: bool,
    has_failed_transfers: bool,
}

/// Writes the lines of all queues, or of those that are named. Returns how many things could not be read, of which
/// notes tell.
pub(crate) fn export_namespace(
    namespace: &Namespace,
    args: &ExportArgs,
    write: &mut Write<'_>,
) -> Result<u64, Failure> {
    let doors = &namespace.0;
    let queues = define(doors, args, write)?;
    if args.definitions_only {
        return Ok(0);
    }
    let mut unread = 0;
    for queue in &queues {
        if queue.has_sessions {
            unread += states(doors, &queue.name, write)?;
        }
        let places = [
            Place::FailedTransfer,
            Place::DeadLetter,
            Place::Deferred,
            Place::Rest,
        ];
        for place in places {
            if place != Place::FailedTransfer || queue.has_failed_transfers {
                unread += messages(doors, &queue.name, place, write)?;
            }
        }
    }
    Ok(unread)
}

fn define(doors: &Doors, args: &ExportArgs, write: &mut Write<'_>) -> Result<Vec<Listed>, Failure> {
    let mut listed = Vec::new();
    let mut take = |queue: QueueDescription| -> Result<(), Failure> {
        for name in queue.settings.unknown.names() {
            let queue = &queue.name;
            note(&format!(
                "the setting {name} of {queue} is unknown and was not exported"
            ));
        }
        let definition = definition_of(&queue.settings, args.with_keys);
        listed.push(Listed {
            has_sessions: queue.settings.requires_session == Some(true),
            has_failed_transfers: queue.state.transfer_dead_letter_count.unwrap_or_default() > 0,
            name: queue.name.clone(),
        });
        write(Line::BusQueue(Box::new(Defined::of_bus(
            &queue.name,
            definition,
        ))))
    };
    for name in &args.queue {
        take(queue_named(doors, name)?)?;
    }
    if args.queue.is_empty() {
        note_topics(doors)?;
    }
    let mut skip = args.queue.is_empty().then_some(0);
    while let Some(first) = skip {
        let page = doors.over_http(doors.admin.queues(first))?;
        page.items.into_iter().try_for_each(&mut take)?;
        skip = page.next;
    }
    Ok(listed)
}

/// Says that topics and subscriptions are left out, if there are any.
fn note_topics(doors: &Doors) -> Result<(), Failure> {
    if !topics_if_any(doors)?.is_empty() {
        note("topics and their subscriptions were not exported: only queues can be exported yet");
    }
    Ok(())
}

fn queue_named(doors: &Doors, name: &str) -> Result<QueueDescription, Failure> {
    doors
        .over_http(doors.admin.queue(name))
        .map_err(|failure| match status_of_failure(&failure) {
            Some(404) => no_queue(name),
            Some(_) | None => failure,
        })
}

/// The states of sessions. To read one, its session is locked for a moment, which nothing else allows.
fn states(doors: &Doors, queue: &str, write: &mut Write<'_>) -> Result<u64, Failure> {
    let mut unread = 0;
    let mut skip = Some(0);
    while let Some(first) = skip {
        let (ids, next) = doors.over_amqp(doors.bus.sessions(queue, first))?;
        for id in &ids {
            match state(doors, queue, id) {
                Ok(Some(state)) => {
                    write(Line::SessionState(SessionState::new(queue, id, &state)))?;
                }
                Ok(None) => {}
                Err(failure) if failure.is_temporary() => return Err(failure),
                Err(failure) => {
                    unread += 1;
                    let what = failure.message();
                    note(&format!(
                        "the state of session {id} of {queue} was not exported: {what}"
                    ));
                }
            }
        }
        skip = next;
    }
    Ok(unread)
}

fn state(doors: &Doors, queue: &str, id: &str) -> Result<Option<bytes::Bytes>, Failure> {
    let options = ReceiverOptions { prefetch: 0 };
    let session = doors.bus.session(queue, SessionChoice::named(id), options);
    let session = doors.over_amqp(session)?;
    let state = doors.over_amqp(session.state());
    doors.over_amqp(session.close())?;
    state
}

fn messages(
    doors: &Doors,
    queue: &str,
    place: Place,
    write: &mut Write<'_>,
) -> Result<u64, Failure> {
    let mut browse = Browse::new(doors, queue, place);
    let mut unread = 0;
    while let Some(message) = browse.next()? {
        match record(browse.entity(), &message) {
            Ok(record) => write(Line::Message(Box::new(record)))?,
            Err(failure) => {
                unread += 1;
                note(&failure.message());
            }
        }
    }
    Ok(unread)
}
