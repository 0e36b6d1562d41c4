//! Receives messages.

use std::sync::Arc;
use std::time::Duration;

use super::entity::Entity;
use super::inbox::Inbox;
use super::lock::Settler;
use super::locked::Locked;
use super::management;
use super::received::Received;
use crate::error::Error;

/// How a receiver takes messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceiverOptions {
    /// How many messages are fetched ahead of calls, at most 1,023. Default 0. Messages that wait here are
    /// locked, and their locks run out.
    pub prefetch: u32,
}

/// A receiver whose messages stay locked until they are settled.
///
/// A link that is lost is attached again. Messages that came before keep their locks.
#[derive(Debug)]
pub struct Receiver {
    inbox: Inbox,
    settler: Arc<Settler>,
}

impl Receiver {
    pub(super) fn new(inbox: Inbox, entity: Entity) -> Self {
        let settler = Settler {
            shared: inbox.link().shared().clone(),
            link: inbox.link().key(),
            entity,
            session: None,
        };
        Self {
            inbox,
            settler: Arc::new(settler),
        }
    }

    /// Waits for the next message, as long as it takes.
    ///
    /// To drop the future loses nothing: a message that comes afterwards waits for the next call, and its lock
    /// runs meanwhile.
    pub async fn receive(&mut self) -> Result<Locked, Error> {
        let inbound = self.inbox.next().await?;
        self.settler.locked(inbound).await
    }

    /// Waits for a message, as long as it takes, and returns it with those that come within a time after it, at most
    /// `count` and at most 1,023.
    ///
    /// To drop the future loses nothing. A batch ends before a message that cannot be read; the next call gives that
    /// one back and fails.
    pub async fn receive_batch(
        &mut self,
        count: u32,
        within: Duration,
    ) -> Result<Vec<Locked>, Error> {
        let inbox = &mut self.inbox;
        self.settler.locked_batch(inbox, count, within).await
    }

    /// Locks messages that were deferred, by their sequence numbers. If one of them is not there, none is returned. To
    /// drop the future can leave them locked until their locks end; they stay deferred.
    pub async fn receive_deferred(&self, numbers: &[i64]) -> Result<Vec<Locked>, Error> {
        management::receive_deferred(&self.settler, numbers).await
    }

    /// Gives back the messages that came and were not taken, and ends the link. To drop the future gives it up: what is
    /// not given back comes again when its lock ends.
    pub async fn close(mut self) -> Result<(), Error> {
        self.inbox.release_all().await
    }
}

/// A receiver whose messages are gone from the service when they come.
#[derive(Debug)]
pub struct DeletingReceiver {
    inbox: Inbox,
}

impl DeletingReceiver {
    pub(super) fn new(inbox: Inbox) -> Self {
        Self { inbox }
    }

    /// Waits for the next message, as long as it takes.
    ///
    /// To drop the future loses nothing: a message that comes afterwards waits for the next call.
    pub async fn receive(&mut self) -> Result<Received, Error> {
        read(&self.inbox.next().await?.payload)
    }

    /// Waits for a message, as long as it takes, and returns it with those that come within a time after it, at most
    /// `count` and at most 1,023.
    ///
    /// To drop the future loses nothing. A batch ends before a message that cannot be read; the next call drops that
    /// one and fails.
    pub async fn receive_batch(
        &mut self,
        count: u32,
        within: Duration,
    ) -> Result<Vec<Received>, Error> {
        let batch = self.inbox.batch(count, within, |it| read(&it.payload));
        batch.await.map_err(|unread| unread.error)
    }

    /// Asks for no more messages, ends the link, and returns those that came and were not taken. To drop the
    /// receiver instead loses them. Those that cannot be read are left out and logged; if there are no others, the
    /// first of them is the error.
    pub async fn close(mut self) -> Result<Vec<Received>, Error> {
        let mut messages = Vec::new();
        let mut unreadable = None;
        for inbound in self.inbox.drain().await? {
            match read(&inbound.payload) {
                Ok(message) => messages.push(message),
                Err(error) => {
                    tracing::warn!(target: "kew::client", %error, "a message that came last is lost");
                    unreadable.get_or_insert(error);
                }
            }
        }
        match unreadable {
            Some(error) if messages.is_empty() => Err(error),
            Some(_) | None => Ok(messages),
        }
    }
}

pub(super) fn read(payload: &bytes::Bytes) -> Result<Received, Error> {
    Received::read(payload.clone())
        .map_err(|error| Error::refused(format!("a message cannot be read: {error}")))
}
