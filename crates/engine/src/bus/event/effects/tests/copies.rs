//! The bytes of copies.

use std::sync::Arc;

use proptest::prelude::*;

use super::*;

const NOW: Timestamp = Timestamp::from_ms(1_800_000_000_000);

fn encoded(effects: &[Effect]) -> Vec<u8> {
    let effects = effects.to_vec().into();
    let mut bytes = Vec::new();
    let fact = Fact::Bus(BusFact::Messages { effects });
    Event { at: NOW, fact }.encode(&mut bytes);
    bytes
}

fn decoded(bytes: &[u8]) -> Option<Vec<Effect>> {
    match Event::decode(bytes).ok()?.fact {
        Fact::Bus(BusFact::Messages { effects }) => Some(effects.into()),
        other => panic!("{other:?}"),
    }
}

fn left_out_size_bytes(effects: &[Effect]) -> u64 {
    super::super::left_out_size_bytes(effects)
}

fn at(entity: u64, number: u64) -> Place {
    Place {
        entity: Incarnation::new(entity),
        number: SequenceNumber::new(number),
    }
}

/// A message of a topic with the longest session, of which there are ten million others.
fn of_topic() -> Arrival {
    let session = BusSession {
        number: 70_000,
        ..largest::session()
    };
    let record = sent(NOW, NOW.plus_seconds(3_600), None, usual::body(0));
    let side = Side {
        first_number: Some(SequenceNumber::new(10_000_000)),
        ..Side::default()
    };
    let rest = Rest {
        side,
        ..Rest::default()
    };
    Arrival::new(record, Some(session), rest)
}

/// The effects that copy it into so many subscriptions.
fn copies(count: u64) -> Vec<Effect> {
    let message = of_topic();
    let copy = |index: u64| {
        // Others were created in between, and their backlogs differ.
        let to = at(1_000 + 6 * index, 10_000_000 + 40_000 * (index % 2));
        let mut message = message.clone();
        // The second one counts the body.
        let hold = if index == 1 {
            Hold::Lends
        } else {
            Hold::Borrows
        };
        message.record.body = message.record.body.with(hold);
        Effect::Arrived { to, message }
    };
    (0..count).map(copy).collect()
}

fn is_one_message(effects: &[Effect]) -> bool {
    let rests: Vec<_> = effects
        .iter()
        .map(|effect| match effect {
            Effect::Arrived { message, .. } => message.rest.clone().unwrap(),
            other => panic!("{other:?}"),
        })
        .collect();
    rests.iter().all(|rest| Arc::ptr_eq(rest, &rests[0]))
}

#[test]
fn a_copy_takes_about_six_bytes() {
    let (one, all) = (encoded(&copies(1)).len(), encoded(&copies(2_000)).len());
    let each = (all - one).div_ceil(1_999);
    assert!(
        one > SESSION_ID_SIZE_BYTES_MAX && each <= 6,
        "{one}, {each}"
    );
    // In memory, they share the id of the session.
    let read = decoded(&encoded(&copies(2_000))).unwrap();
    assert_eq!(read, copies(2_000));
    assert!(is_one_message(&read));
}

#[test]
fn what_a_copy_leaves_out_counts_for_a_snapshot() {
    let all = copies(64);
    let alone: usize = all
        .iter()
        .map(|it| encoded(std::slice::from_ref(it)).len())
        .sum();
    let together = encoded(&all).len() as u64 + left_out_size_bytes(&all);
    assert!(together >= alone as u64, "{together}, {alone}");
    assert_eq!(left_out_size_bytes(&all[..1]), 0);
}

#[test]
fn what_is_no_copy_is_an_error() {
    let header = encoded(&[]);
    let with = |effects: &[u8]| decoded(&[&header, effects].concat());
    // An arrival without a session that expires, in 03; then what follows it.
    let plain = [0x11, 0x03, 0x05, 0x02, 0x80, 0x20, 0x0a, 0x05];
    let then = |more: &[u8]| with(&[&plain, more].concat());
    assert_eq!(then(&[]).map(|it| it.len()), Some(1));
    assert_eq!(then(&[0x06, 0x06, 0x02]).map(|it| it.len()), Some(2));
    assert_eq!(then(&[0x0e, 0x02]).map(|it| it.len()), Some(2));
    assert_eq!(then(&[0x2e, 0x02]).map(|it| it.len()), Some(2));
    assert_eq!(with(&[0x06, 0x06, 0x02]), None, "nothing before it");
    let ended = [0x0b, 0x00, 0x01, 0x80, 0x20, 0x0a, 0x05];
    assert_eq!(then(&ended).map(|it| it.len()), Some(2));
    let copy_of_ended = [&ended[..], &[0x06, 0x06, 0x02]].concat();
    assert_eq!(then(&copy_of_ended), None, "an end before it");
    assert_eq!(then(&[0x86, 0x06, 0x02]), None, "another hold than alone");
    assert_eq!(then(&[0x3e, 0x02, 0x02]), None, "it expires and does not");
    assert_eq!(then(&[0x4e, 0x02, 0x07]), None, "a session that is none");
    assert_eq!(then(&[0x06, 0x07, 0x02]), None, "an entity below 0");
    assert_eq!(then(&[0x0e, 0x0b]), None, "a number below 0");
    let lends = [
        0x11, 0x03, 0x05, 0x02, 0x80, 0x20, 0x8a, 0x80, 0x80, 0x80, 0x04, 0x05,
    ];
    let holds = |more: &[u8]| {
        let all = with(&[&lends, more].concat())?.into_iter();
        let holds = all.map(|effect| match effect {
            Effect::Arrived { message, .. } => message.record.body.hold(),
            other => panic!("{other:?}"),
        });
        Some(holds.collect::<Vec<_>>())
    };
    // Each copy has the hold of the one before, or the other one.
    let [lends_it, borrows] = [Hold::Lends, Hold::Borrows];
    let three = [0x8e, 0x02, 0x0e, 0x02, 0x8e, 0x02];
    let expected = vec![lends_it, borrows, borrows, lends_it];
    assert_eq!(holds(&three), Some(expected));
    let both = [
        0x11, 0x03, 0x05, 0x02, 0x80, 0x20, 0x8a, 0x80, 0x80, 0x80, 0x0c, 0x05,
    ];
    assert_eq!(with(&both), None, "lent and borrowed");
    let of_session = [
        0x51, 0x03, 0x05, 0x01, 0x02, 0x80, 0x20, 0x0a, 0x05, 0x07, 0x01, 0x73,
    ];
    let then = |more: &[u8]| with(&[&of_session, more].concat());
    assert_eq!(then(&[0x4e, 0x02, 0x08]).map(|it| it.len()), Some(2));
    assert_eq!(
        then(&[0x4e, 0x02, 0x00]),
        None,
        "a session without a number"
    );
    let changed = [
        0x51, 0x03, 0x05, 0x80, 0x02, 0x80, 0x20, 0x0a, 0x05, 0x01, 0x08, 0x0a, 0x05,
    ];
    let then = |more: &[u8]| with(&[&changed, more].concat());
    assert_eq!(then(&[]).map(|it| it.len()), Some(1));
    assert_eq!(then(&[0x0e, 0x02]), None, "a message with changes");
}

/// What differs between two messages that follow each other.
#[derive(Clone, Copy, Debug)]
enum Differs {
    Nothing,
    Expiry(Timestamp),
    Session(u32),
    NameOfSession(bool),
    Body,
    Hold(Hold),
    Changes,
    Cause,
    FirstNumber,
    Hash,
    Source,
}

fn differs() -> impl Strategy<Value = Differs> {
    let expiry = prop_oneof![
        Just(Timestamp::NEVER),
        (0_u64..1 << 50).prop_map(Timestamp::from_ms),
        any::<u64>().prop_map(Timestamp::from_ms),
    ];
    prop_oneof![
        4 => Just(Differs::Nothing),
        2 => expiry.prop_map(Differs::Expiry),
        2 => (1_u32..1000).prop_map(Differs::Session),
        1 => any::<bool>().prop_map(Differs::NameOfSession),
        3 => prop::sample::select(vec![Hold::Alone, Hold::Lends, Hold::Borrows])
            .prop_map(Differs::Hold),
        1 => prop::sample::select(vec![
            Differs::Body,
            Differs::Changes,
            Differs::Cause,
            Differs::FirstNumber,
            Differs::Hash,
            Differs::Source,
        ]),
    ]
}

fn changed(message: Arrival, differs: Differs) -> Arrival {
    let mut message = message;
    let record = &mut message.record;
    match differs {
        Differs::Nothing => {}
        Differs::Expiry(expires_at) => record.expires_at = expires_at,
        Differs::Session(number) if record.session > 0 => record.session = number,
        Differs::Session(_) => {}
        Differs::NameOfSession(is_there) => {
            let session = is_there.then(|| BusSession {
                number: 3,
                id: "other".into(),
            });
            let rest = message.rest.as_deref().cloned().unwrap_or_default();
            return Arrival::new(message.record, session, rest);
        }
        Differs::Hold(hold) => record.body = record.body.with(hold),
        Differs::Body => record.body.record += 1,
        Differs::Cause => record.cause = Some(DeadLetterCause::SessionIdIsNull),
        Differs::Changes => {
            let body = record.body;
            return message.with(|rest| rest.side.overlays.push(body));
        }
        Differs::FirstNumber => {
            return message.with(|rest| rest.side.first_number = Some(SequenceNumber::new(5)));
        }
        Differs::Hash => return message.with(|rest| rest.id_hash = Some(7)),
        Differs::Source => return message.with(|rest| rest.side.source = Some("q".into())),
    }
    message
}

proptest! {
    #[test]
    fn arrivals_are_read_as_they_were_written(
        steps in prop::collection::vec((differs(), 1_u64..9, 1_u64..300, prop::bool::weighted(0.1)), 1..40),
    ) {
        let mut effects = Vec::new();
        let mut message = of_topic();
        for (differs, entity, number, ends_one) in steps {
            message = changed(message, differs);
            effects.push(Effect::Arrived { to: at(entity, number), message: message.clone() });
            if ends_one {
                let passed = OwnEffect::Passed { topic: at(entity, number), id_hash: None };
                effects.push(Effect::Own(passed));
            }
        }
        let bytes = encoded(&effects);
        prop_assert_eq!(decoded(&bytes), Some(effects.clone()));
        // Cut anywhere, they are fewer or none.
        for cut in 0..bytes.len() {
            if let Some(fewer) = decoded(&bytes[..cut]) {
                prop_assert!(effects.starts_with(&fewer));
            }
        }
    }
}
