//! Snapshots that are gathered, kept and encoded while the state changes.

mod left;
mod pages;

use proptest::prelude::*;

use self::pages::Store;
use super::Snapshot;
use crate::state::State;

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
