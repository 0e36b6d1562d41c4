mod examples;

use std::collections::BTreeSet;
use std::fmt::{Debug, Write as _};

use proptest::prelude::*;

use super::*;
use crate::bus::{BusOutcome, EntityKind};

/// All examples, each with its kind.
fn values() -> Vec<Value> {
    let commands = examples::commands().into_iter().map(Value::Command);
    let outcomes = examples::outcomes().into_iter().map(Value::Outcome);
    let refusals = examples::refusals().into_iter().map(Value::Refusal);
    let all = commands.chain(outcomes).chain(refusals);
    all.chain(examples::around()).collect()
}

fn encoded(value: &Value) -> Bytes {
    let mut out = Vec::new();
    let frame = Frame {
        number: 300,
        value: value.clone(),
    };
    frame.encode(&mut out);
    out.into()
}

/// The variants that a value is of, from the outside in.
fn variants(value: &impl Debug) -> String {
    let text = format!("{value:?}");
    let names = text.split([' ', '{']).next();
    let names = names.unwrap_or_default().split('(');
    let names = names.map(|name| name.trim_end_matches(')'));
    let is_variant = |name: &&str| name.starts_with(|c: char| c.is_ascii_uppercase());
    names.take_while(is_variant).collect::<Vec<_>>().join(" ")
}

/// These bytes stay as long as nodes of different versions talk to each other. Lines are added, and never changed.
#[test]
fn the_bytes_are_those_of_version_1() {
    let mut text = String::new();
    for value in values() {
        write!(text, "{}:", variants(&value)).unwrap();
        for (index, byte) in encoded(&value).iter().enumerate() {
            let space = if index % 4 == 0 { " " } else { "" };
            write!(text, "{space}{byte:02x}").unwrap();
        }
        text.push('\n');
    }
    let golden = include_str!("../../tests/golden/wire-1.txt");
    let differs = text.lines().zip(golden.lines()).find(|(is, was)| is != was);
    assert_eq!(differs, None);
    assert!(text == golden, "all lines are:\n{text}");
}

/// Its bytes would be lost when it is encoded again.
#[test]
fn a_queue_has_nothing_of_a_topic() {
    let views = examples::outcomes().into_iter().filter(|outcome| {
        matches!(outcome, Outcome::Bus(BusOutcome::Queue(view)) if view.kind == EntityKind::Topic)
    });
    let mut count = 0;
    for outcome in views {
        let mut bytes = encoded(&Value::Outcome(outcome)).to_vec();
        // The last bytes are the kind, flags, and the number of subscriptions.
        let kind = bytes.len() - 3;
        assert_eq!(bytes[kind], 1);
        bytes[kind] = 0;
        let error = Frame::decode(&bytes.into()).unwrap_err();
        assert!(
            format!("{error:?}").contains("a queue with what only topics have"),
            "{error:?}"
        );
        count += 1;
    }
    assert!(count > 0);
}

#[test]
fn decoding_undoes_encoding_and_no_byte_is_left_over() {
    for value in values() {
        let bytes = encoded(&value);
        let frame = Frame::decode(&bytes);
        assert_eq!(frame, Ok(Frame { number: 300, value }));
        for length in 0..bytes.len() {
            assert!(Frame::decode(&bytes.slice(..length)).is_err());
        }
        let longer: Bytes = [&*bytes, &[0]].concat().into();
        assert!(Frame::decode(&longer).is_err());
    }
}

/// Which tags are known behind this beginning.
fn known_tags(beginning: &[u8]) -> BTreeSet<u8> {
    let is_known = |tag: &u8| {
        let bytes: Bytes = [beginning, &[*tag]].concat().into();
        let end = format!("at byte {} of {}", bytes.len(), bytes.len());
        match Frame::decode(&bytes) {
            Ok(_) => true,
            Err(error) => !error.to_string().ends_with(&format!("is not known {end}")),
        }
    };
    (0..=u8::MAX).filter(is_known).collect()
}

#[test]
fn every_tag_has_an_example() {
    let all: Vec<_> = values().iter().map(encoded).collect();
    let kinds: [&[u8]; 10] = [
        &[1],
        &[1, 8],
        &[1, 9],
        &[2],
        &[2, 8],
        &[2, 9],
        &[3],
        &[3, 6],
        &[3, 7],
        &[5],
    ];
    for kind in kinds {
        // The number takes two bytes.
        let beginning = [&[VERSION, kind[0], 0xac, 0x02], &kind[1..]].concat();
        let shown = all.iter().filter(|bytes| bytes.starts_with(&beginning));
        let shown: BTreeSet<u8> = shown.map(|bytes| bytes[beginning.len()]).collect();
        assert!(shown.len() > 5);
        assert_eq!(shown, known_tags(&beginning), "{kind:?}");
    }
}

#[test]
fn another_version_is_refused() {
    let mut bytes = encoded(&values()[0]).to_vec();
    let length = bytes.len();
    bytes[0] = 2;
    let error = Frame::decode(&bytes.into()).unwrap_err();
    let text = format!("frame of a version that is not known at byte 1 of {length}");
    assert_eq!(error.to_string(), text);
}

#[test]
fn bodies_are_slices_of_what_was_received() {
    let body = Bytes::from(vec![7; 1000]);
    let command = Command::Bus(crate::bus::BusCommand::SetSessionState {
        queue: crate::EntityName::storage_queue("account", "queue"),
        session: crate::Token::from_bytes([1; 16]),
        state: Some(body.clone()),
    });
    let bytes = encoded(&Value::Command(command));
    let frame = Frame::decode(&bytes).unwrap();
    let Value::Command(Command::Bus(crate::bus::BusCommand::SetSessionState { state, .. })) =
        frame.value
    else {
        panic!("{frame:?}");
    };
    let state = state.unwrap();
    assert_eq!(state, body);
    assert!(bytes.as_ptr_range().contains(&state.as_ptr()));
}

/// A refusal within a refusal takes a level of the stack, so there is only one.
#[test]
fn a_transaction_within_one_is_refused() {
    let level = [23, 1, 0, 1];
    let mut bytes = vec![VERSION, 3, 0, 7];
    for _ in 0..100_000 {
        bytes.extend(level);
    }
    assert!(Frame::decode(&bytes.into()).is_err());
}

proptest! {
    #[test]
    fn random_bytes_do_not_panic(bytes: Vec<u8>, kind in 1u8..4) {
        let _ = Frame::decode(&bytes.clone().into());
        let framed = [&[VERSION, kind, 0], &*bytes].concat();
        if let Ok(frame) = Frame::decode(&framed.into()) {
            let mut out = Vec::new();
            frame.encode(&mut out);
            prop_assert_eq!(Frame::decode(&out.into()), Ok(frame));
        }
    }
}
