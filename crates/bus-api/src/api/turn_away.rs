//! Connections that are not served. The client gets the reason in its protocol.

use std::io;
use std::time::Duration;

use kew_http_front::say_farewell;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;

use super::BusApi;
use super::first::{First, first_of};
use crate::connection::close;
use crate::ground::origin::Origin;
use crate::ground::turned_away::TurnedAway;
use crate::http::HttpError;

/// How long a client may take to receive the reason.
const FAREWELL_TIMEOUT: Duration = Duration::from_secs(5);

impl BusApi {
    /// Tells a client why it is not served, regardless of its request, within 5 s. Then the
    /// connection ends.
    ///
    /// Over AMQP it does not require a password or a token.
    pub async fn turn_away<S>(&self, mut stream: S, origin: Origin, why: TurnedAway)
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        tracing::debug!(peer = %origin.peer, ?why, "turning away a Service Bus connection");
        let farewell = async {
            let answer = match first_of(&mut stream).await? {
                First::Amqp(begun) => {
                    close(&mut stream, &begun, why).await?;
                    Vec::new()
                }
                First::Http(_) => HttpError::from(why).into_farewell(),
            };
            let limits = self.parts.shared.limits.of_front().farewell;
            say_farewell(stream, &answer, &limits).await;
            Ok::<_, io::Error>(())
        };
        // The connection is closed in any case.
        let _ = timeout(FAREWELL_TIMEOUT, farewell).await;
    }
}
