//! Operations on sessions. The lock of a session is that of the client's link.

use kew_amqp::codec::{Map, Value, write_list};
use kew_amqp::error::Error;
use kew_engine::bus::{BusCommand, BusOutcome, Verdict};
use kew_engine::{Outcome, Token};

use super::context::{Answered, Context, unexpected};
use super::fields::{self, wrong};
use crate::ground::refusal::error_of_verdict;
use crate::messages::outbound::wire_time;
use crate::metrics::Lock;

/// The latest time that counts as a time. Above it a client asks for sessions with messages.
const YEAR_9999_MS: u64 = 253_370_764_800_000;

/// The most sessions that one answer lists.
pub(super) const SESSIONS_LISTED_MAX: u32 = 1000;

/// The lock of the session that the request names.
fn lock(context: &Context) -> Result<Token, Error> {
    context
        .session
        .ok_or_else(|| error_of_verdict(Verdict::SessionLockLost).unwrap_or_else(unexpected))
}

pub(super) async fn renew(context: &Context) -> Result<Answered, Error> {
    let renew = BusCommand::RenewSession {
        queue: context.entity.clone(),
        session: lock(context)?,
    };
    match context.submit(renew).await?.outcome {
        Outcome::Bus(BusOutcome::SessionRenewed(until)) => {
            // It is set once: there is one request.
            let _ = context.renewed_until.set(until);
            context
                .shared
                .observer
                .instruments
                .note_renewals(Lock::Session, 1);
            Answered::map(|map| map.entry("expiration", &wire_time(until)))
        }
        _ => Err(unexpected()),
    }
}

pub(super) async fn read_state(context: &Context) -> Result<Answered, Error> {
    let read = BusCommand::ReadSessionState {
        queue: context.entity.clone(),
        session: lock(context)?,
    };
    let answer = context.submit(read).await?;
    match answer.outcome {
        Outcome::Bus(BusOutcome::SessionState(state)) => {
            let bytes = answer.bodies.into_iter().next();
            if state.is_some() && bytes.is_none() {
                // It is damaged on the disk.
                return Err(unexpected());
            }
            let state = bytes.map_or(Value::Null, Value::Binary);
            Answered::map(|map| map.entry("session-state", &state))
        }
        _ => Err(unexpected()),
    }
}

pub(super) async fn set_state(context: &Context, body: &Map) -> Result<Answered, Error> {
    let state = match fields::value(body, "session-state") {
        None => None,
        Some(value) => Some(fields::binary(value, "session-state")?),
    };
    let set = BusCommand::SetSessionState {
        queue: context.entity.clone(),
        session: lock(context)?,
        state,
    };
    context.submit(set).await?;
    Answered::map(|_| {})
}

pub(super) async fn list(context: &Context, body: &Map) -> Result<Answered, Error> {
    let set_after = fields::time(body, "last-updated-time")?;
    let skip = fields::count(body, "skip")?;
    let top = top_of(body)?;
    let state_set_after = (set_after.as_ms() < YEAR_9999_MS).then_some(set_after);
    let mut ids: Vec<Box<str>> = Vec::new();
    let mut left_to_skip = skip;
    let mut next = Some(Box::default());
    // The broker reads a part of the sessions at once.
    while let Some(from) = next
        && ids.len() < top as usize
    {
        let list = BusCommand::ListSessions {
            queue: context.entity.clone(),
            from,
            state_set_after,
            skip: left_to_skip,
            limit: top.saturating_sub(u32::try_from(ids.len()).unwrap_or(u32::MAX)),
        };
        let Outcome::Bus(BusOutcome::Sessions(listed)) = context.submit(list).await?.outcome else {
            return Err(unexpected());
        };
        left_to_skip = left_to_skip.saturating_sub(listed.skipped);
        ids.extend(listed.ids);
        next = listed.next;
    }
    if ids.is_empty() {
        return Ok(Answered::Nothing);
    }
    let next = u64::from(skip).saturating_add(ids.len() as u64);
    let next = i32::try_from(next).unwrap_or(i32::MAX);
    Answered::map(|map| {
        map.entry("skip", &next);
        map.entry_with("sessions-ids", |out| {
            write_list(out, |list| {
                for id in &ids {
                    list.field(&**id);
                }
            });
        });
    })
}

/// How many sessions to list. A client that wants more asks again, and skips these.
pub(super) fn top_of(body: &Map) -> Result<u32, Error> {
    match fields::count(body, "top")? {
        0 => Err(wrong("top", "at least 1")),
        top => Ok(top.min(SESSIONS_LISTED_MAX)),
    }
}
