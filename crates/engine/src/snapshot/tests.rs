//! Snapshots that are gathered, kept and encoded while the state changes.

mod left;
mod pages;

use std::collections::VecDeque;

use proptest::prelude::*;

use self::pages::Store;
use super::{DecodedPage, PageBytes, RestoringPages, Snapshot};
use crate::state::State;
use crate::vocabulary::PageNumber;

/// What happens to snapshots between two steps of a client.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Meanwhile {
    Nothing,
    /// One begins, unless one is being gathered.
    Begin,
    /// A piece is gathered, in so many steps.
    Gather(u64),
    /// The oldest one that is complete is encoded.
    Encode,
}

pub(crate) fn meanwhile() -> impl Strategy<Value = Meanwhile> {
    prop_oneof![
        3 => Just(Meanwhile::Nothing),
        2 => Just(Meanwhile::Begin),
        4 => (0_u64..200).prop_map(Meanwhile::Gather),
        1 => Just(Meanwhile::Encode),
    ]
}

type Parts = Vec<Vec<u8>>;

/// Snapshots on their way, each with the parts of the state at which it began.
#[derive(Default)]
pub(crate) struct UnderWay {
    gathered: Option<Parts>,
    complete: Vec<(Snapshot, Parts)>,
    /// What is written of them as pages.
    store: Store,
}

impl UnderWay {
    /// Checks what is encoded.
    pub(crate) fn pass(&mut self, state: &mut State, meanwhile: Meanwhile) {
        match meanwhile {
            Meanwhile::Nothing => {}
            Meanwhile::Begin if self.gathered.is_none() => {
                self.gathered = Some(parts(state));
                state.begin_snapshot();
            }
            Meanwhile::Begin => {}
            Meanwhile::Gather(steps) => {
                if let Some(snapshot) = state.gather(steps) {
                    let began = self.gathered.take().expect("one was begun");
                    self.complete.push((snapshot, began));
                }
            }
            Meanwhile::Encode if self.complete.is_empty() => {}
            Meanwhile::Encode => {
                let first = self.complete.remove(0);
                self.check(first);
            }
        }
    }

    /// Encodes and checks all that are left.
    pub(crate) fn finish(mut self, state: &mut State) {
        self.pass(state, Meanwhile::Gather(u64::MAX));
        assert!(!state.is_gathering() && self.gathered.is_none());
        let complete = std::mem::take(&mut self.complete);
        complete.into_iter().for_each(|it| self.check(it));
    }

    fn check(&mut self, (snapshot, began): (Snapshot, Parts)) {
        check((snapshot.clone(), began.clone()));
        self.store.check(snapshot, &began);
    }
}

/// Restores the pages of a snapshot as a start does that passes over what it need not read. Returns how many those are.
pub(crate) fn restore_passing_over<'a>(
    state: &mut State,
    restoring: RestoringPages,
    pages: impl Iterator<Item = (PageNumber, &'a PageBytes)>,
) -> usize {
    let mut restoring = restoring;
    let (mut next, mut count) = (VecDeque::new(), 0);
    for (page, bytes) in pages {
        if next.pop_front() == Some(true) {
            state.restore_passed_over(&mut restoring, page).unwrap();
            count += 1;
            continue;
        }
        let groups: Vec<&[u8]> = bytes.groups.iter().map(Vec::as_slice).collect();
        let decoded = DecodedPage::decode(bytes.kind, &groups).unwrap();
        next.extend(decoded.pages_to_pass_over(state.count_unit()));
        let restored = state.restore_decoded(&mut restoring, page, decoded);
        restored.unwrap();
    }
    state.finish_pages(restoring).unwrap();
    count
}

fn parts(state: &State) -> Parts {
    let mut parts = Vec::new();
    state.snapshot(|part| parts.push(part.to_vec()));
    parts
}

fn check((snapshot, began): (Snapshot, Parts)) {
    let mut encoded = Vec::new();
    snapshot.plan().pass(|part| encoded.push(part.to_vec()));
    assert_eq!(
        encoded, began,
        "a snapshot is of the position at which it began"
    );
}
