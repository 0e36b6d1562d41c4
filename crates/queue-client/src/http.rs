//! Sends requests: signs them, bounds them in time and size, and tries again.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use rustls::crypto::aws_lc_rs;
use ureq::http::{self, HeaderMap, Method};
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, TlsProvider, parse_pem};

use crate::account::{Account, Credential, Endpoint};
use crate::client::Options;
use crate::error::{Error, Refusal};
use crate::retry;
use crate::shared_key::{self, ToSign};
use crate::xml::Element;

/// The largest answer: 5000 queues with the most metadata allowed, and some reserve.
const ANSWER_SIZE_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Characters that are not encoded in paths and queries.
pub(crate) const ENCODED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// An operation, not signed yet.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) method: Method,
    /// Empty for the account, or `/` and encoded segments.
    pub(crate) path: String,
    /// Names in lower case, and values before percent-encoding.
    pub(crate) query: Vec<(&'static str, String)>,
    /// Names in lower case.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    /// Whether the caller sees a time-out of the server at once, without a retry.
    pub(crate) reports_timeouts: bool,
    /// Whether it goes to the read-only copy of the account.
    pub(crate) to_secondary: bool,
}

/// A whole answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

/// Connections to one service.
#[derive(Debug)]
pub(crate) struct Transport {
    agent: ureq::Agent,
    account: Account,
    timeout: Duration,
    retries: u32,
}

impl Request {
    pub(crate) fn new(method: Method, segments: &[&str]) -> Self {
        let path = segments
            .iter()
            .map(|segment| format!("/{}", encode(segment)))
            .collect();
        Self {
            method,
            path,
            query: Vec::new(),
            headers: Vec::new(),
            body: Vec::new(),
            reports_timeouts: false,
            to_secondary: false,
        }
    }

    pub(crate) fn query(mut self, name: &'static str, value: impl ToString) -> Self {
        self.query.push((name, value.to_string()));
        self
    }
}

impl Transport {
    pub(crate) fn new(account: Account, options: &Options) -> Result<Self, Error> {
        let mut config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .timeout_global(Some(options.timeout))
            .max_idle_connections(options.connections)
            .max_idle_connections_per_host(options.connections)
            .user_agent(concat!("kew/", env!("CARGO_PKG_VERSION")))
            .accept("application/xml");
        if account.is_local() {
            // Requests to this machine use no proxy.
            config = config.proxy(None);
        }
        if account.endpoint.scheme == "https" {
            config = config.tls_config(tls_config(options.extra_roots_pem.as_deref())?);
        }
        Ok(Self {
            agent: config.build().new_agent(),
            account,
            timeout: options.timeout,
            retries: options.retries,
        })
    }

    /// The endpoint, without credentials.
    pub(crate) fn url(&self) -> String {
        self.account.url()
    }

    /// Sends a request until it succeeds with a status of `success`, is refused, or has failed too often.
    pub(crate) fn call(&self, request: &Request, success: &[u16]) -> Result<Answer, Error> {
        let mut failures = 0;
        loop {
            let (error, retry_after) = match self.send(request) {
                Ok(answer) if success.contains(&answer.status) => return Ok(answer),
                Ok(answer) => {
                    let retry_after = retry_after(&answer.headers);
                    (self.refusal(&answer), retry_after)
                }
                Err(error) => (error, None),
            };
            failures += 1;
            if failures > self.retries || !is_worth_a_retry(request, &error) {
                return Err(error);
            }
            std::thread::sleep(retry::delay(failures, retry_after));
        }
    }

    fn send(&self, request: &Request) -> Result<Answer, Error> {
        let wire = self.prepare(request)?;
        let result = if request.body.is_empty() && request.method != Method::PUT {
            self.agent.run(wire.map(|_| ()))
        } else {
            self.agent.run(wire)
        };
        let mut response = result.map_err(|error| self.transport_error(error))?;
        let body = response
            .body_mut()
            .with_config()
            .limit(ANSWER_SIZE_BYTES_MAX)
            .read_to_vec()
            .map_err(|error| self.transport_error(error))?;
        Ok(Answer {
            status: response.status().as_u16(),
            headers: response.headers().clone(),
            body,
        })
    }

    fn prepare<'a>(&self, request: &'a Request) -> Result<http::Request<&'a [u8]>, Error> {
        let endpoint = self.endpoint(request)?;
        let path = match format!("{}{}", endpoint.path, request.path) {
            path if path.is_empty() => "/".to_owned(),
            path => path,
        };
        let query: Vec<(String, String)> = request
            .query
            .iter()
            .map(|(name, value)| ((*name).to_owned(), encode(value)))
            .collect();
        let mut headers = request.headers.clone();
        headers.push(("x-ms-version".into(), crate::VERSION.into()));
        let now = httpdate::fmt_http_date(SystemTime::now());
        headers.push(("x-ms-date".into(), now));
        let mut pairs: Vec<String> = query
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        match &self.account.credential {
            Credential::SharedKey { account, key } => {
                let to_sign = ToSign {
                    method: request.method.as_str(),
                    path: &path,
                    query: &query,
                    headers: &headers,
                    content_length: request.body.len(),
                };
                let value = shared_key::authorization(account, key, &to_sign);
                headers.push(("authorization".into(), value));
            }
            Credential::SharedAccessSignature(signature) => pairs.push(signature.clone()),
        }
        let mut uri = format!("{}://{}{path}", endpoint.scheme, endpoint.authority);
        if !pairs.is_empty() {
            uri = format!("{uri}?{}", pairs.join("&"));
        }
        let mut builder = http::Request::builder()
            .method(request.method.clone())
            .uri(uri);
        for (name, value) in headers {
            builder = builder.header(name, value);
        }
        // The error could repeat the URI, and with it a signature.
        builder
            .body(request.body.as_slice())
            .map_err(|_| Error::Setup("a header has characters that HTTP cannot carry".into()))
    }

    fn endpoint(&self, request: &Request) -> Result<&Endpoint, Error> {
        if !request.to_secondary {
            return Ok(&self.account.endpoint);
        }
        self.account
            .secondary
            .as_ref()
            .ok_or_else(|| Error::Setup("the account has no secondary endpoint".into()))
    }

    fn transport_error(&self, error: ureq::Error) -> Error {
        let url = self.url();
        match error {
            ureq::Error::Timeout(_) => Error::TimedOut {
                url,
                after: self.timeout,
            },
            ureq::Error::Protocol(_)
            | ureq::Error::LargeResponseHeader(..)
            | ureq::Error::BodyExceedsLimit(_) => Error::NotUnderstood {
                url,
                what: error.to_string(),
            },
            ureq::Error::HostNotFound => Error::Unreachable {
                url,
                reason: "no such host".into(),
            },
            ureq::Error::Io(error) => Error::Unreachable {
                url,
                reason: error.to_string(),
            },
            // Other errors name at most the host, which is no secret. URIs are never repeated.
            ureq::Error::BadUri(_) | ureq::Error::Http(_) => {
                Error::Setup("the endpoint is not a URL that a request can be sent to".into())
            }
            other => Error::Unreachable {
                url,
                reason: other.to_string(),
            },
        }
    }

    /// The error in an answer without success.
    fn refusal(&self, answer: &Answer) -> Error {
        let code = header(&answer.headers, "x-ms-error-code").unwrap_or_default();
        let root = Element::parse(&answer.body).ok();
        let root = root.filter(|root| root.name == "Error");
        if answer.status < 400 || (answer.status < 500 && code.is_empty() && root.is_none()) {
            return Error::NotUnderstood {
                url: self.url(),
                what: format!("status {} without an error code", answer.status),
            };
        }
        let mut refusal = Refusal {
            status: answer.status,
            code: code.to_owned(),
            message: String::new(),
            details: Vec::new(),
            request_id: header(&answer.headers, "x-ms-request-id").map(str::to_owned),
        };
        for child in root.into_iter().flat_map(|root| root.children) {
            match child.name.as_str() {
                "Code" if refusal.code.is_empty() => refusal.code = child.text,
                "Code" => {}
                "Message" => {
                    let first_line = child.text.lines().next().unwrap_or_default();
                    refusal.message = first_line.trim().to_owned();
                }
                _ => refusal.details.push((child.name, child.text)),
            }
        }
        if refusal.message.is_empty() {
            "the service gave no explanation".clone_into(&mut refusal.message);
        }
        Error::Refused(Box::new(refusal))
    }
}

/// The value of a header, if it is text.
pub(crate) fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

fn encode(text: &str) -> String {
    utf8_percent_encode(text, ENCODED).to_string()
}

fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = header(headers, "retry-after")?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds))
}

fn is_worth_a_retry(request: &Request, error: &Error) -> bool {
    match error {
        Error::Refused(refusal) => {
            retry::is_worth_a_retry(refusal.status)
                && !(request.reports_timeouts && refusal.code == "OperationTimedOut")
        }
        Error::Unreachable { reason, .. } => !is_lasting(reason),
        Error::TimedOut { .. } => true,
        Error::NotUnderstood { .. } | Error::Setup(_) => false,
    }
}

/// Whether the transport failed for a reason that a retry does not change.
fn is_lasting(reason: &str) -> bool {
    reason.contains("certificate") || reason == "no such host"
}

/// The system's certificate authorities, and those in `extra` (PEM).
/// TLS by the certificate authorities of the system, and those of `extra` (PEM).
///
/// Fails if there are none, or if `extra` cannot be read.
pub fn tls_config(extra: Option<&[u8]>) -> Result<TlsConfig, Error> {
    let system = rustls_native_certs::load_native_certs();
    let mut roots: Vec<Certificate<'static>> = system
        .certs
        .iter()
        .map(|certificate| Certificate::from_der(certificate).to_owned())
        .collect();
    if let Some(extra) = extra {
        let before = roots.len();
        for item in parse_pem(extra) {
            match item {
                Ok(PemItem::Certificate(certificate)) => roots.push(certificate),
                Ok(_) => {}
                Err(error) => return Err(Error::Setup(format!("bad certificate: {error}"))),
            }
        }
        if roots.len() == before {
            return Err(Error::Setup(
                "there is no PEM certificate in the file".into(),
            ));
        }
    }
    if roots.is_empty() {
        return Err(Error::Setup(
            "the system has no certificate authorities; name one".into(),
        ));
    }
    Ok(TlsConfig::builder()
        .provider(TlsProvider::Rustls)
        .root_certs(RootCerts::from(roots))
        .unversioned_rustls_crypto_provider(Arc::new(aws_lc_rs::default_provider()))
        .build())
}
