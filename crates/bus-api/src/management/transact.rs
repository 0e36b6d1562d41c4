//! Requests in a transaction.

use bytes::Bytes;
use kew_amqp::error::{Error, condition};
use kew_engine::bus::Disposition;
use kew_engine::{SequenceNumber, Token};
use tokio::time::Instant;

use super::context::{Answered, Context};
use super::{allowed, encode, messages};
use crate::authorization::operation::ManagementOperation as Asked;
use crate::messages::request::Request;
use crate::metrics::Settled;

/// The result of a request in a transaction.
pub(crate) enum InTransaction {
    /// These locks are ended when the transaction is committed.
    Settle(Vec<(Token, Disposition)>),
    /// These scheduled messages are cancelled when the transaction is committed.
    Cancel(Vec<SequenceNumber>),
    /// None of it can be rolled back: it is carried out at once.
    Now,
}

/// How to handle a request in a transaction.
///
/// Source: Service Bus, *Operations within a transaction scope*.
pub(crate) fn in_transaction(context: &Context, request: &Request) -> Result<InTransaction, Error> {
    let (operation, body) = allowed(context, request)?;
    match operation {
        Asked::UpdateDisposition => messages::settlements_of(body).map(InTransaction::Settle),
        Asked::CancelScheduledMessage => {
            messages::numbers_to_cancel(body).map(InTransaction::Cancel)
        }
        Asked::RenewLock
        | Asked::RenewSessionLock
        | Asked::PeekMessage
        | Asked::GetSessionState
        | Asked::GetMessageSessions
        | Asked::EnumerateRules => Ok(InTransaction::Now),
        Asked::ScheduleMessage
        | Asked::ReceiveBySequenceNumber
        | Asked::BatchDeleteMessages
        | Asked::SetSessionState
        | Asked::AddRule
        | Asked::RemoveRule => {
            let text = format!(
                "The operation '{}' is not supported in a transaction.",
                request.operation
            );
            Err(Error::new(condition::NOT_IMPLEMENTED, text))
        }
    }
}

/// The label under which a settlement is counted.
pub(crate) fn settled(disposition: &Disposition) -> Settled {
    match disposition {
        Disposition::Complete => Settled::Complete,
        Disposition::Abandon { .. } => Settled::Abandon,
        Disposition::Defer { .. } => Settled::Defer,
        Disposition::DeadLetter { .. } => Settled::DeadLetter,
        Disposition::Release => Settled::Release,
    }
}

/// The answer to a request that joined a transaction, or is refused.
pub(crate) fn answer_in_transaction(
    context: &Context,
    request: &Request,
    result: Result<(), Error>,
    began: Instant,
) -> Bytes {
    let answered = result.and_then(|()| Answered::map(|_| {}));
    encode(context, request, answered, began)
}
