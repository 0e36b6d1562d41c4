//! Reads connection strings, in the forms of Azure, Azurite, the emulator of Service Bus, and Kew.
//!
//! Errors say which setting is wrong and never repeat a value, which may be a secret, nor an unknown name, which
//! may be a part of one: that part is told by its place.
//!
//! Sources: *Configure Azure Storage connection strings*; *Service Bus: Get the connection string*; the
//! emulator's *Choose the right connection string*; Azurite's README.

mod bus;
mod endpoint;
mod queue;
mod settings;

#[cfg(test)]
mod tests;

pub use bus::{BusNamespace, BusTransport, Delegation};
pub use endpoint::Endpoint;
pub use queue::QueueAccount;

use settings::{Service, Settings};

/// What a connection string is for.
#[derive(Clone, Debug)]
pub enum ConnectionString {
    /// An account of Queue Storage.
    Queue(QueueAccount),
    /// A namespace of Service Bus.
    Bus(BusNamespace),
}

/// What is wrong with a connection string.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the connection string {0}")]
pub struct ConnectionStringError(String);

impl ConnectionString {
    /// Reads `NAME=VALUE;NAME=VALUE`, or the URL of a queue service with a shared access signature.
    ///
    /// Its settings decide which service it is for. Names are taken in any case and in any order.
    pub fn parse(text: &str) -> Result<Self, ConnectionStringError> {
        if endpoint::has_http_scheme(text.trim()) {
            return QueueAccount::parse(text).map(Self::Queue);
        }
        let settings = Settings::parse(text)?;
        Ok(match settings.service()? {
            Service::Queue => Self::Queue(QueueAccount::of(&settings)?),
            Service::Bus => Self::Bus(BusNamespace::of(&settings)?),
        })
    }
}

fn wrong(what: impl Into<String>) -> ConnectionStringError {
    ConnectionStringError(what.into())
}
