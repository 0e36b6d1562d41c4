//! Connections that are not served, and are told why in the protocol that they speak.

use std::io;
use std::time::Duration;

use hyper::StatusCode;
use kew_amqp::codec::Symbol;
use kew_amqp::error::{Error, condition};
use kew_amqp::sasl::SaslCode;
use kew_amqp::{Config, Connection, Event, Limits, Millis, Sasl};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::time::timeout;

use crate::first::{First, first_of};
use crate::http::HttpError;
use crate::{BusApi, Origin};

/// How long a client may take to hear why it is not served.
const FAREWELL_TIMEOUT: Duration = Duration::from_secs(5);

/// How many bytes that nobody wants are read at once.
const SINK_SIZE_BYTES: usize = 1024;

/// Why a connection is not served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TurnedAway {
    /// There is no room for one more.
    Crowded,
    /// It is not encrypted, and has to be.
    Plain,
}

impl TurnedAway {
    fn to_amqp(self) -> Error {
        match self {
            Self::Crowded => Error::new(
                condition::RESOURCE_LIMIT_EXCEEDED,
                "The server has as many connections as it may have. Close some, or try again later.",
            ),
            Self::Plain => Error::new(
                condition::UNAUTHORIZED_ACCESS,
                "This connection is not encrypted, and has to be: connect with TLS (amqps).",
            ),
        }
    }

    pub(crate) fn to_http(self) -> HttpError {
        match self {
            Self::Crowded => HttpError::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "The server has as many connections as it may have. Try again later.",
            ),
            Self::Plain => HttpError::new(
                StatusCode::FORBIDDEN,
                "This connection is not encrypted, and has to be: use https.",
            )
            // By it, SDKs know that trying again does not help.
            .with_sub_code(40_301),
        }
    }
}

impl BusApi {
    /// Tells a client why it is not served, whatever it asks, within 5 s. The connection ends.
    ///
    /// Over AMQP nothing is asked of it that should stay secret: no password, and no token.
    pub async fn turn_away<S>(&self, mut stream: S, origin: Origin, why: TurnedAway)
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        tracing::debug!(peer = %origin.peer, ?why, "a Service Bus connection is turned away");
        let farewell = async {
            match first_of(&mut stream).await? {
                First::Amqp(begun) => close(&mut stream, &begun, why.to_amqp()).await?,
                First::Http(_) => {
                    let answer = why.to_http().into_farewell();
                    stream.write_all(&answer).await?;
                }
            }
            stream.shutdown().await?;
            // What is unread when a socket is closed would take back what was written.
            let mut sink = [0; SINK_SIZE_BYTES];
            while stream.read(&mut sink).await? > 0 {}
            Ok::<_, io::Error>(())
        };
        // Whether it was heard is nobody's business any more.
        let _ = timeout(FAREWELL_TIMEOUT, farewell).await;
    }
}

/// Opens an AMQP connection to close it with an error: SDKs show that to whoever uses them, and of an
/// end before the open they could only guess.
async fn close<S>(stream: &mut S, begun: &[u8], error: Error) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let config = Config {
        sasl: Sasl::Server {
            mechanisms: ["ANONYMOUS", "MSSBCBS"].map(Symbol::from_static).to_vec(),
            is_optional: true,
        },
        ..Config::default()
    };
    // Its clock stands still: who drives it has a deadline.
    let now = Millis(0);
    let mut connection = Connection::server(config, Limits::before_trust(), now);
    connection.feed(begun, now);
    loop {
        while let Some(event) = connection.poll_event() {
            match event {
                Event::SaslInit { mechanism, .. } => {
                    let is_offered = matches!(mechanism.as_str(), "ANONYMOUS" | "MSSBCBS");
                    let code = if is_offered {
                        SaslCode::Ok
                    } else {
                        SaslCode::Auth
                    };
                    connection.sasl_outcome(code);
                }
                Event::Opened(_) => connection.close(Some(error.clone())),
                _ => {}
            }
        }
        let output = connection.take_output(now);
        if !output.is_empty() {
            stream.write_all(&output).await?;
            stream.flush().await?;
            continue;
        }
        if connection.is_closed() || stream.read_buf(connection.input()).await? == 0 {
            return Ok(());
        }
        connection.fed(now);
    }
}
