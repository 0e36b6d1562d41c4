//! Requests about messages: lists, groups, and single messages by number.

use std::collections::BTreeMap;

use hyper::{Method, StatusCode};
use kew_bus_message::{DEAD_LETTER_DESCRIPTION, DEAD_LETTER_REASON};
use kew_engine::bus::{BreakTarget, BusCommand, BusMessageState, BusOutcome, ReceiveMode};
use kew_engine::{EntityName, Outcome, SequenceNumber, Timestamp};
use serde::Serialize;

use super::super::answers::Shown;
use super::super::answers::{Answer, HttpError, JSON, with_body};
use super::super::call::Call;
use super::filter::Filter;
use super::pages::{PAGE_COUNT, page};
use super::parameters::{flag, json, number_of, optional_number};
use crate::ground::submit::Submitted;
use crate::messages::batch::batch_of;
use crate::messages::outbound::Facts;
use crate::messages::view::MessageView;
use crate::shared::Shared;

/// How many messages are shown by default, and at most.
const SHOWN_DEFAULT: u64 = 100;
const SHOWN_MAX: u64 = 1000;
/// The most bytes of messages in one answer, unless the first message has more.
const WRITTEN_SIZE_BYTES_MAX: usize = 8 << 20;
/// How many messages one request reads by default, and at most.
const LOOKED_AT_DEFAULT: u64 = 10_000;
const LOOKED_AT_MAX: u64 = 100_000;
/// How many groups are distinguished; the rest is counted together.
const GROUPS_MAX: usize = 1000;
/// How many characters of a group's texts are compared and shown.
const TEXT_LENGTH_MAX: usize = 256;

/// Messages that are written one after another, as long as they fit.
struct Messages {
    out: Vec<u8>,
    count: u64,
    looked_at: u64,
    /// Where to continue, if there may be more.
    next: Option<u64>,
}

impl Messages {
    fn begin() -> Self {
        Self {
            out: br#"{"messages":["#.to_vec(),
            count: 0,
            looked_at: 0,
            next: None,
        }
    }

    /// Writes one more message, if there is room for all of it.
    fn takes(&mut self, view: &MessageView) -> Result<bool, HttpError> {
        let written = serde_json::to_vec(view).map_err(|_| HttpError::internal())?;
        if self.count > 0 {
            if self.out.len() + written.len() > WRITTEN_SIZE_BYTES_MAX {
                return Ok(false);
            }
            self.out.push(b',');
        }
        self.out.extend_from_slice(&written);
        self.count += 1;
        Ok(true)
    }

    fn answer(mut self) -> Answer {
        let next = self.next.map_or("null".to_owned(), |next| next.to_string());
        let rest = format!(r#"],"looked_at":{},"next":{next}}}"#, self.looked_at);
        self.out.extend_from_slice(rest.as_bytes());
        with_body(StatusCode::OK, JSON, self.out)
    }
}

/// Messages that match, in the order of their numbers.
pub(super) async fn list(
    shared: &Shared,
    call: &Call,
    queue: &EntityName,
) -> Result<Answer, HttpError> {
    let head = &call.head;
    let filter = Filter::of_query(head, &["limit", "scan", "bodies"])?;
    let limit = optional_number(call, "limit", SHOWN_DEFAULT, 1..=SHOWN_MAX)?;
    let scan = optional_number(call, "scan", LOOKED_AT_DEFAULT, 1..=LOOKED_AT_MAX)?;
    let with_bodies = flag(call, "bodies", true)?;
    let mut listed = Messages::begin();
    let mut from = Some(filter.first());
    'pages: while let Some(first) = from {
        let page = page(&shared.broker, queue, first, PAGE_COUNT).await?;
        for (message, shown) in &page.messages {
            let number = message.sequence_number;
            if filter.is_beyond(number) {
                break 'pages;
            }
            let is_full = listed.looked_at == scan || listed.count == limit;
            let is_meant = || filter.matches(message, shown);
            let view = || {
                let view = MessageView::of_peeked(message, shown);
                match with_bodies {
                    true => view,
                    false => view.without_body(),
                }
            };
            if is_full || (is_meant() && !listed.takes(&view())?) {
                listed.next = Some(number.as_u64());
                break 'pages;
            }
            listed.looked_at += 1;
        }
        from = page.next;
    }
    Ok(listed.answer())
}

/// Messages that have the same key properties.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
struct Kind {
    reason: Option<String>,
    description: Option<String>,
    subject: Option<String>,
    content_type: Option<String>,
}

#[derive(Debug, Serialize)]
struct Group {
    #[serde(flatten)]
    kind: Kind,
    count: u64,
    first_sequence_number: u64,
    last_sequence_number: u64,
}

#[derive(Debug, Serialize)]
struct Groups {
    /// The largest first.
    groups: Vec<Group>,
    /// Messages of further groups.
    others: u64,
    looked_at: u64,
    next: Option<u64>,
}

pub(super) async fn groups(
    shared: &Shared,
    call: &Call,
    queue: &EntityName,
) -> Result<Answer, HttpError> {
    let filter = Filter::of_query(&call.head, &["scan"])?;
    let scan = optional_number(call, "scan", LOOKED_AT_DEFAULT, 1..=LOOKED_AT_MAX)?;
    let mut by_kind: BTreeMap<Kind, Group> = BTreeMap::new();
    let (mut others, mut looked_at, mut next) = (0, 0, None);
    let mut from = Some(filter.first());
    'pages: while let Some(first) = from {
        let page = page(&shared.broker, queue, first, PAGE_COUNT).await?;
        for (message, shown) in &page.messages {
            let number = message.sequence_number;
            if filter.is_beyond(number) {
                break 'pages;
            }
            if looked_at == scan {
                next = Some(number.as_u64());
                break 'pages;
            }
            looked_at += 1;
            if !filter.matches(message, shown) {
                continue;
            }
            let kind = kind_of(shown);
            if by_kind.len() >= GROUPS_MAX && !by_kind.contains_key(&kind) {
                others += 1;
                continue;
            }
            let group = by_kind.entry(kind.clone()).or_insert(Group {
                kind,
                count: 0,
                first_sequence_number: number.as_u64(),
                last_sequence_number: number.as_u64(),
            });
            group.count += 1;
            group.last_sequence_number = number.as_u64();
        }
        from = page.next;
    }
    let mut groups: Vec<Group> = by_kind.into_values().collect();
    groups.sort_by_key(|group| std::cmp::Reverse(group.count));
    let groups = Groups {
        groups,
        others,
        looked_at,
        next,
    };
    json(StatusCode::OK, &groups)
}

fn kind_of(shown: &Shown) -> Kind {
    let cut = |text: Option<&str>| text.map(|text| text.chars().take(TEXT_LENGTH_MAX).collect());
    let property = |name| cut(shown.text_property(name).as_deref());
    Kind {
        reason: property(DEAD_LETTER_REASON),
        description: property(DEAD_LETTER_DESCRIPTION),
        subject: cut(shown.properties.subject.as_ref().map(|it| it.as_str())),
        content_type: cut(shown.content_type()),
    }
}

/// One message by its number: to show, take or delete it.
pub(super) async fn one(
    shared: &Shared,
    call: &Call,
    queue: &EntityName,
) -> Result<Answer, HttpError> {
    let number = number_of(call)?;
    match call.head.method {
        Method::GET => {
            let page = page(&shared.broker, queue, number, 1).await?;
            let found = page.messages.first();
            let found = found.filter(|(message, _)| message.sequence_number == number);
            let (message, shown) = found.ok_or_else(|| no_message(number))?;
            json(StatusCode::OK, &MessageView::of_peeked(message, shown))
        }
        Method::POST => take(shared, call, queue, number).await,
        _ => delete(shared, call, queue, number).await,
    }
}

fn no_message(number: SequenceNumber) -> HttpError {
    let text = format!(
        "there is no message with sequence number {}",
        number.as_u64()
    );
    HttpError::new(StatusCode::NOT_FOUND, text)
}

async fn take(
    shared: &Shared,
    call: &Call,
    queue: &EntityName,
    number: SequenceNumber,
) -> Result<Answer, HttpError> {
    let mode = match call.head.parameter("mode") {
        Some("lock") => ReceiveMode::PeekLock,
        Some("delete") => ReceiveMode::ReceiveAndDelete,
        _ => return Err(HttpError::bad_request("mode must be lock or delete")),
    };
    let take = BusCommand::TakeMessage {
        queue: queue.clone(),
        number,
        mode,
    };
    let answer = Submitted::new(&shared.broker, take).answer().await?;
    let taken = batch_of(answer).into_iter().next();
    let (message, stored) = taken.ok_or_else(HttpError::internal)?;
    let shown = Shown::of(Facts::from(&message), stored).ok_or_else(HttpError::internal)?;
    let (state, due_at) = match message.lock {
        Some(_) => (
            BusMessageState::Locked { deferred: false },
            message.locked_until,
        ),
        None => (message.state, Timestamp::NEVER),
    };
    json(StatusCode::OK, &MessageView::of(state, due_at, &shown))
}

#[derive(Debug, Serialize)]
struct Deleted {
    deleted: u64,
    dry_run: bool,
}

async fn delete(
    shared: &Shared,
    call: &Call,
    queue: &EntityName,
    number: SequenceNumber,
) -> Result<Answer, HttpError> {
    let with_locked = flag(call, "with_locked", false)?;
    let deleted = Deleted {
        deleted: number.as_u64(),
        dry_run: flag(call, "dry_run", false)?,
    };
    if deleted.dry_run {
        let page = page(&shared.broker, queue, number, 1).await?;
        let found = page.messages.first();
        let found = found.filter(|(message, _)| message.sequence_number == number);
        let (message, _) = found.ok_or_else(|| no_message(number))?;
        if matches!(message.state, BusMessageState::Locked { .. }) && !with_locked {
            let text = format!(
                "the message with sequence number {} is locked",
                number.as_u64()
            );
            return Err(HttpError::new(StatusCode::CONFLICT, text));
        }
        return json(StatusCode::OK, &deleted);
    }
    let delete = BusCommand::DeleteMessage {
        queue: queue.clone(),
        number,
        with_locked,
    };
    Submitted::new(&shared.broker, delete).answer().await?;
    json(StatusCode::OK, &deleted)
}

#[derive(Debug, Serialize)]
struct Broken {
    broken: bool,
}

/// Ends the lock of a message or of a session.
pub(super) async fn break_lock(
    shared: &Shared,
    call: &Call,
    queue: &EntityName,
) -> Result<Answer, HttpError> {
    let target = match (
        call.head.parameter("number"),
        call.head.parameter("session"),
    ) {
        (Some(_), None) => BreakTarget::Message(number_of(call)?),
        (None, Some(session)) => BreakTarget::Session(session.into()),
        _ => return Err(HttpError::bad_request("set either number or session")),
    };
    let break_lock = BusCommand::BreakLock {
        queue: queue.clone(),
        target,
    };
    match Submitted::new(&shared.broker, break_lock)
        .answer()
        .await?
        .outcome
    {
        Outcome::Bus(BusOutcome::LockBroken) => json(StatusCode::OK, &Broken { broken: true }),
        _ => Err(HttpError::internal()),
    }
}
