//! The tables, and how a connection is set up.

use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension as _};

use super::refusal::from_sqlite;
use crate::error::StoreError;

/// The version of the tables below.
const VERSION: i64 = 2;

/// Makes the tables of version 1 those of version 2. Requests of its records are not compared.
const FROM_1: &str = "
ALTER TABLE kew_outcomes ADD COLUMN fingerprint BLOB;
UPDATE kew_idempotency SET version = 2;
";

const CREATE: &str = "
CREATE TABLE kew_outcomes (
    scope TEXT NOT NULL,
    id TEXT NOT NULL,
    outcome BLOB NOT NULL,
    recorded_at_ms INTEGER NOT NULL,
    fingerprint BLOB,
    PRIMARY KEY (scope, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX kew_outcomes_by_age ON kew_outcomes (scope, recorded_at_ms);
CREATE TABLE kew_outbox (
    sequence INTEGER PRIMARY KEY AUTOINCREMENT,
    destination TEXT NOT NULL,
    id TEXT NOT NULL,
    head TEXT NOT NULL,
    body BLOB NOT NULL,
    UNIQUE (destination, id)
) STRICT;
CREATE INDEX kew_outbox_in_order ON kew_outbox (destination, sequence);
CREATE TABLE kew_outbox_leases (
    destination TEXT PRIMARY KEY,
    holder TEXT NOT NULL,
    until_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
";

/// Opens the file, which need not be there.
pub(super) fn open(path: &Path, busy_timeout: Duration) -> Result<Connection, StoreError> {
    let told = |error| {
        let error = from_sqlite(error);
        tracing::debug!(target: "kew::idempotency", path = %path.display(), %error, "SQLite cannot open");
        error
    };
    let connection = Connection::open(path).map_err(told)?;
    connection.busy_timeout(busy_timeout).map_err(told)?;
    // The commit is durable before the message is settled, also after a loss of power.
    connection
        .execute_batch(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON;",
        )
        .map_err(told)?;
    let mode: String = connection
        .query_row("PRAGMA journal_mode", [], |row| row.get(0))
        .map_err(told)?;
    if mode != "wal" {
        return Err(StoreError::refused(format!(
            "{} has the journal mode {mode}; this store needs wal, which needs a local file system",
            path.display()
        )));
    }
    Ok(connection)
}

/// Creates the tables, brings older ones to this version, or checks that they are of it. In a transaction.
pub(super) fn prepare(connection: &Connection) -> Result<(), StoreError> {
    connection.execute_batch(
        "CREATE TABLE IF NOT EXISTS kew_idempotency (version INTEGER NOT NULL) STRICT",
    )?;
    let version: Option<i64> = connection
        .query_row("SELECT version FROM kew_idempotency", [], |row| row.get(0))
        .optional()?;
    match version {
        Some(VERSION) => Ok(()),
        Some(1) => Ok(connection.execute_batch(FROM_1)?),
        Some(other) => Err(StoreError::refused(format!(
            "the tables of the guard have version {other}; this program knows version {VERSION}"
        ))),
        None => {
            connection.execute_batch(CREATE)?;
            connection.execute("INSERT INTO kew_idempotency VALUES (?1)", [VERSION])?;
            Ok(())
        }
    }
}
