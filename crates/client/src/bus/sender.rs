//! Sends messages.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use kew_amqp::message::BATCH_FORMAT;
use tokio::time::{Instant, sleep_until};

use super::batch::Batch;
use super::core::{Command, TransactionName};
use super::encoded::Encoded;
use super::entity::Entity;
use super::job::{Unseen, Watch};
use super::management;
use super::message::Message;
use super::shared::{LinkHandle, Share, Shared};
use crate::error::{Effect, Error};

/// The largest batch that services take, in bytes, however large a message may be.
const BATCH_SIZE_MAX: u64 = 1 << 20;

/// What a service takes that does not say so: the limit of the Standard tier.
const MESSAGE_SIZE_UNSAID: u64 = 256 << 10;

/// A sender to a queue or a topic. Share it by reference: many sends can be under way at once, and one after the
/// other each takes a round trip.
#[derive(Debug)]
pub struct Sender {
    link: LinkHandle,
    entity: Entity,
    message_size_max: u64,
    watch: Arc<Watch>,
    /// Until when the service asked for a pause.
    busy_until: Mutex<Option<Instant>>,
}

impl Sender {
    pub(super) fn new(link: LinkHandle, entity: Entity, message_size_max: Option<u64>) -> Self {
        Self {
            link,
            entity,
            message_size_max: message_size_max.unwrap_or(MESSAGE_SIZE_UNSAID),
            watch: Arc::new(Watch::default()),
            busy_until: Mutex::new(None),
        }
    }

    /// Sends a message, and waits until the service has it.
    ///
    /// To drop the future withdraws the message if it has not been written; what was written may arrive, and
    /// its outcome goes to [`Sender::settled`]. With the error *outcome unknown* it may have arrived too. The
    /// client never sends it again then: do so yourself if the queue detects duplicates, or if two are as good as
    /// one.
    pub async fn send(&self, message: &Message) -> Result<(), Error> {
        self.transfer(message.encode()?, 0).await
    }

    /// Sends a message exactly as it is, and waits until the service has it. Everything else is as for
    /// [`Sender::send`].
    pub async fn send_encoded(&self, message: &Encoded) -> Result<(), Error> {
        self.transfer(message.bytes().clone(), 0).await
    }

    /// Sends a batch, and waits until the service has it. It is accepted whole or not at all.
    ///
    /// Cancelling is as for [`Sender::send`].
    pub async fn send_batch(&self, batch: &Batch) -> Result<(), Error> {
        if batch.is_empty() {
            return Ok(());
        }
        self.transfer(batch.encode(), BATCH_FORMAT).await
    }

    /// A batch that is as large as the service takes.
    pub fn new_batch(&self) -> Batch {
        let size = self.message_size_max.min(BATCH_SIZE_MAX);
        Batch::new(usize::try_from(size).unwrap_or(usize::MAX))
    }

    /// The largest message that the service takes, in bytes.
    pub fn message_size_max(&self) -> u64 {
        self.message_size_max
    }

    /// Hands in messages that become visible at their `scheduled_at`, and returns the sequence numbers that cancel
    /// them.
    ///
    /// A message that is dropped as a duplicate has number 0. To drop the future leaves it open whether they were
    /// handed in.
    pub async fn schedule(&self, messages: &[Message]) -> Result<Vec<i64>, Error> {
        let mut encoded = Vec::with_capacity(messages.len());
        for message in messages {
            if message.scheduled_at.is_none() {
                let text = "a message to be scheduled has no scheduled_at";
                return Err(Error::refused(text));
            }
            encoded.push(Encoded::new(message.encode()?)?);
        }
        self.schedule_encoded(&encoded).await
    }

    /// The same for messages that are handed in exactly as they are. Their annotation
    /// `x-opt-scheduled-enqueue-time` says when they become visible.
    pub async fn schedule_encoded(&self, messages: &[Encoded]) -> Result<Vec<i64>, Error> {
        management::schedule(self.link.shared(), &self.entity, messages).await
    }

    /// Cancels scheduled messages. If one of them is not there (any more), nothing is cancelled, and the error has
    /// the code `com.microsoft:message-not-found`. To drop the future leaves it open whether they were cancelled.
    pub async fn cancel_scheduled(&self, numbers: &[i64]) -> Result<(), Error> {
        management::cancel_scheduled(self.link.shared(), &self.entity, numbers).await
    }

    /// Waits until no send is under way, and returns the outcomes of those whose futures were dropped. Each
    /// outcome is returned once.
    ///
    /// To drop the future loses nothing.
    pub async fn settled(&self) -> Unseen {
        self.watch.settled().await
    }

    async fn transfer(&self, payload: Bytes, message_format: u32) -> Result<(), Error> {
        let shared = self.link.shared();
        let deadline = shared.deadline();
        let attempt = || async {
            self.until_not_busy(deadline).await?;
            let watch = Some(self.watch.clone());
            let (payload, transaction) = (payload.clone(), None);
            self.transfer_once(payload, message_format, transaction, watch, deadline)
                .await
        };
        shared.with_retries(deadline, attempt).await
    }

    /// Sends in a transaction, once: what is refused there ends the transaction.
    pub(super) async fn transfer_in(
        &self,
        transaction: Arc<TransactionName>,
        payload: Bytes,
        message_format: u32,
    ) -> Result<(), Error> {
        let deadline = self.link.shared().deadline();
        self.transfer_once(payload, message_format, Some(transaction), None, deadline)
            .await
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        self.link.shared()
    }

    async fn transfer_once(
        &self,
        payload: Bytes,
        message_format: u32,
        transaction: Option<Arc<TransactionName>>,
        watch: Option<Arc<Watch>>,
        deadline: Instant,
    ) -> Result<(), Error> {
        let link = self.link.key();
        let share = Share::Sends {
            bytes: payload.len(),
        };
        let command = |job| Command::Send {
            link,
            payload,
            message_format,
            transaction,
            job,
        };
        let (shared, effect) = (self.link.shared(), Effect::Change);
        let sent = shared
            .attempt(effect, share, watch, Some(link), deadline, command)
            .await;
        if sent.as_ref().is_err_and(Error::is_busy) {
            let until = Instant::now() + shared.retry.busy_delay;
            *self.busy() = Some(until);
        }
        match sent?.declared {
            None => Ok(()),
            Some(_) => Err(Error::unknown(
                "the service took a message for a transaction",
            )),
        }
    }

    /// Waits as long as the service asked for when it refused any message of this sender.
    async fn until_not_busy(&self, deadline: Instant) -> Result<(), Error> {
        let until = *self.busy();
        match until {
            Some(until) if until >= deadline => Err(Error::later(
                "the service is busy, and asked for a pause that is longer than the operation may take",
            )),
            Some(until) => {
                sleep_until(until).await;
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn busy(&self) -> std::sync::MutexGuard<'_, Option<Instant>> {
        self.busy_until
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}
