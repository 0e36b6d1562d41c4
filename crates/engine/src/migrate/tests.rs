//! Old events are read, and mean what they meant.

mod bus;
mod old;

use std::collections::BTreeMap;

use proptest::prelude::*;

use self::old::OldQueue;
use super::storage::{OLD_RUN_LENGTH, OldFact};
use super::*;
use crate::event::Fact;
use crate::storage::{Effect, Metadata, StorageFact};
use crate::table::{BodyEncoding, Placed, RunLength};
use crate::vocabulary::{BodyLocation, EntityName, Incarnation, Place, SequenceNumber, Timestamp};

fn place(queue: u64, number: u64) -> Place {
    Place {
        entity: Incarnation::new(queue),
        number: SequenceNumber::new(number),
    }
}

fn body(length: u32) -> Placed {
    Placed {
        encoding: BodyEncoding::Text,
        location: BodyLocation::new(4096, 10, length),
    }
}

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(|byte| *byte != b' ').collect();
    let pair = |pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(pair).collect()
}

/// The bytes never change: they are in logs.
#[test]
fn every_old_event_is_read() {
    let at = place(3, 200);
    let visible_at = Timestamp::from_ms(1000);
    let queue = at.entity;
    let raw = Placed {
        encoding: BodyEncoding::Raw,
        ..body(300)
    };
    for (fact, bytes) in [
        (
            OldFact::MessageSent {
                at,
                expires_at: Timestamp::NEVER,
                visible_at,
                body: body(300),
            },
            "0501e90703c80100e907018020 0aac02",
        ),
        (
            OldFact::MessageReceived { at, visible_at },
            "0601e90703c801e907",
        ),
        (
            OldFact::MessageUpdated {
                at,
                visible_at,
                body: None,
            },
            "0701e90703c801e90700",
        ),
        (
            OldFact::MessageUpdated {
                at,
                visible_at,
                body: Some(raw),
            },
            "0701e90703c801e90701028020 0aac02",
        ),
        (OldFact::MessageDeleted { at }, "0801e90703c801"),
        (
            OldFact::QueueCleared {
                queue,
                before: at.number,
            },
            "0901e90703c801",
        ),
        (OldFact::RunExpired { queue, run: 5 }, "0a01e9070305"),
    ] {
        let mut bytes = hex(bytes);
        let now = Timestamp::from_ms(1000);
        assert_eq!(fact.encode(now), bytes);
        let mut r = Reader::new(&bytes);
        let (kind, at) = head(&mut r).unwrap();
        assert_eq!(OldFact::decode(kind, &mut r), Ok(fact));
        let state = State::new();
        let event = state.read_event(&bytes).unwrap();
        assert_eq!((at, event.at), (now, now));
        for cut in 0..bytes.len() {
            assert!(state.read_event(&bytes[..cut]).is_err());
        }
        // They are not written any more.
        assert!(Event::decode(&bytes).is_err());
        bytes.push(0);
        assert!(state.read_event(&bytes).is_err());
    }
}

/// Earlier versions had runs of 128, and said so neither in the log nor in a snapshot.
#[test]
fn a_partition_that_does_not_tell_the_length_of_its_runs_keeps_it() {
    let secret = "ab".repeat(16);
    let state = State::new();
    let initialized = state
        .read_event(&hex(&format!("0101e907{secret}")))
        .unwrap();
    let expected = Fact::PartitionInitialized {
        secret: [0xab; 16],
        run_length: RunLength::UNTOLD,
    };
    assert_eq!(initialized.fact, expected);
    for (part, length) in [
        (format!("010101{secret}07e907"), RunLength::UNTOLD),
        (format!("010201{secret}07e907 8008"), RunLength::DEFAULT),
        (format!("010201{secret}07e907 04"), RunLength::TINY),
    ] {
        let mut state = State::new();
        state.restore(&hex(&part)).unwrap();
        assert_eq!(state.catalogue.run_length, length);
    }
    for part in [
        format!("010201{secret}07e907"),
        format!("010201{secret}07e907 05"),
        format!("010201{secret}07e907 8010"),
        format!("010301{secret}07e907 04"),
    ] {
        assert!(State::new().restore(&hex(&part)).is_err());
    }
}

fn number() -> impl Strategy<Value = u64> {
    prop_oneof![8 => 1_u64..40, 1 => 100_u64..300]
}

/// Any old event about one of two queues.
fn old_fact() -> impl Strategy<Value = OldFact> {
    let later = || prop_oneof![Just(0_u64), 0_u64..100];
    let ms = Timestamp::from_ms;
    (0_u8..10, 1_u64..3, number(), later(), later(), 0_u32..500).prop_map(
        move |(kind, queue, number, visible, expires, length)| {
            let at = place(queue, number);
            let visible_at = ms(visible);
            match kind {
                0..=3 => OldFact::MessageSent {
                    at,
                    expires_at: if expires == 0 {
                        Timestamp::NEVER
                    } else {
                        ms(expires)
                    },
                    visible_at,
                    body: body(length),
                },
                4..=5 => OldFact::MessageReceived { at, visible_at },
                6 => OldFact::MessageUpdated {
                    at,
                    visible_at,
                    body: (length % 2 == 0).then(|| body(length)),
                },
                7 => OldFact::MessageDeleted { at },
                8 if length % 8 == 0 => OldFact::QueueCleared {
                    queue: at.entity,
                    before: at.number,
                },
                _ => OldFact::RunExpired {
                    queue: at.entity,
                    run: number / OLD_RUN_LENGTH,
                },
            }
        },
    )
}

/// The times of a fact are differences to the event's time in the strategy. With `next`, a send has that number
/// or one a little above.
fn settle(now: Timestamp, fact: OldFact, next: Option<u64>) -> OldFact {
    let after = |time: Timestamp| now.plus_ms(time.as_ms());
    match fact {
        OldFact::MessageSent {
            at,
            expires_at,
            visible_at,
            body,
        } => OldFact::MessageSent {
            at: match next {
                Some(next) => place(at.entity.as_u64(), next + at.number.as_u64() / 30),
                None => at,
            },
            expires_at: after(expires_at),
            visible_at: after(visible_at),
            body,
        },
        OldFact::MessageReceived { at, visible_at } => OldFact::MessageReceived {
            at,
            visible_at: after(visible_at),
        },
        OldFact::MessageUpdated {
            at,
            visible_at,
            body,
        } => OldFact::MessageUpdated {
            at,
            visible_at: after(visible_at),
            body,
        },
        OldFact::MessageDeleted { .. }
        | OldFact::QueueCleared { .. }
        | OldFact::RunExpired { .. } => fact,
    }
}

fn created(queue: u64) -> Event {
    Event {
        at: Timestamp::from_ms(1),
        fact: Fact::Storage(StorageFact::QueueCreated {
            queue: Incarnation::new(queue),
            name: EntityName::storage_queue("acct", format!("queue{queue}")),
            metadata: Metadata::default(),
        }),
    }
}

fn entity_of(fact: &OldFact) -> Incarnation {
    match fact {
        OldFact::MessageSent { at, .. }
        | OldFact::MessageReceived { at, .. }
        | OldFact::MessageUpdated { at, .. }
        | OldFact::MessageDeleted { at } => at.entity,
        OldFact::QueueCleared { queue, .. } | OldFact::RunExpired { queue, .. } => *queue,
    }
}

/// The state has what the model has, and counts it right.
fn check(state: &State, model: &BTreeMap<u64, OldQueue>) {
    state.check_live_bytes();
    let mut size_bytes = 0;
    for (queue, old) in model {
        let backlog = &state.storage[&Incarnation::new(*queue)].backlog;
        let messages = backlog.messages();
        let messages: BTreeMap<_, _> = messages
            .map(|(number, message)| (number.as_u64(), message))
            .collect();
        assert_eq!(messages, old.messages);
        assert_eq!(backlog.next().as_u64(), old.next);
        backlog.check_invariants();
        size_bytes += backlog.size_bytes();
    }
    assert_eq!(state.usage_of("acct").size_bytes, size_bytes);
}

proptest! {
    #[test]
    fn an_upgraded_history_gives_what_it_gave_before(
        history in prop::collection::vec((old_fact(), 0_u64..10), 1..300),
        is_dense: bool,
    ) {
        let mut state = State::new();
        let mut model = BTreeMap::new();
        for queue in 1..3 {
            state.apply(created(queue));
            model.insert(queue, OldQueue::default());
        }
        let mut now = Timestamp::from_ms(1000);
        for (fact, elapsed_ms) in history {
            now = now.plus_ms(elapsed_ms);
            let old = model.get_mut(&entity_of(&fact).as_u64()).unwrap();
            let fact = settle(now, fact, is_dense.then_some(old.next));
            old.apply(now, &fact);
            let bytes = fact.encode(now);
            let event = state.read_event(&bytes).unwrap();
            prop_assert_eq!(event.at, now);
            // Upgrading to what can be written, and is true.
            let mut written = Vec::new();
            event.encode(&mut written);
            prop_assert_eq!(Event::decode(&written), Ok(event.clone()));
            prop_assert!(is_about_missing(&state, &event) || state.is_described_by(&event.fact));
            state.apply(event);
            prop_assert_eq!(state.last_event_at(), now);
        }
        check(&state, &model);
    }
}

/// An old event about a message that is not there says nothing about it.
fn is_about_missing(state: &State, event: &Event) -> bool {
    let Fact::Storage(StorageFact::Messages { effects }) = &event.fact else {
        return false;
    };
    let is_missing = |at: &Place| !state.holds(at.entity, at.number);
    match effects.first() {
        Some(Effect::Leased { at, .. } | Effect::Ended { at, .. }) => is_missing(at),
        Some(_) | None => false,
    }
}
