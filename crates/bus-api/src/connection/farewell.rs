//! The answer to an AMQP client that is not served.

use std::io;

use kew_amqp::codec::Symbol;
use kew_amqp::error::{Error, condition};
use kew_amqp::sasl::SaslCode;
use kew_amqp::{Config, Connection, Event, Limits, Millis, Sasl};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use crate::ground::turned_away::TurnedAway;

fn error_of(why: TurnedAway) -> Error {
    match why {
        TurnedAway::Crowded => Error::new(
            condition::RESOURCE_LIMIT_EXCEEDED,
            "The server has reached its limit of connections. Close some, or try again later.",
        ),
        TurnedAway::Plain => Error::new(
            condition::UNAUTHORIZED_ACCESS,
            "This connection is not encrypted: connect with TLS (amqps).",
        ),
    }
}

/// Opens an AMQP connection to close it with an error. SDKs show that error to their users. If the
/// connection ended before the open, they could only guess the reason. `begun` was read already.
pub(crate) async fn close<S>(stream: &mut S, begun: &[u8], why: TurnedAway) -> io::Result<()>
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
    // Its clock stands still: the caller has a deadline.
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
                Event::Opened(_) => connection.close(Some(error_of(why))),
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
