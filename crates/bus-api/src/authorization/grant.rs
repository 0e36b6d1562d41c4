//! The rights of one credential.

use super::rights::{Right, Rights};

/// The rights of a valid credential.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Grant {
    /// The path to which it applies, in lower case. Empty for the whole namespace.
    pub(crate) path: String,
    pub(crate) rights: Rights,
    /// Its expiry, in seconds since 1970.
    pub(crate) expires_at_s: u64,
    /// The queue whose own rule has signed, or `None` for a rule of the namespace. The grant covers that queue
    /// with its sub-queues, but not another queue whose name begins with the same words.
    pub(crate) queue: Option<Box<str>>,
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
            queue: None,
            holder: holder.into(),
        }
    }

    /// Whether it has a right at a node, such as `queue`, `queue/$deadletterqueue` or `queue/$management`.
    /// `path` is in lower case, without slashes around it.
    pub(crate) fn allows(&self, right: Right, path: &str) -> bool {
        self.allows_request(right, queue_of(path), path)
    }

    /// Whether it has a right on a queue for a request to a path within the queue, such as
    /// `queue/messages/head`.
    pub(crate) fn allows_request(&self, right: Right, queue: &str, path: &str) -> bool {
        self.rights.has(right)
            && self.covers(path)
            && self.queue.as_deref().is_none_or(|own| own == queue)
    }

    /// Whether its path is the beginning of another, segment by segment.
    pub(crate) fn covers(&self, path: &str) -> bool {
        match path.strip_prefix(self.path.as_str()) {
            Some(rest) => self.path.is_empty() || rest.is_empty() || rest.starts_with('/'),
            None => false,
        }
    }
}

/// The queue of a node's path: the part before the first name that begins with `$`.
pub(crate) fn queue_of(path: &str) -> &str {
    path.split_once("/$").map_or(path, |(queue, _)| queue)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grant(path: &str, rights: &[Right], queue: Option<&str>) -> Grant {
        Grant {
            path: path.into(),
            rights: rights.iter().copied().collect(),
            expires_at_s: 1,
            queue: queue.map(Into::into),
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
        let orders = grant("orders", &[Right::Send], Some("orders"));
        assert!(orders.allows(Right::Send, "orders/$management"));
        assert!(!orders.allows(Right::Send, "orders/more"));
        assert!(!orders.allows(Right::Send, "orders/messages"));
        assert!(orders.allows_request(Right::Send, "orders", "orders/messages"));
        let sending = grant("orders/messages", &[Right::Send], Some("orders"));
        assert!(sending.allows_request(Right::Send, "orders", "orders/messages"));
        assert!(!sending.allows(Right::Send, "orders"));
    }
}
