//! Metrics show the counts that a walk over all messages would find.

use super::*;
use crate::overview::BusQueueOverview;
use crate::storage::StorageCommand;

/// What is counted of the queues, in slices of so many steps, and how many slices it took.
fn read(state: &mut State, now: Timestamp, steps: u32) -> (Vec<BusQueueOverview>, usize) {
    let (mut from, mut read, mut slices) = (None, Vec::new(), 0);
    loop {
        let slice = state.overview(from, now, steps);
        slices += 1;
        read.extend(slice.bus_queues);
        from = slice.next;
        if from.is_none() {
            return (read, slices);
        }
    }
}

/// The same by a walk over all messages and sessions.
fn recount(state: &State, now: Timestamp) -> Vec<BusQueueOverview> {
    let queues = state.bus.iter();
    let queues = queues.filter(|(_, it)| it.role.is_first() && it.role.is_received_from());
    let recounted = queues.map(|(incarnation, queue)| {
        let [_, dead, failed] = incarnation.with_sub_queues();
        let all = |entity| state.bus[&entity].backlog.messages();
        let in_state = |wanted: fn(BusMessageState) -> bool| {
            let messages = queue.backlog.messages();
            let found = messages.filter(|message| wanted(message.state));
            found.count() as u64
        };
        let sizes = incarnation.with_sub_queues().map(|entity| {
            let messages = all(entity).map(|message| message.size_bytes());
            let sessions = state.bus[&entity].backlog.sessions.iter();
            let states = sessions.filter_map(|(_, session)| {
                let length = u64::from(session.state?.length);
                Some(128 + session.id.len() as u64 + length)
            });
            messages.sum::<u64>() + states.sum::<u64>()
        });
        let window_ms = queue.options.duplicate_window_ms;
        let ids = window_ms.map(|window_ms| queue.duplicates.count(window_ms, now));
        let sessions = queue.backlog.sessions.iter();
        let locked = sessions.filter(|(_, session)| session.locked_until > Timestamp::ZERO);
        let mut messages = queue.backlog.messages();
        let oldest = messages.find(|message| message.state != BusMessageState::Scheduled);
        BusQueueOverview {
            name: queue.name.clone(),
            active: in_state(|state| state == BusMessageState::Ready),
            locked: in_state(|state| matches!(state, BusMessageState::Locked { .. })),
            deferred: in_state(|state| state == BusMessageState::Deferred),
            scheduled: in_state(|state| state == BusMessageState::Scheduled),
            dead_letters: all(dead).count() as u64,
            failed_transfers: all(failed).count() as u64,
            size_bytes: sizes.iter().sum::<u64>() + 128 * ids.unwrap_or(0),
            sessions_locked: locked.count() as u64,
            oldest_at: oldest.map(|message| message.enqueued_at),
            // Messages that are gone are not there to be counted: see `flow.rs`.
            flow: *queue.flow,
        }
    });
    recounted.collect()
}

/// Asserts that both agree, in whole and in small slices.
pub(super) fn check(state: &mut State, now: Timestamp) {
    let expected = recount(state, now);
    for steps in [2, 1000] {
        assert_eq!(read(state, now, steps).0, expected);
    }
}

#[test]
fn every_state_is_counted_once() {
    let mut p = Partition::with(BusQueueOptions::default());
    p.create(&entity("other"), BusQueueOptions::default())
        .unwrap();
    for body in ["a", "b", "c", "d"] {
        p.send(text(body)).unwrap();
        p.pass_ms(10);
    }
    let later = BusMessage {
        scheduled_at: Some(p.now.plus_ms(60_000)),
        ..text("later")
    };
    p.send(later).unwrap();
    let locks = locks(&p.receive());
    p.settle(locks[0], Disposition::Complete);
    p.settle(locks[1], Disposition::Defer { overlay: None });
    p.settle(locks[2], Disposition::DeadLetter { overlay: None });
    p.send(text("e")).unwrap();
    let (read, slices) = read(&mut p.state, p.now, 1000);
    assert_eq!(slices, 1);
    let jobs = &read[0];
    assert_eq!(
        [jobs.active, jobs.locked, jobs.deferred, jobs.scheduled],
        [1, 1, 1, 1]
    );
    assert_eq!([jobs.dead_letters, jobs.failed_transfers], [1, 0]);
    assert_eq!(jobs.size_bytes, p.counts().size_bytes);
    // The second message, which is deferred.
    assert_eq!(jobs.oldest_at, Some(Timestamp::from_ms(1_000_010)));
    assert_eq!((read.len(), read[1].oldest_at), (2, None));
    check(&mut p.state, p.now);
}

#[test]
fn scheduled_messages_are_passed_once() {
    let mut p = Partition::with(BusQueueOptions::default());
    for _ in 0..20 {
        let later = BusMessage {
            scheduled_at: Some(p.now.plus_ms(60_000)),
            ..text("later")
        };
        p.send(later).unwrap();
    }
    p.send(text("now")).unwrap();
    let (counted, slices) = read(&mut p.state, p.now, 6);
    assert_eq!(counted[0].oldest_at, Some(p.now));
    assert_eq!(slices, 4);
    assert_eq!(read(&mut p.state, p.now, 6).1, 1);
    p.pass_ms(60_000);
    p.tick();
    let sent_at = p.now.plus_ms(0);
    check(&mut p.state, sent_at);
}

#[test]
fn queues_of_both_protocols_are_read_in_their_order() {
    let mut p = Partition::new();
    let mut expected = Vec::new();
    for number in 0..5 {
        p.create(&entity(&format!("bus{number}")), BusQueueOptions::default())
            .unwrap();
        expected.push(format!("bus{number}"));
        let create = Command::Storage(StorageCommand::CreateQueue {
            queue: EntityName::storage_queue("acct", format!("stored{number}")),
            metadata: crate::storage::Metadata::default(),
        });
        p.decide(create, USUAL).unwrap();
        expected.push(format!("stored{number}"));
    }
    let (mut from, mut names) = (None, Vec::new());
    loop {
        let slice = p.state.overview(from, p.now, 1);
        names.extend(
            slice
                .bus_queues
                .iter()
                .map(|queue| queue.name.name.to_string()),
        );
        names.extend(slice.queues.iter().map(|queue| queue.name.name.to_string()));
        from = slice.next;
        if from.is_none() {
            break;
        }
    }
    assert_eq!(names, expected);
}
