//! Answers, and the headers of every answer.

use std::fmt::Write as _;
use std::time::SystemTime;

use bytes::{BufMut as _, Bytes, BytesMut};
use http_body_util::Full;
use hyper::header::{
    ALLOW, CACHE_CONTROL, CONNECTION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue,
    RETRY_AFTER, SERVER, WWW_AUTHENTICATE,
};
use hyper::{Response, StatusCode};
use kew_http_front::{Connection, Share};
use kew_xml::{DECLARATION, put_element};

use crate::api::Answered;
use crate::date;
use crate::error::Error;
use crate::metrics::Asked;
use crate::observe::Seen;
use crate::spelling::Spellings;
use crate::version::{Version, X_MS_VERSION};

const X_MS_REQUEST_ID: HeaderName = HeaderName::from_static("x-ms-request-id");
const X_MS_CLIENT_REQUEST_ID: HeaderName = HeaderName::from_static("x-ms-client-request-id");
const X_MS_ERROR_CODE: HeaderName = HeaderName::from_static("x-ms-error-code");

const APPLICATION_XML: HeaderValue = HeaderValue::from_static("application/xml");
const SERVER_NAME: HeaderValue = HeaderValue::from_static("Kew");
const NO_CACHE: HeaderValue = HeaderValue::from_static("no-cache");
const CLOSE: HeaderValue = HeaderValue::from_static("close");

/// How long clients should wait before they retry with a busy server, in seconds.
const RETRY_AFTER_SECONDS: HeaderValue = HeaderValue::from_static("1");

/// The challenge for a missing credential. SDKs read both parameters, and fail without them.
const CHALLENGE: HeaderValue = HeaderValue::from_static(
    "Bearer authorization_uri=https://login.microsoftonline.com/common/oauth2/authorize \
     resource_id=https://storage.azure.com",
);

/// The longest detail of an error: it may repeat the client's input, and a client that sends much
/// must not get more in return.
const DETAIL_SIZE_BYTES_MAX: usize = 8 * 1024;

/// The longest client request id that is echoed.
const CLIENT_REQUEST_ID_SIZE_BYTES_MAX: usize = 1024;

/// An answer before it is addressed to a request.
#[derive(Debug)]
pub(crate) struct Reply {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
    /// The spelling of metadata names in the headers.
    spellings: Spellings,
}

impl Reply {
    pub(crate) fn empty(status: StatusCode) -> Self {
        let mut headers = HeaderMap::with_capacity(8);
        headers.insert(SERVER, SERVER_NAME);
        Self {
            status,
            headers,
            body: Bytes::new(),
            spellings: Spellings::default(),
        }
    }

    pub(crate) fn xml(status: StatusCode, body: BytesMut) -> Self {
        let mut reply = Self::empty(status);
        reply.headers.insert(CONTENT_TYPE, APPLICATION_XML);
        reply.body = body.freeze();
        reply
    }

    /// Keeps the share until the body is written.
    pub(crate) fn holding(mut self, share: Share) -> Self {
        self.body = share.hold(self.body);
        self
    }

    pub(crate) fn text(status: StatusCode, body: &'static str) -> Self {
        let mut reply = Self::empty(status);
        let text = HeaderValue::from_static("text/plain");
        reply.headers.insert(CONTENT_TYPE, text);
        reply.body = Bytes::from_static(body.as_bytes());
        reply
    }

    pub(crate) fn page(content_type: &'static str, page: Bytes) -> Self {
        let mut reply = Self::empty(StatusCode::OK);
        let content_type = HeaderValue::from_static(content_type);
        reply.headers.insert(CONTENT_TYPE, content_type);
        reply.body = page;
        reply
    }

    pub(crate) fn with_no_cache(mut self) -> Self {
        self.headers.insert(CACHE_CONTROL, NO_CACHE);
        self
    }

    pub(crate) fn with_spellings(mut self, spellings: Spellings) -> Self {
        self.spellings = spellings;
        self
    }

    pub(crate) fn headers_mut(&mut self) -> &mut HeaderMap {
        &mut self.headers
    }

    /// The answer as bytes, for a connection without hyper; it closes after it.
    pub(crate) fn to_bytes(&self, now: SystemTime) -> Vec<u8> {
        let mut bytes = format!("HTTP/1.1 {}\r\n", self.status).into_bytes();
        for (name, value) in &self.headers {
            bytes.extend_from_slice(name.as_str().as_bytes());
            bytes.extend_from_slice(b": ");
            bytes.extend_from_slice(value.as_bytes());
            bytes.extend_from_slice(b"\r\n");
        }
        let end = format!(
            "connection: close\r\ncontent-length: {}\r\ndate: {}\r\n\r\n",
            self.body.len(),
            httpdate::fmt_http_date(now)
        );
        bytes.extend_from_slice(end.as_bytes());
        bytes.extend_from_slice(&self.body);
        bytes
    }

    pub(crate) fn into_answered(mut self, connection: Connection) -> Answered {
        if connection == Connection::Spent {
            self.headers.insert(CONNECTION, CLOSE);
        }
        let mut response = Response::new(Full::new(self.body));
        *response.status_mut() = self.status;
        *response.headers_mut() = self.headers;
        Answered {
            response,
            spellings: self.spellings,
            seen: Seen {
                asked: Asked::Unknown,
                body_bytes: 0,
            },
        }
    }
}

/// The parts of an answer that repeat its request or identify it.
#[derive(Debug)]
pub(crate) struct Envelope {
    pub(crate) request_id: [u8; 36],
    pub(crate) version: Option<HeaderValue>,
    pub(crate) client_request_id: Option<HeaderValue>,
    /// Whether the request speaks the 2008 dialect.
    pub(crate) is_oldest: bool,
}

impl Envelope {
    /// Reads the headers that an answer will repeat.
    ///
    /// `version` is the version of the request. `None` means that it named an invalid one; then the
    /// answer names the newest.
    pub(crate) fn new(headers: &HeaderMap, version: Option<Version>, request_id: [u8; 36]) -> Self {
        let speaks = version.unwrap_or(Version::NEWEST);
        let sent = match version {
            Some(_) => headers.get(X_MS_VERSION).cloned(),
            None => HeaderValue::try_from(Version::NEWEST.to_string()).ok(),
        };
        Self {
            request_id,
            is_oldest: speaks < Version::V2009_09_19,
            version: sent.filter(|_| speaks >= Version::V2009_09_19),
            client_request_id: headers
                .get(X_MS_CLIENT_REQUEST_ID)
                .filter(|value| speaks >= Version::V2019_02_02 && is_echoed(value))
                .cloned(),
        }
    }

    /// Sets the version that the request named in another place.
    pub(crate) fn speak(&mut self, version: Version) {
        self.version = HeaderValue::try_from(version.to_string()).ok();
        self.is_oldest = version < Version::V2009_09_19;
    }

    pub(crate) fn seal(self, mut reply: Reply) -> Reply {
        let headers = &mut reply.headers;
        if let Ok(id) = HeaderValue::from_bytes(&self.request_id) {
            headers.insert(X_MS_REQUEST_ID, id);
        }
        if let Some(version) = self.version {
            headers.insert(X_MS_VERSION, version);
        }
        if let Some(id) = self.client_request_id {
            headers.insert(X_MS_CLIENT_REQUEST_ID, id);
        }
        reply
    }

    /// The answer for an error.
    ///
    /// `is_head` leaves out the body; the code is also in a header.
    pub(crate) fn seal_error(mut self, error: &Error, is_head: bool, now: SystemTime) -> Reply {
        let wire = error.wire();
        let mut reply = if is_head {
            Reply::empty(wire.status)
        } else {
            Reply::xml(wire.status, self.error_body(error, now))
        };
        let headers = &mut reply.headers;
        headers.insert(X_MS_ERROR_CODE, HeaderValue::from_static(wire.code));
        match error {
            Error::NoAuthenticationInformation | Error::InvalidBearerToken { .. } => {
                headers.insert(WWW_AUTHENTICATE, CHALLENGE);
                // The service names no version here.
                self.version = None;
            }
            Error::ServerBusy | Error::DiskFull => {
                headers.insert(RETRY_AFTER, RETRY_AFTER_SECONDS);
            }
            Error::UnsupportedHttpVerb { allowed } => {
                if let Ok(allowed) = HeaderValue::from_str(allowed) {
                    headers.insert(ALLOW, allowed);
                }
            }
            _ => {}
        }
        self.seal(reply)
    }

    fn error_body(&self, error: &Error, now: SystemTime) -> BytesMut {
        let wire = error.wire();
        let mut body = BytesMut::with_capacity(512);
        body.put_slice(DECLARATION);
        body.put_slice(b"<Error>");
        put_element(&mut body, "Code", wire.code);
        let request_id = String::from_utf8_lossy(&self.request_id);
        let time = date::iso8601(now);
        let message = format!("{}\nRequestId:{request_id}\nTime:{time}", wire.message);
        put_element(&mut body, "Message", &message);
        if self.is_oldest {
            put_exception(&mut body, error);
            body.put_slice(b"</Error>");
            return body;
        }
        let mut shown = String::new();
        error.details(|name, text| {
            shown.clear();
            // Writing to a string cannot fail.
            let _ = write!(shown, "{text}");
            if shown.len() > DETAIL_SIZE_BYTES_MAX {
                shown.truncate(shown.floor_char_boundary(DETAIL_SIZE_BYTES_MAX));
                shown.push('…');
            }
            put_element(&mut body, name, &shown);
        });
        body.put_slice(b"</Error>");
        body
    }
}

/// The explanation of an error in the 2008 dialect: one text for people. Kew never shows its stack.
fn put_exception(body: &mut BytesMut, error: &Error) {
    let mut text = error.wire().message.into_owned();
    // Writing to a string cannot fail.
    error.details(|name, value| {
        let _ = write!(text, " {name}: {value}.");
    });
    body.put_slice(b"<ExceptionDetails>");
    put_element(body, "ExceptionMessage", &text);
    put_element(body, "StackTrace", "");
    body.put_slice(b"</ExceptionDetails>");
}

fn is_echoed(value: &HeaderValue) -> bool {
    value.len() <= CLIENT_REQUEST_ID_SIZE_BYTES_MAX
        && value
            .as_bytes()
            .iter()
            .all(|byte| byte.is_ascii_graphic() || *byte == b' ')
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    fn envelope(version: &'static str) -> Envelope {
        let mut headers = HeaderMap::new();
        headers.insert(X_MS_VERSION, HeaderValue::from_static(version));
        headers.insert(X_MS_CLIENT_REQUEST_ID, HeaderValue::from_static("abc"));
        let version = Version::parse(version.as_bytes());
        Envelope::new(&headers, version, [b'0'; 36])
    }

    #[test]
    fn the_version_is_echoed_as_sent() {
        let shown = |version| {
            envelope(version)
                .version
                .map(|value| value.to_str().unwrap().to_owned())
        };
        assert_eq!(shown("2099-01-01").as_deref(), Some("2099-01-01"));
        assert_eq!(shown("2011-08-18").as_deref(), Some("2011-08-18"));
        assert_eq!(shown("2009-07-17"), None);
        assert_eq!(shown("nonsense").as_deref(), Some("2026-10-06"));
    }

    #[test]
    fn the_client_request_id_is_echoed_from_2019_on() {
        assert!(envelope("2019-02-02").client_request_id.is_some());
        assert!(envelope("2018-11-09").client_request_id.is_none());
    }

    #[test]
    fn an_error_body_of_2008() {
        let now = UNIX_EPOCH + Duration::from_secs(1_561_495_500);
        let error = Error::MissingRequiredQueryParameter { name: "popreceipt" };
        let body = envelope("2009-07-17").error_body(&error, now);
        assert_eq!(
            std::str::from_utf8(&body).unwrap(),
            "<?xml version=\"1.0\" encoding=\"utf-8\"?><Error>\
             <Code>MissingRequiredQueryParameter</Code>\
             <Message>A query parameter that's mandatory for this request is not specified.\n\
             RequestId:000000000000000000000000000000000000\n\
             Time:2019-06-25T20:45:00.0000000Z</Message><ExceptionDetails><ExceptionMessage>\
             A query parameter that's mandatory for this request is not specified. \
             QueryParameterName: popreceipt.</ExceptionMessage><StackTrace />\
             </ExceptionDetails></Error>"
        );
    }

    #[test]
    fn long_details_are_cut() {
        let value = "ä".repeat(DETAIL_SIZE_BYTES_MAX);
        let error = Error::invalid_query("timeout", value, "");
        let body = envelope("2019-02-02").error_body(&error, UNIX_EPOCH);
        let body = std::str::from_utf8(&body).unwrap();
        assert!(body.contains("äää…</QueryParameterValue>"), "{body}");
        assert!(body.len() < DETAIL_SIZE_BYTES_MAX + 1000, "{}", body.len());
    }

    #[test]
    fn an_error_body() {
        let now = UNIX_EPOCH + Duration::from_secs(1_561_495_500);
        let error = Error::invalid_query("timeout", "<\u{1}>", "Not a number.");
        let body = envelope("2019-02-02").error_body(&error, now);
        assert_eq!(
            std::str::from_utf8(&body).unwrap(),
            "<?xml version=\"1.0\" encoding=\"utf-8\"?><Error>\
             <Code>InvalidQueryParameterValue</Code>\
             <Message>Value for one of the query parameters specified in the request URI is invalid.\n\
             RequestId:000000000000000000000000000000000000\n\
             Time:2019-06-25T20:45:00.0000000Z</Message>\
             <QueryParameterName>timeout</QueryParameterName>\
             <QueryParameterValue>&lt;\u{FFFD}&gt;</QueryParameterValue>\
             <Reason>Not a number.</Reason></Error>"
        );
    }
}
