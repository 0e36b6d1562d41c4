//! Messages, a page after another.

use std::time::Duration;

use bytes::Bytes;
use kew_broker::{Broker, Rejection};
use kew_engine::bus::{BusCommand, BusOutcome, PeekedBusMessage, Purge};
use kew_engine::{EntityName, Outcome, SequenceNumber};

use super::super::answer::HttpError;
use super::super::shown::Shown;
use super::jobs::Job;
use crate::outbound::Facts;
use crate::submit::Submitted;

/// How many messages are looked at in one command.
const PAGE_COUNT: u32 = 256;
/// How long work that nobody waits for waits itself while the broker has no room for it.
const BUSY_PAUSE: Duration = Duration::from_millis(100);

/// Some messages, in order, and where the next begin.
pub(super) struct Page {
    /// Without those whose bytes cannot be read.
    pub(super) messages: Vec<(PeekedBusMessage, Shown)>,
    /// Nothing if these were the last.
    pub(super) next: Option<SequenceNumber>,
}

/// The messages of an entity from a number on.
pub(super) async fn page(
    broker: &Broker,
    queue: &EntityName,
    from: SequenceNumber,
) -> Result<Page, HttpError> {
    let peek = BusCommand::Peek {
        queue: queue.clone(),
        from,
        count: PAGE_COUNT,
        session: None,
    };
    let answer = Submitted::new(broker, peek).answer().await?;
    let Outcome::Bus(BusOutcome::Peeked(peeked)) = answer.outcome else {
        return Err(HttpError::internal());
    };
    let next = peeked
        .last()
        .map(|message| SequenceNumber::named(message.sequence_number.as_u64() + 1));
    let mut bodies = answer.bodies.into_iter();
    let shown = peeked.into_iter().filter_map(|message| {
        let stored: Vec<Bytes> = bodies.by_ref().take(1 + message.overlays.len()).collect();
        let shown = Shown::of(Facts::from(&message), stored)?;
        Some((message, shown))
    });
    Ok(Page {
        messages: shown.collect(),
        next,
    })
}

/// The number that the next message of an entity is going to have: where work ends that begins now, so
/// that it does not run after what comes in meanwhile.
pub(super) async fn end_of(
    broker: &Broker,
    queue: &EntityName,
) -> Result<SequenceNumber, HttpError> {
    // A purge of nothing tells it.
    let purge = Purge {
        from: SequenceNumber::default(),
        until: None,
        before: None,
        count: 0,
        with_locked: false,
        is_dry_run: true,
    };
    let purge = BusCommand::Purge {
        queue: queue.clone(),
        purge,
    };
    match Submitted::new(broker, purge).answer().await?.outcome {
        Outcome::Bus(BusOutcome::Purged(purged)) => Ok(purged.until),
        _ => Err(HttpError::internal()),
    }
}

/// Has a command of a job carried out, however long the broker is busy, unless the job is cancelled.
pub(super) async fn patiently(
    broker: &Broker,
    job: &Job,
    command: BusCommand,
) -> Result<BusOutcome, HttpError> {
    loop {
        match Submitted::new(broker, command.clone()).answer().await {
            Ok(answer) => match answer.outcome {
                Outcome::Bus(outcome) => return Ok(outcome),
                _ => return Err(HttpError::internal()),
            },
            Err(Rejection::Busy) if !job.is_cancelled() => tokio::time::sleep(BUSY_PAUSE).await,
            Err(rejection) => return Err(rejection.into()),
        }
    }
}
