//! What connections hold, and the one bound on all of it together.
//!
//! A connection has bounds of its own, but ten thousand times those is more than a machine has. So
//! each tells after every turn what it holds, whatever that is: the sum is a metric, and where it
//! reaches the bound, connections hold back ([`Room`]). It can be passed by what one turn of each
//! connection takes in, and by no more.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use kew_engine::bus::ANSWER_SIZE_BYTES_MAX;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::api::Shared;
use crate::metrics::{HELD, Held};

/// How much room there is for more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Room {
    /// Enough.
    Much,
    /// None for those who hold more than [`MODEST_SIZE_BYTES`]: nothing is received for them, and parts
    /// of messages and requests are refused. Others get one message at a time.
    None,
    /// So little that they are closed.
    Gone,
}

/// What each connection may hold whatever the others do.
pub(crate) const MODEST_SIZE_BYTES: usize = 64 << 10;
/// The same for one without a token.
pub(crate) const UNPROVEN_SIZE_BYTES: usize = 8 << 10;

/// What a connection holds may be this many times the bound before connections are closed.
const GONE_HALVES: u64 = 3;

/// How much of the bound is used by those who have not shown who they are, at most: a quarter.
const UNPROVEN_SHARE: u64 = 4;

impl Shared {
    /// How much room there is, for a client that has shown who it is or has not.
    pub(crate) fn room(&self, is_proven: bool) -> Room {
        let held = self.instruments.held.get(Held::Bytes as usize);
        let held = held.map_or(0, kew_metrics::Gauge::value);
        let bound = self.limits.held_size_bytes_max as u64;
        if held / GONE_HALVES > bound / 2 {
            Room::Gone
        } else if held > bound || (!is_proven && held > bound / UNPROVEN_SHARE) {
            Room::None
        } else {
            Room::Much
        }
    }
}

/// What room for answers is counted in.
const ANSWER_UNIT_BYTES: usize = 16 << 10;

/// Room for answers with messages in them, from when they are asked for until their connection has
/// them; over HTTP, until they are written. The largest one has room at any rate.
pub(crate) fn room_for_answers(held_size_bytes_max: usize) -> Arc<Semaphore> {
    let units = held_size_bytes_max / ANSWER_UNIT_BYTES;
    let least = units_of_page() as usize;
    Arc::new(Semaphore::new(units.clamp(least, Semaphore::MAX_PERMITS)))
}

/// A page of many things over HTTP: what the broker answers, and what is written of it.
pub(crate) fn units_of_page() -> u32 {
    2 * units_of(usize::MAX)
}

/// The units that an answer of this size takes: one at least, and no more than the largest.
pub(crate) fn units_of(size_bytes: usize) -> u32 {
    let largest = usize::try_from(ANSWER_SIZE_BYTES_MAX).unwrap_or(usize::MAX);
    let units = size_bytes.min(largest).div_ceil(ANSWER_UNIT_BYTES).max(1);
    u32::try_from(units).unwrap_or(u32::MAX)
}

/// Gives back what is too much. What is missing may not be there: then the answer is larger than it
/// seemed, and is there all the same.
pub(crate) fn resize(taken: &mut OwnedSemaphorePermit, units: usize) {
    let has = taken.num_permits();
    if let Some(surplus) = has.checked_sub(units) {
        drop(taken.split(surplus));
    } else if let Ok(missing) = u32::try_from(units.saturating_sub(has))
        && let Ok(more) = Arc::clone(taken.semaphore()).try_acquire_many_owned(missing)
    {
        taken.merge(more);
    }
}

impl Shared {
    /// Room for an answer of at most this size, and for what is written of it. None is left only when the
    /// server ends.
    pub(crate) async fn room_for_both(&self, size_bytes: usize) -> Option<OwnedSemaphorePermit> {
        let answers = Arc::clone(&self.answers);
        let room = answers.acquire_many_owned(2 * units_of(size_bytes));
        room.await.ok()
    }

    /// Room for an answer of about this size, if there is some now and nobody waits for it.
    pub(crate) fn try_room_for(&self, size_bytes: usize) -> Option<OwnedSemaphorePermit> {
        let answers = Arc::clone(&self.answers);
        answers.try_acquire_many_owned(units_of(size_bytes)).ok()
    }

    /// The same, and waits for it. None is left only when the server ends.
    pub(crate) async fn room_for(&self, size_bytes: usize) -> Option<OwnedSemaphorePermit> {
        let answers = Arc::clone(&self.answers);
        let room = answers.acquire_many_owned(units_of(size_bytes));
        room.await.ok()
    }
}

/// What one connection holds, as far as the others have been told.
pub(crate) struct Holdings {
    shared: Arc<Shared>,
    told: [u64; HELD],
}

impl Holdings {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            told: [0; HELD],
        }
    }

    /// Tells what it is now.
    pub(crate) fn tell(&mut self, now: [u64; HELD]) {
        let gauges = &self.shared.instruments.held;
        for ((gauge, before), now) in gauges.iter().zip(&mut self.told).zip(now) {
            gauge.change(*before, now);
            *before = now;
        }
    }
}

impl Drop for Holdings {
    fn drop(&mut self) {
        self.tell([0; HELD]);
    }
}

/// About what a delivery takes that its receiver has not settled.
const DELIVERY_SIZE_BYTES: usize = 128;

/// What links and tasks of a connection hold, added up where it is held.
#[derive(Debug, Default)]
struct Sums {
    ready_bytes: AtomicUsize,
    request_bytes: AtomicUsize,
    reply_bytes: AtomicUsize,
    transaction_bytes: AtomicUsize,
    opening_bytes: AtomicUsize,
    deliveries: AtomicUsize,
    credit: AtomicUsize,
}

/// What a [`Part`] is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sum {
    /// Bytes of messages that wait to go out.
    ReadyBytes,
    /// Bytes of requests that are under way.
    RequestBytes,
    /// Bytes of answers that wait to go out.
    ReplyBytes,
    /// Bytes of open transactions.
    TransactionBytes,
    /// Bytes of links that wait for their entities or sessions.
    OpeningBytes,
    /// Deliveries that the client has not settled.
    Deliveries,
    /// Deliveries that it has asked for.
    Credit,
}

impl Sums {
    fn of(&self, sum: Sum) -> &AtomicUsize {
        match sum {
            Sum::ReadyBytes => &self.ready_bytes,
            Sum::RequestBytes => &self.request_bytes,
            Sum::ReplyBytes => &self.reply_bytes,
            Sum::TransactionBytes => &self.transaction_bytes,
            Sum::OpeningBytes => &self.opening_bytes,
            Sum::Deliveries => &self.deliveries,
            Sum::Credit => &self.credit,
        }
    }
}

/// The sums of one connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct Account(Arc<Sums>);

impl Account {
    pub(crate) fn value(&self, sum: Sum) -> usize {
        self.0.of(sum).load(Ordering::Relaxed)
    }

    /// A part with nothing in it.
    pub(crate) fn part(&self, sum: Sum) -> Part {
        Part {
            sums: Arc::clone(&self.0),
            sum,
            amount: 0,
        }
    }

    /// A part that does not change.
    pub(crate) fn fixed(&self, sum: Sum, amount: usize) -> Part {
        let mut part = self.part(sum);
        part.set(amount);
        part
    }

    /// Bytes, of deliveries that are not settled too.
    pub(crate) fn size_bytes(&self) -> usize {
        let sums = [
            Sum::ReadyBytes,
            Sum::RequestBytes,
            Sum::ReplyBytes,
            Sum::TransactionBytes,
            Sum::OpeningBytes,
        ];
        let bytes: usize = sums.iter().map(|sum| self.value(*sum)).sum();
        bytes + self.value(Sum::Deliveries) * DELIVERY_SIZE_BYTES
    }
}

/// What one link or task has of a sum. Dropping it gives it back.
#[derive(Debug)]
pub(crate) struct Part {
    sums: Arc<Sums>,
    sum: Sum,
    amount: usize,
}

impl Part {
    pub(crate) fn set(&mut self, amount: usize) {
        // Wraps around, and is right again with the sum.
        let difference = amount.wrapping_sub(self.amount);
        let sum = self.sums.of(self.sum);
        sum.fetch_add(difference, Ordering::Relaxed);
        self.amount = amount;
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_add_up_and_come_back() {
        let account = Account::default();
        let mut one = account.fixed(Sum::ReadyBytes, 10);
        let two = account.fixed(Sum::ReadyBytes, 5);
        let mut credit = account.part(Sum::Credit);
        credit.set(7);
        one.set(2);
        assert_eq!(account.value(Sum::ReadyBytes), 7);
        drop(one);
        let deliveries = account.fixed(Sum::Deliveries, 2);
        assert_eq!(account.size_bytes(), 5 + 2 * DELIVERY_SIZE_BYTES);
        drop((two, credit, deliveries));
        assert_eq!(account.size_bytes(), 0);
        assert_eq!(account.value(Sum::Credit), 0);
    }
}
