//! Preflight Queue Request.

use hyper::StatusCode;

use super::RequestBody;
use crate::cors;
use crate::error::Error;
use crate::reply::Reply;
use crate::request::Request;

/// Tells a browser whether a page may send a request: 200. The browser needs no credential for
/// this.
///
/// Source: *Preflight Queue Request*.
pub(super) async fn run(request: &Request<'_>, body: RequestBody) -> Result<Reply, Error> {
    body?;
    let rules = request.cors_rules().await?;
    let mut reply = Reply::empty(StatusCode::OK);
    cors::preflight(&rules, request.headers, reply.headers_mut())?;
    Ok(reply)
}
