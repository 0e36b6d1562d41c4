//! Segments that are reused, and readers that still hold them.

use kew_log::FaultyStorage;

use crate::node::{Node, Told, body_of, check_whole};
use crate::random::Random;

fn names(storage: &FaultyStorage, prefix: &str) -> Vec<String> {
    let files = storage.files().into_iter().map(|(name, _)| name);
    files.filter(|name| name.starts_with(prefix)).collect()
}

/// Sends, and takes snapshots, until segments were reused several times.
fn churn(node: &mut Node, told: &mut Told, rounds: usize) {
    for round in 0..rounds {
        node.send(5, told).unwrap();
        node.commit(told).unwrap();
        node.background().unwrap();
        if round % 4 == 3 {
            node.snapshot(told).unwrap();
            node.background().unwrap();
        }
    }
}

#[test]
fn the_old_content_of_a_recycled_segment_never_reappears() {
    for seed in 0..20 {
        let mut random = Random::new(seed);
        let mut told = Told::default();
        let mut disk = FaultyStorage::new();
        for _ in 0..3 {
            let mut node = Node::open_checked(&disk, &mut told);
            let rounds = usize::try_from(20 + random.below(20)).unwrap();
            churn(&mut node, &mut told, rounds);
            node.send(1, &mut told).unwrap();
            drop(node);
            disk = disk.crash(&mut random.choice());
            check_whole(&disk);
        }
        Node::open_checked(&disk, &mut told);
    }
}

#[test]
fn space_is_bounded_while_messages_come_and_go() {
    let storage = FaultyStorage::new();
    let mut told = Told::default();
    let mut node = Node::open(&storage).unwrap();
    churn(&mut node, &mut told, 40);
    let highest_name = names(&storage, "segment-").pop().unwrap();
    let used = storage.used_bytes();
    churn(&mut node, &mut told, 200);
    assert!(names(&storage, "segment-").pop().unwrap() > highest_name);
    assert!(
        storage.used_bytes() <= used + (32 << 10),
        "{} after {used}",
        storage.used_bytes()
    );
    assert_eq!(names(&storage, "snapshot-").len(), 2);
    let space = node.log.space();
    assert!(space.recycled <= 2);
    assert!(space.size_bytes <= storage.used_bytes());
}

#[test]
fn a_segment_that_is_too_small_for_a_batch_is_not_left_behind() {
    let storage = FaultyStorage::new();
    let mut told = Told::default();
    let mut node = Node::open(&storage).unwrap();
    for count in [30, 60, 120] {
        node.background().unwrap();
        // The active one has no batch, and the prepared one is too small.
        node.send_together(count, &mut told).unwrap();
        node.commit(&mut told).unwrap();
        node.background().unwrap();
        let space = node.log.space();
        let prepared = usize::from(space.is_prepared);
        assert_eq!(names(&storage, "segment-").len(), space.segments + prepared);
        assert_eq!(names(&storage, "recycled-").len(), space.recycled);
    }
    let storage = node.close(&mut told).unwrap();
    check_whole(&storage);
    Node::open_checked(&storage, &mut told);
}

#[test]
fn a_reader_keeps_its_segment_from_being_used_again() {
    let storage = FaultyStorage::new();
    let mut told = Told::default();
    let mut node = Node::open(&storage).unwrap();
    // In a segment of full size: smaller ones are not reused.
    churn(&mut node, &mut told, 10);
    let (id, location) = node.messages.live[1];
    let span = node.log.segment_of(location.record).unwrap();
    assert_eq!(span.size_bytes, 16 << 10);
    // Enough to push it out of memory.
    churn(&mut node, &mut told, 4);
    let body = node.log.body(location).unwrap();
    assert!(body.in_memory().is_none());
    churn(&mut node, &mut told, 80);
    assert!(node.log.body(location).is_none(), "its segment is gone");
    assert_eq!(body.read().unwrap(), body_of(id));
}

#[test]
fn a_segment_with_a_live_body_stays() {
    let storage = FaultyStorage::new();
    let mut told = Told::default();
    let mut node = Node::open(&storage).unwrap();
    node.send(1, &mut told).unwrap();
    node.commit(&mut told).unwrap();
    let (id, location) = node.messages.live[0];
    let kept = node.log.segment_of(location.record).unwrap().first;
    for _ in 0..30 {
        node.send(5, &mut told).unwrap();
        node.snapshot(&mut told).unwrap();
        node.background().unwrap();
    }
    assert!(node.log.segment_of(location.record).is_none());

    let (id_kept, location_kept) = node.messages.live[0];
    let also = node.log.segment_of(location_kept.record).unwrap().first;
    assert_ne!(kept, also);
    for _ in 0..30 {
        node.send(5, &mut told).unwrap();
        node.commit(&mut told).unwrap();
        let mut live = node.live();
        live.0.insert(also);
        node.log.snapshot(vec![], &live).unwrap();
        node.background().unwrap();
    }
    let body = node.log.body(location_kept).unwrap();
    assert_eq!(body.read().unwrap(), body_of(id_kept));
    assert!(id_kept > id);
    assert!(node.log.segments().count() < 8);
    check_whole(&storage);
}

#[test]
fn a_segment_that_took_over_stays_as_long_as_the_one_before_it() {
    let storage = FaultyStorage::new();
    let mut told = Told::default();
    let mut node = Node::open(&storage).unwrap();
    for _ in 0..2 {
        node.send(1, &mut told).unwrap();
        node.commit(&mut told).unwrap();
    }
    let kept = node.log.segments().next().unwrap().first;
    // The next run continues within that segment, behind the first record.
    let mut node = Node::open(&storage).unwrap();
    node.send(2, &mut told).unwrap();
    node.commit(&mut told).unwrap();
    let (id, location) = *node.messages.live.back().unwrap();
    assert_ne!(node.log.segment_of(location.record).unwrap().first, kept);
    for _ in 0..20 {
        node.send(5, &mut told).unwrap();
        node.commit(&mut told).unwrap();
        let mut live = node.live();
        live.0.insert(kept);
        node.log.snapshot(vec![], &live).unwrap();
        node.background().unwrap();
    }
    // Without it the older segment would answer for this position, with its own content.
    let body = node.log.body(location).unwrap();
    assert_eq!(body.read().unwrap(), body_of(id));
    check_whole(&storage);
}

#[test]
fn a_single_snapshot_retires_nothing() {
    let storage = FaultyStorage::new();
    let mut told = Told::default();
    let mut node = Node::open(&storage).unwrap();
    for _ in 0..8 {
        node.send(5, &mut told).unwrap();
        node.background().unwrap();
    }
    node.snapshot(&mut told).unwrap();
    node.background().unwrap();
    let before = names(&storage, "segment-");
    assert!(before.len() > 3);
    // The same state again makes no second snapshot.
    let live = node.live();
    assert!(!node.log.snapshot(vec![], &live).unwrap());
    assert!(node.log.next_background_job().is_none());
    assert_eq!(names(&storage, "segment-"), before);
}
