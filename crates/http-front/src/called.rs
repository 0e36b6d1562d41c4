//! By which name a request calls the server, and from which page it comes.
//!
//! Any web page that a browser shows may ask any server, also by a name of its own that it has point to this
//! machine. So a public key proves nothing there. [`ServerNames`] has the rules; this module finds in a request what
//! they need.

use hyper::header::{HOST, HeaderMap, HeaderValue, ORIGIN};
use hyper::http::request::Parts;
use hyper::{Uri, Version};
use kew_listen::{AskedFrom, Barred, ServerNames};

/// The header by which a browser says how a page is related to the server that it asks.
const SEC_FETCH_SITE: &str = "sec-fetch-site";

/// Why it is not certain which host a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostError<'a> {
    /// It has no Host header, which HTTP/1.1 demands.
    Missing,
    /// It has two Host headers, or one that is no text: this one.
    Invalid(&'a HeaderValue),
}

/// The host that a request asks for, with its port: the one in its target, or else in its Host header. `None` for
/// HTTP/1.0 without either.
///
/// Refuses more than one Host header, and none in HTTP/1.1, whatever the target says (RFC 9112, 3.2).
pub fn host(head: &Parts) -> Result<Option<&str>, HostError<'_>> {
    let mut values = head.headers.get_all(HOST).iter();
    let host = match (values.next(), values.next()) {
        (None, _) if head.version == Version::HTTP_11 => return Err(HostError::Missing),
        (None, _) => None,
        (Some(host), None) => Some(host.to_str().map_err(|_| HostError::Invalid(host))?),
        (Some(host), Some(_)) => return Err(HostError::Invalid(host)),
    };
    Ok(head.uri.authority().map(|named| named.as_str()).or(host))
}

/// Whether a request may use a public key, by the hosts that it asks for and the page that it comes from. `server_in` is the name of the server in a host, if more than that can be there.
pub fn judge<'a>(
    names: &ServerNames,
    uri: &'a Uri,
    headers: &'a HeaderMap,
    server_in: impl Fn(&'a str) -> &'a str,
) -> Result<(), Barred> {
    let host = match headers.get(HOST).map(|host| host.to_str()) {
        Some(Ok(host)) => Some(server_in(host)),
        Some(Err(_)) => return Err(Barred::Host),
        None => None,
    };
    let named = uri
        .authority()
        .map(|authority| server_in(authority.as_str()));
    let pages = pages(headers);
    let site = headers.get(SEC_FETCH_SITE).map(|site| site.as_bytes());
    // A target with a host in it must stand the same test as the header beside it.
    let judge = |host| {
        names.judge(&AskedFrom {
            host,
            pages: &pages,
            site,
        })
    };
    judge(host)?;
    named.map_or(Ok(()), |named| judge(Some(named)))
}

/// The pages that a request comes from: its headers `Origin`.
pub fn pages(headers: &HeaderMap) -> Vec<&[u8]> {
    let pages = headers.get_all(ORIGIN).iter();
    pages.map(|page| page.as_bytes()).collect()
}

#[cfg(test)]
mod tests {
    use hyper::Request;

    use super::*;

    fn head(target: &str, version: Version, hosts: &[&[u8]]) -> Parts {
        let request = Request::builder().uri(target).version(version);
        let request = hosts.iter().fold(request, |request, host| {
            request.header(HOST, HeaderValue::from_bytes(host).unwrap())
        });
        request.body(()).unwrap().into_parts().0
    }

    #[test]
    fn a_request_asks_for_one_host() {
        let check = |target, version, hosts: &[&[u8]], expected: Result<Option<&str>, &str>| {
            let head = head(target, version, hosts);
            let found = host(&head).map_err(|error| match error {
                HostError::Missing => "missing",
                HostError::Invalid(_) => "invalid",
            });
            assert_eq!(found, expected, "{target} {version:?} {hosts:?}");
        };
        let (new, old) = (Version::HTTP_11, Version::HTTP_10);
        check("/", new, &[b"a:1"], Ok(Some("a:1")));
        check("/", new, &[b""], Ok(Some("")));
        check("/", new, &[], Err("missing"));
        check("http://b/", new, &[], Err("missing"));
        check("http://b/", new, &[b"a"], Ok(Some("b")));
        check("/", old, &[], Ok(None));
        check("http://b/", old, &[], Ok(Some("b")));
        check("/", old, &[b"a", b"a"], Err("invalid"));
        check("http://b/", new, &[b"b", b"a"], Err("invalid"));
        check("/", new, &[b"\xe4"], Err("invalid"));
    }

    #[test]
    fn both_hosts_of_a_request_must_be_names_of_the_server() {
        let names = ServerNames::default();
        let check = |target, host: &'static [u8], expected| {
            let head = head(target, Version::HTTP_11, &[host]);
            let judged = judge(&names, &head.uri, &head.headers, |host| host);
            assert_eq!(judged, expected, "{target} {host:?}");
        };
        check("/", b"localhost", Ok(()));
        check("/", b"evil.example", Err(Barred::Host));
        check("/", b"\xe4", Err(Barred::Host));
        check("http://localhost/", b"localhost", Ok(()));
        check("http://localhost/", b"evil.example", Err(Barred::Host));
        check("http://evil.example/", b"localhost", Err(Barred::Host));
    }
}
