//! TLS to the server.

use std::fmt;
use std::sync::Arc;

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};

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
