//! Update Message.

use hyper::StatusCode;
use hyper::header::{HeaderName, HeaderValue};
use kew_engine::storage::{StorageCommand, StorageOutcome};
use kew_engine::{BodyEncoding, Command, Outcome, VisibilityTimeout};

use super::RequestBody;
use super::put_message::text_size_bytes_max;
use crate::error::Error;
use crate::reply::Reply;
use crate::request::Request;
use crate::{date, id, message_text, parameter};

const X_MS_POPRECEIPT: HeaderName = HeaderName::from_static("x-ms-popreceipt");
const X_MS_TIME_NEXT_VISIBLE: HeaderName = HeaderName::from_static("x-ms-time-next-visible");

/// Hides a message for a new time, counted from now, and may replace its text: 204 with the new pop
/// receipt and the end of that time.
///
/// `visibilitytimeout` is 0 s to 7 days and required. It may end after the message's expiry, as
/// Azure allows, although its documentation does not. Without a body the text stays; an empty
/// `MessageText` empties it.
///
/// Source: *Update Message*.
pub(super) async fn run(request: &Request<'_>, body: RequestBody) -> Result<Reply, Error> {
    let receipt = parameter::pop_receipt(&request.query)?;
    let bounds = 0..=VisibilityTimeout::SECONDS_MAX;
    let visibility_timeout = parameter::visibility_timeout(&request.query, bounds)?.ok_or(
        Error::MissingRequiredQueryParameter {
            name: "visibilitytimeout",
        },
    )?;
    let document = body?;
    let body = if document.is_empty() {
        None
    } else {
        let text = message_text::message_text(&document, text_size_bytes_max(request.version))?;
        Some((BodyEncoding::Text, text))
    };
    let (message, receipt) = request.held_message(receipt).await?;
    let command = Command::Storage(StorageCommand::Update {
        queue: request.queue()?,
        message,
        receipt,
        visibility_timeout,
        body,
    });
    match request.submit(command).await?.outcome {
        Outcome::Storage(StorageOutcome::Updated {
            receipt,
            visible_at,
        }) => {
            let mut reply = Reply::empty(StatusCode::NO_CONTENT);
            let headers = reply.headers_mut();
            for (name, value) in [
                (X_MS_POPRECEIPT, &id::pop_receipt(&receipt)[..]),
                (X_MS_TIME_NEXT_VISIBLE, &date::rfc1123(visible_at)),
            ] {
                let value = HeaderValue::from_bytes(value).map_err(|_| Error::InternalError)?;
                headers.insert(name, value);
            }
            Ok(reply)
        }
        other => Err(request.unexpected(&other)),
    }
}
