//! Requests: what is asked for, and how it is signed.

use std::borrow::Cow;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use bytes::Bytes;
use percent_encoding::utf8_percent_encode;
use smallvec::SmallVec;

use crate::connection_string::{Endpoint, QueueAccount};
use crate::credential::QueueCredential;
use crate::error::{Effect, Error};
use crate::http::request::Request;
use crate::http::tokens::Tokens;
use crate::http::xml;
use crate::sign::{ENCODED, FEW, HttpRequest};

/// The version of the protocol that requests ask for: one that Azurite and the services have, and that knows all
/// that is used here.
const VERSION: &str = "2024-11-04";

/// About how long a path is.
const PATH_LENGTH: usize = 128;

const X_MS_DATE: &str = "x-ms-date";

const X_MS_VERSION: &str = "x-ms-version";

const XML: &str = "application/xml";

/// The headers that are the same for each request to an endpoint, but for the date.
#[derive(Debug)]
pub(super) struct FixedHeaders {
    host: String,
    user_agent: String,
    /// As the last request said it, and for which second.
    date: Mutex<(u64, Arc<str>)>,
}

impl FixedHeaders {
    pub(super) fn new(endpoint: &Endpoint, user_agent: &str) -> Self {
        Self {
            host: endpoint.authority(),
            user_agent: user_agent.to_owned(),
            date: Mutex::new((0, "".into())),
        }
    }

    fn date(&self) -> Arc<str> {
        let now = SystemTime::now();
        let since = now.duration_since(SystemTime::UNIX_EPOCH);
        let second = since.unwrap_or_default().as_secs();
        let mut date = self.date.lock().unwrap_or_else(PoisonError::into_inner);
        if date.0 != second {
            *date = (second, httpdate::fmt_http_date(now).into());
        }
        date.1.clone()
    }
}

/// An operation that is not signed yet.
#[derive(Clone, Debug)]
pub(super) struct Operation {
    pub(super) method: &'static str,
    /// Empty for the account, or `/` and encoded segments.
    path: String,
    /// Names in lower case, and encoded values.
    query: SmallVec<[(&'static str, String); 2]>,
    /// Names in lower case.
    headers: Vec<(Cow<'static, str>, String)>,
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
    pub(super) fn new(method: &'static str, segments: &[&str], effect: Effect) -> Self {
        let mut path = String::with_capacity(PATH_LENGTH);
        for segment in segments {
            path.push('/');
            path.extend(utf8_percent_encode(segment, ENCODED));
        }
        Self {
            method,
            path,
            query: SmallVec::new(),
            headers: Vec::new(),
            body: Bytes::new(),
            effect,
            is_repeatable: false,
            is_for_secondary: false,
            reports_timeouts: false,
        }
    }

    /// A change that is the same once and twice.
    pub(super) fn repeatable(method: &'static str, segments: &[&str]) -> Self {
        Self {
            is_repeatable: true,
            ..Self::new(method, segments, Effect::Change)
        }
    }

    pub(super) fn query(mut self, name: &'static str, value: &str) -> Self {
        // A few characters are written as three.
        let mut encoded = String::with_capacity(value.len() + 8);
        encoded.extend(utf8_percent_encode(value, ENCODED));
        self.query.push((name, encoded));
        self
    }

    pub(super) fn number(mut self, name: &'static str, value: impl ToString) -> Self {
        self.query.push((name, value.to_string()));
        self
    }

    pub(super) fn metadata(mut self, metadata: &[(String, String)]) -> Self {
        let headers = metadata.iter().map(|(name, value)| {
            let name = format!("x-ms-meta-{}", name.to_ascii_lowercase());
            (Cow::Owned(name), value.clone())
        });
        self.headers.extend(headers);
        self
    }

    /// Fails if the text has a character that no XML can carry.
    pub(super) fn text(self, text: &str) -> Result<Self, Error> {
        if !xml::are_allowed(text) {
            return Err(Error::refused(
                "the text of the message has characters that XML cannot carry: encode it, with Base64 for example",
            ));
        }
        Ok(self.document(xml::message_body(text)))
    }

    /// With an XML document as its body.
    pub(super) fn document(mut self, document: String) -> Self {
        self.body = document.into();
        self.headers.push(("content-type".into(), XML.to_owned()));
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
        fixed: &FixedHeaders,
        limit_s: Option<u64>,
    ) -> Result<Request, Error> {
        let mut target = String::with_capacity(2 * PATH_LENGTH);
        match [endpoint.path.as_str(), &self.path] {
            ["", ""] => target.push('/'),
            parts => target.extend(parts),
        }
        let limit = limit_s.map(|seconds| seconds.to_string());
        let limit = limit.as_deref().map(|seconds| ("timeout", seconds));
        let query = self.query.iter();
        let query = query.map(|(name, value)| (*name, value.as_str()));
        let query: SmallVec<[_; FEW]> = query.chain(limit).collect();
        let date = fixed.date();
        let authorization = match account.credential() {
            QueueCredential::SharedKey(key) => {
                let own = self.headers.iter();
                let own = own.map(|(name, value)| (&**name, value.as_str()));
                let headers: SmallVec<[_; FEW]> = own
                    .chain([(X_MS_VERSION, VERSION), (X_MS_DATE, &date)])
                    .collect();
                Some(key.authorization(&HttpRequest {
                    method: self.method,
                    path: &target,
                    query: &query,
                    headers: &headers,
                    content_length: self.body.len(),
                }))
            }
            QueueCredential::Signature(_) => None,
            QueueCredential::Bearer(_) => match tokens {
                Some(tokens) => Some(format!("Bearer {}", tokens.token().await?.expose())),
                None => None,
            },
        };
        let mut separator = "?";
        for (name, value) in &query {
            target.extend([separator, name, "=", value]);
            separator = "&";
        }
        if let QueueCredential::Signature(signature) = account.credential() {
            target.extend([separator, signature.expose()]);
        }
        let mut request = Request::begin(self.method, &target, &fixed.host)
            .header("accept", XML)
            .header(X_MS_VERSION, VERSION)
            .header(X_MS_DATE, &date)
            .header("user-agent", &fixed.user_agent);
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        if let Some(authorization) = authorization {
            request = request.header("authorization", &authorization);
        }
        request.finish(&self.body)
    }
}
