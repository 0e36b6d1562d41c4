//! Takes a connection from accept to the moment when a front end can serve it. It serves clients
//! with and without TLS on one port, within a deadline.
//!
//! The first byte decides: a TLS client begins with a handshake record, 0x16, and no text protocol
//! begins with that byte. A [`Door`] peeks at that byte, so a plain connection stays the socket
//! that it was, with no layer on top. A TLS connection goes through its handshake. Both have one
//! deadline, counted from accept. Listeners of several protocols can share a door.
//!
//! [`Tls`] holds the certificate and its key. It can load new ones from their files while
//! connections are open: open connections keep theirs, and the next handshake uses the new
//! certificate.
//!
//! A [`Share`] limits how many connections a protocol may have beside others, and chooses which
//! connection to close when there is no place for a new one.
//!
//! [`ServerNames`] lists the names that mean this server. It decides which of them, and which web
//! pages, may be used with the public key.
//!
//! This crate knows no account, and of HTTP only the syntax of hosts and origins. It accepts no
//! connections by itself, and sends clients nothing but TLS.
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

mod certificate;
mod door;
mod handshakes;
mod names;
mod places;
mod secure;
mod strangers;
mod tls;

pub use certificate::{CertificateFacts, CertificateFiles, TlsError};
pub use door::{Door, DoorLimits, Opened, Unopened};
pub use names::{
    AskedFrom, Barred, InvalidServerName, ServerName, ServerNames, ServerNamesOptions,
};
pub use places::{Notice, Place, Share, ShareLimits};
pub use secure::SecureStream;
pub use tls::{Tls, TlsOptions};
