//! The size of a transaction, and its limits. Used by front ends that collect its parts and by the partition
//! that decides it.

use thiserror::Error;

use super::{BusRefusal, TransactionWork};

/// The most messages that one transaction sends.
///
/// Source: Service Bus, *Quotas*: 100 messages per transaction.
pub const TRANSACTION_MESSAGES_MAX: usize = 100;

/// The most messages that one transaction settles or cancels.
pub const TRANSACTION_ENDED_MAX: usize = 1000;

/// The most bytes of messages, and of changes to their properties, in one transaction.
pub const TRANSACTION_SIZE_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// The most parts of one transaction. A part that does nothing takes room too.
const PARTS_MAX: usize = TRANSACTION_MESSAGES_MAX + TRANSACTION_ENDED_MAX;

/// The sums over the parts of a transaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TransactionTotals {
    parts: usize,
    sent: usize,
    ended: usize,
    size_bytes: u64,
}

/// A transaction is larger than allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum TransactionTooLarge {
    /// It sends too many messages.
    #[error("a transaction that sends {0} messages is above the maximum of {max}", max = TRANSACTION_MESSAGES_MAX)]
    Sent(usize),
    /// It settles or cancels too many.
    #[error("a transaction that settles {0} messages is above the maximum of {max}", max = TRANSACTION_ENDED_MAX)]
    Ended(usize),
    /// It has too many parts.
    #[error("a transaction of {0} operations is above the maximum of {max}", max = PARTS_MAX)]
    Parts(usize),
    /// Its messages, with the changes to others' properties, have too many bytes.
    #[error("a transaction of {0} bytes is above the maximum of {max} bytes", max = TRANSACTION_SIZE_BYTES_MAX)]
    Size(u64),
}

impl TransactionTotals {
    /// The sums with one more part.
    #[must_use]
    pub fn with(self, work: &TransactionWork) -> Self {
        Self {
            parts: self.parts.saturating_add(1),
            sent: self.sent.saturating_add(work.sent_count()),
            ended: self.ended.saturating_add(work.ended_count()),
            size_bytes: self.size_bytes.saturating_add(work.body_size_bytes()),
        }
    }

    /// Checks the sums against the limits of one transaction.
    pub fn check(&self) -> Result<(), TransactionTooLarge> {
        if self.sent > TRANSACTION_MESSAGES_MAX {
            return Err(TransactionTooLarge::Sent(self.sent));
        }
        if self.ended > TRANSACTION_ENDED_MAX {
            return Err(TransactionTooLarge::Ended(self.ended));
        }
        if self.parts > PARTS_MAX {
            return Err(TransactionTooLarge::Parts(self.parts));
        }
        if self.size_bytes > TRANSACTION_SIZE_BYTES_MAX {
            return Err(TransactionTooLarge::Size(self.size_bytes));
        }
        Ok(())
    }
}

impl From<TransactionTooLarge> for BusRefusal {
    fn from(too_large: TransactionTooLarge) -> Self {
        let too_many = |count: usize, limit: usize| Self::TooMany {
            count: count as u64,
            limit: limit as u64,
        };
        match too_large {
            TransactionTooLarge::Sent(count) => too_many(count, TRANSACTION_MESSAGES_MAX),
            TransactionTooLarge::Ended(count) => too_many(count, TRANSACTION_ENDED_MAX),
            TransactionTooLarge::Parts(count) => too_many(count, PARTS_MAX),
            TransactionTooLarge::Size(size_bytes) => Self::MessageTooLarge {
                size_bytes,
                limit_bytes: TRANSACTION_SIZE_BYTES_MAX,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::super::{BusMessage, Disposition};
    use super::*;
    use crate::vocabulary::{SequenceNumber, Token};

    fn sends(count: usize, size_bytes: usize) -> TransactionWork {
        let message = BusMessage {
            body: vec![0; size_bytes].into(),
            message_id: None,
            session: None,
            time_to_live_ms: None,
            scheduled_at: None,
        };
        TransactionWork::Send(vec![message; count])
    }

    fn defers(size_bytes: usize) -> TransactionWork {
        let overlay = Some(Bytes::from(vec![0; size_bytes]));
        TransactionWork::Settle(Token::from_bytes([0; 16]), Disposition::Defer { overlay })
    }

    fn check(works: &[TransactionWork]) -> Result<(), TransactionTooLarge> {
        let totals = works
            .iter()
            .fold(TransactionTotals::default(), |sum, work| sum.with(work));
        totals.check()
    }

    #[test]
    fn as_much_as_there_may_be_fits_and_one_more_does_not() {
        let cancels =
            |count| TransactionWork::CancelScheduled(vec![SequenceNumber::named(1); count]);
        let half = 2 * 1024 * 1024;
        use TransactionTooLarge::{Ended, Parts, Sent, Size};
        for (most, more, expected) in [
            (vec![sends(60, 1), sends(40, 1)], sends(1, 1), Sent(101)),
            (vec![cancels(999), defers(1)], defers(1), Ended(1001)),
            (
                vec![sends(0, 0); PARTS_MAX],
                sends(0, 0),
                Parts(PARTS_MAX + 1),
            ),
            (
                vec![sends(2, half / 2), defers(half)],
                defers(1),
                Size(TRANSACTION_SIZE_BYTES_MAX + 1),
            ),
        ] {
            assert_eq!(check(&most), Ok(()));
            assert_eq!(check(&[most, vec![more]].concat()), Err(expected));
        }
    }

    #[test]
    fn what_is_too_large_says_its_size_and_the_limit() {
        let text = TransactionTooLarge::Size(5_000_000).to_string();
        assert_eq!(
            text,
            "a transaction of 5000000 bytes is above the maximum of 4194304 bytes"
        );
    }
}
