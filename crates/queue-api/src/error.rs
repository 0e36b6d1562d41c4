//! Every error of the protocol, and the one map from refusals to errors.
//!
//! An [`Error`] has a status, a code, a text and explaining elements: those are in `wire`. `reply`
//! writes them.

#![cfg_attr(not(test), deny(clippy::wildcard_enum_match_arm))]

mod wire;

use std::net::IpAddr;

use kew_broker::Rejection;
use kew_engine::storage::StorageRefusal;
use kew_engine::{QuotaLimit, Refusal};
use kew_http_front::{BodyError, NoRoom};
use kew_listen::Barred;

use crate::limits::TEXT_SIZE_BYTES_MAX;
use crate::version::Version;

/// The reason for refusing a put that hides its message until it expires, in the service's words.
pub(crate) const REASON_HIDDEN_BEYOND_EXPIRY: &str =
    "messagettl must be greater than visibilitytimeout";

/// The reason for refusing an invalid receipt, in the service's words.
pub(crate) const REASON_POP_RECEIPT: &str = "Invalid pop receipt format";

/// The reason for refusing a time to live, in the service's words.
pub(crate) const REASON_TIME_TO_LIVE: &str =
    "Value must be greater than or equal to 1, or -1 to indicate an infinite TTL.";

/// An error as a client gets it. Variants are named after the codes.
#[derive(Debug)]
#[expect(
    clippy::enum_variant_names,
    reason = "variants have the names of the codes"
)]
pub(crate) enum Error {
    AccountIsDisabled,
    AccountQuotaExceeded {
        limit: QuotaLimit,
        allowed: u64,
    },
    AccountRequiresHttps,
    AuthenticationFailed {
        detail: Box<str>,
    },
    ConditionHeadersNotSupported,
    /// A header of a browser's preflight is missing.
    CorsHeaderMissing {
        name: &'static str,
    },
    CorsPreflightFailure,
    EmptyMetadataKey,
    FeatureVersionMismatch,
    InsufficientAccountPermissions,
    InternalError,
    /// The `Authorization` header cannot be read.
    InvalidAuthenticationInfo,
    /// The bearer token is not accepted.
    InvalidBearerToken {
        detail: &'static str,
    },
    InvalidHeaderValue {
        name: &'static str,
        value: Box<str>,
    },
    InvalidHttpVerb,
    InvalidInput,
    InvalidMarker,
    InvalidMd5,
    InvalidMetadata,
    InvalidQueryParameterValue {
        name: Box<str>,
        value: Box<str>,
        reason: &'static str,
    },
    InvalidResourceName,
    InvalidUri,
    InvalidXmlDocument {
        line: usize,
        column: usize,
        reason: Box<str>,
    },
    /// An element's text is not valid.
    InvalidXmlNodeValue {
        name: Box<str>,
        value: Box<str>,
        reason: Box<str>,
    },
    Md5Mismatch,
    MessageNotFound,
    MetadataTooLarge,
    MissingContentLengthHeader,
    MissingRequiredHeader {
        name: &'static str,
    },
    MissingRequiredQueryParameter {
        name: &'static str,
    },
    MissingRequiredXmlNode {
        name: &'static str,
    },
    NoAuthenticationInformation,
    /// The sender is known, and does not have the right.
    NotAuthorized {
        mismatch: Mismatch,
        /// The missing right, if the version shows it.
        detail: Option<Box<str>>,
    },
    OperationTimedOut,
    OutOfRangeInput,
    OutOfRangeQueryParameterValue {
        name: &'static str,
        value: Box<str>,
        minimum: i64,
        maximum: i64,
    },
    PopReceiptMismatch,
    /// The public key is not accepted from a client that came this way.
    PublicKeyRefused {
        barred: Barred,
        /// The host that it named, or the page that it is.
        called: Box<str>,
    },
    QueueAlreadyExists,
    QueueBeingDeleted,
    QueueNotFound,
    RequestBodyTooLarge {
        limit_bytes: usize,
    },
    ResourceNotFound,
    ServerBusy,
    /// The disk is full: a busy server that gives the reason.
    DiskFull,
    UnsupportedHttpVerb {
        allowed: Box<str>,
    },
    UnsupportedXmlNode {
        name: Box<str>,
    },
}

/// The part of a credential that does not cover the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mismatch {
    Permission,
    Protocol,
    ResourceType,
    Service,
    SourceIp(IpAddr),
    /// No credential of its kind would.
    Other,
}

impl From<kew_xml::Error> for Error {
    fn from(error: kew_xml::Error) -> Self {
        use kew_xml::Error as Xml;
        match error {
            Xml::Malformed {
                line,
                column,
                reason,
            } => Self::InvalidXmlDocument {
                line,
                column,
                reason,
            },
            Xml::Unsupported { name } => Self::UnsupportedXmlNode { name },
            Xml::Value {
                name,
                value,
                reason,
            } => Self::InvalidXmlNodeValue {
                name,
                value,
                reason,
            },
        }
    }
}

impl Error {
    pub(crate) fn invalid_query(
        name: &'static str,
        value: impl Into<Box<str>>,
        reason: &'static str,
    ) -> Self {
        Self::InvalidQueryParameterValue {
            name: name.into(),
            value: value.into(),
            reason,
        }
    }

    pub(crate) fn authentication_failed(detail: impl Into<Box<str>>) -> Self {
        Self::AuthenticationFailed {
            detail: detail.into(),
        }
    }

    /// The error for the broker's rejection of a command, in a version of the protocol.
    pub(crate) fn of_rejection(rejection: Rejection, version: Version) -> Self {
        match rejection {
            Rejection::Refused(refusal) => Self::of_refusal(refusal, version),
            Rejection::Busy | Rejection::NotOwner | Rejection::ReadFailed => Self::ServerBusy,
            Rejection::Full => Self::DiskFull,
            // The command may have been carried out: its outcome is unknown.
            Rejection::Stopped => Self::InternalError,
            // The same, and this service goes on: to clients it is as if the answer was lost.
            Rejection::Unknown => Self::OperationTimedOut,
        }
    }

    /// The error for a refusal of the engine, in a version of the protocol.
    fn of_refusal(refusal: Refusal, version: Version) -> Self {
        match refusal {
            Refusal::Storage(refusal) => Self::of_storage_refusal(refusal, version),
            Refusal::PropertiesTooLarge {
                size_bytes: _,
                limit_bytes,
            } => Self::RequestBodyTooLarge { limit_bytes },
            // The runner initializes, and the administration or Service Bus sends what the others refuse.
            Refusal::AlreadyInitialized
            | Refusal::AccountAlreadyExists { .. }
            | Refusal::AccountNotFound { .. }
            | Refusal::AccountNotEmpty { .. }
            | Refusal::Bus(_) => Self::InternalError,
        }
    }

    fn of_storage_refusal(refusal: StorageRefusal, version: Version) -> Self {
        match refusal {
            StorageRefusal::QueueNotFound { .. } => Self::QueueNotFound,
            StorageRefusal::QueueAlreadyExists { .. } => Self::QueueAlreadyExists,
            StorageRefusal::MessageNotFound => Self::MessageNotFound,
            StorageRefusal::PopReceiptMismatch if version < Version::V2009_09_19 => {
                Self::PopReceiptMismatch
            }
            StorageRefusal::PopReceiptMismatch => Self::MessageNotFound,
            StorageRefusal::HiddenBeyondExpiry {
                visibility_timeout_seconds,
                time_to_live_seconds: _,
            } => Self::invalid_query(
                "visibilitytimeout",
                visibility_timeout_seconds.to_string(),
                REASON_HIDDEN_BEYOND_EXPIRY,
            ),
            StorageRefusal::BodyTooLarge {
                size_bytes: _,
                limit_bytes,
            } => Self::RequestBodyTooLarge { limit_bytes },
            StorageRefusal::AccountQuotaExceeded { limit, allowed, .. } => {
                Self::AccountQuotaExceeded { limit, allowed }
            }
        }
    }

    /// The body is larger than allowed. The limit in the error is that of the text, which clients
    /// can act on.
    pub(crate) const fn body_too_large() -> Self {
        Self::RequestBodyTooLarge {
            limit_bytes: TEXT_SIZE_BYTES_MAX,
        }
    }
}

impl From<BodyError> for Error {
    fn from(error: BodyError) -> Self {
        match error {
            BodyError::TooLarge => Self::body_too_large(),
            BodyError::NoRoom => Self::ServerBusy,
            BodyError::TooSlow => Self::OperationTimedOut,
            BodyError::Broken(_) => Self::InvalidInput,
        }
    }
}

impl From<NoRoom> for Error {
    fn from(NoRoom: NoRoom) -> Self {
        Self::ServerBusy
    }
}

#[cfg(test)]
mod tests;
