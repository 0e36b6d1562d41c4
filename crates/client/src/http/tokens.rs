//! Bearer tokens, which are kept until they are about to end.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::sync::Mutex;

use crate::credential::{BearerToken, TokenSource};
use crate::error::Error;
use crate::secret::Secret;

/// How long a source of tokens may take.
const FETCH_WITHIN: Duration = Duration::from_secs(30);

/// A token that ends sooner is not used for another request.
const LIFETIME_MIN: Duration = Duration::from_mins(2);

pub(crate) struct Tokens {
    source: Arc<dyn TokenSource>,
    scope: &'static str,
    last: Mutex<Option<BearerToken>>,
}

impl Tokens {
    pub(crate) fn new(source: Arc<dyn TokenSource>, scope: &'static str) -> Self {
        Self {
            source,
            scope,
            last: Mutex::new(None),
        }
    }

    /// A token that lives for a while. Those who ask at once share one. To drop the future asks again next time.
    pub(crate) async fn token(&self) -> Result<Secret, Error> {
        let mut last = self.last.lock().await;
        let long_enough = SystemTime::now() + LIFETIME_MIN;
        if let Some(token) = last.as_ref().filter(|it| it.expires_at > long_enough) {
            return Ok(token.text.clone());
        }
        let fetched = tokio::time::timeout(FETCH_WITHIN, self.source.token(self.scope)).await;
        let fetched = fetched.map_err(|_| Error::later("no bearer token came in time"))?;
        match fetched {
            Ok(token) => {
                let text = token.text.clone();
                *last = Some(token);
                Ok(text)
            }
            // The last one may still do.
            Err(error) => match last.as_ref().filter(|it| it.expires_at > SystemTime::now()) {
                Some(token) => Ok(token.text.clone()),
                None => {
                    let text = format!("there is no bearer token: {error}");
                    Err(match error.is_temporary {
                        true => Error::later(text),
                        false => Error::refused(text),
                    })
                }
            },
        }
    }
}
