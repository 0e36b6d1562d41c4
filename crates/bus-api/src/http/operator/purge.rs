//! Purges: by range in the engine's own slices, or by the content of messages, one by one.

use kew_broker::{Broker, Rejection};
use kew_engine::bus::{BusCommand, BusMessageState, BusOutcome, BusRefusal, Purge};
use kew_engine::{EntityName, Refusal, SequenceNumber, Timestamp};
use serde::Deserialize;

use super::super::answers::HttpError;
use super::filter::Filter;
use super::jobs::Job;
use super::pages::{Walk, answer, end_of, patiently};
use crate::ground::submit::Submitted;

/// How many messages one command deletes: few enough to serve other clients in between.
const COUNT_AT_ONCE: u32 = 1000;

/// What to purge.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Request {
    pub(super) filter: Filter,
    /// Whether to delete locked messages too.
    with_locked: bool,
    /// Whether to clear the states of sessions that have no messages then.
    session_states: bool,
    pub(super) dry_run: bool,
}

pub(super) async fn run(
    broker: &Broker,
    queue: &EntityName,
    request: &Request,
    job: &Job,
) -> Result<(), HttpError> {
    let until = end_of(broker, job, queue).await?;
    match request.filter.as_range() {
        Some((to, before)) => {
            let last = to.map_or(until, |to| {
                SequenceNumber::named(to.saturating_add(1)).min(until)
            });
            by_range(broker, queue, request, (last, before), job).await?;
        }
        None => by_filter(broker, queue, request, until, job).await?,
    }
    if request.session_states && !job.is_cancelled() {
        clear_session_states(broker, queue, request, job).await?;
    }
    Ok(())
}

async fn by_range(
    broker: &Broker,
    queue: &EntityName,
    request: &Request,
    (until, before): (SequenceNumber, Option<Timestamp>),
    job: &Job,
) -> Result<(), HttpError> {
    let mut from = Some(request.filter.first());
    while let Some(first) = from.filter(|_| !job.is_cancelled()) {
        let purge = Purge {
            from: first,
            until: Some(until),
            before,
            count: COUNT_AT_ONCE,
            with_locked: request.with_locked,
            is_dry_run: request.dry_run,
        };
        let purge = BusCommand::Purge {
            queue: queue.clone(),
            purge,
        };
        let BusOutcome::Purged(purged) = patiently(broker, job, purge).await? else {
            return Err(HttpError::internal());
        };
        job.note(|progress| {
            let (done, locked) = (u64::from(purged.count), u64::from(purged.locked_count));
            progress.looked_at += done + locked;
            progress.matched += done + locked;
            progress.done += done;
            progress.skip("locked", locked);
        });
        from = purged.next;
    }
    Ok(())
}

async fn by_filter(
    broker: &Broker,
    queue: &EntityName,
    request: &Request,
    until: SequenceNumber,
    job: &Job,
) -> Result<(), HttpError> {
    let mut walk = Walk {
        broker,
        queue,
        filter: &request.filter,
        job,
        until,
        from: Some(request.filter.first()),
    };
    while let Some(messages) = walk.next().await? {
        let mut deletions = Vec::new();
        for (message, _) in &messages {
            let is_locked = matches!(message.state, BusMessageState::Locked { .. });
            if is_locked && !request.with_locked {
                job.note(|progress| progress.skip("locked", 1));
            } else if request.dry_run {
                job.note(|progress| progress.done += 1);
            } else {
                let delete = BusCommand::DeleteMessage {
                    queue: queue.clone(),
                    number: message.sequence_number,
                    with_locked: request.with_locked,
                };
                // All deletions of a page are in progress at once, and become durable together.
                deletions.push((delete.clone(), Submitted::new(broker, delete)));
            }
        }
        for (delete, deletion) in deletions {
            let deleted = match deletion.answer().await {
                Err(
                    Rejection::Busy | Rejection::NotOwner | Rejection::Full | Rejection::ReadFailed,
                ) => answer(broker, job, delete).await,
                deleted => deleted,
            };
            note_deletion(deleted, job)?;
        }
    }
    Ok(())
}

fn note_deletion(
    answer: Result<kew_broker::Answer, Rejection>,
    job: &Job,
) -> Result<(), HttpError> {
    let skipped = match answer {
        Ok(_) => None,
        Err(Rejection::Refused(Refusal::Bus(BusRefusal::MessageNotFound { .. }))) => Some("gone"),
        Err(Rejection::Refused(Refusal::Bus(BusRefusal::MessageLocked { .. }))) => Some("locked"),
        // The job was cancelled while the broker was busy.
        Err(Rejection::Busy | Rejection::NotOwner | Rejection::Full | Rejection::ReadFailed)
            if job.is_cancelled() =>
        {
            return Ok(());
        }
        Err(rejection) => return Err(rejection.into()),
    };
    job.note(|progress| match skipped {
        None => progress.done += 1,
        Some(why) => progress.skip(why, 1),
    });
    Ok(())
}

async fn clear_session_states(
    broker: &Broker,
    queue: &EntityName,
    request: &Request,
    job: &Job,
) -> Result<(), HttpError> {
    let mut from = Some(Box::default());
    while let Some(first) = from.filter(|_| !job.is_cancelled()) {
        let clear = BusCommand::ClearSessionStates {
            queue: queue.clone(),
            from: first,
            count: COUNT_AT_ONCE,
            is_dry_run: request.dry_run,
        };
        let BusOutcome::SessionStatesCleared(cleared) = patiently(broker, job, clear).await? else {
            return Err(HttpError::internal());
        };
        job.note(|progress| progress.session_states += u64::from(cleared.count));
        from = cleared.next;
    }
    Ok(())
}
