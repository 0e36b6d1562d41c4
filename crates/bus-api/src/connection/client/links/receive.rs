//! One receive of a link: the available messages, or a wait.

use std::sync::Arc;

use kew_amqp::LinkId;
use kew_broker::{Answer, Broker, Rejection, Watch};
use kew_engine::EntityName;
use kew_engine::bus::{BusCommand, ReceiveMode};
use tokio::sync::OwnedSemaphorePermit;

use super::cancel::Cancel;
use crate::connection::client::patience::BUSY_PAUSE;
use crate::ground::submit::Submitted;
use crate::messages::batch::{Batch, batch_of, has_some};
use crate::shared::Shared;

/// Messages, and the room that is reserved for them until the connection takes them.
pub(crate) struct Received {
    pub(crate) batch: Batch,
    pub(crate) room: Option<OwnedSemaphorePermit>,
}

impl Received {
    const NOTHING: Self = Self {
        batch: Batch::new(),
        room: None,
    };
}

/// One receive.
pub(crate) struct Receive {
    pub(crate) shared: Arc<Shared>,
    pub(crate) broker: Arc<Broker>,
    pub(crate) queue: EntityName,
    pub(crate) command: BusCommand,
    /// About how much it brings at most.
    pub(crate) size_bytes: usize,
    pub(crate) cancel: Arc<Cancel>,
}

/// A receive that waits for its first answer.
pub(crate) struct FirstLook {
    pub(crate) link: LinkId,
    pub(crate) receive: Receive,
    /// `None` if it must not wait.
    pub(crate) watch: Option<Watch>,
    pub(crate) room: OwnedSemaphorePermit,
}

/// The result of an answer to a receive.
pub(crate) enum Looked {
    Found(Batch),
    Refused(Rejection),
    Not(Next),
}

/// What to do after a receive that found nothing.
#[derive(Clone, Copy)]
pub(crate) enum Next {
    /// Looks, which it has not done yet.
    Look,
    /// Waits until there may be a message.
    Wait,
    /// Lets a busy broker be, and looks again.
    Pause,
}

impl Looked {
    pub(crate) fn of(answer: Result<Answer, Rejection>) -> Self {
        match answer.map(batch_of) {
            Ok(batch) if batch.is_empty() => Self::Not(Next::Wait),
            Ok(batch) => Self::Found(batch),
            Err(
                Rejection::Busy | Rejection::NotOwner | Rejection::Full | Rejection::ReadFailed,
            ) => Self::Not(Next::Pause),
            Err(rejection) => Self::Refused(rejection),
        }
    }
}

impl Receive {
    /// Receives the available messages. If there are none, waits for one, unless the link does not
    /// want that.
    pub(crate) async fn run(
        self,
        mut watch: Option<Watch>,
        mut next: Next,
    ) -> Result<Received, Rejection> {
        loop {
            match (next, &mut watch) {
                (Next::Look, _) => {}
                // A client that drains waits for the answer, even if there is no room for long.
                (Next::Pause | Next::Wait, None) => return Ok(Received::NOTHING),
                (Next::Pause, Some(_)) => tokio::select! {
                    () = tokio::time::sleep(BUSY_PAUSE) => {}
                    () = self.cancel.cancelled() => watch = None,
                },
                (Next::Wait, Some(waiting)) => tokio::select! {
                    () = waiting.woken() => {}
                    () = self.cancel.cancelled() => watch = None,
                },
            }
            // Nothing is received for a link that is known to be detached.
            if self.cancel.is_given_up() {
                return Ok(Received::NOTHING);
            }
            let (looked, room) = match self.room().await {
                Place::Room(room) => (self.look().await, Some(room)),
                Place::NotNeeded(looked) => (looked, None),
                Place::Unwanted => return Ok(Received::NOTHING),
            };
            if let Some(watch) = &mut watch
                && !matches!(looked, Looked::Not(Next::Pause))
            {
                watch.looked();
            }
            match looked {
                Looked::Found(batch) => return Ok(Received { batch, room }),
                Looked::Refused(rejection) => return Err(rejection),
                Looked::Not(then) => next = then,
            }
        }
    }

    async fn look(&self) -> Looked {
        let submitted = Submitted::new(&self.broker, self.command.clone());
        match self.command {
            // Nothing is deleted for a link that is gone, if that still waits for the disk.
            BusCommand::Receive {
                mode: ReceiveMode::ReceiveAndDelete,
                ..
            } => tokio::select! {
                answer = submitted.answer() => Looked::of(answer),
                () = self.cancel.detached() => Looked::Not(Next::Pause),
            },
            _ => Looked::of(submitted.answer().await),
        }
    }

    /// Room for the messages. It waits for room only if there are messages, and keeps the wake-up
    /// meanwhile.
    async fn room(&self) -> Place {
        if let Some(room) = self.shared.answers.try_for(self.size_bytes) {
            return Place::Room(room);
        }
        match has_some(&self.broker, &self.queue).await {
            Ok(true) => {}
            Ok(false) => return Place::NotNeeded(Looked::Not(Next::Wait)),
            // It has only looked: nothing has changed in any case.
            Err(
                Rejection::Busy
                | Rejection::NotOwner
                | Rejection::Unknown
                | Rejection::Full
                | Rejection::ReadFailed,
            ) => {
                return Place::NotNeeded(Looked::Not(Next::Pause));
            }
            Err(rejection) => return Place::NotNeeded(Looked::Refused(rejection)),
        }
        let room = tokio::select! {
            room = self.shared.answers.wait_for(self.size_bytes) => room,
            () = self.cancel.cancelled() => None,
        };
        room.map_or(Place::Unwanted, Place::Room)
    }
}

/// Room for the messages of a receive.
enum Place {
    Room(OwnedSemaphorePermit),
    /// There are no messages.
    NotNeeded(Looked),
    /// It is not wanted any more.
    Unwanted,
}
