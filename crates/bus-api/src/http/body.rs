//! The body of a request.

use bytes::Bytes;
use hyper::StatusCode;
use hyper::body::Incoming;
use hyper::header::HeaderMap;
use kew_http_front::{BodyError, Connection, Front};

use super::answers::HttpError;

/// Reads a body to its end, as long as there is room for it. The bytes keep their room.
///
/// Refuses with 413 a body above the limit, before reading it if its length is known. Refuses with 408 a body that
/// does not arrive in time, and with 503 a body for which there is no room.
pub(super) async fn read(
    body: Incoming,
    headers: &HeaderMap,
    front: &Front,
) -> (Result<Bytes, HttpError>, Connection) {
    let limits = &front.limits.body;
    let read = kew_http_front::read(body, headers, limits, front.budget.share()).await;
    let result = match read.result {
        Ok(bytes) => Ok(read.share.hold(bytes)),
        Err(BodyError::TooLarge) => {
            let detail = format!("the body is larger than {} bytes", limits.size_bytes_max);
            Err(HttpError::new(StatusCode::PAYLOAD_TOO_LARGE, detail))
        }
        Err(BodyError::NoRoom) => Err(HttpError::no_room()),
        Err(BodyError::TooSlow) => {
            let seconds = limits.timeout.as_secs();
            let detail = format!("the body did not arrive within {seconds} s");
            Err(HttpError::new(StatusCode::REQUEST_TIMEOUT, detail))
        }
        Err(BodyError::Broken(why)) => Err(HttpError::bad_request(format!(
            "the body was cut off or is malformed: {why}"
        ))),
    };
    (result, read.connection)
}
