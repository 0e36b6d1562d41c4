//! Several issuers, and which of them a token belongs to.

use std::borrow::Cow;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;

use super::{Issuer, OTHER_ISSUER, UNREADABLE};

/// The longest token, in bytes, whose claims are read before its signature is checked.
const TOKEN_SIZE_BYTES_MAX: usize = 64 << 10;

/// The issuers that a server trusts, each with keys, audiences and roles of its own. Clones share them.
#[derive(Clone, Debug)]
pub struct Issuers(Arc<[Arc<Issuer>]>);

impl Default for Issuers {
    fn default() -> Self {
        Self(Arc::new([]))
    }
}

impl FromIterator<Arc<Issuer>> for Issuers {
    fn from_iter<I: IntoIterator<Item = Arc<Issuer>>>(issuers: I) -> Self {
        Self(issuers.into_iter().collect())
    }
}

impl Issuers {
    /// Whether there are no issuers, so that no token is accepted.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The issuer that clients without a token are sent to.
    pub fn first(&self) -> Option<&Issuer> {
        self.0.first().map(|issuer| &**issuer)
    }

    /// The only issuer, or the issuer that the token names, or why there is none.
    ///
    /// Checks nothing of the token. [`Issuer::verify`] does that, with the keys of this issuer
    /// only.
    pub fn select(&self, token: &str) -> Result<&Issuer, &'static str> {
        if let [only] = &*self.0 {
            return Ok(only);
        }
        let name = issuer_of(token).ok_or(UNREADABLE)?;
        let mut all = self.0.iter();
        let found = all.find(|issuer| *issuer.options().issuer == *name);
        found.map(|issuer| &**issuer).ok_or(OTHER_ISSUER)
    }
}

/// The claim `iss` of a token, unchecked.
fn issuer_of(token: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct Claimed<'a> {
        #[serde(borrow)]
        iss: Cow<'a, str>,
    }
    if token.len() > TOKEN_SIZE_BYTES_MAX {
        return None;
    }
    let claims = URL_SAFE_NO_PAD.decode(token.split('.').nth(1)?).ok()?;
    let claimed: Claimed<'_> = serde_json::from_slice(&claims).ok()?;
    Some(claimed.iss.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::IssuerOptions;

    fn issuers(names: &[&str]) -> Issuers {
        let all = names.iter().map(|name| IssuerOptions::new(name));
        all.map(|options| Arc::new(Issuer::new(options))).collect()
    }

    fn token(claims: &str) -> String {
        format!("e30.{}.sig", URL_SAFE_NO_PAD.encode(claims))
    }

    fn selected<'a>(issuers: &'a Issuers, token: &str) -> Result<&'a str, &'static str> {
        issuers
            .select(token)
            .map(|issuer| &*issuer.options().issuer)
    }

    #[test]
    fn a_token_is_of_the_issuer_that_it_names() {
        let both = issuers(&["https://a", "https://b"]);
        for name in ["https://a", "https://b"] {
            let claims = format!("{{\"exp\":1,\"x\":[{{}}],\"iss\":\"{name}\"}}");
            assert_eq!(selected(&both, &token(&claims)), Ok(name));
        }
        let escaped = token(r#"{"iss":"https:\/\/a"}"#);
        assert_eq!(selected(&both, &escaped), Ok("https://a"));
        let other = token(r#"{"iss":"https://a/"}"#);
        assert_eq!(selected(&both, &other), Err(OTHER_ISSUER));
        let long = token(&format!(
            "{{\"iss\":\"https://a\",\"x\":\"{}\"}}",
            "x".repeat(50_000)
        ));
        for token in [
            "",
            "a.b.c",
            "e30",
            &token("{}"),
            &token(r#"{"iss":["https://a"]}"#),
            &token(r#"{"iss":"https://a","iss":"https://b"}"#),
            &long,
        ] {
            assert_eq!(selected(&both, token), Err(UNREADABLE), "{token}");
        }
    }

    #[test]
    fn the_only_one_judges_every_token() {
        let one = issuers(&["https://a"]);
        assert_eq!(selected(&one, "whatever"), Ok("https://a"));
        assert!(issuers(&[]).is_empty() && issuers(&[]).first().is_none());
        assert!(issuers(&[]).select("").is_err());
    }
}
