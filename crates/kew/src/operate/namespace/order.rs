//! What lines of a namespace must be like before anything is sent: their content, and their order.

use std::collections::BTreeSet;

use super::definition::settings_of;
use super::rule::settings_of_rule;
use super::topic_definition::{settings_of_subscription, settings_of_topic};
use super::{Place, place_of};
use crate::operate::import::Content;
use crate::portable::{Line, Record};

/// Checks lines without a server.
#[derive(Debug, Default)]
pub(crate) struct NamespaceCheck(Order);

impl NamespaceCheck {
    /// Whether a line of Service Bus can be imported after those before it; or what is wrong with it.
    pub(crate) fn check(&mut self, line: &Line) -> Result<(), String> {
        self.0.entity(line)?;
        match line {
            Line::BusQueue(it) => settings_of(&it.definition).map(drop),
            Line::Topic(it) => settings_of_topic(&it.definition).map(drop),
            Line::Subscription(it) => settings_of_subscription(&it.definition).map(drop),
            Line::Rule(it) => settings_of_rule(it).map(drop),
            Line::SessionState(it) => it.state().map(drop),
            Line::Message(record) => {
                self.0.next(record)?;
                Content::of(record).map(drop)
            }
            Line::StorageQueue(_) | Line::End(_) => Ok(()),
        }
    }
}

/// The messages of a queue are together, and those of a place in it: an import receives the dead letters and the
/// deferred ones, and would receive others before them. The rules of a subscription follow its line: an import has to
/// know when they are all there.
#[derive(Debug, Default)]
pub(super) struct Order {
    last: Option<(String, Place)>,
    done: BTreeSet<String>,
    /// The topic and the subscription whose rules may come.
    ruled: Option<(String, String)>,
}

impl Order {
    /// Whether a definition may come after the lines before it.
    pub(super) fn entity(&mut self, line: &Line) -> Result<(), String> {
        let names = |topic: &str, name: &str| (topic.to_lowercase(), name.to_lowercase());
        match line {
            Line::Subscription(it) => self.ruled = Some(names(&it.topic, &it.subscription)),
            Line::Rule(it) if self.ruled == Some(names(&it.topic, &it.subscription)) => {}
            Line::Rule(it) => {
                return Err(format!(
                    "the rule {} does not follow the line of its subscription, or another rule of it",
                    it.rule
                ));
            }
            _ => self.ruled = None,
        }
        Ok(())
    }

    /// The queue and the place of the next message.
    pub(super) fn next<'a>(&mut self, record: &'a Record) -> Result<(&'a str, Place), String> {
        let (queue, place) = place_of(record)?;
        let name = queue.to_lowercase();
        match &self.last {
            Some((last, before)) if *last == name && *before > place => {
                return Err(format!(
                    "{} comes after {} of {queue}: the order is failed transfers, dead letters, deferred \
                     messages, other messages",
                    word(place),
                    word(*before)
                ));
            }
            Some((last, _)) if *last != name => {
                self.done.insert(last.clone());
            }
            Some(_) | None => {}
        }
        if self.done.contains(&name) {
            return Err(format!(
                "the messages of {queue} are not together: others are between them"
            ));
        }
        self.last = Some((name, place));
        Ok((queue, place))
    }
}

fn word(place: Place) -> &'static str {
    match place {
        Place::FailedTransfer => "a failed transfer",
        Place::DeadLetter => "a dead letter",
        Place::Deferred => "a deferred message",
        Place::Rest => "another message",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ordered(places: &[(&str, &str)]) -> Result<(), String> {
        let mut order = Order::default();
        places.iter().try_for_each(|(queue, state)| {
            let line = format!(
                r#"{{"version": 1, "service": "service-bus", "queue": "{queue}", "facts": {{"state": "{state}"}}}}"#
            );
            let record = Record::read(line.as_bytes()).unwrap();
            order.next(&record).map(drop)
        })
    }

    #[test]
    fn rules_follow_their_subscription() {
        let check = |lines: &[&str]| {
            let mut check = NamespaceCheck::default();
            lines.iter().try_for_each(|members| {
                let line = format!(
                    r#"{{"version": 1, "service": "service-bus", "topic": "t", {members}}}"#
                );
                check.check(&Line::read(line.as_bytes()).unwrap())
            })
        };
        let topic = r#""definition": {}"#;
        let subscription = r#""subscription": "s", "definition": {}"#;
        let rule = r#""subscription": "S", "rule": "r", "filter": "true""#;
        let other = r#""subscription": "x", "rule": "r", "filter": "true""#;
        let wrong = r#""subscription": "s", "rule": "r", "filter": {"sql": {"text": "a", "parameters": {"@a": 7}}}"#;
        assert_eq!(
            check(&[topic, subscription, rule, rule, subscription]),
            Ok(())
        );
        for (lines, named) in [
            (&[rule][..], "the rule r does not follow"),
            (&[subscription, other], "the rule r does not follow"),
            (&[subscription, topic, rule], "the rule r does not follow"),
            (&[subscription, wrong], "parameter @a"),
        ] {
            let error = check(lines).unwrap_err();
            assert!(error.contains(named), "{lines:?}: {error}");
        }
    }

    #[test]
    fn messages_are_in_the_order_in_which_they_can_be_put_back() {
        let dead = "a/$deadletterqueue";
        let right = [
            (dead, "active"),
            ("A", "deferred"),
            ("a", "active"),
            ("b", "active"),
        ];
        assert_eq!(ordered(&right), Ok(()));
        let error = ordered(&[("a", "active"), (dead, "active")]).unwrap_err();
        assert!(
            error.contains("a dead letter comes after another message of a"),
            "{error}"
        );
        assert!(ordered(&[("a", "active"), ("a", "deferred")]).is_err());
        let error = ordered(&[("a", "active"), ("b", "active"), ("a", "active")]).unwrap_err();
        assert!(error.contains("not together"), "{error}");
    }
}
