//! What senders and receivers are for.

use std::sync::Arc;

use crate::error::Error;

/// What lies between the names of a topic and its subscription, in lower case. Services take any case of letters.
const SUBSCRIPTIONS: &str = "/subscriptions/";

/// What an entity sets aside, in lower case.
const PARTS: [&str; 2] = ["$deadletterqueue", "$transfer/$deadletterqueue"];

/// A queue, a topic, a subscription, or what one of them sets aside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entity {
    /// The queue, topic or subscription itself: what tokens are for.
    base: Arc<str>,
    address: Arc<str>,
}

impl Entity {
    /// A queue, a topic or a subscription (`TOPIC/Subscriptions/NAME`), or a part of one, such as
    /// `orders/$DeadLetterQueue`. Case of letters does not matter.
    ///
    /// A name that no service can have is refused when it is used.
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

    /// The names of the topic and of the subscription, if it is a subscription or a part of one.
    pub fn subscription_names(&self) -> Option<(&str, &str)> {
        let lower = self.base.to_ascii_lowercase();
        let at = lower.find(SUBSCRIPTIONS)?;
        let (topic, rest) = self.base.split_at(at);
        let name = rest.get(SUBSCRIPTIONS.len()..)?;
        let is_one = !topic.is_empty() && !name.is_empty() && !name.contains('/');
        is_one.then_some((topic, name))
    }

    /// Refuses what no service can have, and says what is wrong. The service checks the rest.
    pub(super) fn check(&self) -> Result<(), Error> {
        if self.base.is_empty() {
            return Err(Error::refused(
                "the name of the entity is empty: expected that of a queue, a topic, or TOPIC/Subscriptions/NAME",
            ));
        }
        let refused = |what: &str| Error::refused(format!("the entity '{}' {what}", self.address));
        if self.base.split('/').any(str::is_empty) {
            return Err(refused("has an empty part between slashes"));
        }
        let part = self.address.get(self.base.len()..).unwrap_or_default();
        let part = part.trim_start_matches('/').to_ascii_lowercase();
        match part.is_empty() || PARTS.contains(&&*part) {
            true => Ok(()),
            false => Err(refused(
                "has a part that is neither $DeadLetterQueue nor $Transfer/$DeadLetterQueue",
            )),
        }
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
        let dead = Entity::new("t/subscriptions/s").dead_letters();
        assert_eq!(dead.address(), "t/subscriptions/s/$DeadLetterQueue");
        assert_eq!(&*dead.base(), "t/subscriptions/s");
    }

    #[test]
    fn subscriptions_have_a_topic() {
        let names = |name: &str| {
            let entity = Entity::new(name);
            let names = entity.subscription_names();
            names.map(|(topic, name)| format!("{topic} {name}"))
        };
        for (name, expected) in [
            ("a/T/Subscriptions/S", Some("a/T S")),
            ("t/subscriptions/s/$DeadLetterQueue", Some("t s")),
            ("t/SUBSCRIPTIONS/s", Some("t s")),
            ("t", None),
            ("t/subscriptions", None),
            ("t/subscriptions/", None),
            ("subscriptions/s", None),
            ("t/subscriptions/s/r", None),
        ] {
            assert_eq!(names(name).as_deref(), expected, "{name}");
        }
    }

    #[test]
    fn names_that_cannot_be_are_refused() {
        for good in [
            "q",
            "a/b",
            "t/Subscriptions/s",
            "q/$deadletterqueue",
            "t/subscriptions/s/$Transfer/$DeadLetterQueue",
        ] {
            assert!(Entity::new(good).check().is_ok(), "{good}");
        }
        for (bad, what) in [
            ("", "is empty"),
            ("/", "is empty"),
            ("a//b", "'a//b' has an empty part"),
            ("t/Subscriptions//s", "an empty part"),
            ("q/$Deadletters", "neither $DeadLetterQueue nor"),
            ("q/$management", "neither $DeadLetterQueue nor"),
        ] {
            let refused = Entity::new(bad).check().unwrap_err();
            assert!(refused.text().contains(what), "{bad}: {refused}");
        }
    }
}
