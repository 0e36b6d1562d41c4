//! The stores in SQLite.

use std::io;
use std::path::Path;

use kew_idempotency::rusqlite::{
    self, Connection, OptionalExtension as _, Row as SqlRow, params, params_from_iter,
};
use kew_idempotency::{SqliteOptions, SqliteStore, StoreError};

use super::rows::{Balance, LogEntry, Loss, Row, WorkReport, details_of, request_of, unknown_of};
use super::{Cover, LedgerError};
use crate::money::Money;
use crate::names::TransactionId;
use crate::request::Request;
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
CREATE TABLE IF NOT EXISTS requests (
    transaction_id TEXT PRIMARY KEY,
    account_key TEXT NOT NULL,
    kind TEXT NOT NULL,
    cents INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
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
CREATE TABLE IF NOT EXISTS lost_leases (
    sequence INTEGER PRIMARY KEY AUTOINCREMENT,
    reported_at_ms INTEGER NOT NULL,
    lease_s INTEGER NOT NULL
) STRICT;
";

pub(super) async fn open(path: &str) -> Result<SqliteStore, StoreError> {
    if let Some(folder) = Path::new(path).parent() {
        let cannot = |error: io::Error| {
            let text = format!("the folder {} cannot be created", folder.display());
            StoreError::refused(text).because(error)
        };
        std::fs::create_dir_all(folder).map_err(cannot)?;
    }
    let store = SqliteStore::open(path, SqliteOptions::default()).await?;
    store
        .write(|connection: &Connection| Ok::<_, StoreError>(connection.execute_batch(CREATE)?))
        .await?;
    Ok(store)
}

/// Writes the request under its id, or fails if another one is there. Then the log.
pub(super) async fn reserve(
    store: &SqliteStore,
    id: TransactionId,
    request: Request,
    entry: Option<LogEntry>,
) -> Result<(), LedgerError> {
    let write = move |connection: &Connection| {
        let Request {
            account,
            kind,
            amount,
        } = &request;
        let insert = "INSERT INTO requests (transaction_id, account_key, kind, cents)
            VALUES (?1, ?2, ?3, ?4) ON CONFLICT DO NOTHING";
        let values = params![id.as_str(), account, kind.as_str(), amount.cents()];
        connection
            .execute(insert, values)
            .map_err(StoreError::from)?;
        if let Some(before) = read_request(connection, &id)? {
            request.check_same(&id, &before)?;
        }
        if let Some(entry) = &entry {
            log(connection, entry)?;
        }
        Ok(())
    };
    store.write(write).await
}

fn log(connection: &Connection, entry: &LogEntry) -> Result<(), StoreError> {
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
}

pub(super) async fn requested(
    store: &SqliteStore,
    id: TransactionId,
) -> Result<Option<Request>, StoreError> {
    let read = move |connection: &Connection| read_request(connection, &id);
    store.read(read).await
}

fn read_request(
    connection: &Connection,
    id: &TransactionId,
) -> Result<Option<Request>, StoreError> {
    let query = "SELECT account_key, kind, cents FROM requests WHERE transaction_id = ?1";
    let read = |row: &SqlRow<'_>| Ok((row.get(0)?, row.get::<_, String>(1)?, row.get(2)?));
    let found = connection
        .query_row(query, [id.as_str()], read)
        .optional()?;
    found
        .map(|(account, kind, cents)| request_of(account, &kind, cents))
        .transpose()
}

/// Changes the balance and writes the transaction, in the transaction of the guard. A balance that cannot be counted is
/// an outcome too: the database would refuse it each time.
pub(super) fn decide(
    connection: &Connection,
    mut transaction: Transaction,
    cover: Cover,
    now_ms: i64,
) -> Result<Details, StoreError> {
    let key = transaction.key.to_string();
    let (user, account) = (transaction.key.user(), transaction.key.account());
    let cents = transaction.amount.cents();
    let query = "SELECT cents FROM balances WHERE user_id = ?1 AND account_id = ?2";
    let balance = connection.query_row(query, [user, account], |row| row.get(0));
    let before: i64 = balance.optional()?.unwrap_or(0);
    let end = |transaction, decision, balance| {
        Ok(details_of(transaction, cover, decision, balance, now_ms))
    };
    let Some(balance) = before.checked_add(cents) else {
        return end(transaction, Decision::OutOfRange, before);
    };
    if cover == Cover::Balance && balance < 0 {
        return end(transaction, Decision::Declined, before);
    }
    let change = "INSERT INTO balances (user_id, account_id, cents) VALUES (?1, ?2, ?3)
        ON CONFLICT (user_id, account_id) DO UPDATE SET cents = excluded.cents";
    connection.execute(change, params![user, account, balance])?;
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
        transaction.unknown = unknown_of(logged.as_deref())?;
    }
    end(transaction, Decision::Booked, balance)
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

pub(super) async fn report_loss(
    store: &SqliteStore,
    lease_s: i64,
    now_ms: i64,
    forget_before_ms: i64,
) -> Result<(), StoreError> {
    let write = move |connection: &Connection| {
        let forget = "DELETE FROM lost_leases WHERE reported_at_ms < ?1";
        connection.execute(forget, [forget_before_ms])?;
        let insert = "INSERT INTO lost_leases (reported_at_ms, lease_s) VALUES (?1, ?2)";
        connection.execute(insert, [now_ms, lease_s])?;
        Ok(())
    };
    store.write(write).await
}

pub(super) async fn losses(store: &SqliteStore, since_ms: i64) -> Result<Vec<Loss>, StoreError> {
    let query = "SELECT sequence, lease_s FROM lost_leases
        WHERE reported_at_ms > ?2 ORDER BY sequence DESC LIMIT ?1";
    let read = |row: &SqlRow<'_>| {
        Ok(Loss {
            sequence: row.get(0)?,
            lease_s: row.get(1)?,
        })
    };
    rows(store, query, [1, since_ms], read).await
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
