//! A log's ordinary life: written events are read, marked, replayed and fenced.

use std::sync::Arc;

use bytes::Bytes;
use kew_log::{
    AppendError, BatchBuilder, BeginSnapshotError, BodyLocation, BoxError, Epoch, FaultyStorage,
    LogPosition, MemoryStorage, Need, OpenError, Replay, SegmentLog,
};

use crate::node::{Node, Told, body_of, small};

#[test]
fn messages_survive_a_restart_with_their_bodies() {
    let storage = FaultyStorage::new();
    let mut told = Told::default();
    let mut node = Node::open(&storage).unwrap();
    assert_eq!(node.recovery.epoch, Epoch::new(1));
    assert_eq!(node.recovery.end, LogPosition::new(4096));
    node.send(40, &mut told).unwrap();
    node.commit(&mut told).unwrap();
    let node = Node::open_checked(&storage, &mut told);
    assert_eq!(node.messages.count, 40);
    assert_eq!(node.recovery.epoch, Epoch::new(2));
    assert_eq!(node.recovery.events_replayed, 40);
    assert_eq!(node.recovery.snapshot, None);
    assert!(node.recovery.warnings.is_empty());
}

#[test]
fn a_body_is_in_memory_from_the_append_on_and_later_in_its_file() {
    let storage = FaultyStorage::new();
    let mut told = Told::default();
    let mut node = Node::open(&storage).unwrap();
    node.send(1, &mut told).unwrap();
    node.send(1, &mut told).unwrap();
    let (id, location) = node.messages.live[1];
    let in_memory = |node: &Node| node.log.body(location).unwrap().in_memory();
    assert_eq!(in_memory(&node).unwrap(), body_of(id));
    node.commit(&mut told).unwrap();
    assert_eq!(in_memory(&node).unwrap(), body_of(id));
    for _ in 0..30 {
        node.send(1, &mut told).unwrap();
        node.commit(&mut told).unwrap();
    }
    assert!(node.log.space().recent_bytes <= 4 << 10);
    assert!(in_memory(&node).is_none());
    let body = node.log.body(location).unwrap();
    assert_eq!(body.len_bytes(), body_of(id).len() as u64);
    assert_eq!(body.read().unwrap(), body_of(id));
}

#[test]
fn undurable_bodies_stay_in_memory_beyond_the_bound() {
    let storage = FaultyStorage::new();
    let mut told = Told::default();
    let mut node = Node::open(&storage).unwrap();
    node.background().unwrap();
    let first = node.log.end();
    node.send(30, &mut told).unwrap();
    assert!(node.log.space().recent_bytes > 4 << 10);
    let body = node.log.body(BodyLocation {
        record: first,
        offset: 0,
        length: 4,
    });
    assert!(body.unwrap().in_memory().is_some());
}

#[test]
fn places_that_no_segment_holds_have_no_body() {
    let storage = FaultyStorage::new();
    let node = Node::open(&storage).unwrap();
    let body = |record, length| {
        node.log.body(BodyLocation {
            record: LogPosition::new(record),
            offset: 9,
            length,
        })
    };
    assert!(body(0, 1).is_none());
    assert!(body(4095, 1).is_none());
    assert!(body(1 << 40, 1).is_none());
    assert!(body(4096, 1 << 20).is_none());
    // It is within the file, but nothing was ever written there.
    let error = body(4096, 100).unwrap().read().unwrap_err().to_string();
    assert_eq!(
        error,
        "the body in segment-00000000000000000001 at byte 4153 does not match its checksum"
    );
}

#[test]
fn a_stale_epoch_or_position_is_refused_and_changes_nothing() {
    let storage = FaultyStorage::new();
    let mut told = Told::default();
    let mut node = Node::open(&storage).unwrap();
    let of_epoch_before = node.log.reserve(Need::grow(0)).unwrap();
    let mut node = Node::open(&storage).unwrap();
    let reservation = node.log.reserve(Need::grow(0)).unwrap();
    assert_eq!(of_epoch_before.position, reservation.position);
    let batch = |position| {
        let mut batch = BatchBuilder::at(position);
        batch.push_event(b"event");
        batch
    };
    let stale = node
        .log
        .append(of_epoch_before, batch(reservation.position));
    assert!(matches!(stale, Err(AppendError::Stale { .. })));
    let elsewhere = reservation.position.plus(8);
    let mut moved = reservation;
    moved.position = elsewhere;
    let stale = node.log.append(moved, batch(elsewhere));
    assert!(matches!(stale, Err(AppendError::Stale { .. })));
    let stale = node.log.append(reservation, batch(elsewhere));
    assert!(matches!(stale, Err(AppendError::Stale { .. })));
    let mut large = batch(reservation.position);
    large.push_event(&[0; 5000]);
    let refused = node.log.append(reservation, large);
    assert!(matches!(refused, Err(AppendError::TooLarge { .. })));
    let empty = BatchBuilder::at(reservation.position);
    let end = node.log.append(reservation, empty).unwrap();
    assert_eq!(end, reservation.position);
    let used = node.log.append(reservation, batch(end));
    assert!(matches!(used, Err(AppendError::Stale { .. })));
    assert!(!node.log.has_staged());
    node.send(1, &mut told).unwrap();
    assert!(node.log.has_staged());
}

#[test]
fn a_mark_is_made_once_and_only_when_all_is_durable() {
    let storage = FaultyStorage::new();
    let mut told = Told::default();
    let mut node = Node::open(&storage).unwrap();
    assert!(!node.log.mark(), "nothing is new");
    node.send(1, &mut told).unwrap();
    assert!(!node.log.mark(), "nothing is durable");
    let job = node.log.next_job().unwrap();
    assert!(node.log.is_committing());
    assert!(!node.log.mark(), "it is on its way");
    node.log.complete(job.run()).unwrap();
    assert!(node.log.mark());
    assert!(!node.log.mark(), "it is staged");
    node.log.run_commit().unwrap();
    assert!(!node.log.mark(), "it is there");
    node.send(1, &mut told).unwrap();
    node.log.run_commit().unwrap();
    assert!(node.log.mark());
}

#[test]
fn clean_restarts_leave_no_trace_in_space() {
    let storage = FaultyStorage::new();
    let mut told = Told::default();
    let mut node = Node::open(&storage).unwrap();
    node.send(3, &mut told).unwrap();
    node.close(&mut told).unwrap();
    for _ in 0..10 {
        let mut node = Node::open_checked(&storage, &mut told);
        node.background().unwrap();
        node.close(&mut told).unwrap();
    }
    assert!(storage.files().len() <= 6, "{:?}", storage.files());
}

#[test]
fn a_snapshot_bounds_the_replay() {
    let storage = FaultyStorage::new();
    let mut told = Told::default();
    let mut node = Node::open(&storage).unwrap();
    node.send(10, &mut told).unwrap();
    node.snapshot(&mut told).unwrap();
    let busy = node.log.snapshot(vec![], &node.live());
    assert!(matches!(busy, Err(BeginSnapshotError::Busy)));
    // A snapshot has the state of its position, even if more is appended before it is written.
    node.send(2, &mut told).unwrap();
    node.commit(&mut told).unwrap();
    node.background().unwrap();
    let position = node.log.snapshots().last;
    let node = Node::open_checked(&storage, &mut told);
    assert_eq!(node.recovery.snapshot, position);
    assert_eq!(node.recovery.events_replayed, 2);
    assert_eq!(node.messages.count, 12);
}

/// A start may use a snapshot as soon as its file is there.
#[test]
fn a_snapshot_is_written_only_when_its_state_is_durable() {
    let storage = FaultyStorage::new();
    let mut told = Told::default();
    let mut node = Node::open(&storage).unwrap();
    node.background().unwrap();
    node.send(10, &mut told).unwrap();
    let first = node.log.end();
    let (content, live) = (node.messages.content(), node.live());
    assert!(node.log.snapshot(content, &live).unwrap());
    let commit = node.log.next_commit_job().unwrap();
    // What is appended meanwhile is not part of it, and it does not wait for that.
    node.send(2, &mut told).unwrap();
    node.background().unwrap();
    assert_eq!(node.log.snapshots().last, None, "the commit is under way");
    let killed = storage.kill();
    let lost = Node::open_checked(&killed, &mut Told::default());
    assert_eq!(lost.recovery.snapshot, None);

    node.log.complete(commit.run()).unwrap();
    assert!(node.log.durable() == first && first < node.log.end());
    node.background().unwrap();
    assert_eq!(node.log.snapshots().last, Some(first));
    told.acknowledged = 10;
    let node = Node::open_checked(&storage, &mut told);
    assert_eq!(node.recovery.snapshot, Some(first));
    assert_eq!(node.messages.count, 10);
}

#[test]
fn segment_spans_cover_every_record_once() {
    let storage = FaultyStorage::new();
    let mut told = Told::default();
    for _ in 0..4 {
        let mut node = Node::open_checked(&storage, &mut told);
        node.send(25, &mut told).unwrap();
        node.commit(&mut told).unwrap();
        let spans: Vec<_> = node.log.segments().collect();
        for pair in spans.windows(2) {
            assert!(pair[0].first < pair[0].end);
            assert!(pair[0].end <= pair[1].first);
        }
        assert_eq!(spans.last().unwrap().end, node.log.end());
        for (_, location) in &node.messages.live {
            let span = node.log.segment_of(location.record).unwrap();
            assert!(span.first <= location.record && location.record < span.end);
        }
    }
}

#[test]
fn a_log_in_memory_takes_no_memory_for_unwritten_space() {
    struct Count(u64);
    impl Replay for Count {
        fn begin(&mut self) {
            self.0 = 0;
        }
        fn snapshot_part(&mut self, _: &[u8]) -> Result<(), BoxError> {
            Ok(())
        }
        fn event(&mut self, _: LogPosition, _: &[u8]) -> Result<(), BoxError> {
            self.0 += 1;
            Ok(())
        }
    }
    let storage = Arc::new(MemoryStorage::new());
    let open = |count: &mut Count| {
        SegmentLog::open(storage.clone(), kew_log::LogOptions::default(), 3, count)
    };
    let (mut log, _) = open(&mut Count(0)).unwrap();
    while let Some(job) = log.next_job() {
        let outcome = job.run();
        log.complete(outcome).unwrap();
    }
    assert!(log.space().size_bytes >= 3 << 20);
    assert!(storage.allocated_bytes() <= 2 * (64 << 10));
    let reservation = log.reserve(Need::grow(0)).unwrap();
    let mut batch = BatchBuilder::at(reservation.position);
    let location = batch.push_body(&[7; 100_000]);
    batch.push_event_with(|buffer| buffer.extend_from_slice(&[1; 300]));
    log.append(reservation, batch).unwrap();
    log.run_commit().unwrap();
    let mut count = Count(0);
    let (log, _) = open(&mut count).unwrap();
    assert_eq!(count.0, 1);
    let body = log.body(location).unwrap();
    assert_eq!(body.read().unwrap(), Bytes::from(vec![7; 100_000]));
}

#[test]
fn an_owner_that_refuses_an_event_stops_the_start() {
    struct Refuse;
    impl Replay for Refuse {
        fn begin(&mut self) {}
        fn snapshot_part(&mut self, _: &[u8]) -> Result<(), BoxError> {
            Err("too old".into())
        }
        fn event(&mut self, _: LogPosition, _: &[u8]) -> Result<(), BoxError> {
            Err("unknown event".into())
        }
    }
    let storage = FaultyStorage::new();
    let mut told = Told::default();
    let mut node = Node::open(&storage).unwrap();
    node.send(1, &mut told).unwrap();
    node.commit(&mut told).unwrap();
    let open = || {
        SegmentLog::open(Arc::new(storage.clone()), small(), 1, &mut Refuse)
            .err()
            .unwrap()
    };
    let error = open();
    assert!(matches!(error, OpenError::Replay { .. }));
    assert_eq!(
        error.to_string(),
        "cannot replay what lies at log position 4096: unknown event"
    );
    node.snapshot(&mut told).unwrap();
    node.background().unwrap();
    assert!(open().to_string().ends_with("too old"));
}
