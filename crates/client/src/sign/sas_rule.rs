//! Tokens for Service Bus, signed by the key of an authorization rule.
//!
//! Source: *Service Bus access control with Shared Access Signatures*.

use std::fmt;
use std::sync::Arc;

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use crate::secret::Secret;

/// An authorization rule with one of its keys.
#[derive(Clone)]
pub struct SasRule {
    name: String,
    key: Arc<hmac::Key>,
}

impl SasRule {
    /// Of a rule's name and key. The key is used as the text that it is, also where it looks like Base64.
    pub fn new(name: impl Into<String>, key: &str) -> Self {
        Self {
            name: name.into(),
            key: Arc::new(hmac::Key::new(hmac::HMAC_SHA256, key.as_bytes())),
        }
    }

    /// The rule's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A token for a resource, such as `sb://host/queue`, and for all below it.
    ///
    /// It holds until a time in seconds since 1970, and allows what the rule allows.
    pub fn token(&self, resource: &str, expires_at_s: u64) -> Secret {
        let resource = utf8_percent_encode(resource, NON_ALPHANUMERIC);
        let signed = format!("{resource}\n{expires_at_s}");
        let signature = STANDARD.encode(hmac::sign(&self.key, signed.as_bytes()));
        let signature = utf8_percent_encode(&signature, NON_ALPHANUMERIC);
        let rule = utf8_percent_encode(&self.name, NON_ALPHANUMERIC);
        Secret::new(format!(
            "SharedAccessSignature sr={resource}&sig={signature}&se={expires_at_s}&skn={rule}"
        ))
    }
}

impl fmt::Debug for SasRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SasRule({}, ..)", self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The signature is that of `openssl dgst -sha256 -hmac`.
    #[test]
    fn a_token() {
        let rule = SasRule::new("Root Rule", "SAS_KEY_VALUE");
        let token = rule.token("sb://localhost/orders/new", 1_700_000_000);
        assert_eq!(
            token.expose(),
            "SharedAccessSignature sr=sb%3A%2F%2Flocalhost%2Forders%2Fnew\
             &sig=rKj7aO5jRRxYoZGdZrJ8DcT7ctzPWyw5gPcofE61zwE%3D&se=1700000000&skn=Root%20Rule"
        );
        assert_eq!(format!("{rule:?} {token:?}"), "SasRule(Root Rule, ..) ..");
    }
}
