//! The tables.

use tokio_postgres::Client;

use crate::error::StoreError;

/// The version of the tables below.
const VERSION: i32 = 2;

/// Stands for all programs that create the tables, so that one does it at a time.
const LOCK: &str = "SELECT pg_advisory_xact_lock(hashtextextended('kew_idempotency', 0))";

/// Makes the tables of version 1 those of version 2. Requests of its records are not compared.
const FROM_1: &str = "ALTER TABLE kew_outcomes ADD COLUMN fingerprint bytea;
UPDATE kew_idempotency SET version = 2";

const CREATE: &str = r#"
CREATE TABLE kew_outcomes (
    scope text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    outcome bytea NOT NULL,
    fingerprint bytea,
    recorded_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (scope, id)
);
CREATE INDEX kew_outcomes_by_age ON kew_outcomes (scope, recorded_at);
CREATE TABLE kew_outbox (
    sequence bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    destination text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    head text NOT NULL,
    body bytea NOT NULL,
    UNIQUE (destination, id)
);
CREATE INDEX kew_outbox_in_order ON kew_outbox (destination, sequence);
CREATE TABLE kew_outbox_leases (
    destination text COLLATE "C" PRIMARY KEY,
    holder text NOT NULL,
    until timestamptz NOT NULL
);
"#;

/// Creates the tables in the first schema of the search path, brings older ones to this version, or checks that they are
/// of it. In a transaction.
pub(super) async fn prepare(client: &Client) -> Result<(), StoreError> {
    client.batch_execute(LOCK).await?;
    client
        .batch_execute("CREATE TABLE IF NOT EXISTS kew_idempotency (version integer NOT NULL)")
        .await?;
    let query = "SELECT version FROM kew_idempotency";
    match client.query_opt(query, &[]).await? {
        Some(row) => match row.try_get(0)? {
            VERSION => Ok(()),
            1 => Ok(client.batch_execute(FROM_1).await?),
            other => Err(StoreError::refused(format!(
                "the tables of the guard have version {other}; this program knows version {VERSION}"
            ))),
        },
        None => {
            client.batch_execute(CREATE).await?;
            let insert = "INSERT INTO kew_idempotency VALUES ($1)";
            client.execute(insert, &[&VERSION]).await?;
            Ok(())
        }
    }
}
