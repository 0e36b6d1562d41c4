//! Management by ATOM documents: queues, topics and subscriptions with their settings, authorization
//! rules and counts, rules of subscriptions, and the namespace.
//!
//! - `entity`: operations on one of them; `list`: pages of them; `namespace`: information on the
//!   namespace;
//! - `asked`: a description in a request; `settings`: the settings that result from it; `forward`:
//!   whether its destinations are allowed;
//! - `described`: a description in an answer; `rules`: authorization rules, both ways;
//! - `subscription_rules`: rules of subscriptions;
//! - `version`: what a version of the interface supports;
//! - `document`: entries, feeds and links around them.
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
mod subscription_rules;
mod version;

use std::sync::Arc;

use hyper::header::{ALLOW, HeaderValue};
use hyper::{Method, StatusCode};
use kew_engine::bus::EntityKind;
use kew_engine::{EntityName, SUBSCRIPTIONS_LIST};

use self::subscription_rules::RulePath;
use super::answers::AnswerRoom;
use super::answers::{Answer, HttpError};
use super::call::Call;
use super::service::HttpService;
use crate::authorization::operation::HttpOperation;
use crate::ground::address::{entity_named, is_queue_name};
use crate::ground::lookup::{is_queue, kind_of};
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
    path.starts_with(LISTS)
        || path.ends_with(SUBSCRIPTIONS_LIST)
        || RulePath::of(path).is_some_and(|it| it.rule.is_none())
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
    if let Some(rules) = RulePath::of(&call.head.path)
        && is_of_subscription(shared, call, &rules).await?
    {
        return subscription_rules::answer(shared, call, rules).await;
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

/// Whether a path of rules is one. A queue may have such a name: then there is no such subscription.
async fn is_of_subscription(
    shared: &Shared,
    call: &Call,
    rules: &RulePath,
) -> Result<bool, HttpError> {
    // Only a caller with the right learns whether there is such a subscription.
    let operation = rules.operation(&call.head.method);
    call.require(
        operation.unwrap_or(HttpOperation::ReadQueue),
        &call.head.path,
    )?;
    let broker = &shared.broker;
    if kind_of(broker, rules.subscription.clone()).await? == Some(EntityKind::Subscription) {
        return Ok(true);
    }
    match is_queue(broker, &call.head.path.to_lowercase()).await? {
        true => Ok(false),
        false => Err(HttpError::not_found(&rules.subscription.name)),
    }
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
            "t/subscriptions/s/rules",
        ] {
            assert!(is_list(path), "{path}");
        }
        for path in [
            "q",
            "t/subscriptions/s",
            "subscriptions",
            "t/subscriptions/s/rules/r",
        ] {
            assert!(!is_list(path), "{path}");
        }
    }
}
