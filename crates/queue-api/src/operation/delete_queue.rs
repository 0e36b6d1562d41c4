//! Delete Queue.

use hyper::StatusCode;
use kew_engine::storage::{StorageCommand, StorageOutcome};
use kew_engine::{Command, Outcome};

use super::RequestBody;
use crate::error::Error;
use crate::reply::Reply;
use crate::request::Request;

/// Deletes a queue with everything in it: 204. Its name is free at once, unless an option reserves
/// it.
///
/// Source: *Delete Queue*; Azure reserves the name for half a minute.
pub(super) async fn run(request: &Request<'_>, body: RequestBody) -> Result<Reply, Error> {
    let queue = request.queue()?;
    body?;
    let command = Command::Storage(StorageCommand::DeleteQueue {
        queue: queue.clone(),
    });
    match request.submit(command).await?.outcome {
        Outcome::Storage(StorageOutcome::QueueDeleted) => {
            request.deletions().add(queue);
            Ok(Reply::empty(StatusCode::NO_CONTENT))
        }
        other => Err(request.unexpected(&other)),
    }
}
