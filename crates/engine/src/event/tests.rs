use proptest::prelude::*;

use super::*;
use crate::{AccessPolicy, AccountQuota, AccountSecret, PolicyTime};

const QUEUE: u64 = 3;

fn body_location() -> BodyLocation {
    BodyLocation {
        record: 4096,
        offset: 10,
        length: 300,
    }
}

/// One event of every kind, with its bytes. The bytes are the format: they never change.
fn golden() -> Vec<(Fact, &'static str)> {
    let queue = Incarnation::new(QUEUE);
    let sequence_number = SequenceNumber::new(200);
    let at = Timestamp::from_ms(1000);
    let metadata: Metadata = [("Tier", "1")].into_iter().collect();
    vec![
        (
            Fact::PartitionInitialized { secret: [0xab; 16] },
            "0101e907abababababababababababababababab",
        ),
        (
            Fact::QueueCreated {
                queue,
                name: EntityName::storage_queue("acct", "jobs"),
                metadata: metadata.clone(),
            },
            "0201e90703010461636374046a6f6273010454696572 0131",
        ),
        (Fact::QueueDeleted { queue }, "0301e90703"),
        (
            Fact::QueueMetadataSet { queue, metadata },
            "0401e90703010454696572 0131",
        ),
        (
            Fact::MessageSent {
                queue,
                sequence_number,
                expires_at: Timestamp::NEVER,
                visible_at: at,
                encoding: BodyEncoding::Text,
                body: body_location(),
            },
            "0501e90703c80100e907018020 0aac02",
        ),
        (
            Fact::MessageReceived {
                queue,
                sequence_number,
                visible_at: at,
            },
            "0601e90703c801e907",
        ),
        (
            Fact::MessageUpdated {
                queue,
                sequence_number,
                visible_at: at,
                body: None,
            },
            "0701e90703c801e90700",
        ),
        (
            Fact::MessageUpdated {
                queue,
                sequence_number,
                visible_at: at,
                body: Some((BodyEncoding::Raw, body_location())),
            },
            "0701e90703c801e90701028020 0aac02",
        ),
        (
            Fact::MessageDeleted {
                queue,
                sequence_number,
            },
            "0801e90703c801",
        ),
        (
            Fact::QueueCleared {
                queue,
                before: sequence_number,
            },
            "0901e90703c801",
        ),
        (Fact::RunExpired { queue, run: 5 }, "0a01e9070305"),
        (
            Fact::QueuePoliciesSet {
                queue,
                policies: policies_of_two(),
            },
            "0b01e9070302 0172 01e807 00 0102 7270 0177 00 01d00f 00",
        ),
        (
            Fact::ServicePropertiesSet {
                service: Service::QueueStorage,
                account: "acct".into(),
                properties: Bytes::from_static(b"<p/>"),
            },
            "0c01e907 01 0461636374 043c702f3e",
        ),
        (
            Fact::AccountPut {
                account: AccountRecord {
                    name: "acct".into(),
                    keys: [b"one", b"two"].map(|key| AccountSecret::new(key).unwrap()),
                    quota: AccountQuota {
                        queues_max: Some(1000),
                        size_bytes_max: None,
                    },
                    is_disabled: true,
                },
            },
            "0d01e907 0461636374 036f6e65 0374776f 01e807 00 01",
        ),
        (
            Fact::AccountRemoved {
                account: "acct".into(),
            },
            "0e01e907 0461636374",
        ),
    ]
}

fn policies_of_two() -> AccessPolicies {
    let reader = AccessPolicy {
        id: "r".into(),
        start: Some(PolicyTime(1000)),
        expiry: None,
        permissions: Some("rp".into()),
    };
    let writer = AccessPolicy {
        id: "w".into(),
        start: None,
        expiry: Some(PolicyTime(2000)),
        permissions: None,
    };
    AccessPolicies::new(vec![reader, writer]).unwrap()
}

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(|byte| *byte != b' ').collect();
    digits
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

#[test]
fn every_event_has_its_bytes() {
    for (fact, bytes) in golden() {
        let event = Event {
            at: Timestamp::from_ms(1000),
            fact,
        };
        let mut encoded = Vec::new();
        event.encode(&mut encoded);
        assert_eq!(encoded, hex(bytes), "{event:?}");
        assert_eq!(Event::decode(&encoded), Ok(event));
    }
}

#[test]
fn every_truncation_and_every_excess_is_an_error() {
    for (_, bytes) in golden() {
        let mut bytes = hex(bytes);
        for cut in 0..bytes.len() {
            assert!(Event::decode(&bytes[..cut]).is_err());
        }
        bytes.push(0);
        assert!(Event::decode(&bytes).is_err());
    }
}

#[test]
fn a_newer_version_of_an_event_is_refused() {
    let error = Event::decode(&hex("0302e90703")).unwrap_err();
    assert_eq!(
        error.to_string(),
        "event version that is not known at byte 2 of 5"
    );
}

proptest! {
    #[test]
    fn decoding_never_panics(mut bytes: Vec<u8>, kind in 0u8..16) {
        if let Some(first) = bytes.first_mut() {
            *first = kind;
        }
        if let Some(second) = bytes.get_mut(1) {
            *second = VERSION;
        }
        if let Ok(event) = Event::decode(&bytes) {
            let mut again = Vec::new();
            event.encode(&mut again);
            prop_assert_eq!(Event::decode(&again), Ok(event));
        }
    }
}
