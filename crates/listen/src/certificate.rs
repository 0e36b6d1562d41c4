//! A certificate and its key, read from files.

use std::fs::File;
use std::io::{self, Read as _};
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem};
use rustls::sign::CertifiedKey;
use thiserror::Error;
use x509_parser::extensions::GeneralName;
use x509_parser::parse_x509_certificate;
use x509_parser::x509::X509Version;

/// Larger than any certificate chain.
const FILE_SIZE_BYTES_MAX: u64 = 1024 * 1024;

/// Where a certificate and its key are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The certificate of the server in PEM, followed by its chain up to the authority.
    pub certificate: PathBuf,
    /// The private key of the first of them, in PEM: PKCS#8, SEC 1 or PKCS#1, without a passphrase.
    pub key: PathBuf,
}

/// Why a certificate or its key cannot be used.
#[derive(Debug, Error)]
pub enum TlsError {
    /// The file system failed.
    #[error("cannot read {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// A file has unusable content.
    #[error("{} cannot be used: {reason}", path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// Each is sound, and they do not belong together.
    #[error(
        "the private key in {} does not belong to the first certificate in {}",
        key.display(),
        certificate.display()
    )]
    Mismatch {
        /// The file with the certificate.
        certificate: PathBuf,
        /// The file with the key.
        key: PathBuf,
    },
}

/// What a certificate says about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFacts {
    /// The names that it is valid for. Wildcards are kept as they are.
    pub names: Vec<String>,
    /// The addresses that it is valid for.
    pub addresses: Vec<IpAddr>,
    /// From when on it is valid.
    pub not_before: SystemTime,
    /// Until when it is valid.
    pub not_after: SystemTime,
}

impl CertificateFacts {
    /// Reads the facts of the first certificate in a PEM text.
    pub fn of_pem(text: &[u8]) -> Result<Self, String> {
        let first = CertificateDer::pem_slice_iter(text)
            .next()
            .ok_or("it contains no certificate")?;
        Self::of(&first.map_err(|error| describe(&error))?)
    }

    fn of(certificate: &CertificateDer<'_>) -> Result<Self, String> {
        let (_, parsed) = parse_x509_certificate(certificate)
            .map_err(|error| format!("its first certificate is malformed: {error}"))?;
        check_version(parsed.version())?;
        let mut facts = Self {
            names: Vec::new(),
            addresses: Vec::new(),
            not_before: time(parsed.validity().not_before.timestamp()),
            not_after: time(parsed.validity().not_after.timestamp()),
        };
        let names = parsed.subject_alternative_name().map_err(|error| {
            format!("the names in its first certificate are malformed: {error}")
        })?;
        for name in names.iter().flat_map(|names| &names.value.general_names) {
            match name {
                GeneralName::DNSName(name) => facts.names.push((*name).to_owned()),
                GeneralName::IPAddress(bytes) => facts.addresses.extend(address(bytes)),
                _ => {}
            }
        }
        Ok(facts)
    }
}

/// Refuses versions without subject alternative names: no TLS client accepts them.
fn check_version(version: X509Version) -> Result<(), String> {
    match version {
        X509Version::V3 => Ok(()),
        X509Version(number) => Err(format!(
            "its first certificate is X.509 version {}, and TLS needs version 3 with the server's names: \
             make a new one with kew tls init, or with openssl and a subjectAltName (openssl x509 -req \
             needs -extfile for it)",
            u64::from(number) + 1
        )),
    }
}

fn time(seconds: i64) -> SystemTime {
    // Before 1970 is as expired as 1970.
    SystemTime::UNIX_EPOCH + Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    if let Ok(bytes) = <[u8; 4]>::try_from(bytes) {
        return Some(bytes.into());
    }
    <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from)
}

/// A certificate and its key that belong together.
#[derive(Debug)]
pub(crate) struct Pair {
    pub(crate) certified: Arc<CertifiedKey>,
    pub(crate) facts: CertificateFacts,
}

impl CertificateFiles {
    pub(crate) fn load(&self, provider: &CryptoProvider) -> Result<Pair, TlsError> {
        let text = read(&self.certificate)?;
        let chain = CertificateDer::pem_slice_iter(&text)
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| unusable(&self.certificate, describe(&error)))?;
        let first = chain
            .first()
            .ok_or_else(|| unusable(&self.certificate, "it contains no certificate"))?;
        let facts =
            CertificateFacts::of(first).map_err(|reason| unusable(&self.certificate, reason))?;
        let key = read_key(&self.key)?;
        let signing = provider
            .key_provider
            .load_private_key(key)
            .map_err(|error| unusable(&self.key, format!("the key is not supported: {error}")))?;
        let certified = CertifiedKey::new(chain, signing);
        certified.keys_match().map_err(|error| match error {
            rustls::Error::InconsistentKeys(_) => TlsError::Mismatch {
                certificate: self.certificate.clone(),
                key: self.key.clone(),
            },
            other => unusable(&self.certificate, other.to_string()),
        })?;
        Ok(Pair {
            certified: Arc::new(certified),
            facts,
        })
    }

    /// Whether users other than the owner and the group can read the key.
    pub(crate) fn is_key_public(&self) -> bool {
        std::fs::metadata(&self.key).is_ok_and(|metadata| metadata.mode() & 0o004 != 0)
    }

    /// Changes when a file is replaced or written.
    pub(crate) fn stamps(&self) -> [Option<Stamp>; 2] {
        [&self.certificate, &self.key].map(|path| Stamp::of(path))
    }
}

/// Identifies the file behind a name, and how new it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    device: u64,
    inode: u64,
    size_bytes: u64,
    modified: (i64, i64),
}

impl Stamp {
    fn of(path: &Path) -> Option<Self> {
        let metadata = std::fs::metadata(path).ok()?;
        Some(Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            size_bytes: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
        })
    }
}

fn read_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    let text = read(path)?;
    PrivateKeyDer::from_pem_slice(&text).map_err(|error| {
        let is_encrypted = text.windows(9).any(|part| part == b"ENCRYPTED");
        let reason = match error {
            pem::Error::NoItemsFound if is_encrypted => {
                "its private key has a passphrase; store it without one".into()
            }
            pem::Error::NoItemsFound => {
                "it contains no private key (PEM with PKCS#8, SEC 1 or PKCS#1)".into()
            }
            other => describe(&other),
        };
        unusable(path, reason)
    })
}

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    let failed = |source| TlsError::Io {
        path: path.to_owned(),
        source,
    };
    let file = File::open(path).map_err(failed)?;
    let mut text = Vec::new();
    file.take(FILE_SIZE_BYTES_MAX + 1)
        .read_to_end(&mut text)
        .map_err(failed)?;
    if text.len() as u64 > FILE_SIZE_BYTES_MAX {
        return Err(unusable(
            path,
            format!("it is larger than {FILE_SIZE_BYTES_MAX} bytes"),
        ));
    }
    Ok(text)
}

fn describe(error: &pem::Error) -> String {
    format!("its PEM is malformed: {error}")
}

fn unusable(path: &Path, reason: impl Into<String>) -> TlsError {
    TlsError::Unusable {
        path: path.to_owned(),
        reason: reason.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `openssl x509 -req` creates it without `-extfile`.
    const VERSION_1: &str = "-----BEGIN CERTIFICATE-----
MIIBIzCBywIUTk8GzvWkygUMZ7dJlBus2cUJti0wCgYIKoZIzj0EAwIwFDESMBAG
A1UEAwwJbG9jYWxob3N0MCAXDTI2MTEyMjE5MDQyNFoYDzIxMjYxMDI5MTkwNDI0
WjAUMRIwEAYDVQQDDAlsb2NhbGhvc3QwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNC
AAQPuclYIXRDKF1cN4/g66jxCO+gXdgg+hTMHDIHyl9DreDGIHTyfN7aeBRNtB/+
Lqzqjz2Hj4fHdl/L6efJLKghMAoGCCqGSM49BAMCA0cAMEQCIH2G6k0SitTGcBsA
ueqz6/Ro2abi9t0eGJfe/rLJ4XsPAiA8vN9KPmmzHg5usHQJyjgeeAERk4RoMvmw
9W6EOyb0ew==
-----END CERTIFICATE-----
";

    #[test]
    fn a_certificate_without_extensions_is_refused_with_advice() {
        let error = CertificateFacts::of_pem(VERSION_1.as_bytes()).expect_err("refused");
        assert!(error.contains("X.509 version 1"), "{error}");
        assert!(error.contains("kew tls init"), "{error}");
        let directory = tempfile::tempdir().expect("a temporary directory");
        let file = |name: &str, text: &str| {
            let path = directory.path().join(name);
            std::fs::write(&path, text).expect("a file");
            path
        };
        let key = rcgen::KeyPair::generate().expect("a key");
        let files = CertificateFiles {
            certificate: file("server.pem", VERSION_1),
            key: file("server.key", &key.serialize_pem()),
        };
        let provider = rustls::crypto::aws_lc_rs::default_provider();
        let error = files.load(&provider).expect_err("refused").to_string();
        assert!(error.contains("server.pem cannot be used"), "{error}");
        assert!(error.contains("X.509 version 1"), "{error}");
    }
}
