//! How bytes reach the service: over TCP, with TLS or without, in WebSockets or not.

mod tls;
mod websocket;

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::connection_string::{BusNamespace, BusTransport};
use crate::error::Error;

pub(super) use tls::connector;

/// A connection in both directions.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// A connection that is being made.
pub type DialFuture<'a> = Pin<Box<dyn Future<Output = io::Result<Box<dyn Stream>>> + Send + 'a>>;

/// Makes the connection beneath TLS and WebSockets, in place of TCP: through a proxy, for example.
pub trait Dial: Send + Sync + 'static {
    /// Connects to a host and a port. An address of IPv6 has no brackets.
    fn dial<'a>(&'a self, host: &'a str, port: u16) -> DialFuture<'a>;
}

/// TCP, without a delay for small packets.
struct Tcp;

impl Dial for Tcp {
    fn dial<'a>(&'a self, host: &'a str, port: u16) -> DialFuture<'a> {
        Box::pin(async move {
            let stream = TcpStream::connect((host, port)).await?;
            stream.set_nodelay(true)?;
            Ok(Box::new(stream) as Box<dyn Stream>)
        })
    }
}

/// Connects to one namespace.
pub(super) struct Connector {
    /// Without brackets.
    host: String,
    port: u16,
    transport: BusTransport,
    tls: Option<(TlsConnector, ServerName<'static>)>,
    dial: Arc<dyn Dial>,
    within: Duration,
}

impl Connector {
    pub(super) fn new(
        namespace: &BusNamespace,
        extra_roots_pem: Option<&[u8]>,
        dial: Option<Arc<dyn Dial>>,
        within: Duration,
    ) -> Result<Self, Error> {
        let host = namespace.host().trim_matches(['[', ']']).to_owned();
        let tls = match namespace.is_tls() {
            true => {
                let name = ServerName::try_from(host.clone());
                let name = name.map_err(|_| {
                    Error::refused(format!("{host} is no name that a certificate can have"))
                })?;
                Some((connector(extra_roots_pem)?, name))
            }
            false => None,
        };
        Ok(Self {
            host,
            port: namespace.amqp_port(),
            transport: namespace.transport(),
            tls,
            dial: dial.unwrap_or_else(|| Arc::new(Tcp)),
            within,
        })
    }

    /// Makes a connection. To drop the future closes what there is of it.
    pub(super) async fn connect(&self) -> Result<Box<dyn Stream>, Error> {
        let connected = tokio::time::timeout(self.within, self.connect_at_all()).await;
        let place = format!("{}:{}", self.host, self.port);
        match connected {
            Ok(Ok(stream)) => Ok(stream),
            Ok(Err(error)) => {
                let text = format!("cannot connect to {place}: {error}");
                Err(match is_lasting(&error) {
                    true => Error::refused(text),
                    false => Error::later(text),
                })
            }
            Err(_) => {
                let seconds = self.within.as_secs();
                let text = format!("cannot connect to {place} within {seconds} s");
                Err(Error::later(text))
            }
        }
    }

    async fn connect_at_all(&self) -> io::Result<Box<dyn Stream>> {
        let mut stream = self.dial.dial(&self.host, self.port).await?;
        if let Some((tls, name)) = &self.tls {
            stream = Box::new(tls.connect(name.clone(), stream).await?);
        }
        match self.transport {
            BusTransport::Tcp => Ok(stream),
            BusTransport::WebSocket => {
                websocket::open(stream, &self.host, self.port, self.tls.is_some()).await
            }
        }
    }
}

/// Whether the same attempt fails again until somebody changes something: the certificate is not trusted, or the
/// service takes no WebSockets there.
fn is_lasting(error: &io::Error) -> bool {
    let source = error.get_ref();
    let is_certificate = source
        .and_then(|source| source.downcast_ref::<rustls::Error>())
        .is_some_and(|error| matches!(error, rustls::Error::InvalidCertificate(_)));
    is_certificate || error.kind() == io::ErrorKind::Unsupported
}
