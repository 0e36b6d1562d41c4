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

/// What lies between the name of a topic and that of its subscription.
pub const SUBSCRIPTIONS: &str = "/subscriptions/";
/// What the path of the list of a topic's subscriptions has behind the name of the topic.
pub const SUBSCRIPTIONS_LIST: &str = "/subscriptions";

/// The topic to whose subscriptions a path in lower case belongs: the path of their list, of one of them, or behind that.
pub fn topic_of_path(path: &str) -> Option<&str> {
    let topic = path.split_once(SUBSCRIPTIONS).map(|(topic, _)| topic);
    topic.or_else(|| path.strip_suffix(SUBSCRIPTIONS_LIST))
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

#[cfg(test)]
mod tests {
    use super::topic_of_path;

    #[test]
    fn paths_of_subscriptions_name_their_topic() {
        for (path, topic) in [
            ("t/subscriptions", Some("t")),
            ("t/subscriptions/s", Some("t")),
            ("a/b/subscriptions/s/$deadletterqueue", Some("a/b")),
            ("t/subscriptions/s/subscriptions", Some("t")),
            ("t/subscriptions/subscriptions", Some("t")),
            ("subscriptions/s", None),
            ("t/subscriptions-of-ours/s", None),
            ("t/subscription/s", None),
        ] {
            assert_eq!(topic_of_path(path), topic, "{path}");
        }
    }
}
