//! Where an operator's commands go: a connection string of Service Bus, and requests by it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use kew_bus_api::{WELL_KNOWN_KEY, WELL_KNOWN_RULE, sign_token};
use kew_queue_client::{Error, Refusal, tls_config};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use ureq::http::{Method, Request};

use crate::queue_command::Failure;

/// Where connection strings are looked for, in this order, if the command line has none.
const VARIABLES: [&str; 2] = ["KEW_BUS_CONNECTION_STRING", "SERVICEBUS_CONNECTION_STRING"];

/// The most that an answer may be: the bodies of messages that the server shows at once, as JSON.
const ANSWER_SIZE_BYTES_MAX: u64 = 128 << 20;

/// How long a token is good that is made for one request.
const TOKEN_DURATION: Duration = Duration::from_mins(5);

/// The ports where a connection string names none, with TLS and without.
const PORTS: [u16; 2] = [5671, 5672];

/// A server, and what opens it.
#[derive(Clone)]
pub(super) struct Account {
    scheme: &'static str,
    host: String,
    port: u16,
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
    /// That of the command line, or of the environment, or the emulator's on this machine.
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
            credential: Credential::Key {
                rule: WELL_KNOWN_RULE.into(),
                key: WELL_KNOWN_KEY.into(),
            },
        })
    }

    /// Reads `NAME=VALUE;NAME=VALUE`, in the form of the SDKs. What is wrong is told without any value,
    /// which may be a secret.
    fn read(text: &str) -> Result<Self, String> {
        let (mut endpoint, mut rule, mut key, mut token, mut is_plain) =
            (None, None, None, None, false);
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
                // The entity is an argument, and the transport is for AMQP.
                "entitypath" | "transporttype" | "operationtimeout" => {}
                _ => {
                    return Err(format!(
                        "has a part {} that is no setting of Service Bus",
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
            credential,
        })
    }

    fn url(&self) -> String {
        format!("{}://{}:{}", self.scheme, self.host, self.port)
    }

    fn is_local(&self) -> bool {
        matches!(self.host.as_str(), "localhost" | "127.0.0.1" | "[::1]")
    }

    /// What opens the server for one request.
    fn authorization(&self) -> String {
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
        sign_token(&format!("sb://{}/", self.host), rule, key, expires_at_s)
    }
}

/// A host and its port, if it has one. An address of IPv6 stands in brackets.
fn split_port(authority: &str) -> Option<(&str, Option<u16>)> {
    match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => Some((host, Some(port.parse().ok()?))),
        _ => Some((authority, None)),
    }
}

/// A server that is asked.
#[derive(Debug)]
pub(super) struct Client {
    agent: ureq::Agent,
    account: Account,
    timeout: Duration,
    retries: u32,
}

/// An error as the server tells it.
#[derive(Deserialize)]
struct Report {
    error: ErrorReport,
}

#[derive(Deserialize)]
struct ErrorReport {
    code: String,
    message: String,
}

impl Client {
    pub(super) fn new(
        account: Account,
        timeout: Duration,
        retries: u32,
        roots_pem: Option<&[u8]>,
    ) -> Result<Self, Failure> {
        let mut config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .timeout_global(Some(timeout))
            .user_agent(concat!("kew/", env!("CARGO_PKG_VERSION")))
            .accept("application/json");
        if account.is_local() {
            // A proxy is no way to oneself.
            config = config.proxy(None);
        }
        if account.scheme == "https" {
            config = config.tls_config(tls_config(roots_pem)?);
        }
        Ok(Self {
            agent: config.build().new_agent(),
            account,
            timeout,
            retries,
        })
    }

    /// Looks at something. It is asked again if the server is busy or not there.
    pub(super) fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Failure> {
        let mut tries = 0;
        loop {
            match self.call(&Method::GET, path, None) {
                Err(Failure::Client(error)) if error.is_temporary() && tries < self.retries => {
                    tries += 1;
                    std::thread::sleep(Duration::from_millis(400 * u64::from(tries)));
                }
                result => return result,
            }
        }
    }

    /// Does something, once: whether it was done is not known if there is no answer.
    pub(super) fn call<T: DeserializeOwned>(
        &self,
        method: &Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<T, Failure> {
        let (status, bytes) = self.exchange(method, path, body)?;
        if (200..300).contains(&status) {
            return serde_json::from_slice(&bytes).map_err(|error| self.not_understood(&error));
        }
        let report = serde_json::from_slice(&bytes);
        let report: Report = report.map_err(|_| Failure::Client(self.refusal(status)))?;
        Err(Failure::Client(Error::Refused(Box::new(Refusal {
            status,
            code: report.error.code,
            message: report.error.message,
            details: Vec::new(),
            request_id: None,
        }))))
    }

    fn exchange(
        &self,
        method: &Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<(u16, Vec<u8>), Failure> {
        let url = format!("{}/$kew/v1/{path}", self.account.url());
        let request = Request::builder()
            .method(method.clone())
            .uri(url)
            .header("authorization", self.account.authorization());
        let result = match body {
            Some(body) => request
                .header("content-type", "application/json")
                .body(body.to_string().into_bytes())
                .map(|request| self.agent.run(request)),
            None => request.body(()).map(|request| self.agent.run(request)),
        };
        let result =
            result.map_err(|error| Failure::Usage(format!("cannot ask for this: {error}")))?;
        let mut response = result.map_err(|error| self.unreachable(error))?;
        let status = response.status().as_u16();
        let body = response
            .body_mut()
            .with_config()
            .limit(ANSWER_SIZE_BYTES_MAX);
        let bytes = body
            .read_to_vec()
            .map_err(|error| self.unreachable(error))?;
        Ok((status, bytes))
    }

    fn unreachable(&self, error: ureq::Error) -> Failure {
        let url = self.account.url();
        Failure::Client(match error {
            ureq::Error::Timeout(_) => Error::TimedOut {
                url,
                after: self.timeout,
            },
            error => Error::Unreachable {
                url,
                reason: error.to_string(),
            },
        })
    }

    /// An answer that is no JSON: it is none of this interface.
    fn refusal(&self, status: u16) -> Error {
        let url = self.account.url();
        Error::Refused(Box::new(Refusal {
            status,
            code: String::new(),
            message: format!("{url} does not answer like Kew at $kew/v1"),
            details: Vec::new(),
            request_id: None,
        }))
    }

    fn not_understood(&self, error: &serde_json::Error) -> Failure {
        let url = self.account.url();
        Failure::Refused {
            message: format!("{url} answered something else than it was asked for: {error}"),
            code: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connection_strings_tell_where_and_how() {
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
