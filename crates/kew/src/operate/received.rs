//! A message from the service's HTTP interface: its body, and everything else in headers.
//!
//! Source: Service Bus, REST, *Message headers and properties*.

use std::time::{Duration, SystemTime};

use kew_bus_api::{DEAD_LETTER_DESCRIPTION, DEAD_LETTER_REASON, MessageView, is_custom_header};
use serde::Deserialize;
use serde_json::{Map, Value};
use ureq::http::HeaderMap;
use ureq::http::header::{CONTENT_ENCODING, CONTENT_TYPE};

use super::connection::Answer;
use crate::queue_command::rfc3339;

/// A longer time to live means that it never expires, in seconds: the service reports about 29,000
/// years.
const LIFE_S_MAX: f64 = 900_000_000_000.0;

/// The service's properties of a message.
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
    state: Option<String>,
    time_to_live: Option<f64>,
    /// The first delivery is 1.
    delivery_count: u64,
}

/// A received message, in the form of the operator's interface.
#[derive(Debug)]
pub(super) struct Received {
    pub(super) view: MessageView,
    /// When its lock ends.
    pub(super) lock_ends: Option<SystemTime>,
}

impl Received {
    /// Reads an answer, or returns what is wrong with it.
    pub(super) fn read(answer: &Answer) -> Result<Self, String> {
        let header = |name| answer.headers.get(name).and_then(|it| it.to_str().ok());
        let told = header("brokerproperties").ok_or("there are no BrokerProperties")?;
        let told: BrokerProperties =
            serde_json::from_str(told).map_err(|error| format!("BrokerProperties: {error}"))?;
        let time = |text: &Option<String>| {
            let text = text.as_deref()?;
            httpdate::parse_http_date(text).ok()
        };
        let (enqueued_at, lock_ends) =
            (time(&told.enqueued_time_utc), time(&told.locked_until_utc));
        let life = told.time_to_live.filter(|life| *life < LIFE_S_MAX);
        let life = life.and_then(|life| Duration::try_from_secs_f64(life).ok());
        let expires_at = enqueued_at
            .zip(life)
            .and_then(|(at, life)| at.checked_add(life));
        let mut properties = properties(&answer.headers);
        let mut take = |name: &str| match properties.remove(&name.to_ascii_lowercase())? {
            Value::String(text) => Some(text),
            other => Some(other.to_string()),
        };
        let (reason, description) = (take(DEAD_LETTER_REASON), take(DEAD_LETTER_DESCRIPTION));
        let view = MessageView {
            sequence_number: told.sequence_number,
            enqueued_sequence_number: told.enqueued_sequence_number,
            state: match (&told.lock_token, told.state.as_deref()) {
                (Some(_), _) => "locked",
                (None, Some("Deferred")) => "deferred",
                (None, Some("Scheduled")) => "scheduled",
                (None, _) => "active",
            },
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
            enqueued_at: enqueued_at.map(rfc3339),
            expires_at: expires_at.map(rfc3339),
            locked_until: lock_ends.map(rfc3339),
            lock_token: told.lock_token,
            delivery_count: told.delivery_count.saturating_sub(1),
            dead_letter_reason: reason,
            dead_letter_description: description,
            dead_letter_source: told.dead_letter_source,
            properties,
            ..MessageView::default()
        }
        .with_body(&answer.body);
        Ok(Self { view, lock_ends })
    }
}

/// The application properties: a string is in quotes. Dates, and everything else that is not JSON,
/// become strings.
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

/// A time of RFC 1123 in the form of RFC 3339; any other text stays unchanged.
pub(super) fn rfc3339_of(text: &str) -> String {
    httpdate::parse_http_date(text).map_or_else(|_| text.to_owned(), rfc3339)
}

#[cfg(test)]
mod tests {
    use ureq::http::HeaderValue;

    use super::*;

    #[test]
    fn headers_are_shown() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            (
                "brokerproperties",
                r#"{"SequenceNumber":7,"DeliveryCount":2,"TimeToLive":60.5,"Label":"s","LockToken":"l",
                "EnqueuedTimeUtc":"Sun, 06 Nov 1994 08:49:37 GMT",
                "LockedUntilUtc":"Sun, 06 Nov 1994 08:50:07 GMT"}"#,
            ),
            ("date", "Sun, 06 Nov 1994 08:49:37 GMT"),
            ("content-length", "1"),
            ("tries", "2"),
            ("deadletterreason", "\"Late\""),
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
        let received = serde_json::to_value(Received::read(&answer).unwrap().view).unwrap();
        let expected = serde_json::json!({
            "sequence_number": 7,
            "state": "locked",
            "subject": "s",
            "enqueued_at": "1994-11-06T08:49:37Z",
            "expires_at": "1994-11-06T08:50:37Z",
            "lock_token": "l",
            "locked_until": "1994-11-06T08:50:07Z",
            "delivery_count": 1,
            "dead_letter_reason": "Late",
            "properties": {"tries": 2, "by": "m\u{e4}", "at": "Sun, 06 Nov 1994 08:49:37 GMT"},
            "size_bytes": 1,
            "body_base64": "/w==",
        });
        assert_eq!(received, expected);
        // A message that never expires and was deleted.
        let mut headers = answer.headers.clone();
        let told = r#"{"SequenceNumber":7,"DeliveryCount":1,"TimeToLive":922337203685.4775,
            "EnqueuedTimeUtc":"Sun, 06 Nov 1994 08:49:37 GMT","State":"Active"}"#;
        let told = HeaderValue::from_str(&told.replace('\n', "")).unwrap();
        headers.insert("brokerproperties", told);
        let body = b"text".to_vec();
        let taken = Answer {
            status: 200,
            headers,
            body,
        };
        let taken = serde_json::to_value(Received::read(&taken).unwrap().view).unwrap();
        for (name, value) in [
            ("state", "active".into()),
            ("expires_at", Value::Null),
            ("body", "text".into()),
        ] {
            assert_eq!(taken.get(name), Some(&value), "{name}");
        }
        let nothing = Answer {
            headers: HeaderMap::new(),
            ..answer
        };
        assert!(Received::read(&nothing).is_err());
    }
}
