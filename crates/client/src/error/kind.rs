//! The kinds of errors, and how they follow from what a service answers.

use kew_amqp::error::condition;

/// What can be done about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// Nothing has changed, and the same request is of no use until something else changes.
    Refused,
    /// Nothing has changed, and the same request can succeed later.
    TryAgainLater,
    /// The request went out and its answer did not come: it may have happened.
    OutcomeUnknown,
}

/// What a request does, if it is carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// It changes something: to do it twice is not the same as once.
    Change,
    /// It can be repeated.
    Read,
}

impl Effect {
    /// What it means that a request went out, and nobody knows what came of it.
    pub(super) fn unknown(self) -> ErrorKind {
        match self {
            Self::Change => ErrorKind::OutcomeUnknown,
            Self::Read => ErrorKind::TryAgainLater,
        }
    }
}

/// Conditions of Service Bus, beside those of AMQP.
pub(crate) mod bus_condition {
    pub(crate) const SERVER_BUSY: &str = "com.microsoft:server-busy";
    pub(crate) const TIMEOUT: &str = "com.microsoft:timeout";
    pub(crate) const MESSAGE_LOCK_LOST: &str = "com.microsoft:message-lock-lost";
    pub(crate) const SESSION_LOCK_LOST: &str = "com.microsoft:session-lock-lost";
    pub(crate) const MESSAGE_NOT_FOUND: &str = "com.microsoft:message-not-found";
    pub(crate) const OPERATION_CANCELLED: &str = "com.microsoft:operation-cancelled";
}

/// The kinds of the conditions that are known.
pub(super) fn kind_of_condition(code: &str, effect: Effect) -> Option<ErrorKind> {
    Some(match code {
        bus_condition::SERVER_BUSY
        | bus_condition::OPERATION_CANCELLED
        | condition::DETACH_FORCED
        | condition::CONNECTION_FORCED
        | condition::STOLEN => ErrorKind::TryAgainLater,
        // The service gave up on it, and does not say how far it was.
        bus_condition::TIMEOUT | condition::INTERNAL_ERROR => effect.unknown(),
        bus_condition::MESSAGE_LOCK_LOST
        | bus_condition::SESSION_LOCK_LOST
        | bus_condition::MESSAGE_NOT_FOUND
        | condition::NOT_FOUND
        | condition::UNAUTHORIZED_ACCESS
        | condition::NOT_ALLOWED
        | condition::NOT_IMPLEMENTED
        | condition::RESOURCE_LIMIT_EXCEEDED
        | condition::RESOURCE_DELETED
        | condition::MESSAGE_SIZE_EXCEEDED => ErrorKind::Refused,
        _ => return None,
    })
}

/// The kinds of statuses.
pub(super) fn kind_of_status(status: i64, effect: Effect) -> ErrorKind {
    match status {
        429 | 503 => ErrorKind::TryAgainLater,
        // No status at all is -1.
        ..=399 | 408 | 500 | 502 | 504 => effect.unknown(),
        400.. => ErrorKind::Refused,
    }
}
