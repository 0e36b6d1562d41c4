//! Where entities and rules are at the service: their paths, from names that are checked here.

use super::forward;
use crate::error::Error;

/// The path of an entity, a rule or a list.
pub(super) struct Place {
    /// Encoded, without the slash before it.
    pub(super) path: String,
    /// What the token is for, as a path in the namespace.
    pub(super) audience: String,
}

impl Place {
    /// A list or another part of the whole namespace.
    pub(super) fn of_namespace(path: &str) -> Self {
        Self {
            path: path.to_owned(),
            audience: String::new(),
        }
    }

    /// A queue or a topic. Its name may have slashes.
    pub(super) fn of(what: &str, name: &str) -> Result<Self, Error> {
        let name = name.trim_matches('/');
        check(what, name)?;
        Ok(Self {
            path: forward::path(name),
            audience: name.to_owned(),
        })
    }

    /// A subscription of a topic.
    pub(super) fn of_subscription(topic: &str, name: &str) -> Result<Self, Error> {
        Self::of("topic", topic)?.part("Subscriptions", "subscription", name)
    }

    /// A rule of a subscription.
    pub(super) fn of_rule(topic: &str, subscription: &str, name: &str) -> Result<Self, Error> {
        Self::of_subscription(topic, subscription)?.part("Rules", "rule", name)
    }

    /// A list that belongs to an entity. The token is for the entity.
    pub(super) fn list(self, list: &str) -> Self {
        Self {
            path: format!("{}/{list}", self.path),
            ..self
        }
    }

    fn part(self, list: &str, what: &str, name: &str) -> Result<Self, Error> {
        check(what, name)?;
        if name.contains('/') {
            return Err(Error::refused(format!(
                "the name of the {what} is '{name}', and cannot have slashes"
            )));
        }
        Ok(Self {
            path: format!("{}/{list}/{}", self.path, forward::path(name)),
            audience: format!("{}/{list}/{name}", self.audience),
        })
    }
}

/// Refuses what would be the path of something else. The service checks the rest.
fn check(what: &str, name: &str) -> Result<(), Error> {
    if name.is_empty() {
        return Err(Error::refused(format!("the name of the {what} is empty")));
    }
    match name.split('/').any(|it| matches!(it, "" | "." | "..")) {
        false => Ok(()),
        true => Err(Error::refused(format!(
            "the name of the {what} is '{name}', and cannot have an empty part, . or .. between slashes"
        ))),
    }
}
