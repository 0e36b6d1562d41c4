//! Get Queue ACL.

use kew_engine::storage::{StorageCommand, StorageOutcome};
use kew_engine::{Command, Outcome};

use super::RequestBody;
use crate::error::Error;
use crate::policies;
use crate::reply::Reply;
use crate::request::Request;

/// Answers with a queue's access policies: 200, also if it has none.
///
/// Source: *Get Queue ACL*.
pub(super) async fn run(request: &Request<'_>, body: RequestBody) -> Result<Reply, Error> {
    let queue = request.queue()?;
    body?;
    match request
        .submit(Command::Storage(StorageCommand::ReadQueue { queue }))
        .await?
        .outcome
    {
        Outcome::Storage(StorageOutcome::Queue(view)) => {
            request.reply(policies::document(&view.policies))
        }
        other => Err(request.unexpected(&other)),
    }
}
