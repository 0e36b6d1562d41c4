//! AMQP: values, frames and messages.

use bytes::{Bytes, BytesMut};
use kew_amqp::codec::{
    Encode, Raw, Symbol, Symbols, Value, write_described, write_list, write_map,
};
use kew_amqp::frame::{AMQP_HEADER, FrameType, take_frame, write_frame};
use kew_amqp::message::{Message, batch_messages};
use kew_amqp::performative::{Attach, Flow, Performative, Role, Source, Tag, Target, Transfer};
use kew_amqp::sasl::SaslFrame;
use kew_amqp::{Config, Connection, Limits, Millis};
use kew_fuzz::gauge;
use kew_fuzz::mutate::{Input, changes};

use crate::{INPUT_SIZE_MAX, INPUTS, MEMORY_BASE_BYTES};

/// Checks an input unchanged, and an example changed by it. A macro, because cargo-bolero finds a
/// harness by the function that contains the check.
macro_rules! check_changed {
    ($example:expr, $check:expr) => {{
        let (example, check) = ($example, $check);
        bolero::check!()
            .with_iterations(INPUTS)
            .with_max_len(INPUT_SIZE_MAX)
            .for_each(|bytes: &[u8]| {
                check(bytes);
                let mut changed = example.to_vec();
                changes(&mut changed, &mut Input::new(bytes));
                check(&changed);
            });
    }};
}

/// A list with one value of each type.
fn value_example() -> Vec<u8> {
    let mut out = BytesMut::new();
    write_list(&mut out, |list| {
        list.field(&true);
        list.field(&5u32);
        list.field(&(1u64 << 40));
        list.field("abc");
        list.field(&Symbol::from_static("s"));
        list.field(&Bytes::from_static(b"\0\xff"));
        list.with(|out| write_map(out, |map| map.entry("k", &None::<u32>)));
        list.field(&Symbols::new(&["a", "b"].map(Symbol::from_static)));
        list.with(|out| out.extend_from_slice(b"\xf0\0\0\0\x05\0\0\x01\0\x40"));
        list.with(|out| write_described(out, 0x77, |out| write_list(out, |l| l.field(&1i64))));
        list.field(&Value::Char('A'));
    });
    out.to_vec()
}

/// A header, annotations, properties, application properties, two data sections and a footer.
pub(crate) const MESSAGE: &[u8] =
    b"\0\x53\x70\xc0\x07\x05\x41\x50\x04\x40\x40\x43\0\x53\x72\xc1\x06\x02\xa3\
    \x01a\x52\x01\0\x53\x73\xc0\x04\x01\xa1\x01i\0\x53\x74\xc1\x06\x02\xa1\x01k\x52\x05\
    \0\x53\x75\xa0\x04\0\x53\x77\x40\0\x53\x75\xa0\x04\0\x53\x77\x40\0\x53\x78\xc1\x01\0\
    \0\x53\x71\xc1\x06\x02\xa3\x01l\x52\x07";

/// Visits everything in a value.
fn walk(value: &Value, budget: &mut usize) {
    *budget = budget.saturating_sub(1);
    if *budget == 0 {
        return;
    }
    match value {
        Value::List(list) => list.iter().for_each(|item| walk(&item.value(), budget)),
        Value::Map(map) => map.iter().for_each(|(key, value)| {
            walk(&key.value(), budget);
            walk(&value.value(), budget);
        }),
        Value::Array(array) => array.iter().for_each(|item| walk(&item, budget)),
        Value::Described(described) => walk(&described.value.value(), budget),
        Value::String(text) => assert!(text.as_str().len() < 1 << 20),
        Value::Symbol(symbol) => assert!(symbol.as_str().is_ascii()),
        _ => {}
    }
}

/// Reading allocates nothing, for any input.
fn check_value(bytes: &[u8]) -> bool {
    let bytes = Bytes::copy_from_slice(bytes);
    // The first clone of bytes allocates their reference count.
    let shared = bytes.clone();
    let read = gauge::within(0, || Raw::new(shared));
    let Ok(raw) = read else {
        return false;
    };
    gauge::within(MEMORY_BASE_BYTES, || walk(&raw.value(), &mut 10_000));
    let mut out = BytesMut::new();
    raw.value().encode(&mut out);
    let again = Raw::new(out.freeze()).expect("it was just written");
    let mut once_more = BytesMut::new();
    again.value().encode(&mut once_more);
    assert_eq!(once_more.freeze(), again.as_bytes());
    true
}

#[test]
fn value() {
    check_changed!(value_example(), |bytes: &[u8]| {
        check_value(bytes);
    });
}

fn check_message(bytes: &[u8]) -> bool {
    let bytes = Bytes::copy_from_slice(bytes);
    let shared = bytes.clone();
    // Misplaced delivery annotations are moved to their place, in a copy.
    let Ok(message) = gauge::within(bytes.len() + 64, || Message::scan(shared)) else {
        return false;
    };
    let in_order = message.bytes().clone();
    let again = gauge::within(0, || Message::scan(in_order));
    assert_eq!(again.as_ref(), Ok(&message));
    assert_eq!(message.bytes().len(), bytes.len());
    gauge::within(MEMORY_BASE_BYTES, || {
        let _ = (
            message.header().expect("checked"),
            message.properties().expect("checked"),
        );
        let maps = [
            message.delivery_annotations(),
            message.message_annotations(),
            message.application_properties(),
        ];
        maps.iter()
            .for_each(|map| assert!(map.iter().count() <= bytes.len()));
        assert!(message.body_values().count() <= bytes.len());
        assert_eq!(
            [message.bare(), message.footer()].concat(),
            message.bare_and_footer()
        );
        assert!(message.bytes().ends_with(&message.bare_and_footer()));
        if let Ok(messages) = batch_messages(&message) {
            messages.for_each(drop);
        }
    });
    true
}

#[test]
fn message() {
    check_changed!(MESSAGE, |bytes: &[u8]| {
        check_message(bytes);
    });
}

pub(crate) fn amqp(channel: u16, performative: Performative, payload: &[u8]) -> Vec<u8> {
    let mut out = BytesMut::new();
    write_frame(&mut out, FrameType::Amqp, channel, |out| {
        performative.encode(out);
        out.extend_from_slice(payload);
    });
    out.to_vec()
}

pub(crate) fn attach(name: &str, handle: u32, role: Role) -> Attach {
    Attach {
        handle,
        source: Some(Source::new("from".into())),
        target: Some(Target::new("to".into())),
        ..Attach::new(name.into(), role)
    }
}

pub(crate) fn transfer(handle: u32, id: Option<u32>, more: bool) -> Transfer {
    Transfer {
        handle,
        delivery_id: id,
        delivery_tag: id.map(|id| Tag::new(&id.to_be_bytes()).expect("short")),
        message_format: Some(0),
        settled: None,
        more,
        rcv_settle_mode: None,
        state: None,
        resume: false,
        aborted: false,
        batchable: false,
    }
}

pub(crate) fn flow(handle: Option<u32>, credit: u32, drain: bool) -> Flow {
    Flow {
        next_incoming_id: Some(0),
        incoming_window: 100,
        next_outgoing_id: 0,
        outgoing_window: 100,
        handle,
        delivery_count: None,
        link_credit: handle.map(|_| credit),
        available: None,
        drain,
        echo: true,
        properties: None,
    }
}

/// Frames of a peer, written by a client's connection.
pub(crate) fn greeting() -> Vec<u8> {
    let mut client = Connection::client(Config::default(), Limits::default(), Millis(0));
    client.take_output(Millis(0))[AMQP_HEADER.len()..].to_vec()
}

pub(crate) const SASL_INIT: &[u8] =
    b"\0\0\0\x1b\x02\x01\0\0\0\x53\x41\xc0\x0e\x02\xa3\x09ANONYMOUS\xa0\0";

#[test]
fn frame() {
    let mut example = SASL_INIT.to_vec();
    example.extend(greeting());
    example.extend(amqp(
        1,
        Performative::Attach(Box::new(attach("a", 0, Role::Sender))),
        b"",
    ));
    example.extend(amqp(
        1,
        Performative::Transfer(transfer(0, Some(0), false)),
        b"payload",
    ));
    check_changed!(&example, |bytes: &[u8]| {
        let mut input = BytesMut::from(bytes);
        // A frame that outlives its buffer is copied once.
        gauge::within(1024 + 2 * bytes.len(), || {
            while let Ok(Some(frame)) = take_frame(&mut input, 4_096) {
                let _ = match frame.kind {
                    FrameType::Sasl => SaslFrame::decode(&frame.body).is_ok(),
                    FrameType::Amqp => Performative::decode(&frame.body).is_ok(),
                };
            }
        });
    });
}

#[test]
fn the_examples_are_right() {
    assert!(check_value(&value_example()));
    assert!(check_message(MESSAGE));
    let open: Vec<u8> = greeting();
    let mut input = BytesMut::from(&open[..]);
    let frame = take_frame(&mut input, 4_096)
        .expect("right")
        .expect("whole");
    assert!(matches!(
        Performative::decode(&frame.body),
        Ok((Performative::Open(_), _))
    ));
    let mut input = BytesMut::from(SASL_INIT);
    let frame = take_frame(&mut input, 512).expect("right").expect("whole");
    assert!(matches!(
        SaslFrame::decode(&frame.body),
        Ok(SaslFrame::Init(_))
    ));
}
