//! The credentials that clients have presented.

use std::fmt;
use std::sync::Arc;

use super::grant::Grant;

/// A credential that a client has presented.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Credential {
    /// A token that a rule has signed.
    Signature(Arc<str>),
    /// A token of the issuer. It is not kept, because changes of rules do not affect it.
    Bearer,
    /// A rule and its key.
    Password(Arc<Password>),
}

impl fmt::Debug for Credential {
    /// Shows no secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credential(..)")
    }
}

/// The name of a rule and the key that a client sent with it.
#[derive(PartialEq, Eq)]
pub(crate) struct Password {
    pub(crate) name: Box<str>,
    pub(crate) key: Box<[u8]>,
}

/// A credential of a connection, with its grant.
#[derive(Clone, Debug)]
pub(crate) struct Shown {
    /// The audience that the token was put for, as a path. A password has none.
    pub(crate) audience: Option<String>,
    pub(crate) credential: Credential,
    pub(crate) grant: Grant,
}

/// A status, with the reason.
pub(crate) type Refused = (i32, String);
