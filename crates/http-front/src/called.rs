//! The name by which a request calls the server, and the page that it comes from.
//!
//! Any web page that a browser shows can send requests to any server, also by a name of the page's owner that
//! points to this machine. So a public key proves nothing there. [`ServerNames`] has the rules. This module reads
//! their input from a request.

use hyper::header::{HOST, HeaderMap, HeaderValue, ORIGIN};
use hyper::http::request::Parts;
use hyper::{Uri, Version};
use kew_listen::{AskedFrom, Barred, ServerNames};

/// The header in which a browser describes how a page is related to the server.
const SEC_FETCH_SITE: &str = "sec-fetch-site";

/// Why the host of a request is not certain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostError<'a> {
    /// It has no Host header, which HTTP/1.1 requires.
    Missing,
    /// It has two Host headers, or one that is not text. Holds the header.
    Invalid(&'a HeaderValue),
}

/// The host of a request, with its port: from its target, or else from its Host header. `None` for HTTP/1.0
/// without either.
///
/// Refuses more than one Host header, and a missing one in HTTP/1.1, whatever the target is (RFC 9112, 3.2).
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

/// Whether a request may use a public key, judged by its hosts and the page that it comes from. `server_in`
/// returns the name of the server in a host that may contain more than that name.
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
    // A host in the target must pass the same check as the header.
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

/// The pages that a request comes from: its `Origin` headers.
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
