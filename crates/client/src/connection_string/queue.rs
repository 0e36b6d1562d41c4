//! An account of Queue Storage.

use std::sync::Arc;

use super::endpoint::{self, Endpoint};
use super::settings::{Service, Setting, Settings};
use super::{ConnectionStringError, wrong};
use crate::credential::{QueueCredential, TokenSource};
use crate::secret::Secret;
use crate::sign::SharedKey;

/// The account that every emulator of the service knows.
const DEVELOPMENT_ACCOUNT: &str = "devstoreaccount1";

/// The key of [`DEVELOPMENT_ACCOUNT`]. It is public and protects nothing.
const DEVELOPMENT_KEY: &str =
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

/// The port of [`DEVELOPMENT_ACCOUNT`].
const DEVELOPMENT_PORT: u16 = 10001;

/// An endpoint of Queue Storage, and what opens it.
#[derive(Clone, Debug)]
pub struct QueueAccount {
    endpoint: Endpoint,
    secondary: Option<Endpoint>,
    credential: QueueCredential,
}

impl QueueAccount {
    /// Reads a connection string of Queue Storage.
    ///
    /// It takes `UseDevelopmentStorage=true`, alone or with `DevelopmentStorageProxyUri`; or an endpoint
    /// (`QueueEndpoint`, or `AccountName` with `DefaultEndpointsProtocol` and `EndpointSuffix`) and a
    /// credential (`AccountKey` or `SharedAccessSignature`); or the URL of an endpoint with a shared access
    /// signature.
    pub fn parse(text: &str) -> Result<Self, ConnectionStringError> {
        let text = text.trim();
        if endpoint::has_http_scheme(text) {
            return Self::of_url(text);
        }
        let settings = Settings::parse(text)?;
        settings.must_be_for(Service::Queue)?;
        Self::of(&settings)
    }

    /// The well-known account at 127.0.0.1:10001, where Kew and Azurite listen by default.
    pub fn development() -> Self {
        Self::parse("UseDevelopmentStorage=true")
            .expect("the development account has a valid endpoint and key")
    }

    /// An account whose requests carry bearer tokens. Its URL begins with `https://`, unless it is on this
    /// machine.
    pub fn with_tokens(
        url: &str,
        source: Arc<dyn TokenSource>,
    ) -> Result<Self, ConnectionStringError> {
        let (endpoint, query) = endpoint::of_http("URL", url.trim())?;
        if query.is_some() {
            return Err(endpoint::bad("URL", "it has a query, and tokens are used"));
        }
        if !endpoint.is_tls && !endpoint.is_loopback() {
            let why = "bearer tokens need https://, because anyone who sees one can use it";
            return Err(endpoint::bad("URL", why));
        }
        Ok(Self {
            secondary: endpoint.secondary(),
            endpoint,
            credential: QueueCredential::Bearer(source),
        })
    }

    /// Where requests go.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Where reads of the secondary go, if it is known.
    pub fn secondary(&self) -> Option<&Endpoint> {
        self.secondary.as_ref()
    }

    /// What opens it.
    pub fn credential(&self) -> &QueueCredential {
        &self.credential
    }

    pub(super) fn of(settings: &Settings<'_>) -> Result<Self, ConnectionStringError> {
        if settings.is_true(Setting::UseDevelopmentStorage)? {
            return Self::of_development(settings);
        }
        if settings.get(Setting::DevelopmentStorageProxyUri).is_some() {
            let text = "has DevelopmentStorageProxyUri without UseDevelopmentStorage=true";
            return Err(wrong(text));
        }
        let (endpoint, query) = endpoint_of(settings)?;
        let secondary = match settings.get(Setting::QueueSecondaryEndpoint) {
            Some(url) => {
                let (secondary, query) = endpoint::of_http("QueueSecondaryEndpoint", url)?;
                if query.is_some() {
                    let why = "give the signature as SharedAccessSignature";
                    return Err(endpoint::bad("QueueSecondaryEndpoint", why));
                }
                Some(secondary)
            }
            None => endpoint.secondary(),
        };
        Ok(Self {
            credential: credential_of(settings, query)?,
            endpoint,
            secondary,
        })
    }

    fn of_development(settings: &Settings<'_>) -> Result<Self, ConnectionStringError> {
        let others = [
            Setting::DefaultEndpointsProtocol,
            Setting::AccountName,
            Setting::AccountKey,
            Setting::EndpointSuffix,
            Setting::QueueEndpoint,
            Setting::QueueSecondaryEndpoint,
            Setting::SharedAccessSignature,
        ];
        if let Some(other) = others.into_iter().find(|&it| settings.get(it).is_some()) {
            return Err(wrong(format!(
                "has UseDevelopmentStorage=true, which stands for endpoint, account and key, and {}",
                other.text()
            )));
        }
        let name = "DevelopmentStorageProxyUri";
        let host = settings.get(Setting::DevelopmentStorageProxyUri);
        let (host, query) = endpoint::of_http(name, host.unwrap_or("http://127.0.0.1"))?;
        if query.is_some() || host.port.is_some() || !host.path.is_empty() {
            return Err(endpoint::bad(name, "it can be http://HOST, and no more"));
        }
        let endpoint = Endpoint {
            port: Some(DEVELOPMENT_PORT),
            path: format!("/{DEVELOPMENT_ACCOUNT}"),
            ..host
        };
        Ok(Self {
            secondary: endpoint.secondary(),
            endpoint,
            credential: shared_key(DEVELOPMENT_ACCOUNT, DEVELOPMENT_KEY)?,
        })
    }

    fn of_url(url: &str) -> Result<Self, ConnectionStringError> {
        let (endpoint, query) = endpoint::of_http("URL", url)?;
        let query = query.ok_or_else(|| {
            wrong("is a URL without a shared access signature: only with one can it stand alone")
        })?;
        Ok(Self {
            secondary: endpoint.secondary(),
            endpoint,
            credential: signature(query)?,
        })
    }
}

fn endpoint_of<'a>(
    settings: &Settings<'a>,
) -> Result<(Endpoint, Option<&'a str>), ConnectionStringError> {
    let scheme = match settings.get(Setting::DefaultEndpointsProtocol) {
        None => "https",
        Some(scheme) if scheme.eq_ignore_ascii_case("https") => "https",
        Some(scheme) if scheme.eq_ignore_ascii_case("http") => "http",
        Some(_) => {
            let text = "has a DefaultEndpointsProtocol that is neither http nor https";
            return Err(wrong(text));
        }
    };
    if let Some(url) = settings.get(Setting::QueueEndpoint) {
        return endpoint::of_http("QueueEndpoint", url);
    }
    let account = settings
        .get(Setting::AccountName)
        .ok_or_else(|| wrong("has neither QueueEndpoint nor AccountName"))?;
    if !is_account(account) {
        return Err(wrong(
            "has an AccountName with characters other than letters, digits and hyphens",
        ));
    }
    let suffix = settings.get(Setting::EndpointSuffix);
    let suffix = suffix.unwrap_or("core.windows.net").trim_matches('.');
    let url = format!("{account}.queue.{suffix}");
    let (host, port) = endpoint::host_and_port("EndpointSuffix", &url)?;
    let endpoint = Endpoint {
        is_tls: scheme == "https",
        host,
        port,
        path: String::new(),
    };
    Ok((endpoint, None))
}

fn is_account(name: &str) -> bool {
    let is_known = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    (1..=63).contains(&name.len()) && name.bytes().all(is_known)
}

fn credential_of(
    settings: &Settings<'_>,
    query: Option<&str>,
) -> Result<QueueCredential, ConnectionStringError> {
    let given = settings.get(Setting::SharedAccessSignature);
    if given.is_some() && query.is_some() {
        return Err(wrong(
            "has a signature in QueueEndpoint and in SharedAccessSignature: give one of them",
        ));
    }
    match (settings.get(Setting::AccountKey), given.or(query)) {
        (Some(_), Some(_)) => Err(wrong(
            "has both an AccountKey and a shared access signature: give one of them",
        )),
        (Some(key), None) => {
            let account = settings
                .get(Setting::AccountName)
                .ok_or_else(|| wrong("has an AccountKey and no AccountName"))?;
            shared_key(account, key)
        }
        (None, Some(text)) => signature(text),
        (None, None) => Err(wrong(
            "has neither AccountKey nor SharedAccessSignature, so nothing to sign requests with",
        )),
    }
}

fn shared_key(account: &str, key: &str) -> Result<QueueCredential, ConnectionStringError> {
    if !is_account(account) {
        return Err(wrong(
            "has an AccountName with characters other than letters, digits and hyphens",
        ));
    }
    let key = SharedKey::new(account, key)
        .ok_or_else(|| wrong("has an AccountKey that is not Base64"))?;
    Ok(QueueCredential::SharedKey(key))
}

fn signature(text: &str) -> Result<QueueCredential, ConnectionStringError> {
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
    Ok(QueueCredential::Signature(Secret::new(text)))
}
