//! Sends what waits in the outbox.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use crate::error::{ErrorKind, StoreError};
use crate::outbox::{Holder, OutboxStore, Publish, PublishError};
use crate::random;

/// How many destinations one round visits.
const DESTINATIONS_MAX: u32 = 1_024;

/// How a pump works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PumpOptions {
    /// How many messages of a destination are read, sent and removed together. Default 32. After a crash so many can be
    /// sent again.
    pub batch_size: u32,
    /// How long a destination belongs to one pump that stands still. Default 60 s, longer than `publish_time_max`.
    pub lease_time: Duration,
    /// How long one message may take to be accepted. Default 20 s.
    pub publish_time_max: Duration,
    /// How often the pump looks for messages of other processes. Default 1 s. It sees those of its own process at once.
    pub poll_interval: Duration,
    /// The first pause after a failure. Each further one is twice as long. Default 200 ms.
    pub first_delay: Duration,
    /// The longest pause after a failure. Default 30 s.
    pub delay_max: Duration,
}

impl Default for PumpOptions {
    fn default() -> Self {
        Self {
            batch_size: 32,
            lease_time: Duration::from_secs(60),
            publish_time_max: Duration::from_secs(20),
            poll_interval: Duration::from_secs(1),
            first_delay: Duration::from_millis(200),
            delay_max: Duration::from_secs(30),
        }
    }
}

/// What one round did.
#[derive(Debug, Default)]
pub struct Pumped {
    /// How many messages were accepted and removed.
    pub sent: u64,
    /// Messages that were not accepted, each the first of its destination: those behind it wait.
    pub failures: Vec<(String, PublishError)>,
    /// How many destinations another pump has.
    pub held_by_others: u32,
}

/// Sends the messages of an outbox: at least once, and those of one destination in order.
///
/// A message is removed after it was accepted. One that is refused stays, and those behind it wait until it is
/// accepted; every round reports it. Any number of pumps may run, in any processes.
#[derive(Debug)]
pub struct Pump<S, P> {
    store: S,
    publisher: P,
    holder: Holder,
    options: PumpOptions,
}

impl<S: OutboxStore, P: Publish> Pump<S, P> {
    /// A pump that has sent nothing.
    ///
    /// Fails if a lease is not longer than the time that a message may take, or if batches are empty.
    pub fn new(store: S, publisher: P, options: PumpOptions) -> Result<Self, StoreError> {
        let PumpOptions {
            batch_size,
            lease_time,
            publish_time_max,
            ..
        } = options;
        if lease_time <= publish_time_max {
            return Err(StoreError::refused(format!(
                "a lease of {lease_time:?} ends while a message may take {publish_time_max:?}: make it longer"
            )));
        }
        if batch_size == 0 {
            return Err(StoreError::refused("a batch of 0 messages sends nothing"));
        }
        Ok(Self {
            store,
            publisher,
            holder: Holder::new()?,
            options,
        })
    }

    /// Sends until `stop` is ready. Then it finishes the batch that it sends, and returns.
    ///
    /// To drop the future may send messages of the current batch again.
    pub async fn run(&self, stop: impl Future<Output = ()>) {
        let mut stop = std::pin::pin!(stop);
        let (ask, asked) = watch::channel(false);
        let mut rounds = std::pin::pin!(self.rounds(asked));
        tokio::select! {
            () = &mut stop => {}
            () = &mut rounds => return,
        }
        let _ = ask.send(true);
        rounds.await;
    }

    /// Sends once what waits now. Destinations that another pump has are left to it.
    pub async fn run_once(&self) -> Result<Pumped, StoreError> {
        let (_never, asked) = watch::channel(false);
        self.round(&asked).await
    }

    async fn rounds(&self, mut asked: watch::Receiver<bool>) {
        let mut enqueued = self.store.enqueued();
        let mut failures = 0;
        while !*asked.borrow() {
            // What is committed from here on is found after the wait.
            enqueued.mark_unchanged();
            let pause = match self.round(&asked).await {
                Ok(pumped) if pumped.failures.is_empty() => {
                    failures = 0;
                    if pumped.sent > 0 {
                        continue;
                    }
                    None
                }
                Ok(pumped) => {
                    for (destination, error) in &pumped.failures {
                        report(destination, error);
                    }
                    if pumped.sent > 0 {
                        failures = 0;
                    }
                    failures += 1;
                    Some(self.delay(failures))
                }
                Err(error) => {
                    tracing::warn!(target: "kew::idempotency", %error, "the outbox cannot be read");
                    failures += 1;
                    Some(self.delay(failures))
                }
            };
            let until = pause.unwrap_or(self.options.poll_interval);
            tokio::select! {
                // Only the end of the store, or of the pump, ends a channel.
                _ = asked.changed() => {}
                Ok(()) = enqueued.changed(), if pause.is_none() => {}
                () = sleep(until) => {}
            }
        }
    }

    async fn round(&self, asked: &watch::Receiver<bool>) -> Result<Pumped, StoreError> {
        let mut pumped = Pumped::default();
        for destination in self.store.destinations(DESTINATIONS_MAX).await? {
            if *asked.borrow() {
                break;
            }
            self.destination(&destination, asked, &mut pumped).await?;
        }
        Ok(pumped)
    }

    /// Sends what one destination has, and gives its lease back.
    async fn destination(
        &self,
        destination: &str,
        asked: &watch::Receiver<bool>,
        pumped: &mut Pumped,
    ) -> Result<(), StoreError> {
        while !*asked.borrow() {
            let began = Instant::now();
            let time = self.options.lease_time;
            if !self.store.lease(destination, &self.holder, time).await? {
                pumped.held_by_others += 1;
                return Ok(());
            }
            let (sent, went) = self.batch(destination, began).await?;
            pumped.sent += sent;
            match went {
                Went::On => {}
                Went::Empty => break,
                Went::Lost => return Ok(()),
                Went::Wrong(error) => {
                    pumped.failures.push((destination.to_owned(), error));
                    break;
                }
            }
        }
        self.store.release(destination, &self.holder).await
    }

    /// Sends one batch, under a lease that began at `began`.
    async fn batch(&self, destination: &str, began: Instant) -> Result<(u64, Went), StoreError> {
        let size = self.options.batch_size;
        let batch = self.store.pending(destination, size).await?;
        if batch.is_empty() {
            return Ok((0, Went::Empty));
        }
        let limit = self.options.publish_time_max;
        let mut sent = Vec::with_capacity(batch.len());
        let mut went = Went::On;
        for pending in batch {
            // What would be sent after the end of the lease, another pump may have sent before.
            if began.elapsed() + limit >= self.options.lease_time {
                break;
            }
            match timeout(limit, self.publisher.publish(&pending.message)).await {
                Ok(Ok(())) => sent.push(pending.sequence),
                Ok(Err(error)) => {
                    went = Went::Wrong(error);
                    break;
                }
                Err(_) => {
                    let text = format!("message {} had no answer in {limit:?}", pending.message.id);
                    went = Went::Wrong(PublishError::unknown(text));
                    break;
                }
            }
        }
        if sent.is_empty() {
            return Ok((0, went));
        }
        let store = &self.store;
        match store.remove_sent(destination, &self.holder, &sent).await? {
            true => Ok((u64::try_from(sent.len()).unwrap_or(u64::MAX), went)),
            false => Ok((0, Went::Lost)),
        }
    }

    /// Exponential, between half and all of it, so that pumps that failed together come back apart.
    fn delay(&self, failures: u32) -> Duration {
        let options = &self.options;
        let doubled = 2_u32.saturating_pow(failures.saturating_sub(1).min(31));
        let whole = options.first_delay.saturating_mul(doubled);
        let half = whole.min(options.delay_max) / 2;
        half + half.mul_f64(random::share())
    }
}

/// How a batch ended.
enum Went {
    /// There may be more.
    On,
    /// There was nothing.
    Empty,
    /// The lease had passed to another pump.
    Lost,
    /// A message was not accepted.
    Wrong(PublishError),
}

fn report(destination: &str, error: &PublishError) {
    match error.kind() {
        ErrorKind::Refused => {
            tracing::error!(target: "kew::idempotency", destination, %error, "a message of the outbox is refused; those behind it wait");
        }
        ErrorKind::TryAgainLater | ErrorKind::OutcomeUnknown => {
            tracing::warn!(target: "kew::idempotency", destination, %error, "a message of the outbox is sent again later");
        }
    }
}
