//! The stores of the bank: balances, the log of messages, and transactions, in one database with the guard.
//!
//! A balance changes in the same transaction that records the outcome under `user|account` and the transaction id. So a
//! message that is delivered twice changes it once.
//!
//! Every operation has a limit of time. A database that accepts connections and answers nothing delays a call that long.

mod postgres;
mod rows;
mod sqlite;

use std::convert::Infallible;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use kew_idempotency::{
    Answer, BusinessId, ErrorKind, Guard, GuardError, GuardOptions, Json, PostgresStore, Retention,
    Scope, SqliteStore, Store, StoreError,
};
use tokio::time::timeout;

use crate::message::Message;
use crate::names::{AccountKey, TransactionId};
use crate::request::{IdReused, Request};
use crate::transaction::{Details, Transaction};

use rows::LogEntry;

pub use rows::{Balance, Loss, Row, WorkReport};

/// How long the stores may take to be opened.
const OPEN_MAX: Duration = Duration::from_secs(15);

/// How long they may take for anything else that a caller waits for.
pub const ANSWER_MAX: Duration = Duration::from_secs(5);

/// How long they may take to book a queued transaction. Less than the worker's 20 s.
const BOOK_MAX: Duration = Duration::from_secs(15);

/// How long they may take for a report over many rows.
const REPORT_MAX: Duration = Duration::from_secs(30);

/// How long a report of lost leases counts.
const LOSS_COUNTS_FOR: Duration = Duration::from_hours(1);

/// Why the stores did not do what they were asked to do.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// The id stands for another request. Trying again does not help.
    #[error(transparent)]
    IdReused(#[from] IdReused),
    /// The database.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The stores, in one of the two databases.
#[derive(Clone, Debug)]
pub enum Ledger {
    /// A file.
    Sqlite(SqliteStore),
    /// A server.
    Postgres(PostgresStore),
}

/// What a transaction may do to a balance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cover {
    /// A confirmed transaction is booked in any case: an account can be overdrawn.
    Any,
    /// Only what the balance covers.
    Balance,
}

impl Ledger {
    /// Opens a database: `postgres://…`, or the path of a file. Creates the file, its folder and the tables if they do not
    /// exist.
    pub async fn open(place: &str) -> Result<Self, StoreError> {
        within(OPEN_MAX, Self::open_now(place)).await
    }

    /// Whether the stores can perhaps be opened later, after this error. Others need a change of the settings, or of the
    /// database.
    pub fn can_open_later(error: &StoreError) -> bool {
        error.kind() != ErrorKind::Refused
    }

    async fn open_now(place: &str) -> Result<Self, StoreError> {
        match place.split_once("://") {
            Some(("postgres" | "postgresql", _)) => {
                Ok(Self::Postgres(postgres::open(place).await?))
            }
            Some((scheme, _)) => Err(StoreError::refused(format!(
                "the store {scheme}://… is not known: expected postgres://… or the path of a file"
            ))),
            None => Ok(Self::Sqlite(sqlite::open(place).await?)),
        }
    }

    /// The stored details, if the transaction is done. `None` only if the database has answered that it is not: any other
    /// trouble is an error.
    pub async fn look_up(
        &self,
        key: &AccountKey,
        id: &TransactionId,
    ) -> Result<Option<Details>, StoreError> {
        let found = async {
            match self {
                Self::Sqlite(store) => look_up(store, key, id).await,
                Self::Postgres(store) => look_up(store, key, id).await,
            }
        };
        within(ANSWER_MAX, found).await
    }

    /// The request that had this id first, if the web service had one.
    pub async fn requested(&self, id: &TransactionId) -> Result<Option<Request>, StoreError> {
        let found = async {
            match self {
                Self::Sqlite(store) => sqlite::requested(store, id.clone()).await,
                Self::Postgres(store) => postgres::requested(store, id).await,
            }
        };
        within(ANSWER_MAX, found).await
    }

    /// Reserves the id for this request, and writes the message to the log, with the fields that its shape has no place
    /// for, before it is queued. Two requests with one id cannot both pass, even if they come at the same time.
    pub async fn log(&self, message: &Message) -> Result<(), LedgerError> {
        let request = Request::of_queued(&message.transaction);
        let entry = LogEntry::of(message)?;
        let id = &message.transaction.id;
        self.reserve(id, request, Some(entry)).await
    }

    async fn reserve(
        &self,
        id: &TransactionId,
        request: Request,
        entry: Option<LogEntry>,
    ) -> Result<(), LedgerError> {
        let reserved = async {
            match self {
                Self::Sqlite(store) => sqlite::reserve(store, id.clone(), request, entry).await,
                Self::Postgres(store) => postgres::reserve(store, id, &request, entry).await,
            }
        };
        within(ANSWER_MAX, reserved).await
    }

    /// Books a transaction, once. A repeated one gets the stored details. Fails if they are those of another request.
    pub async fn book(&self, transaction: &Transaction) -> Result<Answer<Details>, LedgerError> {
        let request = Request::of_queued(transaction);
        let booked = within(BOOK_MAX, self.decide(transaction, Cover::Any));
        same_request(booked.await?, &request)
    }

    /// Books a card payment if the balance covers it, and declines it otherwise. A repeated one gets the same answer.
    /// Fails if the id stands for another request.
    pub async fn approve(&self, payment: &Transaction) -> Result<Answer<Details>, LedgerError> {
        let request = Request::of_card(payment);
        self.reserve(&payment.id, request.clone(), None).await?;
        let decided = within(ANSWER_MAX, self.decide(payment, Cover::Balance));
        same_request(decided.await?, &request)
    }

    async fn decide(
        &self,
        transaction: &Transaction,
        cover: Cover,
    ) -> Result<Answer<Details>, StoreError> {
        let id = business_id(&transaction.id)?;
        let (booked, now_ms) = (transaction.clone(), now_ms());
        let answer = match self {
            Self::Sqlite(store) => {
                let guard = guard(store, &transaction.key)?;
                let run = guard.run(&id, |open| {
                    Box::pin(open.call(move |connection| {
                        sqlite::decide(connection, booked, cover, now_ms).map(Json)
                    }))
                });
                run.await
            }
            Self::Postgres(store) => {
                let guard = guard(store, &transaction.key)?;
                let run = guard.run(&id, |open| {
                    Box::pin(async move {
                        let decided = postgres::decide(open.client(), booked, cover, now_ms);
                        decided.await.map(Json)
                    })
                });
                run.await
            }
        };
        Ok(match answer.map_err(flat)? {
            Answer::New(Json(details)) => Answer::New(details),
            Answer::Repeated(Json(details)) => Answer::Repeated(details),
        })
    }

    /// The balances of accounts in their order, at most `limit`.
    pub async fn balances(&self, limit: u32) -> Result<Vec<Balance>, StoreError> {
        let found = async {
            match self {
                Self::Sqlite(store) => sqlite::balances(store, limit).await,
                Self::Postgres(store) => postgres::balances(store, limit).await,
            }
        };
        within(REPORT_MAX, found).await
    }

    /// The transactions after a place in the order of bookings, at most `limit`.
    pub async fn transactions(&self, after: i64, limit: u32) -> Result<Vec<Row>, StoreError> {
        let found = async {
            match self {
                Self::Sqlite(store) => sqlite::transactions(store, after, limit).await,
                Self::Postgres(store) => postgres::transactions(store, after, limit).await,
            }
        };
        within(REPORT_MAX, found).await
    }

    /// Stores what a worker says about itself.
    pub async fn report(&self, report: WorkReport) -> Result<(), StoreError> {
        let stored = async {
            match self {
                Self::Sqlite(store) => sqlite::report(store, report, now_ms()).await,
                Self::Postgres(store) => postgres::report(store, &report, now_ms()).await,
            }
        };
        within(ANSWER_MAX, stored).await
    }

    /// What the workers said in the last `seconds`.
    pub async fn reports(&self, seconds: i64) -> Result<Vec<WorkReport>, StoreError> {
        let since = now_ms() - seconds * 1_000;
        let found = async {
            match self {
                Self::Sqlite(store) => sqlite::reports(store, since).await,
                Self::Postgres(store) => postgres::reports(store, since).await,
            }
        };
        within(ANSWER_MAX, found).await
    }
}

impl Ledger {
    /// Stores that a worker lost many leases, which were so long. The web service reads it.
    pub async fn report_loss(&self, lease: Duration) -> Result<(), StoreError> {
        let (now, since) = (now_ms(), losses_since_ms());
        let lease_s = i64::try_from(lease.as_secs()).unwrap_or(i64::MAX);
        let stored = async {
            match self {
                Self::Sqlite(store) => sqlite::report_loss(store, lease_s, now, since).await,
                Self::Postgres(store) => postgres::report_loss(store, lease_s, now, since).await,
            }
        };
        within(ANSWER_MAX, stored).await
    }

    /// The reports of lost leases of the last hour, the newest first.
    pub async fn losses(&self) -> Result<Vec<Loss>, StoreError> {
        let since = losses_since_ms();
        let found = async {
            match self {
                Self::Sqlite(store) => sqlite::losses(store, since).await,
                Self::Postgres(store) => postgres::losses(store, since).await,
            }
        };
        within(ANSWER_MAX, found).await
    }
}

fn losses_since_ms() -> i64 {
    let counts_for = i64::try_from(LOSS_COUNTS_FOR.as_millis()).unwrap_or(i64::MAX);
    now_ms().saturating_sub(counts_for)
}

/// Waits so long. What was begun may be done later, so the outcome is unknown.
async fn within<T, E: From<StoreError>>(
    limit: Duration,
    work: impl Future<Output = Result<T, E>>,
) -> Result<T, E> {
    timeout(limit, work).await.unwrap_or_else(|_| {
        let text = format!("the store did not answer in {limit:?}");
        Err(StoreError::unknown(text).into())
    })
}

/// Fails if the stored details are those of another request.
fn same_request(
    answer: Answer<Details>,
    request: &Request,
) -> Result<Answer<Details>, LedgerError> {
    if let Answer::Repeated(details) = &answer {
        let before = Request::of_details(details, request);
        request.check_same(&details.transaction_id, &before)?;
    }
    Ok(answer)
}

/// The guard of an account: its scope is `user|account`, and in it transaction ids are unique. A bank forgets none.
fn guard<S: Store>(store: &S, key: &AccountKey) -> Result<Guard<S>, StoreError> {
    let scope = Scope::new(&key.to_string());
    let scope = scope.map_err(|error| StoreError::refused(error.to_string()))?;
    let options = GuardOptions {
        retention: Retention::Forever,
        time_max: BOOK_MAX,
        ..GuardOptions::default()
    };
    Guard::new(store.clone(), scope, options)
}

fn business_id(id: &TransactionId) -> Result<BusinessId, StoreError> {
    BusinessId::new(id.as_str()).map_err(|error| StoreError::refused(error.to_string()))
}

async fn look_up<S: Store>(
    store: &S,
    key: &AccountKey,
    id: &TransactionId,
) -> Result<Option<Details>, StoreError> {
    let found = guard(store, key)?.look_up(&business_id(id)?).await;
    let found = found.map_err(|error: GuardError<Infallible>| match error {
        GuardError::Store(error) => error,
        other => StoreError::refused(other.to_string()),
    })?;
    Ok(found.map(|Json(details)| details))
}

/// One error for all. Its kind stays.
fn flat(error: GuardError<StoreError>) -> StoreError {
    let (kind, text) = (error.kind(), error.to_string());
    match (error, kind) {
        (GuardError::Handler(error) | GuardError::Store(error), _) => error,
        (_, Some(ErrorKind::TryAgainLater)) => StoreError::later(text),
        (_, Some(ErrorKind::OutcomeUnknown)) => StoreError::unknown(text),
        (_, Some(ErrorKind::Refused) | None) => StoreError::refused(text),
    }
}

fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    i64::try_from(since.unwrap_or_default().as_millis()).unwrap_or(i64::MAX)
}
