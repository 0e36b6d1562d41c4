//! Messages of AMQP, as Service Bus has them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::{Bytes, BytesMut};
use kew_amqp::codec::{
    Encode as _, Map as AmqpMap, Raw, Symbol, Timestamp, Value, write_described,
};
use kew_amqp::message::{
    BodyKind, Header, Message, MessageId, Properties, write_application_properties, write_data,
    write_head, write_value,
};
use kew_bus_message::time_to_live_ms;
use serde_json::{Map, Value as Json};

use super::value::{read, write, write_items};
use super::{Body, Record, Section, Service};

/// Annotations that the service sets. It ignores or refuses them from a sender.
const OF_SERVICE: [&str; 8] = [
    "x-opt-deadletter-source",
    "x-opt-enqueue-sequence-number",
    "x-opt-enqueued-time",
    "x-opt-locked-until",
    "x-opt-message-state",
    "x-opt-partition-id",
    "x-opt-sequence-number",
    "x-opt-lock-token",
];

const PARTITION_KEY: &str = "x-opt-partition-key";
const SCHEDULED_AT: &str = "x-opt-scheduled-enqueue-time";

const SEQUENCE: u64 = 0x76;
const FOOTER: u64 = 0x78;

/// The record of a message; `facts` is what the service said of it.
pub(crate) fn record_of(
    queue: &str,
    facts: Map<String, Json>,
    message: &Message,
) -> Result<Record, String> {
    let header = message.header().map_err(|error| error.to_string())?;
    let properties = message.properties().map_err(|error| error.to_string())?;
    let annotations = message.message_annotations();
    let annotation = |name: &str| annotations.get(name).map(|it| it.value());
    let text = |text: &Option<kew_amqp::codec::Text>| text.as_ref().map(ToString::to_string);
    let id = |id: &Option<MessageId>| id.as_ref().map(|id| write(&value_of_id(id)));
    Ok(Record {
        queue: Some(queue.to_owned()),
        facts,
        message_id: id(&properties.message_id),
        session_id: text(&properties.group_id),
        correlation_id: id(&properties.correlation_id),
        subject: text(&properties.subject),
        content_type: properties.content_type.as_ref().map(ToString::to_string),
        content_encoding: properties
            .content_encoding
            .as_ref()
            .map(ToString::to_string),
        to: text(&properties.to),
        reply_to: text(&properties.reply_to),
        reply_to_session_id: text(&properties.reply_to_group_id),
        user_id: properties.user_id.as_ref().map(|id| STANDARD.encode(id)),
        group_sequence: properties.group_sequence,
        created_at_ms: properties.creation_time.map(|at| at.0),
        partition_key: annotation(PARTITION_KEY).and_then(|key| key.as_str().map(str::to_owned)),
        scheduled_at_ms: match annotation(SCHEDULED_AT) {
            Some(Value::Timestamp(at)) => Some(at.0),
            Some(_) | None => None,
        },
        time_to_live_ms: life_of(&header, &properties),
        durable: Some(header.durable),
        priority: header.priority,
        properties: members(&message.application_properties(), |_| true),
        annotations: members(&annotations, is_of_sender),
        footer: footer_of(message)?,
        body: body_of(message),
        ..Record::empty(Service::ServiceBus)
    })
}

fn value_of_id(id: &MessageId) -> Value {
    match id {
        MessageId::Ulong(number) => Value::Ulong(*number),
        MessageId::Uuid(uuid) => Value::Uuid(*uuid),
        MessageId::Binary(bytes) => Value::Binary(bytes.clone()),
        MessageId::String(text) => Value::String(text.clone()),
    }
}

fn life_of(header: &Header, properties: &Properties) -> Option<u64> {
    let [from, until] = [properties.creation_time, properties.absolute_expiry_time];
    time_to_live_ms(header.ttl, from.map(|at| at.0), until.map(|at| at.0))
}

fn is_of_sender(name: &str) -> bool {
    !OF_SERVICE.contains(&name) && name != PARTITION_KEY && name != SCHEDULED_AT
}

/// The entries whose names are texts, which all of a message's maps have.
fn members(map: &AmqpMap, is_wanted: impl Fn(&str) -> bool) -> Map<String, Json> {
    let pairs = map.iter().filter_map(|(name, value)| {
        let name = name.value();
        let name = name.as_str().filter(|name| is_wanted(name))?;
        Some((name.to_owned(), write(&value.value())))
    });
    pairs.collect()
}

fn footer_of(message: &Message) -> Result<Map<String, Json>, String> {
    let footer = message.footer();
    if footer.is_empty() {
        return Ok(Map::new());
    }
    let footer = Raw::new(footer).map_err(|error| error.to_string())?;
    Ok(match footer.value() {
        Value::Described(described) => match described.value.value() {
            Value::Map(map) => members(&map, |_| true),
            _ => Map::new(),
        },
        _ => Map::new(),
    })
}

fn body_of(message: &Message) -> Option<Body> {
    let mut values = message.body_values().map(|raw| raw.value());
    match message.body_kind() {
        BodyKind::Empty => None,
        BodyKind::Value => Some(Body::Value(write(&values.next()?))),
        BodyKind::Data => {
            let mut sections: Vec<Section> = values.filter_map(section_of).collect();
            match sections.pop() {
                Some(last) if !sections.is_empty() => {
                    sections.push(last);
                    Some(Body::Sections(sections))
                }
                Some(Section::Text(text)) => Some(Body::Text(text)),
                Some(Section::Base64(text)) => Some(Body::Base64(text)),
                None => None,
            }
        }
        BodyKind::Sequence => {
            let lists = values.filter_map(|value| match value {
                Value::List(list) => Some(list.iter().map(|item| write(&item.value())).collect()),
                _ => None,
            });
            Some(Body::Sequences(lists.collect()))
        }
    }
}

fn section_of(value: Value) -> Option<Section> {
    let Value::Binary(bytes) = value else {
        return None;
    };
    Some(Section::of(&bytes))
}

/// The message of a record, as it is sent at this time; or what is wrong with the record.
pub(crate) fn message_of(record: &Record, now: SystemTime) -> Result<Bytes, String> {
    let text = |text: &Option<String>| text.as_deref().map(Into::into);
    let mut properties = Properties {
        message_id: id_of("message_id", record.message_id.as_ref())?,
        user_id: match &record.user_id {
            Some(text) => Some(bytes_of("user_id", text)?),
            None => None,
        },
        to: text(&record.to),
        subject: text(&record.subject),
        reply_to: text(&record.reply_to),
        correlation_id: id_of("correlation_id", record.correlation_id.as_ref())?,
        content_type: symbol_of("content_type", record.content_type.as_deref())?,
        content_encoding: symbol_of("content_encoding", record.content_encoding.as_deref())?,
        absolute_expiry_time: None,
        creation_time: record.created_at_ms.map(Timestamp),
        group_id: text(&record.session_id),
        group_sequence: record.group_sequence,
        reply_to_group_id: text(&record.reply_to_session_id),
    };
    let header = Header {
        durable: record.durable.unwrap_or(true),
        priority: record.priority,
        ttl: record
            .time_to_live_ms
            .map(|ms| header_life(ms, now, &mut properties)),
        ..Header::default()
    };
    let mut out = BytesMut::new();
    write_head(
        &mut out,
        &header,
        &AmqpMap::default(),
        &annotations_of(record)?,
    );
    properties.encode(&mut out);
    let mut pairs = Vec::new();
    for (name, json) in &record.properties {
        pairs.push((name.as_str(), value_in("properties", name, json)?));
    }
    let application = AmqpMap::build(|map| {
        for (name, value) in &pairs {
            map.entry(*name, value);
        }
    });
    write_application_properties(&mut out, &application);
    if let Some(body) = &record.body {
        write_body(&mut out, body)?;
    }
    if !record.footer.is_empty() {
        let footer = symbols("footer", &record.footer, &[])?;
        write_described(&mut out, FOOTER, |out| footer.encode(out));
    }
    Ok(out.freeze())
}

/// The life as the header has it. One that is too long for it is also said as two times.
fn header_life(ms: u64, now: SystemTime, properties: &mut Properties) -> u32 {
    u32::try_from(ms)
        .ok()
        .filter(|&ms| ms < u32::MAX)
        .unwrap_or_else(|| {
            let now = now.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
            let now_ms = i64::try_from(now.as_millis()).unwrap_or(i64::MAX);
            let until_ms = i64::try_from(ms).unwrap_or(i64::MAX).saturating_add(now_ms);
            properties.creation_time = Some(Timestamp(now_ms));
            properties.absolute_expiry_time = Some(Timestamp(until_ms));
            u32::MAX
        })
}

fn annotations_of(record: &Record) -> Result<AmqpMap, String> {
    let mut own = Vec::new();
    if let Some(key) = &record.partition_key {
        own.push((PARTITION_KEY, Value::String(key.as_str().into())));
    }
    if let Some(ms) = record.scheduled_at_ms {
        own.push((SCHEDULED_AT, Value::Timestamp(Timestamp(ms))));
    }
    symbols("annotations", &record.annotations, &own)
}

/// A map whose keys are symbols.
fn symbols(
    place: &str,
    members: &Map<String, Json>,
    others: &[(&str, Value)],
) -> Result<AmqpMap, String> {
    let mut pairs = Vec::new();
    let symbol = |name: &str| {
        Symbol::new(name).map_err(|_| format!("{place}: the name {name:?} is not ASCII"))
    };
    for (name, value) in others {
        pairs.push((symbol(name)?, value.clone()));
    }
    for (name, json) in members {
        pairs.push((symbol(name)?, value_in(place, name, json)?));
    }
    Ok(AmqpMap::build(|map| {
        for (name, value) in &pairs {
            map.entry(name, value);
        }
    }))
}

fn value_in(place: &str, name: &str, json: &Json) -> Result<Value, String> {
    read(json).map_err(|error| format!("{place}, {name:?}: {error}"))
}

fn id_of(place: &str, json: Option<&Json>) -> Result<Option<MessageId>, String> {
    let Some(json) = json else {
        return Ok(None);
    };
    Ok(Some(
        match read(json).map_err(|error| format!("{place}: {error}"))? {
            Value::String(text) => MessageId::String(text),
            Value::Ulong(number) => MessageId::Ulong(number),
            Value::Uuid(uuid) => MessageId::Uuid(uuid),
            Value::Binary(bytes) => MessageId::Binary(bytes),
            _ => {
                return Err(format!(
                    "{place} is a text, or one of ulong, uuid and binary"
                ));
            }
        },
    ))
}

fn symbol_of(place: &str, text: Option<&str>) -> Result<Option<Symbol>, String> {
    let symbol = text.map(Symbol::new).transpose();
    symbol.map_err(|_| format!("{place} is not ASCII"))
}

fn bytes_of(place: &str, text: &str) -> Result<Bytes, String> {
    let bytes = STANDARD.decode(text);
    bytes
        .map(Into::into)
        .map_err(|error| format!("{place} is not Base64: {error}"))
}

fn write_body(out: &mut BytesMut, body: &Body) -> Result<(), String> {
    match body {
        Body::Text(text) => write_data(out, text.as_bytes()),
        Body::Base64(text) => write_data(out, &bytes_of("body", text)?),
        Body::Sections(sections) => {
            for section in sections {
                match section {
                    Section::Text(text) => write_data(out, text.as_bytes()),
                    Section::Base64(text) => write_data(out, &bytes_of("body", text)?),
                }
            }
        }
        Body::Value(json) => {
            let value = read(json).map_err(|error| format!("body: {error}"))?;
            write_value(out, &value);
        }
        Body::Sequences(lists) => {
            for list in lists {
                let items: Result<Vec<Value>, String> = list.iter().map(read).collect();
                let items = items.map_err(|error| format!("body: {error}"))?;
                write_described(out, SEQUENCE, |out| write_items(out, &items));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const NOW: SystemTime = UNIX_EPOCH;

    /// The message of the record of a message.
    fn again(bytes: &Bytes) -> Bytes {
        let message = Message::scan(bytes.clone()).unwrap();
        let record = record_of("q", Map::new(), &message).unwrap();
        let line = serde_json::to_vec(&record).unwrap();
        message_of(&Record::read(&line).unwrap(), NOW).unwrap()
    }

    fn message_with(body: impl FnOnce(&mut BytesMut)) -> Bytes {
        let header = Header {
            durable: true,
            priority: Some(7),
            ttl: Some(5_000),
            ..Header::default()
        };
        let key = Symbol::from_static;
        let annotations = AmqpMap::build(|map| {
            map.entry(&key(PARTITION_KEY), "p");
            map.entry(&key(SCHEDULED_AT), &Timestamp(7));
            map.entry(&key("x-opt-my-own"), &Value::Ubyte(1));
        });
        let properties = Properties {
            message_id: Some(MessageId::Ulong(u64::MAX)),
            user_id: Some(Bytes::from_static(b"\xff")),
            to: Some("to".into()),
            subject: Some("s".into()),
            reply_to: Some("r".into()),
            correlation_id: Some(MessageId::Binary(Bytes::from_static(b"c"))),
            content_type: Some(key("text/plain")),
            content_encoding: Some(key("gzip")),
            absolute_expiry_time: None,
            creation_time: Some(Timestamp(9)),
            group_id: Some("g".into()),
            group_sequence: Some(3),
            reply_to_group_id: Some("rg".into()),
        };
        let mut out = BytesMut::new();
        write_head(&mut out, &header, &AmqpMap::default(), &annotations);
        properties.encode(&mut out);
        let application = AmqpMap::build(|map| {
            map.entry("count", &Value::Long(7));
            map.entry("when", &Value::Timestamp(Timestamp(1)));
        });
        write_application_properties(&mut out, &application);
        body(&mut out);
        let footer = AmqpMap::build(|map| map.entry(&key("f"), &true));
        write_described(&mut out, FOOTER, |out| footer.encode(out));
        out.freeze()
    }

    #[test]
    fn a_message_comes_back_byte_by_byte() {
        let null_at_the_end = [Value::Int(1), Value::Null];
        type Put = Box<dyn FnOnce(&mut BytesMut)>;
        let bodies: [Put; 7] = [
            Box::new(|_| {}),
            Box::new(|out| write_data(out, b"text")),
            Box::new(|out| write_data(out, b"\xff\x00")),
            Box::new(|out| {
                write_data(out, b"text");
                write_data(out, b"\xff");
            }),
            Box::new(|out| write_value(out, &Value::Double(0.5))),
            Box::new(|out| write_value(out, &Value::String("text".into()))),
            Box::new(move |out| {
                write_described(out, SEQUENCE, |out| write_items(out, &null_at_the_end));
                write_described(out, SEQUENCE, |out| write_items(out, &[]));
            }),
        ];
        for body in bodies {
            let bytes = message_with(body);
            assert_eq!(again(&bytes), bytes);
        }
    }

    #[test]
    fn what_the_service_set_stays_behind() {
        let annotations = AmqpMap::build(|map| {
            for name in OF_SERVICE {
                map.entry(&Symbol::new(name).unwrap(), &Value::Long(1));
            }
        });
        let mut out = BytesMut::new();
        let header = Header {
            delivery_count: 3,
            ..Header::default()
        };
        write_head(&mut out, &header, &AmqpMap::default(), &annotations);
        write_data(&mut out, b"x");
        let again = Message::scan(again(&out.freeze())).unwrap();
        assert!(again.message_annotations().is_empty());
        assert_eq!(again.header().unwrap().delivery_count, 0);
    }

    /// The exceptions of `docs/message-format.md`.
    #[test]
    fn some_parts_that_are_rare_stay_behind() {
        let key = Symbol::from_static;
        let annotations = AmqpMap::build(|map| {
            map.entry(&key(PARTITION_KEY), &Value::Int(1));
            map.entry(&key(SCHEDULED_AT), &Value::Long(7));
            map.entry(&Value::Ulong(9), &Value::Int(1));
        });
        let of_delivery = AmqpMap::build(|map| map.entry(&key("x-opt-mine"), &true));
        let properties = Properties {
            absolute_expiry_time: Some(Timestamp(9)),
            ..Properties::default()
        };
        let mut out = BytesMut::new();
        write_head(&mut out, &Header::default(), &of_delivery, &annotations);
        properties.encode(&mut out);
        write_data(&mut out, b"x");
        let again = Message::scan(again(&out.freeze())).unwrap();
        assert!(again.message_annotations().is_empty() && again.delivery_annotations().is_empty());
        assert_eq!(again.properties().unwrap().absolute_expiry_time, None);
    }

    #[test]
    fn a_long_life_begins_anew() {
        let mut record = Record::empty(Service::ServiceBus);
        record.time_to_live_ms = Some(u64::from(u32::MAX) + 5);
        let message = Message::scan(message_of(&record, NOW).unwrap()).unwrap();
        let properties = message.properties().unwrap();
        assert_eq!(properties.creation_time, Some(Timestamp(0)));
        let read = record_of("q", Map::new(), &message).unwrap();
        assert_eq!(read.time_to_live_ms, record.time_to_live_ms);
    }

    #[test]
    fn errors_name_the_member() {
        for (member, named) in [
            (json!({"message_id": true}), "message_id"),
            (json!({"message_id": 7}), "message_id"),
            (json!({"correlation_id": {"long": 1}}), "correlation_id"),
            (json!({"user_id": "?"}), "user_id"),
            (json!({"content_type": "é"}), "content_type"),
            (json!({"properties": {"a": 1}}), "properties, \"a\""),
            (json!({"annotations": {"é": true}}), "annotations"),
            (json!({"footer": {"a": []}}), "footer"),
            (json!({"body": {"base64": "?"}}), "body"),
            (json!({"body": {"value": 1}}), "body"),
            (json!({"body": {"sequences": [[1]]}}), "body"),
        ] {
            let mut line = member.clone();
            line["version"] = 1.into();
            line["service"] = "service-bus".into();
            let record = Record::read(line.to_string().as_bytes()).unwrap();
            let error = message_of(&record, NOW).unwrap_err();
            assert!(error.contains(named), "{line}: {error}");
        }
    }
}
