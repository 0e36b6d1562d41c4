//! SQLite, compiled into the program.

mod outbox;
mod refusal;
mod schema;
mod thread;
mod transaction;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rusqlite::{Connection, OptionalExtension as _, params};

use crate::error::StoreError;
use crate::key::{Key, Scope};
use crate::request::Fingerprint;
use crate::store::{Begun, Record, Store};

use thread::Thread;
pub use transaction::SqliteTransaction;

/// How a store uses its database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SqliteOptions {
    /// How long a transaction waits for others of this store. Default 10 s.
    pub wait_max: Duration,
    /// How long it waits for writers with connections of their own, such as other processes. Default 5 s.
    pub busy_timeout: Duration,
}

impl Default for SqliteOptions {
    fn default() -> Self {
        Self {
            wait_max: Duration::from_secs(10),
            busy_timeout: Duration::from_secs(5),
        }
    }
}

/// A SQLite database, with one connection on a thread of its own.
///
/// The file is in WAL mode with full synchronization: what is committed survives a loss of power. It must be on a local
/// file system. Other connections and processes may use it, too. One transaction is open at a time, so a handler
/// that waits delays all others.
///
/// The tables have names that begin with `kew_`; the first connection creates them.
#[derive(Clone, Debug)]
pub struct SqliteStore {
    thread: Arc<Thread>,
}

impl SqliteStore {
    /// Opens the database, and creates the file and the tables if they do not exist.
    pub async fn open(path: impl AsRef<Path>, options: SqliteOptions) -> Result<Self, StoreError> {
        let path = path.as_ref().to_owned();
        let open = move || schema::open(&path, options.busy_timeout);
        let thread = Thread::start(open, options.wait_max).await?;
        let store = Self {
            thread: Arc::new(thread),
        };
        store.write(schema::prepare).await?;
        Ok(store)
    }

    /// Runs `work` in a transaction of its own, without a guard, and commits it: to create tables, for example.
    ///
    /// To drop the future leaves it open whether it is committed.
    pub async fn write<T, E>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, E> + Send + 'static,
    ) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
    {
        let turn = self.thread.turn().await?;
        let ender = self.thread.ender();
        let job = move |connection: &Connection| {
            let _turn = turn;
            ender.transact(connection, work)
        };
        self.thread.run(job).await?
    }

    /// Runs `work`, which only reads. What it writes is rolled back.
    pub async fn read<T, E>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, E> + Send + 'static,
    ) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
    {
        let turn = self.thread.turn().await?;
        let ender = self.thread.ender();
        let job = move |connection: &Connection| {
            let _turn = turn;
            ender.look(connection, work)
        };
        self.thread.run(job).await?
    }
}

impl Store for SqliteStore {
    type Transaction = SqliteTransaction;

    async fn begin(&self, key: &Key) -> Result<Begun<SqliteTransaction>, StoreError> {
        let turn = self.thread.turn().await?;
        let (thread, ender) = (self.thread.clone(), self.thread.ender());
        let key = key.clone();
        let job = move |connection: &Connection| {
            // Made first: whatever happens next, its end is the end of what is open.
            let transaction = SqliteTransaction::new(thread, turn, key.clone());
            ender.begin(connection)?;
            Ok(match find(connection, &key)? {
                Some(record) => Begun::Recorded(record),
                None => Begun::New(transaction),
            })
        };
        self.thread.run(job).await?
    }

    async fn find(&self, key: &Key) -> Result<Option<Record>, StoreError> {
        let key = key.clone();
        self.read(move |connection| find(connection, &key)).await
    }

    async fn remove_older_than(
        &self,
        scope: &Scope,
        age: Duration,
        limit: u32,
    ) -> Result<u64, StoreError> {
        let scope = scope.clone();
        let remove = move |connection: &Connection| {
            let before = now_ms().saturating_sub(ms_of(age));
            let removed = connection.execute(
                "DELETE FROM kew_outcomes WHERE scope = ?1 AND id IN (
                     SELECT id FROM kew_outcomes WHERE scope = ?1 AND recorded_at_ms < ?2
                     ORDER BY recorded_at_ms LIMIT ?3)",
                params![scope.as_str(), before, limit],
            )?;
            Ok(u64::try_from(removed).unwrap_or(u64::MAX))
        };
        self.write(remove).await
    }
}

fn find(connection: &Connection, key: &Key) -> Result<Option<Record>, StoreError> {
    let found = connection
        .prepare("SELECT outcome, fingerprint FROM kew_outcomes WHERE scope = ?1 AND id = ?2")?
        .query_row([key.scope.as_str(), key.id.as_str()], |row| {
            let fingerprint: Option<Vec<u8>> = row.get(1)?;
            Ok((row.get(0)?, fingerprint))
        })
        .optional()?;
    let Some((outcome, fingerprint)) = found else {
        return Ok(None);
    };
    let fingerprint = fingerprint.map(|it| Fingerprint::from_bytes(&it));
    Ok(Some(Record {
        outcome,
        fingerprint: fingerprint.transpose()?,
    }))
}

/// Milliseconds since 1970, by the clock of the system.
fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    ms_of(since.unwrap_or_default())
}

fn ms_of(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}
