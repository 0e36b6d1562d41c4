//! What senders and receivers are for.

use std::sync::Arc;

/// A queue, a topic, a subscription, or what one of them sets aside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entity {
    /// The queue, topic or subscription itself: what tokens are for.
    base: Arc<str>,
    address: Arc<str>,
}

impl Entity {
    /// A queue or a topic, or a part of one, such as `orders/$DeadLetterQueue`.
    pub fn new(name: &str) -> Self {
        let address: Arc<str> = name.trim_matches('/').into();
        let base = match address.split_once("/$") {
            Some((base, _)) => base.into(),
            None => address.clone(),
        };
        Self { base, address }
    }

    /// A subscription of a topic.
    pub fn subscription(topic: &str, name: &str) -> Self {
        Self::new(&format!("{topic}/Subscriptions/{name}"))
    }

    /// Its dead letters.
    #[must_use]
    pub fn dead_letters(&self) -> Self {
        self.part("$DeadLetterQueue")
    }

    /// What could not be transferred from it.
    #[must_use]
    pub fn failed_transfers(&self) -> Self {
        self.part("$Transfer/$DeadLetterQueue")
    }

    fn part(&self, part: &str) -> Self {
        Self {
            base: self.base.clone(),
            address: format!("{}/{part}", self.base).into(),
        }
    }

    /// Where links go.
    pub fn address(&self) -> &str {
        &self.address
    }

    pub(super) fn address_arc(&self) -> Arc<str> {
        self.address.clone()
    }

    /// The node for requests.
    pub(super) fn management(&self) -> Arc<str> {
        format!("{}/$management", self.address).into()
    }

    /// What tokens are for.
    pub(super) fn base(&self) -> Arc<str> {
        self.base.clone()
    }
}

impl From<&str> for Entity {
    fn from(name: &str) -> Self {
        Self::new(name)
    }
}

impl From<&String> for Entity {
    fn from(name: &String) -> Self {
        Self::new(name)
    }
}

impl From<&Entity> for Entity {
    fn from(entity: &Entity) -> Self {
        entity.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        let queue = Entity::new("/orders/new");
        assert_eq!(queue.address(), "orders/new");
        let dead = queue.dead_letters();
        assert_eq!(dead.address(), "orders/new/$DeadLetterQueue");
        assert_eq!(&*dead.base(), "orders/new");
        assert_eq!(
            &*dead.management(),
            "orders/new/$DeadLetterQueue/$management"
        );
        assert_eq!(Entity::new("orders/new/$DeadLetterQueue"), dead);
        let failed = dead.failed_transfers();
        assert_eq!(failed.address(), "orders/new/$Transfer/$DeadLetterQueue");
        let subscription = Entity::subscription("t", "s");
        assert_eq!(subscription.address(), "t/Subscriptions/s");
    }
}
