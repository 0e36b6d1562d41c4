//! The errors of a request, and the TLS of its connection.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use rustls::crypto::aws_lc_rs;
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, TlsProvider, parse_pem};

/// Why an operation has no result. URLs are without credentials.
#[derive(Debug)]
pub(crate) enum Error {
    /// The server answered with an error.
    Refused(Box<Refusal>),
    /// There was no answer: the connection could not be made, or broke.
    Unreachable { url: String, reason: String },
    /// There was no answer in time.
    TimedOut { url: String, after: Duration },
    /// The client cannot be set up, for example because a certificate cannot be read.
    Setup(String),
}

/// An error that the server answered with.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) status: u16,
    /// Empty if the answer had none.
    pub(crate) code: String,
    pub(crate) message: String,
    /// The server's name for the request.
    pub(crate) request_id: Option<String>,
}

impl Error {
    pub(crate) fn refusal(&self) -> Option<&Refusal> {
        match self {
            Self::Refused(refusal) => Some(refusal),
            Self::Unreachable { .. } | Self::TimedOut { .. } | Self::Setup(_) => None,
        }
    }

    /// The server's code, if it answered with one.
    pub(crate) fn code(&self) -> Option<&str> {
        let code = self.refusal()?.code.as_str();
        Some(code).filter(|code| !code.is_empty())
    }

    /// Whether the same request may succeed later without any change: there was no answer, or the
    /// server was too busy.
    pub(crate) fn is_temporary(&self) -> bool {
        match self {
            Self::Refused(refusal) => matches!(refusal.status, 408 | 429 | 502 | 503 | 504),
            Self::Unreachable { .. } | Self::TimedOut { .. } => true,
            Self::Setup(_) => false,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(refusal) => {
                let code = self.code().unwrap_or("no code");
                write!(f, "{} ({code}, status {})", refusal.message, refusal.status)
            }
            Self::Unreachable { url, reason } => write!(f, "cannot reach {url}: {reason}"),
            Self::TimedOut { url, after } => {
                write!(f, "{url} did not answer within {} s", after.as_secs())
            }
            Self::Setup(what) => f.write_str(what),
        }
    }
}

/// TLS by the certificate authorities of the system, and those of `extra` (PEM).
///
/// Fails if there are none, or if `extra` cannot be read.
pub(super) fn tls_config(extra: Option<&[u8]>) -> Result<TlsConfig, Error> {
    let system = rustls_native_certs::load_native_certs();
    let mut roots: Vec<Certificate<'static>> = system
        .certs
        .iter()
        .map(|certificate| Certificate::from_der(certificate).to_owned())
        .collect();
    if let Some(extra) = extra {
        let before = roots.len();
        for item in parse_pem(extra) {
            match item {
                Ok(PemItem::Certificate(certificate)) => roots.push(certificate),
                Ok(_) => {}
                Err(error) => return Err(Error::Setup(format!("bad certificate: {error}"))),
            }
        }
        if roots.len() == before {
            return Err(Error::Setup(
                "there is no PEM certificate in the file".into(),
            ));
        }
    }
    if roots.is_empty() {
        return Err(Error::Setup(
            "the system has no certificate authorities; name one".into(),
        ));
    }
    Ok(TlsConfig::builder()
        .provider(TlsProvider::Rustls)
        .root_certs(RootCerts::from(roots))
        .unversioned_rustls_crypto_provider(Arc::new(aws_lc_rs::default_provider()))
        .build())
}
