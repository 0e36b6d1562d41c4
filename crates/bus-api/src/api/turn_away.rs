//! Connections that are not served, and are told why in the protocol that they speak.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::time::timeout;

use super::BusApi;
use super::first::{First, first_of};
use crate::connection::close;
use crate::ground::origin::Origin;
use crate::ground::turned_away::TurnedAway;
use crate::http::HttpError;

/// How long a client may take to hear why it is not served.
const FAREWELL_TIMEOUT: Duration = Duration::from_secs(5);

/// How many bytes that nobody wants are read at once.
const SINK_SIZE_BYTES: usize = 1024;

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
                First::Amqp(begun) => close(&mut stream, &begun, why).await?,
                First::Http(_) => {
                    let answer = HttpError::from(why).into_farewell();
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
