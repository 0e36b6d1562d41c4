//! `GET /health`, as the emulator answers it.

use hyper::StatusCode;

use super::answer::{Answer, with_body};
use crate::api::Shared;

pub(super) fn answer(shared: &Shared) -> Answer {
    let (status, body) = if shared.broker.is_ready() {
        (
            StatusCode::OK,
            r#"{"status":"healthy","message":"Service is healthy."}"#,
        )
    } else {
        (
            StatusCode::SERVICE_UNAVAILABLE,
            r#"{"status":"unhealthy","message":"The server cannot take messages now."}"#,
        )
    };
    with_body(status, "application/json; charset=utf-8", body)
}
