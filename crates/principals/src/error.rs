//! Why principals were not read or changed.

use std::error::Error as StdError;

use kew_broker::Rejection;
use kew_engine::Refusal;
use kew_engine::bus::BusRefusal;
use thiserror::Error;

use crate::key::{InvalidKey, NoRandomBytes};

/// Why principals were not read or changed. Nothing has changed, except after [`Self::Unknown`].
#[derive(Debug, Error)]
pub enum PrincipalError {
    /// The principal is invalid, or the name of its scope is.
    #[error(transparent)]
    Invalid(Box<dyn StdError + Send + Sync>),
    /// The key that an administrator supplied is invalid.
    #[error(transparent)]
    InvalidKey(#[from] InvalidKey),
    /// The principal or its scope does not exist. Holds the noun, such as `account`, and the name.
    #[error("there is no {0} {1:?}")]
    NotFound(&'static str, Box<str>),
    /// The name is taken. Holds the noun and the name.
    #[error("{0} {1:?} exists already")]
    Exists(&'static str, Box<str>),
    /// The account has queues, and the request does not remove them. Holds its name and how many queues it has.
    #[error("account {0:?} has {1} queues")]
    NotEmpty(Box<str>, u64),
    /// The name belongs to the account whose key is public. That account cannot be administered.
    #[error("account {0:?} is well known: its key is public, and it cannot be administered")]
    WellKnown(Box<str>),
    /// The broker refused it for another reason.
    #[error(transparent)]
    Refused(Refusal),
    /// The server is busy.
    #[error("the server is busy, and nothing was changed")]
    Busy,
    /// The disk is full.
    #[error("the disk of the server is full, and nothing was changed")]
    Full,
    /// The server stops.
    #[error("the server is stopping, and nothing was changed")]
    Stopped,
    /// The server stopped during a change, or another one took its place.
    #[error(
        "the server has stopped, or another one has taken its place: whether this was changed is unknown"
    )]
    Unknown,
    /// No key could be made.
    #[error(transparent)]
    NoRandomBytes(#[from] NoRandomBytes),
    /// A bug or a failure of the system.
    #[error(transparent)]
    Internal(Box<dyn StdError + Send + Sync>),
}

impl PrincipalError {
    /// An invalid principal.
    pub fn invalid(error: impl StdError + Send + Sync + 'static) -> Self {
        Self::Invalid(Box::new(error))
    }

    /// A bug or a failure of the system.
    pub fn internal(error: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self::Internal(error.into())
    }

    /// The error for a read that the broker rejected.
    pub fn of_read(rejection: Rejection) -> Self {
        match rejection {
            Rejection::Refused(refusal) => Self::of_refusal(refusal),
            // A read that is not answered has changed nothing either.
            Rejection::Busy | Rejection::NotOwner | Rejection::Unknown | Rejection::ReadFailed => {
                Self::Busy
            }
            Rejection::Full => Self::Full,
            Rejection::Stopped => Self::Stopped,
        }
    }

    /// The error for a change that the broker rejected. After [`Rejection::Stopped`] and [`Rejection::Unknown`] its outcome
    /// is unknown.
    pub fn of_change(rejection: Rejection) -> Self {
        match rejection {
            Rejection::Stopped | Rejection::Unknown => Self::Unknown,
            Rejection::Refused(_)
            | Rejection::Busy
            | Rejection::NotOwner
            | Rejection::Full
            | Rejection::ReadFailed => Self::of_read(rejection),
        }
    }

    fn of_refusal(refusal: Refusal) -> Self {
        match refusal {
            Refusal::AccountNotFound { account } => Self::NotFound("account", account),
            Refusal::AccountAlreadyExists { account } => Self::Exists("account", account),
            Refusal::AccountNotEmpty { account, queues } => Self::NotEmpty(account, queues),
            Refusal::Bus(BusRefusal::QueueNotFound { queue }) => Self::NotFound("queue", queue),
            other => Self::Refused(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use kew_engine::storage::StorageRefusal;

    use super::*;

    #[test]
    fn a_change_that_the_server_did_not_answer_is_unknown() {
        for rejection in [Rejection::Stopped, Rejection::Unknown] {
            let of_change = PrincipalError::of_change(rejection);
            assert!(matches!(of_change, PrincipalError::Unknown));
        }
        let of_read = PrincipalError::of_read(Rejection::Unknown);
        assert!(matches!(of_read, PrincipalError::Busy));
        let of_read = PrincipalError::of_read(Rejection::Stopped);
        assert!(matches!(of_read, PrincipalError::Stopped));
        for rejection in [Rejection::Busy, Rejection::NotOwner, Rejection::Full] {
            let same = PrincipalError::of_read(rejection.clone()).to_string();
            assert_eq!(PrincipalError::of_change(rejection).to_string(), same);
            assert!(same.contains("nothing was changed"), "{same}");
        }
    }

    #[test]
    fn refusals_of_the_broker_say_what_and_which() {
        for (refusal, expected) in [
            (
                Refusal::AccountNotFound {
                    account: "a".into(),
                },
                "there is no account \"a\"",
            ),
            (
                Refusal::AccountAlreadyExists {
                    account: "a".into(),
                },
                "account \"a\" exists already",
            ),
            (
                Refusal::AccountNotEmpty {
                    account: "a".into(),
                    queues: 2,
                },
                "account \"a\" has 2 queues",
            ),
            (
                BusRefusal::QueueNotFound { queue: "q".into() }.into(),
                "there is no queue \"q\"",
            ),
            (
                Refusal::Storage(StorageRefusal::MessageNotFound),
                "the message does not exist",
            ),
        ] {
            let error = PrincipalError::of_change(Rejection::Refused(refusal));
            assert_eq!(error.to_string(), expected);
        }
    }
}
