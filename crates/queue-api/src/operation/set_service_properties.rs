//! Set Queue Service Properties.

use hyper::StatusCode;

use super::RequestBody;
use crate::error::Error;
use crate::properties::Change;
use crate::reply::Reply;
use crate::request::Request;

/// Sets the properties of the account's queue service: 202. From 2013-08-15 on, properties that the
/// body leaves out stay unchanged.
///
/// Source: *Set Queue Service properties*.
pub(super) async fn run(request: &Request<'_>, body: RequestBody) -> Result<Reply, Error> {
    let change = Change::parse(&body?, request.version)?;
    request.change_properties(change).await?;
    Ok(Reply::empty(StatusCode::ACCEPTED))
}
