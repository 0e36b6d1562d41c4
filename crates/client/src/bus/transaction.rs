//! Transactions: sends and settlements that take effect together, or not at all.
//!
//! Each transaction has a link to the coordinator of its own, and ends with it: a transaction that is dropped detaches
//! its link, and the service rolls it back.
//!
//! Source: AMQP 1.0, 4.2 to 4.4.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::{Bytes, BytesMut};
use kew_amqp::error::condition;
use kew_amqp::message::{BATCH_FORMAT, write_value};
use kew_amqp::performative::{Control, Declare, Discharge};

use super::batch::Batch;
use super::core::{Command, Sent, TransactionName};
use super::encoded::Encoded;
use super::locked::Locked;
use super::message::Message;
use super::sender::Sender;
use super::shared::{LinkHandle, Share, Shared};
use super::verdict::{Changes, Verdict};
use crate::error::{Effect, Error};

/// Sends and settlements that take effect together at [`Transaction::commit`], or not at all.
///
/// To drop it rolls it back, and so does the loss of the connection. What is sent is seen by nobody before the commit;
/// what is settled stays locked until then, and after a rollback until its lock ends. Nothing is received in a
/// transaction. The service bounds its time (two minutes at Azure) and its messages (100).
///
/// Nothing in it is tried again. After an operation that has failed, or whose future was dropped before its end, it
/// cannot be committed any more: begin another one.
#[derive(Debug)]
pub struct Transaction {
    link: LinkHandle,
    name: Arc<TransactionName>,
    /// Operations that were begun and did not succeed.
    unfinished: AtomicUsize,
}

impl Transaction {
    pub(super) async fn begin(link: LinkHandle) -> Result<Self, Error> {
        let declare = Control::Declare(Declare { global_id: None });
        // If one is declared and nobody knows, it ends with the link.
        let declared = control(&link, &declare, Effect::Read).await;
        let declared = declared.map_err(|error| match error.code() {
            // Its link was lost before.
            Some(condition::TRANSACTION_ROLLBACK) => Error::later(error.text()),
            Some(_) | None => error,
        })?;
        let id = declared.declared.ok_or_else(|| {
            Error::refused("the service answered without naming the transaction that it has made")
        })?;
        let name = TransactionName {
            coordinator: link.key(),
            id,
        };
        Ok(Self {
            link,
            name: Arc::new(name),
            unfinished: AtomicUsize::new(0),
        })
    }

    /// Sends a message with the commit. The sender is one of the same client.
    pub async fn send(&self, sender: &Sender, message: &Message) -> Result<(), Error> {
        self.transfer(sender, message.encode(), 0).await
    }

    /// Sends a message exactly as it is, with the commit.
    pub async fn send_encoded(&self, sender: &Sender, message: &Encoded) -> Result<(), Error> {
        self.transfer(sender, Ok(message.bytes().clone()), 0).await
    }

    /// Sends a batch with the commit.
    pub async fn send_batch(&self, sender: &Sender, batch: &Batch) -> Result<(), Error> {
        if batch.is_empty() {
            return Ok(());
        }
        self.transfer(sender, Ok(batch.encode()), BATCH_FORMAT)
            .await
    }

    /// Deletes a message with the commit, as [`Locked::complete`] does. It must have come over a link that is still
    /// there: no deferred message, and none from before a loss of the connection.
    pub async fn complete(&self, message: &Locked) -> Result<(), Error> {
        self.settle(message, &Verdict::Complete).await
    }

    /// Hands a message back with the commit, as [`Locked::abandon`] does.
    pub async fn abandon(&self, message: &Locked, changes: Changes) -> Result<(), Error> {
        self.settle(message, &Verdict::Abandon(changes)).await
    }

    /// Sets a message aside with the commit, as [`Locked::defer`] does.
    pub async fn defer(&self, message: &Locked, changes: Changes) -> Result<(), Error> {
        self.settle(message, &Verdict::Defer(changes)).await
    }

    /// Makes a message a dead letter with the commit, as [`Locked::dead_letter`] does.
    pub async fn dead_letter(
        &self,
        message: &Locked,
        reason: &str,
        description: &str,
        changes: Changes,
    ) -> Result<(), Error> {
        let verdict = Verdict::DeadLetter {
            reason: reason.to_owned(),
            description: description.to_owned(),
            changes,
        };
        self.settle(message, &verdict).await
    }

    /// Has everything take effect.
    ///
    /// *Refused* and *try again later* mean that nothing of it did, and will not: begin again. With *outcome unknown*
    /// all of it happened or nothing. To drop the future leaves that open as well.
    pub async fn commit(self) -> Result<(), Error> {
        if self.unfinished.load(Ordering::Acquire) > 0 {
            return Err(Error::rolled_back(
                "an operation of the transaction has failed, or was given up before its end",
            ));
        }
        self.discharge(false, Effect::Change).await
    }

    /// Has nothing take effect, and waits until the service has said so. Without an answer nothing does either, once
    /// the service has seen the end of the link.
    pub async fn roll_back(self) -> Result<(), Error> {
        self.discharge(true, Effect::Read).await
    }

    async fn discharge(self, fail: bool, effect: Effect) -> Result<(), Error> {
        let discharge = Control::Discharge(Discharge {
            txn_id: self.name.id.clone(),
            fail: Some(fail),
        });
        control(&self.link, &discharge, effect).await.map(drop)
    }

    async fn transfer(
        &self,
        sender: &Sender,
        payload: Result<Bytes, Error>,
        message_format: u32,
    ) -> Result<(), Error> {
        self.must_share(sender.shared())?;
        let payload = payload?;
        let send = sender.transfer_in(self.name.clone(), payload, message_format);
        self.counted(send).await
    }

    async fn settle(&self, message: &Locked, verdict: &Verdict) -> Result<(), Error> {
        self.must_share(message.lock().shared())?;
        let settle = message.lock().settle_in(self.name.clone(), verdict);
        self.counted(settle).await
    }

    /// Carries out an operation. The count stays higher if it fails, or if this future is dropped.
    async fn counted(
        &self,
        operation: impl Future<Output = Result<(), Error>>,
    ) -> Result<(), Error> {
        self.unfinished.fetch_add(1, Ordering::AcqRel);
        operation.await?;
        self.unfinished.fetch_sub(1, Ordering::AcqRel);
        Ok(())
    }

    /// A transaction belongs to one connection. What was not begun does it no harm.
    fn must_share(&self, shared: &Arc<Shared>) -> Result<(), Error> {
        match Arc::ptr_eq(self.link.shared(), shared) {
            true => Ok(()),
            false => Err(Error::refused(
                "a transaction and what is done in it must be of the same client",
            )),
        }
    }
}

/// Tells the coordinator something, once.
async fn control(link: &LinkHandle, control: &Control, effect: Effect) -> Result<Sent, Error> {
    let shared = link.shared();
    let key = link.key();
    let mut payload = BytesMut::new();
    write_value(&mut payload, control);
    let command = |job| Command::Send {
        link: key,
        payload: payload.freeze(),
        message_format: 0,
        transaction: None,
        job,
    };
    let (share, deadline) = (Share::Requests, shared.deadline());
    shared
        .attempt(effect, share, None, Some(key), deadline, command)
        .await
}
