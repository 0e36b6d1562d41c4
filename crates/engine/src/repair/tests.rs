//! States with gaps in their history, made whole as far as they can be.

use super::*;
use crate::effect::{Bodies, Lease, Was};
use crate::storage::message::{Message, until};
use crate::storage::{Effect, Metadata, OwnEffect};
use crate::table::{BodyEncoding, Placed};

fn queue(number: u64) -> Incarnation {
    Incarnation::new(number)
}

fn created(number: u64, name: &str) -> Event {
    event(Fact::Storage(StorageFact::QueueCreated {
        queue: queue(number),
        name: EntityName::storage_queue("acct", name),
        metadata: Metadata::default(),
    }))
}

fn place(number: u64, sequence_number: u64) -> Place {
    Place {
        entity: queue(number),
        number: SequenceNumber::new(sequence_number),
    }
}

/// When each event happens.
const NOW: Timestamp = Timestamp::from_ms(5);

const BODY: BodyLocation = BodyLocation::new(4096, 6, 1);

fn sent(number: u64, sequence_number: u64) -> Event {
    let body = Placed {
        encoding: BodyEncoding::Text,
        location: BODY,
    };
    let expires_at = Timestamp::from_ms(9000);
    happened(Effect::Arrived {
        to: place(number, sequence_number),
        message: Message::arrived(NOW, expires_at, None, body).into(),
    })
}

/// A message that was never received is deleted.
fn deleted(number: u64, sequence_number: u64) -> Event {
    happened(Effect::Ended {
        at: place(number, sequence_number),
        was: Was::default(),
        bodies: Bodies {
            sent: BODY,
            overlays: Vec::new(),
        },
        source_length: None,
    })
}

fn happened(effect: Effect) -> Event {
    let effects = effect.into();
    event(Fact::Storage(StorageFact::Messages { effects }))
}

fn event(fact: Fact) -> Event {
    Event { at: NOW, fact }
}

fn state(events: impl IntoIterator<Item = Event>) -> State {
    let mut state = State::new();
    for event in events {
        state.apply(event);
    }
    state
}

fn numbers(state: &State) -> Vec<(u64, u64)> {
    let messages = state.messages();
    messages
        .map(|m| (m.queue.as_u64(), m.sequence_number.as_u64()))
        .collect()
}

/// What a repair makes is an ordinary state: its snapshot restores to the same.
fn check_ordinary(state: &State) {
    state.check_live_bytes();
    let mut restored = State::new();
    state.snapshot(|part| restored.restore(part).unwrap());
    assert_eq!(&restored, state);
}

#[test]
fn two_readings_of_one_history_make_up_for_each_other() {
    // One has lost the second queue, the other some messages of the first.
    let mut one = state([created(1, "a"), sent(1, 1), sent(1, 2), sent(1, 300)]);
    let other = state([
        created(1, "a"),
        created(2, "b"),
        sent(1, 2),
        sent(1, 3),
        sent(2, 1),
    ]);
    assert!(one.absorb(other).is_empty());
    assert_eq!(numbers(&one), [(1, 1), (1, 2), (1, 3), (1, 300), (2, 1)]);
    assert_eq!(one.next_sequence_number(queue(1)).unwrap().as_u64(), 301);
    assert_eq!(one.next_deadline(), Some(Timestamp::from_ms(9000)));
    check_ordinary(&one);
    one.apply(created(3, "c"));
    assert_eq!(one.queues().count(), 3);
}

#[test]
fn of_two_queues_with_one_name_the_first_reading_decides() {
    let mut one = state([created(2, "a"), sent(2, 1)]);
    let other = state([created(1, "a"), sent(1, 1)]);
    let name = EntityName::storage_queue("acct", "a");
    assert_eq!(one.absorb(other), [name]);
    assert_eq!(numbers(&one), [(2, 1)]);
    check_ordinary(&one);
}

#[test]
fn a_stand_in_takes_messages_and_gets_the_name_that_is_found() {
    let mut state = state([created(1, "a")]);
    let stand_in = EntityName::storage_queue("acct", "recovered-5");
    state.stand_in(queue(5), stand_in.clone(), Timestamp::from_ms(1));
    state.apply(sent(5, 77));
    assert_eq!(numbers(&state), [(5, 77)]);
    assert_eq!(state.queue_name(queue(5)), Some(&stand_in));
    state.rename(queue(5), EntityName::storage_queue("acct", "a"));
    assert_eq!(state.queue_name(queue(5)), Some(&stand_in), "a is taken");
    state.rename(queue(5), EntityName::storage_queue("acct", "b"));
    assert!(state.has_entity(&EntityName::storage_queue("acct", "b")));
    assert!(!state.has_entity(&stand_in));
    check_ordinary(&state);
}

#[test]
fn numbers_that_may_have_been_used_are_skipped() {
    let mut state = state([created(1, "a"), sent(1, 1), sent(1, 2), deleted(1, 1)]);
    let before = state.storage[&queue(1)].backlog.messages().next();
    let generation = before.unwrap().1.generation.as_u32();
    state.skip_numbers(Skip::GAP);
    assert_eq!(numbers(&state), [(1, 2)]);
    assert!(state.holds(queue(1), SequenceNumber::new(2)));
    let (_, message) = state.storage[&queue(1)].backlog.messages().next().unwrap();
    assert!(message.generation.as_u32() > generation + 1000);
    assert!(state.next_sequence_number(queue(1)).unwrap().as_u64() > 1 << 32);
    assert!(state.catalogue.next_incarnation.as_u64() > 1000);
    check_ordinary(&state);
    // And it goes on as before.
    let next = state.next_sequence_number(queue(1)).unwrap().as_u64();
    state.apply(sent(1, next));
    assert_eq!(numbers(&state), [(1, 2), (1, next)]);
    check_ordinary(&state);
}

#[test]
fn more_numbers_are_skipped_after_a_backup_than_after_a_gap() {
    let mut state = state([created(1, "a"), sent(1, 1)]);
    state.skip_numbers(Skip::BACKUP);
    let next = state.next_sequence_number(queue(1)).unwrap().as_u64();
    assert!(next > 1 << 40);
    assert!(state.catalogue.next_incarnation.as_u64() > 1 << 24);
    let (_, message) = state.storage[&queue(1)].backlog.messages().next().unwrap();
    assert!(message.generation.as_u32() > 1 << 24);
    check_ordinary(&state);
}

#[test]
fn an_event_after_a_gap_is_fitted_to_the_messages_that_are_there() {
    // The gap has hidden that the message was received, with another body.
    let mut after = state([created(1, "a"), sent(1, 1), sent(1, 2)]);
    let renewed = Effect::Leased {
        at: place(1, 1),
        lease: Lease {
            generation: LeaseGeneration::new(7),
            deliveries: 3,
            standing: until(Timestamp::from_ms(400)),
        },
        body: None,
        was: Was {
            standing: until(Timestamp::from_ms(300)),
            session: 0,
        },
    };
    assert!(!after.storage.is_exact(&renewed));
    let fitted = after.storage.fitting(renewed.clone());
    assert!(fitted.iter().all(|effect| after.storage.is_exact(effect)));
    after.apply_fitting(happened(renewed));
    check_ordinary(&after);
    let message = after.storage[&queue(1)]
        .backlog
        .find(SequenceNumber::new(1));
    assert_eq!(message.unwrap().generation.as_u32(), 7);
    // A run that ends as a whole had no leased message, as far as that version knew.
    let expired = happened(Effect::Own(OwnEffect::RangeEnded {
        entity: queue(1),
        from: SequenceNumber::new(2),
        until: SequenceNumber::new(3),
    }));
    assert!(!after.is_described_by(&expired.fact));
    after.apply_fitting(expired);
    assert_eq!(numbers(&after), [(1, 1)]);
    assert_eq!(after.usage_of("acct").size_bytes, 129);
    // What is not there needs no fitting.
    let gone = Effect::missing_ended(place(1, 2));
    assert_eq!(after.storage.fitting(gone.clone()), [gone]);
}
