//! Makes shared access signatures for Queue Storage: URLs that carry what they permit.
//!
//! Source: *Create an account SAS*, *Create a service SAS*.

use std::fmt::Write as _;

use percent_encoding::utf8_percent_encode;

use super::{ENCODED, SharedKey};
use crate::connection_string::QueueAccount;
use crate::credential::QueueCredential;
use crate::secret::Secret;

/// What both kinds of signature are made for. It decides what the signed text holds.
const SIGNED_VERSION: &str = "2024-11-04";

/// All that a signature of an account can permit of queues, in the order that the service wants.
const ACCOUNT_PERMISSIONS: &str = "rwdlacup";

/// All that a signature of a queue can permit, in the order that the service wants.
const QUEUE_PERMISSIONS: &str = "raup";

/// What a signature is to permit.
#[derive(Clone, Copy, Debug)]
pub struct QueueSas<'a> {
    /// The queue; without one, the whole service.
    pub queue: Option<&'a str>,
    /// Letters in any order; without them, all.
    pub permissions: Option<&'a str>,
    /// Until when, as `2026-11-21T04:24:07Z`.
    pub expiry: &'a str,
    /// Whether it is good over TLS alone.
    pub https_only: bool,
}

/// Why there is no signature.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SasError {
    /// The account has no key: it is known by a signature or by bearer tokens, which cannot sign.
    #[error("only an account key can sign, and this credential has none")]
    NoKey,
    /// A letter is unknown or comes twice, or there is none.
    #[error("permissions are letters of {allowed}, each once, and not {given}")]
    Permissions {
        /// What was asked for.
        given: String,
        /// The letters that there are.
        allowed: &'static str,
    },
}

impl QueueAccount {
    /// The URL of the service or of a queue, with a signature that is made here: nobody is asked, and the queue
    /// need not exist. It cannot be taken back except by replacing the account's key.
    pub fn signed_url(&self, sas: &QueueSas<'_>) -> Result<Secret, SasError> {
        let QueueCredential::SharedKey(key) = self.credential() else {
            return Err(SasError::NoKey);
        };
        Ok(self.url_with(sas.queue, &key.sas_query(sas)?))
    }

    /// The URL of a queue, with a signature that permits what a stored access policy of the queue says, until the
    /// policy ends or is removed. The policy must say both what is permitted and until when.
    pub fn signed_url_by_policy(
        &self,
        queue: &str,
        policy: &str,
        https_only: bool,
    ) -> Result<Secret, SasError> {
        let QueueCredential::SharedKey(key) = self.credential() else {
            return Err(SasError::NoKey);
        };
        let query = key.policy_query(queue, policy, https_only);
        Ok(self.url_with(Some(queue), &query))
    }

    fn url_with(&self, queue: Option<&str>, query: &Secret) -> Secret {
        let mut url = self.endpoint().url();
        if let Some(queue) = queue {
            // Writing to a string cannot fail.
            let _ = write!(url, "/{}", utf8_percent_encode(queue, ENCODED));
        } else if self.endpoint().path.is_empty() {
            url.push('/');
        }
        Secret::new(format!("{url}?{}", query.expose()))
    }
}

impl SharedKey {
    /// The parameters of a query that permit what is asked for.
    pub fn sas_query(&self, sas: &QueueSas<'_>) -> Result<Secret, SasError> {
        Ok(self.query_of(match sas.queue {
            Some(queue) => of_queue(self.account(), queue, sas)?,
            None => of_account(self.account(), sas)?,
        }))
    }

    /// The parameters of a query that permit what a stored access policy of a queue says.
    pub fn policy_query(&self, queue: &str, policy: &str, https_only: bool) -> Secret {
        self.query_of(of_policy(self.account(), queue, policy, https_only))
    }

    fn query_of(&self, (pairs, text): Parts) -> Secret {
        let mut query = String::new();
        for (name, value) in pairs {
            let _ = write!(query, "{name}={}&", utf8_percent_encode(&value, ENCODED));
        }
        let signature = self.sign(&text);
        let _ = write!(query, "sig={}", utf8_percent_encode(&signature, ENCODED));
        Secret::new(query)
    }
}

impl QueueSas<'_> {
    /// The letters that are asked for, in the order of all there are.
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
        protocol(self.https_only)
    }
}

fn protocol(https_only: bool) -> &'static str {
    match https_only {
        true => "https",
        false => "https,http",
    }
}

type Parts = (Vec<(&'static str, String)>, String);

fn of_account(account: &str, sas: &QueueSas<'_>) -> Result<Parts, SasError> {
    let permissions = sas.ordered(ACCOUNT_PERMISSIONS)?;
    let (expiry, protocol) = (sas.expiry, sas.protocol());
    // Account, permissions, services, resource types, start, expiry, addresses, protocol, version,
    // encryption scope.
    let text =
        format!("{account}\n{permissions}\nq\nsco\n\n{expiry}\n\n{protocol}\n{SIGNED_VERSION}\n\n");
    let mut query = common(sas, permissions);
    query.extend([("ss", "q".to_owned()), ("srt", "sco".to_owned())]);
    Ok((query, text))
}

fn of_queue(account: &str, queue: &str, sas: &QueueSas<'_>) -> Result<Parts, SasError> {
    let permissions = sas.ordered(QUEUE_PERMISSIONS)?;
    let (expiry, protocol) = (sas.expiry, sas.protocol());
    // Permissions, start, expiry, resource, stored policy, addresses, protocol, version.
    let text = format!(
        "{permissions}\n\n{expiry}\n/queue/{account}/{queue}\n\n\n{protocol}\n{SIGNED_VERSION}"
    );
    Ok((common(sas, permissions), text))
}

fn of_policy(account: &str, queue: &str, policy: &str, https_only: bool) -> Parts {
    let protocol = protocol(https_only);
    // As of a queue, with permissions and expiry of the policy.
    let text = format!("\n\n\n/queue/{account}/{queue}\n{policy}\n\n{protocol}\n{SIGNED_VERSION}");
    let query = vec![
        ("sv", SIGNED_VERSION.to_owned()),
        ("si", policy.to_owned()),
        ("spr", protocol.to_owned()),
    ];
    (query, text)
}

fn common(sas: &QueueSas<'_>, permissions: String) -> Vec<(&'static str, String)> {
    vec![
        ("sv", SIGNED_VERSION.to_owned()),
        ("se", sas.expiry.to_owned()),
        ("sp", permissions),
        ("spr", sas.protocol().to_owned()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sas<'a>(queue: Option<&'a str>, permissions: Option<&'a str>) -> QueueSas<'a> {
        QueueSas {
            queue,
            permissions,
            expiry: "2026-11-21T00:00:00Z",
            https_only: false,
        }
    }

    #[test]
    fn the_signed_texts() {
        let (_, text) = of_queue("a", "jobs", &sas(Some("jobs"), Some("pa"))).unwrap();
        assert_eq!(
            text,
            "ap\n\n2026-11-21T00:00:00Z\n/queue/a/jobs\n\n\nhttps,http\n2024-11-04"
        );
        let (_, text) = of_account("a", &sas(None, None)).unwrap();
        assert_eq!(
            text,
            "a\nrwdlacup\nq\nsco\n\n2026-11-21T00:00:00Z\n\nhttps,http\n2024-11-04\n\n"
        );
    }

    #[test]
    fn a_policy_says_what_its_signatures_permit() {
        let (query, text) = of_policy("a", "jobs", "readers", true);
        assert_eq!(text, "\n\n\n/queue/a/jobs\nreaders\n\nhttps\n2024-11-04");
        let names: Vec<_> = query.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, ["sv", "si", "spr"]);
        let account = QueueAccount::development();
        let url = account.signed_url_by_policy("jobs", "a b", false).unwrap();
        let expected = "http://127.0.0.1:10001/devstoreaccount1/jobs?sv=2024-11-04&si=a%20b&";
        assert!(url.expose().starts_with(expected), "{}", url.expose());
        let account = QueueAccount::parse("http://h/a?sig=x").unwrap();
        let result = account.signed_url_by_policy("jobs", "readers", false);
        assert_eq!(result.map(drop), Err(SasError::NoKey));
    }

    #[test]
    fn the_urls() {
        let url = |text: &str, queue| {
            let account = QueueAccount::parse(text).unwrap();
            let url = account.signed_url(&sas(queue, Some("r"))).unwrap();
            let (url, signature) = url.expose().split_once("&sig=").unwrap();
            assert!(signature.ends_with("%3D"), "{signature}");
            url.to_owned()
        };
        let development = "UseDevelopmentStorage=true";
        let azure = "AccountName=a;AccountKey=c2VjcmV0";
        let query = "sv=2024-11-04&se=2026-11-21T00%3A00%3A00Z&sp=r&spr=https%2Chttp";
        assert_eq!(
            url(development, Some("jobs")),
            format!("http://127.0.0.1:10001/devstoreaccount1/jobs?{query}")
        );
        assert_eq!(
            url(azure, None),
            format!("https://a.queue.core.windows.net/?{query}&ss=q&srt=sco")
        );
    }

    #[test]
    fn permissions_are_checked() {
        let account = QueueAccount::development();
        for (queue, permissions) in [
            (Some("jobs"), ""),
            (Some("jobs"), "w"),
            (Some("jobs"), "aa"),
            (None, "x"),
            (None, "rä"),
        ] {
            let result = account.signed_url(&sas(queue, Some(permissions)));
            assert!(
                matches!(result, Err(SasError::Permissions { .. })),
                "{permissions}: {result:?}"
            );
        }
    }

    #[test]
    fn a_signature_cannot_sign() {
        let account = QueueAccount::parse("http://h/a?sig=x").unwrap();
        let result = account.signed_url(&sas(None, None));
        assert_eq!(result.map(drop), Err(SasError::NoKey));
    }
}
