//! Via an entity: what is possible, and what is not.

use kew_engine::bus::{BusQueueOptions, BusRefusal, PartRefusal, TransactionPart, TransactionWork};

use super::*;
use crate::bus::checker::{ANSWERS_FIT, QUEUES};
use crate::bus::named;
use crate::bus::workload::WITH_SESSIONS;
use crate::bus::workload::plain_options;

const VIA: usize = 0;
const TO: usize = 3;
/// A message as [`message`] makes it, with its overhead.
const SIZE_BYTES: u64 = 136;
const CHANGE_SIZE_BYTES: u64 = 8;

fn message(number: u64) -> BusMessage {
    BusMessage {
        body: number.to_be_bytes().to_vec().into(),
        message_id: None,
        session: None,
        time_to_live_ms: None,
        scheduled_at: None,
    }
}

/// Queues and topics with these limits. All others do not exist.
fn checker(limits: &[(usize, u64)]) -> Checker {
    let mut checker = Checker::default();
    for (queue, size_bytes_max) in limits {
        let options = BusQueueOptions {
            size_bytes_max: *size_bytes_max,
            ..plain_options(*queue)
        };
        checker.queues.get(*queue).begin(options, Timestamp::ZERO);
    }
    checker
}

fn part(queue: usize, work: TransactionWork) -> TransactionPart {
    TransactionPart {
        queue: named(queue, Part::Queue),
        incarnation: None,
        work,
    }
}

fn sent_via() -> TransactionPart {
    let work = TransactionWork::SendVia(named(TO, Part::Queue), vec![message(1)]);
    part(VIA, work)
}

fn transfer() -> TransactionPart {
    let work = TransactionWork::Transfer(named(VIA, Part::Queue), vec![message(1)]);
    part(TO, work)
}

/// A transaction of this part alone was refused.
fn refused(checker: &mut Checker, part: TransactionPart, why: BusRefusal) -> Result<(), Violation> {
    let refusal = BusRefusal::Transaction {
        part: 1,
        queue: part.queue.name.clone(),
        why: Box::new(PartRefusal::Refused(why)),
    };
    checker.refused_transaction(&[part], &refusal, Timestamp::ZERO)
}

const FULL: BusRefusal = BusRefusal::QuotaExceeded {
    size_bytes: 0,
    limit_bytes: 0,
};

#[test]
fn a_failed_transfer_takes_room_for_what_it_says() {
    let needed = SIZE_BYTES + CHANGE_SIZE_BYTES;
    let mut too_small = checker(&[(VIA, needed - 1)]);
    refused(&mut too_small, sent_via(), FULL).unwrap();
    let mut enough = checker(&[(VIA, needed)]);
    let violation = refused(&mut enough, sent_via(), FULL).unwrap_err();
    assert_eq!(violation.promise, QUEUES);
}

/// Refused for room, given what has so much of it. No limit is one that no world reaches.
fn is_refused(part: TransactionPart, limits: &[(usize, u64)]) -> bool {
    refused(&mut checker(limits), part, FULL).is_ok()
}

#[test]
fn a_transfer_is_refused_for_room_only_where_it_fails() {
    let (room, none) = (1000, 0);
    // Only the destination is full, and the message fits among the failed transfers.
    assert!(!is_refused(transfer(), &[(VIA, room), (TO, none)]));
    // The destination takes the message.
    assert!(!is_refused(transfer(), &[(VIA, none), (TO, room)]));
    assert!(is_refused(transfer(), &[(VIA, none), (TO, none)]));
    assert!(is_refused(transfer(), &[(VIA, none)]));
    // Nothing keeps what fails.
    assert!(!is_refused(transfer(), &[(TO, room)]));
    assert!(is_refused(transfer(), &[(TO, none)]));
}

#[test]
fn what_is_sent_via_a_queue_is_refused_for_room_only_if_it_fails() {
    let (room, none) = (1000, 0);
    assert!(!is_refused(sent_via(), &[(VIA, none), (TO, room)]));
    assert!(!is_refused(sent_via(), &[(VIA, room), (TO, none)]));
    assert!(is_refused(sent_via(), &[(VIA, none), (TO, none)]));
    assert!(is_refused(sent_via(), &[(VIA, none)]));
}

#[test]
fn what_is_sent_via_a_queue_is_never_refused_for_a_session() {
    let mut checker = checker(&[(WITH_SESSIONS, 1000), (TO, 1000)]);
    let work = TransactionWork::SendVia(named(TO, Part::Queue), vec![message(1)]);
    let part = part(WITH_SESSIONS, work);
    let violation = refused(&mut checker, part, BusRefusal::SessionRequired).unwrap_err();
    assert_eq!(violation.promise, ANSWERS_FIT);
}
