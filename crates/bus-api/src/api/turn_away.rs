//! Connections that are not served. The client gets the reason in its protocol.

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

/// How long a client may take to read why it is not served.
const FAREWELL_TIMEOUT: Duration = Duration::from_secs(5);

/// How many bytes to read and discard at once.
const SINK_SIZE_BYTES: usize = 1024;

impl BusApi {
    /// Tells a client why it is not served, regardless of its request, within 5 s. Then the
    /// connection ends.
    ///
    /// Over AMQP it asks for no password and no token.
    pub async fn turn_away<S>(&self, mut stream: S, origin: Origin, why: TurnedAway)
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        tracing::debug!(peer = %origin.peer, ?why, "turning away a Service Bus connection");
        let farewell = async {
            match first_of(&mut stream).await? {
                First::Amqp(begun) => close(&mut stream, &begun, why).await?,
                First::Http(_) => {
                    let answer = HttpError::from(why).into_farewell();
                    stream.write_all(&answer).await?;
                }
            }
            stream.shutdown().await?;
            // If a socket is closed with unread input, the client may lose the output.
            let mut sink = [0; SINK_SIZE_BYTES];
            while stream.read(&mut sink).await? > 0 {}
            Ok::<_, io::Error>(())
        };
        // It does not matter whether the client received it.
        let _ = timeout(FAREWELL_TIMEOUT, farewell).await;
    }
}
