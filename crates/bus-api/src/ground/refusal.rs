//! The errors that clients get for refusals.

#![cfg_attr(not(test), deny(clippy::wildcard_enum_match_arm))]

use std::fmt::Display;

use kew_amqp::SendRefusal;
use kew_amqp::error::{Error, condition};
use kew_broker::Rejection;
use kew_engine::bus::{BusRefusal, PartRefusal, Verdict};
use kew_engine::{EntityName, Refusal};

/// The service's own conditions.
pub(crate) mod bus_condition {
    pub(crate) const SERVER_BUSY: &str = "com.microsoft:server-busy";
    pub(crate) const TIMEOUT: &str = "com.microsoft:timeout";
    pub(crate) const LOCK_LOST: &str = "com.microsoft:message-lock-lost";
    pub(crate) const SESSION_LOCK_LOST: &str = "com.microsoft:session-lock-lost";
    pub(crate) const SESSION_CANNOT_BE_LOCKED: &str = "com.microsoft:session-cannot-be-locked";
    pub(crate) const MESSAGE_NOT_FOUND: &str = "com.microsoft:message-not-found";
    pub(crate) const ENTITY_DISABLED: &str = "com.microsoft:entity-disabled";
    pub(crate) const ENTITY_ALREADY_EXISTS: &str = "com.microsoft:entity-already-exists";
    pub(crate) const ARGUMENT_ERROR: &str = "com.microsoft:argument-error";
    pub(crate) const ARGUMENT_OUT_OF_RANGE: &str = "com.microsoft:argument-out-of-range";
    pub(crate) const NO_MATCHING_SUBSCRIPTION: &str = "com.microsoft:no-matching-subscription";
}

use bus_condition as bus;

/// There is no such entity. The JavaScript SDK recognizes the error by this text.
pub(crate) fn not_found(address: &str) -> Error {
    let text = format!("The messaging entity '{address}' could not be found.");
    Error::new(condition::NOT_FOUND, text)
}

/// A right is missing. The text uses the service's name of it.
pub(crate) fn unauthorized(entity: &EntityName, right: impl Display) -> Error {
    let text = format!(
        "Unauthorized access. '{right}' claim(s) are required to perform this operation. \
         Resource: '{}'.",
        entity.name
    );
    Error::new(condition::UNAUTHORIZED_ACCESS, text)
}

/// The error text for a message that cannot be read.
pub(crate) const UNREADABLE: &str = "The message is damaged on the server's disk, and was not deleted. \
     The server's log names the file.";

/// Why messages cannot be read now. The condition is that of a busy server, so that SDKs retry.
pub(crate) const READ_FAILED: &str = "Messages cannot be read from the disk of the server now.";

/// Why nothing is carried out here now. The condition is that of a busy server, so that SDKs retry.
pub(crate) const MOVING: &str = "Another server has the namespace now.";

/// The error text for a request that may have been carried out.
pub(crate) const UNKNOWN: &str = "Another server took over the namespace while the request was in \
     progress. It is not known whether it was carried out.";

/// The error of a rejection.
pub(crate) fn error_of(rejection: &Rejection) -> Error {
    match rejection {
        Rejection::Refused(Refusal::Bus(refusal)) => error_of_refusal(refusal),
        Rejection::Refused(refusal @ Refusal::PropertiesTooLarge { .. }) => {
            Error::new(condition::MESSAGE_SIZE_EXCEEDED, refusal.to_string())
        }
        Rejection::Refused(
            refusal @ (Refusal::AlreadyInitialized
            | Refusal::AccountAlreadyExists { .. }
            | Refusal::AccountNotFound { .. }
            | Refusal::AccountNotEmpty { .. }
            | Refusal::Storage(_)),
        ) => Error::new(condition::NOT_ALLOWED, refusal.to_string()),
        Rejection::Busy => busy(),
        Rejection::NotOwner => {
            let text = format!("{MOVING} Please wait and try again.");
            Error::new(bus::SERVER_BUSY, text)
        }
        Rejection::Unknown => Error::new(bus::TIMEOUT, UNKNOWN),
        Rejection::ReadFailed => {
            let text = format!("{READ_FAILED} Please wait and try again.");
            Error::new(bus::SERVER_BUSY, text)
        }
        Rejection::Full => Error::new(bus::SERVER_BUSY, FULL),
        Rejection::Stopped => Error::new(
            bus::SERVER_BUSY,
            "The server is stopping. Please wait and try again.",
        ),
    }
}

/// A message or an answer is larger than its link allows, and blocks everything behind it.
pub(crate) fn too_large_for_link(refusal: &SendRefusal) -> Error {
    Error::new(condition::MESSAGE_SIZE_EXCEEDED, refusal.to_string())
}

/// The error text for a full disk. The condition is that of a busy server, so that SDKs retry.
pub(crate) const FULL: &str =
    "The disk of the server is full. Receive and settle messages to make space, then try again.";

/// Too much is under way.
pub(crate) fn busy() -> Error {
    let text = "The server is busy. Please wait and try again.";
    Error::new(bus::SERVER_BUSY, text)
}

fn error_of_refusal(refusal: &BusRefusal) -> Error {
    let condition = match refusal {
        BusRefusal::QueueNotFound { queue } => return not_found(queue),
        BusRefusal::MessageDamaged { .. } => {
            return Error::new(condition::INTERNAL_ERROR, UNREADABLE);
        }
        BusRefusal::RuleNotFound { rule } => {
            // The same text, for the same reason.
            let text = format!("The messaging entity '{rule}', a rule, could not be found.");
            return Error::new(condition::NOT_FOUND, text);
        }
        BusRefusal::DestinationNotFound { .. } => condition::NOT_FOUND,
        BusRefusal::QueueAlreadyExists { .. } | BusRefusal::RuleAlreadyExists { .. } => {
            bus::ENTITY_ALREADY_EXISTS
        }
        BusRefusal::InvalidOption(_)
        | BusRefusal::TooMany { .. }
        | BusRefusal::TooManyCopies { .. }
        | BusRefusal::RulesTakeLong { .. }
        | BusRefusal::CopiesTooLarge { .. }
        | BusRefusal::SessionIdTooLong { .. } => bus::ARGUMENT_OUT_OF_RANGE,
        BusRefusal::UnchangeableOption { .. }
        | BusRefusal::InvalidRule { .. }
        | BusRefusal::NotAMessage => bus::ARGUMENT_ERROR,
        BusRefusal::RulesBusy { .. } => bus::SERVER_BUSY,
        BusRefusal::NoMatchingSubscription { .. } => bus::NO_MATCHING_SUBSCRIPTION,
        BusRefusal::Disabled { .. } => bus::ENTITY_DISABLED,
        BusRefusal::QuotaExceeded { .. }
        | BusRefusal::TransferFull { .. }
        | BusRefusal::TooManySubscriptions { .. }
        | BusRefusal::TooManyRules { .. }
        | BusRefusal::RulesTooLarge { .. } => condition::RESOURCE_LIMIT_EXCEEDED,
        BusRefusal::NotSupportedYet { .. } => condition::NOT_IMPLEMENTED,
        BusRefusal::MessageTooLarge { .. } | BusRefusal::SessionStateTooLarge { .. } => {
            condition::MESSAGE_SIZE_EXCEEDED
        }
        BusRefusal::NotSendable { .. }
        | BusRefusal::NotSendableSubscription { .. }
        | BusRefusal::NotReceivable { .. }
        | BusRefusal::Forwards { .. }
        | BusRefusal::SessionRequired
        | BusRefusal::MessageLocked { .. }
        | BusRefusal::MessageScheduled { .. }
        | BusRefusal::NotLocked
        | BusRefusal::SessionsNotSupported => condition::NOT_ALLOWED,
        BusRefusal::SessionCannotBeLocked { .. } => bus::SESSION_CANNOT_BE_LOCKED,
        BusRefusal::NoSessionAvailable => bus::TIMEOUT,
        BusRefusal::LockLost => bus::LOCK_LOST,
        BusRefusal::SessionLockLost => bus::SESSION_LOCK_LOST,
        BusRefusal::MessageNotFound { .. } => bus::MESSAGE_NOT_FOUND,
        BusRefusal::Transaction { part, queue, why } => {
            let why = match &**why {
                PartRefusal::Refused(refusal) => Some(error_of_refusal(refusal)),
                PartRefusal::Unsettled(verdict) => error_of_verdict(*verdict),
            };
            let why = why.map_or_else(String::new, |error| error.to_string());
            return rolled_back(&format!("operation {part}, on '{queue}': {why}"));
        }
    };
    Error::new(condition, refusal.to_string())
}

/// A transaction could not be committed, and none of it was done.
pub(crate) fn rolled_back(why: &str) -> Error {
    let text = format!("The transaction was rolled back: {why}");
    Error::new(condition::TRANSACTION_ROLLBACK, text)
}

/// The text of an error, for answers in another form.
pub(crate) fn text_of(error: &Error) -> &str {
    error.description.as_ref().map_or("", |text| text.as_str())
}

/// An open transaction will end the lock.
pub(crate) fn claimed() -> Error {
    let text = "The message is being settled in an open transaction.";
    Error::new(condition::NOT_ALLOWED, text)
}

/// Why a settlement had no effect, if it had none.
pub(crate) fn error_of_verdict(verdict: Verdict) -> Option<Error> {
    let (condition, text) = match verdict {
        Verdict::Settled => return None,
        Verdict::LockLost => (
            bus::LOCK_LOST,
            "The lock supplied is invalid. Either the lock expired, or the message has already \
             been removed from the queue.",
        ),
        Verdict::SessionLockLost => (
            bus::SESSION_LOCK_LOST,
            "The session lock has expired on the session. Accept a new session.",
        ),
        Verdict::NotAllowed => (
            condition::NOT_ALLOWED,
            "A message of a dead-letter queue cannot be dead-lettered.",
        ),
        Verdict::QuotaExceeded => (
            condition::RESOURCE_LIMIT_EXCEEDED,
            "The messaging entity is full: settle the message without changes to its properties.",
        ),
        Verdict::TooManyChanges => (
            condition::NOT_ALLOWED,
            "The properties of this message were changed too often, or by more than 64 KiB in all: \
             settle it without changes.",
        ),
    };
    Some(Error::new(condition, text))
}
