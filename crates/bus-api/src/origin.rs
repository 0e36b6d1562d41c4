//! Where a connection comes from.

use std::net::SocketAddr;

/// What is known of a connection before anything was said on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The client's address.
    pub peer: SocketAddr,
    /// Whether it is encrypted.
    pub is_secure: bool,
    /// Whether the emulator's rule, whose key is public, is served here.
    pub may_use_public_key: bool,
}
