//! Which rules for browsers an answer falls under.
//!
//! Without these headers a page can read no answer, not even errors. So they are determined
//! independently of the request's result: they only need its account.

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

/// The rules for the answer to a request. `None` if no page sent it.
pub(crate) struct Sharing(Option<Arc<[CorsRule]>>);

impl Sharing {
    /// Adds the headers that tell the browser what the page may read.
    pub(crate) fn put(&self, head: &Parts, reply: &mut Reply) {
        if let (Some(rules), Some(origin)) = (&self.0, head.headers.get(ORIGIN)) {
            cors::share(rules, origin, head.method.as_str(), reply.headers_mut());
        }
    }
}

/// Finds the rules of the addressed account. If they cannot be read in time, the answer goes
/// without: then the request itself was usually not carried out either.
pub(crate) async fn rules(shared: &Shared, origin: &Origin, head: &Parts) -> Sharing {
    // A preflight gets the rules as its answer.
    if !head.headers.contains_key(ORIGIN) || head.method == Method::OPTIONS {
        return Sharing(None);
    }
    let Ok(accounts) = shared.accounts.current().await else {
        return Sharing(None);
    };
    let account = host(head).and_then(|host| {
        let address = Address::parse(head.uri.path(), host, &accounts)?;
        Ok(address.account)
    });
    let Ok(account) = account else {
        return Sharing(None);
    };
    // An unknown account has no rules.
    let Some(account) = accounts
        .find(account)
        .filter(|account| origin.may_use_public_key || !account.is_well_known())
    else {
        return Sharing(None);
    };
    // A page can also read what was wrong with its query.
    let limit = Query::parse(head.uri.query())
        .and_then(|query| parameter::timeout(&query))
        .unwrap_or(parameter::TIMEOUT_MAX);
    let read = shared.properties.rules(&shared.broker, account.name());
    match timeout(limit, read).await {
        Ok(Ok(rules)) => Sharing(Some(rules)),
        Ok(Err(_)) | Err(_) => Sharing(None),
    }
}
