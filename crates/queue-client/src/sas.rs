//! Creates shared access signatures: URLs that carry permissions.
//!
//! Source: *Create an account SAS*, *Create a service SAS*.

use std::fmt::Write as _;

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use percent_encoding::utf8_percent_encode;

use crate::account::{Account, Credential};
use crate::http::ENCODED;

/// The version of both kinds of signature. It decides which fields are signed.
const SIGNED_VERSION: &str = "2024-11-04";

/// All permissions of an account's signature for queues, in the order that the service requires.
const ACCOUNT_PERMISSIONS: &str = "rwdlacup";

/// All permissions of a queue's signature, in the order that the service requires.
const QUEUE_PERMISSIONS: &str = "raup";

/// What a signature permits.
#[derive(Clone, Debug)]
pub struct SasOptions<'a> {
    /// The queue. `None` means the whole service.
    pub queue: Option<&'a str>,
    /// Letters in any order. `None` means all.
    pub permissions: Option<&'a str>,
    /// The expiry, as `2026-11-21T04:24:07Z`.
    pub expiry: &'a str,
    /// Whether it is valid over TLS only.
    pub https_only: bool,
}

/// Why there is no signature.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum SasError {
    /// The account is given by a signature, which cannot sign.
    #[error("the connection string has no account key, and only an account key can sign")]
    NoKey,
    /// A letter is unknown or comes twice, or there is none.
    #[error("the permissions are {given}, and must be letters of {allowed}, each once")]
    Permissions {
        /// The letters that the caller gave.
        given: String,
        /// The letters that exist.
        allowed: &'static str,
    },
}

impl Account {
    /// The URL of the service or of a queue, with a signature made here: this sends no request, and
    /// the queue need not exist. To revoke the signature, replace the account's key.
    pub fn signed_url(&self, options: &SasOptions<'_>) -> Result<String, SasError> {
        let Credential::SharedKey { account, key } = &self.credential else {
            return Err(SasError::NoKey);
        };
        let (query, text) = match options.queue {
            Some(queue) => of_queue(account, queue, options)?,
            None => of_account(account, options)?,
        };
        let signature = STANDARD.encode(hmac::sign(key, text.as_bytes()));
        let mut url = self.url();
        if let Some(queue) = options.queue {
            url.extend(["/", queue]);
        } else if self.endpoint.path.is_empty() {
            url.push('/');
        }
        url.push('?');
        for (name, value) in query {
            // Writing to a string cannot fail.
            let _ = write!(url, "{name}={}&", utf8_percent_encode(&value, ENCODED));
        }
        let _ = write!(url, "sig={}", utf8_percent_encode(&signature, ENCODED));
        Ok(url)
    }
}

impl SasOptions<'_> {
    /// The requested letters, in the order that the service requires.
    fn ordered(&self, allowed: &'static str) -> Result<String, SasError> {
        let given = self.permissions.unwrap_or(allowed);
        let ordered: String = allowed.chars().filter(|&c| given.contains(c)).collect();
        if ordered.is_empty() || ordered.len() != given.len() {
            return Err(SasError::Permissions {
                given: given.to_owned(),
                allowed,
            });
        }
        Ok(ordered)
    }

    fn protocol(&self) -> &'static str {
        if self.https_only {
            "https"
        } else {
            "https,http"
        }
    }
}

type Parts = (Vec<(&'static str, String)>, String);

fn of_account(account: &str, options: &SasOptions<'_>) -> Result<Parts, SasError> {
    let permissions = options.ordered(ACCOUNT_PERMISSIONS)?;
    let (expiry, protocol) = (options.expiry, options.protocol());
    // Account, permissions, services, resource types, start, expiry, addresses, protocol, version,
    // encryption scope.
    let text =
        format!("{account}\n{permissions}\nq\nsco\n\n{expiry}\n\n{protocol}\n{SIGNED_VERSION}\n\n");
    let mut query = common(options, permissions);
    query.extend([("ss", "q".to_owned()), ("srt", "sco".to_owned())]);
    Ok((query, text))
}

fn of_queue(account: &str, queue: &str, options: &SasOptions<'_>) -> Result<Parts, SasError> {
    let permissions = options.ordered(QUEUE_PERMISSIONS)?;
    let (expiry, protocol) = (options.expiry, options.protocol());
    // Permissions, start, expiry, resource, stored policy, addresses, protocol, version.
    let text = format!(
        "{permissions}\n\n{expiry}\n/queue/{account}/{queue}\n\n\n{protocol}\n{SIGNED_VERSION}"
    );
    Ok((common(options, permissions), text))
}

fn common(options: &SasOptions<'_>, permissions: String) -> Vec<(&'static str, String)> {
    vec![
        ("sv", SIGNED_VERSION.to_owned()),
        ("se", options.expiry.to_owned()),
        ("sp", permissions),
        ("spr", options.protocol().to_owned()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options<'a>(queue: Option<&'a str>, permissions: Option<&'a str>) -> SasOptions<'a> {
        SasOptions {
            queue,
            permissions,
            expiry: "2026-11-21T00:00:00Z",
            https_only: false,
        }
    }

    #[test]
    fn the_signed_texts() {
        let (_, text) = of_queue("a", "jobs", &options(Some("jobs"), Some("pa"))).unwrap();
        assert_eq!(
            text,
            "ap\n\n2026-11-21T00:00:00Z\n/queue/a/jobs\n\n\nhttps,http\n2024-11-04"
        );
        let (_, text) = of_account("a", &options(None, None)).unwrap();
        assert_eq!(
            text,
            "a\nrwdlacup\nq\nsco\n\n2026-11-21T00:00:00Z\n\nhttps,http\n2024-11-04\n\n"
        );
    }

    #[test]
    fn permissions_are_checked() {
        let account = Account::development();
        for (queue, permissions) in [
            (Some("jobs"), ""),
            (Some("jobs"), "w"),
            (Some("jobs"), "aa"),
            (None, "x"),
            (None, "rä"),
        ] {
            let result = account.signed_url(&options(queue, Some(permissions)));
            assert!(
                matches!(result, Err(SasError::Permissions { .. })),
                "{permissions}: {result:?}"
            );
        }
    }

    #[test]
    fn a_signature_cannot_sign() {
        let account = Account::from_connection_string("http://h/a?sig=x").unwrap();
        assert_eq!(
            account.signed_url(&options(None, None)),
            Err(SasError::NoKey)
        );
    }
}
