//! Looking at a log without opening it.

use kew_log::{Body, FaultyStorage, Job, JobOutcome, SegmentLog, SegmentState, inspect, verify};

use crate::node::{Node, Told};

#[test]
fn a_report_names_the_purpose_of_every_file() {
    let storage = FaultyStorage::new();
    let mut told = Told::default();
    let mut node = Node::open(&storage).unwrap();
    node.background().unwrap();
    node.send(2, &mut told).unwrap();
    node.commit(&mut told).unwrap();
    node.send(2, &mut told).unwrap();
    drop(node);
    // A killed process leaves a prepared segment; the next one continues in the first.
    let mut node = Node::open(&storage).unwrap();
    node.send(2, &mut told).unwrap();
    node.snapshot(&mut told).unwrap();
    while node.log.snapshots().is_under_way {
        let job = node.log.next_background_job().unwrap();
        let outcome = job.run();
        node.log.complete(outcome).unwrap();
    }
    node.send(1, &mut told).unwrap();
    node.commit(&mut told).unwrap();
    node.log.mark();
    node.commit(&mut told).unwrap();
    storage.put("prepare-snapshot-x", b"half");

    let report = verify(&storage).unwrap();
    let states: Vec<_> = report
        .segments
        .iter()
        .map(|s| (s.number, s.epoch.as_u64(), s.state, s.records))
        .collect();
    assert_eq!(
        states,
        [
            (3, 2, SegmentState::Active, 3),
            (4, 2, SegmentState::Prepared, 0),
            (2, 1, SegmentState::Superseded, 0),
            (1, 1, SegmentState::Superseded, 0),
        ]
    );
    assert_eq!(report.end, node.log.end());
    assert_eq!(report.snapshot_used, node.log.snapshots().last);
    assert_eq!(report.events_to_replay, 1);
    assert_eq!(report.temporaries, ["prepare-snapshot-x"]);
    assert!(report.snapshots[0].is_whole);
    assert_eq!(report.tail_cut, None);
    assert_eq!(inspect(&storage).unwrap(), report);
}

#[test]
fn an_empty_directory_has_nothing_to_report() {
    let report = verify(&FaultyStorage::new()).unwrap();
    assert!(report.segments.is_empty() && report.snapshots.is_empty());
    assert_eq!(report.events_to_replay, 0);
}

#[test]
fn looking_changes_nothing_and_needs_no_permission_to() {
    let storage = FaultyStorage::new();
    let mut told = Told::default();
    let mut node = Node::open(&storage).unwrap();
    node.send(2, &mut told).unwrap();
    node.snapshot(&mut told).unwrap();
    node.background().unwrap();
    let before = storage.files();
    // Like a running server in the middle of a write.
    node.send(1, &mut told).unwrap();
    storage.crash_after(1);
    assert!(node.log.run_commit().is_err());
    let disk = storage.kill();
    verify(&disk).unwrap();
    assert_eq!(disk.files(), before);
}

#[test]
fn jobs_and_bodies_may_go_to_any_thread() {
    fn sent<T: Send>() {}
    fn shared<T: Send + Sync>() {}
    sent::<SegmentLog>();
    sent::<Job>();
    sent::<JobOutcome>();
    shared::<Body>();
}
