//! The body of a request.

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use hyper::StatusCode;
use hyper::body::{Body as _, Incoming};
use tokio::time::timeout;

use super::answer::HttpError;
use super::room::Share;
use crate::ground::limits::Limits;

/// Reads a body to its end, as long as there is room for it.
///
/// Refuses with 413 what is above the limit, before it is read if its length was told, with 408 what
/// does not come in time, and with 503 what finds no room.
pub(super) async fn read(
    body: Incoming,
    share: Share,
    limits: &Limits,
) -> Result<Bytes, HttpError> {
    let patience = limits.http_body_timeout;
    match timeout(
        patience,
        collect(body, share, limits.http_body_size_bytes_max),
    )
    .await
    {
        Ok(read) => read,
        Err(_) => {
            let seconds = patience.as_secs();
            let detail = format!("the body did not come within {seconds} s");
            Err(HttpError::new(StatusCode::REQUEST_TIMEOUT, detail))
        }
    }
}

async fn collect(
    mut body: Incoming,
    mut share: Share,
    size_bytes_max: usize,
) -> Result<Bytes, HttpError> {
    let too_large = || {
        let detail = format!("the body is larger than {size_bytes_max} bytes");
        HttpError::new(StatusCode::PAYLOAD_TOO_LARGE, detail)
    };
    if body.size_hint().lower() > size_bytes_max as u64 {
        return Err(too_large());
    }
    let mut collected = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame
            .map_err(|error| HttpError::bad_request(format!("the body broke off: {error}")))?;
        // Trailers say nothing that is asked for.
        let Ok(data) = frame.into_data() else {
            continue;
        };
        let size_bytes = collected.len().saturating_add(data.len());
        if size_bytes > size_bytes_max {
            return Err(too_large());
        }
        share.cover(size_bytes)?;
        collected.extend_from_slice(&data);
    }
    Ok(share.hold(collected.freeze()))
}
