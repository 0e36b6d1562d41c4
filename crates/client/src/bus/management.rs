//! Requests to the node `$management` of an entity.

use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use kew_amqp::codec::{Array, Map, MapWriter, Timestamp, Uuid, Value, write_list, write_map};
use tokio::time::Instant;

use super::core::{Answer, LinkKey, Request};
use super::encoded::Encoded;
use super::entity::Entity;
use super::lock::{Lock, Settler};
use super::locked::Locked;
use super::message::time_of;
use super::received::Received;
use super::shared::Shared;
use super::verdict::Verdict;
use crate::error::{Effect, Error};

/// The last millisecond that the service's times can express.
const LAST_TIME: Timestamp = Timestamp(253_402_300_799_999);

/// How many sessions are listed at once.
const SESSIONS_PAGE: u32 = 100;

/// Messages that are to be shown.
pub(super) struct Peek<'a> {
    pub(super) from: i64,
    pub(super) count: u32,
    pub(super) session: Option<&'a str>,
}

pub(super) async fn peek(
    shared: &Shared,
    entity: &Entity,
    peek: &Peek<'_>,
) -> Result<Vec<Received>, Error> {
    let count = i32::try_from(peek.count).unwrap_or(i32::MAX);
    let body = Map::build(|map| {
        map.entry("from-sequence-number", &peek.from);
        map.entry("message-count", &count);
        if let Some(session) = peek.session {
            map.entry("session-id", session);
        }
    });
    let ask = Ask::new(shared, entity, "com.microsoft:peek-message", Effect::Read);
    let answer = ask.with_retries(&body).await?;
    entries(&answer)?
        .iter()
        .map(|entry| read(entry, Effect::Read))
        .collect()
}

/// A page of the ids of sessions, and how many to skip for the next one.
pub(super) async fn sessions(
    shared: &Shared,
    entity: &Entity,
    skip: u32,
) -> Result<(Vec<String>, Option<u32>), Error> {
    let number = |number: u32| i32::try_from(number).unwrap_or(i32::MAX);
    let body = Map::build(|map| {
        // A later time than any: sessions with messages, instead of those whose state was changed since.
        map.entry("last-updated-time", &LAST_TIME);
        map.entry("skip", &number(skip));
        map.entry("top", &number(SESSIONS_PAGE));
    });
    let operation = "com.microsoft:get-message-sessions";
    let ask = Ask::new(shared, entity, operation, Effect::Read);
    let answer = ask.with_retries(&body).await?;
    let ids: Vec<String> = match answer.body.get("sessions-ids").map(|it| it.value()) {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Array(ids)) => ids
            .iter()
            .filter_map(|id| id.as_str().map(str::to_owned))
            .collect(),
        Some(Value::List(ids)) => ids
            .iter()
            .filter_map(|id| id.value().as_str().map(str::to_owned))
            .collect(),
        Some(_) => return Err(unreadable("ids of sessions", Effect::Read)),
    };
    let told = answer
        .body
        .get("skip")
        .and_then(|it| it.value().as_integer());
    let told = told.and_then(|next| u32::try_from(next).ok());
    let next = told.filter(|&next| next > skip && !ids.is_empty());
    Ok((ids, next))
}

pub(super) async fn schedule(
    shared: &Shared,
    entity: &Entity,
    messages: &[Encoded],
) -> Result<Vec<i64>, Error> {
    if messages.is_empty() {
        return Ok(Vec::new());
    }
    let body = Map::build(|map| {
        map.entry_with("messages", |out| {
            write_list(out, |list| {
                for message in messages {
                    list.with(|out| write_map(out, |map| scheduled(map, message)));
                }
            });
        });
    });
    let operation = "com.microsoft:schedule-message";
    let ask = Ask::new(shared, entity, operation, Effect::Change);
    let answer = ask.with_retries(&body).await?;
    match answer.body.get("sequence-numbers").map(|it| it.value()) {
        Some(Value::Array(numbers)) => {
            let numbers: Vec<i64> = numbers.iter().filter_map(|it| it.as_integer()).collect();
            match numbers.len() == messages.len() {
                true => Ok(numbers),
                false => Err(unreadable(
                    "a sequence number for each message",
                    Effect::Change,
                )),
            }
        }
        _ => Err(unreadable("sequence numbers", Effect::Change)),
    }
}

fn scheduled(map: &mut MapWriter<'_>, message: &Encoded) {
    map.entry("message-id", message.id().as_str());
    if let Some(session) = message.session_id() {
        map.entry("session-id", session);
    }
    if let Some(partition) = message.partition_key() {
        map.entry("partition-key", partition);
    }
    map.entry("message", message.bytes());
}

pub(super) async fn cancel_scheduled(
    shared: &Shared,
    entity: &Entity,
    numbers: &[i64],
) -> Result<(), Error> {
    if numbers.is_empty() {
        return Ok(());
    }
    let numbers = Value::Array(Array::longs(numbers.iter().copied()));
    let body = Map::build(|map| map.entry("sequence-numbers", &numbers));
    let operation = "com.microsoft:cancel-scheduled-message";
    let ask = Ask::new(shared, entity, operation, Effect::Change);
    ask.with_retries(&body).await.map(drop)
}

/// Locks deferred messages.
pub(super) async fn receive_deferred(
    settler: &Arc<Settler>,
    numbers: &[i64],
) -> Result<Vec<Locked>, Error> {
    if numbers.is_empty() {
        return Ok(Vec::new());
    }
    let numbers = Value::Array(Array::longs(numbers.iter().copied()));
    let body = Map::build(|map| {
        map.entry("sequence-numbers", &numbers);
        // Under a lock.
        map.entry("receiver-settle-mode", &1_u32);
        if let Some(session) = &settler.session {
            map.entry("session-id", session.as_str());
        }
    });
    // If the answer is lost, the locks end by themselves.
    let operation = "com.microsoft:receive-by-sequence-number";
    let ask = Ask::of(settler, operation, Effect::Change);
    let answer = ask.with_retries(&body).await?;
    let messages = entries(&answer)?.into_iter().map(|entry| {
        let message = read(&entry, Effect::Change)?;
        match entry.get("lock-token").map(|it| it.value()) {
            Some(Value::Uuid(token)) => {
                let lock = Lock::new(message.locked_until(), token, None, settler.clone());
                Ok(Locked::new(message, lock))
            }
            _ => Err(unreadable("a lock token", Effect::Change)),
        }
    });
    messages.collect()
}

/// Settles a message by its lock token, once.
pub(super) async fn settle(
    settler: &Settler,
    token: Uuid,
    verdict: &Verdict,
    deadline: Instant,
) -> Result<(), Error> {
    let tokens = Value::Array(Array::uuids([token]));
    let body = Map::build(|map| {
        for (name, value) in verdict.request() {
            map.entry(name, &value);
        }
        map.entry("lock-tokens", &tokens);
        if let Some(session) = &settler.session {
            map.entry("session-id", session.as_str());
        }
    });
    let operation = "com.microsoft:update-disposition";
    let ask = Ask::of(settler, operation, Effect::Change);
    ask.once(&body, deadline).await.map(drop)
}

/// Renews the lock of a message.
pub(super) async fn renew_lock(settler: &Settler, token: Uuid) -> Result<SystemTime, Error> {
    let tokens = Value::Array(Array::uuids([token]));
    let body = Map::build(|map| map.entry("lock-tokens", &tokens));
    let operation = "com.microsoft:renew-lock";
    let ask = Ask::new(&settler.shared, &settler.entity, operation, Effect::Read);
    let answer = ask.with_retries(&body).await?;
    let until = match answer.body.get("expirations").map(|it| it.value()) {
        Some(Value::Array(times)) => times.iter().next(),
        Some(Value::List(times)) => times.iter().next().map(|it| it.value()),
        _ => None,
    };
    time(until)
}

/// Renews the lock of a session.
pub(super) async fn renew_session(settler: &Settler, id: &str) -> Result<SystemTime, Error> {
    let body = Map::build(|map| map.entry("session-id", id));
    let operation = "com.microsoft:renew-session-lock";
    let ask = Ask::of(settler, operation, Effect::Read);
    let answer = ask.with_retries(&body).await?;
    time(answer.body.get("expiration").map(|it| it.value()))
}

pub(super) async fn session_state(settler: &Settler, id: &str) -> Result<Option<Bytes>, Error> {
    let body = Map::build(|map| map.entry("session-id", id));
    let operation = "com.microsoft:get-session-state";
    let ask = Ask::of(settler, operation, Effect::Read);
    let answer = ask.with_retries(&body).await?;
    match answer.body.get("session-state").map(|it| it.value()) {
        Some(Value::Binary(state)) => Ok(Some(state)),
        Some(Value::Null) | None => Ok(None),
        Some(_) => Err(unreadable("the state of a session", Effect::Read)),
    }
}

pub(super) async fn set_session_state(
    settler: &Settler,
    id: &str,
    state: Option<Bytes>,
) -> Result<(), Error> {
    let body = Map::build(|map| {
        map.entry("session-id", id);
        map.entry("session-state", &state);
    });
    let operation = "com.microsoft:set-session-state";
    // To set it again changes nothing.
    let ask = Ask::of(settler, operation, Effect::Change);
    ask.with_retries(&body).await.map(drop)
}

/// An operation of a node.
struct Ask<'a> {
    shared: &'a Shared,
    entity: &'a Entity,
    operation: &'static str,
    effect: Effect,
    link: Option<LinkKey>,
}

impl<'a> Ask<'a> {
    fn new(
        shared: &'a Shared,
        entity: &'a Entity,
        operation: &'static str,
        effect: Effect,
    ) -> Self {
        Self {
            shared,
            entity,
            operation,
            effect,
            link: None,
        }
    }

    /// One that is about what the link of a receiver has locked, if it has a session.
    fn of(settler: &'a Settler, operation: &'static str, effect: Effect) -> Self {
        let link = settler.session.is_some().then_some(settler.link);
        Self {
            link,
            ..Self::new(&settler.shared, &settler.entity, operation, effect)
        }
    }

    async fn once(&self, body: &Map, deadline: Instant) -> Result<Answer, Error> {
        let request = Request {
            operation: self.operation,
            body: body.clone(),
            link: self.link,
            timeout_ms: self.shared.timeout_ms(),
        };
        self.shared
            .request(self.entity, self.effect, request, deadline)
            .await
    }

    async fn with_retries(&self, body: &Map) -> Result<Answer, Error> {
        let deadline = self.shared.deadline();
        let attempt = || self.once(body, deadline);
        self.shared.with_retries(deadline, attempt).await
    }
}

/// The messages of an answer. If there are none, nothing is said of them.
fn entries(answer: &Answer) -> Result<Vec<Map>, Error> {
    match answer.body.get("messages").map(|it| it.value()) {
        None => Ok(Vec::new()),
        Some(Value::List(messages)) => messages
            .iter()
            .map(|entry| match entry.value() {
                Value::Map(entry) => Ok(entry),
                _ => Err(unreadable("messages", Effect::Read)),
            })
            .collect(),
        Some(_) => Err(unreadable("messages", Effect::Read)),
    }
}

fn read(entry: &Map, effect: Effect) -> Result<Received, Error> {
    match entry.get("message").map(|it| it.value()) {
        Some(Value::Binary(bytes)) => {
            Received::read(bytes).map_err(|_| unreadable("a message", effect))
        }
        _ => Err(unreadable("a message", effect)),
    }
}

fn time(value: Option<Value>) -> Result<SystemTime, Error> {
    match value {
        Some(Value::Timestamp(at)) => time_of(at).ok_or_else(|| unreadable("a time", Effect::Read)),
        _ => Err(unreadable("a time", Effect::Read)),
    }
}

/// An answer that says success, and not what was asked for.
fn unreadable(what: &str, effect: Effect) -> Error {
    let text = format!("the service answered with success and without {what}");
    match effect {
        Effect::Change => Error::unknown(text),
        Effect::Read => Error::refused(text),
    }
}
