//! Requests: what is asked for, and how it is signed.

use std::time::SystemTime;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{AUTHORIZATION, HOST, USER_AGENT};
use hyper::{Method, Request};
use percent_encoding::utf8_percent_encode;

use crate::connection_string::{Endpoint, QueueAccount};
use crate::credential::QueueCredential;
use crate::error::{Effect, Error};
use crate::http::tokens::Tokens;
use crate::http::xml;
use crate::sign::{ENCODED, HttpRequest};

/// The version of the protocol that requests ask for: one that Azurite and the services have, and that knows all
/// that is used here.
const VERSION: &str = "2024-11-04";

/// An operation that is not signed yet.
#[derive(Clone, Debug)]
pub(super) struct Operation {
    pub(super) method: Method,
    /// Empty for the account, or `/` and encoded segments.
    path: String,
    /// Names in lower case, and values as they are meant.
    query: Vec<(&'static str, String)>,
    /// Names in lower case.
    headers: Vec<(String, String)>,
    body: Bytes,
    pub(super) effect: Effect,
    /// Whether it can be done twice, although it changes something.
    pub(super) is_repeatable: bool,
    /// Whether it goes to the read-only copy of the account.
    pub(super) is_for_secondary: bool,
    /// Whether the caller sees `OperationTimedOut` at once, without another try.
    pub(super) reports_timeouts: bool,
}

impl Operation {
    pub(super) fn new(method: Method, segments: &[&str], effect: Effect) -> Self {
        let encoded = segments
            .iter()
            .map(|segment| format!("/{}", encode(segment)));
        Self {
            method,
            path: encoded.collect(),
            query: Vec::new(),
            headers: Vec::new(),
            body: Bytes::new(),
            effect,
            is_repeatable: false,
            is_for_secondary: false,
            reports_timeouts: false,
        }
    }

    /// A change that is the same once and twice.
    pub(super) fn repeatable(method: Method, segments: &[&str]) -> Self {
        Self {
            is_repeatable: true,
            ..Self::new(method, segments, Effect::Change)
        }
    }

    pub(super) fn query(mut self, name: &'static str, value: impl ToString) -> Self {
        self.query.push((name, value.to_string()));
        self
    }

    pub(super) fn metadata(mut self, metadata: &[(String, String)]) -> Self {
        let headers = metadata.iter().map(|(name, value)| {
            let name = format!("x-ms-meta-{}", name.to_ascii_lowercase());
            (name, value.clone())
        });
        self.headers.extend(headers);
        self
    }

    /// Fails if the text has a character that no XML can carry.
    pub(super) fn text(self, text: &str) -> Result<Self, Error> {
        if !text.chars().all(xml::is_allowed) {
            return Err(Error::refused(
                "the text of the message has characters that XML cannot carry: encode it, with Base64 for example",
            ));
        }
        Ok(self.document(xml::message_body(text)))
    }

    /// With an XML document as its body.
    pub(super) fn document(mut self, document: String) -> Self {
        self.body = document.into();
        self.headers
            .push(("content-type".into(), "application/xml".into()));
        self
    }

    /// Whether it can be tried again after a time-out.
    pub(super) fn may_time_out(&self) -> bool {
        match self.effect {
            Effect::Read => true,
            Effect::Change => self.is_repeatable,
        }
    }

    /// As it is sent now, to an endpoint of an account. `limit_s` is how long the service may take.
    pub(super) async fn signed(
        &self,
        account: &QueueAccount,
        endpoint: &Endpoint,
        tokens: Option<&Tokens>,
        user_agent: &str,
        limit_s: Option<u64>,
    ) -> Result<Request<Full<Bytes>>, Error> {
        let path = match format!("{}{}", endpoint.path, self.path) {
            path if path.is_empty() => "/".to_owned(),
            path => path,
        };
        let limit = limit_s.map(|seconds| ("timeout".to_owned(), seconds.to_string()));
        let query: Vec<(String, String)> = self
            .query
            .iter()
            .map(|(name, value)| ((*name).to_owned(), encode(value)))
            .chain(limit)
            .collect();
        let mut headers = self.headers.clone();
        headers.push(("x-ms-version".into(), VERSION.into()));
        let now = httpdate::fmt_http_date(SystemTime::now());
        headers.push(("x-ms-date".into(), now));
        let mut pairs: Vec<String> = query
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        let authorization = match account.credential() {
            QueueCredential::SharedKey(key) => Some(key.authorization(&HttpRequest {
                method: self.method.as_str(),
                path: &path,
                query: &query,
                headers: &headers,
                content_length: self.body.len(),
            })),
            QueueCredential::Signature(signature) => {
                pairs.push(signature.expose().to_owned());
                None
            }
            QueueCredential::Bearer(_) => match tokens {
                Some(tokens) => Some(format!("Bearer {}", tokens.token().await?.expose())),
                None => None,
            },
        };
        let target = match pairs.is_empty() {
            true => path,
            false => format!("{path}?{}", pairs.join("&")),
        };
        headers.push((USER_AGENT.as_str().to_owned(), user_agent.to_owned()));
        self.built(endpoint, &target, headers, authorization)
    }

    fn built(
        &self,
        endpoint: &Endpoint,
        target: &str,
        headers: Vec<(String, String)>,
        authorization: Option<String>,
    ) -> Result<Request<Full<Bytes>>, Error> {
        let mut builder = Request::builder()
            .method(self.method.clone())
            .uri(target)
            .header(HOST, endpoint.authority())
            .header("accept", "application/xml");
        for (name, value) in headers {
            builder = builder.header(name, value);
        }
        if let Some(authorization) = authorization {
            builder = builder.header(AUTHORIZATION, authorization);
        }
        if self.body.is_empty() && self.method != Method::GET {
            builder = builder.header("content-length", "0");
        }
        // The error could repeat the target, and with it a signature.
        builder
            .body(Full::new(self.body.clone()))
            .map_err(|_| Error::refused("the request has characters that HTTP cannot carry"))
    }
}

fn encode(text: &str) -> String {
    utf8_percent_encode(text, ENCODED).to_string()
}
