use proptest::prelude::*;

use super::codec::VERSION;
use super::*;
use crate::bus::{
    self, AddedRule, BusFact, BusMessageState, BusQueueOptions, BusSession, DeadLetterCause,
    EntityStatus, OwnHolder, sent,
};
use crate::catalogue::{AccountQuota, AccountSecret};
use crate::effect::{
    Arrival as Message, Bodies, Effect, Lease, NewBody, NextCopy, Rest, Standing, Was,
};
use crate::queues::{Moved, MovedOf};
use crate::storage::{self, AccessPolicies, AccessPolicy, Metadata, PolicyTime, message};
use crate::table::{BodyEncoding, Placed, Record, Side};
use crate::vocabulary::{
    BodyLocation, BodyMove, EntityName, LeaseGeneration, Place, SequenceNumber, Timestamp,
};

const QUEUE: u64 = 3;

/// When each event happens.
const NOW: Timestamp = Timestamp::from_ms(1000);

fn body_location() -> BodyLocation {
    BodyLocation::new(4096, 10, 300)
}

/// One event of every kind, with its bytes. The bytes are the format: they never change.
fn golden() -> Vec<(Fact, &'static str)> {
    let queue = Incarnation::new(QUEUE);
    let metadata: Metadata = [("Tier", "1")].into_iter().collect();
    vec![
        (
            Fact::PartitionInitialized {
                secret: [0xab; 16],
                run_length: RunLength::DEFAULT,
            },
            "1001e907abababababababababababababababab 8008",
        ),
        (
            Fact::Storage(StorageFact::QueueCreated {
                queue,
                name: EntityName::storage_queue("acct", "jobs"),
                metadata: metadata.clone(),
            }),
            "0201e90703010461636374046a6f6273010454696572 0131",
        ),
        (
            Fact::Storage(StorageFact::QueueDeleted { queue }),
            "0301e90703",
        ),
        (
            Fact::Storage(StorageFact::QueueMetadataSet { queue, metadata }),
            "0401e90703010454696572 0131",
        ),
        (
            Fact::Storage(StorageFact::QueuePoliciesSet {
                queue,
                policies: policies_of_two(),
            }),
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
        (
            Fact::Quarantined {
                entity: queue,
                first: SequenceNumber::new(1152),
                messages: 0x8000_0000_0000_0000_0000_0000_0000_0006,
            },
            "1201e907 03 8009 06000000000000000000000000000080",
        ),
        (
            Fact::RunLost {
                entity: queue,
                number: SequenceNumber::new(1024),
            },
            "1301e907 03 8008",
        ),
    ]
}

fn place(number: u64) -> Place {
    Place {
        entity: Incarnation::new(QUEUE),
        number: SequenceNumber::new(number),
    }
}

/// Each effect, with what it can carry and without. Then effects of one event.
fn effects_golden() -> Vec<(Fact, &'static str)> {
    let text = Placed {
        encoding: BodyEncoding::Text,
        location: body_location(),
    };
    let raw = Placed {
        encoding: BodyEncoding::Raw,
        ..text
    };
    let lease = Lease {
        generation: LeaseGeneration::new(2),
        deliveries: 1,
        standing: message::until(Timestamp::from_ms(3000)),
    };
    let due_at = Some(Timestamp::from_ms(1500));
    let was = |due_at: Option<u64>| Was {
        standing: due_at
            .map(|due_at| message::until(Timestamp::from_ms(due_at)))
            .unwrap_or_default(),
        session: 0,
    };
    let arrived = |number, expires_at, due_at, body| Effect::Arrived {
        to: place(number),
        message: message::Message::arrived(NOW, expires_at, due_at, body).into(),
    };
    let fresh = arrived(201, Timestamp::NEVER, None, raw);
    let arrived = arrived(200, Timestamp::from_ms(2000), due_at, text);
    let leased = Effect::Leased {
        at: place(200),
        lease,
        body: None,
        was: was(Some(1500)),
    };
    let with_body = Effect::Leased {
        at: place(200),
        lease,
        body: Some(Box::new(NewBody::Other {
            body: raw,
            was: body_location(),
        })),
        was: was(None),
    };
    let ended = Effect::Ended {
        at: place(199),
        was: was(Some(500)),
        bodies: Bodies {
            sent: body_location(),
            overlays: Vec::new(),
        },
        source_length: None,
    };
    let range = Effect::Own(storage::OwnEffect::RangeEnded {
        entity: Incarnation::new(QUEUE),
        from: SequenceNumber::new(128),
        until: SequenceNumber::new(201),
    });
    let other = Effect::missing_ended(Place {
        entity: Incarnation::new(QUEUE + 1),
        ..place(1)
    });
    let one = |effect: storage::Effect| {
        Fact::Storage(StorageFact::Messages {
            effects: effect.into(),
        })
    };
    let all = Fact::Storage(StorageFact::Messages {
        effects: [with_body.clone(), fresh.clone(), ended.clone(), other]
            .into_iter()
            .collect(),
    });
    vec![
        (one(arrived), "0f01e907 61 03c801 d00f e807 01 80200aac02"),
        (one(fresh), "0f01e907 01 03c901 02 80200aac02"),
        (one(leased), "0f01e907 22 03c801 02 01 a01f e807"),
        (
            one(with_body),
            "0f01e907 c2 03c801 02 01 a01f 02 80200aac02 80200aac02",
        ),
        (one(ended), "0f01e907 a3 03c701 e707 80200aac02"),
        (one(range), "0f01e907 04 038001 c901"),
        (
            all,
            "0f01e907 c2 03c801 02 01 a01f 02 80200aac02 80200aac02 \
             11 02 02 80200aac02 b3 03 e707 80200aac02 03 0401",
        ),
    ]
}

fn bus_options() -> BusQueueOptions {
    BusQueueOptions {
        lock_duration_ms: 60_000,
        max_delivery_count: 10,
        default_time_to_live_ms: u64::MAX,
        requires_session: true,
        duplicate_window_ms: Some(20_000),
        dead_letters_expired: false,
        auto_delete_on_idle_ms: 300_000,
        forward_to: None,
        forward_dead_letters_to: Some("dead".into()),
        status: EntityStatus::SendDisabled,
        size_bytes_max: 1000,
        message_size_bytes_max: 100,
        description: Box::from(*b"text"),
        filters_before_publishing: false,
        dead_letters_filter_failures: false,
    }
}

const BUS_OPTIONS: &str =
    "e0d403 0a ffffffffffffffffff01 01 01a09c01 00 e0a712 00 010464656164 03 e807 64 0474657874";

/// The same for bus queues.
fn bus_golden() -> Vec<(Fact, String)> {
    let queue = Incarnation::new(QUEUE);
    let until = Timestamp::from_ms(1000);
    let body = body_location();
    let name = EntityName {
        service: Service::ServiceBus,
        account: "ns".into(),
        name: "jobs".into(),
    };
    let options = bus_options();
    let flagged = |filters_before_publishing, dead_letters_filter_failures| BusQueueOptions {
        filters_before_publishing,
        dead_letters_filter_failures,
        ..bus_options()
    };
    let topic = |before, failures| BusFact::TopicCreated {
        topic: queue,
        name: name.clone(),
        options: flagged(before, failures),
    };
    let subscription = |before, failures| BusFact::SubscriptionCreated {
        subscription: queue,
        name: name.clone(),
        options: flagged(before, failures),
        of: Incarnation::new(5),
    };
    let updated = |before, failures| BusFact::EntityUpdated {
        entity: queue,
        options: flagged(before, failures),
        ids_from: Timestamp::from_ms(1000),
    };
    let created = BusFact::QueueCreated {
        queue,
        name: name.clone(),
        options: options.clone(),
    };
    let session = || BusSession {
        number: 7,
        id: "s".into(),
    };
    let mut golden: Vec<(BusFact, String)> = vec![
        (
            created,
            format!("40 01e90703 02026e73046a6f6273 {BUS_OPTIONS}"),
        ),
        (
            topic(false, false),
            format!("56 01e90703 02026e73046a6f6273 {BUS_OPTIONS} 00"),
        ),
        (
            topic(true, false),
            format!("56 01e90703 02026e73046a6f6273 {BUS_OPTIONS} 01"),
        ),
        (
            subscription(false, true),
            format!("57 01e90703 02026e73046a6f6273 {BUS_OPTIONS} 02 05 00"),
        ),
        (
            subscription(true, true),
            format!("57 01e90703 02026e73046a6f6273 {BUS_OPTIONS} 03 05 00"),
        ),
        (
            BusFact::QueueUpdated {
                queue,
                options,
                ids_from: Timestamp::from_ms(1000),
            },
            format!("51 01e90703 {BUS_OPTIONS} e907"),
        ),
        (
            updated(false, false),
            format!("59 01e90703 {BUS_OPTIONS} 00 e907"),
        ),
        (
            updated(true, false),
            format!("59 01e90703 {BUS_OPTIONS} 01 e907"),
        ),
        (
            updated(false, true),
            format!("59 01e90703 {BUS_OPTIONS} 02 e907"),
        ),
    ];
    let added = |id, name: &str| AddedRule {
        id,
        name: name.into(),
        definition: Box::from([1, 0, 0]),
    };
    let rules = |retired: &[u64], added: Vec<AddedRule>| BusFact::RulesChanged {
        topic: queue,
        subscription: Incarnation::new(9),
        from: SequenceNumber::new(300),
        retired: retired.to_vec(),
        added,
    };
    let rest = [
        (
            rules(&[], vec![added(7, "Red")]),
            "58 01e90703 09 ac02 00 01 07 03526564 03010000",
        ),
        (
            rules(&[1, 200], vec![added(7, "a"), added(8, "b")]),
            "58 01e90703 09 ac02 02 01 c801 02 07 0161 03010000 08 0162 03010000",
        ),
        (rules(&[7], Vec::new()), "58 01e90703 09 ac02 01 07 00"),
        // The rule `$Default` of a creation.
        (rules(&[0], Vec::new()), "58 01e90703 09 ac02 01 00 00"),
        (BusFact::QueueDeleted { queue }, "42 01e90703"),
        (
            BusFact::SessionLocked {
                queue,
                session: session(),
                generation: LeaseGeneration::new(4),
                until,
            },
            "53 01e90703 070173 04 e907",
        ),
        (
            BusFact::SessionRenewed {
                queue,
                session: "s".into(),
                until,
            },
            "4b 01e90703 0173 e907",
        ),
        (
            BusFact::SessionStateSet {
                queue,
                session: session(),
                was: None,
                state: Some(body),
            },
            "54 01e90703 070173 00 0180200aac02",
        ),
        (
            BusFact::SessionStateSet {
                queue,
                session: session(),
                was: Some(body),
                state: None,
            },
            "54 01e90703 070173 0180200aac02 00",
        ),
        (BusFact::Used { queue }, "4e 01e90703"),
    ];
    golden.extend(rest.map(|(fact, bytes)| (fact, bytes.to_owned())));
    golden
        .into_iter()
        .map(|(fact, bytes)| (Fact::Bus(fact), bytes))
        .collect()
}

fn bus_effects_golden() -> Vec<(Fact, &'static str)> {
    let ms = Timestamp::from_ms;
    let standing = |state, until| Standing { state, until };
    let body = body_location();
    let overlay = |record| body.at_record(record);
    let session = Some(BusSession {
        number: 7,
        id: "s".into(),
    });
    let plain = Message::from(sent(NOW, Timestamp::NEVER, None, body));
    let scheduled = Message::new(
        sent(NOW, ms(2000), Some(ms(1500)), body),
        session.clone(),
        Rest {
            id_hash: Some(1),
            ..Rest::default()
        },
    );
    let dead = Message::new(
        Record {
            generation: LeaseGeneration::new(3),
            deliveries: 2,
            cause: Some(DeadLetterCause::ByReceiver),
            hops: 1,
            ..plain.record
        },
        session.clone(),
        Rest {
            side: Side {
                first_number: Some(SequenceNumber::new(9)),
                source: Some("q".into()),
                overlays: vec![overlay(4200), overlay(4201)],
            },
            ..Rest::default()
        },
    );
    let failed = |cause| {
        let dead = dead.clone();
        let cause = Some(cause);
        let record = Record {
            cause,
            ..dead.record
        };
        Message { record, ..dead }
    };
    // A message of a topic, in the first of its subscriptions and in three others.
    let of_topic = Message::new(
        sent(NOW, ms(2000), None, body),
        session,
        Rest {
            side: Side {
                first_number: Some(SequenceNumber::new(9)),
                ..Side::default()
            },
            ..Rest::default()
        },
    );
    let copy = |entity, number, expires_at, session| Effect::Arrived {
        to: Place {
            entity: Incarnation::new(entity),
            number: SequenceNumber::new(number),
        },
        message: Message {
            record: Record {
                expires_at,
                session,
                ..of_topic.record
            },
            rest: of_topic.rest.clone(),
        },
    };
    let arrived = |number, message: &Message| Effect::Arrived {
        to: place(number),
        message: message.clone(),
    };
    let lease = |standing| Lease {
        generation: LeaseGeneration::new(3),
        deliveries: 1,
        standing,
    };
    let locked = standing(BusMessageState::Locked { deferred: false }, ms(3000));
    let of_session = standing(BusMessageState::Locked { deferred: true }, Timestamp::NEVER);
    let deferred = standing(BusMessageState::Deferred, Timestamp::NEVER);
    let leased = |number, to, overlay, was, session| Effect::Leased {
        at: place(number),
        lease: lease(to),
        body: Option::map(overlay, |overlay| Box::new(NewBody::Change(overlay))),
        was: Was {
            standing: was,
            session,
        },
    };
    let ended = |number, was, session, overlays, source_length| Effect::Ended {
        at: place(number),
        was: Was {
            standing: was,
            session,
        },
        bodies: Bodies {
            sent: body,
            overlays,
        },
        source_length,
    };
    let queue = Incarnation::new(QUEUE);
    let id = || Box::<str>::from("s");
    let releasing = Effect::Own(bus::OwnEffect::SessionReleasing {
        queue,
        session: id(),
    });
    let freed = Effect::Own(bus::OwnEffect::SessionFreed {
        queue,
        session: id(),
    });
    let passed = |number, id_hash| {
        Effect::Own(bus::OwnEffect::Passed {
            topic: place(number),
            id_hash,
        })
    };
    let fanned_out = |number, (subscription, rule), lent| {
        Effect::Own(bus::OwnEffect::FannedOut {
            topic: place(number),
            next: NextCopy {
                subscription: Incarnation::new(subscription),
                rule,
            },
            lent,
        })
    };
    let ready = Standing::default();
    let expiring = Standing::ready(ms(2000));
    [
        (vec![arrived(200, &plain)], "5201e907 01 03c801 80200aac02"),
        (vec![arrived(200, &scheduled)], "5201e907 71 03c801 03 d00f e807 80200aac02 070173 00000000000000000000000000000001"),
        (vec![arrived(200, &dead)], "5201e907 41 03c801 fd 80200aac02 02680aac02010aac02 070173 09 0302 05 01 0171"),
        (
            vec![arrived(200, &failed(DeadLetterCause::TransferFailed))],
            "5201e907 41 03c801 fd 80200aac02 02680aac02010aac02 070173 09 0302 09 01 0171",
        ),
        (
            vec![arrived(200, &failed(DeadLetterCause::TransferNeedsSession))],
            "5201e907 41 03c801 fd 80200aac02 02680aac02010aac02 070173 09 0302 0a 01 0171",
        ),
        (vec![leased(200, locked, None, ready, 0)], "5201e907 22 03c801 21 0301 a01f"),
        (vec![leased(200, of_session, None, deferred, 7)], "5201e907 32 03c801 15 07 0301"),
        (vec![leased(200, expiring, Some(body), locked, 7)], "5201e907 12 03c801 7a a01f 07 0301 d00f 80200aac02"),
        (vec![ended(200, locked, 0, Vec::new(), None)], "5201e907 03 03c801 0a a01f 80200aac02"),
        (
            vec![ended(200, expiring, 7, vec![overlay(4200)], Some(5))],
            "5201e907 03 03c801 79 d00f 07 80200aac02 01680aac02 05",
        ),
        (
            vec![
                arrived(201, &dead),
                ended(200, of_session, 7, vec![overlay(4200)], None),
                leased(202, ready, None, locked, 0),
            ],
            "5201e907 41 03c901 fd 80200aac02 02680aac02010aac02 070173 09 0302 05 01 0171 1b01 33 07 01 1a04 0a a01f 0301",
        ),
        (vec![passed(200, None)], "5201e907 07 01 03c801"),
        (
            vec![passed(200, None), passed(201, Some(1)), arrived(202, &plain)],
            "5201e907 07 01 03c801 1f 01 02 00000000000000000000000000000001 09 02 80200aac02",
        ),
        (vec![fanned_out(200, (300, 5), false)], "5201e907 07 02 03c801 ac02 05"),
        (vec![fanned_out(200, (300, 5), true)], "5201e907 17 02 03c801 ac02 05"),
        (
            vec![passed(200, None), fanned_out(201, (6, 1 << 63), false)],
            "5201e907 07 01 03c801 0f 02 02 06 80808080808080808001",
        ),
        (
            vec![
                arrived(200, &of_topic),
                copy(QUEUE + 3, 201, ms(2000), 7),
                copy(QUEUE + 3, 202, ms(1500), 7),
                copy(QUEUE, 3, Timestamp::NEVER, 300),
            ],
            "5201e907 51 03c801 05 d00f 80200aac02 070173 09 06 06 02 1e 02 e807 66 05 8d03 ac02",
        ),
        (
            vec![releasing, leased(200, ready, None, of_session, 7), freed],
            "5201e907 04 03 0173 12 03c801 13 07 0301 05 03 0173",
        ),
    ]
    .map(|(effects, bytes)| {
        let effects = effects.into();
        (Fact::Bus(BusFact::Messages { effects }), bytes)
    })
    .into()
}

fn moved(record: u64, offset: u32, length: u32, to: u32) -> BodyMove {
    let from = BodyLocation::new(record, offset, length);
    let to = BodyLocation::new(8192, to, length);
    BodyMove { from, to }
}

fn place_of(number: u64) -> Place {
    Place {
        entity: Incarnation::new(QUEUE),
        number: SequenceNumber::new(number),
    }
}

fn stored_moves_golden() -> [(Fact, &'static str); 2] {
    let of = |number, record: Record| MovedOf::Message {
        at: place_of(number),
        message: record.into(),
    };
    let fresh = Moved {
        body: moved(4096, 10, 300, 10),
        of: of(
            7,
            Record {
                due_at: Timestamp::from_ms(500),
                generation: LeaseGeneration::FIRST,
                ..Record::ready(Timestamp::from_ms(500), moved(4096, 10, 300, 10).from)
            },
        ),
    };
    let leased = Moved {
        body: moved(4000, 10, 300, 400),
        of: of(
            6,
            Record {
                expires_at: Timestamp::from_ms(1400),
                due_at: Timestamp::from_ms(1100),
                generation: LeaseGeneration::new(3),
                deliveries: 2,
                state: message::state(true),
                encoding: BodyEncoding::Raw,
                ..Record::ready(Timestamp::from_ms(400), moved(4000, 10, 300, 400).from)
            },
        ),
    };
    let moves = vec![fresh, leased];
    let none = StorageFact::BodiesMoved { moves: Vec::new() };
    [
        (
            Fact::Storage(StorageFact::BodiesMoved { moves }),
            "1101e907 01 03 07 e707 00 01 00 01 8040 0a ac02 808001 0a \
             71 01 af09 d00f f80a 03 02 02 bf01 0a ac02 00 9003",
        ),
        (Fact::Storage(none), "1101e907"),
    ]
}

/// Moves of a ready message, of a locked one of a session, of its changed properties, and of the session's state.
fn bus_moves_golden() -> [(Fact, &'static str); 2] {
    let session = BusSession {
        number: 2,
        id: "s".into(),
    };
    let locked = Message::new(
        Record {
            generation: LeaseGeneration::new(4),
            deliveries: 1,
            expires_at: Timestamp::from_ms(2000),
            state: BusMessageState::Locked { deferred: false },
            due_at: Timestamp::from_ms(1500),
            ..Record::ready(Timestamp::from_ms(400), moved(4000, 10, 300, 400).from)
        },
        Some(session.clone()),
        Rest {
            side: Side {
                overlays: vec![moved(4000, 20, 30, 0).from],
                ..Side::default()
            },
            ..Rest::default()
        },
    );
    let ready = Record::ready(Timestamp::from_ms(500), moved(4096, 10, 300, 10).from);
    let moves = vec![
        Moved {
            body: moved(4096, 10, 300, 10),
            of: MovedOf::Message {
                at: place_of(7),
                message: ready.into(),
            },
        },
        Moved {
            body: moved(4000, 10, 300, 400),
            of: MovedOf::Message {
                at: place_of(6),
                message: locked,
            },
        },
        Moved {
            body: moved(4000, 20, 30, 800),
            of: MovedOf::Own(OwnHolder::Change { at: place_of(6) }),
        },
        Moved {
            body: moved(4096, 10, 300, 1200),
            of: MovedOf::Own(OwnHolder::State {
                queue: Incarnation::new(QUEUE),
                session,
                set_at: Timestamp::from_ms(900),
            }),
        },
    ];
    let none = BusFact::BodiesMoved { moves: Vec::new() };
    [
        (
            Fact::Bus(BusFact::BodiesMoved { moves }),
            "5501e907 01 e707 01 01 03 07 00 00 00 8040 0a ac02 808001 0a \
             01 af09 0a e807 59 01 89 d00f 00 00 00 01 a01f 14 1e 02 0173 04 01 bf01 0a ac02 00 9003 \
             12 00 00 14 1e 00 a006 \
             03 03 02 0173 c701 c001 0a ac02 00 b009",
        ),
        (Fact::Bus(none), "5501e907"),
    ]
}

/// Every event there is, with its bytes.
fn all_golden() -> impl Iterator<Item = (Fact, String)> {
    let others = golden().into_iter().chain(effects_golden());
    let others = others.chain(bus_effects_golden());
    let others = others.chain(stored_moves_golden());
    let others = others.chain(bus_moves_golden());
    others
        .map(|(fact, bytes)| (fact, bytes.to_owned()))
        .chain(bus_golden())
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
    for (fact, bytes) in all_golden() {
        let event = Event { at: NOW, fact };
        let mut encoded = Vec::new();
        event.encode(&mut encoded);
        assert_eq!(encoded, hex(&bytes), "{event:?}");
        assert_eq!(Event::decode(&encoded), Ok(event));
    }
}

fn count_of(fact: &Fact) -> usize {
    let at = Timestamp::ZERO;
    let fact = fact.clone();
    Event { at, fact }.effect_count()
}

#[test]
fn every_truncation_and_every_excess_is_an_error() {
    for (fact, bytes) in all_golden() {
        let mut bytes = hex(&bytes);
        for cut in 0..bytes.len() {
            let shorter = Event::decode(&bytes[..cut]);
            // Effects go on to the end of an event, so it may end after any of them.
            let ends_early = |event: &Event| event.effect_count() < count_of(&fact);
            assert!(shorter.as_ref().map_or(true, ends_early), "{shorter:?}");
        }
        bytes.push(0);
        assert!(Event::decode(&bytes).is_err());
    }
}

#[test]
fn wrong_effects_are_refused() {
    for (bytes, error) in [
        (
            "0f01e907 05 0301",
            "effect that is not known at byte 5 of 7",
        ),
        (
            "0f01e907 24 030102",
            "flag of an effect that is not known at byte 5 of 8",
        ),
        (
            "0f01e907 81 0301",
            "flag of an effect that is not known at byte 5 of 7",
        ),
        (
            "0f01e907 13 02",
            "effect on the entity of no effect before it at byte 5 of 6",
        ),
        (
            "0f01e907 03 0301 13 03",
            "sequence number out of range at byte 9 of 9",
        ),
    ] {
        assert_eq!(Event::decode(&hex(bytes)).unwrap_err().to_string(), error);
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
    fn decoding_never_panics(mut bytes: Vec<u8>, kind in prop_oneof![0u8..19, 15u8..16, 17u8..18, 62u8..90, 85u8..86]) {
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
