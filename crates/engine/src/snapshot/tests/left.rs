//! What is left of a snapshot of which pages are lost.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use proptest::prelude::*;

use super::pages::{BUS_QUEUE, ENTITY, Queue, remember};
use crate::bus::{BusFact, Effect};
use crate::effect::{Arrival, BusSession, Rest};
use crate::event::Fact;
use crate::snapshot::pages::kind;
use crate::snapshot::restore_pages::Decoded;
use crate::snapshot::{DecodedPage, PageBytes, RestoringPages};
use crate::state::State;
use crate::table::{Record, RunLength};
use crate::vocabulary::codec::DecodeError;
use crate::vocabulary::{
    BodyLocation, EntityName, Incarnation, Place, SequenceNumber, Service, Timestamp,
};

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

fn decoded(bytes: &PageBytes) -> DecodedPage {
    let groups: Vec<&[u8]> = bytes.groups.iter().map(Vec::as_slice).collect();
    DecodedPage::decode(bytes.kind, &groups).unwrap()
}

/// Restores some of the pages. A queue whose own page is lost is made if `stands_in`, as a repair does.
fn restore(queue: &Queue, is_there: impl Fn(usize) -> bool, stands_in: bool) -> Left {
    let (parts, pages) = queue.written();
    let mut state = State::new();
    for part in parts {
        state.restore(part).unwrap();
    }
    let mut restoring = RestoringPages::partial();
    let mut result = Ok(());
    for (index, (page, bytes)) in pages.iter().enumerate() {
        if !is_there(index) {
            continue;
        }
        let decoded = decoded(bytes);
        if let Some(entity) = decoded.entity()
            && stands_in
        {
            let at = Timestamp::from_ms(1);
            let name = |service, name| EntityName {
                service,
                account: "account".into(),
                name: format!("{name}-{}", entity.as_u64()).into(),
            };
            let service = state.service_of_page(&restoring, &decoded);
            let service = service.unwrap_or(Service::QueueStorage);
            state.stand_in(entity, name(service, "recovered"), at);
            if decoded.is_of_bus() && !state.is_bus_queue(entity) {
                state.change_service(entity, name(Service::ServiceBus, "corrected"), at);
            }
        }
        let restored = state.restore_decoded(&mut restoring, *page, decoded);
        result = result.and(restored);
    }
    result = result.and(state.complete_pages(&mut restoring));
    let lost = restoring.take_lost();
    let lost = lost.iter().map(|place| place.number.as_u64()).collect();
    state.finish_pages(restoring).unwrap();
    state.check_live_bytes();
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

/// Checks that all pages together have these messages, and no others.
pub(super) fn check_whole(queue: &Queue, expected: Range<u64>) {
    let left = restore(queue, |_| true, true);
    assert_eq!((left.result, left.lost), (Ok(()), vec![]));
    assert_eq!(numbers(&left.state), expected.collect());
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
        let left = restore(&queue, is_there, false);
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
    }
}

#[test]
fn with_all_pages_it_is_the_state() {
    let queue = queue();
    let left = restore(&queue, |_| true, true);
    assert!(left.state == queue.state);
    let next = left.state.next_sequence_number(Incarnation::new(ENTITY));
    assert_eq!(next, Some(SequenceNumber::new(3000)));
}

#[test]
fn messages_say_whose_they_are_if_their_queue_is_lost() {
    let queue = queue();
    let (parts, pages) = queue.written();
    let page = decoded(&pages[2].1);
    assert_eq!(page.entity(), Some(Incarnation::new(ENTITY)));
    let mut state = State::new();
    for part in parts {
        state.restore(part).unwrap();
    }
    let mut restoring = RestoringPages::partial();
    assert_eq!(state.service_of_page(&restoring, &page), None);
    // The storage queues of that group are there, and it is none of them.
    let (number, heads) = &pages[0];
    state
        .restore_page(&mut restoring, *number, heads.kind, &[&heads.groups[0]])
        .unwrap();
    assert_eq!(
        state.service_of_page(&restoring, &page),
        Some(Service::ServiceBus)
    );
}

#[derive(Clone, Debug)]
enum Step {
    /// So many messages arrive, and so many numbers are passed over before.
    Put(u64, u64),
    Lease(u64, u64),
    Delete(u64, u64),
    Snapshot,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (prop_oneof![4 => 0_u64..50, 1 => 60_000_u64..70_000], 1_u64..2500)
            .prop_map(|(passed, count)| Step::Put(passed, count)),
        2 => (0_u64..6000, 1_u64..90).prop_map(|(from, count)| Step::Lease(from, count)),
        2 => (0_u64..6000, 1_u64..1500).prop_map(|(from, count)| Step::Delete(from, count)),
        2 => Just(Step::Snapshot),
    ]
}

/// A queue after these steps, and a snapshot.
fn after(steps: &[Step]) -> Queue {
    let mut queue = Queue::new();
    queue.create(ENTITY, "queue");
    let mut next = 1;
    for step in steps {
        let there: Vec<u64> = numbers(&queue.state).into_iter().collect();
        let of = |from: u64, count: u64| {
            let there = there.iter().copied().skip(usize::try_from(from).unwrap());
            let there = there.take(usize::try_from(count).unwrap());
            there.collect::<Vec<_>>().into_iter()
        };
        match *step {
            Step::Put(passed, count) => {
                queue.put(next + passed..next + passed + count);
                next += passed + count;
            }
            Step::Lease(from, count) => queue.lease(of(from, count)),
            Step::Delete(from, count) => queue.delete(of(from, count)),
            Step::Snapshot => drop(queue.snapshot()),
        }
    }
    queue.snapshot();
    queue
}

fn record(state: &State, number: u64) -> Option<Record> {
    let queue = state.storage.get(&Incarnation::new(ENTITY))?;
    let entry = queue.backlog.table().get(SequenceNumber::new(number))?;
    Some(*entry.record)
}

/// What these pages have, page by page: the messages with their records, and the numbers of those that are lost.
fn held(queue: &Queue, is_there: impl Fn(usize) -> bool) -> (BTreeMap<u64, Record>, BTreeSet<u64>) {
    let run_size = RunLength::DEFAULT.as_u64();
    let (_, pages) = queue.written();
    let there = (pages.iter().enumerate()).filter(|(index, _)| is_there(*index));
    let there: Vec<Decoded> = there.map(|(_, (_, bytes))| decoded(bytes).0).collect();
    let (mut held, mut lost) = (BTreeMap::new(), BTreeSet::new());
    let mut on_pages = BTreeMap::new();
    for page in &there {
        if let Decoded::Run(_, index, messages) = page {
            let first = index * run_size;
            let messages = messages.iter();
            let messages = messages.map(|(slot, record, _)| (first + *slot as u64, *record));
            on_pages.insert(*index, messages.collect::<BTreeMap<_, _>>());
        }
    }
    let live = numbers(&queue.state);
    for page in &there {
        let Decoded::Directory(_, runs) = page else {
            continue;
        };
        for run in runs {
            let first = run.index * run_size;
            let on_page = on_pages.remove(&run.index).unwrap_or_default();
            let here = run.here().iter().map(|(slot, ..)| first + *slot as u64);
            let here: BTreeSet<u64> = here.collect();
            for number in live.range(first..first + run_size) {
                if here.contains(number) || on_page.contains_key(number) {
                    held.insert(*number, record(&queue.state, *number).unwrap());
                } else {
                    lost.insert(*number);
                }
            }
        }
    }
    held.extend(on_pages.into_values().flatten());
    (held, lost)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Nothing that a page has is lost with another one, and nothing comes from elsewhere.
    #[test]
    fn a_partial_restore_has_exactly_what_the_pages_have(
        steps in prop::collection::vec(step(), 1..14),
        dropped in prop::collection::vec(any::<bool>(), 1..40),
    ) {
        let queue = after(&steps);
        let is_there = |index: usize| !dropped[index % dropped.len()];
        let left = restore(&queue, is_there, true);
        let (held, lost) = held(&queue, is_there);
        prop_assert_eq!(left.result, Ok(()));
        prop_assert_eq!(numbers(&left.state), held.keys().copied().collect());
        prop_assert_eq!(left.lost.into_iter().collect::<BTreeSet<_>>(), lost.clone());
        let entity = Incarnation::new(ENTITY);
        let known = held.keys().chain(&lost).max().copied();
        let next = left.state.next_sequence_number(entity);
        let is_behind = next.map(SequenceNumber::as_u64) > known;
        prop_assert!(is_behind || known.is_none(), "{next:?} is not behind {known:?}");
        for (number, expected) in held {
            prop_assert_eq!(record(&left.state, number), Some(expected));
        }
        // It is an ordinary state.
        let mut again = State::new();
        left.state.snapshot(|part| again.restore(part).unwrap());
        prop_assert!(again == left.state);
    }
}

/// A bus queue with ids, and with messages of three sessions.
fn bus_queue() -> Queue {
    let mut queue = Queue::new();
    remember(&mut queue, 10_000, 1500);
    let effects = (1..=200).map(|number| {
        let body = BodyLocation::new(4096 + 136 * number, 40, 64);
        let session = BusSession {
            number: 203 + u32::try_from(number % 3).unwrap(),
            id: (number % 3).to_string().into(),
        };
        Effect::Arrived {
            to: Place {
                entity: Incarnation::new(BUS_QUEUE),
                number: SequenceNumber::new(number),
            },
            message: Arrival::new(
                Record::ready(Timestamp::from_ms(900), body),
                Some(session),
                Rest::default(),
            ),
        }
    });
    let effects = effects.collect::<Vec<_>>().into();
    queue.apply(Fact::Bus(BusFact::Messages { effects }));
    queue.snapshot();
    queue
}

#[test]
fn whatever_pages_of_a_bus_queue_are_lost_its_messages_stay_in_their_sessions() {
    let queue = bus_queue();
    let (_, pages) = queue.written();
    let kinds: Vec<u8> = pages.iter().map(|(_, bytes)| bytes.kind).collect();
    let (ids, run) = (kind::IDS, kind::RUN);
    assert_eq!(
        kinds,
        [kind::HEADS, kind::SESSIONS, ids, ids, kind::DIRECTORY, run]
    );
    for there in 0..1_u32 << pages.len() {
        let is_there = |index: usize| there >> index & 1 == 1;
        let left = restore(&queue, is_there, true);
        assert_eq!(left.result, Ok(()), "{there:b}");
        let Some(bus) = left.state.bus.get(&Incarnation::new(BUS_QUEUE)) else {
            // Messages in sessions, ids and sessions show that it is one of Service Bus.
            assert!(there & 0b10_1111 == 0, "{there:b}");
            continue;
        };
        let expected = if is_there(5) { 200 } else { 0 };
        assert_eq!(numbers(&left.state).len(), expected, "{there:b}");
        let lost = if is_there(4) { 200 - expected } else { 0 };
        assert_eq!(left.lost.len(), lost, "{there:b}");
        let known = [(2, 1024), (3, 476)].into_iter();
        let known = known.filter(|(index, _)| is_there(*index));
        let known: usize = known.map(|(_, count)| count).sum();
        assert_eq!(bus.duplicates.iter().count(), known, "{there:b}");
        let sessions: BTreeMap<u32, String> = bus
            .backlog
            .sessions
            .iter()
            .map(|(number, it)| (number, it.id.to_string()))
            .collect();
        let named = |number: u32| match is_there(1) {
            true => (number, (number - 203).to_string()),
            false => (number, format!("recovered-{number}")),
        };
        let expected: BTreeMap<_, _> = match is_there(1) || is_there(5) {
            true => (203..206).map(named).collect(),
            false => BTreeMap::new(),
        };
        assert_eq!(sessions, expected, "{there:b}");
        for message in bus.backlog.messages() {
            let number = message.number().as_u64();
            assert_eq!(u64::from(message.session), 203 + number % 3, "{there:b}");
        }
        left.state
            .bus
            .get(&Incarnation::new(BUS_QUEUE))
            .unwrap()
            .backlog
            .sessions
            .check();
    }
}
