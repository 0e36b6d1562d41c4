//! Set Queue Metadata.

use hyper::StatusCode;
use kew_engine::storage::{StorageCommand, StorageOutcome};
use kew_engine::{Command, Outcome};

use super::RequestBody;
use crate::error::Error;
use crate::reply::Reply;
use crate::request::Request;

/// Replaces all of a queue's metadata with that in the headers: 204.
///
/// Source: *Set Queue Metadata*.
pub(super) async fn run(request: &Request<'_>, body: RequestBody) -> Result<Reply, Error> {
    let command = Command::Storage(StorageCommand::SetQueueMetadata {
        queue: request.queue()?,
        metadata: request.metadata()?,
    });
    body?;
    match request.submit(command).await?.outcome {
        Outcome::Storage(StorageOutcome::QueueMetadataSet) => {
            Ok(Reply::empty(StatusCode::NO_CONTENT))
        }
        other => Err(request.unexpected(&other)),
    }
}
