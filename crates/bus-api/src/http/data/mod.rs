//! Messages over HTTP.
//!
//! Source: Service Bus, REST API, run-time operations. As in Azure, it has no sessions, no deferral
//! and no explicit dead-lettering; dead letters are read at `…/$DeadLetterQueue/messages/head`.

mod broker_properties;
mod headers;
mod receive;
mod send;
mod settle;
mod values;

use bytes::Bytes;
use hyper::Method;
use kew_engine::EntityName;
use kew_engine::bus::ReceiveMode;

pub(super) use broker_properties::id_text;
pub use headers::is_custom;
pub(super) use send::property;
pub(super) use values::read as read_value;

use super::answers::{Answer, HttpError};
use super::call::Call;
use super::service::HttpService;
use crate::authorization::operation::HttpOperation;
use crate::ground::address::entity_named;
use crate::shared::Shared;
use settle::Act;

/// Answers a request with this route.
pub(super) async fn answer(service: &HttpService, mut call: Call) -> Result<Answer, HttpError> {
    let shared = &*service.shared;
    let path = call.head.path.clone();
    let (before, last) = path.rsplit_once('/').unwrap_or(("", &path));
    if last.eq_ignore_ascii_case("messages") {
        let queue = entity(shared, &call, before, HttpOperation::SendMessage).await?;
        return send::send(shared, &call, queue).await;
    }
    // The body is not needed any more, and a receive may wait for long.
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
        return receive::receive(service, call, queue, mode).await;
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

/// The entity of a path, if the caller has this right on it.
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
