//! Management by ATOM documents: queues, their settings, rules and counts, and the namespace.
//!
//! - `queue`: operations on one queue; `list`: pages of queues; `namespace`: information on the
//!   namespace;
//! - `asked`: a description in a request; `settings`: the settings that result from it; `forward`:
//!   whether its destinations are allowed;
//! - `described`: a description in an answer; `rules`: authorization rules, both ways;
//! - `version`: what a version of the interface supports;
//! - `document`: entries, feeds and links around them.
//!
//! Topics, subscriptions and their rules are not supported: creating one is refused, and lists of
//! them are empty.
//!
//! Source: Service Bus, *Resource Provider REST API* (ATOM), and what its SDKs read and write.

mod asked;
mod described;
mod document;
mod forward;
mod list;
mod namespace;
mod queue;
mod rules;
mod settings;
mod version;

use std::sync::Arc;

use hyper::header::{ALLOW, HeaderValue};
use hyper::{Method, StatusCode};

use super::answers::AnswerRoom;
use super::answers::{Answer, HttpError};
use super::call::Call;
use super::service::HttpService;
use crate::shared::Shared;

/// What the paths of lists begin with, in lower case.
const LISTS: &str = "$resources/";
/// About the largest size of an entry: with all rules that a queue can have.
const ENTRY_SIZE_BYTES: usize = 64 << 10;

/// Answers a request as soon as there is room for the answer. Before that it does nothing. An
/// operation that changes something must run to its end.
pub(super) async fn answer(service: &HttpService, call: &Call) -> Result<Answer, HttpError> {
    let path = call.head.path.to_lowercase();
    let room = match path.starts_with(LISTS) {
        true => AnswerRoom::of_page(service).await?,
        false => AnswerRoom::of(service, ENTRY_SIZE_BYTES).await?,
    };
    Ok(room.hold_body(route(&service.shared, call, &path).await?))
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
    match *method {
        Method::GET => queue::read(shared, call).await,
        Method::PUT => queue::put(shared, call).await,
        Method::DELETE => queue::delete(shared, call).await,
        _ => Ok(not_allowed(path, "GET, PUT, DELETE")),
    }
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
