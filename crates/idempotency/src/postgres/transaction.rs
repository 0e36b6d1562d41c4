//! An open transaction.

use std::sync::Arc;

use tokio::sync::watch;
use tokio_postgres::Client;
use tokio_postgres::types::Type;

use super::pool::{Borrowed, Value};
use crate::error::StoreError;
use crate::key::Key;
use crate::outbox::OutboxMessage;
use crate::store::{Record, Transaction};

/// Fails in a transaction one of whose statements failed, where `COMMIT` would roll back and report success. Writes
/// nothing in a transaction that is not the marked one.
const RECORD: &str = "INSERT INTO kew_outcomes (scope, id, outcome, fingerprint)
    SELECT $1, $2, $3, $4 WHERE current_setting('kew_idempotency.transaction', true) = $5
    ON CONFLICT DO NOTHING";

const ENQUEUE: &str = "INSERT INTO kew_outbox (destination, id, head, body)
    VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING";

/// An open transaction of a [`PostgresStore`](crate::PostgresStore).
///
/// Dropping it closes its connection, and the server rolls it back.
#[derive(Debug)]
pub struct PostgresTransaction {
    borrowed: Borrowed,
    key: Key,
    mark: String,
    enqueued: Arc<watch::Sender<u64>>,
    has_messages: bool,
}

impl PostgresTransaction {
    pub(super) fn new(
        borrowed: Borrowed,
        key: Key,
        mark: String,
        enqueued: Arc<watch::Sender<u64>>,
    ) -> Self {
        Self {
            borrowed,
            key,
            mark,
            enqueued,
            has_messages: false,
        }
    }

    /// The connection, on which this transaction is open.
    ///
    /// Do not end the transaction: after a `COMMIT` or `ROLLBACK` the outcome is not recorded, and the guard reports an
    /// error. Savepoints are allowed. After a statement that failed, only a rollback to a savepoint helps.
    pub fn client(&self) -> &Client {
        self.borrowed.client()
    }
}

impl Transaction for PostgresTransaction {
    async fn enqueue(&mut self, message: &OutboxMessage) -> Result<(), StoreError> {
        let head = message.head_to_json()?;
        let OutboxMessage {
            destination,
            id,
            body,
            ..
        } = message;
        let values: [Value<'_>; 4] = [
            (destination, Type::TEXT),
            (id, Type::TEXT),
            (&head, Type::TEXT),
            (body, Type::BYTEA),
        ];
        if self.borrowed.execute(ENQUEUE, &values).await? == 0 {
            return Err(StoreError::refused(format!(
                "a message {id} for {destination} is already waiting to be sent"
            )));
        }
        self.has_messages = true;
        Ok(())
    }

    async fn commit(self, record: Record) -> Result<(), StoreError> {
        let (scope, id) = (self.key.scope.as_str(), self.key.id.as_str());
        let fingerprint = record
            .fingerprint
            .as_ref()
            .map(|it| it.as_bytes().as_slice());
        let values: [Value<'_>; 5] = [
            (&scope, Type::TEXT),
            (&id, Type::TEXT),
            (&record.outcome, Type::BYTEA),
            (&fingerprint, Type::BYTEA),
            (&self.mark, Type::TEXT),
        ];
        if self.borrowed.execute(RECORD, &values).await? == 0 {
            return Err(StoreError::later(
                "the transaction has ended: the handler ended it",
            ));
        }
        self.borrowed.commit().await?;
        self.borrowed.give_back();
        if self.has_messages {
            self.enqueued
                .send_modify(|count| *count = count.wrapping_add(1));
        }
        Ok(())
    }

    async fn roll_back(self) -> Result<(), StoreError> {
        self.borrowed.roll_back().await?;
        self.borrowed.give_back();
        Ok(())
    }
}
