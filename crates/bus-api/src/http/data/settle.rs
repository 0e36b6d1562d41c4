//! What the holder of a lock may do with its message.

use hyper::StatusCode;
use kew_engine::bus::{BusCommand, BusOutcome, Disposition, Verdict};
use kew_engine::{EntityName, Outcome, Token};

use super::super::answers::Shown;
use super::super::answers::{Answer, HttpError, answer_of};
use super::broker_properties::id_text;
use super::values::parse_uuid;
use crate::ground::refusal::{claimed, error_of_verdict, text_of};
use crate::ground::submit::Submitted;
use crate::messages::outbound::Facts;
use crate::shared::Shared;

/// What to do with a lock.
#[derive(Clone, Copy, Debug)]
pub(super) enum Act {
    Complete,
    Abandon,
    Renew,
}

/// Source: Service Bus, REST, *Delete Message*, *Unlock Message*, *Renew-Lock for a Message*.
pub(super) async fn settle(
    shared: &Shared,
    queue: EntityName,
    act: Act,
    message: &str,
    lock: &str,
) -> Result<Answer, HttpError> {
    let lock = parse_uuid(lock).map(Token::from_bytes).ok_or_else(|| {
        HttpError::bad_request(format!("'{lock}' is not a lock token: it must be a UUID"))
    })?;
    check_is_of(shared, &queue, lock, message).await?;
    let disposition = match act {
        Act::Complete => Disposition::Complete,
        Act::Abandon => Disposition::Abandon { overlay: None },
        Act::Renew => return renew(shared, queue, lock).await,
    };
    if shared.claims.has(lock) {
        return Err(HttpError::new(StatusCode::CONFLICT, text_of(&claimed())).with_sub_code(40_901));
    }
    let settle = BusCommand::Settle {
        queue,
        settlements: vec![(lock, disposition)],
    };
    match Submitted::new(&shared.broker, settle)
        .answer()
        .await?
        .outcome
    {
        Outcome::Bus(BusOutcome::Settled(verdicts)) => match verdicts.first() {
            Some(Verdict::Settled) => Ok(answer_of(StatusCode::OK)),
            Some(verdict) => Err(of_verdict(*verdict)),
            None => Err(HttpError::internal()),
        },
        _ => Err(HttpError::internal()),
    }
}

async fn renew(shared: &Shared, queue: EntityName, lock: Token) -> Result<Answer, HttpError> {
    let renew = BusCommand::RenewLocks {
        queue,
        locks: vec![lock],
    };
    Submitted::new(&shared.broker, renew).answer().await?;
    Ok(answer_of(StatusCode::OK))
}

/// Refuses a lock that does not belong to the message with that number or id.
async fn check_is_of(
    shared: &Shared,
    queue: &EntityName,
    lock: Token,
    message: &str,
) -> Result<(), HttpError> {
    let read = BusCommand::ReadLocked {
        queue: queue.clone(),
        lock,
    };
    let answer = Submitted::new(&shared.broker, read).answer().await?;
    let Outcome::Bus(BusOutcome::Peeked(locked)) = answer.outcome else {
        return Err(HttpError::internal());
    };
    // A message with damaged bytes is not shown, and its number is not known.
    let locked = locked.first().ok_or_else(HttpError::internal)?;
    if message.parse() == Ok(locked.sequence_number.as_u64()) {
        return Ok(());
    }
    let shown = Shown::of(Facts::from(locked), answer.bodies);
    let id = shown.and_then(|shown| shown.properties.message_id.as_ref().map(id_text));
    if id.as_deref() == Some(message) {
        return Ok(());
    }
    let detail = format!("The lock is not a lock of the message '{message}'.");
    Err(HttpError::new(StatusCode::NOT_FOUND, detail).with_sub_code(40_400))
}

fn of_verdict(verdict: Verdict) -> HttpError {
    let (status, sub_code) = match verdict {
        Verdict::LockLost | Verdict::SessionLockLost => (StatusCode::GONE, 41_000),
        Verdict::QuotaExceeded => (StatusCode::FORBIDDEN, 40_300),
        Verdict::Settled | Verdict::NotAllowed | Verdict::TooManyChanges => {
            (StatusCode::BAD_REQUEST, 40_000)
        }
    };
    let error = error_of_verdict(verdict);
    let text = error.as_ref().map_or("", text_of);
    HttpError::new(status, text).with_sub_code(sub_code)
}
