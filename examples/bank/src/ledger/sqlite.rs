//! The stores in SQLite.

use kew_idempotency::rusqlite::{
    self, Connection, OptionalExtension as _, Row as SqlRow, params, params_from_iter,
};
use kew_idempotency::{SqliteOptions, SqliteStore, StoreError};

use super::{Balance, Cover, LogEntry, Row, WorkReport, details_of};
use crate::money::Money;
use crate::transaction::{Decision, Details, Transaction};

const CREATE: &str = "
CREATE TABLE IF NOT EXISTS balances (
    user_id TEXT NOT NULL,
    account_id TEXT NOT NULL,
    cents INTEGER NOT NULL,
    PRIMARY KEY (user_id, account_id)
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS message_log (
    sequence INTEGER PRIMARY KEY AUTOINCREMENT,
    logged_at_ms INTEGER NOT NULL,
    account_key TEXT NOT NULL,
    transaction_id TEXT NOT NULL,
    shape TEXT NOT NULL,
    body TEXT NOT NULL,
    unknown TEXT NOT NULL
) STRICT;
CREATE INDEX IF NOT EXISTS message_log_by_transaction ON message_log (account_key, transaction_id);
CREATE TABLE IF NOT EXISTS transactions (
    sequence INTEGER PRIMARY KEY AUTOINCREMENT,
    account_key TEXT NOT NULL,
    transaction_id TEXT NOT NULL,
    cents INTEGER NOT NULL,
    UNIQUE (account_key, transaction_id)
) STRICT;
CREATE TABLE IF NOT EXISTS workers (
    instance TEXT PRIMARY KEY,
    reported_at_ms INTEGER NOT NULL,
    in_flight INTEGER NOT NULL,
    completed INTEGER NOT NULL,
    failed INTEGER NOT NULL,
    buried INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
";

pub(super) async fn open(path: &str) -> Result<SqliteStore, StoreError> {
    let store = SqliteStore::open(path, SqliteOptions::default()).await?;
    store
        .write(|connection: &Connection| Ok::<_, StoreError>(connection.execute_batch(CREATE)?))
        .await?;
    Ok(store)
}

pub(super) async fn log(store: &SqliteStore, entry: LogEntry) -> Result<(), StoreError> {
    let insert = move |connection: &Connection| {
        connection.execute(
            "INSERT INTO message_log
                 (logged_at_ms, account_key, transaction_id, shape, body, unknown)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
            params![
                entry.logged_at_ms,
                entry.key,
                entry.id,
                entry.shape,
                entry.body,
                entry.unknown
            ],
        )?;
        Ok(())
    };
    store.write(insert).await
}

/// Changes the balance and writes the transaction, in the transaction of the guard.
pub(super) fn decide(
    connection: &Connection,
    mut transaction: Transaction,
    cover: Cover,
    now_ms: i64,
) -> Result<Details, StoreError> {
    let key = transaction.key.to_string();
    let (user, account) = (transaction.key.user(), transaction.key.account());
    let cents = transaction.amount.cents();
    if cover == Cover::Balance {
        let query = "SELECT cents FROM balances WHERE user_id = ?1 AND account_id = ?2";
        let balance = connection.query_row(query, [user, account], |row| row.get(0));
        let balance: i64 = balance.optional()?.unwrap_or(0);
        if balance.saturating_add(cents) < 0 {
            return Ok(details_of(transaction, Decision::Declined, balance, now_ms));
        }
    }
    let change = "INSERT INTO balances (user_id, account_id, cents) VALUES (?1, ?2, ?3)
        ON CONFLICT (user_id, account_id) DO UPDATE SET cents = cents + excluded.cents
        RETURNING cents";
    let balance: i64 =
        connection.query_row(change, params![user, account, cents], |row| row.get(0))?;
    let insert =
        "INSERT INTO transactions (account_key, transaction_id, cents) VALUES (?1, ?2, ?3)";
    let id = transaction.id.as_str();
    connection.execute(insert, params![key, id, cents])?;
    if transaction.unknown.is_empty() {
        // The text shape has no place for them.
        let query = "SELECT unknown FROM message_log
            WHERE account_key = ?1 AND transaction_id = ?2 ORDER BY sequence LIMIT 1";
        let logged = connection.query_row(query, [&key, id], |row| row.get(0));
        let logged: Option<String> = logged.optional()?;
        transaction.unknown = super::unknown_of(logged.as_deref())?;
    }
    Ok(details_of(transaction, Decision::Booked, balance, now_ms))
}

pub(super) async fn balances(store: &SqliteStore, limit: u32) -> Result<Vec<Balance>, StoreError> {
    let query = "SELECT user_id || '|' || account_id, cents FROM balances
        ORDER BY user_id, account_id LIMIT ?1";
    let read = |row: &SqlRow<'_>| {
        Ok(Balance {
            key: row.get(0)?,
            balance: Money::from_cents(row.get(1)?),
        })
    };
    rows(store, query, [i64::from(limit), 0], read).await
}

pub(super) async fn transactions(
    store: &SqliteStore,
    after: i64,
    limit: u32,
) -> Result<Vec<Row>, StoreError> {
    let query = "SELECT sequence, account_key, transaction_id, cents FROM transactions
        WHERE sequence > ?2 ORDER BY sequence LIMIT ?1";
    let read = |row: &SqlRow<'_>| {
        Ok(Row {
            sequence: row.get(0)?,
            key: row.get(1)?,
            id: row.get(2)?,
            amount: Money::from_cents(row.get(3)?),
        })
    };
    rows(store, query, [i64::from(limit), after], read).await
}

pub(super) async fn report(
    store: &SqliteStore,
    report: WorkReport,
    now_ms: i64,
) -> Result<(), StoreError> {
    let write = move |connection: &Connection| {
        connection.execute(
            "INSERT OR REPLACE INTO workers
                 (instance, reported_at_ms, in_flight, completed, failed, buried)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
            params![
                report.instance,
                now_ms,
                report.in_flight,
                report.completed,
                report.failed,
                report.buried
            ],
        )?;
        Ok(())
    };
    store.write(write).await
}

pub(super) async fn reports(
    store: &SqliteStore,
    since_ms: i64,
) -> Result<Vec<WorkReport>, StoreError> {
    let query = "SELECT instance, in_flight, completed, failed, buried FROM workers
        WHERE reported_at_ms > ?2 ORDER BY instance LIMIT ?1";
    let read = |row: &SqlRow<'_>| {
        Ok(WorkReport {
            instance: row.get(0)?,
            in_flight: row.get(1)?,
            completed: row.get(2)?,
            failed: row.get(3)?,
            buried: row.get(4)?,
        })
    };
    rows(store, query, [100, since_ms], read).await
}

/// The rows of a query with two numbers, the first of which is the limit.
async fn rows<T: Send + 'static>(
    store: &SqliteStore,
    query: &'static str,
    numbers: [i64; 2],
    read: fn(&SqlRow<'_>) -> rusqlite::Result<T>,
) -> Result<Vec<T>, StoreError> {
    let collect = move |connection: &Connection| {
        let mut statement = connection.prepare(query)?;
        let used = statement.parameter_count();
        let numbers = params_from_iter(numbers.into_iter().take(used));
        let found = statement.query_map(numbers, read)?;
        let rows: Result<Vec<T>, _> = found.collect();
        Ok(rows?)
    };
    store.read(collect).await
}
