//! Messages under lock.

use std::ops::Deref;
use std::time::SystemTime;

use kew_amqp::codec::Uuid;

use super::lock::Lock;
use super::received::Received;
use super::verdict::Changes;
use crate::error::Error;

/// A message, and its [`Lock`]: nobody else gets it, until the lock ends or it is settled.
///
/// To drop it settles nothing. [`Lock`] says what it means to drop a future.
#[derive(Debug)]
pub struct Locked {
    message: Received,
    lock: Lock,
}

impl Locked {
    pub(super) fn new(message: Received, lock: Lock) -> Self {
        Self { message, lock }
    }

    /// As [`Lock::complete`].
    pub async fn complete(&self) -> Result<(), Error> {
        self.lock.complete().await
    }

    /// As [`Lock::complete_all`].
    pub async fn complete_all(messages: &[&Self]) -> Vec<Result<(), Error>> {
        let locks: Vec<_> = messages.iter().map(|it| &it.lock).collect();
        Lock::complete_all(&locks).await
    }

    /// As [`Lock::abandon`].
    pub async fn abandon(&self, changes: Changes) -> Result<(), Error> {
        self.lock.abandon(changes).await
    }

    /// As [`Lock::defer`].
    pub async fn defer(&self, changes: Changes) -> Result<(), Error> {
        self.lock.defer(changes).await
    }

    /// As [`Lock::dead_letter`].
    pub async fn dead_letter(
        &self,
        reason: &str,
        description: &str,
        changes: Changes,
    ) -> Result<(), Error> {
        self.lock.dead_letter(reason, description, changes).await
    }

    /// As [`Lock::renew`].
    pub async fn renew(&self) -> Result<SystemTime, Error> {
        self.lock.renew().await
    }

    /// As [`Lock::locked_until`].
    pub fn locked_until(&self) -> Option<SystemTime> {
        self.lock.locked_until()
    }

    /// As [`Lock::lock_token`].
    pub fn lock_token(&self) -> Uuid {
        self.lock.lock_token()
    }

    /// The message alone. Its lock stays until it ends.
    pub fn into_message(self) -> Received {
        self.message
    }

    /// The message and its lock apart: the lock is small, and settles the message, though not in a transaction. After a
    /// renewal the lock knows its end, and the message does not.
    pub fn into_parts(self) -> (Received, Lock) {
        (self.message, self.lock)
    }

    pub(super) fn lock(&self) -> &Lock {
        &self.lock
    }
}

impl Deref for Locked {
    type Target = Received;

    fn deref(&self) -> &Received {
        &self.message
    }
}
