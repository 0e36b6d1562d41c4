//! Where a service is.

use super::{ConnectionStringError, wrong};

/// `http://HOST[:PORT][/PATH]`, in its parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    pub(crate) is_tls: bool,
    /// In lower case; an address of IPv6 in brackets.
    pub(crate) host: String,
    /// As it was given.
    pub(crate) port: Option<u16>,
    /// Empty or `/PATH`, without a slash at the end: the account where it is addressed by path.
    pub(crate) path: String,
}

impl Endpoint {
    /// As a URL, without a slash at the end.
    pub fn url(&self) -> String {
        let scheme = if self.is_tls { "https" } else { "http" };
        format!("{scheme}://{}{}", self.authority(), self.path)
    }

    /// Host and, if it was given, port.
    pub(crate) fn authority(&self) -> String {
        match self.port {
            Some(port) => format!("{}:{port}", self.host),
            None => self.host.clone(),
        }
    }

    /// Whether it is on this machine.
    pub(crate) fn is_loopback(&self) -> bool {
        is_loopback(&self.host)
    }

    /// The read-only copy of the account, by the rules of both styles of address: the account's name with
    /// `-secondary`, as the path or as the first label of the host.
    pub(crate) fn secondary(&self) -> Option<Self> {
        let mut secondary = self.clone();
        if self.path.is_empty() {
            let (account, rest) = self.host.split_once('.')?;
            secondary.host = format!("{account}-secondary.{rest}");
        } else {
            secondary.path = format!("{}-secondary", self.path);
        }
        Some(secondary)
    }
}

pub(super) fn is_loopback(host: &str) -> bool {
    let is_address = host
        .parse()
        .is_ok_and(|ip: std::net::Ipv4Addr| ip.is_loopback());
    is_address || host == "localhost" || host == "[::1]"
}

pub(super) fn has_http_scheme(text: &str) -> bool {
    text.split_once("://")
        .is_some_and(|(scheme, _)| matches!(&*scheme.to_ascii_lowercase(), "http" | "https"))
}

/// Takes the URL of a queue service apart, and its query if it has one; `name` is the setting that had it.
pub(super) fn of_http<'a>(
    name: &str,
    url: &'a str,
) -> Result<(Endpoint, Option<&'a str>), ConnectionStringError> {
    let bad = |why: &str| bad(name, why);
    let (scheme, rest) = url
        .split_once("://")
        .ok_or_else(|| bad("it must begin with http:// or https://"))?;
    let is_tls = match &*scheme.to_ascii_lowercase() {
        "https" => true,
        "http" => false,
        _ => return Err(bad("it must begin with http:// or https://")),
    };
    let (place, query) = match rest.split_once('?') {
        Some((place, query)) => (place, Some(query).filter(|query| !query.is_empty())),
        None => (rest, None),
    };
    let (authority, path) = match place.find('/') {
        Some(index) => place.split_at(index),
        None => (place, ""),
    };
    let (host, port) = host_and_port(name, authority)?;
    let path = path.trim_end_matches('/');
    let in_path = |c: char| c.is_ascii_alphanumeric() || "-._/".contains(c);
    if !path.chars().all(in_path) || path.contains("//") {
        return Err(bad("its path has characters that no account's name has"));
    }
    let endpoint = Endpoint {
        is_tls,
        host,
        port,
        path: path.to_owned(),
    };
    Ok((endpoint, query))
}

/// Takes `HOST[:PORT]` apart.
pub(super) fn host_and_port(
    name: &str,
    authority: &str,
) -> Result<(String, Option<u16>), ConnectionStringError> {
    // The address between brackets has colons of its own.
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, Some(port)),
        _ => (authority, None),
    };
    let port = match port {
        None => None,
        Some(port) => {
            let is_number = port.bytes().all(|byte| byte.is_ascii_digit());
            let number = port.parse().ok().filter(|&number| is_number && number != 0);
            let wrong = || bad(name, "its port is not a number from 1 to 65535");
            Some(number.ok_or_else(wrong)?)
        }
    };
    if !is_host(host) {
        return Err(bad(name, "it has no valid host"));
    }
    Ok((host.to_ascii_lowercase(), port))
}

fn is_host(host: &str) -> bool {
    if let Some(address) = host.strip_prefix('[') {
        let address = address.strip_suffix(']').unwrap_or_default();
        return address.parse::<std::net::Ipv6Addr>().is_ok();
    }
    let is_label = |label: &str| {
        let is_known = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        (1..=63).contains(&label.len()) && label.bytes().all(is_known)
    };
    host.len() <= 253 && host.split('.').all(is_label)
}

pub(super) fn bad(name: &str, why: &str) -> ConnectionStringError {
    wrong(format!("has a bad {name}: {why}"))
}
