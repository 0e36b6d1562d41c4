//! What is left of a snapshot of which pages are lost.

use std::collections::BTreeSet;

use super::pages::{ENTITY, Queue};
use crate::snapshot::pages::kind;
use crate::snapshot::{DecodedPage, RestoringPages};
use crate::state::State;
use crate::vocabulary::codec::DecodeError;
use crate::vocabulary::{Incarnation, SequenceNumber, Service};

/// A queue whose runs have pages from before some of their messages were leased or deleted, and another one with messages
/// in its directory alone.
fn queue() -> Queue {
    let mut queue = Queue::new();
    queue.create(ENTITY, "queue");
    queue.put(1..3000);
    queue.snapshot();
    queue.lease(1030..1040);
    queue.delete(1..6);
    queue.snapshot();
    queue
}

struct Left {
    state: State,
    lost: Vec<u64>,
    result: Result<(), DecodeError>,
}

/// Restores some of the pages.
fn restore(queue: &Queue, is_there: impl Fn(usize) -> bool) -> Left {
    let (parts, pages) = queue.written();
    let mut state = State::new();
    for part in parts {
        state.restore(part).unwrap();
    }
    let mut restoring = RestoringPages::partial();
    let mut result = Ok(());
    for (index, (page, bytes)) in pages.iter().enumerate() {
        if is_there(index) {
            let groups: Vec<&[u8]> = bytes.groups.iter().map(Vec::as_slice).collect();
            let restored = state.restore_page(&mut restoring, *page, bytes.kind, &groups);
            result = result.and(restored);
        }
    }
    result = result.and(state.complete_pages(&mut restoring));
    let lost = restoring.take_lost();
    let lost = lost.iter().map(|place| place.number.as_u64()).collect();
    state.finish_pages(restoring).unwrap();
    Left {
        state,
        lost,
        result,
    }
}

fn numbers(state: &State) -> BTreeSet<u64> {
    let messages = state.messages();
    messages.map(|it| it.sequence_number.as_u64()).collect()
}

#[test]
fn whatever_pages_are_lost_all_that_the_others_have_is_restored() {
    let queue = queue();
    let (_, pages) = queue.written();
    let kinds: Vec<u8> = pages.iter().map(|(_, bytes)| bytes.kind).collect();
    let run = kind::RUN;
    assert_eq!(kinds, [kind::HEADS, kind::DIRECTORY, run, run, run]);
    let runs = [1..1024, 1024..2048, 2048..3000];
    for there in 0..1_u32 << pages.len() {
        let is_there = |index: usize| there >> index & 1 == 1;
        let left = restore(&queue, is_there);
        let (mut expected, mut lost) = (BTreeSet::new(), Vec::new());
        for (index, numbers) in runs.iter().enumerate() {
            let has_page = is_there(2 + index);
            for number in numbers.clone() {
                let (is_gone, is_here) = (number < 6, (1030..1040).contains(&number));
                // Only the directory says which messages are gone.
                let is_left = match is_there(1) {
                    false => has_page,
                    true => !is_gone && (has_page || is_here),
                };
                if is_left {
                    expected.insert(number);
                } else if is_there(1) && !is_gone {
                    lost.push(number);
                }
            }
        }
        assert_eq!(left.lost, lost, "{there:b}");
        let has_messages = !expected.is_empty();
        if !is_there(0) {
            expected.clear();
        }
        assert_eq!(numbers(&left.state), expected, "{there:b}");
        // Nothing fails in silence.
        let is_failed = !is_there(0) && (has_messages || is_there(1));
        assert_eq!(left.result.is_err(), is_failed, "{there:b}");
        left.state.check_live_bytes();
    }
}

#[test]
fn with_all_pages_it_is_the_state() {
    let queue = queue();
    let left = restore(&queue, |_| true);
    assert!(left.state == queue.state);
    let next = left.state.next_sequence_number(Incarnation::new(ENTITY));
    assert_eq!(next, Some(SequenceNumber::new(3000)));
}

#[test]
fn messages_say_whose_they_are_if_their_queue_is_lost() {
    let queue = queue();
    let (parts, pages) = queue.written();
    let (_, bytes) = &pages[2];
    let groups: Vec<&[u8]> = bytes.groups.iter().map(Vec::as_slice).collect();
    let page = DecodedPage::decode(bytes.kind, &groups).unwrap();
    assert_eq!(page.entity(), Some(Incarnation::new(ENTITY)));
    let mut state = State::new();
    for part in parts {
        state.restore(part).unwrap();
    }
    let mut restoring = RestoringPages::partial();
    assert_eq!(
        state.service_of_page(&restoring, &page),
        Service::QueueStorage
    );
    // The storage queues of that group are there, and it is none of them.
    let (number, heads) = &pages[0];
    state
        .restore_page(&mut restoring, *number, heads.kind, &[&heads.groups[0]])
        .unwrap();
    assert_eq!(
        state.service_of_page(&restoring, &page),
        Service::ServiceBus
    );
}
