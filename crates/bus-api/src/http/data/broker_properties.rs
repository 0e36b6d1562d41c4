//! The service's own properties of a message, as JSON: in the header `BrokerProperties` and in
//! batches.
//!
//! Source: Service Bus, REST, *Message headers and properties*. Other names are ignored, as
//! documented there, and so are those that only the service writes.

use kew_amqp::codec::{Uuid, hex};
use kew_amqp::message::MessageId;
use kew_engine::Timestamp;
use kew_engine::bus::BusMessageState;
use serde::{Deserialize, Deserializer, Serialize};

use super::super::answers::HttpError;
use super::super::answers::Shown;
use super::super::answers::times::{parse, rfc1123};

/// The time to live that the service shows for a message that never expires, in seconds.
const FOR_EVER_S: f64 = 922_337_203_685.477_5;

/// The properties that a sender may set.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(super) struct Given {
    #[serde(deserialize_with = "text")]
    pub(super) correlation_id: Option<String>,
    #[serde(deserialize_with = "text")]
    pub(super) label: Option<String>,
    #[serde(deserialize_with = "text")]
    pub(super) message_id: Option<String>,
    #[serde(deserialize_with = "text")]
    pub(super) partition_key: Option<String>,
    #[serde(deserialize_with = "text")]
    pub(super) via_partition_key: Option<String>,
    #[serde(deserialize_with = "text")]
    pub(super) reply_to: Option<String>,
    #[serde(deserialize_with = "text")]
    pub(super) reply_to_session_id: Option<String>,
    #[serde(deserialize_with = "text")]
    pub(super) session_id: Option<String>,
    #[serde(deserialize_with = "text")]
    pub(super) to: Option<String>,
    #[serde(deserialize_with = "text")]
    pub(super) content_type: Option<String>,
    #[serde(deserialize_with = "text")]
    scheduled_enqueue_time_utc: Option<String>,
    #[serde(deserialize_with = "text")]
    time_to_live: Option<String>,
    #[serde(deserialize_with = "text")]
    time_to_live_time_span: Option<String>,
}

/// A string, or a number as a string: some clients write ids without quotes.
fn text<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    use serde::de::Error as _;
    match serde_json::Value::deserialize(from)? {
        serde_json::Value::Null => Ok(None),
        serde_json::Value::String(text) => Ok(Some(text)),
        serde_json::Value::Number(number) => Ok(Some(number.to_string())),
        _ => Err(D::Error::custom("expected a string or a number")),
    }
}

impl Given {
    pub(super) fn read(json: &str) -> Result<Self, HttpError> {
        serde_json::from_str(json)
            .map_err(|error| HttpError::bad_request(format!("BrokerProperties: {error}")))
    }

    /// When the message becomes ready, if not at once.
    pub(super) fn scheduled_at(&self) -> Result<Option<Timestamp>, HttpError> {
        let Some(text) = self.scheduled_enqueue_time_utc.as_deref() else {
            return Ok(None);
        };
        let wrong = "ScheduledEnqueueTimeUtc must be a date such as Sun, 06 Nov 1994 08:49:37 GMT";
        let at = parse(text).ok_or_else(|| HttpError::bad_request(wrong))?;
        Ok(Some(at))
    }

    /// The message's own time to live, in milliseconds, if it has one.
    pub(super) fn time_to_live_ms(&self) -> Result<Option<u64>, HttpError> {
        let ms = match (&self.time_to_live, &self.time_to_live_time_span) {
            (Some(seconds), _) => seconds_ms(seconds),
            (None, Some(span)) => span_ms(span),
            (None, None) => return Ok(None),
        };
        let wrong = "TimeToLive must be a number of seconds above 0, and TimeToLiveTimeSpan a time such \
                     as 0.00:00:40";
        let ms = ms.filter(|ms| *ms > 0);
        ms.map(Some).ok_or_else(|| HttpError::bad_request(wrong))
    }

    /// Refuses contradictions.
    pub(super) fn check(&self) -> Result<(), HttpError> {
        match (&self.session_id, &self.partition_key) {
            (Some(session), Some(partition)) if session != partition => {
                Err(HttpError::bad_request(
                    "PartitionKey must be the same as SessionId if both are set",
                ))
            }
            _ => Ok(()),
        }
    }
}

fn seconds_ms(text: &str) -> Option<u64> {
    let seconds: f64 = text.trim().parse().ok()?;
    if !seconds.is_finite() || seconds < 0.0 {
        return None;
    }
    let ms = (seconds * 1000.0).round();
    if ms >= 9.0e15 {
        return Some(u64::MAX);
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it is whole, not negative, and far below the largest"
    )]
    Some(ms as u64)
}

/// `[days.]hours:minutes:seconds[.fraction]`, as .NET writes a span of time.
fn span_ms(text: &str) -> Option<u64> {
    let mut parts = text.trim().split(':');
    let (hours, minutes, seconds) = (parts.next()?, parts.next()?, parts.next()?);
    if parts.next().is_some() {
        return None;
    }
    let (days, hours) = hours.split_once('.').unwrap_or(("0", hours));
    let whole = |part: &str, limit: u64| part.parse().ok().filter(|it: &u64| *it < limit);
    let days: u64 = whole(days, 100_000_000)?;
    let minutes = (days * 24 + whole(hours, 24)?) * 60 + whole(minutes, 60)?;
    let ms = seconds_ms(seconds).filter(|ms| *ms < 60_000)?;
    Some(minutes * 60_000 + ms)
}

/// The properties that a receiver gets.
#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Told {
    #[serde(skip_serializing_if = "Option::is_none")]
    correlation_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dead_letter_source: Option<String>,
    /// The first delivery is 1.
    delivery_count: u64,
    enqueued_sequence_number: u64,
    enqueued_time_utc: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    label: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lock_token: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    locked_until_utc: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    partition_key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reply_to: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reply_to_session_id: Option<String>,
    sequence_number: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    session_id: Option<String>,
    state: &'static str,
    /// In seconds.
    time_to_live: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    to: Option<String>,
}

impl Told {
    pub(super) fn of(shown: &Shown, state: BusMessageState) -> Self {
        let (facts, properties) = (&shown.facts, &shown.properties);
        let text = |text: &Option<kew_amqp::codec::Text>| text.as_ref().map(ToString::to_string);
        Self {
            correlation_id: properties.correlation_id.as_ref().map(id_text),
            dead_letter_source: shown.dead_letter_source(),
            delivery_count: u64::from(facts.delivery_count) + 1,
            enqueued_sequence_number: facts.first_sequence_number,
            enqueued_time_utc: rfc1123(facts.enqueued_at),
            label: text(&properties.subject),
            lock_token: facts.lock.map(|lock| Uuid(*lock.as_bytes()).text()),
            locked_until_utc: facts.locked_until.map(rfc1123),
            message_id: properties.message_id.as_ref().map(id_text),
            partition_key: shown.partition_key(),
            reply_to: text(&properties.reply_to),
            reply_to_session_id: text(&properties.reply_to_group_id),
            sequence_number: facts.sequence_number,
            session_id: text(&properties.group_id),
            state: match state {
                BusMessageState::Ready | BusMessageState::Locked { deferred: false } => "Active",
                BusMessageState::Deferred | BusMessageState::Locked { deferred: true } => {
                    "Deferred"
                }
                BusMessageState::Scheduled => "Scheduled",
            },
            time_to_live: lives_s(facts.enqueued_at, facts.expires_at),
            to: text(&properties.to),
        }
    }
}

fn lives_s(from: Timestamp, until: Timestamp) -> f64 {
    if until == Timestamp::NEVER {
        return FOR_EVER_S;
    }
    let ms = until.as_ms().saturating_sub(from.as_ms());
    #[expect(
        clippy::cast_precision_loss,
        reason = "the error of a double is less than a millisecond in 285,000 years"
    )]
    let ms = ms as f64;
    (ms / 1000.0).min(FOR_EVER_S)
}

/// An id of any type as text.
pub(in super::super) fn id_text(id: &MessageId) -> String {
    match id {
        MessageId::String(text) => text.to_string(),
        MessageId::Ulong(number) => number.to_string(),
        MessageId::Uuid(uuid) => uuid.text(),
        MessageId::Binary(bytes) => hex(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(json: &str) -> Given {
        Given::read(json).unwrap()
    }

    #[test]
    fn times_to_live_have_two_forms() {
        for (json, ms) in [
            (r#"{"TimeToLive": 90}"#, Some(90_000)),
            (r#"{"TimeToLive": "1.5"}"#, Some(1_500)),
            (r#"{"TimeToLiveTimeSpan": "0.00:00:40"}"#, Some(40_000)),
            (r#"{"TimeToLiveTimeSpan": "01:02:03.5"}"#, Some(3_723_500)),
            (
                r#"{"TimeToLive": 922337203685.4775}"#,
                Some(922_337_203_685_478),
            ),
            (r#"{"TimeToLive": null, "Unknown": [1]}"#, None),
        ] {
            assert_eq!(given(json).time_to_live_ms().unwrap(), ms, "{json}");
        }
        for json in [
            r#"{"TimeToLive": 0}"#,
            r#"{"TimeToLive": -1}"#,
            r#"{"TimeToLive": "NaN"}"#,
            r#"{"TimeToLiveTimeSpan": "40"}"#,
            r#"{"TimeToLiveTimeSpan": "25:00:00"}"#,
            r#"{"TimeToLiveTimeSpan": "1:1:1:1"}"#,
        ] {
            assert!(given(json).time_to_live_ms().is_err(), "{json}");
        }
    }

    #[test]
    fn invalid_json_and_contradictions_are_refused() {
        assert!(Given::read("{").is_err());
        assert!(Given::read(r#"{"MessageId": {}}"#).is_err());
        assert_eq!(
            given(r#"{"MessageId": 7}"#).message_id.as_deref(),
            Some("7")
        );
        assert!(
            given(r#"{"SessionId": "a", "PartitionKey": "b"}"#)
                .check()
                .is_err()
        );
        assert!(
            given(r#"{"SessionId": "a", "PartitionKey": "a"}"#)
                .check()
                .is_ok()
        );
        let at = r#"{"ScheduledEnqueueTimeUtc": " Sun, 06 Nov 1994 08:49:37 GMT"}"#;
        let at = given(at).scheduled_at().unwrap();
        assert_eq!(at, Some(Timestamp::from_ms(784_111_777_000)));
        assert!(
            given(r#"{"ScheduledEnqueueTimeUtc": "soon"}"#)
                .scheduled_at()
                .is_err()
        );
    }
}
