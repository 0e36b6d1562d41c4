//! Connects to a namespace: over TCP, with TLS or without, in WebSockets or not.

use super::websocket;
use crate::connection_string::BusTransport;
use crate::error::Error;
use crate::transport::{Route, Stream};

pub(super) struct Connector {
    pub(super) route: Route,
    pub(super) transport: BusTransport,
}

impl Connector {
    /// Makes a connection. To drop the future closes what there is of it.
    pub(super) async fn connect(&self) -> Result<Box<dyn Stream>, Error> {
        let Self { route, transport } = self;
        let prepare = |stream| async move {
            match transport {
                BusTransport::Tcp => Ok(stream),
                BusTransport::WebSocket => {
                    websocket::open(stream, route.host(), route.port(), route.is_tls()).await
                }
            }
        };
        route.connect(prepare).await
    }
}
