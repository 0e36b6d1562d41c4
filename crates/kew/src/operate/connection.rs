//! Requests to a server, and its answers or refusals.

use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use ureq::http::{HeaderMap, Method, Request};

use super::account::{Account, Scope};
use super::error::{Error, Refusal, tls_config};
use crate::queue_command::Failure;

/// The largest answer: the bodies of messages that the server shows at once, as JSON.
const ANSWER_SIZE_BYTES_MAX: u64 = 128 << 20;

/// A connection to a server.
#[derive(Debug)]
pub(super) struct Client {
    agent: ureq::Agent,
    account: Account,
    timeout: Duration,
    retries: u32,
}

/// A request. The path and the query have no slash before them.
pub(super) struct Asked<'a> {
    pub(super) method: Method,
    pub(super) path: &'a str,
    pub(super) scope: Scope,
    pub(super) headers: &'a [(&'static str, &'a str)],
    pub(super) body: Option<Vec<u8>>,
    /// How long the server may wait before it answers.
    pub(super) wait: Duration,
}

impl<'a> Asked<'a> {
    /// A request with only a method and a path.
    pub(super) fn new(method: Method, path: &'a str) -> Self {
        Self {
            method,
            path,
            scope: Scope::Entity,
            headers: &[],
            body: None,
            wait: Duration::ZERO,
        }
    }
}

/// A successful answer. Any other is an error already.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) headers: HeaderMap,
    pub(super) body: Vec<u8>,
}

/// An error in the form of the operator's interface.
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
            .user_agent(concat!("kew/", env!("CARGO_PKG_VERSION")))
            .accept("application/json");
        if account.is_local() {
            // Requests to this machine use no proxy.
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

    /// Reads from the operator's interface. Retries if the server is busy or unreachable.
    pub(super) fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Failure> {
        self.patiently(|| self.call(&Method::GET, path, None))
    }

    /// Sends one request that changes something: without an answer its outcome is unknown.
    pub(super) fn call<T: DeserializeOwned>(
        &self,
        method: &Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<T, Failure> {
        let path = format!("$kew/v1/{path}");
        let asked = Asked {
            scope: Scope::Namespace,
            headers: match body {
                Some(_) => &[("content-type", "application/json")],
                None => &[],
            },
            body: body.map(|body| body.to_string().into_bytes()),
            ..Asked::new(method.clone(), &path)
        };
        let answer = self.ask(asked)?;
        serde_json::from_slice(&answer.body).map_err(|error| self.not_understood(&error))
    }

    /// Reads something. Retries if the server is busy or unreachable.
    pub(super) fn patiently<T>(&self, look: impl Fn() -> Result<T, Failure>) -> Result<T, Failure> {
        let mut tries = 0;
        loop {
            match look() {
                Err(Failure::Client(error)) if error.is_temporary() && tries < self.retries => {
                    tries += 1;
                    std::thread::sleep(Duration::from_millis(400 * u64::from(tries)));
                }
                result => return result,
            }
        }
    }

    /// Asks once.
    pub(super) fn ask(&self, asked: Asked<'_>) -> Result<Answer, Failure> {
        let patience = self.timeout.saturating_add(asked.wait);
        let mut request = Request::builder()
            .method(asked.method)
            .uri(format!("{}/{}", self.account.url(), asked.path))
            .header("authorization", self.account.authorization(asked.scope));
        for (name, value) in asked.headers {
            request = request.header(*name, *value);
        }
        let wrong = |error| Failure::Usage(format!("cannot send this request: {error}"));
        // An empty body is still a body, with its length.
        let result = match asked.body {
            Some(body) => self.send(request.body(body).map_err(wrong)?, patience),
            None => self.send(request.body(()).map_err(wrong)?, patience),
        };
        let mut response = result.map_err(|error| self.unreachable(error, patience))?;
        let body = response
            .body_mut()
            .with_config()
            .limit(ANSWER_SIZE_BYTES_MAX);
        let body = body
            .read_to_vec()
            .map_err(|error| self.unreachable(error, patience))?;
        let status = response.status().as_u16();
        if !(200..300).contains(&status) {
            let refusal = self.refusal(status, &body);
            return Err(Failure::Client(Error::Refused(Box::new(refusal))));
        }
        Ok(Answer {
            status,
            headers: std::mem::take(response.headers_mut()),
            body,
        })
    }

    fn send<B: ureq::AsSendBody>(
        &self,
        request: Request<B>,
        patience: Duration,
    ) -> Result<ureq::http::Response<ureq::Body>, ureq::Error> {
        let request = self.agent.configure_request(request);
        self.agent
            .run(request.timeout_global(Some(patience)).build())
    }

    fn unreachable(&self, error: ureq::Error, after: Duration) -> Failure {
        let url = self.account.url();
        Failure::Client(match error {
            ureq::Error::Timeout(_) => Error::TimedOut { url, after },
            error => {
                let mut reason = error.to_string();
                // How a TLS library reports an answer in plain text.
                if self.account.scheme == "https" && reason.contains("InvalidContentType") {
                    reason.push_str(
                        "; it seems to serve no TLS: if so, add UseDevelopmentEmulator=true to the \
                         connection string",
                    );
                }
                Error::Unreachable { url, reason }
            }
        })
    }

    /// The text of an error, in the form of the operator's interface or in the service's own.
    fn refusal(&self, status: u16, body: &[u8]) -> Refusal {
        let refusal = |code, message, request_id| Refusal {
            status,
            code,
            message,
            request_id,
        };
        if let Ok(Report { error }) = serde_json::from_slice(body) {
            return refusal(error.code, error.message, None);
        }
        match ServiceError::read(body) {
            Some(error) => refusal(error.sub_code, error.message, error.tracking_id),
            None => {
                let message = format!("{} does not answer like Kew", self.account.url());
                refusal(String::new(), message, None)
            }
        }
    }

    /// The answer does not fit the request.
    pub(super) fn not_understood(&self, what: &dyn std::fmt::Display) -> Failure {
        let url = self.account.url();
        Failure::Refused {
            message: format!("{url} sent an unexpected answer: {what}"),
            code: None,
        }
    }
}

/// An error in the service's own form: `<Error><Code>409</Code><Detail>SubCode=40900. … TrackingId:…`.
#[derive(Debug, PartialEq, Eq)]
struct ServiceError {
    sub_code: String,
    message: String,
    tracking_id: Option<String>,
}

impl ServiceError {
    fn read(body: &[u8]) -> Option<Self> {
        let error = kew_xml::read(body, "Error").ok()?;
        let detail = error.child("Detail")?.text().ok()?;
        let (sub_code, text) = match detail
            .strip_prefix("SubCode=")
            .and_then(|rest| rest.split_once(". "))
        {
            Some((sub_code, text)) => (sub_code, text),
            None => ("", detail),
        };
        let (text, tail) = text.split_once(" TrackingId:").unwrap_or((text, ""));
        let tracking_id = tail.split(',').next().filter(|id| !id.is_empty());
        Some(Self {
            sub_code: sub_code.to_owned(),
            message: text.trim_end_matches('.').to_owned(),
            tracking_id: tracking_id.map(str::to_owned),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_the_service_are_read() {
        let read = |body: &str| ServiceError::read(body.as_bytes());
        let error = |sub_code: &str, message: &str, id: Option<&str>| ServiceError {
            sub_code: sub_code.into(),
            message: message.into(),
            tracking_id: id.map(str::to_owned),
        };
        for (body, expected) in [
            (
                "<Error><Code>409</Code><Detail>SubCode=40900. It is &lt;there&gt;. TrackingId:ab-1, \
                 SystemTracker:ns:q, Timestamp:t</Detail></Error>",
                Some(error("40900", "It is <there>", Some("ab-1"))),
            ),
            (
                "<Error><Code>401</Code><Detail>MissingToken: none.</Detail></Error>",
                Some(error("", "MissingToken: none", None)),
            ),
            ("<html></html>", None),
            ("", None),
        ] {
            assert_eq!(read(body), expected, "{body}");
        }
    }
}
