//! Messages that an operator puts into a queue, topic or subscription.

use hyper::StatusCode;
use kew_amqp::message::BATCH_FORMAT;
use kew_broker::Rejection;
use kew_engine::bus::{BusCommand, BusOutcome};
use kew_engine::{EntityName, Outcome};
use serde::Serialize;

use super::super::answers::{Answer, HttpError};
use super::super::call::Call;
use super::parameters::json;
use crate::ground::refusal::text_of;
use crate::ground::submit::Submitted;
use crate::messages::inbound::messages_of;
use crate::shared::Shared;

#[derive(Debug, Serialize)]
struct Deposited {
    deposited: usize,
    /// Those that became dead letters for want of a session, and those that a queue or topic dropped as duplicates.
    without_number: usize,
}

/// Puts the messages of the body, a batch in AMQP, into an entity: all, or none. The number is how many they are.
pub(super) async fn put(
    shared: &Shared,
    call: &Call,
    queue: &EntityName,
) -> Result<(Answer, usize), HttpError> {
    let messages = messages_of(&call.body, BATCH_FORMAT).map_err(|error| {
        HttpError::bad_request(format!("the body is not a batch: {}", text_of(&error)))
    })?;
    let deposit = BusCommand::Deposit {
        queue: queue.clone(),
        messages,
    };
    let answer = Submitted::new(&shared.broker, deposit).answer().await;
    let answer = answer.map_err(|rejection| match rejection {
        // A client repeats what a busy server has refused, and here the messages may be there.
        Rejection::Stopped => HttpError::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "The server is stopping: whether it has the messages is unknown.",
        ),
        Rejection::Refused(_)
        | Rejection::Busy
        | Rejection::NotOwner
        | Rejection::Unknown
        | Rejection::Full
        | Rejection::ReadFailed => rejection.into(),
    })?;
    let Outcome::Bus(BusOutcome::Sent(numbers)) = answer.outcome else {
        return Err(HttpError::internal());
    };
    let deposited = Deposited {
        deposited: numbers.len(),
        without_number: numbers.iter().filter(|it| it.is_none()).count(),
    };
    let answer = json(StatusCode::OK, &deposited)?;
    Ok((answer, deposited.deposited))
}
