//! The contract on the logs that are there, and on logs that make a mistake.

mod worlds;

use std::iter;

use kew_log_contract::{
    MemorySubject, ModelSubject, PROMISES, Promise, SegmentSubject, Subject, altered,
};

type Make = fn() -> Box<dyn Subject>;

/// How many links a promise of the model is checked with.
const SEEDS: u64 = 20;

fn memory() -> Box<dyn Subject> {
    Box::new(MemorySubject::new())
}

fn segments() -> Box<dyn Subject> {
    Box::new(SegmentSubject::new())
}

fn model() -> Box<dyn Subject> {
    Box::new(ModelSubject::new(0))
}

/// A log keeps a promise.
fn keeps(name: &str, make: &dyn Fn() -> Box<dyn Subject>) {
    let promise = Promise::named(name);
    if let Err(broken) = promise.check(make) {
        panic!("promise {} is broken: {broken:?}", promise.number);
    }
}

/// The model keeps a promise, whatever its link loses.
fn keeps_over_links(name: &str) {
    for seed in 0..SEEDS {
        let promise = Promise::named(name);
        let kept = promise.check(&|| Box::new(ModelSubject::new(seed)));
        if let Err(broken) = kept {
            panic!(
                "promise {} is broken with seed {seed}: {broken:?}",
                promise.number
            );
        }
    }
}

/// The check of a promise notices its mistakes.
fn notices(name: &str) {
    let promise = Promise::named(name);
    let first = (promise.mistake, promise.words);
    for (mistake, words) in iter::once(first).chain(promise.others.iter().copied()) {
        let Err(broken) = (promise.check)(&|| altered(mistake)) else {
            panic!("the check does not notice {mistake:?}");
        };
        let broken = format!("{broken:?}");
        assert!(
            broken.contains(words),
            "{mistake:?} is noticed by accident: {broken}"
        );
    }
}

macro_rules! contract {
    ($($name:ident)*) => {
        /// Of each promise that is checked anywhere.
        const NAMES: &[&str] = &[$(stringify!($name)),*];

        mod on_segments {
            $(#[test] fn $name() { super::keeps(stringify!($name), &super::segments); })*
        }

        mod on_memory {
            $(#[test] fn $name() { super::keeps(stringify!($name), &super::memory); })*
        }

        mod on_the_model {
            $(#[test] fn $name() { super::keeps_over_links(stringify!($name)); })*
        }

        mod on_a_log_with_the_mistake {
            $(#[test] fn $name() { super::notices(stringify!($name)); })*
        }
    };
}

contract! {
    batches_are_whole
    durable_is_followed
    only_complete_moves_durable
    batches_and_beats_move_end
    one_commit_is_out
    reservations_serve_once
    no_batch_is_above_the_limit
    jobs_lead_to_room
    times_never_go_back
    bodies_are_read
    old_handles_read_or_are_gone
    snapshots_wait_for_durable
    what_is_live_stays
    jobs_run_in_any_order
    nothing_follows_an_end
    pieces_come_in_order_and_once
    current_has_all
    old_epochs_are_fenced
    former_owners_are_fenced
    a_lost_answer_is_settled
    a_late_duplicate_changes_nothing
    owners_do_not_overlap
    a_slow_follower_gets_the_same
    a_copy_that_differs_is_reported
}

/// The numbers of the promises that are skipped on a log.
fn skipped(make: Make) -> Vec<u8> {
    let subject = make();
    let skipped = PROMISES.iter().filter(|it| it.skipped(&*subject).is_some());
    skipped.map(|promise| promise.number).collect()
}

#[test]
fn what_is_skipped_is_counted() {
    assert_eq!(skipped(segments), [19, 20, 21, 22, 23, 24]);
    assert_eq!(skipped(memory), [20, 21, 22, 24]);
    assert_eq!(skipped(model), []);
}

#[test]
fn each_promise_has_its_tests() {
    let numbers = PROMISES.iter().map(|promise| promise.number);
    assert_eq!(numbers.collect::<Vec<_>>(), (1..=24).collect::<Vec<_>>());
    let names = PROMISES.iter().map(|promise| promise.name);
    assert_eq!(names.collect::<Vec<_>>(), NAMES);
}
