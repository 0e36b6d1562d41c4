//! Every error that the protocol can answer, and the one map from what went wrong to it.
//!
//! An [`Error`] knows its status, its code, its text and the elements that explain it. How it is
//! written is the reply's business.

use std::borrow::Cow;
use std::fmt::Display;
use std::net::IpAddr;

use hyper::StatusCode;
use kew_broker::Rejection;
use kew_engine::{QuotaLimit, Refusal};

use crate::limits::TEXT_SIZE_BYTES_MAX;
use crate::version::Version;

/// Why a put that hides its message to the end is refused, in the service's words.
pub(crate) const REASON_HIDDEN_BEYOND_EXPIRY: &str =
    "messagettl must be greater than visibilitytimeout";

/// Why a receipt that is none is refused, in the service's words.
pub(crate) const REASON_POP_RECEIPT: &str = "Invalid pop receipt format";

/// Why a time to live is refused, in the service's words.
pub(crate) const REASON_TIME_TO_LIVE: &str =
    "Value must be greater than or equal to 1, or -1 to indicate an infinite TTL.";

/// An error as a client sees it. Variants are named after the codes.
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
    /// A header that tells a browser's question is missing.
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
    /// The bearer token is not taken.
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
    /// An element's text cannot be taken.
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
    /// Who sent the request is known, and may not.
    NotAuthorized {
        mismatch: Mismatch,
        /// What would be needed, where the version tells.
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
    QueueAlreadyExists,
    QueueBeingDeleted,
    QueueNotFound,
    RequestBodyTooLarge {
        limit_bytes: usize,
    },
    ResourceNotFound,
    ServerBusy,
    UnsupportedHttpVerb {
        allowed: Box<str>,
    },
    UnsupportedXmlNode {
        name: Box<str>,
    },
}

/// What of a credential does not reach as far as the request.
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

/// What every error has on the wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wire {
    pub(crate) status: StatusCode,
    pub(crate) code: &'static str,
    pub(crate) message: Cow<'static, str>,
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

    /// What the broker's rejection of a command is in a version of the protocol.
    pub(crate) fn of_rejection(rejection: Rejection, version: Version) -> Self {
        match rejection {
            Rejection::Refused(refusal) => Self::of_refusal(refusal, version),
            Rejection::Busy => Self::ServerBusy,
            // The command may have been carried out: its outcome is unknown.
            Rejection::Stopped => Self::InternalError,
        }
    }

    /// What a refusal of the engine is in a version of the protocol.
    fn of_refusal(refusal: Refusal, version: Version) -> Self {
        match refusal {
            // The runner alone initializes; no request does.
            Refusal::AlreadyInitialized => Self::InternalError,
            Refusal::QueueNotFound { .. } => Self::QueueNotFound,
            Refusal::QueueAlreadyExists { .. } => Self::QueueAlreadyExists,
            Refusal::MessageNotFound => Self::MessageNotFound,
            Refusal::PopReceiptMismatch if version < Version::V2009_09_19 => {
                Self::PopReceiptMismatch
            }
            Refusal::PopReceiptMismatch => Self::MessageNotFound,
            Refusal::HiddenBeyondExpiry {
                visibility_timeout_seconds,
                time_to_live_seconds: _,
            } => Self::invalid_query(
                "visibilitytimeout",
                visibility_timeout_seconds.to_string(),
                REASON_HIDDEN_BEYOND_EXPIRY,
            ),
            Refusal::BodyTooLarge {
                size_bytes: _,
                limit_bytes,
            } => Self::RequestBodyTooLarge { limit_bytes },
            Refusal::AccountQuotaExceeded { limit, allowed, .. } => {
                Self::AccountQuotaExceeded { limit, allowed }
            }
            // The administration alone asks for what these refuse, and Service Bus for the last.
            Refusal::AccountAlreadyExists { .. }
            | Refusal::Bus(_)
            | Refusal::AccountNotFound { .. }
            | Refusal::AccountNotEmpty { .. } => Self::InternalError,
        }
    }

    /// Status, code and text.
    ///
    /// Source: *Common REST API error codes*, *Queue Storage error codes*, and answers of the
    /// service, whose wording wins.
    pub(crate) fn wire(&self) -> Wire {
        const AUTHENTICATE: &str = "Server failed to authenticate the request. Please refer to \
             the information in the www-authenticate header.";
        let (status, code, message) = match self {
            Self::AccountIsDisabled => (
                StatusCode::FORBIDDEN,
                "AccountIsDisabled",
                "The specified account is disabled.",
            ),
            // The service documents no code for an account that is full. A 403 is what it answers
            // where an account may not do more, and no SDK tries again after one.
            Self::AccountQuotaExceeded { .. } => (
                StatusCode::FORBIDDEN,
                "AccountQuotaExceeded",
                "The account has reached its quota. Delete messages or queues, or have the quota \
                 raised.",
            ),
            Self::AccountRequiresHttps => (
                StatusCode::BAD_REQUEST,
                "AccountRequiresHttps",
                "The account being accessed does not support http.",
            ),
            Self::AuthenticationFailed { .. } => (
                StatusCode::FORBIDDEN,
                "AuthenticationFailed",
                "Server failed to authenticate the request. Make sure the value of Authorization \
                 header is formed correctly including the signature.",
            ),
            Self::ConditionHeadersNotSupported => (
                StatusCode::BAD_REQUEST,
                "ConditionHeadersNotSupported",
                "Condition headers are not supported.",
            ),
            Self::CorsHeaderMissing { .. } => (
                StatusCode::BAD_REQUEST,
                "InvalidHeaderValue",
                "A required CORS header is not present.",
            ),
            Self::CorsPreflightFailure => (
                StatusCode::FORBIDDEN,
                "CorsPreflightFailure",
                "CORS not enabled or no matching rule found for this request.",
            ),
            Self::EmptyMetadataKey => (
                StatusCode::BAD_REQUEST,
                "EmptyMetadataKey",
                "The key for one of the metadata key-value pairs is empty.",
            ),
            Self::FeatureVersionMismatch => (
                StatusCode::CONFLICT,
                "FeatureVersionMismatch",
                "The operation needs a newer version of the protocol than the request names.",
            ),
            Self::InsufficientAccountPermissions => (
                StatusCode::FORBIDDEN,
                "InsufficientAccountPermissions",
                "The account being accessed does not have sufficient permissions to execute this \
                 operation. Write operations are not allowed.",
            ),
            Self::InternalError => (
                StatusCode::INTERNAL_SERVER_ERROR,
                "InternalError",
                "The server encountered an internal error. Please retry the request.",
            ),
            Self::InvalidAuthenticationInfo => (
                StatusCode::BAD_REQUEST,
                "InvalidAuthenticationInfo",
                "Authentication information is not given in the correct format. Check the value \
                 of Authorization header.",
            ),
            Self::InvalidBearerToken { .. } => (
                StatusCode::UNAUTHORIZED,
                "InvalidAuthenticationInfo",
                AUTHENTICATE,
            ),
            Self::InvalidHeaderValue { .. } => (
                StatusCode::BAD_REQUEST,
                "InvalidHeaderValue",
                "The value for one of the HTTP headers is not in the correct format.",
            ),
            Self::InvalidHttpVerb => (
                StatusCode::BAD_REQUEST,
                "InvalidHttpVerb",
                "The HTTP verb specified was not recognized by the server.",
            ),
            Self::InvalidInput => (
                StatusCode::BAD_REQUEST,
                "InvalidInput",
                "One of the request inputs is not valid.",
            ),
            Self::InvalidMarker => (
                StatusCode::BAD_REQUEST,
                "InvalidMarker",
                "The specified marker is invalid.",
            ),
            Self::InvalidMd5 => (
                StatusCode::BAD_REQUEST,
                "InvalidMd5",
                "The MD5 value specified in the request is invalid. MD5 value must be 128 bits and \
                 base64-encoded.",
            ),
            Self::InvalidMetadata => (
                StatusCode::BAD_REQUEST,
                "InvalidMetadata",
                "The metadata specified is invalid. It has characters that are not permitted.",
            ),
            Self::InvalidQueryParameterValue { .. } => (
                StatusCode::BAD_REQUEST,
                "InvalidQueryParameterValue",
                "Value for one of the query parameters specified in the request URI is invalid.",
            ),
            Self::InvalidResourceName => (
                StatusCode::BAD_REQUEST,
                "InvalidResourceName",
                // The service spells it so, and clients compare texts.
                "The specifed resource name contains invalid characters.",
            ),
            Self::InvalidUri => (
                StatusCode::BAD_REQUEST,
                "InvalidUri",
                "The requested URI does not represent any resource on the server.",
            ),
            Self::InvalidXmlDocument { .. } => (
                StatusCode::BAD_REQUEST,
                "InvalidXmlDocument",
                "XML specified is not syntactically valid.",
            ),
            Self::InvalidXmlNodeValue { .. } => (
                StatusCode::BAD_REQUEST,
                "InvalidXmlNodeValue",
                "The value for one of the XML nodes is not in the correct format.",
            ),
            Self::Md5Mismatch => (
                StatusCode::BAD_REQUEST,
                "Md5Mismatch",
                "The MD5 value specified in the request did not match the MD5 value calculated by \
                 the server.",
            ),
            Self::MessageNotFound => (
                StatusCode::NOT_FOUND,
                "MessageNotFound",
                "The specified message does not exist.",
            ),
            Self::MetadataTooLarge => (
                StatusCode::BAD_REQUEST,
                "MetadataTooLarge",
                "The metadata specified exceeds the maximum permissible limit.",
            ),
            Self::MissingContentLengthHeader => (
                StatusCode::LENGTH_REQUIRED,
                "MissingContentLengthHeader",
                "The Content-Length header was not specified.",
            ),
            Self::MissingRequiredHeader { .. } => (
                StatusCode::BAD_REQUEST,
                "MissingRequiredHeader",
                "An HTTP header that's mandatory for this request is not specified.",
            ),
            Self::MissingRequiredQueryParameter { .. } => (
                StatusCode::BAD_REQUEST,
                "MissingRequiredQueryParameter",
                "A query parameter that's mandatory for this request is not specified.",
            ),
            Self::MissingRequiredXmlNode { .. } => (
                StatusCode::BAD_REQUEST,
                "MissingRequiredXmlNode",
                "An XML node that's required is missing.",
            ),
            Self::NoAuthenticationInformation => (
                StatusCode::UNAUTHORIZED,
                "NoAuthenticationInformation",
                AUTHENTICATE,
            ),
            Self::NotAuthorized { mismatch, .. } => return mismatch.wire(),
            Self::OperationTimedOut => (
                StatusCode::INTERNAL_SERVER_ERROR,
                "OperationTimedOut",
                "The operation could not be completed within the permitted time.",
            ),
            Self::OutOfRangeInput => (
                StatusCode::BAD_REQUEST,
                "OutOfRangeInput",
                "One of the request inputs is out of range.",
            ),
            Self::OutOfRangeQueryParameterValue { .. } => (
                StatusCode::BAD_REQUEST,
                "OutOfRangeQueryParameterValue",
                "One of the query parameters specified in the request URI is outside the \
                 permissible range.",
            ),
            Self::PopReceiptMismatch => (
                StatusCode::BAD_REQUEST,
                "PopReceiptMismatch",
                "The specified pop receipt did not match the pop receipt for a dequeued message.",
            ),
            Self::QueueAlreadyExists => (
                StatusCode::CONFLICT,
                "QueueAlreadyExists",
                "The specified queue already exists.",
            ),
            Self::QueueBeingDeleted => (
                StatusCode::CONFLICT,
                "QueueBeingDeleted",
                "The specified queue is being deleted.",
            ),
            Self::QueueNotFound => (
                StatusCode::NOT_FOUND,
                "QueueNotFound",
                "The specified queue does not exist.",
            ),
            Self::RequestBodyTooLarge { .. } => (
                StatusCode::PAYLOAD_TOO_LARGE,
                "RequestBodyTooLarge",
                "The request body is too large and exceeds the maximum permissible limit.",
            ),
            Self::ResourceNotFound => (
                StatusCode::NOT_FOUND,
                "ResourceNotFound",
                "The specified resource does not exist.",
            ),
            Self::ServerBusy => (
                StatusCode::SERVICE_UNAVAILABLE,
                "ServerBusy",
                "The server is currently unable to receive requests. Please retry your request.",
            ),
            Self::UnsupportedHttpVerb { .. } => (
                StatusCode::METHOD_NOT_ALLOWED,
                "UnsupportedHttpVerb",
                "The resource doesn't support specified Http Verb.",
            ),
            Self::UnsupportedXmlNode { .. } => (
                StatusCode::BAD_REQUEST,
                "UnsupportedXmlNode",
                "One of the XML nodes specified in the request body is not supported.",
            ),
        };
        Wire {
            status,
            code,
            message: message.into(),
        }
    }

    /// Calls `write` with name and text of each element that explains the error, in order.
    pub(crate) fn details(&self, mut write: impl FnMut(&'static str, &dyn Display)) {
        match self {
            Self::AuthenticationFailed { detail } => write("AuthenticationErrorDetail", detail),
            Self::InvalidBearerToken { detail } => write("AuthenticationErrorDetail", detail),
            Self::InvalidHeaderValue { name, value } => {
                write("HeaderName", name);
                write("HeaderValue", value);
            }
            Self::InvalidQueryParameterValue {
                name,
                value,
                reason,
            } => {
                write("QueryParameterName", name);
                write("QueryParameterValue", value);
                write("Reason", reason);
            }
            Self::InvalidXmlDocument {
                line,
                column,
                reason,
            } => {
                write("LineNumber", line);
                write("LinePosition", column);
                write("Reason", reason);
            }
            Self::InvalidXmlNodeValue {
                name,
                value,
                reason,
            } => {
                write("XmlNodeName", name);
                write("XmlNodeValue", value);
                write("Reason", reason);
            }
            Self::CorsHeaderMissing { name } | Self::MissingRequiredHeader { name } => {
                write("HeaderName", name);
            }
            Self::MissingRequiredQueryParameter { name } => write("QueryParameterName", name),
            Self::MissingRequiredXmlNode { name } => write("XmlNodeName", name),
            Self::NotAuthorized { detail, .. } => {
                if let Some(detail) = detail {
                    write("ExtendedErrorDetail", detail);
                }
            }
            Self::OutOfRangeQueryParameterValue {
                name,
                value,
                minimum,
                maximum,
            } => {
                write("QueryParameterName", name);
                write("QueryParameterValue", value);
                write("MinimumAllowed", minimum);
                write("MaximumAllowed", maximum);
            }
            Self::AccountQuotaExceeded { limit, allowed } => {
                write("QuotaName", limit);
                write("MaxLimit", allowed);
            }
            Self::RequestBodyTooLarge { limit_bytes } => write("MaxLimit", limit_bytes),
            Self::UnsupportedXmlNode { name } => write("XmlNodeName", name),
            Self::AccountIsDisabled
            | Self::AccountRequiresHttps
            | Self::ConditionHeadersNotSupported
            | Self::CorsPreflightFailure
            | Self::EmptyMetadataKey
            | Self::FeatureVersionMismatch
            | Self::InsufficientAccountPermissions
            | Self::InternalError
            | Self::InvalidAuthenticationInfo
            | Self::InvalidHttpVerb
            | Self::InvalidInput
            | Self::InvalidMarker
            | Self::InvalidMd5
            | Self::InvalidMetadata
            | Self::InvalidResourceName
            | Self::InvalidUri
            | Self::Md5Mismatch
            | Self::MessageNotFound
            | Self::MetadataTooLarge
            | Self::MissingContentLengthHeader
            | Self::NoAuthenticationInformation
            | Self::OperationTimedOut
            | Self::OutOfRangeInput
            | Self::PopReceiptMismatch
            | Self::QueueAlreadyExists
            | Self::QueueBeingDeleted
            | Self::QueueNotFound
            | Self::ResourceNotFound
            | Self::ServerBusy
            | Self::UnsupportedHttpVerb { .. } => {}
        }
    }

    /// A body above what a request may carry. The limit that it names is the text's, which is what
    /// clients can do something about.
    pub(crate) const fn body_too_large() -> Self {
        Self::RequestBodyTooLarge {
            limit_bytes: TEXT_SIZE_BYTES_MAX,
        }
    }
}

impl Mismatch {
    /// Source: *Shared access signature error codes*.
    fn wire(self) -> Wire {
        const FAILURE: &str = "This request is not authorized to perform this operation";
        let (code, message) = match self {
            Self::Permission => (
                "AuthorizationPermissionMismatch",
                format!("{FAILURE} using this permission."),
            ),
            Self::Protocol => (
                "AuthorizationProtocolMismatch",
                format!("{FAILURE} using this protocol."),
            ),
            Self::ResourceType => (
                "AuthorizationResourceTypeMismatch",
                format!("{FAILURE} using this resource type."),
            ),
            Self::Service => (
                "AuthorizationServiceMismatch",
                format!("{FAILURE} using this service."),
            ),
            Self::SourceIp(address) => (
                "AuthorizationSourceIPMismatch",
                format!("{FAILURE} using this source IP {address}."),
            ),
            Self::Other => ("AuthorizationFailure", format!("{FAILURE}.")),
        };
        Wire {
            status: StatusCode::FORBIDDEN,
            code,
            message: message.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(refusal: Refusal, version: Version, status: u16, code: &str) {
        let wire = Error::of_rejection(Rejection::Refused(refusal), version).wire();
        assert_eq!((wire.status.as_u16(), wire.code), (status, code));
    }

    #[test]
    fn refusals_and_rejections() {
        let newest = Version::NEWEST;
        let queue = || "q".into();
        check(
            Refusal::QueueNotFound { queue: queue() },
            newest,
            404,
            "QueueNotFound",
        );
        check(
            Refusal::QueueAlreadyExists { queue: queue() },
            newest,
            409,
            "QueueAlreadyExists",
        );
        check(Refusal::MessageNotFound, newest, 404, "MessageNotFound");
        check(Refusal::PopReceiptMismatch, newest, 404, "MessageNotFound");
        check(
            Refusal::PopReceiptMismatch,
            Version::V2009_09_19,
            404,
            "MessageNotFound",
        );
        check(
            Refusal::PopReceiptMismatch,
            Version::OLDEST,
            400,
            "PopReceiptMismatch",
        );
        check(
            Refusal::HiddenBeyondExpiry {
                visibility_timeout_seconds: 5,
                time_to_live_seconds: 5,
            },
            newest,
            400,
            "InvalidQueryParameterValue",
        );
        check(
            Refusal::BodyTooLarge {
                size_bytes: 2,
                limit_bytes: 1,
            },
            newest,
            413,
            "RequestBodyTooLarge",
        );
        check(
            Refusal::AccountQuotaExceeded {
                account: "acct".into(),
                limit: QuotaLimit::Queues,
                needed: 2,
                allowed: 1,
            },
            newest,
            403,
            "AccountQuotaExceeded",
        );
        check(Refusal::AlreadyInitialized, newest, 500, "InternalError");
        for (rejection, status, code) in [
            (Rejection::Busy, 503, "ServerBusy"),
            (Rejection::Stopped, 500, "InternalError"),
        ] {
            let wire = Error::of_rejection(rejection, newest).wire();
            assert_eq!((wire.status.as_u16(), wire.code), (status, code));
        }
    }

    #[test]
    fn details_of_a_refusal() {
        let refusal = Refusal::HiddenBeyondExpiry {
            visibility_timeout_seconds: 7,
            time_to_live_seconds: 5,
        };
        let mut shown = String::new();
        Error::of_rejection(Rejection::Refused(refusal), Version::NEWEST)
            .details(|name, text| shown.push_str(&format!("{name}={text};")));
        assert_eq!(
            shown,
            "QueryParameterName=visibilitytimeout;QueryParameterValue=7;\
             Reason=messagettl must be greater than visibilitytimeout;"
        );
    }
}
