//! The lines of a namespace: definitions (`define`), and then for each queue and subscription the states of its
//! sessions and its messages, and at last for each topic the messages that are scheduled there. An import may publish
//! those, if their time has passed, and then they come behind what the subscriptions have.

use kew_client::{MessageState, ReceiverOptions, SessionChoice};

use super::define::{Definitions, Listed};
use super::existing::Browse;
use super::{Namespace, Place};
use crate::operate::Doors;
use crate::operate::entity::Kind;
use crate::operate::export::record;
use crate::portable::{Line, SessionState};
use crate::queue_command::{Failure, note};
use crate::transfer_args::ExportArgs;

/// Where lines go.
pub(super) type Write<'a> = dyn FnMut(Line) -> Result<(), Failure> + 'a;

/// Writes the lines of all entities, or of those that are named. Returns how many things could not be read, of which
/// notes tell.
pub(crate) fn export_namespace(
    namespace: &Namespace,
    args: &ExportArgs,
    write: &mut Write<'_>,
) -> Result<u64, Failure> {
    let doors = &namespace.0;
    let mut definitions = Definitions::new(doors, args.with_keys, write);
    definitions.write(args)?;
    let Definitions {
        listed, mut unread, ..
    } = definitions;
    if args.definitions_only {
        return Ok(unread);
    }
    let is_topic = |entity: &&Listed| entity.kind == Kind::Topic;
    let others = listed.iter().filter(|entity| !is_topic(entity));
    for entity in others.chain(listed.iter().filter(is_topic)) {
        if entity.has_sessions {
            unread += states(doors, &entity.name, write)?;
        }
        if entity.has_failed_transfers {
            unread += messages(doors, &entity.name, Place::FailedTransfer, write)?;
        }
        if entity.kind == Kind::Topic {
            unread += schedules(doors, entity, write)?;
            continue;
        }
        for place in [Place::DeadLetter, Place::Deferred, Place::Rest] {
            unread += messages(doors, &entity.name, place, write)?;
        }
    }
    Ok(unread)
}

/// The messages that are scheduled in a topic. Not every service shows them.
fn schedules(doors: &Doors, topic: &Listed, write: &mut Write<'_>) -> Result<u64, Failure> {
    let mut browse = Browse::new(doors, &topic.name, Place::Rest);
    let (mut unread, mut waiting, mut found) = (0, 0_u64, 0_u64);
    loop {
        let message = match browse.next() {
            Err(failure) if failure.is_temporary() => return Err(failure),
            Err(failure) => return Ok(unread + waiting + not_shown(topic, &failure)),
            Ok(message) => message,
        };
        let Some(message) = message else {
            break;
        };
        if message.state() != MessageState::Scheduled {
            waiting += 1;
            continue;
        }
        found += 1;
        match record(browse.entity(), &message) {
            Ok(record) => write(Line::Message(Box::new(record)))?,
            Err(failure) => {
                unread += 1;
                note(&failure.message());
            }
        }
    }
    if waiting > 0 {
        note(&format!(
            "{waiting} messages of the topic {} were not exported, because they are not in its subscriptions yet: \
             export it again in a moment",
            topic.name
        ));
    }
    // What left the topic since can be in subscriptions that were read before that. What waits may be the same messages.
    let left = topic.scheduled_count.unwrap_or_default();
    let left = left.saturating_sub(found + waiting);
    if left > 0 {
        note(&format!(
            "{left} messages that were scheduled in the topic {} left it during the export, and may not be in it: \
             export it again",
            topic.name
        ));
    }
    Ok(unread + waiting + left)
}

/// How many things of a topic whose messages are not shown are left out.
fn not_shown(topic: &Listed, failure: &Failure) -> u64 {
    if topic.scheduled_count == Some(0) {
        return 0;
    }
    note(&format!(
        "messages that are scheduled in the topic {} were not exported: {}",
        topic.name,
        failure.message()
    ));
    1
}

/// The states of sessions. To read one, its session is locked for a moment, which nothing else allows.
fn states(doors: &Doors, queue: &str, write: &mut Write<'_>) -> Result<u64, Failure> {
    let mut unread = 0;
    let mut skip = Some(0);
    while let Some(first) = skip {
        let (ids, next) = match doors.over_amqp(doors.bus.sessions(queue, first)) {
            Err(failure) if failure.is_temporary() => return Err(failure),
            Err(failure) => {
                let what = failure.message();
                note(&format!(
                    "the states of sessions of {queue} were not exported: {what}"
                ));
                return Ok(unread + 1);
            }
            Ok(page) => page,
        };
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
    loop {
        let message = match browse.next() {
            Err(failure) if failure.is_temporary() => return Err(failure),
            Err(failure) => {
                let (entity, what) = (browse.entity(), failure.message());
                note(&format!("messages of {entity} were not exported: {what}"));
                return Ok(unread + 1);
            }
            Ok(None) => return Ok(unread),
            Ok(Some(message)) => message,
        };
        match record(browse.entity(), &message) {
            Ok(record) => write(Line::Message(Box::new(record)))?,
            Err(failure) => {
                unread += 1;
                note(&failure.message());
            }
        }
    }
}
