//! Open transactions: the operations of a transaction are kept here only, until it is committed.
//!
//! Nothing is checked with the broker before the commit, which does all of it or nothing. An
//! operation that is refused here fails its transaction, because the client may ask for the commit
//! before it learns of the refusal. A failed transaction keeps only the reason, for the answer to
//! its discharge.
//!
//! Source: AMQP 1.0, 4.4; Service Bus, *Overview of transaction processing*.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kew_amqp::error::{Error, condition};
use kew_amqp::performative::{DeliveryState, Outcome, TransactionalState};
use kew_amqp::{DeliveryId, LinkId};
use kew_engine::bus::{TransactionPart, TransactionTooLarge, TransactionTotals, TransactionWork};
use tokio::time::Instant;

use crate::ground::limits::Limits;
use crate::ground::refusal::{busy, claimed, rolled_back};
use crate::memory::account::{Account, Part, Sum};
use crate::messages::claims::{Claim, Claims};
use crate::metrics::{Sent, Settled};

/// The id of a transaction. It is random, so that the ids of other connections never match.
pub(crate) type TransactionId = [u8; 16];

/// About how many bytes a transaction, a message in it or a settlement takes beside its content.
const OVERHEAD_SIZE_BYTES: usize = 256;

/// A declared transaction.
pub(crate) struct Transaction {
    /// The link over which it was declared. The transaction ends with that link.
    coordinator: LinkId,
    pub(crate) parts: Vec<TransactionPart>,
    totals: TransactionTotals,
    claims: Vec<Claim>,
    /// What to do for its parts after the commit.
    pub(crate) noted: Vec<Noted>,
    held_size_bytes: usize,
    held: Part,
    /// When it times out. Set by its first operation.
    due: Option<Instant>,
    /// Why it cannot be committed any more.
    failed: Option<Failure>,
    /// Operations of it whose queue is still being looked up.
    looked_for: usize,
    /// The message that asks for its commit, if the commit waits for those look-ups.
    discharge: Option<DeliveryId>,
}

/// What to do for a part after the commit.
pub(crate) enum Noted {
    Sent(Sent),
    Settled(Settled),
    Cancelled,
}

/// Why a transaction cannot be committed.
#[derive(Clone, Debug)]
pub(crate) enum Failure {
    /// It was never declared here, or was discharged.
    Unknown,
    /// Its time was over, which is so long.
    TimedOut(Duration),
    /// An operation of it was refused or lost.
    Refused(Error),
}

impl Failure {
    /// The error for an operation that was meant for it.
    pub(crate) fn of_operation(self) -> Error {
        match self {
            Self::Unknown => unknown(),
            Self::TimedOut(timeout) => timed_out(timeout),
            Self::Refused(error) => error,
        }
    }

    /// The error for the client that asks for the commit.
    pub(crate) fn of_commit(self) -> Error {
        match self {
            Self::Refused(error) => rolled_back(&format!("an operation was refused: {error}")),
            other => other.of_operation(),
        }
    }
}

impl Transaction {
    fn fail(&mut self, why: Failure) {
        self.failed.get_or_insert(why);
        // Not `clear`: that would keep the memory.
        self.parts = Vec::new();
        self.claims = Vec::new();
        self.noted = Vec::new();
        self.hold(OVERHEAD_SIZE_BYTES);
    }

    fn hold(&mut self, size_bytes: usize) {
        self.held_size_bytes = size_bytes;
        self.held.set(size_bytes);
    }

    fn fail_if_due(&mut self, now: Instant, timeout: Duration) {
        if self.failed.is_none() && self.due.is_some_and(|due| due <= now) {
            self.fail(Failure::TimedOut(timeout));
        }
    }
}

/// The limits for a connection's transactions.
pub(crate) struct Bounds<'a> {
    pub(crate) limits: &'a Limits,
    /// The memory of all of them now.
    pub(crate) all_size_bytes: usize,
    /// Whether others leave no room for more.
    pub(crate) is_crowded: bool,
    pub(crate) claims: &'a Arc<Claims>,
}

/// The transactions of a connection that are declared and not discharged.
#[derive(Default)]
pub(crate) struct Transactions {
    open: BTreeMap<TransactionId, Transaction>,
}

impl Transactions {
    /// The link over which they were declared is detached. Returns the commits that waited, which
    /// may have been requested over another link.
    pub(crate) fn forget(&mut self, coordinator: LinkId) -> Vec<DeliveryId> {
        let gone = self
            .open
            .extract_if(.., |_, it| it.coordinator == coordinator);
        gone.filter_map(|(_, it)| it.discharge).collect()
    }

    /// A transaction that accepts operations: it is not discharged yet.
    fn find(&mut self, id: &[u8]) -> Result<&mut Transaction, Failure> {
        let found = self.find_any(id).filter(|it| it.discharge.is_none());
        found.ok_or(Failure::Unknown)
    }

    fn find_any(&mut self, id: &[u8]) -> Option<&mut Transaction> {
        let id = TransactionId::try_from(id).ok()?;
        self.open.get_mut(&id)
    }

    /// Postpones the commit of a transaction until the queues of all its operations are known.
    /// Returns whether that is necessary.
    pub(crate) fn put_off(&mut self, id: &[u8], discharge: DeliveryId) -> bool {
        let Some(transaction) = self.find_any(id) else {
            return false;
        };
        let must_wait = transaction.looked_for > 0;
        if must_wait {
            let former = transaction.discharge.replace(discharge);
            assert!(former.is_none(), "it would never be answered");
        }
        must_wait
    }

    /// Whether its commit was asked for and put off.
    pub(crate) fn is_put_off(&mut self, id: &[u8]) -> bool {
        self.find_any(id).is_some_and(|it| it.discharge.is_some())
    }

    /// The queue of an operation is looked for.
    pub(crate) fn look_for(&mut self, id: &[u8]) {
        if let Ok(transaction) = self.find(id) {
            transaction.looked_for += 1;
        }
    }

    /// The queue of an operation was found, or does not exist. Returns the commit that waits for
    /// it, to be postponed again if there are more.
    pub(crate) fn found(&mut self, id: &[u8]) -> Option<DeliveryId> {
        let transaction = self.find_any(id)?;
        transaction.looked_for = transaction.looked_for.saturating_sub(1);
        transaction.discharge.take()
    }

    /// When the first one times out.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        let open = self.open.values().filter(|it| it.failed.is_none());
        open.filter_map(|it| it.due).min()
    }

    pub(crate) fn fail_those_due(&mut self, timeout: Duration) {
        let now = Instant::now();
        for transaction in self.open.values_mut() {
            transaction.fail_if_due(now, timeout);
        }
    }

    /// A new transaction.
    pub(crate) fn declare(
        &mut self,
        coordinator: LinkId,
        count_max: usize,
        account: &Account,
    ) -> Result<TransactionId, Error> {
        if self.open.len() >= count_max {
            let text = format!(
                "The connection already has {count_max} open transactions, which is the maximum."
            );
            return Err(Error::new(condition::RESOURCE_LIMIT_EXCEEDED, text));
        }
        let mut id = TransactionId::default();
        aws_lc_rs::rand::fill(&mut id).map_err(|_| busy())?;
        let mut transaction = Transaction {
            coordinator,
            parts: Vec::new(),
            totals: TransactionTotals::default(),
            claims: Vec::new(),
            noted: Vec::new(),
            held_size_bytes: 0,
            held: account.part(Sum::TransactionBytes),
            due: None,
            failed: None,
            looked_for: 0,
            discharge: None,
        };
        transaction.hold(OVERHEAD_SIZE_BYTES);
        self.open.insert(id, transaction);
        Ok(id)
    }

    /// Adds a command to a transaction, for the commit. If it is refused, the transaction fails.
    pub(crate) fn enlist(
        &mut self,
        id: &[u8],
        part: TransactionPart,
        noted: Noted,
        bounds: &Bounds<'_>,
    ) -> Result<(), Error> {
        let enlisted = self.try_enlist(id, part, noted, bounds);
        if let Err(why) = &enlisted {
            self.fail(id, why.clone());
        }
        enlisted
    }

    fn try_enlist(
        &mut self,
        id: &[u8],
        part: TransactionPart,
        noted: Noted,
        bounds: &Bounds<'_>,
    ) -> Result<(), Error> {
        let work = &part.work;
        let limits = bounds.limits;
        let transaction = self.find(id).map_err(Failure::of_operation)?;
        let now = Instant::now();
        transaction.fail_if_due(now, limits.transaction_timeout);
        if let Some(why) = &transaction.failed {
            return Err(why.clone().of_operation());
        }
        transaction
            .due
            .get_or_insert(now + limits.transaction_timeout);
        let totals = transaction.totals.with(work);
        totals.check().map_err(too_large)?;
        let count = (work.sent_count() + work.ended_count()).max(1);
        let size_bytes = usize::try_from(work.body_size_bytes()).unwrap_or(usize::MAX);
        let size_bytes = size_bytes.saturating_add(count * OVERHEAD_SIZE_BYTES);
        let limit = limits.transactions_size_bytes_max;
        if bounds.all_size_bytes.saturating_add(size_bytes) > limit {
            let text = format!("Open transactions of a connection can hold at most {limit} bytes.");
            return Err(Error::new(condition::RESOURCE_LIMIT_EXCEEDED, text));
        }
        if bounds.is_crowded {
            return Err(busy());
        }
        if let TransactionWork::Settle(lock, _) = work {
            let claim = bounds.claims.claim(*lock).ok_or_else(claimed)?;
            transaction.claims.push(claim);
        }
        transaction.totals = totals;
        transaction.parts.push(part);
        transaction.noted.push(noted);
        transaction.hold(transaction.held_size_bytes + size_bytes);
        Ok(())
    }

    /// An operation of it was refused: it cannot be committed any more.
    pub(crate) fn fail(&mut self, id: &[u8], why: Error) {
        if let Ok(transaction) = self.find(id) {
            transaction.fail(Failure::Refused(why));
        }
    }

    /// A transfer or disposition with this state was refused, or is lost. If it belongs to a
    /// transaction, that transaction must not be committed without it.
    pub(crate) fn fail_if_meant(
        &mut self,
        state: Option<&DeliveryState>,
        why: impl FnOnce() -> Error,
    ) {
        if let Some(DeliveryState::Transactional(state)) = state {
            self.fail(&state.txn_id, why());
        }
    }

    /// A link was detached on our side: operations over it are lost until its client learns of
    /// that.
    pub(crate) fn fail_all(&mut self, why: &Error) {
        // Failed transactions keep their reason.
        for transaction in self.open.values_mut().filter(|it| it.failed.is_none()) {
            transaction.fail(Failure::Refused(why.clone()));
        }
    }

    /// Whether a transaction exists and accepts operations.
    pub(crate) fn check(&mut self, id: &[u8], timeout: Duration) -> Result<(), Failure> {
        let transaction = self.find(id)?;
        transaction.fail_if_due(Instant::now(), timeout);
        transaction.failed.clone().map_or(Ok(()), Err)
    }

    /// Takes a transaction out to commit it, or returns why it cannot be committed.
    pub(crate) fn end(&mut self, id: &[u8], timeout: Duration) -> Result<Transaction, Failure> {
        let checked = self.check(id, timeout);
        let ended = TransactionId::try_from(id).ok();
        let ended = ended.and_then(|id| self.open.remove(&id));
        let is_awaited = |it: &Transaction| it.discharge.is_some();
        assert!(
            !ended.as_ref().is_some_and(is_awaited),
            "its discharge would get no answer"
        );
        checked.and_then(|()| ended.ok_or(Failure::Unknown))
    }
}

/// The state of an operation in a transaction, with its outcome.
pub(crate) fn state_in(id: &[u8], outcome: Outcome) -> DeliveryState {
    DeliveryState::Transactional(TransactionalState {
        txn_id: id.to_vec().into(),
        outcome: Some(outcome),
    })
}

/// The error for an operation over an unknown link, or about an unknown delivery.
pub(crate) fn gone() -> Error {
    let text = "An operation of the transaction used a link or a delivery that no longer exists.";
    Error::new(condition::NOT_ALLOWED, text)
}

fn too_large(why: TransactionTooLarge) -> Error {
    Error::new(condition::RESOURCE_LIMIT_EXCEEDED, why.to_string())
}

fn unknown() -> Error {
    let text = "There is no such transaction.";
    Error::new(condition::TRANSACTION_UNKNOWN_ID, text)
}

fn timed_out(timeout: Duration) -> Error {
    let seconds = timeout.as_secs();
    let text = format!(
        "The transaction was not discharged within {seconds} s after its first operation: it was \
         rolled back."
    );
    Error::new(condition::TRANSACTION_TIMEOUT, text)
}
