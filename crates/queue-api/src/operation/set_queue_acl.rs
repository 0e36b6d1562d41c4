//! Set Queue ACL.

use hyper::StatusCode;
use kew_engine::storage::{StorageCommand, StorageOutcome};
use kew_engine::{Command, Outcome};

use super::RequestBody;
use crate::error::Error;
use crate::policies;
use crate::reply::Reply;
use crate::request::Request;

/// Replaces all of a queue's access policies with those in the body: 204. An empty list removes
/// them.
///
/// Source: *Set Queue ACL*; in Azure a change may take half a minute, in Kew it takes effect at
/// once.
pub(super) async fn run(request: &Request<'_>, body: RequestBody) -> Result<Reply, Error> {
    let command = Command::Storage(StorageCommand::SetQueuePolicies {
        queue: request.queue()?,
        policies: policies::parse(&body?)?,
    });
    match request.submit(command).await?.outcome {
        Outcome::Storage(StorageOutcome::QueuePoliciesSet) => {
            Ok(Reply::empty(StatusCode::NO_CONTENT))
        }
        other => Err(request.unexpected(&other)),
    }
}
