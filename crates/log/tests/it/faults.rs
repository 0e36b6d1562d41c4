//! Errors of the storage at the n-th call, once and from then on.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kew_log::{
    BootTime, BoxError, Fault, FaultyStorage, JobKind, LogPosition, Need, OpenError, PageNumber,
    Recovery, Repeat, Replay, ReserveError, SegmentLog,
};

use crate::manifests::snapshot;
use crate::node::{Messages, Node, Step, Step::*, Stop, Told, check_whole, of_size, run, small};
use crate::random::Random;

const HISTORY: &[Step] = &[
    Background,
    Send(6),
    Commit,
    Overlap(4),
    Send(6),
    Commit,
    Background,
    Snapshot,
    Background,
    Send(6),
    Send(6),
    Commit,
    Mark,
    Commit,
    Background,
    Snapshot,
    Background,
    Send(6),
    Commit,
    Background,
    Close,
    Send(2),
    Commit,
    Background,
    Snapshot,
    Background,
    Send(1),
    Commit,
];

/// Runs the history with a fault at every call, one after the other; `check` gets the result of
/// each run.
fn at_every_call(fault: Fault, repeat: Repeat, check: impl Fn(u64, Result<(), Stop>)) {
    for calls in 0.. {
        let storage = FaultyStorage::new();
        let mut told = Told::default();
        storage.fail_after(calls, fault, repeat);
        let result = run(&storage, HISTORY, &mut told);
        let all_calls = storage.calls();
        check(calls, result);
        for disk in [
            storage.kill(),
            storage.crash(&mut Random::new(calls).choice()),
        ] {
            check_whole(&disk);
            let mut told = told.clone();
            let mut node = Node::open_checked(&disk, &mut told);
            node.send(2, &mut told).unwrap();
            Node::open_checked(&node.close(&mut told).unwrap(), &mut told);
        }
        if calls > all_calls {
            return;
        }
    }
}

#[test]
fn an_error_of_the_disk_stops_the_log_and_loses_nothing() {
    for repeat in [Repeat::Once, Repeat::Sticky] {
        at_every_call(Fault::Eio, repeat, |_, result| match result {
            Ok(()) | Err(Stop::Ended(_) | Stop::Open(OpenError::Io(_))) => {}
            Err(other) => panic!("{other:?}"),
        });
    }
}

#[test]
fn a_full_disk_loses_nothing() {
    for repeat in [Repeat::Once, Repeat::Sticky] {
        at_every_call(Fault::Enospc, repeat, |_, result| match result {
            Ok(())
            | Err(Stop::NoSpace | Stop::Ended(_))
            | Err(Stop::Open(OpenError::Io(_) | OpenError::NoSpace { .. })) => {}
            Err(other) => panic!("{other:?}"),
        });
    }
}

#[test]
fn short_writes_and_interruptions_are_not_noticed() {
    for (fault, repeat) in [
        (Fault::ShortWrite, Repeat::Once),
        (Fault::ShortWrite, Repeat::Sticky),
        (Fault::Eintr, Repeat::Once),
    ] {
        at_every_call(fault, repeat, |calls, result| {
            assert!(result.is_ok(), "{fault:?} at call {calls}: {result:?}");
        });
    }
}

#[test]
fn a_failed_sync_is_never_retried_and_nothing_more_is_durable() {
    let storage = FaultyStorage::new();
    let mut told = Told::default();
    let mut node = Node::open(&storage).unwrap();
    node.background().unwrap();
    node.send(1, &mut told).unwrap();
    node.commit(&mut told).unwrap();
    let durable = node.log.durable();

    node.send(2, &mut told).unwrap();
    let job = node.log.next_job().unwrap();
    assert_eq!(job.kind(), JobKind::Commit);
    // The write succeeds, the sync after it does not.
    storage.fail_after(1, Fault::Eio, Repeat::Once);
    let calls = storage.calls();
    let failed = node.log.complete(job.run()).unwrap_err();
    assert_eq!(storage.calls() - calls, 2);
    let message = failed.to_string();
    assert!(
        message.starts_with("the log has stopped: cannot sync segment-00000000000000000001"),
        "{message}"
    );

    assert_eq!(node.log.durable(), durable);
    assert!(node.log.next_job().is_none());
    assert!(node.log.run_commit().is_err());
    assert!(matches!(
        node.log.reserve(Need::grow(0)),
        Err(ReserveError::Ended(_))
    ));
    assert!(!node.log.mark());
    // The pages of the failed sync are lost in a power cut, and the log is still intact.
    let disk = storage.crash(&mut |_| 0);
    Node::open_checked(&disk, &mut told);
}

#[test]
fn a_write_error_names_file_and_offset() {
    let storage = FaultyStorage::new();
    let mut told = Told::default();
    let mut node = Node::open(&storage).unwrap();
    node.send(1, &mut told).unwrap();
    storage.fail_after(0, Fault::Eio, Repeat::Once);
    let failed = node.log.run_commit().unwrap_err();
    let message = failed.to_string();
    assert!(
        message.contains("cannot write segment-00000000000000000001 at byte 4096"),
        "{message}"
    );
}

#[test]
fn without_file_descriptors_jobs_are_tried_again_and_the_log_goes_on() {
    let storage = FaultyStorage::new();
    let mut told = Told::default();
    let mut node = Node::open(&storage).unwrap();
    node.background().unwrap();
    let (mut refused, mut now) = (BTreeMap::<_, usize>::new(), BootTime::ZERO);
    for round in 0..40 {
        node.send(5, &mut told).unwrap();
        node.snapshot(&mut told).unwrap();
        node.log
            .keep_for_draining(of_size((64 << 10) + (round << 14)));
        let mut tried = BTreeSet::new();
        while let Some(job) = node.log.next_background_job() {
            let kind = format!("{:?}", job.kind());
            if tried.insert(kind.clone()) {
                storage.fail_after(0, Fault::Emfile, Repeat::Sticky);
            }
            let outcome = job.run();
            storage.clear_faults();
            node.log.complete(outcome).unwrap();
            if node.log.health().is_short_of_descriptors {
                *refused.entry(kind).or_default() += 1;
                // Only what needs no descriptor is done meanwhile.
                while let Some(job) = node.log.next_background_job() {
                    assert_eq!(job.kind(), JobKind::Retire);
                    node.log.complete(job.run()).unwrap();
                }
                now = now.plus_ms(100);
                node.log.tidy(now, &node.live(), false);
            }
        }
    }
    let kinds: Vec<_> = refused.keys().map(String::as_str).collect();
    assert_eq!(kinds, ["Ballast", "Prepare", "Snapshot"], "{refused:?}");
    assert!(node.log.limits().full.is_none());
    check_whole(&storage);
    Node::open_checked(&node.close(&mut told).unwrap(), &mut told);
}

/// A start with a limit for memory, which leaves all messages of a snapshot on the disk.
#[derive(Default)]
struct PassesOver(Messages);

impl Replay for PassesOver {
    fn begin(&mut self) {
        self.0.begin();
    }

    fn snapshot_part(&mut self, part: &[u8]) -> Result<(), BoxError> {
        self.0.snapshot_part(part)
    }

    fn passes_over(&mut self, _: PageNumber) -> Result<bool, BoxError> {
        Ok(true)
    }

    fn event(&mut self, record: LogPosition, event: &[u8]) -> Result<(), BoxError> {
        self.0.event(record, event)
    }
}

/// Also if the same read succeeds later: the table of the older snapshot is read to find out which pages the newest one
/// needs alone, and again once the newest one is used.
#[test]
fn each_failed_call_of_a_start_refuses_it_or_is_reported() {
    let storage = FaultyStorage::new();
    let mut told = Told::default();
    let mut node = Node::open(&storage).unwrap();
    let older = snapshot(&mut node, &mut told, 5);
    let newest = snapshot(&mut node, &mut told, 1);
    node.send(1, &mut told).unwrap();
    let storage = node.close(&mut told).unwrap();
    let start = |disk: &FaultyStorage| -> Result<Recovery, OpenError> {
        let storage = Arc::new(disk.clone());
        let opened = SegmentLog::open(storage, small(), 7, &mut PassesOver::default());
        opened.map(|(_, recovery)| recovery)
    };
    let mut reported = BTreeMap::<_, usize>::new();
    for calls in 0.. {
        let disk = storage.kill();
        disk.fail_after(calls, Fault::Eio, Repeat::Once);
        let found = start(&disk);
        if disk.failed_calls() == 0 {
            assert_eq!(found.unwrap().warnings, [""; 0]);
            break;
        }
        let Ok(recovery) = found else { continue };
        let [warning] = recovery.warnings.as_slice() else {
            panic!("call {calls}: {:?}", recovery.warnings);
        };
        for at in [older, newest] {
            let file = format!("snapshot-{:020}", at.as_u64());
            *reported.entry(at).or_default() += usize::from(warning.contains(&file));
        }
    }
    assert!(
        reported[&older] > 3 && reported[&newest] > 1,
        "{reported:?}"
    );
}
