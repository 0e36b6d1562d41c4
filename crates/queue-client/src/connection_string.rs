//! Reads connection strings in the forms that the SDKs take.
//!
//! Errors name the setting that is wrong. They never repeat a value, which may be a secret, nor a
//! name that does not look like one, because that may be part of a secret too.
//!
//! Source: *Configure Azure Storage connection strings*.

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::account::{Account, Credential, DEVELOPMENT_ACCOUNT, DEVELOPMENT_KEY, Endpoint};

/// Settings for other services, which do not affect queues.
const OF_OTHER_SERVICES: [&str; 8] = [
    "blobendpoint",
    "blobsecondaryendpoint",
    "fileendpoint",
    "filesecondaryendpoint",
    "tableendpoint",
    "tablesecondaryendpoint",
    "dfsendpoint",
    "dfssecondaryendpoint",
];

/// An error in a connection string.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("the connection string {0}")]
pub struct ConnectionStringError(String);

/// The settings of a connection string that Kew uses.
#[derive(Default)]
struct Settings<'a> {
    protocol: Option<&'a str>,
    account_name: Option<&'a str>,
    account_key: Option<&'a str>,
    signature: Option<&'a str>,
    suffix: Option<&'a str>,
    queue_endpoint: Option<&'a str>,
    queue_secondary_endpoint: Option<&'a str>,
    development: Option<&'a str>,
    development_proxy: Option<&'a str>,
}

impl Account {
    /// Reads `NAME=VALUE;NAME=VALUE`, or the URL of an endpoint with a shared access signature.
    ///
    /// It takes `UseDevelopmentStorage=true`, or an endpoint (`QueueEndpoint`, or `AccountName` with
    /// `DefaultEndpointsProtocol` and `EndpointSuffix`) and a credential (`AccountKey` or
    /// `SharedAccessSignature`). Names are taken in any case.
    pub fn from_connection_string(text: &str) -> Result<Self, ConnectionStringError> {
        let text = text.trim();
        if has_scheme(text) {
            return from_url(text);
        }
        let settings = Settings::parse(text)?;
        if let Some(development) = settings.development {
            return settings.development_account(development);
        }
        let (endpoint, query) = settings.endpoint()?;
        let credential = settings.credential(query)?;
        let secondary = match settings.queue_secondary_endpoint {
            Some(url) => Some(parse_endpoint("QueueSecondaryEndpoint", url)?.0),
            None => endpoint.secondary(),
        };
        Ok(Self {
            endpoint,
            credential,
            secondary,
        })
    }
}

impl<'a> Settings<'a> {
    fn parse(text: &'a str) -> Result<Self, ConnectionStringError> {
        let mut settings = Self::default();
        let parts = text.split(';').map(str::trim).enumerate();
        for (index, part) in parts.filter(|(_, part)| !part.is_empty()) {
            let (name, value) = part
                .split_once('=')
                .filter(|(name, _)| looks_like_a_name(name))
                .ok_or_else(|| wrong(format!("is not NAME=VALUE in part {}", index + 1)))?;
            settings.set(name, value)?;
        }
        if settings.is_empty() {
            return Err(wrong("is empty"));
        }
        Ok(settings)
    }

    fn set(&mut self, name: &str, value: &'a str) -> Result<(), ConnectionStringError> {
        let place = match name.to_ascii_lowercase().as_str() {
            "defaultendpointsprotocol" => &mut self.protocol,
            "accountname" => &mut self.account_name,
            "accountkey" => &mut self.account_key,
            "sharedaccesssignature" => &mut self.signature,
            "endpointsuffix" => &mut self.suffix,
            "queueendpoint" => &mut self.queue_endpoint,
            "queuesecondaryendpoint" => &mut self.queue_secondary_endpoint,
            "usedevelopmentstorage" => &mut self.development,
            "developmentstorageproxyuri" => &mut self.development_proxy,
            other if OF_OTHER_SERVICES.contains(&other) => return Ok(()),
            _ => {
                return Err(wrong(format!(
                    "has {name}, which is not a setting of storage"
                )));
            }
        };
        if value.is_empty() {
            return Err(wrong(format!("has no value for {name}")));
        }
        if place.replace(value).is_some() {
            return Err(wrong(format!("has {name} twice")));
        }
        Ok(())
    }

    fn is_empty(&self) -> bool {
        self.account_name.is_none()
            && self.queue_endpoint.is_none()
            && self.development.is_none()
            && self.account_key.is_none()
            && self.signature.is_none()
    }

    fn development_account(&self, value: &str) -> Result<Account, ConnectionStringError> {
        if !value.eq_ignore_ascii_case("true") {
            return Err(wrong(
                "has UseDevelopmentStorage with a value other than true, but it can only be true",
            ));
        }
        let others = [
            self.account_name,
            self.account_key,
            self.signature,
            self.queue_endpoint,
        ];
        if others.iter().any(Option::is_some) {
            return Err(wrong(
                "has other settings beside UseDevelopmentStorage=true, which already sets \
                 endpoint, account and key",
            ));
        }
        let host = match self.development_proxy {
            Some(url) => parse_endpoint("DevelopmentStorageProxyUri", url)?.0,
            None => parse_endpoint("UseDevelopmentStorage", "http://127.0.0.1")?.0,
        };
        let endpoint = Endpoint {
            authority: format!("{}:10001", host.authority),
            path: format!("/{DEVELOPMENT_ACCOUNT}"),
            ..host
        };
        Ok(Account {
            secondary: endpoint.secondary(),
            endpoint,
            credential: shared_key(DEVELOPMENT_ACCOUNT, DEVELOPMENT_KEY)?,
        })
    }

    fn endpoint(&self) -> Result<(Endpoint, Option<&'a str>), ConnectionStringError> {
        if let Some(url) = self.queue_endpoint {
            return parse_endpoint("QueueEndpoint", url);
        }
        let account = self
            .account_name
            .ok_or_else(|| wrong("has neither QueueEndpoint nor AccountName"))?;
        let scheme = self.protocol.unwrap_or("https");
        if !matches!(scheme, "http" | "https") {
            return Err(wrong(
                "has a DefaultEndpointsProtocol that is neither http nor https",
            ));
        }
        let suffix = self.suffix.unwrap_or("core.windows.net");
        let name = if self.suffix.is_some() {
            "AccountName or EndpointSuffix"
        } else {
            "AccountName"
        };
        parse_endpoint(name, &format!("{scheme}://{account}.queue.{suffix}"))
            .map(|(endpoint, _)| (endpoint, None))
    }

    fn credential(&self, query: Option<&str>) -> Result<Credential, ConnectionStringError> {
        match (self.account_key, self.signature.or(query)) {
            (Some(_), Some(_)) => Err(wrong(
                "has both an AccountKey and a shared access signature: give one of them",
            )),
            (Some(key), None) => {
                let account = self
                    .account_name
                    .ok_or_else(|| wrong("has an AccountKey and no AccountName"))?;
                shared_key(account, key)
            }
            (None, Some(signature)) => shared_access_signature(signature),
            (None, None) => Err(wrong(
                "has neither AccountKey nor SharedAccessSignature: add one of them to sign \
                 requests with",
            )),
        }
    }
}

fn from_url(url: &str) -> Result<Account, ConnectionStringError> {
    let (endpoint, query) = parse_endpoint("URL", url)?;
    let query = query.ok_or_else(|| {
        wrong(
            "is a URL without a shared access signature: add one, or use a full connection string",
        )
    })?;
    Ok(Account {
        secondary: endpoint.secondary(),
        endpoint,
        credential: shared_access_signature(query)?,
    })
}

fn has_scheme(text: &str) -> bool {
    let starts_with = |prefix: &str| {
        text.get(..prefix.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(prefix))
    };
    starts_with("http://") || starts_with("https://")
}

/// Splits a URL; `name` is the setting that it comes from.
fn parse_endpoint<'a>(
    name: &str,
    url: &'a str,
) -> Result<(Endpoint, Option<&'a str>), ConnectionStringError> {
    let bad = |why: &str| wrong(format!("has a bad {name}: {why}"));
    if !has_scheme(url) {
        return Err(bad("it must begin with http:// or https://"));
    }
    let (scheme, rest) = url.split_once("://").unwrap_or_default();
    let scheme = if scheme.eq_ignore_ascii_case("https") {
        "https"
    } else {
        "http"
    };
    let (place, query) = match rest.split_once('?') {
        Some((place, query)) => (place, Some(query).filter(|query| !query.is_empty())),
        None => (rest, None),
    };
    let (authority, path) = match place.find('/') {
        Some(index) => place.split_at(index),
        None => (place, ""),
    };
    let in_host = |c: char| c.is_ascii_alphanumeric() || "-._:[]".contains(c);
    if authority.is_empty() || !authority.chars().all(in_host) {
        return Err(bad("it has no valid host"));
    }
    // The address between brackets has colons of its own.
    let (_, after_address) = authority.rsplit_once(']').unwrap_or(("", authority));
    if let Some((_, port)) = after_address.split_once(':')
        && port.parse::<u16>().is_err()
    {
        return Err(bad("its port is not a number up to 65535"));
    }
    let path = path.trim_end_matches('/');
    let in_path = |c: char| c.is_ascii_alphanumeric() || "-._/".contains(c);
    if !path.chars().all(in_path) {
        return Err(bad(
            "its path has characters that are not allowed in the name of an account",
        ));
    }
    let endpoint = Endpoint {
        scheme,
        authority: authority.to_ascii_lowercase(),
        path: path.to_owned(),
    };
    if endpoint.url().parse::<ureq::http::Uri>().is_err() {
        return Err(bad("it is not a URL"));
    }
    Ok((endpoint, query))
}

fn shared_key(account: &str, key: &str) -> Result<Credential, ConnectionStringError> {
    let key = STANDARD
        .decode(key.trim())
        .map_err(|_| wrong("has an AccountKey that is not Base64"))?;
    Ok(Credential::SharedKey {
        account: account.to_owned(),
        key: Box::new(hmac::Key::new(hmac::HMAC_SHA256, &key)),
    })
}

fn shared_access_signature(text: &str) -> Result<Credential, ConnectionStringError> {
    let text = text.strip_prefix('?').unwrap_or(text);
    let has_signature = text.split('&').any(|pair| {
        pair.strip_prefix("sig=")
            .is_some_and(|value| !value.is_empty())
    });
    let in_query = |c: char| c.is_ascii_graphic() && !"\"<>#".contains(c);
    if !has_signature || !text.chars().all(in_query) {
        return Err(wrong(
            "has a shared access signature that is not a query with sig=",
        ));
    }
    Ok(Credential::SharedAccessSignature(text.to_owned()))
}

fn looks_like_a_name(name: &str) -> bool {
    (1..=40).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_alphabetic())
}

fn wrong(what: impl Into<String>) -> ConnectionStringError {
    ConnectionStringError(what.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "c2VjcmV0LXNlY3JldC1zZWNyZXQ=";

    fn check(text: &str, url: &str, credential: &str) {
        let account = Account::from_connection_string(text);
        let account = account.unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(account.url(), url, "{text}");
        assert_eq!(format!("{:?}", account.credential), credential, "{text}");
    }

    fn check_wrong(text: &str, named: &str) {
        let error = Account::from_connection_string(text)
            .err()
            .unwrap_or_else(|| panic!("{text} was accepted"))
            .to_string();
        assert!(error.contains(named), "{text}: {error}");
        assert!(!error.contains("c2Vj"), "{text}: {error}");
    }

    #[test]
    fn the_forms_of_the_sdks() {
        let key = format!("AccountKey={SECRET}");
        for (text, url, credential) in [
            (
                "UseDevelopmentStorage=true".to_owned(),
                "http://127.0.0.1:10001/devstoreaccount1",
                "SharedKey(devstoreaccount1)",
            ),
            (
                "UseDevelopmentStorage=true;DevelopmentStorageProxyUri=http://azurite".to_owned(),
                "http://azurite:10001/devstoreaccount1",
                "SharedKey(devstoreaccount1)",
            ),
            (
                format!("DefaultEndpointsProtocol=https;AccountName=a1;{key};EndpointSuffix=core.chinacloudapi.cn"),
                "https://a1.queue.core.chinacloudapi.cn",
                "SharedKey(a1)",
            ),
            (
                format!("AccountName=a1;{key}"),
                "https://a1.queue.core.windows.net",
                "SharedKey(a1)",
            ),
            (
                format!(" accountname=a1; {key};;queueendpoint=HTTP://Kew.example:8080/a1/; BlobEndpoint=http://b/a1 "),
                "http://kew.example:8080/a1",
                "SharedKey(a1)",
            ),
            (
                "QueueEndpoint=https://a1.queue.core.windows.net/;SharedAccessSignature=?sv=2024-11-04&sig=x%3D".to_owned(),
                "https://a1.queue.core.windows.net",
                "SharedAccessSignature(..)",
            ),
            (
                "AccountName=a1;SharedAccessSignature=sv=1&sig=x".to_owned(),
                "https://a1.queue.core.windows.net",
                "SharedAccessSignature(..)",
            ),
            (
                "https://a1.queue.core.windows.net/?sv=2024-11-04&sig=x%3D".to_owned(),
                "https://a1.queue.core.windows.net",
                "SharedAccessSignature(..)",
            ),
        ] {
            check(&text, url, credential);
        }
    }

    #[test]
    fn errors_name_the_mistake_and_no_secret() {
        let key = format!("AccountKey={SECRET}");
        for (text, named) in [
            (String::new(), "empty"),
            (SECRET.to_owned(), "part 1"),
            (format!("AccountName=a;{SECRET}"), "part 2"),
            ("AccountName".to_owned(), "part 1"),
            (key.clone(), "neither QueueEndpoint nor AccountName"),
            (
                "AccountName=a".to_owned(),
                "neither AccountKey nor SharedAccessSignature",
            ),
            (format!("AccountNam=a;{key}"), "AccountNam,"),
            (format!("AccountName=;{key}"), "no value for AccountName"),
            (
                format!("AccountName=a;AccountName=b;{key}"),
                "AccountName twice",
            ),
            (format!("QueueEndpoint=http://h/a;{key}"), "no AccountName"),
            (
                format!("QueueEndpoint=h/a;AccountName=a;{key}"),
                "bad QueueEndpoint",
            ),
            (
                format!("QueueEndpoint=http:///a;AccountName=a;{key}"),
                "no valid host",
            ),
            (
                format!("QueueEndpoint=http://h:x/a;AccountName=a;{key}"),
                "bad QueueEndpoint",
            ),
            (format!("AccountName=a b;{key}"), "bad AccountName"),
            (
                format!("DefaultEndpointsProtocol=ftp;AccountName=a;{key}"),
                "DefaultEndpointsProtocol",
            ),
            (
                "AccountName=a;AccountKey=c2VjcmV0*".to_owned(),
                "not Base64",
            ),
            (
                format!("AccountName=a;{key};SharedAccessSignature=sig=c2Vj"),
                "both",
            ),
            (
                "AccountName=a;SharedAccessSignature=c2VjcmV0".to_owned(),
                "sig=",
            ),
            (
                "AccountName=a;SharedAccessSignature=sig=".to_owned(),
                "sig=",
            ),
            (
                format!("UseDevelopmentStorage=true;{key}"),
                "UseDevelopmentStorage",
            ),
            ("UseDevelopmentStorage=c2Vj".to_owned(), "can only be true"),
            ("http://h/a".to_owned(), "without a shared access signature"),
        ] {
            check_wrong(&text, named);
        }
    }

    #[test]
    fn a_secondary_is_found_in_both_styles() {
        let secondary = |text: &str| {
            let account = Account::from_connection_string(text).unwrap();
            account.secondary.unwrap().url()
        };
        assert_eq!(
            secondary("UseDevelopmentStorage=true"),
            "http://127.0.0.1:10001/devstoreaccount1-secondary"
        );
        assert_eq!(
            secondary("AccountName=a;SharedAccessSignature=sig=x"),
            "https://a-secondary.queue.core.windows.net"
        );
    }

    #[test]
    fn debugging_shows_no_secret() {
        let text = format!("AccountName=a1;AccountKey={SECRET}");
        let shown = format!("{:?}", Account::from_connection_string(&text).unwrap());
        assert!(
            shown.contains("SharedKey(a1)") && !shown.contains("c2Vj"),
            "{shown}"
        );
        let shown = format!(
            "{:?}",
            Account::from_connection_string("http://h/a?sig=c2VjcmV0").unwrap()
        );
        assert!(!shown.contains("c2Vj"), "{shown}");
    }
}
