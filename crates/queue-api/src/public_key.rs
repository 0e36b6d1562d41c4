//! Which clients may use the public key.
//!
//! Any web page knows the key, and can send requests to any server that the browser can reach: as a
//! page of another origin, or by a name of its own that points to this machine. So the account
//! serves programs, pages of this machine and of the server itself, and pages that the account's
//! CORS rules allow; and only under this server's own names. Accounts with secret keys do not need
//! this.

use hyper::http::request::Parts;
use kew_http_front::pages;
use kew_listen::Barred;
use tokio::time::timeout;

use crate::accounts::Account;
use crate::address::{Address, Style};
use crate::api::Shared;
use crate::cors;
use crate::error::Error;
use crate::origin::Origin;
use crate::parameter;
use crate::query::Query;
use crate::request::host;

/// The label between the account and the service's name in a host.
const SERVICE_LABEL: &str = "queue.";

/// Whether a request may use the public key, judged only by the names of the server and of the
/// page.
pub(crate) fn judge(shared: &Shared, head: &Parts, address: &Address<'_>) -> Result<(), Barred> {
    kew_http_front::judge(&shared.names, &head.uri, &head.headers, |host| {
        named(shared, host, address)
    })
}

/// Refuses with `AuthorizationFailure` a request that may not use the public key, unless it is from
/// a page that a rule of the account allows.
pub(crate) async fn refuse(
    shared: &Shared,
    origin: &Origin,
    head: &Parts,
    account: &Account,
    barred: Barred,
) -> Result<(), Error> {
    let called = match barred {
        Barred::Listener | Barred::Host => host(head)?.to_owned(),
        Barred::Page => {
            let pages = pages(&head.headers);
            if is_let_in(shared, head, &pages, account).await? {
                return Ok(());
            }
            let page = pages.first().copied();
            let page = page.map(|page| String::from_utf8_lossy(page).into_owned());
            page.unwrap_or_else(|| "not named".to_owned())
        }
    };
    shared.note_barred(origin, barred, &called);
    Err(Error::PublicKeyRefused {
        barred,
        called: called.into(),
    })
}

/// The name of the server in a host, which may begin with the account.
fn named<'a>(shared: &Shared, host: &'a str, address: &Address<'_>) -> &'a str {
    let below = match address.style {
        Style::Path => None,
        Style::Host => host.split_once('.').map(|(_, below)| below),
    };
    let server = below.map(|below| below.strip_prefix(SERVICE_LABEL).unwrap_or(below));
    let names = [Some(host), below, server].into_iter().flatten();
    let mut own = names.filter(|name| shared.names.admits_public_key(name));
    own.next().unwrap_or(host)
}

/// Whether the account's rules allow pages of these origins to send such a request.
async fn is_let_in(
    shared: &Shared,
    head: &Parts,
    pages: &[&[u8]],
    account: &Account,
) -> Result<bool, Error> {
    if pages.is_empty() {
        return Ok(false);
    }
    // An invalid time limit is refused later.
    let limit = Query::parse(head.uri.query()).and_then(|query| parameter::timeout(&query));
    let read = shared.properties.rules(&shared.broker, account.name());
    let rules = timeout(limit.unwrap_or(parameter::TIMEOUT_MAX), read).await;
    let rules = rules.map_err(|_| Error::OperationTimedOut)??;
    let method = head.method.as_str();
    let is_allowed =
        |page: &&[u8]| std::str::from_utf8(page).is_ok_and(|it| cors::allows(&rules, it, method));
    Ok(pages.iter().all(is_allowed))
}
