//! Why a credential is refused.

use kew_listen::Barred;
use thiserror::Error;

/// What is wrong with a token. It reveals nothing about the key.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum BadToken {
    #[error(
        "the credential is neither a token of the form 'SharedAccessSignature sr=…&sig=…&se=…&skn=…' nor \
         one of a trusted issuer"
    )]
    Unknown,
    #[error("the token is longer than 8 KiB")]
    TooLong,
    #[error("the token has no {0}, or more than one")]
    Field(&'static str),
    #[error("the expiry 'se' of the token is not a number of seconds")]
    Expiry,
    #[error("ExpiredToken: the token expired at {0} seconds since 1970")]
    Expired(u64),
    #[error("InvalidSignature: the token has an invalid signature")]
    Signature,
    #[error("InvalidToken: {0}")]
    Bearer(&'static str),
    #[error("PublicKeyRefused: {0}")]
    PublicKey(Barred),
    #[error("bearer tokens are accepted over TLS only")]
    NotPrivate,
    #[error(
        "Unauthorized: the token grants nothing here: it has no role of Service Bus, such as \
         'Azure Service Bus Data Sender'"
    )]
    NoRights,
    #[error("InvalidAudience: the token is for '{granted}', and not for '{asked}'")]
    Elsewhere { granted: String, asked: String },
    #[error("the server is busy and cannot check the token: please try again")]
    Unavailable,
    /// The token is valid, but its entity does not exist.
    #[error("The messaging entity '{0}' could not be found.")]
    NotFound(String),
}

impl BadToken {
    /// The status that goes with it, in answers of `$cbs` and over HTTP.
    pub(crate) fn status(&self) -> u16 {
        match self {
            Self::Unavailable => 503,
            Self::NotFound(_) => 404,
            Self::Unknown
            | Self::TooLong
            | Self::Field(_)
            | Self::Expiry
            | Self::Expired(_)
            | Self::Signature
            | Self::Bearer(_)
            | Self::PublicKey(_)
            | Self::NotPrivate
            | Self::NoRights
            | Self::Elsewhere { .. } => 401,
        }
    }
}
