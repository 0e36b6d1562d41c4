//! The calls.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use kew_worker::{ErrorKind, SendError};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Bank;
use crate::contract::{Answer, Call, Direction, MESSAGE_ID, Status};
use crate::message::Message;
use crate::names::{AccountKey, InvalidName, TransactionId};
use crate::partner::{Movement, Receipt, to_call, to_receipt};
use crate::queue::is_unsendable;

/// An answer with its HTTP status.
type Told = (StatusCode, Answer);

type Body = Result<Bytes, BytesRejection>;

pub(super) async fn insert(
    State(bank): State<Arc<Bank>>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    written(bank.accept(&headers, body, Direction::Insert).await)
}

pub(super) async fn withdraw(
    State(bank): State<Arc<Bank>>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    written(bank.accept(&headers, body, Direction::Withdraw).await)
}

/// What is known of a transaction: Proceed or Completed.
pub(super) async fn look_up(
    State(bank): State<Arc<Bank>>,
    Path((user, account)): Path<(String, String)>,
    headers: HeaderMap,
) -> Response {
    let key = AccountKey::new(&user, &account).map_err(bad_request);
    let told = match (message_id(&headers), key) {
        (Err(told), _) | (Ok(_), Err(told)) => told,
        (Ok(id), Ok(key)) => match bank.ledger.look_up(&key, &id).await {
            Ok(Some(details)) => (StatusCode::OK, Answer::completed(details)),
            Ok(None) => {
                let text = format!("transaction {id} is unknown: go ahead");
                (StatusCode::OK, Answer::new(Status::Proceed, text))
            }
            Err(error) => {
                let text = format!("user {user}, account {account}, transaction {id}: {error}");
                (unavailable(), Answer::new(Status::Failed, text))
            }
        },
    };
    written(told)
}

/// A card payment. It is answered at once from the balance, and never waits for the queue.
pub(super) async fn approve(
    State(bank): State<Arc<Bank>>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let message = message_id(&headers).and_then(|id| {
        let call: Call = read(body)?;
        let payment = call.into_message(id, Direction::Withdraw);
        payment.map_err(bad_request)
    });
    let told = match message {
        Err(told) => told,
        Ok(Message { transaction, .. }) => match bank.ledger.approve(&transaction).await {
            Ok(answer) => (StatusCode::OK, Answer::completed(answer.into_outcome())),
            Err(error) => {
                let answer = Answer::failed(&transaction, &error.to_string());
                (
                    unavailable(),
                    answer.with_unknown(transaction.unknown.fields),
                )
            }
        },
    };
    written(told)
}

/// An insert or a withdrawal in the partner's data model.
pub(super) async fn partner(
    State(bank): State<Arc<Bank>>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let (status, answer) = match read::<Movement>(body) {
        Err(told) => told,
        Ok(movement) => {
            let (call, direction) = to_call(movement);
            bank.confirm(&headers, call, direction).await
        }
    };
    let receipt: Receipt = to_receipt(answer);
    json(status, &receipt)
}

impl Bank {
    async fn accept(&self, headers: &HeaderMap, body: Body, direction: Direction) -> Told {
        match message_id(headers).and_then(|_| read(body)) {
            Ok(call) => self.confirm(headers, call, direction).await,
            Err(told) => told,
        }
    }

    async fn confirm(&self, headers: &HeaderMap, call: Call, direction: Direction) -> Told {
        let id = match message_id(headers) {
            Ok(id) => id,
            Err(told) => return told,
        };
        let unknown = call.unknown.clone();
        let ids = (call.user_id.clone(), call.account_id.clone());
        match call.into_message(id.clone(), direction) {
            Ok(message) => self.queue_once(message).await,
            Err(error) => {
                let (user, account) = ids;
                let text = format!("user {user}, account {account}, transaction {id}: {error}");
                let answer = Answer::new(Status::Failed, text).with_unknown(unknown);
                (StatusCode::BAD_REQUEST, answer)
            }
        }
    }

    /// Looks the transaction up, and queues it if it is new. Only an answer of the database makes it new. Two requests
    /// with the same id can both be queued; the worker's guard books one.
    async fn queue_once(&self, message: Message) -> Told {
        let transaction = &message.transaction;
        let failed = |status, why: &str| {
            let answer = Answer::failed(transaction, why);
            (
                status,
                answer.with_unknown(transaction.unknown.fields.clone()),
            )
        };
        match self.ledger.look_up(&transaction.key, &transaction.id).await {
            Ok(Some(details)) => return (StatusCode::OK, Answer::completed(details)),
            Ok(None) => {}
            Err(error) => return failed(unavailable(), &error.to_string()),
        }
        // Before the log, which would keep it.
        if let Err(error) = message.to_body() {
            return failed(StatusCode::PAYLOAD_TOO_LARGE, &error.to_string());
        }
        if let Err(error) = self.ledger.log(&message).await {
            return failed(unavailable(), &error.to_string());
        }
        match self.queue.send(&message).await {
            Ok(()) => {
                let id = &transaction.id;
                let text = format!("transaction {id} is queued and will be booked");
                let answer = Answer::new(Status::Succeeded, text);
                let unknown = transaction.unknown.fields.clone();
                (StatusCode::ACCEPTED, answer.with_unknown(unknown))
            }
            Err(error) if is_unsendable(&error) => {
                failed(StatusCode::BAD_REQUEST, &error.to_string())
            }
            Err(SendError::Target(error)) if error.kind() == ErrorKind::OutcomeUnknown => {
                let text = format!("it may be queued; repeat it with the same MessageId ({error})");
                failed(unavailable(), &text)
            }
            Err(error) => failed(unavailable(), &format!("it is not queued ({error})")),
        }
    }
}

/// The transaction id of a request.
fn message_id(headers: &HeaderMap) -> Result<TransactionId, Told> {
    let mut values = headers.get_all(MESSAGE_ID).iter();
    let id = match (values.next(), values.next()) {
        (Some(value), None) => value.to_str().ok().map(TransactionId::parse),
        (None, _) | (Some(_), Some(_)) => None,
    };
    id.unwrap_or(Err(InvalidName::MessageId))
        .map_err(bad_request)
}

fn read<T: DeserializeOwned>(body: Body) -> Result<T, Told> {
    let body = body.map_err(|error| {
        let answer = Answer::new(Status::Failed, error.body_text());
        (error.status(), answer)
    })?;
    serde_json::from_slice(&body)
        .map_err(|error| bad_request(format!("the body is not the expected JSON: {error}")))
}

fn bad_request(error: impl ToString) -> Told {
    let answer = Answer::new(Status::Failed, error.to_string());
    (StatusCode::BAD_REQUEST, answer)
}

/// Of a call that can succeed later.
fn unavailable() -> StatusCode {
    StatusCode::SERVICE_UNAVAILABLE
}

fn written((status, answer): Told) -> Response {
    json(status, &answer)
}

pub(super) fn json(status: StatusCode, value: &impl Serialize) -> Response {
    match serde_json::to_vec(value) {
        Ok(body) => {
            let kind = [(header::CONTENT_TYPE, "application/json")];
            (status, kind, body).into_response()
        }
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}
