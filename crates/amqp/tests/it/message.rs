//! Messages: sections in order, and bytes that stay unchanged.

use bytes::{Bytes, BytesMut};
use kew_amqp::codec::{DecodeError, Map, Symbol, Value};
use kew_amqp::message::{
    BodyKind, Header, Message, MessageId, Sections, batch_messages, write_batch, write_data,
    write_head,
};

use crate::hex;

const HEADER: &str = "00 53 70 c0 06 05 40 40 40 40 43";
const DELIVERY_ANNOTATIONS: &str = "00 53 71 c1 01 00";
const MESSAGE_ANNOTATIONS: &str = "00 53 72 c1 06 02 a3 01 61 52 01";
const PROPERTIES: &str = "00 53 73 c0 04 01 a1 01 69";
const APPLICATION_PROPERTIES: &str = "00 53 74 c1 06 02 a1 01 6b 52 05";
const DATA: &str = "00 53 75 a0 01 78";
const SEQUENCE: &str = "00 53 76 c0 02 01 41";
const VALUE: &str = "00 53 77 a1 01 76";
const FOOTER: &str = "00 53 78 c1 01 00";

fn scan(sections: &[&str]) -> Result<Message, DecodeError> {
    Message::scan(hex(&sections.concat()))
}

#[test]
fn all_sections_are_found() {
    let all = [
        HEADER,
        DELIVERY_ANNOTATIONS,
        MESSAGE_ANNOTATIONS,
        PROPERTIES,
        APPLICATION_PROPERTIES,
        DATA,
        DATA,
        FOOTER,
    ];
    let message = scan(&all).unwrap();
    assert_eq!(message.header().unwrap().delivery_count, 0);
    assert!(message.delivery_annotations().is_empty());
    let annotation = message.message_annotations().get("a").unwrap();
    assert_eq!(annotation.value(), Value::Uint(1));
    let properties = message.properties().unwrap();
    assert_eq!(properties.message_id, Some(MessageId::String("i".into())));
    let property = message.application_properties().get("k").unwrap();
    assert_eq!(property.value().as_integer(), Some(5));
    assert_eq!(message.body_kind(), BodyKind::Data);
    assert_eq!(message.body(), hex(&[DATA, DATA].concat()));
    assert_eq!(message.body_values().count(), 2);
    let bare = [PROPERTIES, APPLICATION_PROPERTIES, DATA, DATA].concat();
    assert_eq!(message.bare(), hex(&bare));
    assert_eq!(message.footer(), hex(FOOTER));
    assert_eq!(message.bare_and_footer(), hex(&(bare + FOOTER)));
}

#[test]
fn sections_that_are_read_to_be_checked_are_kept() {
    let mut read = Sections::default();
    for sections in [
        &[HEADER, MESSAGE_ANNOTATIONS, PROPERTIES, DATA][..],
        // The message is moved, and read again.
        &[MESSAGE_ANNOTATIONS, PROPERTIES, VALUE, DELIVERY_ANNOTATIONS],
        &[SEQUENCE],
    ] {
        let message = Message::scan_into(hex(&sections.concat()), &mut read).unwrap();
        assert_eq!(read.header, message.header().unwrap());
        assert_eq!(read.message_annotations, message.message_annotations());
        assert_eq!(read.properties, message.properties().unwrap());
    }
}

#[test]
fn the_bytes_of_one_section_of_data() {
    let data = |sections: &[&str]| scan(sections).unwrap().data();
    assert_eq!(data(&[HEADER, DATA]).unwrap(), "x");
    assert_eq!(data(&[DATA, FOOTER]).unwrap(), "x");
    for others in [&[DATA, DATA][..], &[VALUE], &[SEQUENCE], &[HEADER]] {
        assert_eq!(data(others), None, "{others:?}");
    }
}

#[test]
fn every_section_may_be_missing() {
    let empty = scan(&[]).unwrap();
    assert_eq!(empty.body_kind(), BodyKind::Empty);
    assert!(empty.bare().is_empty() && empty.footer().is_empty());
    assert_eq!(empty.header().unwrap(), Header::default());
    for (body, kind) in [
        (DATA, BodyKind::Data),
        (SEQUENCE, BodyKind::Sequence),
        (VALUE, BodyKind::Value),
    ] {
        let message = scan(&[HEADER, body]).unwrap();
        assert_eq!(message.body_kind(), kind);
        assert_eq!(message.bare(), hex(body));
    }
    let footer = scan(&[FOOTER]).unwrap();
    assert!(footer.bare().is_empty());
    assert_eq!(footer.bare_and_footer(), hex(FOOTER));
}

#[test]
fn names_are_descriptors_too_and_matched_exactly() {
    let named = |name: &str, value: &str| {
        let digits: String = name.bytes().map(|byte| format!("{byte:02x}")).collect();
        Message::scan(hex(&format!("00 a3 {:02x} {digits} {value}", name.len())))
    };
    assert_eq!(
        named("amqp:data:binary", "a0 01 78").unwrap().body_kind(),
        BodyKind::Data
    );
    for name in [
        "amqp:data:binar",
        "amqp:data:binary2",
        "AMQP:data:binary",
        "",
    ] {
        let refused = named(name, "a0 01 78");
        assert_eq!(refused, Err(DecodeError::UnknownDescriptorSymbol), "{name}");
    }
    let wide = Message::scan(hex("00 80 0000000000000075 a0 01 78"));
    assert_eq!(wide.unwrap().body_kind(), BodyKind::Data);
}

#[test]
fn order_repeats_and_types_are_checked() {
    let order = |section| DecodeError::SectionOrder(section);
    let rows: [(&str, &[&str], DecodeError); 9] = [
        (
            "properties after the body",
            &[DATA, PROPERTIES],
            order(0x73),
        ),
        ("header twice", &[HEADER, HEADER], order(0x70)),
        (
            "annotations before the header",
            &[MESSAGE_ANNOTATIONS, HEADER],
            order(0x70),
        ),
        ("two values", &[VALUE, VALUE], order(0x77)),
        ("data, then a sequence", &[DATA, SEQUENCE], order(0x76)),
        ("body after the footer", &[FOOTER, DATA], order(0x75)),
        ("two footers", &[FOOTER, FOOTER], order(0x78)),
        (
            "no section",
            &["00 53 79 c1 01 00"],
            DecodeError::UnknownDescriptor(0x79),
        ),
        (
            "no section, of 8 bytes",
            &["00 80 0000000100000075 a0 00"],
            DecodeError::UnknownDescriptor(0x1_0000_0075),
        ),
    ];
    for (name, sections, expected) in rows {
        assert_eq!(scan(sections), Err(expected), "{name}");
    }
    for (name, section) in [
        ("data that is a string", "00 53 75 a1 01 78"),
        ("application properties that are a list", "00 53 74 45"),
        ("a sequence that is a map", "00 53 76 c1 01 00"),
        ("a header of a map", "00 53 70 c1 01 00"),
        ("a value without descriptor", "40"),
        ("a message id that is a bool", "00 53 73 c0 02 01 41"),
    ] {
        let refused = scan(&[section]);
        assert!(
            matches!(refused, Err(DecodeError::WrongType { .. })),
            "{name}: {refused:?}"
        );
    }
    let whole = hex(&[HEADER, PROPERTIES, DATA].concat());
    let ends = [0, 11, 20, 26];
    for end in 0..=whole.len() {
        let is_whole = Message::scan(whole.slice(..end)).is_ok();
        assert_eq!(is_whole, ends.contains(&end), "cut at {end}");
    }
}

/// The Python SDK writes them last, and Service Bus accepts them anywhere.
#[test]
fn delivery_annotations_may_stand_anywhere_and_are_moved_to_their_place() {
    const GIVEN: &str = "00 53 71 c1 06 02 a3 01 6c 52 07";
    let others = [
        HEADER,
        MESSAGE_ANNOTATIONS,
        PROPERTIES,
        APPLICATION_PROPERTIES,
        DATA,
        DATA,
        FOOTER,
    ];
    for (from, place) in [(0, 1), (1, 0)] {
        let others = &others[from..];
        let mut expected = others.to_vec();
        expected.insert(place, GIVEN);
        for at in 0..=others.len() {
            let mut sections = others.to_vec();
            sections.insert(at, GIVEN);
            let message = scan(&sections).unwrap();
            assert_eq!(message.bytes(), &hex(&expected.concat()), "at {at}");
            let given = message.delivery_annotations().get("l").unwrap();
            assert_eq!(given.value(), Value::Uint(7), "at {at}");
            assert_eq!(message.body(), hex(&[DATA, DATA].concat()), "at {at}");
            let rest = &others[others.len() - 5..];
            assert_eq!(message.bare_and_footer(), hex(&rest.concat()), "at {at}");
        }
    }
    for twice in [
        [GIVEN, GIVEN, DATA],
        [GIVEN, DATA, GIVEN],
        [DATA, GIVEN, GIVEN],
    ] {
        assert_eq!(scan(&twice), Err(DecodeError::SectionOrder(0x71)));
    }
}

#[test]
fn a_delivery_has_a_new_head_and_the_old_bytes() {
    let stored = scan(&[HEADER, MESSAGE_ANNOTATIONS, PROPERTIES, VALUE, FOOTER]).unwrap();
    let header = Header {
        delivery_count: 3,
        ..stored.header().unwrap()
    };
    let annotations = Map::build(|map| {
        map.entry(&Symbol::from_static("x-opt-sequence-number"), &7i64);
    });
    let mut out = BytesMut::new();
    write_head(&mut out, &header, &Map::default(), &annotations);
    out.extend_from_slice(&stored.bare_and_footer());
    let sent = Message::scan(out.freeze()).unwrap();
    assert_eq!(sent.header().unwrap(), header);
    assert_eq!(sent.message_annotations(), annotations);
    assert_eq!(sent.bare_and_footer(), stored.bare_and_footer());
}

#[test]
fn a_header_always_has_its_delivery_count() {
    let mut out = BytesMut::new();
    write_head(
        &mut out,
        &Header::default(),
        &Map::default(),
        &Map::default(),
    );
    assert_eq!(out.freeze(), hex("00 53 70 c0 06 05 40 40 40 40 43"));
}

#[test]
fn a_batch_has_messages_in_it() {
    let inner: Vec<Bytes> = [&[PROPERTIES, DATA][..], &[VALUE], &[]]
        .iter()
        .map(|sections| hex(&sections.concat()))
        .collect();
    let mut out = BytesMut::new();
    write_batch(&mut out, &inner);
    let batch = Message::scan(out.freeze()).unwrap();
    let found: Vec<_> = batch_messages(&batch)
        .unwrap()
        .map(|message| message.unwrap().bytes().clone())
        .collect();
    assert_eq!(found, inner);

    let value = scan(&[VALUE]).unwrap();
    assert!(matches!(
        batch_messages(&value),
        Err(DecodeError::NotABatch)
    ));
    let mut out = BytesMut::new();
    write_data(&mut out, b"no message");
    let broken = Message::scan(out.freeze()).unwrap();
    assert!(
        batch_messages(&broken)
            .unwrap()
            .any(|message| message.is_err())
    );
}
