//! Connections that are not served, and get the reason in the protocol that they speak.

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
    /// Tells a client why it is not served, whatever it asks, within 5 s. The connection ends.
    ///
    /// Over AMQP nothing is asked of it that should stay secret: no password, and no token.
    pub async fn turn_away<S>(&self, mut stream: S, origin: Origin, why: TurnedAway)
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        tracing::debug!(peer = %origin.peer, ?why, "a Service Bus connection is turned away");
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
