//! What the suites need of a database, beside the store.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use kew_idempotency::rusqlite::Connection;
use kew_idempotency::{
    BusinessId, Guard, GuardOptions, HandlerFuture, OutboxStore, Scope, SqliteOptions, SqliteStore,
    SqliteTransaction, Store, StoreError,
};

/// A database with a table of effects, in which the same effect can happen twice.
pub(crate) trait Database: 'static {
    type Store: OutboxStore;

    fn store(&self) -> &Self::Store;

    /// Has an effect, in the transaction.
    fn affect<'a>(
        transaction: &'a mut <Self::Store as Store>::Transaction,
        id: &str,
    ) -> HandlerFuture<'a, (), StoreError>;

    /// Runs a statement, in the transaction.
    fn say<'a>(
        transaction: &'a mut <Self::Store as Store>::Transaction,
        statement: &'static str,
    ) -> HandlerFuture<'a, (), StoreError>;

    /// The ids whose effects were committed, in order.
    async fn effects(&self) -> Vec<String>;

    /// Makes all records and leases older.
    async fn age(&self, by: Duration);

    fn guard(&self) -> Guard<Self::Store> {
        guard(self.store().clone(), GuardOptions::default())
    }

    /// How often each effect happened that should have happened once.
    async fn happened(&self, id: &str) -> usize {
        let effects = self.effects().await;
        effects.iter().filter(|it| *it == id).count()
    }
}

pub(crate) fn guard<S: Store>(store: S, options: GuardOptions) -> Guard<S> {
    Guard::new(store, Scope::new("tests").unwrap(), options).unwrap()
}

/// An id that lives as long as the tests do, so that runs can borrow it.
pub(crate) fn id(text: &str) -> &'static BusinessId {
    Box::leak(Box::new(BusinessId::new(text).unwrap()))
}

/// A file in a folder of its own.
#[derive(Clone, Debug)]
pub(crate) struct Sqlite {
    store: SqliteStore,
    folder: Arc<tempfile::TempDir>,
}

impl Sqlite {
    pub(crate) async fn new() -> Self {
        Self::open(tempfile::tempdir().unwrap()).await
    }

    /// Opens the database of a folder.
    pub(crate) async fn open(folder: tempfile::TempDir) -> Self {
        let store = open(&folder.path().join("db")).await;
        let create = |connection: &Connection| {
            connection.execute_batch("CREATE TABLE IF NOT EXISTS effects (id TEXT NOT NULL)")?;
            Ok::<_, StoreError>(())
        };
        store.write(create).await.unwrap();
        Self {
            store,
            folder: folder.into(),
        }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("db")
    }

    /// The files as they are now, as another process would find them after this one was killed.
    pub(crate) fn copy(&self) -> tempfile::TempDir {
        let copy = tempfile::tempdir().unwrap();
        for name in ["db", "db-wal"] {
            std::fs::copy(self.folder.path().join(name), copy.path().join(name)).unwrap();
        }
        copy
    }
}

pub(crate) async fn open(path: &Path) -> SqliteStore {
    SqliteStore::open(path, SqliteOptions::default())
        .await
        .unwrap()
}

pub(crate) fn read_effects(connection: &Connection) -> Result<Vec<String>, StoreError> {
    let mut query = connection.prepare("SELECT id FROM effects ORDER BY rowid")?;
    let rows = query.query_map([], |row| row.get(0))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

impl Database for Sqlite {
    type Store = SqliteStore;

    fn store(&self) -> &SqliteStore {
        &self.store
    }

    fn affect<'a>(
        transaction: &'a mut SqliteTransaction,
        id: &str,
    ) -> HandlerFuture<'a, (), StoreError> {
        let id = id.to_owned();
        Box::pin(transaction.call(move |connection| {
            connection.execute("INSERT INTO effects VALUES (?1)", [id])?;
            Ok(())
        }))
    }

    fn say<'a>(
        transaction: &'a mut SqliteTransaction,
        statement: &'static str,
    ) -> HandlerFuture<'a, (), StoreError> {
        Box::pin(transaction.call(move |connection| Ok(connection.execute_batch(statement)?)))
    }

    async fn effects(&self) -> Vec<String> {
        self.store.read(read_effects).await.unwrap()
    }

    async fn age(&self, by: Duration) {
        let by = i64::try_from(by.as_millis()).unwrap();
        let age = move |connection: &Connection| {
            connection.execute(
                "UPDATE kew_outcomes SET recorded_at_ms = recorded_at_ms - ?1",
                [by],
            )?;
            connection.execute(
                "UPDATE kew_outbox_leases SET until_ms = until_ms - ?1",
                [by],
            )?;
            Ok::<_, StoreError>(())
        };
        self.store.write(age).await.unwrap();
    }
}
