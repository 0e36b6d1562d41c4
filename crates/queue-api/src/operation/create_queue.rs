//! Create Queue.

use hyper::StatusCode;
use kew_engine::storage::{StorageCommand, StorageOutcome};
use kew_engine::{Command, Outcome};

use super::RequestBody;
use crate::error::Error;
use crate::reply::Reply;
use crate::request::Request;

/// Creates a queue with the metadata in the headers: 201, or 204 if it exists with the same
/// metadata. Refuses with `QueueBeingDeleted` while a deleted queue's name is reserved.
///
/// Source: *Create Queue*.
pub(super) async fn run(request: &Request<'_>, body: RequestBody) -> Result<Reply, Error> {
    let command = Command::Storage(StorageCommand::CreateQueue {
        queue: request.queue()?,
        metadata: request.metadata()?,
    });
    body?;
    if request.deletions().holds(&request.queue()?) {
        return Err(Error::QueueBeingDeleted);
    }
    match request.submit(command).await?.outcome {
        Outcome::Storage(StorageOutcome::QueueCreated) => Ok(Reply::empty(StatusCode::CREATED)),
        Outcome::Storage(StorageOutcome::QueueUnchanged) => {
            Ok(Reply::empty(StatusCode::NO_CONTENT))
        }
        other => Err(request.unexpected(&other)),
    }
}
