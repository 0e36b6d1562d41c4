//! How bytes reach a service: over TCP, with TLS or without.

mod tls;

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::error::Error;

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

/// The way to one host and port.
pub struct Route {
    /// Without brackets.
    host: String,
    port: u16,
    tls: Option<(TlsConnector, ServerName<'static>)>,
    dial: Arc<dyn Dial>,
    within: Duration,
}

impl Route {
    /// A way with TLS or without, on which a connection takes at most `within`. `extra_roots_pem` has certificate
    /// authorities to trust beside those of the system.
    ///
    /// # Errors
    ///
    /// If TLS cannot be set up.
    pub fn new(
        host: &str,
        port: u16,
        is_tls: bool,
        extra_roots_pem: Option<&[u8]>,
        dial: Option<Arc<dyn Dial>>,
        within: Duration,
    ) -> Result<Self, Error> {
        let host = host.trim_matches(['[', ']']).to_owned();
        let tls = match is_tls {
            true => {
                let name = ServerName::try_from(host.clone());
                let name = name.map_err(|_| {
                    Error::refused(format!("{host} is no name that a certificate can have"))
                })?;
                Some((tls::connector(extra_roots_pem)?, name))
            }
            false => None,
        };
        Ok(Self {
            host,
            port,
            tls,
            dial: dial.unwrap_or_else(|| Arc::new(Tcp)),
            within,
        })
    }

    /// Connects, in time.
    ///
    /// # Errors
    ///
    /// If the host cannot be reached, or is not trusted.
    pub async fn open(&self) -> Result<Box<dyn Stream>, Error> {
        self.connect(|stream| std::future::ready(Ok(stream))).await
    }

    pub(crate) fn host(&self) -> &str {
        &self.host
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn is_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// Connects, with TLS or without. To drop the future closes what there is of it.
    async fn dial(&self) -> io::Result<Box<dyn Stream>> {
        let stream = self.dial.dial(&self.host, self.port).await?;
        match &self.tls {
            Some((tls, name)) => Ok(Box::new(tls.connect(name.clone(), stream).await?)),
            None => Ok(stream),
        }
    }

    /// Connects, and does what is to be done before the connection can be used, in time.
    pub(crate) async fn connect<T, F>(
        &self,
        prepare: impl FnOnce(Box<dyn Stream>) -> F,
    ) -> Result<T, Error>
    where
        F: Future<Output = io::Result<T>>,
    {
        let connecting = async { prepare(self.dial().await?).await };
        let place = format!("{}:{}", self.host, self.port);
        match tokio::time::timeout(self.within, connecting).await {
            Ok(Ok(connected)) => Ok(connected),
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
}

impl std::fmt::Debug for Route {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Route")
            .field("host", &self.host)
            .field("port", &self.port)
            .field("is_tls", &self.is_tls())
            .finish_non_exhaustive()
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
