//! The names of this server: one list, for everything that asks whether a name means this server.
//!
//! Two questions are answered from it. [`ServerNames::has`] says whether an address means this server: it
//! decides how the address is read, and grants nothing. [`ServerNames::admits_public_key`] says whether a
//! client that called the server by a name may use a key that everybody knows. Any web page can have a
//! name of its own point to this machine (DNS rebinding), and then a browser takes the server for a part
//! of that page. So a name counts there only if no stranger can have it: `localhost` and what lies below
//! it, loopback addresses, the names in the certificate, and those that the operator gave.
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

/// A host, as a client or a setting names it.
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

/// Nothing, too, as in `localhost:`.
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

/// A text that is no name of a server.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "{0:?} is no name of a server: a host name such as kew.example.net, *.example.net for all names \
     one label below it, or an IP address"
)]
pub struct InvalidServerName(Box<str>);

impl FromStr for ServerName {
    type Err = InvalidServerName;

    /// Reads a name with or without a port, which does not matter.
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

/// What a server is called.
#[derive(Debug, Default)]
pub struct ServerNamesOptions {
    /// Those that the operator gave.
    pub given: Vec<ServerName>,
    /// Those that mean this server in an address, and that anybody may have: no public key is admitted
    /// by them over HTTP.
    pub aliases: Vec<ServerName>,
    /// The addresses of its listeners.
    pub listeners: Vec<IpAddr>,
    /// Where the names in the certificate in use are found.
    pub tls: Option<Arc<Tls>>,
}

/// The names of this server. Clones are the same list. Without options it has those of loopback alone.
#[derive(Clone, Debug, Default)]
pub struct ServerNames(Arc<ServerNamesOptions>);

impl ServerNames {
    /// A list of these, and of every spelling of loopback.
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

    /// Whether a client that called the server by a host, with or without its port, may use a key that
    /// everybody knows.
    ///
    /// An address of a listener counts, and with a listener for all addresses every address does: no
    /// page can have an address for a name unless it was loaded from there.
    pub fn admits_public_key(&self, host: &str) -> bool {
        Host::read(host).is_some_and(|host| match &host {
            Host::Address(address) => {
                let is_own = |own: &IpAddr| own == address || own.is_unspecified();
                self.is_certain(&host) || self.0.listeners.iter().any(is_own)
            }
            Host::Name(_) => self.is_certain(&host),
        })
    }

    /// Whether a request may use a key that everybody knows, by what it says of where it comes from.
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

    /// Whether no stranger can have that host for a name of theirs.
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

/// What a request over HTTP says of where it comes from.
#[derive(Clone, Copy, Debug)]
pub struct AskedFrom<'a> {
    /// By what host it called the server; nothing or empty if it named none, as no browser does.
    pub host: Option<&'a str>,
    /// The pages that it comes from: its headers `Origin`. Only browsers send them, and some programs
    /// that name the server itself.
    pub pages: &'a [&'a [u8]],
    /// The header `Sec-Fetch-Site`, by which a browser says how its page is related to the server, also
    /// where it says nothing of the page itself.
    pub site: Option<&'a [u8]>,
}

impl AskedFrom<'_> {
    /// Whether a page from elsewhere has sent it: neither one of this machine nor one of the very host
    /// that was called.
    fn is_foreign_page(&self) -> bool {
        if self.pages.is_empty() {
            // An image or a link, say.
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

/// Why a client may not use a key that everybody knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Barred {
    /// It came to a listener that does not serve it.
    #[error(
        "the public key is not accepted by this listener: use a key of your own, or start the server \
         with --allow-public-key"
    )]
    Listener,
    /// It called the server by a name that a stranger could have given it.
    #[error(
        "the public key is accepted only if the Host of a request, or the hostname of an AMQP \
         connection, is localhost, a loopback address, a name in the server's certificate, or a name \
         that was given with --server-name"
    )]
    Host,
    /// It is a page from elsewhere that a browser shows.
    #[error(
        "the public key is not accepted from web pages of another origin, as the header Origin or \
         Sec-Fetch-Site says this request is from: use a key of your own"
    )]
    Page,
}

#[cfg(test)]
#[path = "names_tests.rs"]
mod tests;
