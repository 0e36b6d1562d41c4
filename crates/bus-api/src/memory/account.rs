//! The memory of one connection, added up where it is used.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// About how many bytes a delivery takes until its receiver settles it.
const DELIVERY_SIZE_BYTES: usize = 128;

/// The memory of links and tasks of a connection, added up where it is used.
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

/// What a [`Part`] counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sum {
    /// Bytes of messages that wait to be sent.
    ReadyBytes,
    /// Bytes of requests in progress.
    RequestBytes,
    /// Bytes of answers that wait to be sent.
    ReplyBytes,
    /// Bytes of open transactions.
    TransactionBytes,
    /// Bytes of links that wait for their entities or sessions.
    OpeningBytes,
    /// Deliveries that the client has not settled.
    Deliveries,
    /// Deliveries that it has given credit for.
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

    /// A part with a fixed amount.
    pub(crate) fn fixed(&self, sum: Sum, amount: usize) -> Part {
        let mut part = self.part(sum);
        part.set(amount);
        part
    }

    /// Bytes in total, with those for unsettled deliveries.
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

/// A link's or task's part of a sum. Dropping it subtracts it.
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
    fn parts_add_up_and_are_freed() {
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
