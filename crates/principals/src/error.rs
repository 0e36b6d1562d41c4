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
    /// No principal can be like that, or its scope cannot have such a name.
    #[error(transparent)]
    Invalid(Box<dyn StdError + Send + Sync>),
    /// There is no such principal, or its scope does not exist.
    #[error("there is no {what} {name:?}")]
    NotFound {
        /// What was looked for, such as `account`.
        what: &'static str,
        /// The name asked for.
        name: Box<str>,
    },
    /// The name is taken.
    #[error("{what} {name:?} exists already")]
    Exists {
        /// What was to be added.
        what: &'static str,
        /// The name asked for.
        name: Box<str>,
    },
    /// The account has queues, and they were not to be removed.
    #[error("account {name:?} has {queues} queues")]
    NotEmpty {
        /// The account.
        name: Box<str>,
        /// How many queues it has.
        queues: u64,
    },
    /// The name is that of the principal whose key is public. It is not administered.
    #[error("account {name:?} has a public key, which cannot be changed or removed")]
    WellKnown {
        /// The name asked for.
        name: Box<str>,
    },
    /// The broker refused it for another reason.
    #[error(transparent)]
    Refused(Refusal),
    /// Too much is under way.
    #[error("the server is busy, and nothing was changed")]
    Busy,
    /// The disk is full.
    #[error("the disk of the server is full, and nothing was changed")]
    Full,
    /// The server stops.
    #[error("the server is stopping, and nothing was changed")]
    Stopped,
    /// The server stopped during a change.
    #[error("the server is stopping: whether this was changed is unknown")]
    Unknown,
    /// A bug or a failure of the system.
    #[error(transparent)]
    Internal(Box<dyn StdError + Send + Sync>),
}

impl PrincipalError {
    /// Of a principal that cannot be.
    pub fn invalid(error: impl StdError + Send + Sync + 'static) -> Self {
        Self::Invalid(Box::new(error))
    }

    /// Of a bug or a failure of the system.
    pub fn internal(error: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self::Internal(error.into())
    }

    /// Of a read that was rejected.
    pub fn of_read(rejection: Rejection) -> Self {
        match rejection {
            Rejection::Refused(refusal) => Self::of_refusal(refusal),
            Rejection::Busy => Self::Busy,
            Rejection::Full => Self::Full,
            Rejection::Stopped => Self::Stopped,
            Rejection::Unreadable => Self::internal(rejection),
        }
    }

    /// Of a change that was rejected. After [`Rejection::Stopped`] its outcome is unknown.
    pub fn of_change(rejection: Rejection) -> Self {
        match rejection {
            Rejection::Stopped => Self::Unknown,
            Rejection::Refused(_) | Rejection::Busy | Rejection::Full | Rejection::Unreadable => {
                Self::of_read(rejection)
            }
        }
    }

    fn of_refusal(refusal: Refusal) -> Self {
        match refusal {
            Refusal::AccountNotFound { account: name } => Self::NotFound {
                what: "account",
                name,
            },
            Refusal::AccountAlreadyExists { account: name } => Self::Exists {
                what: "account",
                name,
            },
            Refusal::AccountNotEmpty { account, queues } => Self::NotEmpty {
                name: account,
                queues,
            },
            Refusal::Bus(BusRefusal::QueueNotFound { queue: name }) => Self::NotFound {
                what: "queue",
                name,
            },
            other => Self::Refused(other),
        }
    }
}

impl From<InvalidKey> for PrincipalError {
    fn from(error: InvalidKey) -> Self {
        Self::invalid(error)
    }
}

impl From<NoRandomBytes> for PrincipalError {
    fn from(error: NoRandomBytes) -> Self {
        Self::internal(error)
    }
}
