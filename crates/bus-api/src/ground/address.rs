//! Which node an address means.
//!
//! SDKs write the same queue as `queue`, `/queue`, `sb://host/queue`, `amqps://host:5671/queue`,
//! percent-encoded or not, and compare names without case.

use kew_engine::{EntityName, SUBSCRIPTIONS, SUBSCRIPTIONS_LIST, Service};
use percent_encoding::percent_decode_str;

use crate::ground::constants::NAMESPACE;

const CBS: &str = "$cbs";
const MANAGEMENT: &str = "/$management";

/// The longest name of an entity, in characters.
const NAME_LENGTH_MAX: usize = 260;
/// The longest name of a subscription, in characters, without that of its topic.
const SUBSCRIPTION_LENGTH_MAX: usize = 50;

/// The target that a link can be attached to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Node {
    /// Where tokens are put.
    Tokens,
    /// A queue, topic or subscription, or one of its sub-queues.
    Entity(EntityName),
    /// Where requests about an entity are answered.
    Management(EntityName),
}

impl Node {
    /// Bytes of its texts.
    pub(crate) fn size_bytes(&self) -> usize {
        match self {
            Self::Tokens => 0,
            Self::Entity(entity) | Self::Management(entity) => entity.name.len(),
        }
    }
}

/// The path of an address or audience: without scheme, host and query, decoded, in lower case,
/// without leading and trailing slashes.
pub(crate) fn path_of(address: &str) -> String {
    let path = match address.split_once("://") {
        Some((_, rest)) => rest.split_once('/').map_or("", |(_, path)| path),
        None => address,
    };
    // The administration client of JavaScript signs the query, too.
    let path = path.split_once('?').map_or(path, |(path, _)| path);
    let path = percent_decode_str(path).decode_utf8_lossy();
    path.trim_matches('/').to_lowercase()
}

/// The node at an address, or `None` if no node can have it.
pub(crate) fn node_at(address: &str) -> Option<Node> {
    let path = path_of(address);
    if path == CBS {
        return Some(Node::Tokens);
    }
    match path.strip_suffix(MANAGEMENT) {
        Some(entity) => entity_named(entity).map(Node::Management),
        None => entity_named(&path).map(Node::Entity),
    }
}

/// The entity of a path in lower case.
pub(crate) fn entity_named(path: &str) -> Option<EntityName> {
    let name = path.strip_suffix("/$deadletterqueue").unwrap_or(path);
    let queue = name.strip_suffix("/$transfer").unwrap_or(name);
    let is_transfer_alone = queue.len() < name.len() && name.len() == path.len();
    (!is_transfer_alone && is_queue_name(queue)).then(|| EntityName {
        service: Service::ServiceBus,
        account: NAMESPACE.into(),
        name: path.into(),
    })
}

/// The topic of a subscription with this name, `topic/subscriptions/name`. `None` if no subscription can have it.
///
/// Source: Service Bus, naming rules and quotas of subscriptions.
pub(crate) fn topic_of(subscription: &EntityName) -> Option<EntityName> {
    let (topic, name) = subscription.name.split_once(SUBSCRIPTIONS)?;
    let is_possible = is_queue_name(topic)
        && is_queue_name(name)
        && !name.contains('/')
        && name.chars().count() <= SUBSCRIPTION_LENGTH_MAX;
    is_possible.then(|| EntityName {
        name: topic.into(),
        ..subscription.clone()
    })
}

/// Why no new queue or topic can have this name, in lower case. Queues of earlier versions keep such names.
pub(crate) fn why_reserved(name: &str) -> Option<String> {
    if name.contains(SUBSCRIPTIONS) {
        return Some(format!(
            "The entity path '{name}' contains '{SUBSCRIPTIONS}', which is for subscriptions."
        ));
    }
    let topic = name.strip_suffix(SUBSCRIPTIONS_LIST)?;
    Some(format!(
        "The entity path '{name}' ends in '{SUBSCRIPTIONS_LIST}', which is the list of subscriptions of '{topic}': \
         choose another name."
    ))
}

/// Whether a queue can have this name: letters, digits and `. - _ /`, and a letter or digit at both
/// ends.
///
/// Source: Service Bus, naming rules of queues.
pub(crate) fn is_queue_name(name: &str) -> bool {
    let is_inner = |c: char| c.is_alphanumeric() || matches!(c, '.' | '-' | '_' | '/');
    let is_end = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
    name.chars().count() <= NAME_LENGTH_MAX
        && name.chars().all(is_inner)
        && is_end(name.chars().next())
        && is_end(name.chars().next_back())
        && !name.contains("//")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entity(name: &str) -> EntityName {
        entity_named(name).unwrap()
    }

    #[test]
    fn every_form_of_an_address_means_the_same() {
        for address in [
            "orders",
            "/orders",
            "Orders/",
            "sb://localhost/orders",
            "sb://localhost:5672/ORDERS",
            "amqps://host:5671/orders",
            "%6Frders",
            "https://localhost/Orders?api-version=2021-05&enrich=",
        ] {
            assert_eq!(
                node_at(address),
                Some(Node::Entity(entity("orders"))),
                "{address}"
            );
        }
        let management = Some(Node::Management(entity("a/b/$deadletterqueue")));
        assert_eq!(
            node_at("sb://h/a%2Fb/$DeadLetterQueue/$management"),
            management
        );
        assert_eq!(node_at("$cbs"), Some(Node::Tokens));
        assert_eq!(node_at("amqp://host/$cbs"), Some(Node::Tokens));
        assert!(node_at("q/$Transfer/$DeadLetterQueue").is_some());
    }

    #[test]
    fn a_subscription_has_a_topic() {
        let topic_of = |name: &str| topic_of(&entity(name)).map(|topic| topic.name);
        assert_eq!(topic_of("t/subscriptions/s"), Some("t".into()));
        assert_eq!(topic_of("a/b/subscriptions/s.1"), Some("a/b".into()));
        let name = format!("t/subscriptions/{}", "s".repeat(50));
        assert_eq!(topic_of(&name), Some("t".into()));
        for name in [
            "t",
            "t/subscriptions",
            "subscriptions/s",
            "t/subscriptions/s/rules/r",
            "t/subscriptions/s/subscriptions/r",
            "t/subscriptions/s/$deadletterqueue",
            &format!("{name}s"),
        ] {
            assert_eq!(topic_of(name), None, "{name}");
        }
        let node = node_at("sb://h/T/Subscriptions/S/$DeadLetterQueue");
        let dead = entity("t/subscriptions/s/$deadletterqueue");
        assert_eq!(node, Some(Node::Entity(dead)));
    }

    #[test]
    fn paths_of_subscriptions_are_no_names_of_new_entities() {
        for (name, says) in [
            ("t/subscriptions/s", "contains '/subscriptions/'"),
            ("a/subscriptions/b/c", "contains '/subscriptions/'"),
            ("a/t/subscriptions", "list of subscriptions of 'a/t'"),
        ] {
            let why = why_reserved(name).unwrap();
            assert!(why.contains(says), "{why}");
        }
        for name in [
            "subscriptions",
            "subscriptions/s",
            "t/my-subscriptions",
            "t/subscriptionss",
        ] {
            assert_eq!(why_reserved(name), None, "{name}");
        }
    }

    #[test]
    fn impossible_names_are_no_queue() {
        let long = "a".repeat(261);
        for address in [
            "",
            "/",
            "$management",
            "q/$x",
            "q/$Transfer",
            "-q",
            "a b",
            "a//b",
            &long,
        ] {
            assert_eq!(node_at(address), None, "{address}");
        }
    }
}
