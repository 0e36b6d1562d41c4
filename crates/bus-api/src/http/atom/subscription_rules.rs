//! The rules of a subscription: list, read, add, replace, remove.

use hyper::{Method, StatusCode};
use kew_engine::bus::{BusCommand, BusOutcome, BusQueueView, BusRuleView};
use kew_engine::{EntityName, Outcome, SUBSCRIPTIONS};
use kew_filter::Definition;
use kew_xml::put_element;

use bytes::BytesMut;

use super::asked::described_in;
use super::described::Described;
use super::document::{CONTENT_NAMESPACES, Entry, Feed, close, open};
use super::{entity, list, not_allowed};
use crate::authorization::operation::HttpOperation;
use crate::definitions::{BadRule, atom};
use crate::ground::address::{entity_named, topic_of};
use crate::ground::lookup::{RULES_SIZE_BYTES_MAX, rules_of};
use crate::ground::submit::Submitted;
use crate::http::answers::times::rfc3339;
use crate::http::answers::{Answer, HttpError, answer_of};
use crate::http::call::Call;
use crate::shared::Shared;

/// The element that describes a rule.
pub(super) const DESCRIPTION: &str = "RuleDescription";

/// What a path of rules names.
#[derive(Debug)]
pub(super) struct RulePath {
    topic: EntityName,
    pub(super) subscription: EntityName,
    /// The rule, as it is spelled. `None` in the path of the list.
    pub(super) rule: Option<String>,
}

impl RulePath {
    /// Of a path `topic/subscriptions/name/rules`, or one of them. The topic may have `/rules` in its name, and the
    /// subscription has no slash.
    pub(super) fn of(path: &str) -> Option<Self> {
        let segments: Vec<&str> = path.split('/').collect();
        let mut behind = segments.iter().skip(1);
        let at = behind.position(|it| it.eq_ignore_ascii_case("subscriptions"))?;
        let (topic, rest) = segments.split_at_checked(at + 1)?;
        let [_, name, rules, rule @ ..] = rest else {
            return None;
        };
        let subscription = format!("{}{SUBSCRIPTIONS}{name}", topic.join("/")).to_lowercase();
        let subscription = entity_named(&subscription)?;
        let topic = topic_of(&subscription)?;
        rules.eq_ignore_ascii_case("rules").then(|| Self {
            topic,
            subscription,
            rule: (!rule.is_empty()).then(|| rule.join("/")),
        })
    }

    /// The right that a request needs, if it has a method for this path.
    pub(super) fn operation(&self, method: &Method) -> Option<HttpOperation> {
        match (method, &self.rule) {
            (&Method::GET, None) => Some(HttpOperation::ListEntities),
            (&Method::GET, Some(_)) => Some(HttpOperation::ReadQueue),
            // Go creates a rule without a name at the path of the list.
            (&Method::PUT, _) => Some(HttpOperation::PutQueue),
            (&Method::DELETE, Some(_)) => Some(HttpOperation::DeleteQueue),
            _ => None,
        }
    }
}

/// Answers a request whose right was checked. The subscription was there before.
pub(super) async fn answer(
    shared: &Shared,
    call: &Call,
    path: RulePath,
) -> Result<Answer, HttpError> {
    let RulePath {
        topic,
        subscription,
        rule,
    } = path;
    match (&call.head.method, rule) {
        (&Method::GET, None) => all(shared, call, subscription).await,
        (&Method::GET, Some(rule)) => {
            let view = entity::view_of(shared, subscription.clone()).await?;
            let read = BusCommand::ReadRule {
                subscription,
                name: rule.into(),
            };
            one(call, &view, StatusCode::OK, &ruled(shared, read).await?)
        }
        (&Method::PUT, rule) => {
            let view = entity::view_of(shared, subscription.clone()).await?;
            let is_update = entity::is_update(call)?;
            let rule = Box::new(asked(&call.body, rule.as_deref())?);
            let (status, put) = match is_update {
                true => (
                    StatusCode::OK,
                    BusCommand::SetRule {
                        topic,
                        subscription,
                        rule,
                    },
                ),
                false => (
                    StatusCode::CREATED,
                    BusCommand::AddRule {
                        topic,
                        subscription,
                        rule,
                    },
                ),
            };
            one(call, &view, status, &ruled(shared, put).await?)
        }
        (&Method::DELETE, Some(rule)) => {
            let remove = BusCommand::RemoveRule {
                topic,
                subscription,
                name: rule.into(),
            };
            Submitted::new(&shared.broker, remove).answer().await?;
            Ok(answer_of(StatusCode::OK))
        }
        (_, None) => Ok(not_allowed(&call.head.path, "GET, PUT")),
        (_, Some(_)) => Ok(not_allowed(&call.head.path, "GET, PUT, DELETE")),
    }
}

impl From<BadRule> for HttpError {
    fn from(why: BadRule) -> Self {
        Self::bad_request(format!("The rule is not valid: {why}."))
    }
}

/// The rule in the body of a request.
fn asked(body: &[u8], name: Option<&str>) -> Result<kew_engine::bus::NewRule, HttpError> {
    let entry = kew_xml::parse(body)?;
    let description = described_in(&entry)?;
    match description.local_name() {
        DESCRIPTION => Ok(atom::read(description, name)?),
        other => Err(HttpError::bad_request(format!(
            "The content of the entry is {other}, and must be {DESCRIPTION}."
        ))),
    }
}

async fn ruled(shared: &Shared, command: BusCommand) -> Result<BusRuleView, HttpError> {
    match Submitted::new(&shared.broker, command)
        .answer()
        .await?
        .outcome
    {
        Outcome::Bus(
            BusOutcome::Rule(view) | BusOutcome::RuleAdded(view) | BusOutcome::RuleReplaced(view),
        ) => Ok(view),
        _ => Err(HttpError::internal()),
    }
}

/// Source: Service Bus, *List Rules*; `$skip` and `$top` choose the page.
async fn all(shared: &Shared, call: &Call, subscription: EntityName) -> Result<Answer, HttpError> {
    let page = list::Page::of(call)?;
    let view = entity::view_of(shared, subscription.clone()).await?;
    let found = rules_of(
        &shared.broker,
        &subscription,
        page.skip,
        page.limit(),
        RULES_SIZE_BYTES_MAX,
    );
    let mut rules = found.await?.ok_or_else(HttpError::internal)?;
    let next = page.cut(&mut rules);
    let described = Described::of(&view);
    let mut feed = Feed::begin(call, "Rules", page.skip, page.top, next, list::now(shared));
    for rule in &rules {
        let definition = definition_of(rule)?;
        feed.entry(call, &entry(&described, rule), |out| {
            write(out, rule, &definition);
        });
    }
    Ok(feed.answer())
}

fn one(
    call: &Call,
    subscription: &BusQueueView,
    status: StatusCode,
    rule: &BusRuleView,
) -> Result<Answer, HttpError> {
    let definition = definition_of(rule)?;
    let described = Described::of(subscription);
    let entry = entry(&described, rule);
    Ok(entry.answer(call, status, |out| write(out, rule, &definition)))
}

/// JavaScript finds the name behind `/Rules/`, in this spelling.
fn entry<'a>(subscription: &Described<'_>, rule: &'a BusRuleView) -> Entry<'a> {
    Entry {
        title: &rule.name,
        path: format!("{}/Rules/{}", subscription.path(), rule.name).into(),
        published_at: rule.created_at,
        updated_at: rule.created_at,
    }
}

/// A later version may have written it.
fn definition_of(rule: &BusRuleView) -> Result<Definition, HttpError> {
    Definition::decode(&rule.definition).map_err(|error| {
        let detail = format!("The rule '{}' cannot be shown: {error}.", rule.name);
        HttpError::new(StatusCode::INTERNAL_SERVER_ERROR, detail)
    })
}

fn write(out: &mut BytesMut, rule: &BusRuleView, definition: &Definition) {
    open(out, DESCRIPTION, CONTENT_NAMESPACES);
    atom::write(out, definition);
    put_element(out, "CreatedAt", &rfc3339(rule.created_at));
    put_element(out, "Name", &rule.name);
    close(out, DESCRIPTION);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_come_behind_their_subscription() {
        for (path, subscription, rule) in [
            ("t/subscriptions/s/rules", "t/subscriptions/s", None),
            (
                "T/Subscriptions/S/Rules/Red",
                "t/subscriptions/s",
                Some("Red"),
            ),
            (
                "t/subscriptions/s/rules/a/b",
                "t/subscriptions/s",
                Some("a/b"),
            ),
            (
                "a/rules-in/subscriptions/s/rules",
                "a/rules-in/subscriptions/s",
                None,
            ),
            (
                "rules/subscriptions/rules/rules/rules",
                "rules/subscriptions/rules",
                Some("rules"),
            ),
            (
                "subscriptions/subscriptions/s/rules/$Default",
                "subscriptions/subscriptions/s",
                Some("$Default"),
            ),
        ] {
            let found = RulePath::of(path).unwrap();
            assert_eq!(&*found.subscription.name, subscription);
            assert_eq!(found.rule.as_deref(), rule);
            let topic = subscription.rsplit_once("/subscriptions/").unwrap().0;
            assert_eq!(&*found.topic.name, topic);
        }
        for path in [
            "t/rules",
            "t/subscriptions/s",
            "t/subscriptions/s/rulesets",
            "t/subscriptions/s/x/rules",
            "t/subscriptions/-/rules",
            "subscriptions/s/rules",
            "",
        ] {
            assert!(RulePath::of(path).is_none(), "{path}");
        }
    }
}
