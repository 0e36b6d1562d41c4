//! Where a metrics page is.

use std::fmt;
use std::net::Ipv4Addr;

use hyper::Uri;

/// The path, if the URL has none.
const PATH: &str = "/metrics";

/// `http://HOST[:PORT][/PATH]`. Metrics pages of Kew have no TLS and no credentials.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PageUrl {
    /// The host, without brackets.
    pub(crate) host: String,
    pub(crate) port: u16,
    /// Host and port as they were written.
    pub(crate) authority: String,
    pub(crate) path: String,
}

impl PageUrl {
    /// The usual page at a port of this machine.
    pub(crate) fn local(port: u16) -> Self {
        let host = Ipv4Addr::LOCALHOST.to_string();
        Self {
            authority: format!("{host}:{port}"),
            host,
            port,
            path: PATH.to_owned(),
        }
    }

    /// Reads a URL. The error says what was expected.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let expected =
            || format!("{text:?} is no URL of a metrics page: write http://HOST:PORT/metrics");
        let uri: Uri = text.parse().map_err(|_| expected())?;
        let authority = uri.authority().ok_or_else(expected)?;
        let is_plain = uri.scheme_str() == Some("http") && !authority.as_str().contains('@');
        if !is_plain || authority.host().is_empty() {
            return Err(expected());
        }
        let path = uri.path_and_query().map_or("/", |it| it.as_str());
        Ok(Self {
            host: authority.host().trim_matches(['[', ']']).to_owned(),
            port: authority.port_u16().unwrap_or(80),
            authority: authority.as_str().to_owned(),
            path: if path == "/" { PATH } else { path }.to_owned(),
        })
    }
}

impl fmt::Display for PageUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}{}", self.authority, self.path)
    }
}

/// The metrics page of an instance that the target has started.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct OwnPage {
    /// The number of the instance. The next one may get the same port.
    pub instance: u64,
    /// A port of 127.0.0.1.
    pub port: u16,
    /// Whether the instance still starts: that its page does not answer is no failure then.
    pub is_starting: bool,
}
