//! What a caller asked for under a transaction id. An id stands for one request; two requests with one id are an error.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::money::Money;
use crate::names::TransactionId;
use crate::transaction::{Details, Transaction};

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// Money goes to an account, through the queue.
    Insert,
    /// Money leaves it, through the queue.
    Withdrawal,
    /// Money leaves it at once, if the balance covers it.
    CardPayment,
}

impl Kind {
    /// What a queued transaction of this amount does.
    pub fn of_queued(amount: Money) -> Self {
        match amount.is_positive() {
            true => Self::Insert,
            false => Self::Withdrawal,
        }
    }

    /// As it is stored.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Insert => "insert",
            Self::Withdrawal => "withdrawal",
            Self::CardPayment => "card payment",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Kind {
    type Err = UnknownKind;

    fn from_str(text: &str) -> Result<Self, UnknownKind> {
        let all = [Self::Insert, Self::Withdrawal, Self::CardPayment];
        let found = all.into_iter().find(|kind| kind.as_str() == text);
        found.ok_or_else(|| UnknownKind(text.to_owned()))
    }
}

/// A store of a newer version.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a kind of request")]
pub struct UnknownKind(String);

/// The parts of a request that its id stands for. Fields that the bank does not know are not among them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// `user|account`.
    pub account: String,
    /// What it does.
    pub kind: Kind,
    /// With its sign.
    pub amount: Money,
}

impl Request {
    /// Of a transaction that goes through the queue.
    pub fn of_queued(transaction: &Transaction) -> Self {
        Self::of(transaction, Kind::of_queued(transaction.amount))
    }

    /// Of a card payment.
    pub fn of_card(transaction: &Transaction) -> Self {
        Self::of(transaction, Kind::CardPayment)
    }

    /// Of a transaction that is done. Details that an older version stored have no kind; then it is that of `now`.
    pub fn of_details(details: &Details, now: &Self) -> Self {
        Self {
            account: format!("{}|{}", details.user_id, details.account_id),
            kind: details.kind.unwrap_or(now.kind),
            amount: details.amount,
        }
    }

    fn of(transaction: &Transaction, kind: Kind) -> Self {
        Self {
            account: transaction.key.to_string(),
            kind,
            amount: transaction.amount,
        }
    }

    /// Fails if this request is not the one that had the id before.
    pub fn check_same(&self, id: &TransactionId, before: &Self) -> Result<(), IdReused> {
        match self == before {
            true => Ok(()),
            false => Err(IdReused {
                id: id.clone(),
                before: before.clone(),
                now: self.clone(),
            }),
        }
    }
}

/// An id that stands for another request. Nothing is done for the second one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdReused {
    id: TransactionId,
    before: Request,
    now: Request,
}

impl fmt::Display for IdReused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, before, now } = self;
        write!(f, "MessageId {id} belongs to another request: ")?;
        // Nothing is said of what another customer did.
        if before.account != now.account {
            return f.write_str("its account is not this one; use a new MessageId");
        }
        let differences = [
            difference("kind", &before.kind, &now.kind),
            difference("amount", &before.amount, &now.amount),
        ];
        let differences: Vec<String> = differences.into_iter().flatten().collect();
        write!(f, "{}; use a new MessageId", differences.join(", "))
    }
}

impl std::error::Error for IdReused {}

fn difference<T: fmt::Display + PartialEq>(what: &str, before: &T, now: &T) -> Option<String> {
    (before != now).then(|| format!("its {what} is {before}, and not {now}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(account: &str, kind: Kind, amount: &str) -> Request {
        Request {
            account: account.to_owned(),
            kind,
            amount: amount.parse().unwrap(),
        }
    }

    #[test]
    fn the_error_names_every_difference_and_nothing_else() {
        let id = TransactionId::from_random([7; 16]);
        let before = request("ann|giro", Kind::Withdrawal, "-5");
        assert_eq!(before.check_same(&id, &before), Ok(()));
        for (now, expected) in [
            (
                request("ann|giro", Kind::Withdrawal, "-6"),
                "its amount is -5.00, and not -6.00; use",
            ),
            (
                request("ann|giro", Kind::CardPayment, "-5"),
                "its kind is withdrawal, and not card payment; use",
            ),
            (
                request("bob|giro", Kind::Insert, "5"),
                "its account is not this one; use",
            ),
        ] {
            let error = now.check_same(&id, &before).unwrap_err().to_string();
            let text = format!("MessageId {id} belongs to another request: {expected}");
            assert!(error.starts_with(&text), "{error}");
        }
    }

    #[test]
    fn kinds_are_read_as_they_were_stored() {
        for kind in [Kind::Insert, Kind::Withdrawal, Kind::CardPayment] {
            assert_eq!(kind.as_str().parse(), Ok(kind));
        }
        assert!("loan".parse::<Kind>().is_err());
    }
}
