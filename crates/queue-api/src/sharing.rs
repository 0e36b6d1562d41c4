//! Which rules for browsers an answer falls under.
//!
//! A page reads nothing of an answer without them, errors included, so they are found apart from the
//! request's own fate: all they need is its account.

use std::sync::Arc;

use hyper::Method;
use hyper::header::ORIGIN;
use hyper::http::request::Parts;
use tokio::time::timeout;

use crate::address::Address;
use crate::api::Shared;
use crate::cors::{self, CorsRule};
use crate::origin::Origin;
use crate::parameter;
use crate::query::Query;
use crate::reply::Reply;
use crate::request::host;

/// The rules for the answer to a request. None for one that no page sent.
pub(crate) struct Sharing(Option<Arc<[CorsRule]>>);

impl Sharing {
    /// Tells the browser what the page may see of the answer.
    pub(crate) fn put(&self, head: &Parts, reply: &mut Reply) {
        if let (Some(rules), Some(origin)) = (&self.0, head.headers.get(ORIGIN)) {
            cors::share(rules, origin, head.method.as_str(), reply.headers_mut());
        }
    }
}

/// Finds the rules of the account that a request addresses. If they cannot be read in time the answer
/// goes out without: then the request itself was not carried out either, as a rule.
pub(crate) async fn rules(shared: &Shared, origin: &Origin, head: &Parts) -> Sharing {
    // A preflight tells the rules by itself.
    if !head.headers.contains_key(ORIGIN) || head.method == Method::OPTIONS {
        return Sharing(None);
    }
    let accounts = shared.accounts.snapshot();
    let account = host(head).and_then(|host| {
        let address = Address::parse(head.uri.path(), host, &accounts)?;
        Ok(address.account)
    });
    let Ok(account) = account else {
        return Sharing(None);
    };
    // One that is not served here is not there.
    let Some(account) = accounts
        .find(account)
        .filter(|account| origin.may_use_public_key || !account.is_well_known())
    else {
        return Sharing(None);
    };
    // A page reads what was wrong with its query, too.
    let limit = Query::parse(head.uri.query())
        .and_then(|query| parameter::timeout(&query))
        .unwrap_or(parameter::TIMEOUT_MAX);
    let read = shared.properties.rules(&shared.broker, account.name());
    match timeout(limit, read).await {
        Ok(Ok(rules)) => Sharing(Some(rules)),
        Ok(Err(_)) | Err(_) => Sharing(None),
    }
}
