//! Two checks that need no credential: is the process alive, and can it serve?

use hyper::http::request::Parts;
use hyper::{Method, StatusCode};
use kew_broker::Broker;

use crate::reply::Reply;

/// Answers `GET /health/live` and `GET /health/ready`, and nothing else.
///
/// The paths would also name the queues `live` and `ready` of an account `health`. But a read of a
/// queue has a query, and these have none.
pub(crate) fn answer(broker: &Broker, head: &Parts) -> Option<Reply> {
    if !matches!(head.method, Method::GET | Method::HEAD) || head.uri.query().is_some() {
        return None;
    }
    let reply = match head.uri.path() {
        "/health/live" => Reply::text(StatusCode::OK, "live\n"),
        "/health/ready" if broker.is_ready() => Reply::text(StatusCode::OK, "ready\n"),
        "/health/ready" => Reply::text(StatusCode::SERVICE_UNAVAILABLE, "not ready\n"),
        _ => return None,
    };
    Some(reply.with_no_cache())
}
