//! Get Queue Service Stats.

use bytes::{BufMut as _, BytesMut};
use kew_xml::{DECLARATION, put_element};

use super::RequestBody;
use crate::error::Error;
use crate::properties::put_within;
use crate::reply::Reply;
use crate::request::Request;

/// Answers, only on an account's secondary, how far it is behind: 200.
///
/// Here the secondary is another name of the primary, and never behind.
///
/// Source: *Get Queue Service Stats*.
pub(super) async fn run(request: &Request<'_>, body: RequestBody) -> Result<Reply, Error> {
    if !request.is_of_secondary() {
        return Err(Error::invalid_query(
            "comp",
            "stats",
            "Statistics are available only at the secondary location.",
        ));
    }
    body?;
    let now = httpdate::fmt_http_date(request.now());
    let mut out = BytesMut::with_capacity(256);
    out.put_slice(DECLARATION);
    put_within(&mut out, "StorageServiceStats", |out| {
        put_within(out, "GeoReplication", |out| {
            put_element(out, "Status", "live");
            put_element(out, "LastSyncTime", &now);
        });
    });
    request.reply(out)
}
