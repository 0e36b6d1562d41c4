//! Clear Messages.

use hyper::StatusCode;
use kew_engine::storage::{StorageCommand, StorageOutcome};
use kew_engine::{Command, Outcome};

use super::RequestBody;
use crate::error::Error;
use crate::reply::Reply;
use crate::request::Request;

/// Deletes every message of a queue, including hidden ones: 204, also if there was none.
///
/// Source: *Clear Messages*.
pub(super) async fn run(request: &Request<'_>, body: RequestBody) -> Result<Reply, Error> {
    let queue = request.queue()?;
    body?;
    match request
        .submit(Command::Storage(StorageCommand::Clear { queue }))
        .await?
        .outcome
    {
        Outcome::Storage(StorageOutcome::Cleared) => Ok(Reply::empty(StatusCode::NO_CONTENT)),
        other => Err(request.unexpected(&other)),
    }
}
