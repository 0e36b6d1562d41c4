//! What proves to a service that a client may do something.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::SystemTime;

use crate::secret::Secret;
use crate::sign::{SasRule, SharedKey};

/// What opens an account of Queue Storage.
#[derive(Clone)]
pub enum QueueCredential {
    /// The account's key, which signs every request.
    SharedKey(SharedKey),
    /// A shared access signature: the parameters of a query, without the question mark.
    Signature(Secret),
    /// Bearer tokens of an issuer.
    Bearer(Arc<dyn TokenSource>),
}

/// What opens a namespace of Service Bus, or one entity of it.
#[derive(Clone)]
pub enum BusCredential {
    /// A rule and its key, which signs tokens.
    Rule(SasRule),
    /// A token that somebody else has signed: `SharedAccessSignature sr=…&sig=…&se=…&skn=…`.
    Signature(Secret),
    /// Bearer tokens of an issuer.
    Bearer(Arc<dyn TokenSource>),
}

/// Where bearer tokens come from: an identity library, a file, a service of the machine.
pub trait TokenSource: Send + Sync + 'static {
    /// A token for a scope, such as `https://servicebus.azure.net/.default`.
    ///
    /// It is called when a token is needed and shortly before one expires, never twice at once for one
    /// connection. An implementation that keeps tokens must return one that still lives for some minutes.
    fn token<'a>(&'a self, scope: &'a str) -> TokenFuture<'a>;
}

/// A token that is on its way.
pub type TokenFuture<'a> =
    Pin<Box<dyn Future<Output = Result<BearerToken, TokenError>> + Send + 'a>>;

/// A bearer token.
#[derive(Clone, Debug)]
pub struct BearerToken {
    /// What is sent.
    pub text: Secret,
    /// When it ends.
    pub expires_at: SystemTime,
}

/// Why there is no token.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct TokenError {
    /// For a person to read. It must not hold a secret.
    pub text: String,
    /// Whether the source may have a token later.
    pub is_temporary: bool,
}

impl fmt::Debug for QueueCredential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SharedKey(key) => write!(f, "{key:?}"),
            Self::Signature(_) => f.write_str("Signature(..)"),
            Self::Bearer(_) => f.write_str("Bearer(..)"),
        }
    }
}

impl fmt::Debug for BusCredential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rule(rule) => write!(f, "{rule:?}"),
            Self::Signature(_) => f.write_str("Signature(..)"),
            Self::Bearer(_) => f.write_str("Bearer(..)"),
        }
    }
}
