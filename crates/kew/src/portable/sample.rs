//! A record as a rule of a subscription sees it.

use std::time::UNIX_EPOCH;

use bytes::Bytes;
use kew_amqp::codec::{Raw, Value as Amqp};
use kew_bus_message::{Known, View, amqp_of, value_of};
use kew_filter::{OwnedValue, Value};
use serde_json::{Value as Json, json};

use super::value::{read, write};
use super::{Record, message_of};

/// A record with its message as it would be sent.
pub(crate) struct Sample {
    record: Record,
    message: Bytes,
}

impl Sample {
    /// The message of a record, or what is wrong with the record.
    pub(crate) fn new(record: Record) -> Result<Self, String> {
        let message = message_of(&record, UNIX_EPOCH)?;
        if let Err(error) = View::read(&message, Known::default()) {
            return Err(error.to_string());
        }
        Ok(Self { record, message })
    }

    /// What a rule sees. The times that a service said of the message count too.
    pub(crate) fn view(&self) -> View<'_> {
        let view = View::read(&self.message, known(&self.record));
        view.expect("it was read when the sample was made")
    }
}

/// The same as in a topic of Kew: there, rules are compared with a message that was never delivered and has no number yet.
fn known(record: &Record) -> Known<'_> {
    let fact = |name: &str| record.facts.get(name);
    let time = |name: &str| {
        let text = fact(name).and_then(Json::as_str)?;
        let time: jiff::Timestamp = text.parse().ok()?;
        Some(time.as_millisecond())
    };
    Known {
        enqueued_at_ms: time("enqueued_at"),
        expires_at_ms: time("expires_at"),
        delivery_count: Some(0),
        state: Some(0),
        dead_letter_source: fact("dead_letter_source").and_then(Json::as_str),
        ..Known::default()
    }
}

/// A value of AMQP as a rule sees it.
pub(crate) fn of_amqp(value: &Amqp) -> OwnedValue {
    let encoded = Raw::of(value);
    let value = value_of(encoded.as_bytes());
    value
        .expect("a value that was encoded is one value")
        .to_owned()
}

/// A value that a rule has computed, as a typed value. Spans of time and decimals have names of their own.
pub(crate) fn shown(value: Value<'_>) -> Json {
    match value {
        Value::Duration(ticks) => return json!({"timespan_ticks": ticks}),
        Value::Decimal(it) => return json!({"decimal": it.to_string()}),
        _ => {}
    }
    match (amqp_of(value), value.as_text()) {
        (Some(value), _) => write(&value),
        // A symbol that is not ASCII.
        (None, Some(text)) => write(&Amqp::String(text.into())),
        (None, None) => json!({"other": true}),
    }
}

/// A value on the command line: a typed value if it is an object of JSON.
pub(crate) fn typed(text: &str) -> Option<Result<OwnedValue, String>> {
    let json: Json = serde_json::from_str(text).ok()?;
    json.is_object().then(|| value_of_rule(&json))
}

/// A typed value as a rule has it: also a span of time.
pub(crate) fn value_of_rule(json: &Json) -> Result<OwnedValue, String> {
    if let Some(ticks) = json.get("timespan_ticks").and_then(Json::as_i64) {
        return Ok(OwnedValue::Plain(Value::Duration(ticks)));
    }
    read(json).map(|value| of_amqp(&value))
}

#[cfg(test)]
mod tests {
    use kew_filter::{Message as _, SystemProperty};

    use super::*;

    #[test]
    fn a_rule_sees_what_a_topic_would_show_it() {
        let facts = json!({
            "sequence_number": 7, "enqueued_sequence_number": 6, "state": "scheduled", "delivery_count": 2,
            "enqueued_at": "1970-01-01T00:00:01.500Z", "dead_letter_source": "d",
        });
        let record = json!({
            "version": 1, "service": "service-bus", "message_id": {"ulong": 5}, "correlation_id": "c", "subject": "s",
            "time_to_live_ms": 1000, "scheduled_at_ms": 9, "partition_key": "k", "facts": facts,
            "properties": {"Color": "red", "n": {"int": 5}, "list": {"list": []}},
            "annotations": {"x-opt-via-partition-key": "v"},
        });
        let record = Record::read(record.to_string().as_bytes()).unwrap();
        let sample = Sample::new(record).unwrap();
        let sample = sample.view();
        let text = Value::Text;
        for (property, expected) in [
            (SystemProperty::MessageId, text("5")),
            (SystemProperty::CorrelationId, text("c")),
            (SystemProperty::Label, text("s")),
            (SystemProperty::To, Value::Null),
            (SystemProperty::PartitionKey, text("k")),
            (SystemProperty::ViaPartitionKey, text("v")),
            (SystemProperty::DeadLetterSource, text("d")),
            (SystemProperty::TimeToLive, Value::Duration(10_000_000)),
            (SystemProperty::ScheduledEnqueueTimeUtc, Value::Timestamp(9)),
            (SystemProperty::EnqueuedTimeUtc, Value::Timestamp(1_500)),
            (SystemProperty::SequenceNumber, Value::Null),
            (SystemProperty::EnqueuedSequenceNumber, Value::Null),
            (SystemProperty::LockToken, Value::Null),
            (SystemProperty::LockedUntilUtc, Value::Null),
            (SystemProperty::DeliveryCount, Value::Int(0)),
            (SystemProperty::State, Value::Int(0)),
        ] {
            assert_eq!(sample.system(property), expected, "{property:?}");
        }
        assert_eq!(sample.user("color"), Some(text("red")));
        assert_eq!(sample.user("n"), Some(Value::Int(5)));
        assert_eq!(sample.user("list"), Some(Value::Other));
        assert_ne!(sample.system(SystemProperty::Size), Value::Null);
    }

    #[test]
    fn typed_values_are_read_and_shown() {
        for text in [
            r#"{"int":5}"#,
            r#"{"timestamp_ms":9}"#,
            r#"{"timespan_ticks":9}"#,
            r#"{"uuid":"00010203-0405-0607-0809-0a0b0c0d0e0f"}"#,
            r#"{"symbol":"s"}"#,
            r#"{"binary":"AAE="}"#,
        ] {
            let value = typed(text).unwrap().unwrap();
            assert_eq!(shown(value.as_value()).to_string(), text);
        }
        assert!(typed(r#"{"no":5}"#).unwrap().is_err());
        assert!(typed("5").is_none());
        // 75 × 10^-1, as .NET sends it.
        let decimal = ((6175u128 << 113) | 75).to_be_bytes();
        let value = of_amqp(&Amqp::Decimal128(decimal));
        assert_eq!(shown(value.as_value()), json!({"decimal": "75E-1"}));
    }
}
