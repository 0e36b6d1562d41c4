//! Message sessions: messages that belong together, in order, for one receiver at a time.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use bytes::Bytes;

use super::entity::Entity;
use super::inbox::Inbox;
use super::lock::Settler;
use super::locked::Locked;
use super::management::{self, Peek};
use super::received::Received;
use crate::error::Error;

/// Which message session is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionChoice {
    /// Its id. `None`: the next one that has messages and no receiver.
    pub id: Option<String>,
    /// How long to wait for one.
    pub within: Duration,
}

impl SessionChoice {
    /// The next one that has messages and no receiver.
    pub fn next(within: Duration) -> Self {
        Self { id: None, within }
    }

    /// This one, which may have no messages.
    pub fn named(id: impl Into<String>) -> Self {
        Self {
            id: Some(id.into()),
            within: Duration::from_secs(60),
        }
    }
}

/// Receives the messages of one session, and holds its lock.
///
/// It ends with its link: once that is lost, all fails with `com.microsoft:session-lock-lost`, and the session can be
/// locked anew. To drop it gives the session back at once.
#[derive(Debug)]
pub struct SessionReceiver {
    inbox: Inbox,
    settler: Arc<Settler>,
    id: String,
    until: Mutex<Option<SystemTime>>,
}

impl SessionReceiver {
    pub(super) fn new(inbox: Inbox, entity: Entity, id: String, until: Option<SystemTime>) -> Self {
        let settler = Settler {
            shared: inbox.link().shared().clone(),
            link: inbox.link().key(),
            entity,
            session: Some(id.clone()),
        };
        Self {
            inbox,
            settler: Arc::new(settler),
            id,
            until: Mutex::new(until),
        }
    }

    /// The session's id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Until when the lock holds, by the clock of the service, if it says so.
    pub fn locked_until(&self) -> Option<SystemTime> {
        *self.until.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Renews the lock for the entity's lock duration, and returns its new end. To drop the future leaves it open
    /// whether it is renewed.
    pub async fn renew(&self) -> Result<SystemTime, Error> {
        let until = management::renew_session(&self.settler, &self.id).await?;
        *self.until.lock().unwrap_or_else(PoisonError::into_inner) = Some(until);
        Ok(until)
    }

    /// What was stored with the session, if anything was. To drop the future loses nothing.
    pub async fn state(&self) -> Result<Option<Bytes>, Error> {
        management::session_state(&self.settler, &self.id).await
    }

    /// Stores something with the session; `None` clears it. It outlives the lock and the messages. To drop the future
    /// leaves it open whether it is stored.
    pub async fn set_state(&self, state: Option<Bytes>) -> Result<(), Error> {
        management::set_session_state(&self.settler, &self.id, state).await
    }

    /// Waits for the next message of the session, as long as it takes.
    ///
    /// To drop the future loses nothing.
    pub async fn receive(&mut self) -> Result<Locked, Error> {
        let inbound = self.inbox.next().await?;
        self.settler.locked(inbound).await
    }

    /// Waits for a message, and returns it with those that come within a time after it, at most `count` and at
    /// most 1,023.
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

    /// Locks messages of the session that were deferred, by their sequence numbers. To drop the future loses nothing:
    /// they stay deferred, under the session's lock.
    pub async fn receive_deferred(&self, numbers: &[i64]) -> Result<Vec<Locked>, Error> {
        management::receive_deferred(&self.settler, numbers).await
    }

    /// Shows messages of the session from a sequence number on. To drop the future loses nothing.
    pub async fn peek(&self, from: i64, count: u32) -> Result<Vec<Received>, Error> {
        let peek = Peek {
            from,
            count,
            session: Some(&self.id),
        };
        management::peek(&self.settler.shared, &self.settler.entity, &peek).await
    }

    /// Gives back the messages that came and were not taken, and the session. To drop the future does the same as to
    /// drop the receiver.
    pub async fn close(mut self) -> Result<(), Error> {
        self.inbox.release_all().await
    }
}
