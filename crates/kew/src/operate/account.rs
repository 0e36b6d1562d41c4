//! The server and its credential: a connection string of Service Bus.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use kew_bus_api::{WELL_KNOWN_KEY, WELL_KNOWN_RULE, sign_token};

use crate::queue_command::Failure;

/// The variables for a connection string, in this order, if the command line has none.
const VARIABLES: [&str; 2] = ["KEW_BUS_CONNECTION_STRING", "SERVICEBUS_CONNECTION_STRING"];

/// How long a token for one request is valid.
const TOKEN_DURATION: Duration = Duration::from_mins(5);

/// The ports of a connection string without one, with TLS and without.
const PORTS: [u16; 2] = [5671, 5672];

/// The scope of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    Namespace,
    /// The queue in the connection string, if it names one.
    Entity,
}

/// A server, and the credential for it.
#[derive(Clone)]
pub(super) struct Account {
    pub(super) scheme: &'static str,
    host: String,
    port: u16,
    /// The scope of tokens, if it is not the whole namespace.
    entity: Option<String>,
    credential: Credential,
}

#[derive(Clone)]
enum Credential {
    Key { rule: String, key: String },
    Token(String),
}

impl std::fmt::Debug for Account {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Account({})", self.url())
    }
}

impl Account {
    /// From the command line, or the environment, or the emulator's on this machine.
    pub(super) fn find(text: Option<&str>) -> Result<Self, Failure> {
        if let Some(text) = text {
            return Self::read(text)
                .map_err(|what| Failure::Usage(format!("the connection string {what}")));
        }
        for name in VARIABLES {
            let Some(value) = std::env::var_os(name).filter(|value| !value.is_empty()) else {
                continue;
            };
            let text = value
                .to_str()
                .ok_or_else(|| Failure::Usage(format!("{name} is not UTF-8")))?;
            return Self::read(text).map_err(|what| Failure::Usage(format!("{name} {what}")));
        }
        Ok(Self {
            scheme: "http",
            host: "localhost".into(),
            port: PORTS[1],
            entity: None,
            credential: Credential::Key {
                rule: WELL_KNOWN_RULE.into(),
                key: WELL_KNOWN_KEY.into(),
            },
        })
    }

    /// Reads `NAME=VALUE;NAME=VALUE`, in the form of the SDKs. Errors contain no values, because a
    /// value may be a secret.
    fn read(text: &str) -> Result<Self, String> {
        let (mut endpoint, mut rule, mut key, mut token) = (None, None, None, None);
        let (mut entity, mut is_plain) = (None, false);
        for (index, part) in text.split(';').map(str::trim).enumerate() {
            if part.is_empty() {
                continue;
            }
            let Some((name, value)) = part.split_once('=') else {
                return Err(format!("is not NAME=VALUE in part {}", index + 1));
            };
            match name.trim().to_ascii_lowercase().as_str() {
                "endpoint" => endpoint = Some(value),
                "sharedaccesskeyname" => rule = Some(value),
                "sharedaccesskey" => key = Some(value),
                "sharedaccesssignature" => token = Some(value),
                "usedevelopmentemulator" => is_plain = value.trim().eq_ignore_ascii_case("true"),
                "entitypath" => entity = Some(value.trim()).filter(|path| !path.is_empty()),
                // They are for AMQP.
                "transporttype" | "operationtimeout" => {}
                _ => {
                    return Err(format!(
                        "has a part {} that is not a setting of Service Bus",
                        index + 1
                    ));
                }
            }
        }
        let credential = match (rule, key, token) {
            (_, _, Some(token)) => Credential::Token(token.to_owned()),
            (Some(rule), Some(key), None) => Credential::Key {
                rule: rule.to_owned(),
                key: key.to_owned(),
            },
            _ => {
                let wanted = "SharedAccessKeyName and SharedAccessKey, nor SharedAccessSignature";
                return Err(format!("has neither {wanted}"));
            }
        };
        let endpoint = endpoint.ok_or("has no Endpoint")?;
        let (scheme, rest) = endpoint.split_once("://").unwrap_or(("sb", endpoint));
        let is_plain = is_plain || scheme.eq_ignore_ascii_case("http");
        let authority = rest.split('/').next().unwrap_or_default();
        let (host, port) = split_port(authority).ok_or("has a wrong port in Endpoint")?;
        if host.is_empty() {
            return Err("has no host in Endpoint".into());
        }
        Ok(Self {
            scheme: if is_plain { "http" } else { "https" },
            host: host.to_owned(),
            port: port.unwrap_or(PORTS[usize::from(is_plain)]),
            entity: entity.map(str::to_owned),
            credential,
        })
    }

    pub(super) fn url(&self) -> String {
        format!("{}://{}:{}", self.scheme, self.host, self.port)
    }

    pub(super) fn is_local(&self) -> bool {
        matches!(self.host.as_str(), "localhost" | "127.0.0.1" | "[::1]")
    }

    /// The authorization for one request, for the namespace or for one queue.
    pub(super) fn authorization(&self, scope: Scope) -> String {
        let Credential::Key { rule, key } = &self.credential else {
            let Credential::Token(token) = &self.credential else {
                return String::new();
            };
            return token.clone();
        };
        let until = SystemTime::now() + TOKEN_DURATION;
        let expires_at_s = until
            .duration_since(UNIX_EPOCH)
            .map_or(0, |at| at.as_secs());
        let entity = match scope {
            Scope::Namespace => "",
            // A rule of a queue signs for that queue only.
            Scope::Entity => self.entity.as_deref().unwrap_or_default(),
        };
        let resource = format!("sb://{}/{entity}", self.host);
        sign_token(&resource, rule, key, expires_at_s)
    }
}

/// A host and its port, if it has one. An IPv6 address is in brackets.
fn split_port(authority: &str) -> Option<(&str, Option<u16>)> {
    match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => Some((host, Some(port.parse().ok()?))),
        _ => Some((authority, None)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connection_strings_name_the_server_and_the_credential() {
        for (text, url) in [
            (
                "Endpoint=sb://h/;SharedAccessKeyName=r;SharedAccessKey=k=",
                "https://h:5671",
            ),
            (
                "Endpoint=sb://h:7/;SharedAccessKeyName=r;SharedAccessKey=k;EntityPath=q",
                "https://h:7",
            ),
            (
                "Endpoint=sb://localhost;SharedAccessKeyName=r;SharedAccessKey=k;UseDevelopmentEmulator=true;",
                "http://localhost:5672",
            ),
            (
                "Endpoint=http://[::1]:8;SharedAccessSignature=SharedAccessSignature sr=x",
                "http://[::1]:8",
            ),
        ] {
            assert_eq!(Account::read(text).unwrap().url(), url, "{text}");
        }
        for (text, what) in [
            ("", "has neither"),
            ("Endpoint=sb://h/;SharedAccessKeyName=r", "has neither"),
            (
                "SharedAccessKeyName=r;SharedAccessKey=secret",
                "has no Endpoint",
            ),
            (
                "Endpoint=sb://h:x;SharedAccessKeyName=r;SharedAccessKey=secret",
                "has a wrong port",
            ),
            ("secret", "is not NAME=VALUE in part 1"),
            ("Endpoint=sb://h/;Secret=secret", "has a part 2"),
        ] {
            let error = Account::read(text).unwrap_err();
            assert!(error.contains(what) && !error.contains("secret"), "{error}");
        }
    }
}
