//! What happens to a connection before anybody serves it.

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

/// What every TLS connection begins with: the type of a handshake record (RFC 8446, 5.1).
const HANDSHAKE_RECORD: u8 = 0x16;

/// A fatal alert, `internal_error`, in a record of its own (RFC 8446, 6): all that a TLS client can be
/// told before its handshake.
const ALERT_INTERNAL_ERROR: [u8; 7] = [0x15, 0x03, 0x03, 0x00, 0x02, 0x02, 0x50];

/// How long a client that finds no room may take to show whether it speaks TLS.
const TURN_AWAY: Duration = Duration::from_secs(2);

/// What a [`Door`] bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DoorLimits {
    /// Time from accept to the first byte of a plain connection, or to the end of the handshake of a
    /// TLS one. Default 10 s.
    pub opening_timeout: Duration,
    /// Handshakes under way. One more, and the oldest of the address that has most of them is given up: an
    /// honest one takes milliseconds, so that the oldest of many is one that stalls. Default 1,024.
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

/// Lets connections in, with TLS or without. Cheap to clone.
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
    /// After its handshake. In a box, since its state is large beside that of a socket.
    Secure(Box<SecureStream>),
}

/// Why a connection came to nothing. It is closed.
#[derive(Debug, Error)]
pub enum Unopened {
    /// Nothing, or not all of a handshake, came in time.
    #[error("not open after {0:?}")]
    TooSlow(Duration),
    /// Its handshake was the oldest of the address that had most of them, when there was room for no more.
    #[error("its handshake gave way to newer ones")]
    GaveWay,
    /// The client closed it, or what it said is no handshake, or has no version or cipher that is
    /// spoken here.
    #[error("it failed: {0}")]
    Failed(#[from] io::Error),
}

impl Door {
    /// A door that speaks TLS if `tls` is there. Without it, every connection is plain.
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

    /// Makes of a connection, just accepted, one that can be served.
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
        // In a box, so that plain connections do not carry the space for it.
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

    /// Ends a connection for which there is no room. A TLS client gets an alert and no handshake.
    /// A plain one is handed back within 2 s, to be told in its own protocol.
    pub async fn turn_away(&self, mut stream: TcpStream) -> Option<TcpStream> {
        if !self.has_tls() {
            return Some(stream);
        }
        let first = timeout(TURN_AWAY, first_byte(&stream)).await.ok()?.ok()?;
        if first != HANDSHAKE_RECORD {
            return Some(stream);
        }
        // Whether it is heard is the client's matter.
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
