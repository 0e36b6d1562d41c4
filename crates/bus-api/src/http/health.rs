//! `GET /health`, as the emulator answers it.

use hyper::StatusCode;
use kew_broker::Broker;

use super::answers::{Answer, with_body};

pub(super) fn answer(broker: &Broker) -> Answer {
    let (status, body) = if broker.is_ready() {
        (
            StatusCode::OK,
            r#"{"status":"healthy","message":"Service is healthy."}"#,
        )
    } else {
        (
            StatusCode::SERVICE_UNAVAILABLE,
            r#"{"status":"unhealthy","message":"The server cannot accept messages now."}"#,
        )
    };
    with_body(status, "application/json; charset=utf-8", body)
}
