//! Get Queue Service Properties.

use super::RequestBody;
use crate::error::Error;
use crate::reply::Reply;
use crate::request::Request;

/// Answers with the properties of the account's queue service, or their defaults: 200.
///
/// Source: *Get Queue Service properties*.
pub(super) async fn run(request: &Request<'_>, body: RequestBody) -> Result<Reply, Error> {
    body?;
    let properties = request.properties().await?;
    request.reply(properties.document(request.version))
}
