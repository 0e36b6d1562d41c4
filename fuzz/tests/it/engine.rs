//! Events and the parts of snapshots, and the states that they produce.

use kew_engine::{Event, PageBytes, PageNumber, RestoringPages, State};
use kew_fuzz::gauge;
use kew_fuzz::golden::{EVENTS, SNAPSHOT_PARTS};
use kew_fuzz::mutate::{Input, changes};

use crate::{INPUT_SIZE_MAX, INPUTS, MEMORY_BASE_BYTES};

/// The memory of a state for each byte of its input.
const MEMORY_FACTOR: usize = 256;

fn memory_max(bytes: usize) -> usize {
    MEMORY_BASE_BYTES + MEMORY_FACTOR * bytes
}

/// Decodes an event of any version; it must encode, in the form of this one, to bytes that decode to the same.
fn check_event(bytes: &[u8], state: &State) -> Option<Event> {
    let decoded = gauge::within(memory_max(bytes.len()), || state.read_event(bytes));
    let event = decoded.ok()?;
    let mut again = Vec::new();
    event.encode(&mut again);
    assert_eq!(Event::decode(&again).as_ref(), Ok(&event));
    Some(event)
}

#[test]
fn event_decode() {
    bolero::check!()
        .with_iterations(INPUTS)
        .with_max_len(INPUT_SIZE_MAX)
        .for_each(|bytes| {
            let state = State::new();
            check_event(bytes, &state);
            let mut input = Input::new(bytes);
            let golden = EVENTS[usize::from(input.byte()) % EVENTS.len()];
            let mut event = golden.to_vec();
            changes(&mut event, &mut input);
            check_event(&event, &state);
        });
}

/// A history of valid events, in any order and with any numbers.
#[test]
fn event_apply() {
    bolero::check!()
        .with_iterations(INPUTS)
        .with_max_len(INPUT_SIZE_MAX)
        .for_each(|bytes| {
            let mut input = Input::new(bytes);
            let mut state = State::new();
            gauge::within(memory_max(64 * 1024), || {
                for event in EVENTS.into_iter().take(4) {
                    let event = state.read_event(event).expect("golden");
                    state.apply(event);
                }
                while !input.is_empty() {
                    let golden = EVENTS[usize::from(input.byte()) % EVENTS.len()];
                    let mut event = golden.to_vec();
                    if !input.byte().is_multiple_of(4) {
                        changes(&mut event, &mut input);
                    }
                    if let Some(event) = check_event(&event, &state) {
                        state.apply(event);
                    }
                }
            });
            check_state(&state);
        });
}

#[test]
fn snapshot_restore() {
    bolero::check!()
        .with_iterations(INPUTS)
        .with_max_len(INPUT_SIZE_MAX)
        .for_each(|bytes| {
            let mut state = State::new();
            let restored = gauge::within(memory_max(bytes.len()), || state.restore(bytes));
            if restored.is_ok() {
                check_state(&state);
            }

            let mut input = Input::new(bytes);
            let mut state = State::new();
            for part in SNAPSHOT_PARTS {
                let mut part = part.to_vec();
                if input.byte() % 2 == 1 {
                    changes(&mut part, &mut input);
                }
                let restored = gauge::within(memory_max(part.len()), || state.restore(&part));
                if restored.is_err() {
                    return;
                }
            }
            check_state(&state);
        });
}

/// The kind of the page of a run, and what a page begins with.
const RUN: u8 = 5;
const PAGE_VERSION: u8 = 1;

/// What the records of a page take in memory at most, whatever its bytes are.
const PAGE_MEMORY_MAX_BYTES: usize = 4 << 20;

/// The golden parts, with so many messages of a queue that their run has a page.
fn parts_with_a_run() -> Vec<Vec<u8>> {
    let golden = SNAPSHOT_PARTS.map(<[u8]>::to_vec).into_iter();
    let parts = golden.map(|part| match part.strip_prefix(b"\x03\x01\x03") {
        None => part,
        Some(last) => {
            let first = (130..200_u8).flat_map(|number| {
                let record = b"\xe9\x07\x00\xe9\x07\x01\x00\x00\x01\x80\x20\x0a\xac\x02";
                [number | 0x80, 1].into_iter().chain(*record)
            });
            let head = [3, 1, 3].into_iter();
            head.chain(first).chain(last.iter().copied()).collect()
        }
    });
    parts.collect()
}

/// Pages with changes, and pages of nothing but the input.
#[test]
fn page_restore() {
    let mut whole = State::new();
    for part in parts_with_a_run() {
        whole.restore(&part).expect("golden");
    }
    whole.begin_snapshot();
    let planned = whole.gather(u64::MAX).expect("it is gathered at once");
    let planned = planned.plan_pages();
    let pages = (0..planned.page_count()).filter_map(|index| planned.encode(index));
    let pages: Vec<PageBytes> = pages.collect();
    assert!(
        (1..=5).all(|kind| pages.iter().any(|it| it.kind == kind)),
        "a page of each kind"
    );
    let begin = || {
        let mut state = State::new();
        for part in planned.parts() {
            state.restore(part).expect("it was just written");
        }
        (state, RestoringPages::default())
    };
    let page = PageNumber::new(1);
    let check = |bytes: &[u8]| {
        let versioned = [PAGE_VERSION].iter().chain(bytes).copied();
        let versioned: Vec<u8> = versioned.collect();
        let run = pages.iter().find(|it| it.kind == RUN);
        let run = run.map_or(&[][..], |it| &it.groups[0]);
        let mut inputs: Vec<(u8, Vec<&[u8]>)> = vec![(RUN, vec![run, bytes]), (1, vec![bytes])];
        inputs.extend((1..=5).map(|kind| (kind, vec![&*versioned])));
        for (kind, groups) in inputs {
            let (mut state, mut restoring) = begin();
            let _ = gauge::within(PAGE_MEMORY_MAX_BYTES, || {
                state.restore_page(&mut restoring, page, kind, &groups)
            });
        }
        let mut input = Input::new(bytes);
        let (mut state, mut restoring) = begin();
        for PageBytes { kind, groups } in &pages {
            let mut groups = groups.clone();
            for group in &mut groups {
                if input.byte() % 4 == 1 {
                    changes(group, &mut input);
                }
            }
            let groups: Vec<&[u8]> = groups.iter().map(Vec::as_slice).collect();
            let restored = gauge::within(PAGE_MEMORY_MAX_BYTES, || {
                state.restore_page(&mut restoring, page, *kind, &groups)
            });
            if restored.is_err() {
                return false;
            }
        }
        let is_whole = state.finish_pages(restoring).is_ok();
        if is_whole {
            check_state(&state);
        }
        is_whole
    };
    assert!(check(&[]), "pages without a change");
    bolero::check!()
        .with_iterations(INPUTS)
        .with_max_len(INPUT_SIZE_MAX)
        .for_each(|bytes| {
            check(bytes);
        });
}

/// Every state can be written and read back.
fn check_state(state: &State) {
    let parts = parts_of(state);
    let mut again = State::new();
    for part in &parts {
        again.restore(part).expect("it was just written");
    }
    assert_eq!(parts_of(&again), parts);
}

fn parts_of(state: &State) -> Vec<Vec<u8>> {
    let mut parts = Vec::new();
    state.snapshot(|part| parts.push(part.to_vec()));
    parts
}

#[test]
fn the_examples_are_right() {
    let mut state = State::new();
    for event in EVENTS {
        let decoded = check_event(event, &state).expect("an event");
        state.apply(decoded);
    }
    let mut state = State::new();
    for part in SNAPSHOT_PARTS {
        state.restore(part).expect("a part");
    }
    assert_eq!(parts_of(&state), SNAPSHOT_PARTS);
}
