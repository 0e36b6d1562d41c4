//! What metrics and logs contain about a request.
//!
//! No query, no credential, no body and no pop receipt is logged. Text from a client is cut to a
//! length and logged as a string value, which every log format escapes.

use std::time::Duration;

use hyper::StatusCode;
use hyper::body::Body as _;
use hyper::header::{AUTHORIZATION, HOST, HeaderMap};
use hyper::http::request::Parts;
use kew_listen::Barred;
use kew_metrics::Line;

use crate::accounts::Accounts;
use crate::address::Address;
use crate::api::{Answered, Shared};
use crate::metrics::{Asked, Done, Offered};
use crate::origin::Origin;
use crate::query::Query;
use crate::{operator, route};

/// How many failed requests are logged each second. The next logged line has the number of the
/// others.
pub(crate) const FAILURES_TOLD_MAX: u32 = 10;

/// How many characters of a client's name or id are logged.
const LOGGED_LENGTH_MAX: usize = 128;

/// Facts about a request, collected while it is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) asked: Asked,
    /// The size of its body, if it was admitted.
    pub(crate) body_bytes: u64,
}

impl Shared {
    /// The operation of a request that was not admitted.
    pub(crate) fn seen_of_refused(&self, head: &Parts) -> Seen {
        let accounts = self.accounts.snapshot();
        let find = || {
            let query = Query::parse(head.uri.query()).ok()?;
            let address = Self::address(&accounts, head)?;
            route::find(&head.method, &address.resource, &query).ok()
        };
        Seen {
            asked: find().map_or(Asked::Unknown, Asked::Operation),
            body_bytes: 0,
        }
    }

    /// Counts an answer, and logs it if an operator needs to know.
    pub(crate) fn observe(
        &self,
        origin: &Origin,
        head: &Parts,
        answered: &Answered,
        took: Duration,
    ) {
        let response = &answered.response;
        let code = text(response.headers(), "x-ms-error-code");
        let done = Done {
            asked: answered.seen.asked,
            status: response.status(),
            code,
            took,
            request_bytes: answered.seen.body_bytes,
            response_bytes: response.body().size_hint().exact().unwrap_or(0),
        };
        self.instruments.note(&done);
        let offered = offered(head);
        if is_denied(offered, done.status, code) && matches!(done.asked, Asked::Operation(_)) {
            self.instruments.note_denied(offered, done.status, code);
        }
        let request_id = text(response.headers(), "x-ms-request-id");
        if done.status.is_server_error() {
            self.warn(&done, request_id);
        }
        if self.operator.slow_request.is_some_and(|slow| took >= slow) {
            self.log_request::<true>(origin, head, &done, request_id);
        }
        if tracing::enabled!(target: "kew::access", tracing::Level::DEBUG) {
            self.log_request::<false>(origin, head, &done, request_id);
        }
    }

    /// A client used the public key, or addressed its account, and may not. `called` is the host
    /// that it named, or the page that it is.
    pub(crate) fn note_barred(&self, origin: &Origin, barred: Barred, called: &str) {
        if let Some(count) = self.barred_log.note(self.now()) {
            let (peer, called) = (origin.peer, cut(called));
            tracing::warn!(
                %peer,
                called,
                count,
                "a request for the well-known account was refused: {barred}"
            );
        }
    }

    fn warn(&self, done: &Done<'_>, request_id: &str) {
        let (operation, status) = (done.asked.name(), done.status.as_u16());
        let code = done.code;
        if code != "ServerBusy" {
            if self.failed_log.note(self.now()) == Line::Told {
                let not_logged = self.failed_log.take_untold();
                tracing::warn!(
                    operation,
                    status,
                    code,
                    request_id,
                    not_logged,
                    "request failed"
                );
            }
            return;
        }
        // A busy server does not log each refusal.
        if let Some(count) = self.busy_log.note(self.now()) {
            tracing::warn!(
                operation,
                status,
                code,
                request_id,
                count,
                "requests refused: busy"
            );
        }
    }

    /// Two separate places, because a log line's level and target are constants.
    fn log_request<const SLOW: bool>(
        &self,
        origin: &Origin,
        head: &Parts,
        done: &Done<'_>,
        request_id: &str,
    ) {
        let accounts = self.accounts.snapshot();
        let address = Self::address(&accounts, head);
        let address = address.as_ref();
        let account = cut(address.map_or("", |address| address.account));
        let queue = cut(address
            .and_then(|address| address.resource.queue())
            .unwrap_or(""));
        let client_request_id = cut(text(&head.headers, "x-ms-client-request-id"));
        let peer = origin.peer.to_string();
        let duration_us = u64::try_from(done.took.as_micros()).unwrap_or(u64::MAX);
        macro_rules! log {
            ($event:ident, $target:literal, $message:literal) => {
                tracing::$event!(
                    target: $target,
                    operation = done.asked.name(),
                    account = &*account,
                    queue = &*queue,
                    status = done.status.as_u16(),
                    code = done.code,
                    duration_us,
                    request_bytes = done.request_bytes,
                    response_bytes = done.response_bytes,
                    request_id,
                    client_request_id = &*client_request_id,
                    peer = &*peer,
                    $message
                )
            };
        }
        if SLOW {
            log!(info, "kew::slow", "slow request");
        } else {
            log!(debug, "kew::access", "request");
        }
    }

    fn address<'a>(accounts: &'a Accounts, head: &'a Parts) -> Option<Address<'a>> {
        if operator::is_own(head) {
            return None;
        }
        let host = match head.uri.authority() {
            Some(authority) => authority.as_str(),
            None => head
                .headers
                .get(HOST)
                .map_or(Some("localhost"), |host| host.to_str().ok())?,
        };
        Address::parse(head.uri.path(), host, accounts).ok()
    }
}

/// A header's value, if it is text.
fn text<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    let value = headers.get(name);
    value.and_then(|value| value.to_str().ok()).unwrap_or("")
}

fn cut(text: &str) -> String {
    text.chars().take(LOGGED_LENGTH_MAX).collect()
}

/// Only its kind: the credential itself is not read.
fn offered(head: &Parts) -> Offered {
    let Some(header) = head.headers.get(AUTHORIZATION) else {
        let query = head.uri.query().unwrap_or("");
        let has_signature = query.split('&').any(|pair| pair.starts_with("sig="));
        return if has_signature {
            Offered::Sas
        } else {
            Offered::None
        };
    };
    let header = header.as_bytes().trim_ascii_start();
    let scheme = header.split(|byte| *byte == b' ').next().unwrap_or(header);
    if scheme.eq_ignore_ascii_case(b"SharedKey") {
        Offered::SharedKey
    } else if scheme.eq_ignore_ascii_case(b"SharedKeyLite") {
        Offered::SharedKeyLite
    } else if scheme.eq_ignore_ascii_case(b"Bearer") {
        Offered::Bearer
    } else {
        Offered::Other
    }
}

/// Whether the answer means that the credential was not good enough. Before 2019-12-12 a missing
/// one gets `ResourceNotFound`. A full account does not count, nor do CORS rules: a preflight never
/// has a credential.
fn is_denied(offered: Offered, status: StatusCode, code: &str) -> bool {
    if matches!(code, "AccountQuotaExceeded" | "CorsPreflightFailure") {
        return false;
    }
    matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN)
        || code == "InvalidAuthenticationInfo"
        || (offered == Offered::None && code == "ResourceNotFound")
}
