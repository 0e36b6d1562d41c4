//! The address of the service, and the account that signs requests.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::time::SystemTime;

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// The account that every emulator of the service knows.
pub const DEVELOPMENT_ACCOUNT: &str = "devstoreaccount1";

/// The key of [`DEVELOPMENT_ACCOUNT`]. It is public and protects nothing.
pub const DEVELOPMENT_KEY: &str =
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

/// The shared part of all connections to one service.
pub struct Endpoint {
    pub(crate) address: SocketAddr,
    pub(crate) host: String,
    /// Path of the endpoint: `/account` for a path-style address, empty otherwise.
    pub(crate) base: String,
    pub(crate) account: String,
    pub(crate) key: hmac::Key,
    pub(crate) version: String,
    pub(crate) clock: fn() -> SystemTime,
}

impl Endpoint {
    /// The protocol version that requests ask for unless told otherwise.
    pub const DEFAULT_VERSION: &str = "2021-12-02";

    /// Takes a URL `http://HOST[:PORT][/ACCOUNT]`, an account and its Base64 key.
    pub fn new(url: &str, account: &str, key: &str) -> io::Result<Self> {
        let rest = url
            .strip_prefix("http://")
            .ok_or_else(|| invalid("the endpoint must begin with http://"))?
            .trim_end_matches('/');
        let (host, base) = match rest.split_once('/') {
            Some((host, path)) => (host, format!("/{path}")),
            None => (rest, String::new()),
        };
        let with_port = if host.contains(':') {
            host.to_owned()
        } else {
            format!("{host}:80")
        };
        let address = with_port
            .to_socket_addrs()?
            .next()
            .ok_or_else(|| invalid("the endpoint's host has no address"))?;
        let key = STANDARD
            .decode(key)
            .map_err(|error| invalid(&format!("the account key is not Base64: {error}")))?;
        Ok(Self {
            address,
            host: host.to_owned(),
            base,
            account: account.to_owned(),
            key: hmac::Key::new(hmac::HMAC_SHA256, &key),
            version: Self::DEFAULT_VERSION.to_owned(),
            clock: SystemTime::now,
        })
    }

    /// The development account at `address`, addressed by path.
    #[must_use]
    pub fn development(address: SocketAddr) -> Self {
        Self::new(
            &format!("http://{address}/{DEVELOPMENT_ACCOUNT}"),
            DEVELOPMENT_ACCOUNT,
            DEVELOPMENT_KEY,
        )
        .expect("an address and the public key make a valid endpoint")
    }

    /// Takes a connection string with `AccountName`, `AccountKey` and `QueueEndpoint`.
    pub fn from_connection_string(text: &str) -> io::Result<Self> {
        let part = |name: &str| {
            text.split(';')
                .filter_map(|pair| pair.split_once('='))
                .find_map(|(key, value)| (key == name).then_some(value))
                .ok_or_else(|| invalid(&format!("the connection string has no {name}")))
        };
        Self::new(
            part("QueueEndpoint")?,
            part("AccountName")?,
            part("AccountKey")?,
        )
    }

    /// Asks for another protocol version.
    #[must_use]
    pub fn with_version(mut self, version: &str) -> Self {
        version.clone_into(&mut self.version);
        self
    }

    /// Dates requests by another clock than the system's.
    #[must_use]
    pub fn with_clock(mut self, clock: fn() -> SystemTime) -> Self {
        self.clock = clock;
        self
    }

    /// Sends requests to another address, for example a proxy. The signed parts stay the same.
    #[must_use]
    pub fn through(mut self, address: SocketAddr) -> Self {
        self.address = address;
        self
    }

    /// The address that connections go to.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_string_gives_address_path_and_account() {
        let text = format!(
            "DefaultEndpointsProtocol=http;AccountName=a1;AccountKey={DEVELOPMENT_KEY};\
             QueueEndpoint=http://127.0.0.1:4321/a1/;"
        );
        let endpoint = Endpoint::from_connection_string(&text).expect("valid");
        assert_eq!(endpoint.address(), SocketAddr::from(([127, 0, 0, 1], 4321)));
        assert_eq!(
            (endpoint.base.as_str(), endpoint.account.as_str()),
            ("/a1", "a1")
        );
    }

    #[test]
    fn missing_parts_are_named() {
        let error = Endpoint::from_connection_string("AccountName=a1;")
            .err()
            .expect("refused");
        assert!(error.to_string().contains("QueueEndpoint"), "{error}");
    }
}
