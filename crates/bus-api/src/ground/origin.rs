//! Where a connection comes from.

use std::net::SocketAddr;

use kew_listen::Barred;

/// What the listener knows of a connection. Rights can depend on it, so each listener is judged
/// separately.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The client's address.
    pub peer: SocketAddr,
    /// Whether the connection is encrypted.
    pub is_secure: bool,
    /// Whether it may use the rule with the public key, or why not.
    pub public_key: Result<(), Barred>,
}
