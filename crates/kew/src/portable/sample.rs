//! A record as a rule of a subscription sees it.

use std::collections::BTreeMap;
use std::time::UNIX_EPOCH;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kew_amqp::codec::{Described, Descriptor, Symbol, Timestamp, Uuid, Value as Amqp};
use kew_filter::{Decimal, Message, OwnedValue, SystemProperty, Value, same_name};
use serde_json::{Value as Json, json};

use super::value::{read, write};
use super::{Record, message_of};

const TICKS_PER_MS: i64 = 10_000;

/// How .NET sends a span of time.
const TIMESPAN: &str = "com.microsoft:timespan";

const VIA_PARTITION_KEY: &str = "x-opt-via-partition-key";

/// The properties of a message.
pub(crate) struct Sample {
    user: Vec<(String, OwnedValue)>,
    system: BTreeMap<SystemProperty, OwnedValue>,
}

impl Sample {
    /// The message of a record, or what is wrong with the record. What a service said of it counts too.
    pub(crate) fn new(record: &Record) -> Result<Self, String> {
        let size = message_of(record, UNIX_EPOCH)?.len();
        let mut user = Vec::new();
        for (name, json) in &record.properties {
            let value = read(json).map_err(|error| format!("properties, {name:?}: {error}"))?;
            user.push((name.clone(), of_amqp(&value)));
        }
        let mut system: BTreeMap<_, _> = texts_of(record).into_iter().collect();
        system.extend(numbers_of(record));
        let size = i64::try_from(size).unwrap_or(i64::MAX);
        system.insert(SystemProperty::Size, plain(Value::Long(size)));
        Ok(Self { user, system })
    }
}

impl Message for Sample {
    fn user(&self, name: &str) -> Option<Value<'_>> {
        let exact = self.user.iter().find(|(it, _)| it == name);
        let found = exact.or_else(|| self.user.iter().find(|(it, _)| same_name(it, name)));
        found.map(|(_, value)| value.as_value())
    }

    fn system(&self, property: SystemProperty) -> Value<'_> {
        let found = self.system.get(&property);
        found.map_or(Value::Null, OwnedValue::as_value)
    }

    fn visit_user(&self, visit: &mut dyn FnMut(&str, Value<'_>)) {
        for (name, value) in &self.user {
            visit(name, value.as_value());
        }
    }
}

fn plain(value: Value<'static>) -> OwnedValue {
    OwnedValue::Plain(value)
}

fn texts_of(record: &Record) -> Vec<(SystemProperty, OwnedValue)> {
    use SystemProperty as It;
    let fact = |name: &str| record.facts.get(name).and_then(Json::as_str);
    let annotation = |name: &str| record.annotations.get(name).and_then(Json::as_str);
    let message_id = record.message_id.as_ref().and_then(text_of_id);
    let correlation_id = record.correlation_id.as_ref().and_then(text_of_id);
    let texts = [
        (It::MessageId, message_id.as_deref()),
        (It::CorrelationId, correlation_id.as_deref()),
        (It::To, record.to.as_deref()),
        (It::ReplyTo, record.reply_to.as_deref()),
        (It::Label, record.subject.as_deref()),
        (It::SessionId, record.session_id.as_deref()),
        (It::ReplyToSessionId, record.reply_to_session_id.as_deref()),
        (It::ContentType, record.content_type.as_deref()),
        (It::PartitionKey, record.partition_key.as_deref()),
        (It::ViaPartitionKey, annotation(VIA_PARTITION_KEY)),
        (It::DeadLetterSource, fact("dead_letter_source")),
    ];
    let texts = texts.into_iter();
    let set = texts.filter_map(|(property, text)| Some((property, OwnedValue::Text(text?.into()))));
    set.collect()
}

fn numbers_of(record: &Record) -> Vec<(SystemProperty, OwnedValue)> {
    use SystemProperty as It;
    let fact = |name: &str| record.facts.get(name);
    let long = |name: &str| fact(name).and_then(Json::as_i64).map(Value::Long);
    let time = |name: &str| {
        let text = fact(name).and_then(Json::as_str)?;
        let time: jiff::Timestamp = text.parse().ok()?;
        Some(Value::Timestamp(time.as_millisecond()))
    };
    let state = fact("state").and_then(Json::as_str).and_then(|state| {
        let states = ["active", "deferred", "scheduled"];
        let at = states.iter().position(|it| *it == state)?;
        i32::try_from(at).ok()
    });
    let life = record.time_to_live_ms.map(|ms| {
        let ms = i64::try_from(ms).unwrap_or(i64::MAX);
        Value::Duration(ms.saturating_mul(TICKS_PER_MS))
    });
    let deliveries = fact("delivery_count").and_then(Json::as_i64);
    let deliveries = deliveries.and_then(|count| i32::try_from(count).ok());
    let values = [
        (It::TimeToLive, life),
        (
            It::ScheduledEnqueueTimeUtc,
            record.scheduled_at_ms.map(Value::Timestamp),
        ),
        (It::EnqueuedTimeUtc, time("enqueued_at")),
        (It::ExpiresAtUtc, time("expires_at")),
        (It::SequenceNumber, long("sequence_number")),
        (It::EnqueuedSequenceNumber, long("enqueued_sequence_number")),
        (It::DeliveryCount, deliveries.map(Value::Int)),
        (It::State, state.map(Value::Int)),
    ];
    let values = values.into_iter();
    let set = values.filter_map(|(property, value)| Some((property, plain(value?))));
    set.collect()
}

/// An id of any type as the service shows it: as a text.
fn text_of_id(json: &Json) -> Option<String> {
    match read(json).ok()? {
        Amqp::String(text) => Some(text.as_str().to_owned()),
        Amqp::Ulong(number) => Some(number.to_string()),
        Amqp::Uuid(uuid) => Some(uuid.text()),
        Amqp::Binary(bytes) => Some(STANDARD.encode(bytes)),
        _ => None,
    }
}

/// A value of AMQP as a rule sees it.
pub(crate) fn of_amqp(value: &Amqp) -> OwnedValue {
    let decimal = |decimal: Option<Decimal>| decimal.map_or(Value::Other, Value::Decimal);
    plain(match value {
        Amqp::Null => Value::Null,
        Amqp::Boolean(it) => Value::Boolean(*it),
        Amqp::Ubyte(it) => Value::Ubyte(*it),
        Amqp::Ushort(it) => Value::Ushort(*it),
        Amqp::Uint(it) => Value::Uint(*it),
        Amqp::Ulong(it) => Value::Ulong(*it),
        Amqp::Byte(it) => Value::Byte(*it),
        Amqp::Short(it) => Value::Short(*it),
        Amqp::Int(it) => Value::Int(*it),
        Amqp::Long(it) => Value::Long(*it),
        Amqp::Float(it) => Value::Float(*it),
        Amqp::Double(it) => Value::Double(*it),
        Amqp::Decimal32(bytes) => decimal(Decimal::from_decimal32(*bytes)),
        Amqp::Decimal64(bytes) => decimal(Decimal::from_decimal64(*bytes)),
        Amqp::Decimal128(bytes) => decimal(Decimal::from_decimal128(*bytes)),
        Amqp::Char(it) => Value::Char(*it),
        Amqp::Timestamp(at) => Value::Timestamp(at.0),
        Amqp::Uuid(uuid) => Value::Uuid(uuid.0),
        Amqp::Binary(bytes) => return OwnedValue::Binary(bytes.as_ref().into()),
        Amqp::String(text) => return OwnedValue::Text(text.as_str().into()),
        Amqp::Symbol(text) => return OwnedValue::Symbol(text.as_str().into()),
        Amqp::Described(described) => timespan_of(described).map_or(Value::Other, Value::Duration),
        Amqp::List(_) | Amqp::Map(_) | Amqp::Array(_) => Value::Other,
    })
}

fn timespan_of(described: &Described) -> Option<i64> {
    match (&described.descriptor, described.value.value()) {
        (Descriptor::Symbol(name), Amqp::Long(ticks)) if name.as_str() == TIMESPAN => Some(ticks),
        (_, _) => None,
    }
}

/// A value that a rule has computed, as a typed value. Spans of time and decimals have names of their own.
pub(crate) fn shown(value: Value<'_>) -> Json {
    write(&match value {
        Value::Null => Amqp::Null,
        Value::Boolean(it) => Amqp::Boolean(it),
        Value::Byte(it) => Amqp::Byte(it),
        Value::Short(it) => Amqp::Short(it),
        Value::Int(it) => Amqp::Int(it),
        Value::Long(it) => Amqp::Long(it),
        Value::Ubyte(it) => Amqp::Ubyte(it),
        Value::Ushort(it) => Amqp::Ushort(it),
        Value::Uint(it) => Amqp::Uint(it),
        Value::Ulong(it) => Amqp::Ulong(it),
        Value::Float(it) => Amqp::Float(it),
        Value::Double(it) => Amqp::Double(it),
        Value::Char(it) => Amqp::Char(it),
        Value::Timestamp(ms) => Amqp::Timestamp(Timestamp(ms)),
        Value::Uuid(id) => Amqp::Uuid(Uuid(id)),
        Value::Binary(bytes) => Amqp::Binary(bytes.to_vec().into()),
        Value::Text(text) => Amqp::String(text.into()),
        Value::Symbol(text) => match Symbol::new(text) {
            Ok(symbol) => Amqp::Symbol(symbol),
            Err(_) => Amqp::String(text.into()),
        },
        Value::Duration(ticks) => return json!({"timespan_ticks": ticks}),
        Value::Decimal(it) => return json!({"decimal": it.to_string()}),
        Value::Other => return json!({"other": true}),
    })
}

/// A value on the command line: a typed value if it is an object of JSON.
pub(crate) fn typed(text: &str) -> Option<Result<OwnedValue, String>> {
    let json: Json = serde_json::from_str(text).ok()?;
    json.is_object().then(|| {
        if let Some(ticks) = json.get("timespan_ticks").and_then(Json::as_i64) {
            return Ok(plain(Value::Duration(ticks)));
        }
        read(&json).map(|value| of_amqp(&value))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(record: &Json) -> Sample {
        Sample::new(&Record::read(record.to_string().as_bytes()).unwrap()).unwrap()
    }

    #[test]
    fn a_rule_sees_all_that_a_record_says() {
        let facts = json!({
            "sequence_number": 7, "enqueued_sequence_number": 6, "state": "scheduled", "delivery_count": 2,
            "enqueued_at": "1970-01-01T00:00:01.500Z", "dead_letter_source": "d",
        });
        let sample = sample(&json!({
            "version": 1, "service": "service-bus", "message_id": {"ulong": 5}, "correlation_id": "c", "subject": "s",
            "time_to_live_ms": 1000, "scheduled_at_ms": 9, "partition_key": "k", "facts": facts,
            "properties": {"Color": "red", "n": {"int": 5}, "list": {"list": []}},
            "annotations": {"x-opt-via-partition-key": "v"},
        }));
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
            (SystemProperty::SequenceNumber, Value::Long(7)),
            (SystemProperty::EnqueuedSequenceNumber, Value::Long(6)),
            (SystemProperty::DeliveryCount, Value::Int(2)),
            (SystemProperty::State, Value::Int(2)),
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
