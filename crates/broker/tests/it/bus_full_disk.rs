//! Bus queues on a full disk: settlements, and the changes that come with them.

use bytes::Bytes;
use kew_broker::Rejection;
use kew_engine::bus::{BusCommand, BusOutcome, DeliveredMessage, Disposition, Verdict};
use kew_engine::{Command, Outcome};

use crate::bus::{driver, orders, receive, received, send, settle};
use crate::partition::Driver;

/// A full disk, and some of its messages, locked.
fn full_with_locked(count: usize) -> (Driver, Vec<DeliveredMessage>) {
    let mut driver = driver();
    driver.storage.set_capacity_bytes(Some(4 << 20));
    driver.fill_up(|driver| {
        let sent = std::iter::repeat_with(|| driver.ask(send("x".repeat(2000))));
        sent.take_while(Result::is_ok).count()
    });
    let mut locked = Vec::new();
    while locked.len() < count {
        let wanted = u32::try_from(count - locked.len()).unwrap();
        let (messages, _) = received(driver.ask(receive(wanted)).unwrap());
        assert!(!messages.is_empty());
        locked.extend(messages);
    }
    (driver, locked)
}

fn dead_letter(reason_size_bytes: usize) -> Disposition {
    let overlay = Some(Bytes::from(vec![b'r'; reason_size_bytes]));
    Disposition::DeadLetter { overlay }
}

fn verdicts(outcome: Outcome) -> Vec<Verdict> {
    match outcome {
        Outcome::Bus(BusOutcome::Settled(verdicts)) => verdicts,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_dead_letter_with_a_reason_is_settled_among_others_on_a_full_disk() {
    let (mut driver, messages) = full_with_locked(51);
    let all = messages.iter().enumerate().map(|(index, message)| {
        let how = match index {
            0 => dead_letter(4096),
            _ => Disposition::Complete,
        };
        (message.lock.unwrap(), how)
    });
    let command = Command::Bus(BusCommand::Settle {
        queue: orders(),
        settlements: all.collect(),
    });
    let settled = verdicts(driver.ask(command).unwrap().outcome);
    assert_eq!(settled, vec![Verdict::Settled; 51]);
}

/// Reasons of nearly the size of a segment, until no segment may take more: completing works before
/// and after.
#[test]
fn a_full_disk_takes_large_reasons_as_long_as_few_segments_hold_any() {
    let (mut driver, messages) = full_with_locked(40);
    let (buried, completed) = messages.split_at(20);
    let mut results = Vec::new();
    for (letter, other) in buried.iter().zip(completed) {
        let letter = std::slice::from_ref(letter);
        results.push(driver.ask(settle(letter, &dead_letter(40_000))).map(drop));
        let other = std::slice::from_ref(other);
        let settled = driver.ask(settle(other, &Disposition::Complete)).unwrap();
        assert_eq!(verdicts(settled.outcome), [Verdict::Settled]);
    }
    let taken = results.iter().filter(|it| it.is_ok()).count();
    assert!(taken >= 1, "{results:?}");
    let (first, rest) = results.split_at(taken);
    assert!(first.iter().all(Result::is_ok), "{results:?}");
    assert!(rest.iter().all(|it| *it == Err(Rejection::Full)));
    assert!(!rest.is_empty(), "the bound holds");
}
