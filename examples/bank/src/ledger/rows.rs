//! What the tables hold, in either database.

use kew_idempotency::StoreError;

use super::{Cover, now_ms};
use crate::message::Message;
use crate::money::Money;
use crate::request::{Kind, Request};
use crate::transaction::{Decision, Details, Transaction, Unknown};

/// A row of the transactions, as the check of a replay reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Its place in the order of bookings.
    pub sequence: i64,
    /// `user|account`.
    pub key: String,
    /// Its id.
    pub id: String,
    /// What it changed.
    pub amount: Money,
}

/// The balance of an account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Balance {
    /// `user|account`.
    pub key: String,
    /// What is on it.
    pub balance: Money,
}

/// What a worker says about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkReport {
    /// Its name.
    pub instance: String,
    /// Messages that it handles now.
    pub in_flight: i64,
    /// Messages that it completed.
    pub completed: i64,
    /// Attempts that failed.
    pub failed: i64,
    /// Messages that it could not book, and moved aside.
    pub buried: i64,
}

/// A worker's report that many leases ended before their messages were deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loss {
    /// Its place in the order of reports.
    pub sequence: i64,
    /// How long messages were leased, in seconds.
    pub lease_s: i64,
}

/// A line of the log of messages.
#[derive(Clone, Debug)]
pub(super) struct LogEntry {
    pub(super) logged_at_ms: i64,
    pub(super) key: String,
    pub(super) id: String,
    pub(super) shape: &'static str,
    pub(super) body: String,
    /// As JSON.
    pub(super) unknown: String,
}

impl LogEntry {
    pub(super) fn of(message: &Message) -> Result<Self, StoreError> {
        let refused = |error: &dyn std::error::Error| StoreError::refused(error.to_string());
        let Transaction {
            key, id, unknown, ..
        } = &message.transaction;
        Ok(Self {
            logged_at_ms: now_ms(),
            key: key.to_string(),
            id: id.to_string(),
            shape: message.shape.name(),
            body: message.to_body().map_err(|error| refused(&error))?,
            unknown: serde_json::to_string(unknown).map_err(|error| refused(&error))?,
        })
    }
}

/// The details of a transaction, as they are stored.
pub(super) fn details_of(
    transaction: Transaction,
    cover: Cover,
    decision: Decision,
    balance_cents: i64,
    booked_at_ms: i64,
) -> Details {
    Details {
        kind: Some(match cover {
            Cover::Any => Kind::of_queued(transaction.amount),
            Cover::Balance => Kind::CardPayment,
        }),
        user_id: transaction.key.user().to_owned(),
        account_id: transaction.key.account().to_owned(),
        transaction_id: transaction.id,
        amount: transaction.amount,
        decision,
        balance: Money::from_cents(balance_cents),
        booked_at_ms,
        unknown: transaction.unknown,
    }
}

/// A row of the requests.
pub(super) fn request_of(account: String, kind: &str, cents: i64) -> Result<Request, StoreError> {
    let kind = kind.parse();
    let unreadable = |error| StoreError::refused("a request in the store").because(Box::new(error));
    Ok(Request {
        account,
        kind: kind.map_err(unreadable)?,
        amount: Money::from_cents(cents),
    })
}

/// The unknown fields of a line of the log.
pub(super) fn unknown_of(logged: Option<&str>) -> Result<Unknown, StoreError> {
    let unknown = logged.map(serde_json::from_str).transpose();
    let unreadable = |error| StoreError::refused("the log of messages is damaged").because(error);
    Ok(unknown
        .map_err(|error| unreadable(Box::new(error)))?
        .unwrap_or_default())
}
