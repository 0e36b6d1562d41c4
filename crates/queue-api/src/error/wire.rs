//! Every error on the wire: its status, code, text and explaining elements.

#![cfg_attr(not(test), deny(clippy::wildcard_enum_match_arm))]

use std::borrow::Cow;
use std::fmt::Display;

use hyper::StatusCode;
use kew_listen::Barred;

use super::{Error, Mismatch};

/// The beginning of the text for an authenticated client without the right.
const FAILURE: &str = "This request is not authorized to perform this operation";

/// The parts of an error on the wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wire {
    pub(crate) status: StatusCode,
    pub(crate) code: &'static str,
    pub(crate) message: Cow<'static, str>,
}

impl Error {
    /// Status, code and text.
    ///
    /// Source: *Common REST API error codes*, *Queue Storage error codes*, and answers of the
    /// service, whose wording has precedence.
    pub(crate) fn wire(&self) -> Wire {
        const AUTHENTICATE: &str = "Server failed to authenticate the request. Please refer to \
             the information in the www-authenticate header.";
        let (status, code, message) = match self {
            Self::AccountIsDisabled => (
                StatusCode::FORBIDDEN,
                "AccountIsDisabled",
                "The specified account is disabled.",
            ),
            // The service documents no code for a full account. It uses 403 for accounts without
            // further rights, and no SDK retries after one.
            Self::AccountQuotaExceeded { .. } => (
                StatusCode::FORBIDDEN,
                "AccountQuotaExceeded",
                "The account has reached its quota. Delete messages or queues, or ask for a higher \
                 quota.",
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
                "The specified resource name length is not within the permissible limits.",
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
            Self::PublicKeyRefused { barred, called } => {
                let or_else = match barred {
                    Barred::Listener | Barred::Host => "",
                    Barred::Page => ", or allow the origin in the account's CORS rules",
                };
                let message = format!("{FAILURE}: {barred}{or_else} (this request: '{called}').");
                return Wire {
                    status: StatusCode::FORBIDDEN,
                    code: "AuthorizationFailure",
                    message: message.into(),
                };
            }
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
            Self::DiskFull => (
                StatusCode::SERVICE_UNAVAILABLE,
                "ServerBusy",
                "The disk of the server is full. Receive and delete messages to make space, then retry your request.",
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
            | Self::PublicKeyRefused { .. }
            | Self::QueueAlreadyExists
            | Self::QueueBeingDeleted
            | Self::QueueNotFound
            | Self::ResourceNotFound
            | Self::ServerBusy
            | Self::DiskFull
            | Self::UnsupportedHttpVerb { .. } => {}
        }
    }
}

impl Mismatch {
    /// Source: *Shared access signature error codes*.
    fn wire(self) -> Wire {
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
