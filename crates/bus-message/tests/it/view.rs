//! What a rule sees of a message, and what is no message.

use bytes::{BufMut as _, Bytes, BytesMut};
use kew_amqp::codec::{
    DecodeError, Described, Descriptor, Encode as _, Map, Raw, Symbol, Timestamp, Uuid,
    Value as Amqp, write_list,
};
use kew_amqp::message::{
    Header, Message as Encoded, MessageId, Properties, write_application_properties, write_data,
    write_head,
};
use kew_bus_message::{Known, Malformed, View, time_to_live_ms};
use kew_filter::{Decimal, Message as _, SystemProperty as It, Value};

pub(crate) fn view(message: &Bytes) -> Result<View<'_>, Malformed> {
    View::read(message, Known::default())
}

fn timespan(ticks: i64) -> Amqp {
    Amqp::Described(Described {
        descriptor: Descriptor::Symbol(Symbol::from_static("com.microsoft:timespan")),
        value: Raw::of(&Amqp::Long(ticks)),
    })
}

/// A message with these application properties.
pub(crate) fn with(properties: &[(&str, Amqp)]) -> Bytes {
    let map = Map::build(|map| {
        for (name, value) in properties {
            map.entry(*name, value);
        }
    });
    let mut out = BytesMut::new();
    write_application_properties(&mut out, &map);
    write_data(&mut out, b"body");
    out.freeze()
}

fn full() -> Bytes {
    let key = Symbol::from_static;
    let header = Header {
        ttl: Some(60_000),
        ..Header::default()
    };
    let annotations = Map::build(|map| {
        map.entry(&key("x-opt-partition-key"), "pk");
        map.entry(&key("x-opt-via-partition-key"), "vpk");
        map.entry(&key("x-opt-scheduled-enqueue-time"), &Timestamp(7));
        map.entry(&key("x-opt-other"), &1);
    });
    let properties = Properties {
        message_id: Some(MessageId::String("m".into())),
        user_id: Some(Bytes::from_static(b"u")),
        to: Some("t".into()),
        subject: Some("l".into()),
        reply_to: Some("r".into()),
        correlation_id: Some(MessageId::String("c".into())),
        content_type: Some(key("text/plain")),
        content_encoding: Some(key("gzip")),
        absolute_expiry_time: Some(Timestamp(5)),
        creation_time: Some(Timestamp(4)),
        group_id: Some("s".into()),
        group_sequence: Some(3),
        reply_to_group_id: Some("rs".into()),
    };
    let mut out = BytesMut::new();
    write_head(&mut out, &header, &Map::default(), &annotations);
    properties.encode(&mut out);
    out.extend_from_slice(&with(&[
        ("color", "red".into_value()),
        ("Size", Amqp::Int(5)),
    ]));
    out.freeze()
}

trait IntoValue {
    fn into_value(self) -> Amqp;
}

impl IntoValue for &str {
    fn into_value(self) -> Amqp {
        Amqp::String(self.into())
    }
}

#[test]
fn a_rule_sees_all_properties() {
    let message = full();
    let known = Known {
        sequence_number: Some(7),
        enqueued_sequence_number: Some(6),
        enqueued_at_ms: Some(10),
        expires_at_ms: Some(11),
        locked_until_ms: Some(12),
        delivery_count: Some(2),
        state: Some(1),
        dead_letter_source: Some("d"),
        lock_token: Some([9; 16]),
    };
    let view = View::read(&message, known).unwrap();
    let size = i64::try_from(message.len()).unwrap();
    let text = Value::Text;
    let expected = [
        (It::MessageId, text("m")),
        (It::CorrelationId, text("c")),
        (It::To, text("t")),
        (It::ReplyTo, text("r")),
        (It::Label, text("l")),
        (It::SessionId, text("s")),
        (It::ReplyToSessionId, text("rs")),
        (It::ContentType, text("text/plain")),
        (It::TimeToLive, Value::Duration(600_000_000)),
        (It::ScheduledEnqueueTimeUtc, Value::Timestamp(7)),
        (It::PartitionKey, text("pk")),
        (It::ViaPartitionKey, text("vpk")),
        (It::EnqueuedTimeUtc, Value::Timestamp(10)),
        (It::ExpiresAtUtc, Value::Timestamp(11)),
        (It::SequenceNumber, Value::Long(7)),
        (It::EnqueuedSequenceNumber, Value::Long(6)),
        (It::DeliveryCount, Value::Int(2)),
        (It::DeadLetterSource, text("d")),
        (It::Size, Value::Long(size)),
        (It::State, Value::Int(1)),
        (It::LockToken, Value::Uuid([9; 16])),
        (It::LockedUntilUtc, Value::Timestamp(12)),
    ];
    assert_eq!(expected.map(|(it, _)| it), It::ALL);
    for (property, value) in expected {
        assert_eq!(view.system(property), value, "{property:?}");
    }
    let mut seen = Vec::new();
    view.visit_user(&mut |name, value| seen.push(format!("{name} {value:?}")));
    assert_eq!(seen, ["color Text(\"red\")", "Size Int(5)"]);
    assert_eq!(
        (view.user("size"), view.user("x")),
        (Some(Value::Int(5)), None)
    );
}

#[test]
fn what_a_message_does_not_have_is_null() {
    for message in [Bytes::new(), with(&[])] {
        let view = view(&message).unwrap();
        for property in It::ALL {
            let expected = match property {
                It::Size => Value::Long(i64::try_from(message.len()).unwrap()),
                _ => Value::Null,
            };
            assert_eq!(view.system(*property), expected, "{property:?}");
        }
        assert_eq!((view.user("a"), view.user_count()), (None, 0));
    }
}

#[test]
fn values_have_the_types_that_they_arrive_with() {
    let decimal = ((6175u128 << 113) | 75).to_be_bytes();
    let list = Raw::of(&Map::default());
    let other = Amqp::Described(Described {
        descriptor: Descriptor::Code(1),
        value: list,
    });
    let long = "x".repeat(300);
    let values = [
        (Amqp::Null, Value::Null),
        (Amqp::Boolean(true), Value::Boolean(true)),
        (Amqp::Boolean(false), Value::Boolean(false)),
        (Amqp::Ubyte(200), Value::Ubyte(200)),
        (Amqp::Ushort(60_000), Value::Ushort(60_000)),
        (Amqp::Uint(0), Value::Uint(0)),
        (Amqp::Uint(7), Value::Uint(7)),
        (Amqp::Uint(u32::MAX), Value::Uint(u32::MAX)),
        (Amqp::Ulong(0), Value::Ulong(0)),
        (Amqp::Ulong(200), Value::Ulong(200)),
        (Amqp::Ulong(u64::MAX), Value::Ulong(u64::MAX)),
        (Amqp::Byte(-1), Value::Byte(-1)),
        (Amqp::Short(-300), Value::Short(-300)),
        (Amqp::Int(-5), Value::Int(-5)),
        (Amqp::Int(i32::MIN), Value::Int(i32::MIN)),
        (Amqp::Long(-5), Value::Long(-5)),
        (Amqp::Long(i64::MIN), Value::Long(i64::MIN)),
        (Amqp::Float(1.5), Value::Float(1.5)),
        (Amqp::Double(-0.5), Value::Double(-0.5)),
        (Amqp::Char('é'), Value::Char('é')),
        (Amqp::Timestamp(Timestamp(-1)), Value::Timestamp(-1)),
        (Amqp::Uuid(Uuid([3; 16])), Value::Uuid([3; 16])),
        (
            Amqp::Binary(Bytes::from_static(b"\0\xFF")),
            Value::Binary(b"\0\xFF"),
        ),
        ("é".into_value(), Value::Text("é")),
        (long.as_str().into_value(), Value::Text(&long)),
        (Amqp::Symbol(Symbol::from_static("s")), Value::Symbol("s")),
        (timespan(6_000_000_000), Value::Duration(6_000_000_000)),
        (timespan(5), Value::Duration(5)),
        (
            Amqp::Decimal128(decimal),
            Value::Decimal(Decimal::new(false, 75, -1).unwrap()),
        ),
        (Amqp::Decimal32([0x78, 0, 0, 0]), Value::Other),
        (Amqp::Map(Map::default()), Value::Other),
        (other, Value::Other),
    ];
    for (amqp, expected) in values {
        let message = with(&[("a", amqp.clone())]);
        let found = view(&message).unwrap().user("A").map(Value::to_owned);
        assert_eq!(found, Some(expected.to_owned()), "{amqp:?}");
    }
}

#[test]
fn ids_are_texts() {
    let uuid = Uuid([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]);
    for (id, text) in [
        (MessageId::Ulong(5), "5"),
        (
            MessageId::Uuid(uuid),
            "00010203-0405-0607-0809-0a0b0c0d0e0f",
        ),
        (MessageId::Binary(Bytes::from_static(b"\x01\xFF")), "01ff"),
        (MessageId::String("x".into()), "x"),
    ] {
        let properties = Properties {
            message_id: Some(id.clone()),
            correlation_id: Some(id),
            ..Properties::default()
        };
        let mut out = BytesMut::new();
        properties.encode(&mut out);
        let message = out.freeze();
        let view = view(&message).unwrap();
        for _ in 0..2 {
            assert_eq!(view.system(It::MessageId), Value::Text(text));
            assert_eq!(view.system(It::CorrelationId), Value::Text(text));
        }
    }
}

/// Names that differ in upper and lower case only, in a message with few properties and in one with many.
#[test]
fn a_name_finds_its_own_spelling_or_the_first() {
    for others in [0, 40] {
        let names: Vec<String> = (0..others).map(|n| format!("other{n}")).collect();
        let mut all: Vec<_> = names.iter().map(|name| (&**name, Amqp::Null)).collect();
        all.extend([
            ("Straße", Amqp::Int(1)),
            ("COLOR", Amqp::Int(2)),
            ("color", Amqp::Int(3)),
            ("color", Amqp::Int(4)),
        ]);
        let message = with(&all);
        let view = view(&message).unwrap();
        assert_eq!(view.user_count(), others + 4);
        for (name, expected) in [("color", 3), ("COLOR", 2), ("Color", 2), ("STRAßE", 1)] {
            assert_eq!(view.user(name), Some(Value::Int(expected)), "{name}");
        }
        assert_eq!(view.user("colour"), None);
    }
}

#[test]
fn a_long_life_is_the_difference_of_two_times() {
    let max = Some(u32::MAX);
    let day = 86_400_000;
    assert_eq!(time_to_live_ms(None, Some(1), Some(2)), None);
    assert_eq!(time_to_live_ms(Some(5), Some(1), Some(2)), Some(5));
    assert_eq!(time_to_live_ms(max, None, None), Some(u32::MAX.into()));
    assert_eq!(
        time_to_live_ms(max, Some(10), Some(90 * day + 10)),
        Some(90 * 86_400_000)
    );
    assert_eq!(
        time_to_live_ms(max, Some(10), Some(9)),
        Some(u32::MAX.into())
    );
}

/// A section with this code and these bytes.
fn section(code: u8, value: &[u8]) -> Vec<u8> {
    [&[0x00, 0x53, code][..], value].concat()
}

fn error_of(message: &[u8]) -> String {
    let message = Bytes::copy_from_slice(message);
    let refused = Encoded::scan(message.clone()).is_err();
    assert!(refused, "the decoder of AMQP accepts {message:?}");
    view(&message).unwrap_err().to_string()
}

#[test]
fn what_is_no_message_is_refused_with_the_section() {
    let map = |items: &[u8], count: u8| {
        let size = u8::try_from(items.len() + 1).unwrap();
        [&[0xC1, size, count][..], items].concat()
    };
    let list = |items: &[u8], count: u8| {
        let size = u8::try_from(items.len() + 1).unwrap();
        [&[0xC0, size, count][..], items].concat()
    };
    let properties = section(0x73, &[0x45]);
    let application = section(0x74, &map(&[0xA1, 1, b'a', 0x40], 2));
    for (message, error) in [
        (
            vec![0x40],
            "next section of the message cannot be read: expected a described value",
        ),
        (
            vec![0x00],
            "next section of the message cannot be read: a value needs 1 bytes",
        ),
        (
            section(0x60, &[0x45]),
            "next section of the message cannot be read: the descriptor 0x60",
        ),
        (
            section(0x74, &[0x45]),
            "application properties of the message cannot be read: expected a map",
        ),
        (
            section(0x73, &[0x40]),
            "properties of the message cannot be read: expected a list",
        ),
        (
            section(0x74, &[0xC1]),
            "application properties of the message cannot be read: a value needs",
        ),
        (
            section(0x74, &[0xC1, 0]),
            "application properties of the message cannot be read: a value needs",
        ),
        (
            section(0x74, &[0xC1, 9, 2, 0x40]),
            "a value needs 9 bytes, but only 2 are left",
        ),
        (
            section(0x74, &[0xC1, 0, 0]),
            "a value needs 1 bytes, but only 0 are left",
        ),
        (
            section(0x74, &[0xD1, 0, 0, 0, 3, 0, 0, 0, 0]),
            "a value needs 4 bytes",
        ),
        (
            section(0x74, &[0xD1, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0, 0, 0]),
            "a value needs 4294967295 bytes",
        ),
        (
            section(0x74, &map(&[0xA1, 1, b'a'], 1)),
            "a map has 1 elements",
        ),
        (
            section(0x74, &map(&[0xA1, 1, b'a', 0x40, 0x40], 2)),
            "1 bytes follow the last element",
        ),
        (
            section(0x74, &map(&[0xA1, 1, b'a'], 2)),
            "a value needs 1 bytes",
        ),
        (
            section(0x74, &map(&[0xA1, 1, 0xFF, 0x40], 2)),
            "a string is not UTF-8",
        ),
        (
            section(0x74, &map(&[0xA1, 1, b'a', 0x3F], 2)),
            "0x3f is not a format code",
        ),
        (
            section(0x74, &map(&[0xA1, 1, b'a', 0x73, 0, 0, 0xD8, 0], 2)),
            "is not a character",
        ),
        (
            section(0x73, &list(&[0x41], 1)),
            "expected a ulong, a uuid, binary or a string",
        ),
        (
            section(0x73, &list(&[0x40, 0x40, 0x41], 3)),
            "expected a string, found",
        ),
        (
            section(0x73, &list(&[0x40; 14], 14)),
            "1 unknown fields follow",
        ),
        (
            section(0x70, &list(&[0x40, 0x40, 0x41], 3)),
            "header of the message cannot be read: expected a uint",
        ),
        (
            [application.clone(), properties.clone()].concat(),
            "section 0x73 is repeated or out of order",
        ),
        (
            [properties.clone(), properties].concat(),
            "section 0x73 is repeated or out of order",
        ),
        (
            [application.clone(), application].concat(),
            "section 0x74 is repeated or out of order",
        ),
    ] {
        let found = error_of(&message);
        assert!(found.contains(error), "{found}, not {error}");
    }
    // A count of four billion takes no time and no memory.
    let huge = section(0x74, &[0xD1, 0, 0, 0, 4, 0xFF, 0xFF, 0xFF, 0xFE]);
    assert!(error_of(&huge).contains("a value needs 1 bytes"));
}

#[test]
fn sections_may_be_named_by_symbols_and_bodies_are_not_read() {
    let mut out = BytesMut::new();
    for (name, write) in [
        ("amqp:properties:list", &[0xC0, 4, 1, 0xA1, 1, b'm'][..]),
        (
            "amqp:application-properties:map",
            &[0xC1, 5, 2, 0xA1, 1, b'a', 0x41],
        ),
        ("amqp:data:binary", &[0xFF, 0xFF]),
    ] {
        out.put_slice(&[0x00, 0xA3, u8::try_from(name.len()).unwrap()]);
        out.put_slice(name.as_bytes());
        out.put_slice(write);
    }
    let message = out.freeze();
    let view = view(&message).unwrap();
    assert_eq!(view.system(It::MessageId), Value::Text("m"));
    assert_eq!(view.user("a"), Some(Value::Boolean(true)));
    let mut out = BytesMut::new();
    out.put_slice(&[0x00, 0xA3, 1, b'x']);
    write_list(&mut out, |_| {});
    let message = out.freeze();
    let error = super::view::view(&message).unwrap_err();
    assert_eq!(error.error, DecodeError::UnknownDescriptorSymbol);
}
