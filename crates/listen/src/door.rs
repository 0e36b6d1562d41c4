//! Opens accepted connections, with TLS or without, before a front end serves them.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_rustls::TlsAcceptor;

use crate::handshakes::Handshakes;
use crate::secure::SecureStream;
use crate::tls::Tls;

/// The first byte of every TLS connection: the type of a handshake record (RFC 8446, 5.1).
const HANDSHAKE_RECORD: u8 = 0x16;

/// A fatal alert, `internal_error`, in a record of its own (RFC 8446, 6). A TLS client understands
/// nothing else before its handshake.
const ALERT_INTERNAL_ERROR: [u8; 7] = [0x15, 0x03, 0x03, 0x00, 0x02, 0x02, 0x50];

/// How long to wait for the first byte of a connection that gets no place.
const TURN_AWAY: Duration = Duration::from_secs(2);

/// The limits of a [`Door`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DoorLimits {
    /// Time from accept to the first byte of a plain connection, or to the end of the handshake of a
    /// TLS one. Default 10 s.
    pub opening_timeout: Duration,
    /// Handshakes in progress. If one more begins, the oldest handshake of the address with the
    /// most of them is closed. An honest handshake takes milliseconds, so the oldest of many has
    /// stalled. Default 1,024.
    pub handshakes_max: usize,
}

impl Default for DoorLimits {
    fn default() -> Self {
        Self {
            opening_timeout: Duration::from_secs(10),
            handshakes_max: 1_024,
        }
    }
}

/// Opens connections, with TLS or without. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Door(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    tls: Option<Arc<Tls>>,
    limits: DoorLimits,
    handshakes: Handshakes,
}

/// A connection that can be served.
#[derive(Debug)]
pub enum Opened {
    /// Without TLS, as it was accepted. Nothing was read from it.
    Plain(TcpStream),
    /// After its handshake. Boxed, because its state is much larger than a socket.
    Secure(Box<SecureStream>),
}

/// Why a connection was not opened. It is closed.
#[derive(Debug, Error)]
pub enum Unopened {
    /// The first byte, or the whole handshake, did not arrive in time.
    #[error("not open after {0:?}")]
    TooSlow(Duration),
    /// Its handshake was the oldest of the address with the most handshakes when there was no room
    /// for a new one.
    #[error("it was closed to make room for newer connections")]
    GaveWay,
    /// The client closed it, sent something that is not a handshake, or offered no supported
    /// version or cipher.
    #[error("it failed: {0}")]
    Failed(#[from] io::Error),
}

impl Door {
    /// A door that speaks TLS if `tls` is set. Without it, every connection is plain.
    pub fn new(tls: Option<Arc<Tls>>, limits: DoorLimits) -> Self {
        Self(Arc::new(Inner {
            tls,
            limits,
            handshakes: Handshakes::new(limits.handshakes_max),
        }))
    }

    /// Whether TLS is spoken.
    pub fn has_tls(&self) -> bool {
        self.0.tls.is_some()
    }

    /// Turns an accepted connection into one that a front end can serve.
    ///
    /// Without TLS that takes no time and no system call. Dropping the future closes the connection.
    pub async fn open(&self, stream: TcpStream) -> Result<Opened, Unopened> {
        let Some(tls) = &self.0.tls else {
            return Ok(Opened::Plain(stream));
        };
        let patience = self.0.limits.opening_timeout;
        let deadline = Instant::now() + patience;
        let first = timeout_at(deadline, first_byte(&stream)).await;
        if first.map_err(|_| Unopened::TooSlow(patience))?? != HANDSHAKE_RECORD {
            return Ok(Opened::Plain(stream));
        }
        let from = stream.peer_addr()?.ip();
        // Boxed, so that plain connections do not need the space for it.
        let handshake = Box::pin(TlsAcceptor::from(tls.config()).accept(stream));
        let turn = self.0.handshakes.begin(from);
        tokio::select! {
            opened = timeout_at(deadline, handshake) => {
                let stream = opened.map_err(|_| Unopened::TooSlow(patience))??;
                Ok(Opened::Secure(Box::new(SecureStream::new(stream))))
            }
            () = turn.is_over() => Err(Unopened::GaveWay),
        }
    }

    /// Ends a connection that gets no place. A TLS client gets an alert and no handshake. A plain
    /// connection is returned within 2 s, so that the caller can explain in its own protocol.
    pub async fn turn_away(&self, mut stream: TcpStream) -> Option<TcpStream> {
        if !self.has_tls() {
            return Some(stream);
        }
        let first = timeout(TURN_AWAY, first_byte(&stream)).await.ok()?.ok()?;
        if first != HANDSHAKE_RECORD {
            return Some(stream);
        }
        // It does not matter whether the client receives it.
        let _ = timeout(TURN_AWAY, stream.write_all(&ALERT_INTERNAL_ERROR)).await;
        None
    }
}

/// The first byte of a connection, which stays unread.
async fn first_byte(stream: &TcpStream) -> io::Result<u8> {
    let mut byte = [0];
    match stream.peek(&mut byte).await? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(byte[0]),
    }
}
