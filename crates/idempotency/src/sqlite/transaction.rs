//! An open transaction.

use std::sync::Arc;

use rusqlite::{Connection, params};
use tokio::sync::OwnedSemaphorePermit;

use super::now_ms;
use super::outbox;
use super::thread::Thread;
use crate::error::StoreError;
use crate::key::Key;
use crate::outbox::OutboxMessage;
use crate::store::{Record, Transaction};

/// An open transaction of a [`SqliteStore`](crate::SqliteStore).
#[derive(Debug)]
pub struct SqliteTransaction {
    thread: Arc<Thread>,
    /// `None` once it has ended.
    turn: Option<OwnedSemaphorePermit>,
    key: Key,
    has_messages: bool,
}

impl SqliteTransaction {
    pub(super) fn new(thread: Arc<Thread>, turn: OwnedSemaphorePermit, key: Key) -> Self {
        Self {
            thread,
            turn: Some(turn),
            key,
            has_messages: false,
        }
    }

    /// Runs `work` on the connection, in this transaction.
    ///
    /// `work` cannot end the transaction: a `COMMIT` in it is rolled back and refused. If a statement fails in a way
    /// that ends the transaction, this and everything after it fails with *try again later*. To drop the future does
    /// not stop `work`; the transaction is rolled back after it.
    pub async fn call<T, E>(
        &mut self,
        work: impl FnOnce(&Connection) -> Result<T, E> + Send + 'static,
    ) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
    {
        let ender = self.thread.ender();
        let job = move |connection: &Connection| {
            ender.check_open(connection)?;
            let done = work(connection)?;
            ender.check_open(connection)?;
            Ok(done)
        };
        self.thread.run(job).await?
    }
}

impl Transaction for SqliteTransaction {
    async fn enqueue(&mut self, message: &OutboxMessage) -> Result<(), StoreError> {
        let head = message.head_to_json()?;
        let message = message.clone();
        self.call(move |connection| outbox::insert(connection, &message, &head))
            .await?;
        self.has_messages = true;
        Ok(())
    }

    async fn commit(mut self, recorded: Record) -> Result<(), StoreError> {
        let ender = self.thread.ender();
        let key = self.key.clone();
        let thread = self.thread.clone();
        let turn = self.turn.take();
        let has_messages = self.has_messages;
        // The turn goes with the job: the next transaction begins after it, also if this future is dropped.
        let job = move |connection: &Connection| {
            let _turn = turn;
            let done = ender
                .check_open(connection)
                .and_then(|()| record(connection, &key, &recorded))
                .and_then(|()| ender.commit(connection));
            match done {
                Ok(()) if has_messages => {
                    thread
                        .enqueued()
                        .send_modify(|count| *count = count.wrapping_add(1));
                }
                Ok(()) => {}
                Err(_) => ender.roll_back(connection),
            }
            done
        };
        self.thread.run(job).await?
    }

    async fn roll_back(mut self) -> Result<(), StoreError> {
        let ender = self.thread.ender();
        let turn = self.turn.take();
        let job = move |connection: &Connection| {
            let _turn = turn;
            ender.roll_back(connection);
        };
        self.thread.run(job).await
    }
}

impl Drop for SqliteTransaction {
    fn drop(&mut self) {
        if let Some(turn) = self.turn.take() {
            self.thread.abandon(turn);
        }
    }
}

fn record(connection: &Connection, key: &Key, recorded: &Record) -> Result<(), StoreError> {
    let (scope, id) = (key.scope.as_str(), key.id.as_str());
    let fingerprint = recorded.fingerprint.as_ref().map(|it| it.as_bytes());
    connection.execute(
        "INSERT INTO kew_outcomes (scope, id, outcome, fingerprint, recorded_at_ms)
         VALUES (?1, ?2, ?3, ?4, ?5)",
        params![scope, id, recorded.outcome, fingerprint, now_ms()],
    )?;
    Ok(())
}
