//! Overlays: their bytes, what older ones mean, and what is none.

use std::fmt::Write as _;

use bytes::{Bytes, BytesMut};
use kew_amqp::codec::{DecodeError, Encode as _, Map, Symbol, Value as Amqp};
use kew_amqp::message::Message as Encoded;
use kew_bus_message::{AmqpFormat, DEAD_LETTER_DESCRIPTION, Known, Merged, View, overlay_of};
use kew_engine::bus::{DESCRIPTION_SIZE_BYTES_MAX, Format as _};
use kew_filter::{Change, Decimal, Message as _, OwnedValue, SystemProperty as It, Target, Value};

use crate::plain::{Plain, SETTABLE};
use crate::view::with;

const GOLDEN_V1: &str = include_str!("../golden/overlays-v1.txt");
const GOLDEN_V2: &str = include_str!("../golden/overlays-v2.txt");

fn set(name: &str, value: OwnedValue) -> Change {
    Change {
        target: Target::User(name.into()),
        to: Some(value),
    }
}

fn text(text: &str) -> OwnedValue {
    OwnedValue::Text(text.into())
}

fn system(property: It, to: Option<OwnedValue>) -> Change {
    Change {
        target: Target::System(property),
        to,
    }
}

fn removed(name: &str) -> Change {
    Change {
        target: Target::User(name.into()),
        to: None,
    }
}

/// A value of each type.
fn values() -> Vec<OwnedValue> {
    let decimal = Decimal::new(true, 75, -1).unwrap();
    let plain = [
        Value::Null,
        Value::Boolean(true),
        Value::Byte(-1),
        Value::Short(-2),
        Value::Int(-3),
        Value::Long(i64::MIN),
        Value::Ubyte(1),
        Value::Ushort(2),
        Value::Uint(3),
        Value::Ulong(u64::MAX),
        Value::Float(1.5),
        Value::Double(-0.0),
        Value::Decimal(decimal),
        Value::Char('é'),
        Value::Timestamp(1_767_225_600_000),
        Value::Duration(6_000_000_000),
        Value::Uuid([7; 16]),
    ];
    let mut all: Vec<_> = plain.map(OwnedValue::Plain).into();
    all.push(OwnedValue::Binary([0, 255].into()));
    all.push(text("Straße"));
    all.push(OwnedValue::Symbol("s".into()));
    all
}

fn value_of(property: It) -> OwnedValue {
    match property {
        It::TimeToLive => OwnedValue::Plain(Value::Duration(90 * 864_000_000_000)),
        It::ScheduledEnqueueTimeUtc => OwnedValue::Plain(Value::Timestamp(1_767_225_600_000)),
        property => text(property.name()),
    }
}

/// Overlays of actions that use all there is, by the names of the golden file.
fn examples() -> Vec<(&'static str, Bytes)> {
    let named = values().into_iter().zip('a'..);
    let every_type = named.map(|(value, name)| set(&name.to_string(), value));
    let every_property = SETTABLE.map(|it| system(it, Some(value_of(it))));
    let others = SETTABLE.into_iter().filter(|it| *it != It::MessageId);
    let all = [
        ("nothing", Vec::new()),
        ("every type", every_type.collect()),
        ("removed", vec![removed("color"), removed("Straße")]),
        ("every system property", every_property.into()),
        (
            "no system property",
            others.map(|it| system(it, None)).collect(),
        ),
        (
            "all",
            vec![
                system(It::To, Some(text("Entity"))),
                removed("color"),
                set("RuleName", text("r")),
            ],
        ),
    ];
    let made = all.map(|(name, changes)| (name, AmqpFormat.made_by(&changes).unwrap().overlay));
    made.into()
}

fn settlement() -> Bytes {
    let changes = Map::build(|map| {
        map.entry("color", "blue");
        map.entry(&Symbol::from_static("count"), &7);
        map.entry("nothing", &Amqp::Null);
        map.entry(&5, &6);
    });
    overlay_of(&changes).unwrap()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

/// A message that has everything.
fn full() -> Plain {
    Plain {
        user: vec![
            ("color".to_owned(), text("red")),
            ("Color".to_owned(), text("green")),
            ("Straße".to_owned(), OwnedValue::Plain(Value::Int(1))),
        ],
        system: SETTABLE
            .map(|it| match it {
                It::TimeToLive => (it, OwnedValue::Plain(Value::Duration(50_000))),
                It::ScheduledEnqueueTimeUtc => (it, OwnedValue::Plain(Value::Timestamp(3))),
                it => (it, text("old")),
            })
            .into(),
        created_ms: Some(1_000),
    }
}

/// The lines of a golden file: what earlier builds have written, and what it means on a full message.
fn check_golden(golden: &str, examples: &[(&str, Bytes)]) {
    let lines: Vec<_> = golden
        .lines()
        .filter(|line| !line.starts_with('#'))
        .collect();
    let message = full().encoded();
    let written: Vec<String> = examples
        .iter()
        .map(|(name, overlay)| format!("{name}: {}", hex(overlay)))
        .collect();
    let meant = lines.iter().skip(1).step_by(2);
    assert_eq!(
        lines.iter().step_by(2).collect::<Vec<_>>(),
        written.iter().collect::<Vec<_>>()
    );
    for ((name, overlay), meant) in examples.iter().zip(meant) {
        let overlays = [overlay.clone()];
        let view = View::read_changed(&message, &overlays, Known::default()).unwrap();
        assert_eq!(format!("= {}", Plain::shown(&view)), **meant, "{name}");
    }
    assert_eq!(lines.len(), 2 * examples.len());
}

#[test]
fn overlays_of_settlements_have_the_bytes_of_the_golden_file() {
    check_golden(GOLDEN_V1, &[("settlement", settlement())]);
}

#[test]
fn overlays_of_actions_have_the_bytes_of_the_golden_file() {
    check_golden(GOLDEN_V2, &examples());
}

fn refused(overlay: &[u8]) -> DecodeError {
    let message = with(&[]);
    let overlays = [Bytes::copy_from_slice(overlay)];
    let view = View::read_changed(&message, &overlays, Known::default());
    let merged = Merged::of(&Encoded::scan(message.clone()).unwrap(), &overlays);
    let error = view.unwrap_err();
    assert_eq!(error.section, "changes");
    assert_eq!(merged.unwrap_err(), error.error);
    assert!(
        AmqpFormat
            .view(&message, &overlays, Known::default())
            .is_none()
    );
    error.error
}

#[test]
fn a_part_of_an_overlay_is_none_nor_is_more() {
    let mut all = examples();
    all.push(("settlement", settlement()));
    for (_, overlay) in all {
        for end in 0..overlay.len() {
            refused(&overlay[..end]);
        }
        let longer = [&overlay[..], &[0x40]].concat();
        assert_eq!(refused(&longer), DecodeError::Surplus(1));
    }
}

#[test]
fn what_is_no_overlay_is_refused() {
    let list = |items: &[u8], count: u8| {
        let size = u8::try_from(items.len() + 1).unwrap();
        [&[0x00, 0x53, 2, 0xC0, size, count][..], items].concat()
    };
    let one = |key: &[u8], value: &[u8]| {
        let size = u8::try_from(key.len() + value.len() + 1).unwrap();
        let map = [&[0x40, 0x40, 0xC1, size, 2], key, value].concat();
        list(&map, 3)
    };
    let wrong = |expected, found| DecodeError::WrongType { expected, found };
    for (overlay, error) in [
        (vec![0x40], wrong("a map", 0x40)),
        (vec![0x45], wrong("a map", 0x45)),
        // A later version.
        (vec![0x00, 0x53, 3, 0x45], DecodeError::UnknownDescriptor(3)),
        (
            vec![0x00, 0xA3, 1, b'x', 0x45],
            DecodeError::UnknownDescriptorSymbol,
        ),
        (vec![0x00, 0x53, 2, 0x40], wrong("a list", 0x40)),
        (list(&[0x41], 1), wrong("a map", 0x41)),
        (list(&[0x40, 0x41], 2), wrong("a list", 0x41)),
        (list(&[0x40, 0xC0, 2, 1, 0x41], 2), wrong("a string", 0x41)),
        (list(&[0x40, 0x40, 0x41], 3), wrong("a map", 0x41)),
        (
            list(&[0x40, 0x40, 0x40, 0x41], 4),
            DecodeError::UnknownFields(1),
        ),
        (one(&[0x41], &[0x40]), wrong("a ubyte", 0x41)),
        (one(&[0x50, 0], &[0x41]), wrong("a string", 0x41)),
        (one(&[0x50, 7], &[0xA1, 0]), wrong("a symbol", 0xA1)),
        (one(&[0x50, 10], &[0x41]), wrong("a ulong", 0x41)),
        (one(&[0x50, 11], &[0x41]), wrong("a timestamp", 0x41)),
        (
            one(&[0x50, 12], &[0x40]),
            DecodeError::BadChoice {
                field: "system property",
                value: 12,
            },
        ),
    ] {
        assert_eq!(refused(&overlay), error, "{overlay:02x?}");
    }
    // Fields may be null or left out.
    for nothing in [list(&[], 0), list(&[0x40, 0x40, 0x40], 3)] {
        let message = with(&[("a", Amqp::Int(1))]);
        let overlays = [Bytes::from(nothing)];
        let view = View::read_changed(&message, &overlays, Known::default()).unwrap();
        assert_eq!(Plain::shown(&view), "a=Int(1)");
    }
}

/// Both may have thousands: a settlement after an action, on a message with as many properties as fit.
#[test]
fn thousands_of_changes_are_made_quickly() {
    let names: Vec<String> = (0..8_000).map(|n| format!("{n:x}")).collect();
    let all: Vec<_> = names.iter().map(|name| (&**name, Amqp::Null)).collect();
    let message = with(&all);
    let changes = Map::build(|map| {
        for name in &names {
            map.entry(&**name, &true);
        }
    });
    let overlays = vec![overlay_of(&changes).unwrap(); 32];
    let view = View::read_changed(&message, &overlays, Known::default()).unwrap();
    assert_eq!(view.user_count(), names.len());
    assert_eq!(view.user("1F"), Some(Value::Boolean(true)));
    let merged = Merged::of(&Encoded::scan(message.clone()).unwrap(), &overlays).unwrap();
    assert_eq!(merged.application_properties, changes);
}

#[test]
fn the_size_has_the_changes() {
    let message = with(&[]);
    let overlays = [settlement(), examples().remove(0).1];
    let view = View::read_changed(&message, &overlays, Known::default()).unwrap();
    let size = message.len() + overlays.iter().map(Bytes::len).sum::<usize>();
    assert_eq!(view.system(It::Size), Value::Long(size.try_into().unwrap()));
}

#[test]
fn a_description_is_cut() {
    let described = |text: &str| {
        let message = with(&[(DEAD_LETTER_DESCRIPTION, Amqp::Int(1))]);
        let overlays = [AmqpFormat.description(text)];
        let view = View::read_changed(&message, &overlays, Known::default()).unwrap();
        assert_eq!(view.user_count(), 1);
        let value = view.user(DEAD_LETTER_DESCRIPTION).unwrap();
        value.as_text().unwrap().to_owned()
    };
    assert_eq!(
        described("column 3: division by zero"),
        "column 3: division by zero"
    );
    assert_eq!(described(""), "");
    let most = "x".repeat(DESCRIPTION_SIZE_BYTES_MAX);
    assert_eq!(described(&format!("{most}y")), most);
    // The last character does not fit as a whole.
    let wide = format!("x{}", "é".repeat(DESCRIPTION_SIZE_BYTES_MAX / 2));
    assert_eq!(described(&wide).len(), DESCRIPTION_SIZE_BYTES_MAX - 1);
}

/// Sections that the message did not have come into being, and others stay as they are.
#[test]
fn a_message_without_sections_gets_what_an_action_sets() {
    let body = with(&[]);
    let changes: Vec<_> = SETTABLE.map(|it| system(it, Some(value_of(it)))).into();
    let overlays = [AmqpFormat.made_by(&changes).unwrap().overlay];
    let merged = Merged::of(&Encoded::scan(body).unwrap(), &overlays).unwrap();
    let mut annotations = BytesMut::new();
    merged.message_annotations.encode(&mut annotations);
    let keys: Vec<_> = merged
        .message_annotations
        .iter()
        .map(|(key, _)| key.value())
        .collect();
    let key = |key| Amqp::Symbol(Symbol::from_static(key));
    let expected = [
        key("x-opt-scheduled-enqueue-time"),
        key("x-opt-partition-key"),
        key("x-opt-via-partition-key"),
    ];
    assert_eq!(keys, expected);
    assert_eq!(merged.header.ttl, Some(u32::MAX));
    assert_eq!(merged.properties.to.unwrap(), *"To");
    assert_eq!(merged.properties.absolute_expiry_time, None);
}
