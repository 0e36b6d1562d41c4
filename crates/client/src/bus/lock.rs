//! Locks of messages, and settlements.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use futures_util::future::join_all;
use kew_amqp::codec::Uuid;
use kew_amqp::performative::Tag;
use tokio::time::Instant;

use super::core::{Answers, Command, DeliveryName, Inbound, LinkKey, Settled, TransactionName};
use super::entity::Entity;
use super::inbox::{Inbox, Unread};
use super::locked::Locked;
use super::management;
use super::shared::{Share, Shared};
use super::verdict::{Changes, Verdict};
use crate::error::{Effect, Error, ErrorKind};

/// The most messages of one command. They are settled in one turn of the connection.
const TOGETHER_MAX: usize = 256;

/// A lock: nobody else gets its message, until it ends or the message is settled.
///
/// To drop it settles nothing: the service hands the message out again when the lock ends. Settlements outlive the link
/// that the message came over. If a settlement fails with *outcome unknown*, it may have been carried out; to do it again
/// is safe, and ends with a lock that is lost if it was.
///
/// To drop the future of a settlement or a renewal leaves it open whether it is carried out; the lock can still be
/// used.
#[derive(Debug)]
pub struct Lock {
    token: Uuid,
    delivery: Option<DeliveryName>,
    until: Mutex<Option<SystemTime>>,
    settler: Arc<Settler>,
}

/// What settles the messages of a receiver.
#[derive(Debug)]
pub(super) struct Settler {
    pub(super) shared: Arc<Shared>,
    pub(super) link: LinkKey,
    pub(super) entity: Entity,
    /// The session whose lock the messages share.
    pub(super) session: Option<String>,
}

impl Lock {
    pub(super) fn new(
        until: Option<SystemTime>,
        token: Uuid,
        delivery: Option<DeliveryName>,
        settler: Arc<Settler>,
    ) -> Self {
        Self {
            token,
            delivery,
            until: Mutex::new(until),
            settler,
        }
    }

    /// The message was processed: it is deleted.
    pub async fn complete(&self) -> Result<(), Error> {
        self.settle(Verdict::Complete).await
    }

    /// The messages of these locks were processed: they are deleted. Returns what became of each, in their order.
    ///
    /// Those that came one after the other from one receiver cost one command and little more than one frame. Each has
    /// its own outcome: what fails is tried again as by [`complete`](Self::complete).
    pub async fn complete_all(locks: &[&Self]) -> Vec<Result<(), Error>> {
        let mut outcomes = Vec::with_capacity(locks.len());
        for of_one in locks.chunk_by(|one, other| Arc::ptr_eq(&one.settler, &other.settler)) {
            for part in of_one.chunks(TOGETHER_MAX) {
                outcomes.extend(Self::complete_part(part).await);
            }
        }
        outcomes
    }

    /// Completes messages of one receiver.
    async fn complete_part(locks: &[&Self]) -> Vec<Result<(), Error>> {
        let Some(settler) = locks.first().map(|it| &it.settler) else {
            return Vec::new();
        };
        let (deadline, verdict) = (settler.shared.deadline(), Verdict::Complete);
        let firsts = settler.complete_over_link(locks, deadline).await;
        if firsts.iter().all(|it| *it == Ok(Settled::Done)) {
            return vec![Ok(()); locks.len()];
        }
        let outcomes = locks.iter().zip(firsts).map(async |(lock, first)| {
            match first {
                Ok(Settled::Done) => Ok(()),
                // The rest is large, and rare.
                first => Box::pin(lock.settle_on(&verdict, first, deadline)).await,
            }
        });
        join_all(outcomes).await
    }

    /// The message could not be processed: another receiver gets it, and its delivery count rises.
    pub async fn abandon(&self, changes: Changes) -> Result<(), Error> {
        self.settle(Verdict::Abandon(changes)).await
    }

    /// The message is set aside: it can be received by its sequence number alone.
    pub async fn defer(&self, changes: Changes) -> Result<(), Error> {
        self.settle(Verdict::Defer(changes)).await
    }

    /// The message goes to the dead-letter queue. Reason and description have 4,096 characters at most.
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
        self.settle(verdict).await
    }

    /// Renews the lock for the entity's lock duration, and returns its new end. Messages of a session have the lock of
    /// their session instead.
    pub async fn renew(&self) -> Result<SystemTime, Error> {
        if self.settler.session.is_some() {
            return Err(Error::refused(
                "the message has the lock of its session: renew that",
            ));
        }
        let until = management::renew_lock(&self.settler, self.token).await?;
        *self.until() = Some(until);
        Ok(until)
    }

    /// Until when the lock holds, by the clock of the service, if it says so.
    pub fn locked_until(&self) -> Option<SystemTime> {
        *self.until()
    }

    /// The name of the lock, as SDKs show it.
    pub fn lock_token(&self) -> Uuid {
        self.token
    }

    async fn settle(&self, verdict: Verdict) -> Result<(), Error> {
        let deadline = self.settler.shared.deadline();
        match self.settle_over_link(&verdict, None, deadline).await {
            Ok(Settled::Done) => Ok(()),
            // The rest is large, and rare.
            first => Box::pin(self.settle_on(&verdict, first, deadline)).await,
        }
    }

    /// Goes on after a first try over the link that the message came over.
    async fn settle_on(
        &self,
        verdict: &Verdict,
        first: Result<Settled, Error>,
        deadline: Instant,
    ) -> Result<(), Error> {
        let (first, lost) = (Mutex::new(Some(first)), Mutex::new(None));
        let attempt = || async {
            let tried = taken(&first);
            let tried = match tried {
                Some(tried) => tried,
                None => self.settle_over_link(verdict, None, deadline).await,
            };
            match tried {
                Ok(Settled::Done) => return Ok(()),
                Ok(Settled::LinkGone) => {}
                // It may have been carried out.
                Err(error) if error.kind() == ErrorKind::OutcomeUnknown => {
                    *lost.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                }
                Err(error) => return Err(error),
            }
            // By its lock token, which links do not matter to.
            management::settle(&self.settler, self.token, verdict, deadline).await
        };
        let settled = self.settler.shared.with_retries(deadline, attempt).await;
        match (settled, taken(&lost)) {
            // What came later does not say what became of the try that was lost: perhaps it was carried out.
            (Err(_), Some(lost)) => Err(lost),
            (settled, _) => settled,
        }
    }

    /// In a transaction, once: over the link that it came over.
    pub(super) async fn settle_in(
        &self,
        transaction: Arc<TransactionName>,
        verdict: &Verdict,
    ) -> Result<(), Error> {
        let deadline = self.settler.shared.deadline();
        let settled = self.settle_over_link(verdict, Some(transaction), deadline);
        match settled.await? {
            Settled::Done => Ok(()),
            Settled::LinkGone => Err(Error::refused(
                "only a message whose link is still there can be settled in a transaction",
            )),
        }
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.settler.shared
    }

    async fn settle_over_link(
        &self,
        verdict: &Verdict,
        transaction: Option<Arc<TransactionName>>,
        deadline: Instant,
    ) -> Result<Settled, Error> {
        let Some(delivery) = self.delivery else {
            return Ok(Settled::LinkGone);
        };
        let link = self.settler.link;
        let state = verdict.state();
        let command = |job| Command::Settle {
            link,
            delivery,
            state,
            transaction,
            job,
        };
        let (effect, share) = (Effect::Change, Share::Requests);
        let shared = &self.settler.shared;
        shared
            .attempt(effect, share, None, Some(link), deadline, command)
            .await
    }

    fn until(&self) -> std::sync::MutexGuard<'_, Option<SystemTime>> {
        self.until.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Settler {
    /// A message that came under a lock. One that cannot be read goes back, and its delivery count rises, so that
    /// it ends in the dead-letter queue.
    pub(super) async fn locked(self: &Arc<Self>, inbound: Inbound) -> Result<Locked, Error> {
        match self.read(&inbound) {
            Ok(message) => Ok(message),
            Err(error) => {
                self.give_back(inbound.delivery).await?;
                Err(error)
            }
        }
    }

    /// The same of a batch.
    pub(super) async fn locked_batch(
        self: &Arc<Self>,
        inbox: &mut Inbox,
        count: u32,
        within: Duration,
    ) -> Result<Vec<Locked>, Error> {
        let batch = inbox.batch(count, within, |inbound| self.read(inbound));
        match batch.await {
            Ok(messages) => Ok(messages),
            Err(Unread { error, delivery }) => {
                self.give_back(delivery).await?;
                Err(error)
            }
        }
    }

    /// Tries once to complete messages over the link that they came over, and says what became of each.
    async fn complete_over_link(
        &self,
        locks: &[&Lock],
        deadline: Instant,
    ) -> Vec<Result<Settled, Error>> {
        let deliveries: Vec<_> = locks.iter().filter_map(|it| it.delivery).collect();
        let answers = Answers::new(deliveries.len());
        let (link, state) = (self.link, Verdict::Complete.state());
        let told = answers.clone();
        let command = |job| Command::SettleAll {
            link,
            deliveries,
            state,
            answers: told,
            job,
        };
        let (effect, share) = (Effect::Change, Share::Requests);
        let settled = self
            .shared
            .attempt(effect, share, None, Some(link), deadline, command);
        let unanswered = match settled.await {
            // It is told when all have an answer, unless the connection's task ends.
            Ok(()) => Error::unknown("the connection's task is gone"),
            Err(error) => error,
        };
        let mut answers = answers.take().into_iter();
        let outcomes = locks.iter().map(|lock| match lock.delivery {
            Some(_) => answers
                .next()
                .flatten()
                .unwrap_or_else(|| Err(unanswered.clone())),
            None => Ok(Settled::LinkGone),
        });
        outcomes.collect()
    }

    fn read(self: &Arc<Self>, inbound: &Inbound) -> Result<Locked, Error> {
        let message = super::receiver::read(&inbound.payload)?;
        let token = token_of(&inbound.tag)
            .ok_or_else(|| Error::refused("a message cannot be read: its tag is no lock token"))?;
        let until = message.locked_until();
        let lock = Lock::new(until, token, inbound.delivery, self.clone());
        Ok(Locked::new(message, lock))
    }

    async fn give_back(&self, delivery: Option<DeliveryName>) -> Result<(), Error> {
        let Some(delivery) = delivery else {
            return Ok(());
        };
        let (link, state) = (self.link, Verdict::Abandon(Vec::new()).state());
        let command = |job| Command::Settle {
            link,
            delivery,
            state,
            transaction: None,
            job,
        };
        let (effect, share) = (Effect::Change, Share::Requests);
        let deadline = self.shared.deadline();
        let settled = self
            .shared
            .attempt(effect, share, None, Some(link), deadline, command);
        settled.await.map(|_: Settled| ())
    }
}

fn taken<T>(place: &Mutex<Option<T>>) -> Option<T> {
    place.lock().unwrap_or_else(PoisonError::into_inner).take()
}

/// The tag of a delivery is a GUID in the order of .NET; requests want the order of the network.
fn token_of(tag: &Tag) -> Option<Uuid> {
    let mut token: [u8; 16] = tag.as_bytes().try_into().ok()?;
    let (first, rest) = token.split_at_mut(4);
    let (second, rest) = rest.split_at_mut(2);
    let (third, _) = rest.split_at_mut(2);
    first.reverse();
    second.reverse();
    third.reverse();
    Some(Uuid(token))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_a_token_in_another_order() {
        let tag = Tag::from([3, 2, 1, 0, 5, 4, 7, 6, 8, 9, 10, 11, 12, 13, 14, 15]);
        let token = Uuid([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]);
        assert_eq!(token_of(&tag), Some(token));
        assert_eq!(token_of(&Tag::new(&[1]).unwrap()), None);
    }
}
