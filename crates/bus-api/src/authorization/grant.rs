//! The rights of one credential.

use std::fmt;

use kew_engine::bus::EntityKind;
use kew_engine::topic_of_path;

use super::rights::{Right, Rights};

/// The rights of a valid credential.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Grant {
    /// The path to which it applies, in lower case. Empty for the whole namespace.
    pub(crate) path: String,
    pub(crate) rights: Rights,
    /// Its expiry, in seconds since 1970.
    pub(crate) expires_at_s: u64,
    /// The entity whose own rule has signed, or `None` for a rule of the namespace.
    pub(crate) owner: Option<Owner>,
    /// Its holder, for the audit log: a rule, or the user that the issuer names, in at most 256 bytes. Log it
    /// escaped.
    pub(crate) holder: Box<str>,
}

impl Grant {
    /// Everything, without expiry.
    #[cfg(test)]
    pub(crate) fn of_everything(holder: &str) -> Self {
        Self {
            path: String::new(),
            rights: Rights::ALL,
            expires_at_s: u64::MAX,
            owner: None,
            holder: holder.into(),
        }
    }

    /// Whether it has a right at a node, such as `queue`, `queue/$deadletterqueue` or `queue/$management`.
    /// `path` is in lower case, without slashes around it.
    pub(crate) fn allows(&self, right: Right, path: &str) -> bool {
        self.allows_request(right, entity_of(path), path)
    }

    /// Whether it has a right on an entity for a request to a path within the entity, such as
    /// `queue/messages/head`.
    pub(crate) fn allows_request(&self, right: Right, entity: &str, path: &str) -> bool {
        self.rights.has(right)
            && self.covers(path)
            && self.owner.as_ref().is_none_or(|owner| owner.owns(entity))
    }

    /// Whether its path is the beginning of another, segment by segment.
    pub(crate) fn covers(&self, path: &str) -> bool {
        match path.strip_prefix(self.path.as_str()) {
            Some(rest) => self.path.is_empty() || rest.is_empty() || rest.starts_with('/'),
            None => false,
        }
    }
}

/// An entity whose own rule has signed a credential.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    /// In lower case.
    pub(crate) name: Box<str>,
    pub(crate) kind: EntityKind,
}

impl Owner {
    /// Whether its rules hold for an entity: itself, or a subscription of a topic. They do not hold for another one
    /// whose name begins with the same words.
    ///
    /// A queue of an earlier version may have the name of a subscription: rules of that topic hold for it, too.
    ///
    /// Source: Service Bus, *Shared access authorization policies*: a rule of a topic applies to its subscriptions.
    pub(super) fn owns(&self, entity: &str) -> bool {
        *entity == *self.name
            || self.kind == EntityKind::Topic && topic_of_path(entity) == Some(&*self.name)
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            EntityKind::Queue => "queue",
            EntityKind::Topic => "topic",
            EntityKind::Subscription => "subscription",
        };
        write!(f, "the {kind} {}", self.name)
    }
}

/// The entity of a node's path: the part before the first name that begins with `$`.
pub(crate) fn entity_of(path: &str) -> &str {
    path.split_once("/$").map_or(path, |(entity, _)| entity)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grant(path: &str, rights: &[Right], owner: Option<(&str, EntityKind)>) -> Grant {
        Grant {
            path: path.into(),
            rights: rights.iter().copied().collect(),
            expires_at_s: 1,
            owner: owner.map(|(name, kind)| Owner {
                name: name.into(),
                kind,
            }),
            holder: "rule r".into(),
        }
    }

    #[test]
    fn a_grant_covers_its_path_and_everything_below() {
        let orders = grant("orders", &[Right::Listen], None);
        assert!(orders.allows(Right::Listen, "orders"));
        assert!(orders.allows(Right::Listen, "orders/$deadletterqueue"));
        assert!(orders.allows(Right::Listen, "orders/more"));
        assert!(!orders.allows(Right::Send, "orders"));
        assert!(!orders.allows(Right::Listen, "orders2"));
        assert!(!orders.allows(Right::Listen, ""));
        let everything = grant("", &[Right::Manage], None);
        assert!(everything.allows(Right::Send, "any/where"));
    }

    #[test]
    fn the_grant_of_a_queues_rule_covers_no_other_queue() {
        let owner = Some(("orders", EntityKind::Queue));
        let orders = grant("orders", &[Right::Send], owner);
        assert!(orders.allows(Right::Send, "orders/$management"));
        assert!(!orders.allows(Right::Send, "orders/subscriptions/s"));
        assert!(!orders.allows(Right::Send, "orders/more"));
        assert!(!orders.allows(Right::Send, "orders/messages"));
        assert!(orders.allows_request(Right::Send, "orders", "orders/messages"));
        let sending = grant("orders/messages", &[Right::Send], owner);
        assert!(sending.allows_request(Right::Send, "orders", "orders/messages"));
        assert!(!sending.allows(Right::Send, "orders"));
    }

    #[test]
    fn the_grant_of_a_topics_rule_covers_its_subscriptions() {
        let owner = Some(("events", EntityKind::Topic));
        let events = grant("events", &[Right::Manage], owner);
        for path in [
            "events",
            "events/$transfer/$deadletterqueue",
            "events/subscriptions",
            "events/subscriptions/s",
            "events/subscriptions/s/$deadletterqueue",
            "events/subscriptions/s/$management",
            "events/subscriptions/s/rules/$default",
        ] {
            assert!(events.allows(Right::Listen, path), "{path}");
        }
        for path in [
            "events/more",
            "events/subscriptionsx",
            "events2",
            "events2/subscriptions/s",
        ] {
            assert!(!events.allows(Right::Listen, path), "{path}");
        }
        let one = grant("events/subscriptions/s", &[Right::Listen], owner);
        assert!(one.allows(Right::Listen, "events/subscriptions/s/$deadletterqueue"));
        assert!(!one.allows(Right::Listen, "events/subscriptions/t"));
        assert!(!one.allows(Right::Listen, "events"));
    }
}
