//! PostgreSQL, version 13 or newer.

mod outbox;
mod pool;
mod refusal;
mod schema;
mod tls;
mod transaction;

use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio_postgres::Config;
use tokio_postgres::types::Type;

use crate::error::StoreError;
use crate::key::{Key, Scope};
use crate::random;
use crate::request::Fingerprint;
use crate::store::{Begun, Record, Store};

use pool::{Borrowed, Pool, Value};
pub use tls::PostgresTls;
pub use transaction::PostgresTransaction;

/// How a store uses its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PostgresOptions {
    /// How many connections the store has at most: so many handlers can run at once. Default 8.
    pub connections_max: NonZeroU16,
    /// How long a transaction waits for a connection of the store, and for a lock. Default 10 s.
    pub wait_max: Duration,
    /// How long the server may take to accept a connection, log in included, and a connection that was not used for a
    /// while to show that it still works. Default 10 s.
    pub connect_max: Duration,
    /// How long one statement may run, those of handlers too: the server ends it then. Default 30 s. It does not hold
    /// for the commit.
    pub statement_max: Duration,
    /// How long the store waits for an answer of the server to a statement of its own. Then it closes the connection.
    /// Default 20 s; must be longer than `wait_max`.
    pub answer_max: Duration,
    /// How long a transaction may be open without a statement, before the server rolls it back: so long does a process
    /// that stands still keep its locks. Default 60 s, longer than any handler waits between two statements.
    pub idle_max: Duration,
}

impl Default for PostgresOptions {
    fn default() -> Self {
        Self {
            connections_max: const { NonZeroU16::new(8).expect("8 is not 0") },
            wait_max: Duration::from_secs(10),
            connect_max: Duration::from_secs(10),
            statement_max: Duration::from_secs(30),
            answer_max: Duration::from_secs(20),
            idle_max: Duration::from_secs(60),
        }
    }
}

/// A PostgreSQL database.
///
/// Transactions have the isolation level *read committed*. Requests with the same key wait for each other; requests with
/// other keys run at the same time, so change rows in a way that allows it (`SET balance = balance + $1`, or
/// `SELECT … FOR UPDATE` first).
///
/// The tables have names that begin with `kew_`; the first connection creates them.
#[derive(Clone, Debug)]
pub struct PostgresStore {
    pool: Arc<Pool>,
    enqueued: Arc<watch::Sender<u64>>,
}

impl PostgresStore {
    /// Connects, and creates the tables if they do not exist.
    ///
    /// `tls` replaces the setting `sslmode` of `config`. Refuses an `answer_max` that is not longer than `wait_max`: a
    /// request that waits for a lock would be taken for one without an answer.
    pub async fn connect(
        config: Config,
        tls: PostgresTls,
        options: PostgresOptions,
    ) -> Result<Self, StoreError> {
        let PostgresOptions {
            wait_max,
            answer_max,
            ..
        } = options;
        if answer_max <= wait_max {
            return Err(StoreError::refused(format!(
                "answer_max is {answer_max:?} and wait_max is {wait_max:?}: make answer_max longer"
            )));
        }
        let store = Self {
            pool: Arc::new(Pool::new(config, tls, options)),
            enqueued: Arc::new(watch::channel(0).0),
        };
        let borrowed = store.pool.take(BEGIN).await?;
        let prepared = schema::prepare(borrowed.client());
        store.pool.within(prepared).await?;
        borrowed.commit().await?;
        borrowed.give_back();
        Ok(store)
    }
}

/// Begins a transaction.
const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE";

/// Waits for other transactions with this key, and marks this transaction: the mark is gone when it ends.
const OPEN: &str = "SELECT pg_advisory_xact_lock(hashtextextended($1 || chr(10) || $2, 0)),
    set_config('kew_idempotency.transaction', $3, true)";

const FIND: &str = "SELECT outcome, fingerprint FROM kew_outcomes WHERE scope = $1 AND id = $2";

const REMOVE: &str = "WITH removed AS (
    DELETE FROM kew_outcomes WHERE scope = $1 AND id IN (
        SELECT id FROM kew_outcomes
        WHERE scope = $1 AND recorded_at < now() - $2 * interval '1 millisecond'
        ORDER BY recorded_at LIMIT $3 FOR UPDATE SKIP LOCKED)
    RETURNING 1)
    SELECT count(*) FROM removed";

impl Store for PostgresStore {
    type Transaction = PostgresTransaction;

    async fn begin(&self, key: &Key) -> Result<Begun<PostgresTransaction>, StoreError> {
        let mark = random::token()?;
        let borrowed = self.pool.take(BEGIN).await?;
        let (scope, id) = (key.scope.as_str(), key.id.as_str());
        let values: [Value<'_>; 3] = [(&scope, Type::TEXT), (&id, Type::TEXT), (&mark, Type::TEXT)];
        borrowed.query(OPEN, &values).await?;
        // A statement of its own: it sees what was committed while the first one waited.
        match recorded(&borrowed, key).await? {
            Some(record) => {
                borrowed.roll_back_later();
                Ok(Begun::Recorded(record))
            }
            None => Ok(Begun::New(PostgresTransaction::new(
                borrowed,
                key.clone(),
                mark,
                self.enqueued.clone(),
            ))),
        }
    }

    async fn find(&self, key: &Key) -> Result<Option<Record>, StoreError> {
        let borrowed = self.pool.take("").await?;
        let found = recorded(&borrowed, key).await?;
        borrowed.give_back();
        Ok(found)
    }

    async fn remove_older_than(
        &self,
        scope: &Scope,
        age: Duration,
        limit: u32,
    ) -> Result<u64, StoreError> {
        #[expect(
            clippy::cast_precision_loss,
            reason = "milliseconds of thousands of years"
        )]
        let age_ms = age.as_millis().min(1 << 50) as f64;
        let (scope, limit) = (scope.as_str(), i64::from(limit));
        let borrowed = self.pool.take(BEGIN).await?;
        let values: [Value<'_>; 3] = [
            (&scope, Type::TEXT),
            (&age_ms, Type::FLOAT8),
            (&limit, Type::INT8),
        ];
        let rows = borrowed.query(REMOVE, &values).await?;
        let removed: i64 = match rows.first() {
            Some(row) => row.try_get(0)?,
            None => 0,
        };
        borrowed.commit().await?;
        borrowed.give_back();
        Ok(u64::try_from(removed).unwrap_or(0))
    }
}

async fn recorded(borrowed: &Borrowed, key: &Key) -> Result<Option<Record>, StoreError> {
    let (scope, id) = (key.scope.as_str(), key.id.as_str());
    let values: [Value<'_>; 2] = [(&scope, Type::TEXT), (&id, Type::TEXT)];
    match borrowed.query(FIND, &values).await?.first() {
        Some(row) => {
            let fingerprint: Option<Vec<u8>> = row.try_get(1)?;
            Ok(Some(Record {
                outcome: row.try_get(0)?,
                fingerprint: fingerprint
                    .map(|it| Fingerprint::from_bytes(&it))
                    .transpose()?,
            }))
        }
        None => Ok(None),
    }
}
