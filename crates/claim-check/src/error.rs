//! What went wrong, and what can be done about it.

use std::error::Error as StdError;

/// What can be done about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The object does not exist. It was released or swept, or it never was in this store: dead-letter the message.
    Missing,
    /// The object, or the data in the message, is not what was sent. Try once more, because it may have been damaged on
    /// the way; then dead-letter the message.
    Damaged,
    /// It will be refused again until something else changes: the message, the options or the rights at the store.
    Refused,
    /// The store did not answer, or is busy. The same call can succeed later.
    TryAgainLater,
}

/// Why data was not stored or fetched.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The object does not exist.
    #[error(
        "object {object} does not exist: it was released or swept, or the message is of another store"
    )]
    Missing {
        /// Its name.
        object: String,
    },
    /// The data is not what was sent.
    #[error("{place} is damaged: {why}")]
    Damaged {
        /// The object, or the message.
        place: String,
        /// What differs.
        why: String,
    },
    /// The body of the message is not a claim check, or not a valid one.
    #[error("the message is not a claim check: {why}")]
    Malformed {
        /// What is wrong.
        why: String,
    },
    /// The message has a newer form.
    #[error("the claim check has version {version}; this program knows version 1")]
    UnknownVersion {
        /// Its version.
        version: u64,
    },
    /// The data is larger than the options allow.
    #[error("the data has {size_bytes} bytes; {limit_bytes} are allowed")]
    TooLarge {
        /// How large it is, or says that it is.
        size_bytes: u64,
        /// [`ClaimCheckOptions::size_max_bytes`](crate::ClaimCheckOptions::size_max_bytes).
        limit_bytes: u64,
    },
    /// The group has more messages than the options allow.
    #[error("the group has {count} messages; {limit} are allowed")]
    TooManyItems {
        /// How many it has.
        count: u64,
        /// [`ClaimCheckOptions::items_max`](crate::ClaimCheckOptions::items_max).
        limit: u64,
    },
    /// The options, or the content type, cannot be used.
    #[error("{why}")]
    Invalid {
        /// What is wrong.
        why: String,
    },
    /// The store refused it, for example because of missing rights.
    #[error("the object store refused it: {source}")]
    StoreRefused {
        /// What the store said.
        source: Box<dyn StdError + Send + Sync>,
    },
    /// The store did not answer, or failed.
    #[error("the object store is unavailable: {source}")]
    Unavailable {
        /// What happened.
        source: Box<dyn StdError + Send + Sync>,
    },
}

impl Error {
    /// What can be done about it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Missing { .. } => ErrorKind::Missing,
            Self::Damaged { .. } => ErrorKind::Damaged,
            Self::Malformed { .. }
            | Self::UnknownVersion { .. }
            | Self::TooLarge { .. }
            | Self::TooManyItems { .. }
            | Self::Invalid { .. }
            | Self::StoreRefused { .. } => ErrorKind::Refused,
            Self::Unavailable { .. } => ErrorKind::TryAgainLater,
        }
    }

    pub(crate) fn malformed(why: impl Into<String>) -> Self {
        Self::Malformed { why: why.into() }
    }

    pub(crate) fn invalid(why: impl Into<String>) -> Self {
        Self::Invalid { why: why.into() }
    }

    pub(crate) fn unavailable(source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self::Unavailable {
            source: source.into(),
        }
    }

    /// Of the store, about an object.
    pub(crate) fn of_store(error: object_store::Error, object: &str) -> Self {
        use object_store::Error as E;
        match error {
            E::NotFound { .. } => Self::Missing {
                object: object.to_owned(),
            },
            E::InvalidPath { .. }
            | E::NotSupported { .. }
            | E::NotImplemented { .. }
            | E::AlreadyExists { .. }
            | E::Precondition { .. }
            | E::NotModified { .. }
            | E::PermissionDenied { .. }
            | E::Unauthenticated { .. }
            | E::UnknownConfigurationKey { .. } => Self::StoreRefused {
                source: error.into(),
            },
            // Its variants are not all known here: a store that fails in a new way is tried again.
            _ => Self::unavailable(error),
        }
    }
}
