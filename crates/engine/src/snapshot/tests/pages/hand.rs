//! The hand that takes records out of memory: where it goes on, and what it spares.

use std::cell::RefCell;

use super::ids::{BUS_QUEUE, remember};
use super::*;
use crate::bus::{self, BusFact};
use crate::state::{Hand, Pass};
use crate::table::Leaving;

/// Moves the hand, in pieces of so many steps, until it has come round. Returns the runs of which records have left memory,
/// in order.
fn round(queue: &mut Queue, hand: &mut Hand, pass: Pass, steps: u32) -> Vec<(u64, u64)> {
    let asked = RefCell::new(Vec::new());
    for _ in 0..100 {
        let evicted =
            queue
                .state
                .evict(hand, pass, Timestamp::ZERO, steps, |(entity, run), _, _| {
                    asked.borrow_mut().push((entity.as_u64(), run));
                    true
                });
        if evicted.is_round {
            return asked.into_inner();
        }
    }
    panic!("the hand does not come round");
}

/// Messages of a bus queue.
fn put_into_bus(queue: &mut Queue, numbers: Range<u64>) {
    let at = Timestamp::from_ms(queue.now + 1);
    let effects: Vec<bus::Effect> = numbers
        .map(|number| bus::Effect::Arrived {
            to: Place {
                entity: Incarnation::new(BUS_QUEUE),
                number: SequenceNumber::new(number),
            },
            message: Record::ready(at, body(number)).into(),
        })
        .collect();
    let effects = effects.into();
    queue.apply(Fact::Bus(BusFact::Messages { effects }));
}

/// Five runs with pages.
fn five_runs() -> Queue {
    let mut queue = Queue::new();
    queue.create(ENTITY, "queue");
    queue.put(1..5000);
    queue.snapshot();
    queue
}

/// It sees one run at a time, or all at once.
#[test]
fn each_run_is_taken_once_however_small_the_pieces() {
    for steps in [0, 110, 5000, u32::MAX] {
        let mut queue = five_runs();
        let mut hand = Hand::default();
        let all = round(&mut queue, &mut hand, Pass::All, steps);
        assert_eq!(all, [0, 1, 2, 3, 4].map(|run| (ENTITY, run)), "{steps}");
        assert_eq!(queue.resident(), (0, 5));
        // There is nothing left, and what is read again leaves again.
        assert_eq!(round(&mut queue, &mut hand, Pass::All, steps), []);
        queue.read(2500..2502);
        let again = round(&mut queue, &mut hand, Pass::All, steps);
        assert_eq!(again, [(ENTITY, 2)]);
        queue.check_cold();
    }
}

#[test]
fn what_is_needed_next_is_spared_first() {
    let mut queue = five_runs();
    let mut hand = Hand::default();
    let middle = round(&mut queue, &mut hand, Pass::Middle, 0);
    assert_eq!(middle, [1, 2, 3].map(|run| (ENTITY, run)));
    let rest = round(&mut queue, &mut hand, Pass::All, 0);
    assert_eq!(rest, [0, 4].map(|run| (ENTITY, run)));
}

/// Receivers have all messages of the first run, and get the next ones from the second.
#[test]
fn runs_whose_messages_are_locked_are_taken() {
    let mut queue = five_runs();
    queue.lease(1..1024);
    let mut hand = Hand::default();
    let before = round(&mut queue, &mut hand, Pass::Middle, 0);
    assert_eq!(
        before,
        [2, 3].map(|run| (ENTITY, run)),
        "no page has the locks"
    );
    queue.snapshot();
    let after = round(&mut queue, &mut hand, Pass::Middle, 0);
    assert_eq!(after, [(ENTITY, 0)]);
    assert_eq!(queue.resident(), (1024 + 904, 3));
    queue.check_cold();
}

/// All that is left of a run has leases that its page does not have. It gets another page, and can leave memory again.
#[test]
fn a_run_of_which_all_has_changed_gets_another_page() {
    let mut queue = five_runs();
    let mut hand = Hand::default();
    round(&mut queue, &mut hand, Pass::All, 0);
    queue.read(1..200);
    queue.lease(1..200);
    queue.delete(200..1024);
    assert_eq!(queue.resident(), (199, 5));
    // Not while the disk is full, or while a snapshot names its page.
    let may = |_, _, leaving| leaving != Leaving::Page;
    queue
        .state
        .evict(&mut hand, Pass::All, Timestamp::ZERO, u32::MAX, may);
    assert_eq!(queue.resident(), (199, 5));
    let left = round(&mut queue, &mut hand, Pass::All, 0);
    assert_eq!(left, [(ENTITY, 0)]);
    assert_eq!(queue.resident(), (199, 4), "it waits for a snapshot");
    assert_eq!(queue.snapshot(), [HEADS, DIRECTORY, RUN]);
    let again = round(&mut queue, &mut hand, Pass::All, 0);
    assert_eq!(again, [(ENTITY, 0)]);
    assert_eq!(queue.resident(), (0, 5));
    queue.check_cold();
}

/// More of it changed than may lie beside the page of a run in memory, and clients have read the rest. Nothing but what
/// changed stays.
#[test]
fn a_run_that_was_read_keeps_its_page_while_it_needs_it() {
    let mut queue = five_runs();
    let mut hand = Hand::default();
    round(&mut queue, &mut hand, Pass::All, 0);
    queue.read(1..200);
    queue.lease(1..200);
    queue.read(200..1024);
    assert_eq!(queue.resident(), (1023, 5), "a read changes no page");
    assert_eq!(round(&mut queue, &mut hand, Pass::All, 0), [(ENTITY, 0)]);
    assert_eq!(queue.resident(), (199, 5));
    assert_eq!(queue.snapshot(), [HEADS, DIRECTORY]);
    queue.check_cold();
}

#[test]
fn it_goes_on_where_it_was_and_comes_to_both_services() {
    let mut queue = five_runs();
    remember(&mut queue, 10_000, 1);
    put_into_bus(&mut queue, 1..2500);
    queue.snapshot();
    let mut hand = Hand::default();
    let taken = |queue: &mut Queue, hand: &mut Hand| {
        let asked = RefCell::new(Vec::new());
        queue.state.evict(
            hand,
            Pass::All,
            Timestamp::ZERO,
            0,
            |(entity, run), _, _| {
                asked.borrow_mut().push((entity.as_u64(), run));
                true
            },
        );
        asked.into_inner()
    };
    assert_eq!(taken(&mut queue, &mut hand), [(ENTITY, 0)]);
    // The run at which it would go on ends.
    queue.delete(1024..2048);
    assert_eq!(taken(&mut queue, &mut hand), [(ENTITY, 2)]);
    let rest = round(&mut queue, &mut hand, Pass::All, 0);
    let expected = [
        (ENTITY, 3),
        (ENTITY, 4),
        (BUS_QUEUE, 0),
        (BUS_QUEUE, 1),
        (BUS_QUEUE, 2),
    ];
    assert_eq!(rest, expected);
    assert_eq!(queue.state.resident().records, 0);
}
