//! A disk that fills up, and is drained again.

use kew_log::{BatchBuilder, FaultyStorage, JobKind, LogOptions, ReserveError};

use crate::node::{Node, Stop, Told, small};

#[test]
fn a_full_disk_refuses_new_work_keeps_settling_and_recovers() {
    let storage = FaultyStorage::new();
    // Room for the first segment and not for the second.
    storage.set_capacity_bytes(Some(20 << 10));
    let mut told = Told::default();
    let mut node = Node::open(&storage).unwrap();
    assert!(!node.log.space().is_full);
    let stop = loop {
        if let Err(stop) = node.send(1, &mut told) {
            break stop;
        }
        node.commit(&mut told).unwrap();
    };
    assert!(matches!(stop, Stop::NoSpace));
    assert!(node.log.space().is_full);
    // The half-written segment does not keep the space from others.
    assert_eq!(storage.files().len(), 1);

    let mut settled = 0;
    while let Ok(reservation) = node.log.reserve_for_settlement() {
        let mut batch = BatchBuilder::at(reservation.position);
        batch.push_body(&[1; 100]);
        node.log
            .append(reservation.epoch, reservation.position, batch)
            .unwrap();
        node.log.run_commit().unwrap();
        settled += 1;
    }
    assert!(settled >= 3, "{settled} batches fit into the reserve");
    assert!(node.log.next_background_job().is_none(), "no busy loop");
    assert!(matches!(node.log.reserve(), Err(ReserveError::NoSpace)));

    storage.set_capacity_bytes(None);
    node.log.retry_prepare();
    assert!(matches!(node.log.reserve(), Err(ReserveError::NotPrepared)));
    node.send(3, &mut told).unwrap();
    node.commit(&mut told).unwrap();
    let disk = node.close(&mut told).unwrap();
    Node::open_checked(&disk, &mut told);
}

#[test]
fn a_snapshot_that_finds_no_space_is_given_up_and_can_be_repeated() {
    let storage = FaultyStorage::new();
    let mut told = Told::default();
    let mut node = Node::open(&storage).unwrap();
    node.background().unwrap();
    node.send(2, &mut told).unwrap();
    storage.set_capacity_bytes(Some(storage.used_bytes()));
    let before = node.log.bytes_since_snapshot();
    node.snapshot(&mut told).unwrap();
    assert_eq!(node.log.bytes_since_snapshot(), 0);
    node.background().unwrap();
    assert!(node.log.snapshot_error().is_some());
    assert!(!node.log.is_snapshotting());
    assert_eq!(node.log.last_snapshot(), None);
    assert!(node.log.bytes_since_snapshot() >= before);

    storage.set_capacity_bytes(None);
    node.snapshot(&mut told).unwrap();
    node.background().unwrap();
    assert!(node.log.snapshot_error().is_none());
    assert_eq!(node.log.last_snapshot(), Some(node.log.end()));
    Node::open_checked(&storage, &mut told);
}

#[test]
fn the_log_waits_for_a_segment_that_is_being_prepared() {
    let storage = FaultyStorage::new();
    let mut told = Told::default();
    let mut node = Node::open(&storage).unwrap();
    let job = node.log.next_job().unwrap();
    assert_eq!(job.kind(), JobKind::Prepare);
    assert!(node.log.next_job().is_none(), "one at a time");
    let error = loop {
        match node.log.reserve() {
            Ok(reservation) => {
                let end = node.messages.count + 1;
                node.send_in(reservation, end, &mut told);
            }
            Err(error) => break error,
        }
    };
    assert!(matches!(error, ReserveError::NotPrepared));
    node.log.complete(job.run(&storage)).unwrap();
    assert!(node.log.space().is_prepared);
    let before = node.log.segments().count();
    node.send(12, &mut told).unwrap();
    assert_eq!(node.log.segments().count(), before + 1);
    node.commit(&mut told).unwrap();
    Node::open_checked(&storage, &mut told);
}

#[test]
fn segments_double_up_to_their_bound() {
    let storage = FaultyStorage::new();
    let options = LogOptions {
        segment_size_max_bytes: 32 << 10,
        ..small()
    };
    let mut told = Told::default();
    let mut node = Node::open_with(&storage, options, 1).unwrap();
    for _ in 0..200 {
        node.background().unwrap();
        node.send(2, &mut told).unwrap();
        node.commit(&mut told).unwrap();
    }
    let sizes: Vec<u64> = node
        .log
        .segments()
        .map(|span| span.size_bytes >> 10)
        .collect();
    assert_eq!(sizes[..4], [8, 16, 32, 32]);
}

#[test]
fn options_that_contradict_each_other_are_refused() {
    let refused = |options| {
        let error = Node::open_with(&FaultyStorage::new(), options, 1)
            .err()
            .unwrap();
        error.to_string()
    };
    let odd = LogOptions {
        segment_size_first_bytes: 5000,
        ..small()
    };
    assert!(refused(odd).contains("multiples of 4096"));
    let falling = LogOptions {
        segment_size_max_bytes: 4096,
        ..small()
    };
    assert!(refused(falling).contains("must rise"));
    let narrow = LogOptions {
        settlement_reserve_bytes: 4000,
        ..small()
    };
    assert_eq!(
        refused(narrow),
        "a first segment of 8192 bytes has room for 4016 bytes, and a turn with the settlement \
         reserve needs 5024"
    );
    let long = LogOptions {
        turn_space_min_bytes: 5000,
        ..small()
    };
    assert!(refused(long).contains("above the batch size"));
}
