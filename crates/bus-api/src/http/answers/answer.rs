//! Answers, and errors in the service's form.

#![cfg_attr(not(test), deny(clippy::wildcard_enum_match_arm))]

use bytes::Bytes;
use http_body_util::Full;
use hyper::StatusCode;
use hyper::header::{
    CONNECTION, CONTENT_TYPE, HeaderName, HeaderValue, SEC_WEBSOCKET_VERSION, UPGRADE,
    WWW_AUTHENTICATE,
};
use kew_broker::Rejection;
use kew_engine::Refusal;
use kew_engine::bus::BusRefusal;
use kew_http_front::Answer;
use quick_xml::escape::partial_escape;

use crate::authorization::bad_token::BadToken;
use crate::ground::constants::NAMESPACE;
use crate::ground::refusal::{FULL, MOVING, READ_FAILED, UNKNOWN, UNREADABLE};
use crate::ground::turned_away::TurnedAway;

/// The type of errors.
pub(in crate::http) const JSON: &str = "application/json; charset=utf-8";
const XML: &str = "application/xml; charset=utf-8";

/// The most characters of a detail: it may repeat a client's input.
const DETAIL_LENGTH_MAX: usize = 2048;

/// An answer without a body.
pub(crate) fn answer_of(status: StatusCode) -> Answer {
    let mut answer = Answer::new(Full::default());
    *answer.status_mut() = status;
    answer
}

/// An answer with a body of a type.
pub(crate) fn with_body(
    status: StatusCode,
    content_type: &'static str,
    body: impl Into<Bytes>,
) -> Answer {
    let mut answer = Answer::new(Full::new(body.into()));
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    answer
}

/// Why a request is refused: `<Error><Code>status</Code><Detail>…</Detail></Error>`, with a
/// sub-code that some SDKs look for in the text.
///
/// Source: Service Bus, *Resource Provider REST API*, error codes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HttpError {
    pub(crate) status: StatusCode,
    /// Five digits: the status and two more. `None`: the status is enough.
    sub_code: Option<u32>,
    detail: String,
}

impl HttpError {
    pub(crate) fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        let mut detail = detail.into();
        if let Some((end, _)) = detail.char_indices().nth(DETAIL_LENGTH_MAX) {
            detail.truncate(end);
            detail.push('…');
        }
        Self {
            status,
            sub_code: None,
            detail,
        }
    }

    /// With two more digits after the status. `40900` is a conflict without details.
    pub(crate) fn with_sub_code(self, sub_code: u32) -> Self {
        Self {
            sub_code: Some(sub_code),
            ..self
        }
    }

    pub(crate) fn bad_request(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, detail).with_sub_code(40_000)
    }

    pub(crate) fn unauthorized(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, detail)
    }

    /// The resource is available only within a WebSocket of version 13.
    pub(crate) fn upgrade_required(detail: &str) -> Self {
        Self::new(StatusCode::UPGRADE_REQUIRED, detail)
    }

    pub(crate) fn not_found(entity: &str) -> Self {
        let detail = format!("The messaging entity '{entity}' could not be found.");
        Self::new(StatusCode::NOT_FOUND, detail).with_sub_code(40_400)
    }

    /// With the end that the service gives its texts, so that a client's report and the server's
    /// log can be matched.
    pub(crate) fn tracked(mut self, entity: &str) -> Self {
        let id = tracking_id();
        let now = jiff::Timestamp::now();
        tracing::debug!(
            tracking_id = id,
            status = self.status.as_u16(),
            detail = self.detail
        );
        self.detail = format!(
            "{}. TrackingId:{id}, SystemTracker:{NAMESPACE}:{entity}, Timestamp:{now:.0}",
            self.detail.trim_end_matches('.')
        );
        self
    }

    /// The server cannot do it now.
    pub(crate) fn busy(why: &str) -> Self {
        let detail = format!("{why} Please wait and try again.");
        Self::new(StatusCode::SERVICE_UNAVAILABLE, detail).with_sub_code(50_004)
    }

    /// All requests together hold as much as they may.
    pub(crate) fn no_room() -> Self {
        Self::busy("The server has as many requests as it can hold.")
    }

    /// The broker's answer does not fit the command, which is a bug, or its data cannot be read.
    pub(crate) fn internal() -> Self {
        let detail = "The server was unable to process the request.";
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, detail)
    }

    pub(crate) fn detail(&self) -> &str {
        &self.detail
    }

    fn to_xml(&self) -> String {
        let status = self.status.as_u16();
        let sub_code = match self.sub_code {
            Some(code) => format!("SubCode={code}. "),
            None => String::new(),
        };
        // A path may have characters that are not allowed in XML.
        let is_text = |c: char| match c {
            '\t' | '\n' | '\r' => true,
            '\u{fffe}' | '\u{ffff}' => false,
            _ => !c.is_control(),
        };
        let detail = self.detail.replace(|c| !is_text(c), "\u{fffd}");
        let detail = partial_escape(&detail);
        format!("<Error><Code>{status}</Code><Detail>{sub_code}{detail}</Detail></Error>")
    }

    /// The bytes of an answer after which the connection ends, for connections whose requests are
    /// not read.
    pub(crate) fn into_farewell(self) -> Vec<u8> {
        let body = self.to_xml();
        let retry_after = match self.status {
            StatusCode::SERVICE_UNAVAILABLE => "Retry-After: 1\r\n",
            _ => "",
        };
        format!(
            "HTTP/1.1 {}\r\nContent-Type: {XML}\r\nContent-Length: {}\r\n{retry_after}Connection: close\r\n\r\n{body}",
            self.status,
            body.len()
        )
        .into_bytes()
    }

    /// As JSON: `{"error": {"code": …, "message": …}}`.
    pub(crate) fn into_json_answer(self) -> Answer {
        let reason = self.status.canonical_reason().unwrap_or("Error");
        let code = reason.replace(' ', "");
        let body = serde_json::json!({"error": {"code": code, "message": self.detail}});
        self.with_headers(with_body(self.status, JSON, body.to_string()))
    }

    pub(crate) fn into_answer(self) -> Answer {
        let answer = with_body(self.status, XML, self.to_xml());
        self.with_headers(answer)
    }

    fn with_headers(&self, mut answer: Answer) -> Answer {
        if self.status == StatusCode::UNAUTHORIZED {
            let challenge = HeaderValue::from_static("SharedAccessSignature");
            answer.headers_mut().insert(WWW_AUTHENTICATE, challenge);
        }
        if self.status == StatusCode::UPGRADE_REQUIRED {
            let headers = answer.headers_mut();
            headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
            headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
            headers.insert(SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
        }
        if self.status == StatusCode::SERVICE_UNAVAILABLE {
            let retry_after = HeaderName::from_static("retry-after");
            let second = HeaderValue::from_static("1");
            answer.headers_mut().insert(retry_after, second);
        }
        answer
    }
}

impl From<TurnedAway> for HttpError {
    fn from(why: TurnedAway) -> Self {
        match why {
            TurnedAway::Crowded => Self::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "The server has reached its limit of connections. Try again later.",
            ),
            TurnedAway::Plain => Self::new(
                StatusCode::FORBIDDEN,
                "This connection is not encrypted: use https.",
            )
            // This sub-code tells SDKs not to retry.
            .with_sub_code(40_301),
        }
    }
}

impl From<BadToken> for HttpError {
    fn from(error: BadToken) -> Self {
        match error.status() {
            503 => Self::busy("The server cannot check the token now."),
            _ => Self::unauthorized(error.to_string()),
        }
    }
}

impl From<Rejection> for HttpError {
    fn from(rejection: Rejection) -> Self {
        match &rejection {
            Rejection::Refused(Refusal::Bus(refusal)) => of_refusal(refusal),
            Rejection::Refused(refusal @ Refusal::PropertiesTooLarge { .. }) => {
                Self::new(StatusCode::FORBIDDEN, refusal.to_string()).with_sub_code(40_300)
            }
            Rejection::Refused(
                refusal @ (Refusal::AlreadyInitialized
                | Refusal::AccountAlreadyExists { .. }
                | Refusal::AccountNotFound { .. }
                | Refusal::AccountNotEmpty { .. }
                | Refusal::Storage(_)),
            ) => Self::bad_request(refusal.to_string()),
            Rejection::Busy => Self::busy("The server is busy."),
            Rejection::Full => Self::busy(FULL),
            Rejection::Stopped => Self::busy("The server is stopping."),
            Rejection::ReadFailed => Self::busy(READ_FAILED),
            Rejection::NotOwner => Self::busy(MOVING),
            // A client repeats what a busy server has refused, and this may be done already.
            Rejection::Unknown => Self::new(StatusCode::INTERNAL_SERVER_ERROR, UNKNOWN),
        }
    }
}

/// A random GUID. Without randomness it is zero: that is no reason to drop the error.
fn tracking_id() -> String {
    let mut bytes = [0; 16];
    if aws_lc_rs::rand::fill(&mut bytes).is_err() {
        bytes = [0; 16];
    }
    let id = u128::from_be_bytes(bytes);
    let hex = format!("{id:032x}");
    let mut text = String::with_capacity(36);
    for (index, digit) in hex.chars().enumerate() {
        if matches!(index, 8 | 12 | 16 | 20) {
            text.push('-');
        }
        text.push(digit);
    }
    text
}

fn of_refusal(refusal: &BusRefusal) -> HttpError {
    let (status, sub_code) = match refusal {
        BusRefusal::QueueNotFound { queue } => return HttpError::not_found(queue),
        BusRefusal::MessageDamaged { .. } => {
            return HttpError::new(StatusCode::INTERNAL_SERVER_ERROR, UNREADABLE);
        }
        // The destination in the queue's settings does not exist: the request is wrong, not its
        // path.
        BusRefusal::DestinationNotFound { .. } => (StatusCode::BAD_REQUEST, 40_400),
        BusRefusal::QueueAlreadyExists { .. } | BusRefusal::RuleAlreadyExists { .. } => {
            (StatusCode::CONFLICT, 40_900)
        }
        BusRefusal::RulesBusy { .. } => (StatusCode::SERVICE_UNAVAILABLE, 50_300),
        BusRefusal::QuotaExceeded { .. }
        | BusRefusal::TransferFull { .. }
        | BusRefusal::TooManySubscriptions { .. }
        | BusRefusal::TooManyRules { .. }
        | BusRefusal::RulesTooLarge { .. }
        | BusRefusal::MessageTooLarge { .. }
        | BusRefusal::SessionStateTooLarge { .. } => (StatusCode::FORBIDDEN, 40_300),
        BusRefusal::Disabled { .. } => (StatusCode::FORBIDDEN, 40_301),
        BusRefusal::NotSendable { .. }
        | BusRefusal::NotSendableSubscription { .. }
        | BusRefusal::NotReceivable { .. }
        | BusRefusal::NotSupportedYet { .. }
        | BusRefusal::TooManyCopies { .. }
        | BusRefusal::RulesTakeLong { .. }
        | BusRefusal::CopiesTooLarge { .. }
        | BusRefusal::NotAMessage
        | BusRefusal::NoMatchingSubscription { .. }
        | BusRefusal::Forwards { .. }
        | BusRefusal::SessionRequired
        | BusRefusal::SessionsNotSupported
        | BusRefusal::InvalidOption(_)
        | BusRefusal::UnchangeableOption { .. }
        | BusRefusal::InvalidRule { .. }
        | BusRefusal::TooMany { .. }
        | BusRefusal::Transaction { .. }
        | BusRefusal::SessionIdTooLong { .. } => (StatusCode::BAD_REQUEST, 40_000),
        BusRefusal::SessionCannotBeLocked { .. }
        | BusRefusal::NoSessionAvailable
        | BusRefusal::LockLost
        | BusRefusal::SessionLockLost => (StatusCode::GONE, 41_000),
        BusRefusal::MessageLocked { .. }
        | BusRefusal::MessageScheduled { .. }
        | BusRefusal::NotLocked => (StatusCode::CONFLICT, 40_900),
        BusRefusal::MessageNotFound { .. } | BusRefusal::RuleNotFound { .. } => {
            (StatusCode::NOT_FOUND, 40_400)
        }
    };
    HttpError::new(status, refusal.to_string()).with_sub_code(sub_code)
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;

    use super::*;

    #[test]
    fn an_error_text_is_cut_to_its_limit() {
        let error = HttpError::bad_request(format!("a\0b\u{fffe}{}", "ä".repeat(1 << 20)));
        let xml = error.to_xml();
        assert!(xml.contains("a\u{fffd}b\u{fffd}ä"), "{xml}");
        assert!(xml.contains("ä…</Detail>"), "{xml}");
        assert!(xml.len() < 5000, "{}", xml.len());
    }

    #[test]
    fn a_busy_answer_asks_once_to_wait() {
        for rejection in [
            Rejection::Busy,
            Rejection::NotOwner,
            Rejection::Stopped,
            Rejection::ReadFailed,
        ] {
            let text = HttpError::from(rejection).detail;
            assert_eq!(text.matches("try again").count(), 1, "{text}");
        }
    }

    #[test]
    fn what_was_perhaps_carried_out_is_not_answered_as_busy() {
        let error = HttpError::from(Rejection::Unknown);
        assert_eq!(error.into_answer().status(), 500);
    }

    #[tokio::test]
    async fn an_error_is_xml_and_escapes_client_text() {
        let answer = HttpError::not_found("a<b&").into_answer();
        assert_eq!(answer.status(), 404);
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(
            body,
            "<Error><Code>404</Code><Detail>SubCode=40400. The messaging entity 'a&lt;b&amp;' could not \
             be found.</Detail></Error>"
        );
    }
}
