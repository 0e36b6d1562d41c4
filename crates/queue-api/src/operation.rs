//! The operations, a file each.
//!
//! Each checks its part of the query, the headers and the body, in this order, makes a command, and
//! turns the outcome into an answer.

mod clear_messages;
mod create_queue;
mod delete_message;
mod delete_queue;
mod get_messages;
mod get_queue_acl;
mod get_queue_metadata;
mod get_service_properties;
mod get_service_stats;
mod get_user_delegation_key;
mod list_queues;
mod message_list;
mod peek_messages;
mod preflight_request;
mod put_message;
mod set_queue_acl;
mod set_queue_metadata;
mod set_service_properties;
mod update_message;

use bytes::Bytes;

use crate::error::Error;
use crate::md5;
use crate::reply::Reply;
use crate::request::Request;
use crate::route::Operation;

/// The body of a request, or the error of reading it. Operations use it after their earlier checks.
/// Those without a body only report the error.
pub(crate) type RequestBody = Result<Bytes, Error>;

/// Carries out a request.
pub(crate) async fn run(request: &Request<'_>, body: RequestBody) -> Result<Reply, Error> {
    let body = body.and_then(|body| match request.headers.get("content-md5") {
        Some(stated) => md5::check(stated.as_bytes(), &body).map(|()| body),
        None => Ok(body),
    });
    match request.operation {
        Operation::ListQueues => list_queues::run(request, body).await,
        Operation::CreateQueue => create_queue::run(request, body).await,
        Operation::DeleteQueue => delete_queue::run(request, body).await,
        Operation::GetQueueMetadata => get_queue_metadata::run(request, body).await,
        Operation::SetQueueMetadata => set_queue_metadata::run(request, body).await,
        Operation::GetQueueAcl => get_queue_acl::run(request, body).await,
        Operation::SetQueueAcl => set_queue_acl::run(request, body).await,
        Operation::GetServiceProperties => get_service_properties::run(request, body).await,
        Operation::SetServiceProperties => set_service_properties::run(request, body).await,
        Operation::GetServiceStats => get_service_stats::run(request, body).await,
        Operation::PreflightRequest => preflight_request::run(request, body).await,
        Operation::PutMessage => put_message::run(request, body).await,
        Operation::GetMessages => get_messages::run(request, body).await,
        Operation::PeekMessages => peek_messages::run(request, body).await,
        Operation::ClearMessages => clear_messages::run(request, body).await,
        Operation::UpdateMessage => update_message::run(request, body).await,
        Operation::DeleteMessage => delete_message::run(request, body).await,
        Operation::GetUserDelegationKey => get_user_delegation_key::run(request, body),
    }
}
