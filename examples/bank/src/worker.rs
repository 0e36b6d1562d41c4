//! Books what is in the queue.

use std::sync::Arc;
use std::time::Duration;

use kew_idempotency::{Answer, StoreError};
use kew_worker::{
    BackOff, BusSource, Delivery, Failure, Fixed, Handler, Lease, Listener, ListenerBuilder,
    LostLeases, QueueSource, Source, State, Stop, StopReport,
};
use tokio::time::{sleep, timeout};

use crate::fitness::RENEWED_AT;
use crate::ledger::{Ledger, LedgerError, WorkReport};
use crate::message::{Message, Messages};
use crate::queue::{Queue, Service};
use crate::transaction::Decision;

/// The longest pause before a message is tried again whose booking failed.
const RETRY_MAX: Duration = Duration::from_mins(5);

/// The part of the worker's time that each step has.
const STEP_SHARE: f64 = 0.45;

/// So many leases that end too early, within such a time, are reported to the web service.
const LOSSES_MAX: u32 = 10;
const LOSSES_WITHIN: Duration = Duration::from_mins(5);

/// The reason of a message whose transaction id stands for another request.
pub const ID_REUSED: &str = "TransactionIdReused";

/// The work: one transaction of the database for each message. The listener deletes the message afterwards.
struct Bookkeeper {
    ledger: Ledger,
    /// For messages that failed often, on a service that buries them by itself.
    renewal: Option<Queue>,
    /// How long each of two steps may take: to book a message, and to send it again. Both end before the listener drops
    /// the work, because a service counts what was dropped and nobody would send it again.
    step_max: Duration,
}

impl<L: Lease> Handler<Message, L> for Bookkeeper {
    async fn handle(&self, delivery: Delivery<Message, L>) -> Result<(), Failure> {
        let transaction = &delivery.message().transaction;
        let (key, id) = (&transaction.key, &transaction.id);
        let book = timeout(self.step_max, self.ledger.book(transaction));
        let booked = book.await.unwrap_or_else(|_| {
            let text = format!("the stores did not book within {:?}", self.step_max);
            Err(StoreError::later(text).into())
        });
        match booked {
            Ok(Answer::New(details)) => {
                if details.decision == Decision::OutOfRange {
                    tracing::error!(%key, %id, "not booked: the balance would be out of range");
                }
                Ok(())
            }
            Ok(Answer::Repeated(_)) => {
                tracing::info!(%key, %id, "was booked before");
                Ok(())
            }
            // It can never be booked.
            Err(LedgerError::IdReused(error)) => Err(Failure::from(error).permanent(ID_REUSED)),
            // Whatever goes wrong in the database, the message comes back: it is confirmed.
            Err(LedgerError::Store(error)) => self.try_later(&delivery, error.into()).await,
        }
    }
}

impl Bookkeeper {
    /// A message that is near the limit of its queue goes on as a new message.
    async fn try_later<L>(
        &self,
        delivery: &Delivery<Message, L>,
        failure: Failure,
    ) -> Result<(), Failure> {
        match &self.renewal {
            Some(queue) if delivery.attempt() >= RENEWED_AT => {
                let send = queue.send_again(delivery.message().to_body()?);
                let Ok(sent) = timeout(self.step_max, send).await else {
                    return Err(failure);
                };
                sent?;
                tracing::warn!(%failure, "a message was sent again, because it failed often");
                Ok(())
            }
            Some(_) | None => Err(failure),
        }
    }
}

/// A worker that runs: a listener of either service.
#[derive(Debug)]
pub enum Worker {
    /// Of Queue Storage.
    Storage(Listener<Message, QueueSource>),
    /// Of Service Bus.
    Bus(Listener<Message, BusSource>),
}

impl Worker {
    /// Starts to book what is in the queue. The queue should exist.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    pub fn start(queue: &Queue, ledger: Ledger) -> Self {
        let worker_timeout = queue.worker_timeout();
        let step_max = worker_timeout.mul_f64(STEP_SHARE);
        match queue.service() {
            Service::Storage(client) => {
                let source = QueueSource::new(client.clone(), "bank", queue.name());
                let source = source.poison_queue(&queue.poison());
                let keeper = Bookkeeper {
                    ledger,
                    renewal: None,
                    step_max,
                };
                let listener = Listener::builder(source, Messages);
                let listener = listener.visibility(Fixed(worker_timeout));
                Self::Storage(listen(listener, keeper, worker_timeout))
            }
            Service::Bus { client, admin } => {
                let source = BusSource::new(client.clone(), "bank", queue.name());
                let source = source.admin(admin.clone());
                let source = source.lock_duration(worker_timeout);
                let listener = Listener::builder(source, Messages);
                let keeper = Bookkeeper {
                    ledger,
                    renewal: Some(queue.clone()),
                    step_max,
                };
                Self::Bus(listen(listener, keeper, worker_timeout))
            }
        }
    }

    /// What it does now.
    pub fn state(&self) -> State {
        match self {
            Self::Storage(listener) => listener.state(),
            Self::Bus(listener) => listener.state(),
        }
    }

    /// What it says about itself, for the page.
    pub fn report(&self, instance: &str) -> WorkReport {
        let state = self.state();
        let count = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        WorkReport {
            instance: instance.to_owned(),
            in_flight: count(state.in_flight),
            completed: count(state.completed),
            failed: count(state.failed),
            buried: count(state.buried),
        }
    }

    /// Stores what it says about itself each second, if that has changed, and each two seconds otherwise. Never ends.
    pub async fn report_to(&self, ledger: &Ledger, instance: &str) {
        let mut last = None;
        for second in 0_u64.. {
            let report = self.report(instance);
            if last.as_ref() != Some(&report) || second.is_multiple_of(2) {
                if let Err(error) = ledger.report(report.clone()).await {
                    tracing::debug!(%error, "the report was not stored");
                }
                last = Some(report);
            }
            sleep(Duration::from_secs(1)).await;
        }
    }

    /// Finishes what it has, and ends.
    pub async fn stop(self) -> StopReport {
        match self {
            Self::Storage(listener) => listener.stop(Stop::default()).await,
            Self::Bus(listener) => listener.stop(Stop::default()).await,
        }
    }
}

/// Tells the web service, which is another process, through the stores that both have.
async fn report_loss(ledger: Ledger, lease: Duration) {
    if let Err(error) = ledger.report_loss(lease).await {
        tracing::warn!(%error, "the web service was not told of lost leases");
    }
}

fn listen<S: Source>(
    builder: ListenerBuilder<Message, S>,
    keeper: Bookkeeper,
    worker_timeout: Duration,
) -> Listener<Message, S> {
    let retry = BackOff {
        maximum: RETRY_MAX,
        ..BackOff::MESSAGES
    };
    let ledger = keeper.ledger.clone();
    let listener = builder
        .subscribe(Arc::new(keeper))
        .handlers_max(16)
        .tasks_max(4)
        // Forever: a confirmed transaction is not given up because its database is down for a week.
        .attempts_max(u32::MAX)
        // A slow worker's message goes to another one.
        .handling_time_max(worker_timeout)
        .message_delay(retry)
        .on_lost_leases(LOSSES_MAX, LOSSES_WITHIN, move |lost: &LostLeases| {
            tokio::spawn(report_loss(ledger.clone(), lost.lease));
        })
        .build();
    // It cannot be stopped yet, and one task was asked for.
    if let Err(error) = listener.start(1) {
        tracing::error!(%error, "no task was started");
    }
    listener
}
