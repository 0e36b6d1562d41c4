//! The outbox in PostgreSQL.

use std::time::Duration;

use tokio::sync::watch;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::pool::Value;
use super::{BEGIN, PostgresStore};
use crate::error::StoreError;
use crate::outbox::{Holder, OutboxMessage, OutboxStore, Pending, within_size};

const DESTINATIONS: &str = "SELECT DISTINCT destination FROM kew_outbox LIMIT $1";

const LEASE: &str = "INSERT INTO kew_outbox_leases (destination, holder, until)
    VALUES ($1, $2, now() + $3 * interval '1 millisecond')
    ON CONFLICT (destination) DO UPDATE SET holder = excluded.holder, until = excluded.until
    WHERE kew_outbox_leases.holder = $2 OR kew_outbox_leases.until <= now()";

const RELEASE: &str = "DELETE FROM kew_outbox_leases WHERE destination = $1 AND holder = $2";

/// The sizes first, so that no more bodies are read than are returned.
const SIZES: &str = "SELECT sequence, length(body) FROM kew_outbox WHERE destination = $1
    ORDER BY sequence LIMIT $2";

const PENDING: &str = "SELECT sequence, id, head, body FROM kew_outbox
    WHERE destination = $1 AND sequence = ANY($2) ORDER BY sequence";

/// Keeps the lease as it is until the end of the transaction.
const HOLD: &str = "SELECT 1 FROM kew_outbox_leases
    WHERE destination = $1 AND holder = $2 AND until > now() FOR UPDATE";

/// By number, and not up to a number: a lower number can be committed later.
const REMOVE: &str = "DELETE FROM kew_outbox WHERE destination = $1 AND sequence = ANY($2)";

impl OutboxStore for PostgresStore {
    async fn destinations(&self, limit: u32) -> Result<Vec<String>, StoreError> {
        let limit = i64::from(limit);
        let borrowed = self.pool.take("").await?;
        let rows = borrowed
            .query(DESTINATIONS, &[(&limit, Type::INT8)])
            .await?;
        borrowed.give_back();
        rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
    }

    async fn lease(
        &self,
        destination: &str,
        holder: &Holder,
        time: Duration,
    ) -> Result<bool, StoreError> {
        let holder = holder.as_str();
        let time_ms = u32::try_from(time.as_millis()).unwrap_or(u32::MAX);
        let time_ms = f64::from(time_ms);
        let borrowed = self.pool.take("").await?;
        let values: [Value<'_>; 3] = [
            (&destination, Type::TEXT),
            (&holder, Type::TEXT),
            (&time_ms, Type::FLOAT8),
        ];
        let taken = borrowed.execute(LEASE, &values).await?;
        borrowed.give_back();
        Ok(taken > 0)
    }

    async fn release(&self, destination: &str, holder: &Holder) -> Result<(), StoreError> {
        let holder = holder.as_str();
        let borrowed = self.pool.take("").await?;
        let values: [Value<'_>; 2] = [(&destination, Type::TEXT), (&holder, Type::TEXT)];
        borrowed.execute(RELEASE, &values).await?;
        borrowed.give_back();
        Ok(())
    }

    async fn pending(&self, destination: &str, limit: u32) -> Result<Vec<Pending>, StoreError> {
        let limit = i64::from(limit);
        let borrowed = self.pool.take("").await?;
        let values: [Value<'_>; 2] = [(&destination, Type::TEXT), (&limit, Type::INT8)];
        let sizes = borrowed.query(SIZES, &values).await?;
        let (mut sequences, mut total_bytes) = (Vec::<i64>::new(), 0);
        for row in &sizes {
            let size: i32 = row.try_get(1)?;
            if !within_size(usize::try_from(size).unwrap_or(0), &mut total_bytes) {
                break;
            }
            sequences.push(row.try_get(0)?);
        }
        let values: [Value<'_>; 2] = [(&destination, Type::TEXT), (&sequences, Type::INT8_ARRAY)];
        let rows = borrowed.query(PENDING, &values).await?;
        borrowed.give_back();
        rows.iter().map(|row| read(destination, row)).collect()
    }

    async fn remove_sent(
        &self,
        destination: &str,
        holder: &Holder,
        sequences: &[i64],
    ) -> Result<bool, StoreError> {
        let holder = holder.as_str();
        let borrowed = self.pool.take(BEGIN).await?;
        let values: [Value<'_>; 2] = [(&destination, Type::TEXT), (&holder, Type::TEXT)];
        let is_held = !borrowed.query(HOLD, &values).await?.is_empty();
        if is_held {
            let values: [Value<'_>; 2] =
                [(&destination, Type::TEXT), (&sequences, Type::INT8_ARRAY)];
            borrowed.execute(REMOVE, &values).await?;
        }
        borrowed.commit().await?;
        borrowed.give_back();
        Ok(is_held)
    }

    fn enqueued(&self) -> watch::Receiver<u64> {
        self.enqueued.subscribe()
    }
}

fn read(destination: &str, row: &Row) -> Result<Pending, StoreError> {
    let head: String = row.try_get(2)?;
    let message = OutboxMessage::from_stored(destination, row.try_get(1)?, &head, row.try_get(3)?)?;
    Ok(Pending {
        sequence: row.try_get(0)?,
        message,
    })
}
