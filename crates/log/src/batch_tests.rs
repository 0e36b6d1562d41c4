use proptest::prelude::*;

use super::*;

fn payload(batch: BatchBuilder) -> Vec<u8> {
    batch.into_buffer().split_off(RECORD_HEADER_SIZE)
}

#[test]
fn golden_payload() {
    let mut batch = BatchBuilder::at(LogPosition::new(4096));
    let location = batch.push_body(b"body");
    batch.push_event(b"event");
    assert_eq!(location.record, LogPosition::new(4096));
    assert_eq!((location.offset, location.length), (6, 4));
    let crc = body_crc(LogPosition::new(4096), 6, b"body").to_le_bytes();
    let expected = [&[2, 4][..], &crc, b"body", &[1, 5], b"event"].concat();
    assert_eq!(batch.len_bytes(), expected.len());
    assert_eq!(payload(batch), expected);
    assert_eq!(crc, [0x68, 0x86, 0xcb, 0xfb]);
}

#[test]
fn an_event_is_encoded_the_same_in_place_and_from_a_slice() {
    for length in [0, 1, 127, 128, 129, 16_383, 16_384, 100_000] {
        let event = vec![7; length];
        let mut one = BatchBuilder::at(LogPosition::new(8));
        one.push_event(&event);
        let mut other = BatchBuilder::at(LogPosition::new(8));
        other.push_event_with(|buffer| buffer.extend_from_slice(&event));
        assert!(one.len_bytes() <= BatchBuilder::event_size_bytes_max(length));
        assert_eq!(payload(one), payload(other));
    }
}

#[test]
fn a_malformed_payload_is_named_and_read_no_further() {
    let first = |payload: &[u8]| {
        let mut entries = Entries::new(payload);
        let error = entries.next().unwrap().unwrap_err().to_string();
        assert!(entries.next().is_none());
        error
    };
    assert_eq!(first(&[9, 0]), "a batch entry has an unknown tag");
    assert_eq!(first(&[1, 5, 0]), "a batch entry reaches beyond its batch");
    assert_eq!(
        first(&[1, 0xff, 0xff, 0xff, 0xff, 0x1f]),
        "a batch entry has a length above 4 GiB"
    );
    assert_eq!(
        first(&[1, 0x80, 0x80, 0x80, 0x80, 0x80, 0]),
        "a batch entry has a length in more than five bytes"
    );
}

#[derive(Clone, Debug)]
enum Given {
    Event(Vec<u8>),
    Body(Vec<u8>),
}

fn given() -> impl Strategy<Value = Vec<Given>> {
    let bytes = || proptest::collection::vec(any::<u8>(), 0..300);
    proptest::collection::vec(
        prop_oneof![
            bytes().prop_map(Given::Event),
            bytes().prop_map(Given::Body)
        ],
        0..20,
    )
}

proptest! {
    #[test]
    fn batches_round_trip(given in given()) {
        let position = LogPosition::new(12_344);
        let mut batch = BatchBuilder::at(position);
        let mut locations = Vec::new();
        for entry in &given {
            match entry {
                Given::Event(event) => batch.push_event(event),
                Given::Body(body) => locations.push(batch.push_body(body)),
            }
        }
        let payload = payload(batch);
        let mut locations = locations.into_iter();
        let mut entries = Entries::new(&payload);
        for expected in &given {
            match (expected, entries.next().unwrap().unwrap()) {
                (Given::Event(event), Entry::Event(read)) => prop_assert_eq!(event, read),
                (Given::Body(body), Entry::Body { offset, crc, body: read }) => {
                    prop_assert_eq!(body, read);
                    let location = locations.next().unwrap();
                    prop_assert_eq!(location.offset, offset);
                    prop_assert_eq!(location.length as usize, body.len());
                    prop_assert_eq!(crc, body_crc(position, offset, body));
                    let begin = offset as usize;
                    prop_assert_eq!(&payload[begin..begin + body.len()], &body[..]);
                }
                other => prop_assert!(false, "{:?}", other),
            }
        }
        prop_assert!(entries.next().is_none());
    }

    #[test]
    fn random_payloads_never_panic(payload: Vec<u8>) {
        for entry in Entries::new(&payload) {
            if entry.is_err() {
                break;
            }
        }
    }
}
