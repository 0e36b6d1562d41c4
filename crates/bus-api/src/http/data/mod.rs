//! Messages over HTTP.
//!
//! Source: Service Bus, REST API, run-time operations. As there, it has no sessions, no deferral and no
//! explicit dead-lettering; dead letters are read at `…/$DeadLetterQueue/messages/head`.

mod broker_properties;
mod receive;
mod send;
mod settle;
mod values;

use bytes::Bytes;
use hyper::Method;
use kew_engine::EntityName;
use kew_engine::bus::ReceiveMode;

pub(super) use broker_properties::id_text;
pub(super) use send::property;
pub(super) use values::{read as read_value, uuid_text};

use super::answer::{Answer, HttpError};
use super::call::Call;
use crate::address::entity_named;
use crate::api::Shared;
use crate::operation::HttpOperation;
use settle::Act;

/// The header with the properties that are the service's own.
const PROPERTIES_HEADER: &str = "brokerproperties";

/// Headers of requests that are no properties of the message, besides those of [`is_custom`].
const NOT_CUSTOM: [&str; 37] = [
    "accept",
    "accept-charset",
    "accept-encoding",
    "accept-language",
    "authorization",
    "cache-control",
    "connection",
    "content-disposition",
    "content-encoding",
    "content-language",
    "content-length",
    "content-location",
    "content-md5",
    "content-range",
    "content-type",
    "cookie",
    "date",
    "expect",
    "forwarded",
    "from",
    "host",
    "keep-alive",
    "location",
    "max-forwards",
    "origin",
    "pragma",
    "proxy-authorization",
    "proxy-connection",
    "range",
    "referer",
    "servicebusauthorization",
    "set-cookie",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "user-agent",
];

/// Whether a header, in lower case, is a property of the message that comes with it: not if HTTP, the
/// service, a proxy or a browser gives it a meaning of its own.
pub fn is_custom(header: &str) -> bool {
    let is_prefixed = [
        "if-",
        "sec-",
        "x-forwarded-",
        "x-ms-",
        "access-control-",
        "www-",
    ];
    header != PROPERTIES_HEADER
        && header != "via"
        && !NOT_CUSTOM.contains(&header)
        && !is_prefixed.iter().any(|prefix| header.starts_with(prefix))
}

/// Answers a request for which the route is this.
pub(super) async fn answer(shared: &Shared, mut call: Call) -> Result<Answer, HttpError> {
    let path = call.head.path.clone();
    let (before, last) = path.rsplit_once('/').unwrap_or(("", &path));
    if last.eq_ignore_ascii_case("messages") {
        let queue = entity(shared, &call, before, HttpOperation::SendMessage).await?;
        return send::send(shared, &call, queue).await;
    }
    // Nothing else is said in a body, and a receive may wait for long.
    call.body = Bytes::new();
    let call = &call;
    let (before, message) = before.rsplit_once('/').unwrap_or(("", before));
    if message.eq_ignore_ascii_case("messages") {
        let (operation, mode) = match call.head.method {
            Method::DELETE => (
                HttpOperation::ReceiveAndDelete,
                ReceiveMode::ReceiveAndDelete,
            ),
            Method::POST => (HttpOperation::PeekLock, ReceiveMode::PeekLock),
            _ => return Err(HttpError::not_found(&path)),
        };
        let queue = entity(shared, call, before, operation).await?;
        return receive::receive(shared, call, queue, mode).await;
    }
    let (before, _) = before.rsplit_once('/').unwrap_or(("", before));
    let (operation, act) = match call.head.method {
        Method::DELETE => (HttpOperation::DeleteMessage, Act::Complete),
        Method::PUT => (HttpOperation::UnlockMessage, Act::Abandon),
        Method::POST => (HttpOperation::RenewLock, Act::Renew),
        _ => return Err(HttpError::not_found(&path)),
    };
    let queue = entity(shared, call, before, operation).await?;
    settle::settle(shared, queue, act, message, last).await
}

/// The entity of a path, if the caller may do this with it.
async fn entity(
    shared: &Shared,
    call: &Call,
    path: &str,
    operation: HttpOperation,
) -> Result<EntityName, HttpError> {
    let lower = path.to_lowercase();
    call.require_of(shared, operation, &lower).await?;
    entity_named(&lower).ok_or_else(|| HttpError::not_found(path))
}
