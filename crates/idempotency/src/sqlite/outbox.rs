//! The outbox in SQLite.

use std::time::Duration;

use rusqlite::{Connection, OptionalExtension as _, params};
use tokio::sync::watch;

use super::{SqliteStore, ms_of, now_ms};
use crate::error::StoreError;
use crate::outbox::{Holder, OutboxMessage, OutboxStore, Pending, within_size};

/// Writes a message, in the transaction that is open.
pub(super) fn insert(
    connection: &Connection,
    message: &OutboxMessage,
    head: &str,
) -> Result<(), StoreError> {
    let OutboxMessage {
        destination,
        id,
        body,
        ..
    } = message;
    let written = connection.execute(
        "INSERT INTO kew_outbox (destination, id, head, body) VALUES (?1, ?2, ?3, ?4)
         ON CONFLICT DO NOTHING",
        params![destination, id, head, body],
    )?;
    match written {
        0 => Err(StoreError::refused(format!(
            "a message {id} for {destination} is already waiting to be sent"
        ))),
        _ => Ok(()),
    }
}

fn is_held(
    connection: &Connection,
    destination: &str,
    holder: &Holder,
) -> Result<bool, StoreError> {
    let found = connection
        .query_row(
            "SELECT 1 FROM kew_outbox_leases WHERE destination = ?1 AND holder = ?2 AND until_ms > ?3",
            params![destination, holder.as_str(), now_ms()],
            |_| Ok(()),
        )
        .optional()?;
    Ok(found.is_some())
}

impl OutboxStore for SqliteStore {
    async fn destinations(&self, limit: u32) -> Result<Vec<String>, StoreError> {
        self.read(move |connection| {
            let mut query =
                connection.prepare("SELECT DISTINCT destination FROM kew_outbox LIMIT ?1")?;
            let rows = query.query_map([limit], |row| row.get(0))?;
            Ok(rows.collect::<Result<_, _>>()?)
        })
        .await
    }

    async fn lease(
        &self,
        destination: &str,
        holder: &Holder,
        time: Duration,
    ) -> Result<bool, StoreError> {
        let (destination, holder) = (destination.to_owned(), holder.clone());
        self.write(move |connection| {
            let now = now_ms();
            let taken = connection.execute(
                "INSERT INTO kew_outbox_leases (destination, holder, until_ms) VALUES (?1, ?2, ?3)
                 ON CONFLICT (destination) DO UPDATE SET holder = ?2, until_ms = ?3
                 WHERE holder = ?2 OR until_ms <= ?4",
                params![
                    destination,
                    holder.as_str(),
                    now.saturating_add(ms_of(time)),
                    now
                ],
            )?;
            Ok(taken > 0)
        })
        .await
    }

    async fn release(&self, destination: &str, holder: &Holder) -> Result<(), StoreError> {
        let (destination, holder) = (destination.to_owned(), holder.clone());
        self.write(move |connection| {
            connection.execute(
                "DELETE FROM kew_outbox_leases WHERE destination = ?1 AND holder = ?2",
                [destination.as_str(), holder.as_str()],
            )?;
            Ok(())
        })
        .await
    }

    async fn pending(&self, destination: &str, limit: u32) -> Result<Vec<Pending>, StoreError> {
        let destination = destination.to_owned();
        self.read(move |connection| pending(connection, &destination, limit))
            .await
    }

    async fn remove_sent(
        &self,
        destination: &str,
        holder: &Holder,
        sequences: &[i64],
    ) -> Result<bool, StoreError> {
        let (destination, holder) = (destination.to_owned(), holder.clone());
        let sequences = sequences.to_vec();
        self.write(move |connection| {
            if !is_held(connection, &destination, &holder)? {
                return Ok(false);
            }
            let mut delete = connection
                .prepare("DELETE FROM kew_outbox WHERE sequence = ?1 AND destination = ?2")?;
            for sequence in sequences {
                delete.execute(params![sequence, destination])?;
            }
            Ok(true)
        })
        .await
    }

    fn enqueued(&self) -> watch::Receiver<u64> {
        self.thread.enqueued().subscribe()
    }
}

fn pending(
    connection: &Connection,
    destination: &str,
    limit: u32,
) -> Result<Vec<Pending>, StoreError> {
    let mut query = connection.prepare(
        "SELECT sequence, id, head, body FROM kew_outbox WHERE destination = ?1
         ORDER BY sequence LIMIT ?2",
    )?;
    let mut rows = query.query(params![destination, limit])?;
    let (mut found, mut total_bytes) = (Vec::new(), 0);
    while let Some(row) = rows.next()? {
        let (head, body): (String, Vec<u8>) = (row.get(2)?, row.get(3)?);
        if !within_size(body.len(), &mut total_bytes) {
            break;
        }
        let message = OutboxMessage::from_stored(destination, row.get(1)?, &head, body)?;
        found.push(Pending {
            sequence: row.get(0)?,
            message,
        });
    }
    Ok(found)
}
