//! Connection strings, which come from the environment.

use std::ffi::OsString;
use std::path::PathBuf;

use kew_client::{BusNamespace, ConnectionString, QueueAccount};
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use super::{ConfigError, Http, Place, Source, values};

/// How a certificate begins in PEM.
const PEM_BEGIN: &[u8] = b"-----BEGIN CERTIFICATE-----";

/// Reads an environment variable.
pub type Variable<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// Where a queue is.
#[derive(Clone, Debug)]
pub enum Connection {
    /// An account of Queue Storage.
    Storage(QueueAccount),
    /// A namespace of Service Bus.
    Bus(BusNamespace),
}

impl Source {
    /// Reads the connection string.
    ///
    /// # Errors
    ///
    /// If the variable is not set, or has no connection string. The error does not show its value, which has a key.
    pub fn connection(&self, variable: Variable<'_>) -> Result<Connection, ConfigError> {
        let name = &self.connection_env;
        let value = variable(name).filter(|it| !it.is_empty()).ok_or_else(|| {
            self.place.error(format!(
                "connection_env is {name:?}, and this environment variable is not set: set it to a connection string"
            ))
        })?;
        let text = value.to_str().ok_or_else(|| {
            let what = format!("the environment variable {name} is not UTF-8");
            self.place.error(what)
        })?;
        match ConnectionString::parse(text) {
            Ok(ConnectionString::Queue(account)) => Ok(Connection::Storage(account)),
            Ok(ConnectionString::Bus(namespace)) => Ok(Connection::Bus(namespace)),
            Err(error) => Err(self
                .place
                .error(format!("the environment variable {name}: {error}"))),
        }
    }

    /// Refuses a name that no queue of Queue Storage has, if the connection string is of that service.
    pub(crate) fn check_storage_name(&self) -> Result<(), ConfigError> {
        let checked = values::storage_queue_name(&self.queue);
        checked.map_err(|what| {
            let name = &self.connection_env;
            let service = format!("{name} has a connection string of Queue Storage");
            self.place.error(format!("queue: {what}; {service}"))
        })
    }

    /// An error for what the connection string says.
    pub(crate) fn refused(&self, error: &kew_client::Error) -> ConfigError {
        self.place.error(format!(
            "the queue {:?} cannot be used: {error}",
            self.queue
        ))
    }

    /// An error for a connection string of another service.
    pub(crate) fn not_of_bus(&self) -> ConfigError {
        let name = &self.connection_env;
        self.place.error(format!(
            "the environment variable {name} has no connection string of Service Bus, which announcements need"
        ))
    }

    /// Certificate authorities to trust beside those of the system, in PEM.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, or has no certificate or a damaged one.
    pub fn extra_roots_pem(&self) -> Result<Option<Vec<u8>>, ConfigError> {
        read_roots(self.ca_cert.as_ref())
    }
}

impl Http {
    /// Certificate authorities to trust beside those of the system, in PEM.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, or has no certificate or a damaged one.
    pub fn extra_roots_pem(&self) -> Result<Option<Vec<u8>>, ConfigError> {
        read_roots(self.ca_cert.as_ref())
    }
}

fn read_roots(file: Option<&(Place, PathBuf)>) -> Result<Option<Vec<u8>>, ConfigError> {
    let Some((place, path)) = file else {
        return Ok(None);
    };
    let read = std::fs::read(path);
    let read = read.map_err(|error| {
        place.error(format!(
            "ca_cert is {path:?}, which cannot be read: {error}"
        ))
    })?;
    if !read.windows(PEM_BEGIN.len()).any(|it| it == PEM_BEGIN) {
        return Err(place.error(format!(
            "ca_cert is {path:?}, which has no certificate in PEM: name a file that has one"
        )));
    }
    let mut roots = RootCertStore::empty();
    for (index, certificate) in CertificateDer::pem_slice_iter(&read).enumerate() {
        let added = certificate.map_err(|error| error.to_string());
        let added = added.and_then(|it| roots.add(it).map_err(|error| error.to_string()));
        added.map_err(|error| {
            let number = index + 1;
            place.error(format!(
                "ca_cert is {path:?}, whose certificate {number} cannot be used: {error}"
            ))
        })?;
    }
    Ok(Some(read))
}
