//! Locks of which only the token is known.

use std::sync::Arc;
use std::time::SystemTime;

use kew_amqp::codec::Uuid;
use tokio::time::Instant;

use super::core::LinkKey;
use super::entity::Entity;
use super::lock::Settler;
use super::management;
use super::shared::Shared;
use super::verdict::{Changes, Verdict};
use crate::error::Error;

/// A lock on a message that another receiver has taken: another process, for example, that has printed its token.
///
/// Messages of sessions cannot be settled so: their lock is that of the session. If a settlement fails with *outcome
/// unknown*, it may have been carried out. To drop the future of one leaves that open as well.
#[derive(Debug)]
pub struct HeldLock {
    settler: Arc<Settler>,
    token: Uuid,
}

impl HeldLock {
    pub(super) fn new(shared: &Arc<Shared>, entity: Entity, token: Uuid) -> Self {
        let settler = Settler {
            shared: shared.clone(),
            // No link has it.
            link: LinkKey(0),
            entity,
            session: None,
        };
        Self {
            settler: Arc::new(settler),
            token,
        }
    }

    /// The token of the lock.
    pub fn token(&self) -> Uuid {
        self.token
    }

    /// As [`Locked::complete`](super::Locked::complete).
    pub async fn complete(&self) -> Result<(), Error> {
        self.settle(&Verdict::Complete).await
    }

    /// As [`Locked::abandon`](super::Locked::abandon).
    pub async fn abandon(&self, changes: Changes) -> Result<(), Error> {
        self.settle(&Verdict::Abandon(changes)).await
    }

    /// As [`Locked::defer`](super::Locked::defer).
    pub async fn defer(&self, changes: Changes) -> Result<(), Error> {
        self.settle(&Verdict::Defer(changes)).await
    }

    /// As [`Locked::dead_letter`](super::Locked::dead_letter).
    pub async fn dead_letter(
        &self,
        reason: &str,
        description: &str,
        changes: Changes,
    ) -> Result<(), Error> {
        let verdict = Verdict::DeadLetter {
            reason: reason.to_owned(),
            description: description.to_owned(),
            changes,
        };
        self.settle(&verdict).await
    }

    /// Renews the lock for the entity's lock duration, and returns its new end.
    pub async fn renew(&self) -> Result<SystemTime, Error> {
        management::renew_lock(&self.settler, self.token).await
    }

    async fn settle(&self, verdict: &Verdict) -> Result<(), Error> {
        let shared = &self.settler.shared;
        let deadline: Instant = shared.deadline();
        let attempt = || management::settle(&self.settler, self.token, verdict, deadline);
        shared.with_retries(deadline, attempt).await
    }
}
