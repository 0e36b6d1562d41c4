//! The certificate in use, and how a new one replaces it.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use rustls::ServerConfig;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::server::ResolvesServerCert;
use rustls::sign::{CertifiedKey, SingleCertAndKey};

use crate::certificate::{CertificateFacts, CertificateFiles, Pair, Stamp, TlsError};

/// How long before a certificate expires Kew logs a warning.
const EXPIRY_NOTICE: Duration = Duration::from_secs(14 * 24 * 60 * 60);

/// The options of [`Tls`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsOptions {
    /// Where the certificate and its key are.
    pub files: CertificateFiles,
    /// Which protocols a client may ask for in its handshake (ALPN). A client that asks for none is
    /// served; one that asks only for others is refused.
    pub protocols: Vec<Vec<u8>>,
}

/// TLS 1.2 and 1.3, with the certificate that the files held when they were last read.
///
/// Clients need no certificate. Sessions are resumed with tickets, so Kew stores nothing for them.
/// Tickets end with the certificate.
#[derive(Debug)]
pub struct Tls {
    options: TlsOptions,
    provider: Arc<CryptoProvider>,
    current: RwLock<Current>,
}

#[derive(Debug)]
struct Current {
    config: Arc<ServerConfig>,
    facts: CertificateFacts,
    /// Of the files, just before they were read.
    stamps: [Option<Stamp>; 2],
}

impl Tls {
    /// Reads the files. Doubtful properties that are no reason to fail are logged as warnings.
    pub fn open(options: TlsOptions) -> Result<Self, TlsError> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let current = load(&options, &provider)?;
        Ok(Self {
            options,
            provider,
            current: RwLock::new(current),
        })
    }

    /// The facts of the certificate in use.
    pub fn facts(&self) -> CertificateFacts {
        self.current(|current| current.facts.clone())
    }

    /// Whether `holds` is true for the facts of the certificate in use.
    pub(crate) fn says(&self, holds: impl FnOnce(&CertificateFacts) -> bool) -> bool {
        self.current(|current| holds(&current.facts))
    }

    /// Reads the files again. The next handshake uses the new certificate and key. If they cannot
    /// be used, the old ones stay.
    pub fn reload(&self) -> Result<(), TlsError> {
        let current = load(&self.options, &self.provider)?;
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = current;
        Ok(())
    }

    /// Reads the files again whenever `asked` resolves, and when they have changed and then stayed
    /// the same for `interval`. Never ends.
    ///
    /// If a pair cannot be used, it is logged once and the old pair stays.
    pub async fn keep_fresh(self: Arc<Self>, interval: Duration, mut asked: impl AsyncFnMut()) {
        let mut loaded = self.current(|current| current.stamps);
        let mut seen = loaded;
        loop {
            let is_asked = tokio::select! {
                () = asked() => true,
                () = tokio::time::sleep(interval) => false,
            };
            let stamps = self.stamps().await;
            // Files that are being replaced, one after the other, need not match yet.
            let is_settled = stamps == seen;
            seen = stamps;
            if is_asked || (is_settled && stamps != loaded) {
                loaded = stamps;
                self.reload_and_log().await;
            }
        }
    }

    async fn reload_and_log(self: &Arc<Self>) {
        let this = Arc::clone(self);
        match tokio::task::spawn_blocking(move || this.reload()).await {
            Ok(Ok(())) => tracing::info!("TLS: the certificate was read again and is in use"),
            Ok(Err(error)) => tracing::error!("TLS: the old certificate stays in use: {error}"),
            Err(error) => tracing::error!(%error, "TLS: reading the certificate failed"),
        }
    }

    async fn stamps(&self) -> [Option<Stamp>; 2] {
        let files = self.options.files.clone();
        let stamps = tokio::task::spawn_blocking(move || files.stamps()).await;
        stamps.unwrap_or_default()
    }

    pub(crate) fn config(&self) -> Arc<ServerConfig> {
        self.current(|current| Arc::clone(&current.config))
    }

    fn current<T>(&self, read: impl FnOnce(&Current) -> T) -> T {
        read(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }
}

fn load(options: &TlsOptions, provider: &Arc<CryptoProvider>) -> Result<Current, TlsError> {
    let stamps = options.files.stamps();
    let Pair { certified, facts } = options.files.load(provider)?;
    warn(&options.files, &facts);
    let unusable = |error: rustls::Error| TlsError::Unusable {
        path: options.files.certificate.clone(),
        reason: error.to_string(),
    };
    let mut config = ServerConfig::builder_with_provider(Arc::clone(provider))
        .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])
        .map_err(unusable)?
        .with_no_client_auth()
        .with_cert_resolver(resolver(certified));
    config.alpn_protocols.clone_from(&options.protocols);
    config.ticketer = aws_lc_rs::Ticketer::new().map_err(unusable)?;
    Ok(Current {
        config: Arc::new(config),
        facts,
        stamps,
    })
}

fn resolver(certified: Arc<CertifiedKey>) -> Arc<dyn ResolvesServerCert> {
    Arc::new(SingleCertAndKey::from(certified))
}

fn warn(files: &CertificateFiles, facts: &CertificateFacts) {
    let path = files.certificate.display();
    let now = SystemTime::now();
    if facts.not_after <= now {
        tracing::warn!("TLS: the certificate in {path} has expired: clients will refuse it");
    } else if facts.not_after <= now + EXPIRY_NOTICE {
        tracing::warn!("TLS: the certificate in {path} expires in less than 14 days");
    } else if facts.not_before > now {
        tracing::warn!("TLS: the certificate in {path} is not valid yet: clients will refuse it");
    }
    if files.is_key_public() {
        let key = files.key.display();
        tracing::warn!("TLS: every user of this machine can read the private key in {key}");
    }
}
