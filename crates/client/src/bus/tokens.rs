//! Makes the tokens that are shown to the service.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::core::Token;
use crate::credential::BusCredential;
use crate::error::Error;

/// What bearer tokens are asked for.
const SCOPE: &str = "https://servicebus.azure.net/.default";

/// How long a source of tokens may take.
const FETCH_WITHIN: Duration = Duration::from_secs(30);

const SAS: &str = "servicebus.windows.net:sastoken";
const JWT: &str = "jwt";

/// Makes tokens by a credential.
pub(super) struct TokenMaker {
    credential: BusCredential,
    lifetime: Duration,
}

impl TokenMaker {
    pub(super) fn new(credential: BusCredential, lifetime: Duration) -> Self {
        Self {
            credential,
            lifetime,
        }
    }

    /// A token for a resource such as `sb://host/queue`.
    pub(super) async fn token(&self, resource: &str) -> Result<Token, Error> {
        let now = now();
        match &self.credential {
            BusCredential::Rule(rule) => {
                // A token ends with a whole second.
                let ends_at = (now + self.lifetime).as_secs();
                Ok(Token {
                    text: rule.token(resource, ends_at),
                    kind: SAS,
                    issued_at_ms: ms(now),
                    lifetime: Duration::from_secs(ends_at).saturating_sub(now),
                    is_renewable: true,
                })
            }
            BusCredential::Signature(text) => {
                let ends_at = expiry_of(text.expose()).unwrap_or(now + self.lifetime);
                let lifetime = ends_at.saturating_sub(now);
                if lifetime.is_zero() {
                    return Err(Error::refused(
                        "the SharedAccessSignature of the connection string has expired",
                    ));
                }
                Ok(Token {
                    text: text.clone(),
                    kind: SAS,
                    issued_at_ms: ms(now),
                    lifetime,
                    is_renewable: false,
                })
            }
            BusCredential::Bearer(source) => {
                let fetched = tokio::time::timeout(FETCH_WITHIN, source.token(SCOPE)).await;
                let fetched = fetched.map_err(|_| Error::later("no bearer token came in time"))?;
                let token = fetched.map_err(|error| {
                    let text = format!("there is no bearer token: {error}");
                    match error.is_temporary {
                        true => Error::later(text),
                        false => Error::refused(text),
                    }
                })?;
                let ends_at = token
                    .expires_at
                    .duration_since(UNIX_EPOCH)
                    .unwrap_or_default();
                let lifetime = ends_at.saturating_sub(now);
                if lifetime.is_zero() {
                    return Err(Error::later("the bearer token that came has expired"));
                }
                Ok(Token {
                    text: token.text,
                    kind: JWT,
                    issued_at_ms: ms(now),
                    lifetime,
                    is_renewable: true,
                })
            }
        }
    }
}

/// When a signature ends, if it says so.
fn expiry_of(token: &str) -> Option<Duration> {
    let fields = token.strip_prefix("SharedAccessSignature ")?;
    let expiry = fields
        .split('&')
        .find_map(|field| field.strip_prefix("se="));
    expiry?.parse().ok().map(Duration::from_secs)
}

fn now() -> Duration {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
}

fn ms(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secret::Secret;

    #[tokio::test]
    async fn a_fixed_signature_holds_until_it_says() {
        let token = |text: &str| {
            let maker = TokenMaker::new(
                BusCredential::Signature(Secret::new(text)),
                Duration::from_secs(60),
            );
            async move { maker.token("sb://h/q").await }
        };
        let expired = token("SharedAccessSignature sr=x&sig=y&se=1000&skn=r").await;
        let expired = expired.unwrap_err();
        assert_eq!(expired.kind(), crate::ErrorKind::Refused);
        let late = token("SharedAccessSignature sr=x&sig=y&se=99999999999&skn=r").await;
        let late = late.unwrap();
        assert!(!late.is_renewable && late.lifetime > Duration::from_secs(1 << 32));
    }

    #[tokio::test]
    async fn a_rule_signs_for_as_long_as_it_is_told() {
        let rule = crate::SasRule::new("r", "k");
        let maker = TokenMaker::new(BusCredential::Rule(rule), Duration::from_secs(60));
        let token = maker.token("sb://h/q").await.unwrap();
        let (least, most) = (Duration::from_secs(59), Duration::from_secs(60));
        assert!(token.is_renewable && (least..=most).contains(&token.lifetime));
        let ends_at = expiry_of(token.text.expose()).unwrap();
        assert!(ends_at <= now() + Duration::from_secs(60));
    }
}
