//! Requests to an entity's node `$management`.

mod context;
mod fields;
mod messages;
mod room;
mod rules;
mod sessions;
mod transact;

pub(crate) use context::Context;
pub(crate) use transact::{InTransaction, answer_in_transaction, in_transaction, settled};

use bytes::Bytes;
use kew_amqp::codec::{Map, Raw, Symbol, Value};
use kew_amqp::error::{Error, condition};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use self::context::Answered;
use crate::authorization::operation::ManagementOperation;
use crate::ground::refusal::{bus_condition, busy, unauthorized};
use crate::memory::answers::{resize, units_of};
use crate::messages::request::{Request, encode_answer};
use crate::metrics;

/// Carries out a request, and returns the encoded answer with the room that it takes.
pub(crate) async fn answer(
    context: &Context,
    request: Request,
) -> (Bytes, Option<OwnedSemaphorePermit>) {
    let began = Instant::now();
    let (carried_out, mut taken) = match allowed(context, &request) {
        Ok((operation, body)) => carry_out_in_room(context, operation, body).await,
        Err(error) => (Err(error), None),
    };
    let encoded = encode(context, &request, carried_out, began);
    if let Some(taken) = &mut taken {
        resize(taken, units_of(encoded.len()) as usize);
    }
    (encoded, taken)
}

/// Encodes an answer, and notes it.
fn encode(
    context: &Context,
    request: &Request,
    carried_out: Result<Answered, Error>,
    began: Instant,
) -> Bytes {
    let empty = || Raw::of(&Map::default());
    let (code, text, error_condition, body) = match carried_out {
        Ok(Answered::Body(body)) => (200, "OK".to_owned(), None, body),
        Ok(Answered::Nothing) => (204, "No Content".to_owned(), None, empty()),
        Err(error) => {
            let text = error.description.as_ref().map_or("", |text| text.as_str());
            let code = status_of(error.condition.as_str());
            (code, text.to_owned(), Some(error.condition), empty())
        }
    };
    let properties = Map::build(|map| {
        map.entry("statusCode", &code);
        map.entry("statusDescription", text.as_str());
        if let Some(condition) = &error_condition {
            map.entry("errorCondition", condition as &Symbol);
        }
    });
    let answered = metrics::Answered {
        operation: operation_of(request),
        status: code,
        code: error_condition.as_ref().map(Symbol::as_str),
        took: began.elapsed(),
    };
    let entity = &context.entity.name;
    context
        .shared
        .observer
        .note_request(&context.origin, entity, &answered);
    encode_answer(&request.asked, &properties, &body)
}

/// The name of an operation without the service's.
fn operation_of(request: &Request) -> &str {
    let operation = request.operation.strip_prefix("com.microsoft:");
    operation.unwrap_or_default()
}

/// The status that belongs to a condition.
pub(crate) fn status_of(error_condition: &str) -> i32 {
    match error_condition {
        condition::UNAUTHORIZED_ACCESS => 401,
        condition::RESOURCE_LIMIT_EXCEEDED | condition::MESSAGE_SIZE_EXCEEDED => 403,
        condition::NOT_FOUND | bus_condition::MESSAGE_NOT_FOUND => 404,
        bus_condition::TIMEOUT => 408,
        bus_condition::ENTITY_ALREADY_EXISTS => 409,
        bus_condition::LOCK_LOST
        | bus_condition::SESSION_LOCK_LOST
        | bus_condition::SESSION_CANNOT_BE_LOCKED => 410,
        // The status that SDKs have for both.
        condition::INTERNAL_ERROR | bus_condition::NO_MATCHING_SUBSCRIPTION => 500,
        condition::NOT_IMPLEMENTED => 501,
        bus_condition::SERVER_BUSY => 503,
        _ => 400,
    }
}

/// The requested operation, if the client may do it, and the body of the request.
fn allowed<'a>(
    context: &Context,
    request: &'a Request,
) -> Result<(ManagementOperation, &'a Map), Error> {
    let operation = ManagementOperation::named(operation_of(request)).ok_or_else(|| {
        let text = format!("The operation '{}' is not supported.", request.operation);
        Error::new(condition::NOT_IMPLEMENTED, text)
    })?;
    if !context.rights.has(operation.right()) {
        return Err(unauthorized(&context.entity, operation.right()));
    }
    let Value::Map(body) = &request.body else {
        let text = "the body of the request must be a map";
        return Err(Error::new(bus_condition::ARGUMENT_ERROR, text));
    };
    Ok((operation, body))
}

/// Carries out an allowed operation, once there is room for the broker's answer and the encoded
/// answer.
async fn carry_out_in_room(
    context: &Context,
    operation: ManagementOperation,
    body: &Map,
) -> (Result<Answered, Error>, Option<OwnedSemaphorePermit>) {
    let size_bytes = room::size_bytes_max(operation, body);
    if size_bytes == 0 {
        return (carry_out(context, operation, body).await, None);
    }
    let taken = context.shared.answers.for_both(size_bytes).await;
    if context.is_busy {
        return (Err(busy()), taken);
    }
    (carry_out(context, operation, body).await, taken)
}

async fn carry_out(
    context: &Context,
    operation: ManagementOperation,
    body: &Map,
) -> Result<Answered, Error> {
    use ManagementOperation as Asked;
    match operation {
        Asked::RenewLock => messages::renew_locks(context, body).await,
        Asked::PeekMessage => messages::peek(context, body).await,
        Asked::ScheduleMessage => messages::schedule(context, body).await,
        Asked::CancelScheduledMessage => messages::cancel(context, body).await,
        Asked::ReceiveBySequenceNumber => messages::receive_deferred(context, body).await,
        Asked::UpdateDisposition => messages::update(context, body).await,
        Asked::BatchDeleteMessages => messages::delete(context, body).await,
        Asked::RenewSessionLock => sessions::renew(context).await,
        Asked::GetSessionState => sessions::read_state(context).await,
        Asked::SetSessionState => sessions::set_state(context, body).await,
        Asked::GetMessageSessions => sessions::list(context, body).await,
        Asked::AddRule => rules::add(context, body).await,
        Asked::RemoveRule => rules::remove(context, body).await,
        Asked::EnumerateRules => rules::list(context, body).await,
    }
}
