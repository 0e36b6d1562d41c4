//! Who speaks over HTTP, in a WebSocket too, and whether that may be a web page.
//!
//! Any page that a browser shows may ask any server, by a WebSocket or by a name of its own for this
//! machine, so that a key that everybody knows proves nothing there: it is only for pages of this machine
//! and of the server itself, and for programs that are no browsers. Keys of one's own prove themselves.

use hyper::header::{HOST, HeaderMap, ORIGIN};
use hyper::{Request, Uri};
use kew_listen::{AskedFrom, Barred, ServerNames};

use crate::ground::origin::Origin;

/// By which a browser says how a page is related to the server that it asks.
const SEC_FETCH_SITE: &str = "sec-fetch-site";

/// What is known of who sends a request.
pub(super) fn speaker<B>(names: &ServerNames, origin: Origin, request: &Request<B>) -> Origin {
    let judged = judge(names, request.uri(), request.headers());
    Origin {
        public_key: origin.public_key.and(judged),
        ..origin
    }
}

fn judge(names: &ServerNames, uri: &Uri, headers: &HeaderMap) -> Result<(), Barred> {
    let pages: Vec<&[u8]> = headers
        .get_all(ORIGIN)
        .iter()
        .map(|page| page.as_bytes())
        .collect();
    let site = headers.get(SEC_FETCH_SITE).map(|site| site.as_bytes());
    let host = match headers.get(HOST).map(|host| host.to_str()) {
        Some(Ok(host)) => Some(host),
        Some(Err(_)) => return Err(Barred::Host),
        None => None,
    };
    let named = uri.authority().map(|authority| authority.as_str());
    for host in [host, named.or(host)] {
        let asked = AskedFrom {
            host,
            pages: &pages,
            site,
        };
        names.judge(&asked)?;
    }
    Ok(())
}

/// By what a request called the server, or the page that it comes from: the one for which it is barred.
pub(super) fn called(headers: &HeaderMap, barred: Barred) -> Option<&str> {
    let name = match barred {
        Barred::Listener => return None,
        Barred::Host => HOST,
        Barred::Page => ORIGIN,
    };
    headers.get(name)?.to_str().ok()
}
