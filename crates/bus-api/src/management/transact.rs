//! Requests that are made in a transaction.

use bytes::Bytes;
use kew_amqp::error::{Error, condition};
use kew_engine::bus::{Disposition, TransactionWork};
use tokio::time::Instant;

use super::{Answered, Context, allowed_body, encode, messages, operation_of};
use crate::metrics::Settled;
use crate::request::Request;

/// What a request in a transaction comes to.
pub(crate) enum InTransaction {
    /// It is done when the transaction is committed.
    Later(Vec<(TransactionWork, Option<Settled>)>),
    /// Nothing of it could be taken back: it is carried out at once.
    Now,
}

/// What becomes of a request in a transaction.
///
/// Source: Service Bus, *Operations within a transaction scope*.
pub(crate) fn in_transaction(context: &Context, request: &Request) -> Result<InTransaction, Error> {
    let body = allowed_body(context, request)?;
    match operation_of(request) {
        "update-disposition" => {
            let settlements = messages::settlements_of(body)?.into_iter();
            let work = settlements.map(|(lock, disposition)| {
                let settled = settled(&disposition);
                (TransactionWork::Settle(lock, disposition), Some(settled))
            });
            Ok(InTransaction::Later(work.collect()))
        }
        "cancel-scheduled-message" => {
            let numbers = messages::numbers_to_cancel(body)?;
            let work = TransactionWork::CancelScheduled(numbers);
            Ok(InTransaction::Later(vec![(work, None)]))
        }
        "renew-lock"
        | "renew-session-lock"
        | "peek-message"
        | "get-session-state"
        | "get-message-sessions" => Ok(InTransaction::Now),
        _ => {
            let text = format!(
                "The operation '{}' is not supported in a transaction.",
                request.operation
            );
            Err(Error::new(condition::NOT_IMPLEMENTED, text))
        }
    }
}

fn settled(disposition: &Disposition) -> Settled {
    match disposition {
        Disposition::Complete => Settled::Complete,
        Disposition::Abandon { .. } => Settled::Abandon,
        Disposition::Defer { .. } => Settled::Defer,
        Disposition::DeadLetter { .. } => Settled::DeadLetter,
        Disposition::Release => Settled::Release,
    }
}

/// The answer to a request that is part of a transaction now, or is refused.
pub(crate) fn answer_in_transaction(
    context: &Context,
    request: &Request,
    result: Result<(), Error>,
    began: Instant,
) -> Bytes {
    let answered = result.and_then(|()| Answered::map(|_| {}));
    encode(context, request, answered, began)
}
