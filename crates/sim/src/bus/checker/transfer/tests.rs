//! Via an entity: what is possible, and what is not.

use std::collections::BTreeSet;

use kew_engine::bus::{
    BusQueueOptions, BusRefusal, EntityStatus, PartRefusal, TransactionPart, TransactionWork,
};

use super::*;
use crate::bus::checker::{ANSWERS_FIT, NO_LOSS, ONE_PLACE, QUEUES};
use crate::bus::named;
use crate::bus::workload::WITH_SESSIONS;
use crate::bus::workload::plain_options;

const VIA: usize = 0;
const TO: usize = 3;
/// The queue that detects duplicates.
const WITH_DUPLICATES: usize = 2;
const TOPIC: usize = topics::topic(1);
const FIRST: usize = TOPIC + 1;
const THIRD: usize = TOPIC + 3;
/// A message as [`message`] makes it, with its overhead.
const SIZE_BYTES: u64 = 136;
const CHANGE_SIZE_BYTES: u64 = 8;

fn entity_of(queue: usize) -> Entity {
    let part = Part::Queue;
    Entity { queue, part }
}

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

/// The entity that gets failed transfers is full.
fn transfer_full() -> BusRefusal {
    BusRefusal::TransferFull {
        queue: topics::name(VIA).into(),
        size_bytes: 0,
        limit_bytes: 0,
        to: topics::name(TO).into(),
        why: "it is full".into(),
    }
}

#[test]
fn a_failed_transfer_takes_room_for_what_it_says() {
    let needed = SIZE_BYTES + CHANGE_SIZE_BYTES;
    let mut too_small = checker(&[(VIA, needed - 1)]);
    refused(&mut too_small, sent_via(), transfer_full()).unwrap();
    let mut enough = checker(&[(VIA, needed)]);
    let violation = refused(&mut enough, sent_via(), transfer_full()).unwrap_err();
    assert_eq!(violation.promise, QUEUES);
}

/// Refused for room, given what has so much of it. No limit is one that no world reaches.
fn is_refused(part: TransactionPart, limits: &[(usize, u64)]) -> bool {
    let keeps_failures = limits.iter().any(|(queue, _)| *queue == VIA);
    let why = match keeps_failures {
        true => transfer_full(),
        false => FULL,
    };
    refused(&mut checker(limits), part, why).is_ok()
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

/// The topic whose first and third subscriptions exist. It may be too full, or there is none.
fn checker_with_topic(has_topic: bool) -> Checker {
    let limit_bytes = BusQueueOptions::default().size_bytes_max;
    let mut all = vec![(VIA, limit_bytes)];
    if has_topic {
        all.extend([(TOPIC, 12_000), (FIRST, limit_bytes), (THIRD, limit_bytes)]);
    }
    checker(&all)
}

/// A transaction sends a message via a queue to the topic, with an answer or without one.
fn send_to_topic(checker: &mut Checker, has_answer: bool) {
    let (now, messages) = (Timestamp::ZERO, [message(1)]);
    let [via, to] = [VIA, TOPIC].map(entity_of);
    if has_answer {
        checker.sent_via(via, to, &messages, now).unwrap();
    } else {
        let work = checker.works.begin(Some(1));
        checker.perhaps_sent_via(work, via, to, &messages, Span::at(now));
    }
    checker.pass_time(now);
    checker.conclude().unwrap();
}

/// An answer shows the message in a part of an entity, or that it is not there.
fn look(checker: &mut Checker, is_there: bool, entity: Entity) -> Result<(), Violation> {
    let is_it = |life: &Life| life.entity == entity;
    match is_there {
        true => {
            let number = topics::number_in(entity.queue, 1);
            checker.narrow(number, ONE_PLACE, &"shown", |life| {
                is_it(life).then(|| vec![Fate::Here(life.clone())])
            })?;
        }
        false => checker.not_shown(NO_LOSS, &entity, &BTreeSet::new(), is_it)?,
    }
    checker.conclude()
}

fn failed_transfers() -> Entity {
    Entity {
        queue: VIA,
        part: Part::FailedTransfers,
    }
}

#[test]
fn what_a_topic_accepts_is_no_failed_transfer() {
    for has_answer in [true, false] {
        let mut checker = checker_with_topic(true);
        send_to_topic(&mut checker, has_answer);
        let mut other = checker.clone();
        look(&mut checker, true, entity_of(THIRD)).unwrap();
        assert!(look(&mut checker, true, failed_transfers()).is_err());
        look(&mut other, true, failed_transfers()).unwrap();
        assert!(look(&mut other, true, entity_of(THIRD)).is_err());
    }
}

#[test]
fn what_no_topic_accepts_is_a_failed_transfer() {
    let mut checker = checker_with_topic(true);
    send_to_topic(&mut checker, true);
    look(&mut checker, false, failed_transfers()).unwrap();
    for queue in [FIRST, THIRD] {
        let part = Part::Topic;
        look(&mut checker, false, Entity { queue, part }).unwrap();
    }
    look(&mut checker, true, entity_of(FIRST)).unwrap();
    assert!(look(&mut checker, false, entity_of(THIRD)).is_err());

    let mut checker = checker_with_topic(false);
    send_to_topic(&mut checker, true);
    assert!(look(&mut checker, false, failed_transfers()).is_err());
}

/// Accepted, given what has so much room.
fn is_accepted(messages: &[BusMessage], limits: &[(usize, u64)]) -> bool {
    let [via, to] = [VIA, TO].map(entity_of);
    let mut checker = checker(limits);
    let accepted = checker.sent_via(via, to, messages, Timestamp::ZERO);
    let promise = accepted.as_ref().err().map(|it| it.promise);
    assert!(promise.is_none_or(|it| it == QUEUES), "{promise:?}");
    accepted.is_ok()
}

#[test]
fn what_is_sent_via_a_queue_has_room_in_one_of_two_places() {
    let failed = SIZE_BYTES + CHANGE_SIZE_BYTES;
    let (one, two) = ([message(1)], [message(1), message(2)]);
    assert!(is_accepted(&one, &[(VIA, failed)]));
    assert!(!is_accepted(&one, &[(VIA, failed - 1)]));
    assert!(is_accepted(&one, &[(VIA, 0), (TO, SIZE_BYTES)]));
    assert!(!is_accepted(&one, &[(VIA, 0), (TO, SIZE_BYTES - 1)]));
    assert!(is_accepted(&two, &[(VIA, failed), (TO, SIZE_BYTES)]));
    assert!(!is_accepted(
        &two,
        &[(VIA, SIZE_BYTES), (TO, SIZE_BYTES - 1)]
    ));
    // A duplicate needs none.
    let again = BusMessage {
        message_id: Some("id".into()),
        ..message(1)
    };
    let mut checker = checker(&[(VIA, 0), (WITH_DUPLICATES, 0)]);
    let detecting = checker.queues.get(WITH_DUPLICATES);
    for options in detecting.possible.iter_mut().flatten() {
        options.status = EntityStatus::SendDisabled;
    }
    let [via, to] = [VIA, WITH_DUPLICATES].map(entity_of);
    let sent = checker.sent_via(via, to, &[again], Timestamp::ZERO);
    assert!(sent.is_ok(), "{sent:?}");
}
