//! A message as the service's HTTP interface gives it: its body, and everything else in headers.
//!
//! Source: Service Bus, REST, *Message headers and properties*.

use std::time::SystemTime;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kew_bus_api::is_custom_header;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use ureq::http::HeaderMap;
use ureq::http::header::{CONTENT_ENCODING, CONTENT_TYPE};

use super::connection::Answer;
use crate::queue_command::rfc3339;

/// A longer life has no end, in seconds: the service tells one of about 29,000 years.
const LIFE_S_MAX: f64 = 900_000_000_000.0;

/// What the service says of a message.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct BrokerProperties {
    sequence_number: u64,
    enqueued_sequence_number: Option<u64>,
    message_id: Option<String>,
    session_id: Option<String>,
    correlation_id: Option<String>,
    label: Option<String>,
    to: Option<String>,
    reply_to: Option<String>,
    reply_to_session_id: Option<String>,
    partition_key: Option<String>,
    dead_letter_source: Option<String>,
    enqueued_time_utc: Option<String>,
    locked_until_utc: Option<String>,
    lock_token: Option<String>,
    time_to_live: Option<f64>,
    /// The first delivery is 1.
    delivery_count: u64,
}

/// A message as it is shown: under the same names as the operator's interface shows it.
#[derive(Debug, Serialize)]
pub(super) struct Received {
    pub(super) sequence_number: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    enqueued_sequence_number: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    session_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    correlation_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    subject: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    to: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reply_to: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reply_to_session_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    partition_key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content_encoding: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    enqueued_at: Option<String>,
    /// Nothing if it lives for ever.
    time_to_live_seconds: Option<f64>,
    /// Deliveries that failed before this one.
    delivery_count: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    dead_letter_source: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) lock_token: Option<String>,
    /// When its lock ends.
    #[serde(skip)]
    pub(super) lock_ends: Option<SystemTime>,
    #[serde(skip_serializing_if = "Option::is_none")]
    locked_until: Option<String>,
    properties: Map<String, Value>,
    size_bytes: usize,
    /// If it is UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<String>,
    /// If it is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    body_base64: Option<String>,
}

impl Received {
    /// Reads an answer, or says what is wrong with it.
    pub(super) fn read(answer: &Answer) -> Result<Self, String> {
        let header = |name| answer.headers.get(name).and_then(|it| it.to_str().ok());
        let told = header("brokerproperties").ok_or("there are no BrokerProperties")?;
        let told: BrokerProperties =
            serde_json::from_str(told).map_err(|error| format!("BrokerProperties: {error}"))?;
        let (body, body_base64) = match std::str::from_utf8(&answer.body) {
            Ok(text) => (Some(text.to_owned()), None),
            Err(_) => (None, Some(STANDARD.encode(&answer.body))),
        };
        Ok(Self {
            sequence_number: told.sequence_number,
            enqueued_sequence_number: told.enqueued_sequence_number,
            message_id: told.message_id,
            session_id: told.session_id,
            correlation_id: told.correlation_id,
            subject: told.label,
            to: told.to,
            reply_to: told.reply_to,
            reply_to_session_id: told.reply_to_session_id,
            partition_key: told.partition_key,
            content_type: header(CONTENT_TYPE.as_str()).map(str::to_owned),
            content_encoding: header(CONTENT_ENCODING.as_str()).map(str::to_owned),
            enqueued_at: told.enqueued_time_utc.as_deref().map(rfc3339_of),
            time_to_live_seconds: told.time_to_live.filter(|life| *life < LIFE_S_MAX),
            delivery_count: told.delivery_count.saturating_sub(1),
            dead_letter_source: told.dead_letter_source,
            lock_token: told.lock_token,
            lock_ends: told
                .locked_until_utc
                .as_deref()
                .and_then(|text| httpdate::parse_http_date(text).ok()),
            locked_until: told.locked_until_utc.as_deref().map(rfc3339_of),
            properties: properties(&answer.headers),
            size_bytes: answer.body.len(),
            body,
            body_base64,
        })
    }
}

/// The application properties: a text stands in quotes, and dates and what else is no JSON is a text.
fn properties(headers: &HeaderMap) -> Map<String, Value> {
    let custom = headers
        .iter()
        .filter(|(name, _)| is_custom_header(name.as_str()));
    custom
        .map(|(name, value)| {
            let text = String::from_utf8_lossy(value.as_bytes());
            let value = serde_json::from_str(&text).unwrap_or_else(|_| Value::from(text));
            (name.as_str().to_owned(), value)
        })
        .collect()
}

/// A time of RFC 1123 as RFC 3339 has it; what is none stays as it is.
pub(super) fn rfc3339_of(text: &str) -> String {
    httpdate::parse_http_date(text).map_or_else(|_| text.to_owned(), rfc3339)
}

#[cfg(test)]
mod tests {
    use ureq::http::HeaderValue;

    use super::*;

    #[test]
    fn what_headers_say_is_shown() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            (
                "brokerproperties",
                r#"{"SequenceNumber":7,"DeliveryCount":2,"TimeToLive":922337203685.4775,"Label":"s",
                "LockedUntilUtc":"Sun, 06 Nov 1994 08:49:37 GMT"}"#,
            ),
            ("date", "Sun, 06 Nov 1994 08:49:37 GMT"),
            ("content-length", "1"),
            ("tries", "2"),
            ("by", "\"m\\u00e4\""),
            ("at", "Sun, 06 Nov 1994 08:49:37 GMT"),
        ] {
            headers.insert(
                name,
                HeaderValue::from_str(&value.replace('\n', "")).unwrap(),
            );
        }
        let answer = Answer {
            status: 200,
            headers,
            body: b"\xff".to_vec(),
        };
        let received = serde_json::to_value(Received::read(&answer).unwrap()).unwrap();
        let expected = serde_json::json!({
            "sequence_number": 7,
            "subject": "s",
            "time_to_live_seconds": null,
            "delivery_count": 1,
            "locked_until": "1994-11-06T08:49:37Z",
            "properties": {"tries": 2, "by": "m\u{e4}", "at": "Sun, 06 Nov 1994 08:49:37 GMT"},
            "size_bytes": 1,
            "body_base64": "/w==",
        });
        assert_eq!(received, expected);
        let nothing = Answer {
            headers: HeaderMap::new(),
            ..answer
        };
        assert!(Received::read(&nothing).is_err());
    }
}
