//! The thread that owns the connection.
//!
//! SQLite blocks, so it has a thread of its own. One transaction is open at a time: SQLite has one writer in any case. A
//! transaction is ended by a job that was sent when its handle was dropped, so none stays open.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use rusqlite::Connection;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot, watch};
use tokio::time::timeout;

use super::refusal::from_sqlite;
use crate::error::StoreError;

type Job = Box<dyn FnOnce(&Connection) + Send>;

/// Whether a commit is ours, and whether the transaction has ended.
#[derive(Debug, Default)]
struct Watched {
    may_commit: AtomicBool,
    has_ended: AtomicBool,
}

/// A handle of the thread. The thread ends with the last one, after the jobs that it has.
#[derive(Debug)]
pub(super) struct Thread {
    jobs: mpsc::Sender<Job>,
    turn: Arc<Semaphore>,
    wait_max: Duration,
    watched: Arc<Watched>,
    enqueued: watch::Sender<u64>,
}

impl Thread {
    /// Opens a connection on a thread of its own.
    pub(super) async fn start(
        open: impl FnOnce() -> Result<Connection, StoreError> + Send + 'static,
        wait_max: Duration,
    ) -> Result<Self, StoreError> {
        let (jobs, todo) = mpsc::channel::<Job>();
        let (opened, is_open) = oneshot::channel();
        let watched = Arc::new(Watched::default());
        let hooks = watched.clone();
        let serve = move || {
            let connection = match open().and_then(|it| watch_ends(it, &hooks)) {
                Ok(connection) => connection,
                Err(error) => {
                    let _ = opened.send(Err(error));
                    return;
                }
            };
            let _ = opened.send(Ok(()));
            while let Ok(job) = todo.recv() {
                job(&connection);
            }
        };
        std::thread::Builder::new()
            .name("kew-sqlite".to_owned())
            .spawn(serve)
            .map_err(|error| StoreError::later("no thread for SQLite").because(error))?;
        is_open.await.map_err(|_| ended())??;
        Ok(Self {
            jobs,
            turn: Arc::new(Semaphore::new(1)),
            wait_max,
            watched,
            enqueued: watch::channel(0).0,
        })
    }

    pub(super) fn enqueued(&self) -> &watch::Sender<u64> {
        &self.enqueued
    }

    /// Waits until no transaction is open.
    pub(super) async fn turn(&self) -> Result<OwnedSemaphorePermit, StoreError> {
        let busy = || {
            let wait = self.wait_max;
            StoreError::later(format!("other transactions kept the database for {wait:?}"))
        };
        let turn = timeout(self.wait_max, self.turn.clone().acquire_owned()).await;
        turn.map_err(|_| busy())?.map_err(|_| ended())
    }

    /// Runs a job on the thread. To drop the future does not stop it.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce(&Connection) -> T + Send + 'static,
    ) -> Result<T, StoreError> {
        let (answer, answered) = oneshot::channel::<Result<T, Box<dyn Any + Send>>>();
        let job: Job = Box::new(move |connection| {
            let _ = answer.send(catch_unwind(AssertUnwindSafe(|| job(connection))));
        });
        self.jobs.send(job).map_err(|_| ended())?;
        match answered.await.map_err(|_| ended())? {
            Ok(done) => Ok(done),
            Err(panic) => resume_unwind(panic),
        }
    }

    /// Has the thread roll back what is open, and then give the turn to the next transaction.
    pub(super) fn abandon(&self, turn: OwnedSemaphorePermit) {
        let job: Job = Box::new(move |connection| {
            roll_back(connection);
            drop(turn);
        });
        // Without a thread there is no connection, and so nothing is open.
        let _ = self.jobs.send(job);
    }

    /// What ends transactions on the thread.
    pub(super) fn ender(&self) -> Ender {
        Ender(self.watched.clone())
    }
}

fn ended() -> StoreError {
    StoreError::later("the thread of SQLite has ended")
}

/// Refuses commits that are not ours, and notes every end of a transaction.
///
/// A statement that fails can end the transaction (a full disk, `INSERT OR ROLLBACK`), and a handler can say `COMMIT`.
/// What comes after it would be committed by itself.
fn watch_ends(connection: Connection, watched: &Arc<Watched>) -> Result<Connection, StoreError> {
    let at_commit = watched.clone();
    connection
        .commit_hook(Some(move || !at_commit.may_commit.load(Ordering::Relaxed)))
        .map_err(from_sqlite)?;
    let at_rollback = watched.clone();
    connection
        .rollback_hook(Some(move || {
            at_rollback.has_ended.store(true, Ordering::Relaxed);
        }))
        .map_err(from_sqlite)?;
    Ok(connection)
}

/// Rolls back whatever is open.
fn roll_back(connection: &Connection) {
    if !connection.is_autocommit()
        && let Err(error) = connection.execute_batch("ROLLBACK")
    {
        tracing::warn!(target: "kew::idempotency", %error, "SQLite cannot roll back");
    }
}

/// Begins and ends transactions, on the thread. All of it happens there, one after the other.
#[derive(Clone, Debug)]
pub(super) struct Ender(Arc<Watched>);

impl Ender {
    pub(super) fn begin(&self, connection: &Connection) -> Result<(), StoreError> {
        // If a rollback failed, nothing can begin.
        roll_back(connection);
        connection
            .execute_batch("BEGIN IMMEDIATE")
            .map_err(from_sqlite)?;
        self.0.has_ended.store(false, Ordering::Relaxed);
        Ok(())
    }

    /// Fails if the transaction is not the one that began.
    pub(super) fn check_open(&self, connection: &Connection) -> Result<(), StoreError> {
        if connection.is_autocommit() || self.0.has_ended.load(Ordering::Relaxed) {
            return Err(StoreError::later(
                "the transaction has ended: one of its statements failed, or the handler ended it",
            ));
        }
        Ok(())
    }

    pub(super) fn commit(&self, connection: &Connection) -> Result<(), StoreError> {
        self.check_open(connection)?;
        self.0.may_commit.store(true, Ordering::Relaxed);
        let committed = connection.execute_batch("COMMIT");
        self.0.may_commit.store(false, Ordering::Relaxed);
        committed.map_err(super::refusal::from_commit)
    }

    pub(super) fn roll_back(&self, connection: &Connection) {
        roll_back(connection);
    }

    /// Runs `work` in a transaction, and commits it.
    pub(super) fn transact<T, E: From<StoreError>>(
        &self,
        connection: &Connection,
        work: impl FnOnce(&Connection) -> Result<T, E>,
    ) -> Result<T, E> {
        self.begin(connection)?;
        // Also after a panic. After a commit there is nothing to roll back.
        let _end = RolledBack(connection);
        let done = work(connection)?;
        self.commit(connection)?;
        Ok(done)
    }

    /// Runs `work` in a transaction, and rolls it back.
    pub(super) fn look<T, E: From<StoreError>>(
        &self,
        connection: &Connection,
        work: impl FnOnce(&Connection) -> Result<T, E>,
    ) -> Result<T, E> {
        roll_back(connection);
        connection
            .execute_batch("BEGIN DEFERRED")
            .map_err(from_sqlite)?;
        let _end = RolledBack(connection);
        work(connection)
    }
}

/// Rolls back what is open when it is dropped.
struct RolledBack<'a>(&'a Connection);

impl Drop for RolledBack<'_> {
    fn drop(&mut self) {
        roll_back(self.0);
    }
}
