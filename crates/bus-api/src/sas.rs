//! Shared access signatures: what a rule's key says that its bearer may do, and until when.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use percent_encoding::percent_decode_str;
use thiserror::Error;

use crate::address::path_of;
use crate::rights::{AuthorizationRule, Right};

/// What every token of this kind begins with, whatever type a client says that it is of.
pub(crate) const PREFIX: &str = "SharedAccessSignature ";

/// What a token that was found to be right allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Grant {
    /// The path that it is for; empty for the whole namespace.
    pub(crate) path: String,
    /// Until when, in seconds since 1970.
    pub(crate) expires_at_s: u64,
}

impl Grant {
    /// Whether it allows something there now. Every rule has all rights today.
    pub(crate) fn allows(&self, _right: Right, path: &str) -> bool {
        self.covers(path)
    }

    /// Whether it reaches an entity: its path is the beginning of the other, segment by segment.
    pub(crate) fn covers(&self, path: &str) -> bool {
        match path.strip_prefix(self.path.as_str()) {
            Some(rest) => self.path.is_empty() || rest.is_empty() || rest.starts_with('/'),
            None => false,
        }
    }
}

/// What is wrong with a token. It says nothing about the key.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum BadToken {
    #[error("only tokens of the form 'SharedAccessSignature sr=…&sig=…&se=…&skn=…' are taken")]
    NotASignature,
    #[error("the token has no {0}, or more than one")]
    Field(&'static str),
    #[error("the expiry 'se' of the token is not a number of seconds")]
    Expiry,
    #[error("ExpiredToken: the token expired at {0} seconds since 1970")]
    Expired(u64),
    #[error("InvalidSignature: the token has an invalid signature")]
    Signature,
}

/// Checks a token against the rules, at a time in seconds since 1970.
pub(crate) fn check(
    token: &str,
    rules: &[AuthorizationRule],
    now_s: u64,
) -> Result<Grant, BadToken> {
    let fields = token.strip_prefix(PREFIX).ok_or(BadToken::NotASignature)?;
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
    let rule = percent_decode_str(field("skn")?).decode_utf8_lossy();
    let signature = percent_decode_str(field("sig")?).collect::<Vec<u8>>();
    let signature = STANDARD
        .decode(signature)
        .map_err(|_| BadToken::Signature)?;
    let expires_at_s: u64 = expiry.parse().map_err(|_| BadToken::Expiry)?;
    // What is signed is the resource as it came: SDKs encode it in different ways.
    let signed = format!("{resource}\n{expiry}");
    let is_right = rules
        .iter()
        .any(|own| own.is_named(&rule) && own.has_signed(signed.as_bytes(), &signature));
    if !is_right {
        return Err(BadToken::Signature);
    }
    if expires_at_s <= now_s {
        return Err(BadToken::Expired(expires_at_s));
    }
    // Some encode with plus signs for spaces, which no entity's name has.
    let resource = percent_decode_str(resource).decode_utf8_lossy();
    Ok(Grant {
        path: path_of(&resource),
        expires_at_s,
    })
}

#[cfg(test)]
mod tests {
    use aws_lc_rs::hmac;

    use super::*;

    fn rules() -> Vec<AuthorizationRule> {
        vec![AuthorizationRule {
            name: "r".into(),
            primary_key: "secret".into(),
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
    fn a_token_grants_its_path_until_it_expires() {
        let token = token("sb%3a%2f%2flocalhost%2fOrders%2f", "100", "secret");
        let grant = check(&token, &rules(), 99).unwrap();
        assert_eq!(grant.path, "orders");
        assert!(grant.covers("orders") && grant.covers("orders/$deadletterqueue"));
        assert!(!grant.covers("orders2") && !grant.covers(""));
        assert_eq!(check(&token, &rules(), 100), Err(BadToken::Expired(100)));
    }

    #[test]
    fn a_wrong_token_is_refused_and_told_why() {
        let good = token("sb%3a%2f%2fh%2f", "100", "secret");
        let refused = |token: &str| check(token, &rules(), 0).unwrap_err();
        assert_eq!(
            refused(&token("sb%3a%2f%2fh%2f", "100", "other")),
            BadToken::Signature
        );
        assert_eq!(
            refused(&good.replace("se=100", "se=101")),
            BadToken::Signature
        );
        assert_eq!(
            refused(&good.replace("skn=r", "skn=s")),
            BadToken::Signature
        );
        assert_eq!(refused(&good.replace("se=100", "se=x")), BadToken::Expiry);
        assert_eq!(refused(&good.replace("&skn=r", "")), BadToken::Field("skn"));
        assert_eq!(refused(&format!("{good}&se=1")), BadToken::Field("se"));
        assert_eq!(refused("eyJhbGciOi"), BadToken::NotASignature);
    }
}
