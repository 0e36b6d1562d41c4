//! The stores in PostgreSQL.

use std::process;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use kew_idempotency::tokio_postgres::config::{Host, SslMode};
use kew_idempotency::tokio_postgres::types::ToSql;
use kew_idempotency::tokio_postgres::{Client, Config, Error, Row as SqlRow};
use kew_idempotency::{
    Begun, BusinessId, Key, PostgresOptions, PostgresStore, PostgresTls, PostgresTransaction,
    Scope, Store as _, StoreError, Transaction as _,
};

use super::rows::{Balance, LogEntry, Loss, Row, WorkReport, details_of, request_of, unknown_of};
use super::{ANSWER_MAX, Cover, LedgerError};
use crate::money::Money;
use crate::names::TransactionId;
use crate::request::Request;
use crate::transaction::{Decision, Details, Transaction};

/// One program at a time creates the tables.
const CREATE: &str = r#"
SELECT pg_advisory_xact_lock(hashtextextended('kew_bank', 0));
CREATE TABLE IF NOT EXISTS balances (
    user_id text COLLATE "C" NOT NULL,
    account_id text COLLATE "C" NOT NULL,
    cents bigint NOT NULL,
    PRIMARY KEY (user_id, account_id)
);
CREATE TABLE IF NOT EXISTS message_log (
    sequence bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    logged_at_ms bigint NOT NULL,
    account_key text COLLATE "C" NOT NULL,
    transaction_id text COLLATE "C" NOT NULL,
    shape text NOT NULL,
    body text NOT NULL,
    unknown text NOT NULL
);
CREATE INDEX IF NOT EXISTS message_log_by_transaction ON message_log (account_key, transaction_id);
CREATE TABLE IF NOT EXISTS requests (
    transaction_id text COLLATE "C" PRIMARY KEY,
    account_key text COLLATE "C" NOT NULL,
    kind text NOT NULL,
    cents bigint NOT NULL
);
CREATE TABLE IF NOT EXISTS transactions (
    sequence bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    account_key text COLLATE "C" NOT NULL,
    transaction_id text COLLATE "C" NOT NULL,
    cents bigint NOT NULL,
    UNIQUE (account_key, transaction_id)
);
CREATE TABLE IF NOT EXISTS workers (
    instance text COLLATE "C" PRIMARY KEY,
    reported_at_ms bigint NOT NULL,
    in_flight bigint NOT NULL,
    completed bigint NOT NULL,
    failed bigint NOT NULL,
    buried bigint NOT NULL
);
CREATE TABLE IF NOT EXISTS lost_leases (
    sequence bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    reported_at_ms bigint NOT NULL,
    lease_s bigint NOT NULL
);
"#;

/// How long an operation waits for a connection from the pool, for a new one, and for a lock. Less than
/// [`ANSWER_MAX`], so that the error says what was waited for.
const WAIT_MAX: Duration = Duration::from_secs(4);

type Values<'a> = &'a [&'a (dyn ToSql + Sync)];

pub(super) async fn open(url: &str) -> Result<PostgresStore, StoreError> {
    let config: Config = url.parse().map_err(|error: Error| {
        StoreError::refused("the address of PostgreSQL cannot be read").because(error)
    })?;
    let tls = match is_local(&config) || config.get_ssl_mode() == SslMode::Disable {
        true => PostgresTls::Off,
        false => PostgresTls::required(None)?,
    };
    let options = PostgresOptions {
        wait_max: WAIT_MAX,
        connect_max: WAIT_MAX,
        answer_max: ANSWER_MAX,
        ..PostgresOptions::default()
    };
    let store = PostgresStore::connect(config, tls, options).await?;
    let open = begin(&store).await?;
    open.client().batch_execute(CREATE).await?;
    commit(open).await?;
    Ok(store)
}

/// Whether nobody else can read what goes to the server.
fn is_local(config: &Config) -> bool {
    config.get_hosts().iter().all(|host| match host {
        Host::Unix(_) => true,
        Host::Tcp(name) => ["localhost", "127.0.0.1", "::1"].contains(&name.as_str()),
    })
}

/// Begins a transaction for work that needs no guard. The store begins one for each key, so this takes a key that is never
/// recorded, and [`commit`] records nothing.
async fn begin(store: &PostgresStore) -> Result<PostgresTransaction, StoreError> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let refused = |error: &dyn std::error::Error| StoreError::refused(error.to_string());
    let key = Key {
        scope: Scope::new("bank").map_err(|error| refused(&error))?,
        id: BusinessId::new(&format!("{}-{number}", process::id()))
            .map_err(|error| refused(&error))?,
    };
    match store.begin(&key).await? {
        Begun::New(open) => Ok(open),
        Begun::Recorded(_) => Err(StoreError::refused("work without a guard was recorded")),
    }
}

async fn commit(open: PostgresTransaction) -> Result<(), StoreError> {
    open.client().batch_execute("COMMIT").await?;
    // Nothing is open any more; this returns the connection.
    open.roll_back().await
}

async fn write(
    store: &PostgresStore,
    statement: &str,
    values: Values<'_>,
) -> Result<(), StoreError> {
    let open = begin(store).await?;
    open.client().execute(statement, values).await?;
    commit(open).await
}

async fn rows<T>(
    store: &PostgresStore,
    query: &str,
    values: Values<'_>,
    read: fn(&SqlRow) -> Result<T, Error>,
) -> Result<Vec<T>, StoreError> {
    let open = begin(store).await?;
    let found = open.client().query(query, values).await?;
    open.roll_back().await?;
    let rows: Result<Vec<T>, Error> = found.iter().map(read).collect();
    Ok(rows?)
}

/// Writes the request under its id, or fails if another one is there. Then the log.
pub(super) async fn reserve(
    store: &PostgresStore,
    id: &TransactionId,
    request: &Request,
    entry: Option<LogEntry>,
) -> Result<(), LedgerError> {
    let open = begin(store).await?;
    let client = open.client();
    // Waits for another one that is not committed yet. The next statement sees it.
    let insert = "INSERT INTO requests (transaction_id, account_key, kind, cents)
        VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING";
    let (kind, cents) = (request.kind.as_str(), request.amount.cents());
    let values: Values<'_> = &[&id.as_str(), &request.account, &kind, &cents];
    let added = client.execute(insert, values).await;
    let before = match added.map_err(StoreError::from)? {
        0 => {
            let row = client.query_opt(REQUESTED, &[&id.as_str()]).await;
            row.map_err(StoreError::from)?.map(read_request)
        }
        _ => None,
    };
    if let Some(before) = before.transpose()?
        && let Err(error) = request.check_same(id, &before)
    {
        open.roll_back().await?;
        return Err(error.into());
    }
    if let Some(entry) = entry {
        log(client, &entry).await?;
    }
    Ok(commit(open).await?)
}

const REQUESTED: &str = "SELECT account_key, kind, cents FROM requests WHERE transaction_id = $1";

fn read_request(row: SqlRow) -> Result<Request, StoreError> {
    let kind: String = row.try_get(1)?;
    request_of(row.try_get(0)?, &kind, row.try_get(2)?)
}

pub(super) async fn requested(
    store: &PostgresStore,
    id: &TransactionId,
) -> Result<Option<Request>, StoreError> {
    let open = begin(store).await?;
    let found = open.client().query_opt(REQUESTED, &[&id.as_str()]).await?;
    open.roll_back().await?;
    found.map(read_request).transpose()
}

async fn log(client: &Client, entry: &LogEntry) -> Result<(), StoreError> {
    let insert = "INSERT INTO message_log
            (logged_at_ms, account_key, transaction_id, shape, body, unknown)
        VALUES ($1, $2, $3, $4, $5, $6)";
    let LogEntry {
        logged_at_ms,
        key,
        id,
        shape,
        body,
        unknown,
    } = entry;
    let values: Values<'_> = &[logged_at_ms, key, id, shape, body, unknown];
    client.execute(insert, values).await?;
    Ok(())
}

/// Changes the balance and writes the transaction, in the transaction of the guard. Two transactions of one account wait
/// for each other at its balance. A balance that cannot be counted is an outcome too: the database would refuse it each
/// time.
pub(super) async fn decide(
    client: &Client,
    mut transaction: Transaction,
    cover: Cover,
    now_ms: i64,
) -> Result<Details, StoreError> {
    let key = transaction.key.to_string();
    let (user, account) = (transaction.key.user(), transaction.key.account());
    let cents = transaction.amount.cents();
    let end = |transaction, decision, balance| {
        Ok(details_of(transaction, cover, decision, balance, now_ms))
    };
    if cover == Cover::Balance {
        let before = locked_balance(client, user, account).await?;
        if before.saturating_add(cents) < 0 {
            return end(transaction, Decision::Declined, before);
        }
    }
    let changed = client
        .query_opt(CHANGE, &[&user, &account, &cents])
        .await?
        .map(|row| row.try_get(0));
    let Some(balance) = changed.transpose()? else {
        let before = locked_balance(client, user, account).await?;
        return end(transaction, Decision::OutOfRange, before);
    };
    let insert =
        "INSERT INTO transactions (account_key, transaction_id, cents) VALUES ($1, $2, $3)";
    let id = transaction.id.as_str();
    client.execute(insert, &[&key, &id, &cents]).await?;
    if transaction.unknown.is_empty() {
        // The text shape has no place for them.
        let query = "SELECT unknown FROM message_log
            WHERE account_key = $1 AND transaction_id = $2 ORDER BY sequence LIMIT 1";
        let row = client.query_opt(query, &[&key, &id]).await?;
        let logged: Option<String> = row.map(|row| row.try_get(0)).transpose()?;
        transaction.unknown = unknown_of(logged.as_deref())?;
    }
    end(transaction, Decision::Booked, balance)
}

/// Changes a balance, unless the sum has no place in 64 bits. Then it returns no row.
const CHANGE: &str = "INSERT INTO balances (user_id, account_id, cents) VALUES ($1, $2, $3)
    ON CONFLICT (user_id, account_id) DO UPDATE SET cents = balances.cents + excluded.cents
    WHERE balances.cents::numeric + excluded.cents
        BETWEEN -9223372036854775808 AND 9223372036854775807
    RETURNING cents";

async fn locked_balance(client: &Client, user: &str, account: &str) -> Result<i64, StoreError> {
    let query = "SELECT cents FROM balances WHERE user_id = $1 AND account_id = $2 FOR UPDATE";
    match client.query_opt(query, &[&user, &account]).await? {
        Some(row) => Ok(row.try_get(0)?),
        None => Ok(0),
    }
}

pub(super) async fn balances(
    store: &PostgresStore,
    limit: u32,
) -> Result<Vec<Balance>, StoreError> {
    let query = "SELECT user_id || '|' || account_id, cents FROM balances
        ORDER BY user_id, account_id LIMIT $1";
    let read = |row: &SqlRow| {
        Ok(Balance {
            key: row.try_get(0)?,
            balance: Money::from_cents(row.try_get(1)?),
        })
    };
    rows(store, query, &[&i64::from(limit)], read).await
}

pub(super) async fn transactions(
    store: &PostgresStore,
    after: i64,
    limit: u32,
) -> Result<Vec<Row>, StoreError> {
    let query = "SELECT sequence, account_key, transaction_id, cents FROM transactions
        WHERE sequence > $1 ORDER BY sequence LIMIT $2";
    let read = |row: &SqlRow| {
        Ok(Row {
            sequence: row.try_get(0)?,
            key: row.try_get(1)?,
            id: row.try_get(2)?,
            amount: Money::from_cents(row.try_get(3)?),
        })
    };
    rows(store, query, &[&after, &i64::from(limit)], read).await
}

pub(super) async fn report(
    store: &PostgresStore,
    report: &WorkReport,
    now_ms: i64,
) -> Result<(), StoreError> {
    let upsert = "INSERT INTO workers
            (instance, reported_at_ms, in_flight, completed, failed, buried)
        VALUES ($1, $2, $3, $4, $5, $6)
        ON CONFLICT (instance) DO UPDATE SET reported_at_ms = excluded.reported_at_ms,
            in_flight = excluded.in_flight, completed = excluded.completed,
            failed = excluded.failed, buried = excluded.buried";
    let WorkReport {
        instance,
        in_flight,
        completed,
        failed,
        buried,
    } = report;
    let values: Values<'_> = &[instance, &now_ms, in_flight, completed, failed, buried];
    write(store, upsert, values).await
}

pub(super) async fn reports(
    store: &PostgresStore,
    since_ms: i64,
) -> Result<Vec<WorkReport>, StoreError> {
    let query = "SELECT instance, in_flight, completed, failed, buried FROM workers
        WHERE reported_at_ms > $1 ORDER BY instance LIMIT 100";
    let read = |row: &SqlRow| {
        Ok(WorkReport {
            instance: row.try_get(0)?,
            in_flight: row.try_get(1)?,
            completed: row.try_get(2)?,
            failed: row.try_get(3)?,
            buried: row.try_get(4)?,
        })
    };
    rows(store, query, &[&since_ms], read).await
}

pub(super) async fn report_loss(
    store: &PostgresStore,
    lease_s: i64,
    now_ms: i64,
    forget_before_ms: i64,
) -> Result<(), StoreError> {
    let statement = "WITH forgotten AS (DELETE FROM lost_leases WHERE reported_at_ms < $1)
        INSERT INTO lost_leases (reported_at_ms, lease_s) VALUES ($2, $3)";
    write(store, statement, &[&forget_before_ms, &now_ms, &lease_s]).await
}

pub(super) async fn losses(store: &PostgresStore, since_ms: i64) -> Result<Vec<Loss>, StoreError> {
    let query = "SELECT sequence, lease_s FROM lost_leases
        WHERE reported_at_ms > $1 ORDER BY sequence DESC LIMIT 1";
    let read = |row: &SqlRow| {
        Ok(Loss {
            sequence: row.try_get(0)?,
            lease_s: row.try_get(1)?,
        })
    };
    rows(store, query, &[&since_ms], read).await
}
