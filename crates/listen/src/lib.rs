//! From the accept of a connection to the moment a front end can serve it: who speaks TLS and who does
//! not, on one port, within a deadline.
//!
//! The first byte of a connection tells: a TLS client begins with a handshake record, 0x16, which no
//! text protocol begins with. A [`Door`] looks at that byte without taking it, so that a plain
//! connection goes on as it came, in the same type of socket and with nothing between; a TLS client is
//! led through its handshake. Both have one deadline, counted from accept. Any number of listeners, of
//! any protocol, can share a door.
//!
//! [`Tls`] holds the certificate and its key, and takes new ones from their files while connections are
//! open: these go on as they began, and the next handshake has the new certificate.
//!
//! A [`Share`] says how many connections a protocol may have beside others, and which one gives way when
//! there is no room.
//!
//! [`ServerNames`] is the list of the names by which clients call the server, and says by which of them,
//! and from which web pages, a key may be used that everybody knows.
//!
//! This crate knows no account, and of HTTP only what a host and an origin look like. It accepts nothing by itself and says nothing to a client
//! beyond what TLS says.
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
