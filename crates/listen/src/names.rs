//! The names of this server: one list, used wherever Kew must decide whether a name means this
//! server.
//!
//! It answers two questions. [`ServerNames::has`] decides whether an address means this server.
//! That affects how the address is read, and grants nothing. [`ServerNames::admits_public_key`]
//! decides whether a client that used a name of the server may use the public key. Any web page can
//! make its own name point to this machine (DNS rebinding), and then a browser treats the server as
//! part of that page. So only names that a stranger cannot own admit the public key: `localhost`
//! and its subdomains, loopback addresses, the names in the certificate, and names that the
//! operator configured.
//!
//! Names are compared without case, port and final dot, addresses in any spelling.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;
use std::sync::Arc;

use thiserror::Error;

use crate::certificate::CertificateFacts;
use crate::tls::Tls;

const LOCALHOST: &str = "localhost";
/// The longest name of a host (RFC 1035, 2.3.4).
const NAME_SIZE_BYTES_MAX: usize = 253;

/// A host, as a client or a setting writes it.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Host {
    Address(IpAddr),
    /// In lower case, without a final dot.
    Name(Box<str>),
}

impl Host {
    /// Reads a host with or without its port; an IPv6 address also without brackets.
    fn read(authority: &str) -> Option<Self> {
        if let Some(rest) = authority.strip_prefix('[') {
            let (address, port) = rest.split_once(']')?;
            let address: Ipv6Addr = address.parse().ok()?;
            let is_port = port.is_empty() || port.strip_prefix(':').is_some_and(is_port);
            return is_port.then(|| Self::of_address(address.into()));
        }
        if let Ok(address) = authority.parse::<Ipv6Addr>() {
            return Some(Self::of_address(address.into()));
        }
        let host = match authority.rsplit_once(':') {
            Some((host, port)) if is_port(port) => host,
            Some(_) => return None,
            None => authority,
        };
        if let Ok(address) = host.parse::<Ipv4Addr>() {
            return Some(Self::of_address(address.into()));
        }
        let name = host.strip_suffix('.').unwrap_or(host);
        is_name(name).then(|| Self::Name(name.to_ascii_lowercase().into()))
    }

    fn of_address(address: IpAddr) -> Self {
        Self::Address(address.to_canonical())
    }

    fn is_loopback(&self) -> bool {
        match self {
            Self::Address(address) => address.is_loopback(),
            Self::Name(name) => {
                let below = name.strip_suffix(LOCALHOST);
                below.is_some_and(|below| below.is_empty() || below.ends_with('.'))
            }
        }
    }
}

/// An empty port counts too, as in `localhost:`.
fn is_port(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_name(name: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    name.len() <= NAME_SIZE_BYTES_MAX
        && name
            .split('.')
            .all(|label| !label.is_empty() && label.bytes().all(is_inner))
}

/// A name of the server: a host, or all hosts one label below a name, as `*.example.net`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerName(Pattern);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Pattern {
    Is(Host),
    /// In lower case, without the asterisk and its dot.
    IsBelow(Box<str>),
}

/// A text that is not the name of a server.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "{0:?} is not the name of a server: use a host name such as kew.example.net, *.example.net for \
     all names one label below it, or an IP address"
)]
pub struct InvalidServerName(Box<str>);

impl FromStr for ServerName {
    type Err = InvalidServerName;

    /// Reads a name. A port may follow, and is ignored.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let invalid = || InvalidServerName(text.into());
        match text.strip_prefix("*.") {
            None => Host::read(text).map(|host| Self(Pattern::Is(host))),
            Some(parent) => match Host::read(parent) {
                Some(Host::Name(name)) => Some(Self(Pattern::IsBelow(name))),
                Some(Host::Address(_)) | None => None,
            },
        }
        .ok_or_else(invalid)
    }
}

impl ServerName {
    fn is_of(&self, host: &Host) -> bool {
        match (&self.0, host) {
            (Pattern::Is(own), host) => own == host,
            (Pattern::IsBelow(parent), Host::Name(name)) => {
                let below = name.split_once('.').map(|(_, below)| below);
                below == Some(parent)
            }
            (Pattern::IsBelow(_), Host::Address(_)) => false,
        }
    }
}

/// The names that mean this server.
#[derive(Debug, Default)]
pub struct ServerNamesOptions {
    /// Names that the operator configured.
    pub given: Vec<ServerName>,
    /// Names that mean this server in an address, but that anyone may have: over HTTP they do not
    /// admit the public key.
    pub aliases: Vec<ServerName>,
    /// The addresses of its listeners.
    pub listeners: Vec<IpAddr>,
    /// Where to find the names in the certificate in use.
    pub tls: Option<Arc<Tls>>,
}

/// The names of this server. Clones share one list. Without options it has only the names of
/// loopback.
#[derive(Clone, Debug, Default)]
pub struct ServerNames(Arc<ServerNamesOptions>);

impl ServerNames {
    /// A list of these names, with every spelling of loopback.
    pub fn new(mut options: ServerNamesOptions) -> Self {
        for address in &mut options.listeners {
            *address = address.to_canonical();
        }
        Self(Arc::new(options))
    }

    /// Whether a host, with or without its port, means this server.
    pub fn has(&self, host: &str) -> bool {
        Host::read(host).is_some_and(|host| {
            let all = &self.0;
            self.is_certain(&host)
                || all.aliases.iter().any(|name| name.is_of(&host))
                || matches!(&host, Host::Address(address) if all.listeners.contains(address))
        })
    }

    /// Whether a client may use the public key after it called the server by a host, with or
    /// without a port.
    ///
    /// The address of a listener counts. With a listener for all addresses every address counts: no
    /// page can have an address as its name unless it was loaded from there.
    pub fn admits_public_key(&self, host: &str) -> bool {
        Host::read(host).is_some_and(|host| match &host {
            Host::Address(address) => {
                let is_own = |own: &IpAddr| own == address || own.is_unspecified();
                self.is_certain(&host) || self.0.listeners.iter().any(is_own)
            }
            Host::Name(_) => self.is_certain(&host),
        })
    }

    /// Whether a request may use the public key, judged by its headers about where it comes from.
    pub fn judge(&self, asked: &AskedFrom<'_>) -> Result<(), Barred> {
        let host = asked.host.filter(|host| !host.is_empty());
        if !host.is_none_or(|host| self.admits_public_key(host)) {
            return Err(Barred::Host);
        }
        match asked.is_foreign_page() {
            false => Ok(()),
            true => Err(Barred::Page),
        }
    }

    /// Whether no stranger can own that host as a name.
    fn is_certain(&self, host: &Host) -> bool {
        let is_certified = |facts: &CertificateFacts| {
            let names = facts.names.iter().filter_map(|name| name.parse().ok());
            let addresses = facts.addresses.iter().map(|it| Host::of_address(*it));
            names.into_iter().any(|name: ServerName| name.is_of(host))
                || addresses.into_iter().any(|address| address == *host)
        };
        let tls = self.0.tls.as_ref();
        host.is_loopback()
            || self.0.given.iter().any(|name| name.is_of(host))
            || tls.is_some_and(|tls| tls.says(is_certified))
    }
}

/// What the headers of an HTTP request say about where it comes from.
#[derive(Clone, Copy, Debug)]
pub struct AskedFrom<'a> {
    /// The host that the request names. `None` or empty if it names none, which no browser does.
    pub host: Option<&'a str>,
    /// The pages that the request comes from: its headers `Origin`. Only browsers send them, and a
    /// few programs that send the server's own name.
    pub pages: &'a [&'a [u8]],
    /// The header `Sec-Fetch-Site`: how the page is related to the server, by the browser. Browsers
    /// also send it without `Origin`.
    pub site: Option<&'a [u8]>,
}

impl AskedFrom<'_> {
    /// Whether a foreign page sent the request: a page neither of this machine nor of the host that
    /// the request names.
    fn is_foreign_page(&self) -> bool {
        if self.pages.is_empty() {
            // For example an image or a link.
            let host = self.host.and_then(Host::read);
            return match self.site {
                Some(b"cross-site") => true,
                Some(b"same-site") => !host.is_some_and(|host| host.is_loopback()),
                Some(_) | None => false,
            };
        }
        self.pages.iter().any(|page| !self.is_own_page(page))
    }

    fn is_own_page(&self, page: &[u8]) -> bool {
        let page = std::str::from_utf8(page).ok();
        let Some((_, authority)) = page.and_then(|page| page.split_once("://")) else {
            return false;
        };
        let is_local = Host::read(authority).is_some_and(|host| host.is_loopback());
        let is_called = |host: &str| {
            without_usual_port(host).eq_ignore_ascii_case(without_usual_port(authority))
        };
        is_local || self.host.is_some_and(is_called)
    }
}

/// Clients leave the port out where it is the usual one, or not.
fn without_usual_port(authority: &str) -> &str {
    let without = [":80", ":443"].into_iter();
    let mut without = without.filter_map(|port| authority.strip_suffix(port));
    without.next().unwrap_or(authority)
}

/// Why a client may not use the public key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Barred {
    /// Its listener does not serve the public key.
    #[error(
        "the public key is not accepted by this listener: use a key of your own, or start the server \
         with --allow-public-key"
    )]
    Listener,
    /// It used a name that a stranger could own.
    #[error(
        "the public key is accepted only if the Host of a request, or the hostname of an AMQP \
         connection, is localhost, a loopback address, a name in the server's certificate, or a name \
         that was given with --server-name"
    )]
    Host,
    /// It is a page of another origin, shown in a browser.
    #[error(
        "the public key is not accepted from web pages of another origin (see the header Origin or \
         Sec-Fetch-Site of this request): use a key of your own"
    )]
    Page,
}

#[cfg(test)]
#[path = "names_tests.rs"]
mod tests;
