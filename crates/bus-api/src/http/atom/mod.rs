//! Management by ATOM documents: queues, topics and subscriptions, their settings, authorization
//! rules and counts, and the namespace.
//!
//! - `entity`: operations on one of them; `list`: pages of them; `namespace`: information on the
//!   namespace;
//! - `asked`: a description in a request; `settings`: the settings that result from it; `forward`:
//!   whether its destinations are allowed;
//! - `described`: a description in an answer; `rules`: authorization rules, both ways;
//! - `version`: what a version of the interface supports;
//! - `document`: entries, feeds and links around them.
//!
//! Rules of subscriptions are not supported yet: requests about them are refused.
//!
//! Source: Service Bus, *Resource Provider REST API* (ATOM), and what its SDKs read and write.

mod asked;
mod described;
mod document;
mod entity;
mod forward;
mod list;
mod namespace;
mod rules;
mod settings;
mod version;

use std::sync::Arc;

use hyper::header::{ALLOW, HeaderValue};
use hyper::{Method, StatusCode};
use kew_engine::EntityName;
use kew_engine::bus::EntityKind;

use super::answers::AnswerRoom;
use super::answers::{Answer, HttpError};
use super::call::Call;
use super::service::HttpService;
use crate::authorization::operation::HttpOperation;
use crate::ground::address::{
    SUBSCRIPTIONS, SUBSCRIPTIONS_LIST, entity_named, is_queue_name, topic_of,
};
use crate::ground::lookup::{is_there, kind_of};
use crate::shared::Shared;

/// What the paths of lists begin with, in lower case.
const LISTS: &str = "$resources/";
/// About the largest size of an entry: with all rules that a queue can have.
const ENTRY_SIZE_BYTES: usize = 64 << 10;

/// Answers a request as soon as there is room for the answer. Before that it does nothing. An
/// operation that changes something must run to its end.
pub(super) async fn answer(service: &HttpService, call: &Call) -> Result<Answer, HttpError> {
    let path = call.head.path.to_lowercase();
    let room = match is_list(&path) {
        true => AnswerRoom::of_page(service).await?,
        false => AnswerRoom::of(service, ENTRY_SIZE_BYTES).await?,
    };
    Ok(room.hold_body(route(&service.shared, call, &path).await?))
}

/// Whether the answer for a path in lower case may be a page of entries.
fn is_list(path: &str) -> bool {
    path.starts_with(LISTS) || path.ends_with(SUBSCRIPTIONS_LIST)
}

async fn route(shared: &Arc<Shared>, call: &Call, path: &str) -> Result<Answer, HttpError> {
    let method = &call.head.method;
    if path == "$namespaceinfo" {
        return match *method {
            Method::GET => namespace::read(shared, call),
            _ => Ok(not_allowed(path, "GET")),
        };
    }
    if let Some(kind) = path.strip_prefix(LISTS) {
        return match *method {
            Method::GET => list::read(shared, call, kind).await,
            _ => Ok(not_allowed(path, "GET")),
        };
    }
    if let Some(subscription) = subscription_of_rules(path) {
        // Only a caller with this right learns whether there is such a subscription.
        call.require(HttpOperation::ReadQueue, path)?;
        if is_there(&shared.broker, subscription).await? {
            return Err(HttpError::bad_request(asked::RULES_NOT_SUPPORTED));
        }
    }
    match *method {
        Method::GET => match topic_of_list(shared, call, path).await? {
            Some(topic) => list::subscriptions(shared, call, topic).await,
            None => entity::read(shared, call).await,
        },
        Method::PUT => entity::put(shared, call).await,
        Method::DELETE => entity::delete(shared, call).await,
        _ => Ok(not_allowed(path, "GET, PUT, DELETE")),
    }
}

/// The subscription of a path of its rules: `topic/subscriptions/name/rules`, or one of them. The topic may have `/rules`
/// in its name, and the subscription has no slash.
fn subscription_of_rules(path: &str) -> Option<EntityName> {
    let (topic, rest) = path.split_once(SUBSCRIPTIONS)?;
    let (name, rest) = rest.split_once('/')?;
    let is_of_rules = rest == "rules" || rest.starts_with("rules/");
    let subscription = format!("{topic}{SUBSCRIPTIONS}{name}");
    let entity = entity_named(&subscription).filter(|_| is_of_rules)?;
    topic_of(&entity).map(|_| entity)
}

/// The topic whose subscriptions a path lists. A queue may have such a name: then there is no such topic.
async fn topic_of_list(
    shared: &Shared,
    call: &Call,
    path: &str,
) -> Result<Option<EntityName>, HttpError> {
    let Some(name) = path.strip_suffix(SUBSCRIPTIONS_LIST) else {
        return Ok(None);
    };
    let Some(topic) = entity_named(name).filter(|_| is_queue_name(name)) else {
        return Ok(None);
    };
    call.require(HttpOperation::ListEntities, path)?;
    Ok(match kind_of(&shared.broker, topic.clone()).await? {
        Some(EntityKind::Topic) => Some(topic),
        Some(EntityKind::Queue | EntityKind::Subscription) | None => None,
    })
}

/// The path has other methods.
fn not_allowed(path: &str, methods: &'static str) -> Answer {
    let detail = format!("The specified HTTP verb is not valid here: use {methods}.");
    let answer = HttpError::new(StatusCode::METHOD_NOT_ALLOWED, detail);
    let mut answer = answer.tracked(path).into_answer();
    let headers = answer.headers_mut();
    headers.insert(ALLOW, HeaderValue::from_static(methods));
    answer
}

impl From<kew_xml::Error> for HttpError {
    fn from(error: kew_xml::Error) -> Self {
        Self::bad_request(format!("The request body is not valid: {error}."))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_take_the_room_of_a_page() {
        for path in [
            "$resources/queues",
            "$resources/topics",
            "a/t/subscriptions",
        ] {
            assert!(is_list(path), "{path}");
        }
        for path in [
            "q",
            "t/subscriptions/s",
            "subscriptions",
            "t/subscriptions/s/rules",
        ] {
            assert!(!is_list(path), "{path}");
        }
    }

    #[test]
    fn rules_come_behind_their_subscription() {
        let of = |path: &str| subscription_of_rules(path).map(|it| it.name);
        for path in [
            "t/subscriptions/s/rules",
            "t/subscriptions/s/rules/r",
            "a/rules-in/subscriptions/s/rules",
            "rules/subscriptions/rules/rules/rules",
        ] {
            let cut = path.split_inclusive('/').collect::<Vec<_>>();
            let at = cut.iter().position(|it| *it == "subscriptions/").unwrap();
            let subscription = cut[..at + 2].concat();
            assert_eq!(
                of(path).as_deref(),
                Some(subscription.trim_end_matches('/'))
            );
        }
        for path in [
            "t/rules",
            "t/subscriptions/s",
            "t/subscriptions/s/rulesets",
            "t/subscriptions/s/x/rules",
            "t/subscriptions/-/rules",
        ] {
            assert_eq!(of(path), None, "{path}");
        }
    }
}
