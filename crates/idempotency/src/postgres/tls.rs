//! TLS to the server.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::{fmt, io};

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};

use crate::error::StoreError;

/// How connections are protected.
#[derive(Clone)]
pub enum PostgresTls {
    /// They are not. For a socket of the same machine, or a network that nobody else can read.
    Off,
    /// TLS, always. The server's certificate must be valid, and must have the name of the host.
    Required(Arc<ClientConfig>),
}

impl PostgresTls {
    /// TLS that trusts the certificate authorities of the system, and those in `extra` (PEM).
    ///
    /// Fails if there are none, or if `extra` cannot be read.
    pub fn required(extra: Option<&[u8]>) -> Result<Self, StoreError> {
        let mut roots = RootCertStore::empty();
        // Systems have some that no library understands.
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        let unreadable = || StoreError::refused("the extra certificates cannot be read");
        for certificate in CertificateDer::pem_slice_iter(extra.unwrap_or_default()) {
            let certificate = certificate.map_err(|error| unreadable().because(error))?;
            let added = roots.add(certificate);
            added.map_err(|error| unreadable().because(error))?;
        }
        if roots.is_empty() {
            return Err(StoreError::refused(
                "the system has no certificate authorities: pass those of the server",
            ));
        }
        let provider = Arc::new(aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| StoreError::refused("TLS cannot be set up").because(error))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self::Required(Arc::new(config)))
    }
}

impl fmt::Debug for PostgresTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Off => "Off",
            Self::Required(_) => "Required",
        })
    }
}

/// Makes TLS connections with rustls.
#[derive(Clone)]
pub(super) struct Connector(pub(super) Arc<ClientConfig>);

/// A connection to one host.
pub(super) struct ToHost {
    config: Arc<ClientConfig>,
    host: ServerName<'static>,
}

impl<S> MakeTlsConnect<S> for Connector
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    type Stream = Tls<S>;
    type TlsConnect = ToHost;
    type Error = rustls::pki_types::InvalidDnsNameError;

    fn make_tls_connect(&mut self, host: &str) -> Result<ToHost, Self::Error> {
        Ok(ToHost {
            config: self.0.clone(),
            host: ServerName::try_from(host)?.to_owned(),
        })
    }
}

impl<S> TlsConnect<S> for ToHost
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    type Stream = Tls<S>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Tls<S>>> + Send>>;

    fn connect(self, stream: S) -> Self::Future {
        let connector = tokio_rustls::TlsConnector::from(self.config);
        Box::pin(async move { Ok(Tls(connector.connect(self.host, stream).await?)) })
    }
}

/// A connection in TLS.
pub(super) struct Tls<S>(tokio_rustls::client::TlsStream<S>);

impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream for Tls<S> {
    /// The password is bound to no certificate: the certificate has been verified.
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Tls<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Tls<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}
