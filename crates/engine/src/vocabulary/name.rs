//! How an entity is addressed.

use std::fmt;
use std::sync::Arc;

/// The service whose rules an entity follows and whose namespace it lives in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Service {
    /// Azure Queue Storage.
    QueueStorage,
    /// Azure Service Bus: accounts are namespaces, and names are in lower case.
    ServiceBus,
}

/// The full name of an entity: service, account, and the name within the account.
///
/// The front end has checked the name against its service's rules; the engine only compares it.
/// Ordering is by service, account, then name, byte by byte, which is the order of a listing.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntityName {
    /// The service that the entity belongs to.
    pub service: Service,
    /// The storage account.
    pub account: Arc<str>,
    /// The name within the account.
    pub name: Box<str>,
}

impl EntityName {
    /// The name of a Queue Storage queue.
    pub fn storage_queue(account: impl Into<Arc<str>>, name: impl Into<Box<str>>) -> Self {
        Self {
            service: Service::QueueStorage,
            account: account.into(),
            name: name.into(),
        }
    }
}

impl fmt::Display for EntityName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.account, self.name)
    }
}
