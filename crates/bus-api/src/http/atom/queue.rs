//! One queue: read, create, change, delete.

use std::sync::Arc;

use hyper::StatusCode;
use hyper::header::IF_MATCH;
use kew_broker::Rejection;
use kew_engine::bus::{BusCommand, BusOutcome, BusQueueView};
use kew_engine::{EntityName, Outcome};

use super::asked::AskedQueue;
use super::described;
use super::document::Entry;
use super::forward::{Targets, check_targets};
use crate::address::{entity_named, is_queue_name};
use crate::api::Shared;
use crate::http::answer::{Answer, HttpError, answer_of};
use crate::http::call::Call;
use crate::rights::Right;
use crate::submit::Submitted;

/// Source: Service Bus, *Get Queue*.
pub(super) async fn read(shared: &Arc<Shared>, call: &Call) -> Result<Answer, HttpError> {
    call.require(Right::Manage, &call.head.path)?;
    // What no queue can be called is not there.
    let name = name_of(call).ok_or_else(|| HttpError::not_found(&call.head.path))?;
    let view = view_of(shared, name).await?;
    Ok(entry(call, StatusCode::OK, &view))
}

/// Creates a queue, or changes it if the request has `If-Match: *`.
///
/// Source: Service Bus, *Create Queue* and *Update Queue*.
pub(super) async fn put(shared: &Arc<Shared>, call: &Call) -> Result<Answer, HttpError> {
    call.require(Right::Manage, &call.head.path)?;
    let name = name_of(call).ok_or_else(|| {
        HttpError::bad_request(format!(
            "The entity name or path '{}' is not valid: it has up to 260 letters, digits and . - _ /, \
             with a letter or digit at both ends.",
            call.head.path
        ))
    })?;
    let is_update = match call.head.header(IF_MATCH) {
        None => false,
        Some("*") => true,
        Some(other) => {
            let detail = format!("The header If-Match is '{other}', and must be * for an update.");
            return Err(HttpError::bad_request(detail));
        }
    };
    let asked = AskedQueue::read(&call.body)?;
    let targets = asked.targets(&call.head)?;
    check_targets(shared, call, &targets).await?;
    if is_update {
        // It runs to its end, also if the client goes away: rules that changed must be told of.
        let updating = update(Arc::clone(shared), name, asked, targets);
        let updated = tokio::spawn(updating).await.map_err(|error| {
            tracing::error!(%error, "a change of a queue panicked, which is a bug");
            internal("The server was unable to change the queue.")
        })?;
        return Ok(entry(call, StatusCode::OK, &updated?));
    }
    let options = asked.created(&call.head.path, &targets, shared.now_ms())?;
    let create = BusCommand::CreateQueue {
        queue: name,
        options,
    };
    let created = Submitted::new(&shared.broker, create).answer().await;
    if created.is_ok() {
        // What was signed by a rule of an earlier queue of that name holds no more.
        shared.rules.note_change();
    }
    let view = view(created)?;
    Ok(entry(call, StatusCode::CREATED, &view))
}

async fn update(
    shared: Arc<Shared>,
    queue: EntityName,
    asked: AskedQueue,
    targets: Targets,
) -> Result<BusQueueView, HttpError> {
    let _changing = shared.rules.changing.lock().await;
    let before = view_of(&shared, queue.clone()).await?;
    let options = asked.updated(&before, &targets, shared.now_ms())?;
    let update = BusCommand::UpdateQueue { queue, options };
    let view = view(Submitted::new(&shared.broker, update).answer().await)?;
    if asked.rules.is_some() {
        shared.rules.note_change();
    }
    Ok(view)
}

/// Source: Service Bus, *Delete Queue*.
pub(super) async fn delete(shared: &Arc<Shared>, call: &Call) -> Result<Answer, HttpError> {
    call.require(Right::Manage, &call.head.path)?;
    let queue = name_of(call).ok_or_else(|| HttpError::not_found(&call.head.path))?;
    let delete = BusCommand::DeleteQueue { queue };
    let deleting = Submitted::new(&shared.broker, delete);
    let shared = Arc::clone(shared);
    // Its rules are gone with it, which is told also if the client goes away.
    let deleted = tokio::spawn(async move {
        let deleted = deleting.answer().await;
        if !matches!(deleted, Err(Rejection::Refused(_))) {
            shared.rules.note_change();
        }
        deleted
    });
    deleted.await.map_err(|error| {
        tracing::error!(%error, "a deletion of a queue panicked, which is a bug");
        internal("The server was unable to delete the queue.")
    })??;
    Ok(answer_of(StatusCode::OK))
}

/// The queue of the path, if one can have this name. Sub-queues are not managed by themselves.
fn name_of(call: &Call) -> Option<EntityName> {
    let name = call.head.path.to_lowercase();
    entity_named(&name).filter(|_| is_queue_name(&name))
}

async fn view_of(shared: &Shared, queue: EntityName) -> Result<BusQueueView, HttpError> {
    let read = BusCommand::ReadQueue { queue };
    view(Submitted::new(&shared.broker, read).answer().await)
}

fn view(answer: Result<kew_broker::Answer, Rejection>) -> Result<BusQueueView, HttpError> {
    match answer?.outcome {
        Outcome::Bus(
            BusOutcome::Queue(view)
            | BusOutcome::QueueCreated(view)
            | BusOutcome::QueueUpdated(view),
        ) => Ok(view),
        _ => Err(internal("The server was unable to describe the queue.")),
    }
}

fn internal(detail: &str) -> HttpError {
    HttpError::new(StatusCode::INTERNAL_SERVER_ERROR, detail)
}

fn entry(call: &Call, status: StatusCode, view: &BusQueueView) -> Answer {
    let queue = described::Queue::of(view);
    let entry = Entry {
        title: queue.name(),
        path: queue.name(),
        published_at: view.created_at,
        updated_at: view.updated_at,
    };
    entry.answer(call, status, |out| queue.write(out, &call.head))
}
