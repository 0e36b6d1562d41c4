//! What a receiver has asked for, and what has come.

use std::collections::VecDeque;
use std::time::Duration;

use futures_util::FutureExt as _;
use kew_amqp::performative::{DeliveryState, Outcome};
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TryRecvError;
use tokio::time::{Instant, timeout_at};

use super::core::{Command, DeliveryName, Inbound};
use super::shared::{LinkHandle, Share};
use crate::error::{Effect, Error, ErrorKind};

/// Messages of a receiver that are on their way or wait for it.
pub(super) const INBOX_MAX: usize = 1_024;

pub(super) type Messages = mpsc::Receiver<Result<Inbound, Error>>;

#[derive(Debug)]
pub(super) struct Inbox {
    link: LinkHandle,
    messages: Messages,
    /// What has come for a batch that is not complete.
    ready: VecDeque<Inbound>,
    prefetch: u32,
    /// How many messages are on their way or in the channel.
    expected: u32,
}

/// Why a batch has no message.
#[derive(Debug)]
pub(super) struct Unread {
    pub(super) error: Error,
    /// The name of its first message, if that cannot be read and waits for a settlement.
    pub(super) delivery: Option<DeliveryName>,
}

impl From<Error> for Unread {
    fn from(error: Error) -> Self {
        let delivery = None;
        Self { error, delivery }
    }
}

impl Inbox {
    pub(super) fn new(link: LinkHandle, messages: Messages, prefetch: u32) -> Self {
        Self {
            link,
            messages,
            ready: VecDeque::new(),
            prefetch: prefetch.min(count_max()),
            expected: 0,
        }
    }

    pub(super) fn link(&self) -> &LinkHandle {
        &self.link
    }

    /// The next message. To drop the future loses nothing.
    pub(super) async fn next(&mut self) -> Result<Inbound, Error> {
        if let Some(ready) = self.ready.pop_front() {
            return Ok(ready);
        }
        self.next_of(1, 1).await
    }

    /// At least one message, and at most so many: those that come within a time after the first. To drop the future
    /// loses nothing.
    ///
    /// A batch ends before a message that cannot be read. The next one begins with it, and fails.
    pub(super) async fn batch<T>(
        &mut self,
        count: u32,
        within: Duration,
        read: impl Fn(&Inbound) -> Result<T, Error>,
    ) -> Result<Vec<T>, Unread> {
        let count = count.clamp(1, count_max());
        if self.ready.is_empty() {
            // A batch that does not wait can be smaller. To ask for a few more would cost as much as to ask for many.
            let least = if within.is_zero() {
                count.div_ceil(2)
            } else {
                count
            };
            let first = self.next_of(least, count).await?;
            self.ready.push_back(first);
        }
        if within.is_zero() {
            self.take_here(count as usize);
        } else {
            self.take_within(count as usize, within).await;
        }
        self.take_readable(count, read)
    }

    /// Takes messages that have come, until so many are ready.
    fn take_here(&mut self, count: usize) {
        let missing = count.saturating_sub(self.ready.len());
        let missing = missing.min(self.messages.len());
        let mut here = Vec::with_capacity(missing);
        // Together: that costs less than one by one.
        let _ = self.messages.recv_many(&mut here, missing).now_or_never();
        for next in here {
            match next {
                Ok(message) => {
                    self.came();
                    self.ready.push_back(message);
                }
                // The next call sees to it.
                Err(_) => self.expected = 0,
            }
        }
    }

    /// The same, and those that come within a time.
    async fn take_within(&mut self, count: usize, within: Duration) {
        let deadline = Instant::now() + within;
        while self.ready.len() < count && self.expected > 0 {
            let next = match self.messages.try_recv() {
                Ok(next) => Some(next),
                Err(TryRecvError::Disconnected) => None,
                Err(TryRecvError::Empty) => {
                    match timeout_at(deadline, self.messages.recv()).await {
                        Ok(next) => next,
                        Err(_) => break,
                    }
                }
            };
            match next {
                Some(Ok(message)) => {
                    self.came();
                    self.ready.push_back(message);
                }
                // The next call sees to it.
                Some(Err(_)) | None => self.expected = 0,
            }
        }
    }

    fn take_readable<T>(
        &mut self,
        count: u32,
        read: impl Fn(&Inbound) -> Result<T, Error>,
    ) -> Result<Vec<T>, Unread> {
        let mut messages = Vec::with_capacity(self.ready.len().min(count as usize));
        while messages.len() < count as usize
            && let Some(inbound) = self.ready.pop_front()
        {
            match read(&inbound) {
                Ok(message) => messages.push(message),
                Err(error) if messages.is_empty() => {
                    let delivery = inbound.delivery;
                    return Err(Unread { error, delivery });
                }
                Err(_) => {
                    self.ready.push_front(inbound);
                    break;
                }
            }
        }
        Ok(messages)
    }

    /// The next message. If fewer than `least` are on their way, it asks for `count`.
    async fn next_of(&mut self, least: u32, count: u32) -> Result<Inbound, Error> {
        let mut failures = 0;
        loop {
            let wanted = count.max(self.prefetch);
            if self.expected < least || self.expected == 0 {
                self.link.shared().want(self.link.key(), wanted).await?;
                self.expected = wanted;
            }
            let error = match self.messages.recv().await {
                Some(Ok(message)) => {
                    self.came();
                    return Ok(message);
                }
                Some(Err(error)) => error,
                None => Error::refused("the receiver was closed"),
            };
            self.expected = 0;
            failures += 1;
            // A link that was lost while nobody waited is attached again at once.
            if failures == 1 && error.kind() == ErrorKind::TryAgainLater && !error.is_busy() {
                continue;
            }
            let never = Instant::now() + Duration::from_hours(24);
            self.link.shared().pause(error, failures - 1, never).await?;
        }
    }

    /// A message has come: with prefetch, others are asked for in time.
    fn came(&mut self) {
        self.expected = self.expected.saturating_sub(1);
        let is_low = self.expected <= self.prefetch / 2;
        if self.prefetch > 0
            && is_low
            && self.link.shared().want_now(self.link.key(), self.prefetch)
        {
            self.expected = self.prefetch;
        }
    }

    /// Gives back credit, and returns what has come until then.
    pub(super) async fn drain(&mut self) -> Result<Vec<Inbound>, Error> {
        let (shared, link) = (self.link.shared(), self.link.key());
        let drained = shared
            .attempt(
                Effect::Read,
                Share::Requests,
                None,
                Some(link),
                shared.deadline(),
                |job| Command::Drain { link, job },
            )
            .await;
        self.expected = 0;
        let mut came: Vec<Inbound> = self.ready.drain(..).collect();
        while let Ok(message) = self.messages.try_recv() {
            came.extend(message);
        }
        match drained {
            // What has come is not to be lost because of what has not.
            Err(error) if came.is_empty() => Err(error),
            Err(_) | Ok(()) => Ok(came),
        }
    }

    /// Gives back what has come and nobody took: all that can be, whatever becomes of the others.
    pub(super) async fn release_all(&mut self) -> Result<(), Error> {
        let shared = self.link.shared().clone();
        let link = self.link.key();
        let mut released = Ok(());
        for delivery in self.drain().await?.into_iter().filter_map(|it| it.delivery) {
            let state = DeliveryState::Outcome(Outcome::Released);
            let command = |job| Command::Settle {
                link,
                delivery,
                state,
                transaction: None,
                job,
            };
            let (effect, share) = (Effect::Change, Share::Requests);
            let settled = shared
                .attempt(effect, share, None, Some(link), shared.deadline(), command)
                .await;
            released = released.and(settled.map(drop));
        }
        released
    }
}

fn count_max() -> u32 {
    // One place is for an error.
    u32::try_from(INBOX_MAX - 1).unwrap_or(u32::MAX)
}
