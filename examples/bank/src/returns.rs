//! Puts messages back into the queue that were moved aside: what `bank return` does after their cause is fixed.

use std::collections::HashSet;
use std::time::Duration;

use kew_worker::{Ask, BusSource, Intake, Key, Lease, Meta, QueueSource, Source, SourceError};
use tokio::time::timeout;

use crate::message::Message;
use crate::queue::{Queue, Service};

/// How long messages are leased that are being returned.
const LEASE: Duration = Duration::from_mins(1);

/// Messages of one request.
const BATCH: u32 = 32;

/// A source that waits for messages has no more if none comes for so long.
const QUIET: Duration = Duration::from_secs(3);

/// So many messages that cannot be read are looked at. They are held until the end, so that others can be reached.
const UNREADABLE_MAX: usize = 1_000;

/// What was returned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Returned {
    /// Messages that are in the queue again.
    pub returned: u64,
    /// Those that are no transactions, and stay where they are.
    pub unreadable: u64,
}

/// Returns all messages from the poison queue or from the dead letters that can be read. Those that are moved aside
/// meanwhile may stay. A message can be in the queue twice afterwards; it is booked once.
pub async fn return_all(queue: &Queue) -> Result<Returned, SourceError> {
    match queue.service() {
        Service::Storage(client) => {
            let source = QueueSource::new(client.clone(), "bank", &queue.poison());
            return_from(queue, &source).await
        }
        Service::Bus { client, admin } => {
            let entity = kew_client::Entity::new(queue.name()).dead_letters();
            let source = BusSource::new(client.clone(), "bank", entity);
            return_from(queue, &source.admin(admin.clone())).await
        }
    }
}

async fn return_from<S: Source>(queue: &Queue, source: &S) -> Result<Returned, SourceError> {
    let mut done = Returned::default();
    // Not those that a worker moves aside again meanwhile.
    let mut count = match source.depth().await {
        // No message was ever moved aside.
        Err(error) if error.code() == Some("QueueNotFound") => return Ok(done),
        depth => depth?.unwrap_or(0),
    };
    let mut intake = source.open().await?;
    let (mut unreadable, mut seen) = (Vec::new(), HashSet::new());
    while count > 0 && unreadable.len() < UNREADABLE_MAX {
        let leases = receive(&mut intake, count).await?;
        if leases.is_empty() {
            break;
        }
        for mut lease in leases {
            count = count.saturating_sub(1);
            match readable(&lease) {
                Some(body) => {
                    queue.send_again(body).await?;
                    lease.complete().await?;
                    done.returned += 1;
                }
                // One comes again after its lease, when all others have been seen.
                None if !is_new(&mut seen, &lease.incoming().meta) => count = 0,
                None => unreadable.push(lease),
            }
        }
    }
    for mut lease in unreadable {
        let history = lease.incoming().meta.history.clone();
        match lease.release(Duration::ZERO, &history).await {
            // It has come back by itself.
            Err(error) if error.is_lease_lost() => {}
            released => released?,
        }
        done.unreadable += 1;
    }
    intake.close().await?;
    Ok(done)
}

/// Whether it was not there before. One without a key is not known again.
fn is_new(seen: &mut HashSet<Key>, meta: &Meta) -> bool {
    meta.key.is_unknown() || seen.insert(meta.key.clone())
}

async fn receive<I: Intake>(intake: &mut I, count: u64) -> Result<Vec<I::Lease>, SourceError> {
    let ask = Ask {
        count: u32::try_from(count).unwrap_or(BATCH).clamp(1, BATCH),
        lease: LEASE,
    };
    let receive = intake.receive(ask);
    match I::WAITS {
        true => timeout(QUIET, receive).await.unwrap_or(Ok(Vec::new())),
        false => receive.await,
    }
}

/// The body of a message that a worker can read.
fn readable(lease: &impl Lease) -> Option<String> {
    let incoming = lease.incoming();
    if incoming.meta.unreadable.is_some() || Message::from_body(&incoming.body).is_err() {
        return None;
    }
    String::from_utf8(incoming.body.to_vec()).ok()
}
