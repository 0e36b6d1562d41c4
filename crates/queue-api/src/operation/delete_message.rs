//! Delete Message.

use hyper::StatusCode;
use kew_engine::storage::{StorageCommand, StorageOutcome};
use kew_engine::{Command, Outcome};

use super::RequestBody;
use crate::error::Error;
use crate::parameter;
use crate::reply::Reply;
use crate::request::Request;

/// Deletes the message that the latest pop receipt belongs to: 204.
///
/// Source: *Delete Message*.
pub(super) async fn run(request: &Request<'_>, body: RequestBody) -> Result<Reply, Error> {
    let receipt = parameter::pop_receipt(&request.query)?;
    body?;
    let (message, receipt) = request.held_message(receipt).await?;
    let command = Command::Storage(StorageCommand::Delete {
        queue: request.queue()?,
        message,
        receipt,
    });
    match request.submit(command).await?.outcome {
        Outcome::Storage(StorageOutcome::Deleted) => Ok(Reply::empty(StatusCode::NO_CONTENT)),
        other => Err(request.unexpected(&other)),
    }
}
