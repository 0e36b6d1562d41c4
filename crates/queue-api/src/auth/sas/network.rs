//! The addresses and protocols that the holder of a signature may use.

use std::net::{IpAddr, Ipv4Addr};

use super::{Fields, malformed};
use crate::auth::Credentials;
use crate::error::{Error, Mismatch};

/// Checks `sip` and `spr`. They are enforced also in old versions that do not sign them: they can
/// only remove rights.
///
/// Refuses with `AuthorizationSourceIPMismatch` and `AuthorizationProtocolMismatch`.
pub(super) fn check(credentials: &Credentials<'_>, fields: Fields<'_>) -> Result<(), Error> {
    if let Some(text) = fields.given("sip") {
        let range = Range::parse(&text).ok_or_else(|| {
            malformed(format!(
                "sip is '{text}', which is not an IPv4 address, nor two with a hyphen between them"
            ))
        })?;
        let peer = credentials.origin.peer.ip().to_canonical();
        if !range.contains(peer) {
            return Err(credentials.mismatch(
                Mismatch::SourceIp(peer),
                format_args!("The signature is only for {text} (sip)."),
            ));
        }
    }
    if let Some(text) = fields.given("spr") {
        let allows_plain = match &*text {
            "https" => false,
            "https,http" | "http,https" => true,
            _ => {
                return Err(malformed(format!(
                    "spr is '{text}', and must be https or https,http"
                )));
            }
        };
        if !allows_plain && !credentials.origin.is_secure {
            return Err(credentials.mismatch(
                Mismatch::Protocol,
                format_args!("The signature is only for https (spr)."),
            ));
        }
    }
    Ok(())
}

/// The addresses from the first to the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Range {
    first: Ipv4Addr,
    last: Ipv4Addr,
}

impl Range {
    fn parse(text: &str) -> Option<Self> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let range = Self {
            first: first.parse().ok()?,
            last: last.parse().ok()?,
        };
        (range.first <= range.last).then_some(range)
    }

    fn contains(self, peer: IpAddr) -> bool {
        match peer {
            IpAddr::V4(peer) => (self.first..=self.last).contains(&peer),
            IpAddr::V6(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges() {
        for (text, inside, outside) in [
            ("10.0.0.9", "10.0.0.9", "10.0.0.10"),
            ("10.0.0.9-10.0.1.1", "10.0.0.255", "10.0.1.2"),
            ("10.0.0.9-10.0.1.1", "10.0.1.1", "10.0.0.8"),
            ("0.0.0.0-255.255.255.255", "1.2.3.4", "::1"),
        ] {
            let range = Range::parse(text).unwrap();
            assert!(range.contains(inside.parse().unwrap()), "{text}");
            assert!(!range.contains(outside.parse().unwrap()), "{text}");
        }
        for text in [
            "10.0.0",
            "10.0.0.9-",
            "-",
            "10.0.0.9-10.0.0.8",
            "10.0.0.0/8",
            "::1",
            "1.1.1.1-1.1.1.2-1.1.1.3",
        ] {
            assert_eq!(Range::parse(text), None, "{text}");
        }
    }
}
