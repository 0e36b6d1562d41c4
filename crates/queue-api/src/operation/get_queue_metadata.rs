//! Get Queue Metadata.

use hyper::StatusCode;
use hyper::header::{HeaderName, HeaderValue};
use kew_engine::storage::{StorageCommand, StorageOutcome};
use kew_engine::{Command, Outcome};

use super::RequestBody;
use crate::error::Error;
use crate::metadata;
use crate::reply::Reply;
use crate::request::Request;

const X_MS_APPROXIMATE_MESSAGES_COUNT: HeaderName =
    HeaderName::from_static("x-ms-approximate-messages-count");

/// Answers, in headers, with a queue's metadata and its number of messages, including hidden ones:
/// 200.
///
/// Source: *Get Queue Metadata*.
pub(super) async fn run(request: &Request<'_>, body: RequestBody) -> Result<Reply, Error> {
    let queue = request.queue()?;
    body?;
    match request
        .submit(Command::Storage(StorageCommand::ReadQueue { queue }))
        .await?
        .outcome
    {
        Outcome::Storage(StorageOutcome::Queue(view)) => {
            let mut reply = Reply::empty(StatusCode::OK).with_no_cache();
            let headers = reply.headers_mut();
            let count = HeaderValue::from(view.approximate_message_count);
            headers.insert(X_MS_APPROXIMATE_MESSAGES_COUNT, count);
            let spellings = metadata::to_headers(&view.metadata, headers);
            Ok(reply.with_spellings(spellings))
        }
        other => Err(request.unexpected(&other)),
    }
}
