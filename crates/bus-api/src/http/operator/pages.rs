//! Messages, a page after another.

use std::time::Duration;

use bytes::Bytes;
use kew_broker::{Answer, Broker, Rejection};
use kew_engine::bus::{BusCommand, BusOutcome, PeekedBusMessage, Purge};
use kew_engine::{EntityName, Outcome, SequenceNumber};
use tokio::time::Instant;

use super::super::answers::HttpError;
use super::super::answers::Shown;
use super::filter::Filter;
use super::jobs::Job;
use crate::ground::submit::Submitted;
use crate::messages::outbound::Facts;

/// How many messages are looked at in one command.
pub(super) const PAGE_COUNT: u32 = 256;
/// How long a command without a waiting client pauses while the broker has no room for it.
const BUSY_PAUSE: Duration = Duration::from_millis(100);
/// How long a job retries one command while the broker is busy or the disk is full.
const BUSY_PATIENCE: Duration = Duration::from_secs(30);

/// Some messages, in order, and where the next begin.
pub(super) struct Page {
    /// Without messages whose bytes cannot be read.
    pub(super) messages: Vec<(PeekedBusMessage, Shown)>,
    /// `None` if these were the last.
    pub(super) next: Option<SequenceNumber>,
}

/// The messages of an entity from a number on, at most `count`.
pub(super) async fn page(
    broker: &Broker,
    queue: &EntityName,
    from: SequenceNumber,
    count: u32,
) -> Result<Page, HttpError> {
    page_of(
        Submitted::new(broker, peek(queue, from, count))
            .answer()
            .await?,
    )
}

fn peek(queue: &EntityName, from: SequenceNumber, count: u32) -> BusCommand {
    BusCommand::Peek {
        queue: queue.clone(),
        from,
        count,
        session: None,
    }
}

fn page_of(answer: Answer) -> Result<Page, HttpError> {
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

/// Refuses an entity that does not exist.
pub(super) async fn check(broker: &Broker, queue: &EntityName) -> Result<(), HttpError> {
    let answer = Submitted::new(broker, purge_of_nothing(queue)).answer();
    answer.await?;
    Ok(())
}

/// The number that the next message of an entity will get: a job ends there, so that it does not
/// chase new messages.
pub(super) async fn end_of(
    broker: &Broker,
    job: &Job,
    queue: &EntityName,
) -> Result<SequenceNumber, HttpError> {
    match patiently(broker, job, purge_of_nothing(queue)).await? {
        BusOutcome::Purged(purged) => Ok(purged.until),
        _ => Err(HttpError::internal()),
    }
}

fn purge_of_nothing(queue: &EntityName) -> BusCommand {
    let purge = Purge {
        from: SequenceNumber::default(),
        until: None,
        before: None,
        count: 0,
        with_locked: false,
        is_dry_run: true,
    };
    BusCommand::Purge {
        queue: queue.clone(),
        purge,
    }
}

/// The messages of a job: those that exist when it begins.
pub(super) struct Walk<'a> {
    pub(super) broker: &'a Broker,
    pub(super) queue: &'a EntityName,
    pub(super) filter: &'a Filter,
    pub(super) job: &'a Job,
    pub(super) until: SequenceNumber,
    /// `None` at the end.
    pub(super) from: Option<SequenceNumber>,
}

impl Walk<'_> {
    /// The messages of the next page, which are counted; `None` at the end, or when the job is
    /// cancelled.
    pub(super) async fn next(
        &mut self,
    ) -> Result<Option<Vec<(PeekedBusMessage, Shown)>>, HttpError> {
        let Some(first) = self.from.filter(|_| !self.job.is_cancelled()) else {
            return Ok(None);
        };
        let page =
            page_of(answer(self.broker, self.job, peek(self.queue, first, PAGE_COUNT)).await?)?;
        let (until, filter) = (self.until, self.filter);
        let next = page.next;
        self.from = next.filter(|next| *next < until && !filter.is_beyond(*next));
        let looked_at = page.messages.len() as u64;
        let mut meant = page.messages;
        meant.retain(|(message, shown)| {
            message.sequence_number < until && filter.matches(message, shown)
        });
        self.job.note(|progress| {
            progress.looked_at += looked_at;
            progress.matched += meant.len() as u64;
        });
        Ok(Some(meant))
    }
}

/// Carries out a command of a job. Retries for a while if the broker is busy or the disk is full,
/// unless the job is cancelled. If that does not help, the job ends with the reason.
pub(super) async fn patiently(
    broker: &Broker,
    job: &Job,
    command: BusCommand,
) -> Result<BusOutcome, HttpError> {
    match answer(broker, job, command).await?.outcome {
        Outcome::Bus(outcome) => Ok(outcome),
        _ => Err(HttpError::internal()),
    }
}

/// The same, with the whole answer.
pub(super) async fn answer(
    broker: &Broker,
    job: &Job,
    command: BusCommand,
) -> Result<Answer, Rejection> {
    let give_up_at = Instant::now() + BUSY_PATIENCE;
    loop {
        match Submitted::new(broker, command.clone()).answer().await {
            Err(
                Rejection::Busy | Rejection::NotOwner | Rejection::Full | Rejection::ReadFailed,
            ) if !job.is_cancelled() && Instant::now() < give_up_at => {
                tokio::time::sleep(BUSY_PAUSE).await;
            }
            answered => return answered,
        }
    }
}
