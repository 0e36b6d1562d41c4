//! Shared access signatures: tokens signed by a rule's key, for a path and until an expiry.

use std::borrow::Cow;

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kew_engine::topic_of_path;
use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use super::bad_token::BadToken;
use super::grant::entity_of;
use super::rights::{AuthorizationRule, Rights};
use crate::ground::address::path_of;

/// The beginning of every token of this kind, whatever type the client declares.
pub(crate) const PREFIX: &str = "SharedAccessSignature ";

/// The longest token of this kind that is accepted, in bytes.
const SIZE_BYTES_MAX: usize = 8 << 10;

/// Signs a token for a resource, such as `sb://host/queue`, with the key of a rule: for clients.
///
/// It is valid until a time in seconds since 1970, and has the rights of the rule, below the resource.
pub fn sign_token(resource: &str, rule: &str, key: &str, expires_at_s: u64) -> String {
    let resource = utf8_percent_encode(resource, NON_ALPHANUMERIC);
    let signed = format!("{resource}\n{expires_at_s}");
    let key = hmac::Key::new(hmac::HMAC_SHA256, key.as_bytes());
    let signature = STANDARD.encode(hmac::sign(&key, signed.as_bytes()));
    let signature = utf8_percent_encode(&signature, NON_ALPHANUMERIC);
    let rule = utf8_percent_encode(rule, NON_ALPHANUMERIC);
    format!("{PREFIX}sr={resource}&sig={signature}&se={expires_at_s}&skn={rule}")
}

/// A parsed token. Its signature is not checked yet.
#[derive(Debug)]
pub(crate) struct SignedToken<'a> {
    pub(crate) rule: Cow<'a, str>,
    /// The path to which it applies; empty for the whole namespace.
    pub(crate) path: String,
    /// Whether its resource has no scheme. Then the beginning of the path may be a host.
    pub(crate) is_bare: bool,
    /// Its expiry, in seconds since 1970.
    pub(crate) expires_at_s: u64,
    signed: String,
    signature: Vec<u8>,
}

impl<'a> SignedToken<'a> {
    /// Reads a token, whose fields may come in any order.
    pub(crate) fn read(token: &'a str) -> Result<Self, BadToken> {
        let fields = token.strip_prefix(PREFIX).ok_or(BadToken::Unknown)?;
        if token.len() > SIZE_BYTES_MAX {
            return Err(BadToken::TooLong);
        }
        let field = |name: &'static str| {
            let mut values = fields
                .split('&')
                .filter_map(|field| field.split_once('='))
                .filter_map(|(key, value)| (key.trim() == name).then_some(value));
            match (values.next(), values.next()) {
                (Some(value), None) => Ok(value),
                _ => Err(BadToken::Field(name)),
            }
        };
        let (resource, expiry) = (field("sr")?, field("se")?);
        let signature = percent_decode_str(field("sig")?).collect::<Vec<u8>>();
        let signature = STANDARD
            .decode(signature)
            .map_err(|_| BadToken::Signature)?;
        let decoded = percent_decode_str(resource).decode_utf8_lossy();
        Ok(Self {
            rule: percent_decode_str(field("skn")?).decode_utf8_lossy(),
            path: path_of(&decoded),
            is_bare: !decoded.contains("://"),
            expires_at_s: expiry.parse().map_err(|_| BadToken::Expiry)?,
            // The resource is signed as it was sent, because SDKs encode it in different ways.
            signed: format!("{resource}\n{expiry}"),
            signature,
        })
    }

    /// The rights of the rule that has signed it, if that is one of these rules.
    pub(crate) fn rights_by(&self, rules: &[AuthorizationRule]) -> Option<Rights> {
        let mut named = rules.iter().filter(|rule| rule.is_named(&self.rule));
        let signer = named.find(|rule| rule.has_signed(self.signed.as_bytes(), &self.signature));
        signer.map(|rule| rule.rights)
    }

    /// The queues and topics whose own rules may have signed it: each that its path may name. The path may be that of a
    /// request over HTTP, such as `queue/messages/head` or `topic/subscriptions/name/rules`.
    pub(crate) fn owners(&self) -> Vec<&str> {
        let node = entity_of(&self.path);
        let of_request = node.rfind("/messages").and_then(|at| {
            let rest = node.get(at + "/messages".len()..)?;
            let is_end = rest.is_empty() || rest.starts_with('/');
            is_end.then(|| node.get(..at)).flatten()
        });
        [Some(node), of_request, topic_of_path(node)]
            .into_iter()
            .flatten()
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use aws_lc_rs::hmac;

    use super::*;

    fn rules() -> Vec<AuthorizationRule> {
        vec![AuthorizationRule {
            name: "r".into(),
            primary_key: "secret".into(),
            secondary_key: "spare".into(),
            ..AuthorizationRule::well_known()
        }]
    }

    fn token(resource: &str, expiry: &str, key: &str) -> String {
        let key = hmac::Key::new(hmac::HMAC_SHA256, key.as_bytes());
        let signature = hmac::sign(&key, format!("{resource}\n{expiry}").as_bytes());
        let signature = STANDARD
            .encode(signature)
            .replace('+', "%2B")
            .replace('=', "%3D");
        format!("{PREFIX}sr={resource}&sig={signature}&se={expiry}&skn=r")
    }

    #[test]
    fn either_key_signs() {
        for (key, is_taken) in [("secret", true), ("spare", true), ("other", false)] {
            let token = token("sb%3a%2f%2flocalhost%2fOrders%2f", "100", key);
            let read = SignedToken::read(&token).unwrap();
            assert_eq!((&*read.path, read.expires_at_s), ("orders", 100));
            let rights = read.rights_by(&rules());
            assert_eq!(rights, is_taken.then_some(Rights::ALL), "{key}");
        }
    }

    #[test]
    fn no_rule_has_signed_a_changed_token() {
        let good = token("sb%3a%2f%2fh%2f", "100", "secret");
        for changed in [
            good.replace("se=100", "se=101"),
            good.replace("skn=r", "skn=s"),
            good.replace("%2fh", "%2fg"),
        ] {
            let read = SignedToken::read(&changed).unwrap();
            assert_eq!(read.rights_by(&rules()), None, "{changed}");
        }
        let refused = |token: &str| SignedToken::read(token).unwrap_err();
        assert_eq!(refused(&good.replace("se=100", "se=x")), BadToken::Expiry);
        assert_eq!(refused(&good.replace("&skn=r", "")), BadToken::Field("skn"));
        assert_eq!(refused(&format!("{good}&se=1")), BadToken::Field("se"));
        assert_eq!(refused("eyJhbGciOi"), BadToken::Unknown);
        let long = format!("{good}&x={}", "x".repeat(SIZE_BYTES_MAX));
        assert_eq!(refused(&long), BadToken::TooLong);
    }

    #[test]
    fn the_owners_of_a_path() {
        for (path, owners) in [
            ("", &[""][..]),
            ("a/b", &["a/b"]),
            ("a/$deadletterqueue/$management", &["a"]),
            ("a/messages", &["a/messages", "a"]),
            ("a/messages/head", &["a/messages/head", "a"]),
            ("a/messagesx", &["a/messagesx"]),
            ("t/subscriptions", &["t/subscriptions", "t"]),
            ("t/subscriptions/s/$management", &["t/subscriptions/s", "t"]),
            (
                "t/subscriptions/s/messages/head",
                &["t/subscriptions/s/messages/head", "t/subscriptions/s", "t"],
            ),
        ] {
            let token = token(&format!("https%3a%2f%2fh%2f{path}%3fapi=1"), "1", "k");
            let read = SignedToken::read(&token).unwrap();
            assert_eq!(read.owners(), owners, "{path}");
        }
    }
}
