//! TLS: which servers a client trusts.

use std::sync::Arc;

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};
use tokio_rustls::TlsConnector;

use crate::error::Error;

/// Trusts the certificate authorities of the system, and those in `extra` (PEM).
///
/// Fails if there are none, or if `extra` has none.
pub(super) fn connector(extra: Option<&[u8]>) -> Result<TlsConnector, Error> {
    let mut roots = RootCertStore::empty();
    let system = rustls_native_certs::load_native_certs().certs;
    // Systems have some that no library understands.
    roots.add_parsable_certificates(system);
    if let Some(extra) = extra {
        let wrong = |why: &dyn std::fmt::Display| {
            Error::refused(format!("the extra certificates cannot be read: {why}"))
        };
        let before = roots.len();
        for certificate in CertificateDer::pem_slice_iter(extra) {
            let certificate = certificate.map_err(|error| wrong(&error))?;
            roots.add(certificate).map_err(|error| wrong(&error))?;
        }
        if roots.len() == before {
            return Err(wrong(&"there is no PEM certificate in them"));
        }
    }
    if roots.is_empty() {
        return Err(Error::refused(
            "the system has no certificate authorities: give some as extra_roots_pem",
        ));
    }
    let provider = Arc::new(aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::refused(format!("TLS cannot be set up: {error}")))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}
