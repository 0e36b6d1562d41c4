//! The calls.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::{Instant, timeout_at};

use super::Bank;
use crate::contract::{Answer, Call, Direction, MESSAGE_ID, Status};
use crate::ledger::LedgerError;
use crate::message::Message;
use crate::names::{AccountKey, InvalidName, TransactionId};
use crate::partner::{Movement, Receipt, to_call, to_receipt};
use crate::queue::{is_unsendable, may_be_sent};
use crate::request::Request;
use crate::transaction::{Details, Transaction};

/// How long a call takes at most, whatever hangs. Each step in the stores has a limit of its own
/// ([`ANSWER_MAX`](crate::ledger::ANSWER_MAX)); the queue has what is left.
const CALL_MAX: Duration = Duration::from_secs(15);

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
        (Ok(id), Ok(key)) => match bank.found(&key, &id).await {
            Ok(Some(details)) => (StatusCode::OK, Answer::completed(details)),
            Ok(None) => {
                let text = format!("transaction {id} is unknown: go ahead");
                (StatusCode::OK, Answer::new(Status::Proceed, text))
            }
            Err(error) => {
                let text = format!("user {user}, account {account}, transaction {id}: {error}");
                (status_of(&error), Answer::new(Status::Failed, text))
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
    let message = read::<Call>(&headers, body);
    let message = message.and_then(|(id, call)| bookable(call, id, Direction::Withdraw));
    let told = match message {
        Err(told) => told,
        Ok(Message { transaction, .. }) => match bank.decided(&transaction).await {
            Ok(details) => (StatusCode::OK, Answer::completed(details)),
            Err(error) => failed(&transaction, status_of(&error), &error.to_string()),
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
    let (status, answer) = match read::<Movement>(&headers, body) {
        Err(told) => told,
        Ok((id, movement)) => {
            let (call, direction) = to_call(movement);
            bank.confirm(id, call, direction).await
        }
    };
    let receipt: Receipt = to_receipt(answer);
    json(status, &receipt)
}

impl Bank {
    async fn accept(&self, headers: &HeaderMap, body: Body, direction: Direction) -> Told {
        match read(headers, body) {
            Ok((id, call)) => self.confirm(id, call, direction).await,
            Err(told) => told,
        }
    }

    async fn confirm(&self, id: TransactionId, call: Call, direction: Direction) -> Told {
        match bookable(call, id, direction) {
            Ok(message) => self.queue_once(message).await,
            Err(told) => told,
        }
    }

    /// The stored details of a transaction. Fails if its id stands for a request on another account.
    async fn found(
        &self,
        key: &AccountKey,
        id: &TransactionId,
    ) -> Result<Option<Details>, LedgerError> {
        let ledger = self.ledger()?;
        let found = ledger.look_up(key, id).await?;
        if found.is_none()
            && let Some(before) = ledger.requested(id).await?
        {
            let account = key.to_string();
            let now = Request {
                account,
                ..before.clone()
            };
            now.check_same(id, &before)?;
        }
        Ok(found)
    }

    async fn decided(&self, payment: &Transaction) -> Result<Details, LedgerError> {
        let answer = self.ledger()?.approve(payment).await?;
        Ok(answer.into_outcome())
    }

    /// Looks the transaction up, and queues it if it is new. Only an answer of the database makes it new. Two requests
    /// with the same id can both be queued; the worker's guard books one.
    async fn queue_once(&self, message: Message) -> Told {
        let (transaction, deadline) = (&message.transaction, Instant::now() + CALL_MAX);
        match self.accepted(&message).await {
            Ok(Some(details)) => return (StatusCode::OK, Answer::completed(details)),
            Ok(None) => {}
            Err(error) => return failed(transaction, status_of(&error), &error.to_string()),
        }
        let Ok(sent) = timeout_at(deadline, self.queue.send(&message)).await else {
            let why = "the queue did not answer in time; it may be queued: repeat it with the same MessageId";
            return failed(transaction, unavailable(), why);
        };
        match sent {
            Ok(()) => {
                let id = &transaction.id;
                let text = format!("transaction {id} is queued and will be booked");
                let answer = Answer::new(Status::Succeeded, text);
                let unknown = transaction.unknown.fields.clone();
                (StatusCode::ACCEPTED, answer.with_unknown(unknown))
            }
            Err(error) if is_unsendable(&error) => {
                failed(transaction, StatusCode::BAD_REQUEST, &error.to_string())
            }
            Err(error) if may_be_sent(&error) => {
                let text = format!("it may be queued; repeat it with the same MessageId ({error})");
                failed(transaction, unavailable(), &text)
            }
            Err(error) => {
                let text = format!("it is not queued ({error})");
                failed(transaction, unavailable(), &text)
            }
        }
    }

    /// The stored details, or nothing after the message was logged. Fails if the id stands for another request.
    async fn accepted(&self, message: &Message) -> Result<Option<Details>, LedgerError> {
        let (ledger, transaction) = (self.ledger()?, &message.transaction);
        let found = ledger.look_up(&transaction.key, &transaction.id).await?;
        match &found {
            Some(details) => {
                let now = Request::of_queued(transaction);
                now.check_same(&transaction.id, &Request::of_details(details, &now))?;
            }
            None => ledger.log(message).await?,
        }
        Ok(found)
    }
}

/// The message of a call, if a worker is able to book it. Everything that a worker refuses is refused here.
fn bookable(call: Call, id: TransactionId, direction: Direction) -> Result<Message, Told> {
    let unknown = call.unknown.clone();
    let ids = format!(
        "user {}, account {}, transaction {id}",
        shown(&call.user_id),
        shown(&call.account_id)
    );
    let refused = |status, error: &dyn ToString| {
        let text = format!("{ids}: {}", error.to_string());
        let answer = Answer::new(Status::Failed, text);
        (status, answer.with_unknown(unknown.clone()))
    };
    let message = call
        .into_message(id, direction)
        .map_err(|error| refused(StatusCode::BAD_REQUEST, &error))?;
    match message.to_body() {
        Ok(_) => Ok(message),
        Err(error) if error.is_size() => Err(refused(StatusCode::PAYLOAD_TOO_LARGE, &error)),
        Err(error) => Err(refused(StatusCode::BAD_REQUEST, &error)),
    }
}

/// A name as it came, cut: it may be anything.
fn shown(name: &str) -> String {
    name.chars().take(64).collect()
}

/// Of a call that was not confirmed.
fn failed(transaction: &Transaction, status: StatusCode, why: &str) -> Told {
    let answer = Answer::failed(transaction, why);
    let unknown = transaction.unknown.fields.clone();
    (status, answer.with_unknown(unknown))
}

fn status_of(error: &LedgerError) -> StatusCode {
    match error {
        LedgerError::IdReused(_) => StatusCode::CONFLICT,
        LedgerError::Store(_) => unavailable(),
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

/// The id and the body of a request. A refusal names the ids that it has.
fn read<T: DeserializeOwned>(headers: &HeaderMap, body: Body) -> Result<(TransactionId, T), Told> {
    let id = message_id(headers)?;
    let body = body.map_err(|error| {
        let text = format!("transaction {id}: {}", error.body_text());
        (error.status(), Answer::new(Status::Failed, text))
    })?;
    let read = serde_json::from_slice(&body);
    let call = read.map_err(|error| {
        let ids = ids_in(&body, &id);
        bad_request(format!("{ids}: the body is not the expected JSON: {error}"))
    })?;
    Ok((id, call))
}

/// The ids of a body that is not a call, as far as it has them.
fn ids_in(body: &[u8], id: &TransactionId) -> String {
    let fields: Value = serde_json::from_slice(body).unwrap_or_default();
    let names = [
        ("user", "userId"),
        ("account", "accountId"),
        ("contract", "contract"),
    ];
    let named = names.iter().filter_map(|(word, name)| {
        let name = fields.get(name)?.as_str()?;
        Some(format!("{word} {}, ", shown(name)))
    });
    format!("{}transaction {id}", named.collect::<String>())
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
