//! A disk that fills up, and is drained again.

use kew_log::{
    BatchBuilder, Fault, FaultyStorage, JobKind, LogOptions, Need, Repeat, ReserveError,
};

use crate::node::{Node, Stop, Told, check_whole, of_size, small};
use crate::random::Random;

fn without_ballast() -> LogOptions {
    LogOptions {
        ballast_size_bytes: 0,
        ..small()
    }
}

#[test]
fn a_full_disk_refuses_new_work_keeps_settling_and_recovers() {
    let storage = FaultyStorage::new();
    // Room for the proof and the first segment, but not for the second.
    storage.set_capacity_bytes(Some(23 << 10));
    let mut told = Told::default();
    let mut node = Node::open_with(&storage, without_ballast(), 7).unwrap();
    assert!(!node.log.space().is_full);
    let stop = loop {
        if let Err(stop) = node.send(1, &mut told) {
            break stop;
        }
        node.commit(&mut told).unwrap();
    };
    assert!(matches!(stop, Stop::NoSpace));
    assert!(node.log.space().is_full);
    // The half-written segment does not take space.
    assert_eq!(storage.files().len(), 2);

    let mut settled = 0;
    while let Ok(reservation) = node.log.reserve(Need::free(0)) {
        let mut batch = BatchBuilder::at(reservation.position);
        batch.push_body(&[1; 100]);
        node.log.append(reservation, batch).unwrap();
        node.log.run_commit().unwrap();
        settled += 1;
    }
    assert!(settled >= 3, "{settled} batches fit into the reserve");
    node.background().unwrap();
    assert!(matches!(
        node.log.reserve(Need::free(0)),
        Err(ReserveError::NoSpace)
    ));
    assert!(node.log.next_background_job().is_none(), "no busy loop");
    assert!(matches!(
        node.log.reserve(Need::grow(0)),
        Err(ReserveError::NoSpace)
    ));

    storage.set_capacity_bytes(None);
    node.log.retry_prepare();
    node.background().unwrap();
    node.send(3, &mut told).unwrap();
    node.commit(&mut told).unwrap();
    let disk = node.close(&mut told).unwrap();
    Node::open_checked(&disk, &mut told);
}

/// Settles on a full disk until there is no room, with or without a mark after each batch; returns
/// how many batches found room.
fn settle_on_a_full_disk(is_marked: bool) -> usize {
    let storage = FaultyStorage::new();
    storage.set_capacity_bytes(Some(47 << 10));
    let options = LogOptions {
        segment_size_first_bytes: 32 << 10,
        segment_size_max_bytes: 32 << 10,
        settlement_reserve_bytes: 12 << 10,
        ..without_ballast()
    };
    let mut told = Told::default();
    let mut node = Node::open_with(&storage, options, 7).unwrap();
    while node.send(1, &mut told).is_ok() {
        node.commit(&mut told).unwrap();
    }
    let mut settled = 0;
    while let Ok(reservation) = node.log.reserve(Need::free(0)) {
        let mut batch = BatchBuilder::at(reservation.position);
        batch.push_body(&[1; 100]);
        node.log.append(reservation, batch).unwrap();
        node.log.run_commit().unwrap();
        if is_marked && node.log.mark() {
            node.log.run_commit().unwrap();
        }
        settled += 1;
    }
    settled
}

#[test]
fn marks_leave_the_space_that_settlements_need() {
    // Each mark takes a record, and never a page: a slow consumer can drain a full disk too.
    let (hasty, slow) = (settle_on_a_full_disk(false), settle_on_a_full_disk(true));
    assert!(hasty >= 40, "{hasty} batches");
    assert!(slow >= hasty * 3 / 4, "{slow} of {hasty} batches");
}

#[test]
fn a_snapshot_that_finds_no_space_is_given_up_and_can_be_repeated() {
    let storage = FaultyStorage::new();
    let mut told = Told::default();
    let mut node = Node::open_with(&storage, without_ballast(), 7).unwrap();
    node.background().unwrap();
    node.send(2, &mut told).unwrap();
    storage.set_capacity_bytes(Some(storage.used_bytes()));
    let before = node.log.snapshots().bytes_since;
    node.snapshot(&mut told).unwrap();
    assert_eq!(node.log.snapshots().bytes_since, 0);
    node.background().unwrap();
    assert!(node.log.snapshots().failed.is_some());
    assert!(!node.log.snapshots().is_under_way);
    assert_eq!(node.log.snapshots().last, None);
    assert!(node.log.snapshots().bytes_since >= before);

    storage.set_capacity_bytes(None);
    node.snapshot(&mut told).unwrap();
    node.background().unwrap();
    assert!(node.log.snapshots().failed.is_none());
    assert_eq!(node.log.snapshots().last, Some(node.log.end()));
    Node::open_checked(&storage, &mut told);
}

#[test]
fn the_log_waits_for_a_segment_that_is_being_prepared() {
    let storage = FaultyStorage::new();
    let mut told = Told::default();
    let mut node = Node::open_with(&storage, without_ballast(), 7).unwrap();
    let job = node.log.next_job().unwrap();
    assert_eq!(job.kind(), JobKind::Prepare);
    assert!(node.log.next_job().is_none(), "one at a time");
    let error = loop {
        match node.log.reserve(Need::grow(0)) {
            Ok(reservation) => {
                let end = node.messages.count + 1;
                node.send_in(reservation, end, &mut told);
            }
            Err(error) => break error,
        }
    };
    assert!(matches!(error, ReserveError::NotPrepared));
    node.log.complete(job.run()).unwrap();
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
        "a first segment of 8192 bytes has room for 3992 bytes, and a turn with the settlement \
         reserve needs 5024"
    );
    let long = LogOptions {
        turn_space_min_bytes: 5000,
        ..small()
    };
    assert!(refused(long).contains("above the batch size"));
}

/// A log on a disk without a free byte; the ballast exists.
fn full() -> (FaultyStorage, Node, Told) {
    full_with(small())
}

/// With a ballast in which a snapshot has room, with both files of its pages.
fn of_snapshots() -> LogOptions {
    LogOptions {
        ballast_size_bytes: 16 << 10,
        ..small()
    }
}

fn full_with(options: LogOptions) -> (FaultyStorage, Node, Told) {
    let storage = FaultyStorage::new();
    let mut told = Told::default();
    let mut node = Node::open_with(&storage, options, 7).unwrap();
    node.background().unwrap();
    assert!(node.log.space().has_ballast);
    storage.set_capacity_bytes(Some(storage.used_bytes()));
    let stop = loop {
        if let Err(stop) = node.send(1, &mut told) {
            break stop;
        }
        node.commit(&mut told).unwrap();
    };
    assert!(matches!(stop, Stop::NoSpace));
    (storage, node, told)
}

fn has_ballast(storage: &FaultyStorage) -> bool {
    storage.content("ballast").is_some()
}

#[test]
fn a_snapshot_takes_the_ballast_and_new_messages_do_not() {
    let (storage, mut node, mut told) = full_with(of_snapshots());
    assert!(has_ballast(&storage));
    node.snapshot(&mut told).unwrap();
    node.background().unwrap();
    assert!(node.log.snapshots().failed.is_none());
    assert_eq!(node.log.snapshots().last, Some(node.log.end()));
    assert!(!has_ballast(&storage) && !node.log.space().has_ballast);
    // There is room for a segment now, and it is reserved for the next ballast.
    node.log.retry_prepare();
    assert!(matches!(node.send(1, &mut told), Err(Stop::NoSpace)));
    assert!(
        !storage
            .files()
            .iter()
            .any(|(name, _)| name.starts_with("prepare"))
    );

    storage.set_capacity_bytes(Some(storage.used_bytes() + (48 << 10)));
    node.log.retry_prepare();
    node.background().unwrap();
    node.send(30, &mut told).unwrap();
    node.commit(&mut told).unwrap();
    assert!(has_ballast(&storage) && node.log.space().has_ballast);
    Node::open_checked(&node.close(&mut told).unwrap(), &mut told);
}

#[test]
fn a_full_disk_is_recovered_in_the_place_of_the_ballast() {
    let (storage, node, mut told) = full();
    drop(node);
    let mut node = Node::open_checked(&storage, &mut told);
    assert!(!has_ballast(&storage));
    // Segments do not take the remaining space before the ballast exists again.
    node.background().unwrap();
    assert!(node.log.space().is_full && !has_ballast(&storage));
    storage.set_capacity_bytes(None);
    node.log.retry_prepare();
    node.background().unwrap();
    assert!(!node.log.space().is_full && has_ballast(&storage));
}

#[test]
fn a_full_disk_without_ballast_is_reported_with_the_space_needed() {
    let (storage, node, _) = full();
    drop(node);
    storage.lose_file("ballast");
    storage.set_capacity_bytes(Some(storage.used_bytes()));
    let error = Node::open(&storage).err().unwrap();
    assert!(
        error
            .to_string()
            .starts_with("the disk is full: a start needs 8192 free bytes"),
        "{error}"
    );
}

#[test]
fn a_power_cut_at_any_call_around_the_ballast_costs_nothing() {
    // The ballast is created, used by a snapshot, created again, and used by a recovery.
    let story = |storage: &FaultyStorage, told: &mut Told| -> Result<(), Stop> {
        let mut node = Node::open_with(storage, of_snapshots(), 7).map_err(Stop::Open)?;
        node.background()?;
        node.send(2, told)?;
        node.commit(told)?;
        storage.set_capacity_bytes(Some(storage.used_bytes()));
        // The first one finds the disk full, and the second one uses the ballast.
        for _ in 0..2 {
            node.snapshot(told)?;
            node.background()?;
        }
        storage.set_capacity_bytes(None);
        node.log.retry_prepare();
        node.background()?;
        node.send(1, told)?;
        node.commit(told)?;
        storage.set_capacity_bytes(Some(storage.used_bytes()));
        drop(node);
        let mut node = Node::open_with(storage, of_snapshots(), 7).map_err(Stop::Open)?;
        told.seen(&node.messages);
        // New messages have no room; records that free space have some.
        match node.send(1, told) {
            Err(Stop::NoSpace) => {}
            Err(stop) => return Err(stop),
            Ok(()) => panic!("a message got the reserved space"),
        }
        node.log.beat(0);
        node.commit(told)
    };
    let whole = FaultyStorage::new();
    story(&whole, &mut Told::default()).unwrap();
    assert!(!has_ballast(&whole), "the ballast was used");
    for calls in 0..whole.calls() {
        let storage = FaultyStorage::new();
        let mut told = Told::default();
        storage.crash_after(calls);
        assert!(story(&storage, &mut told).is_err());
        for seed in 0..8 {
            let mut random = Random::new(seed * 1000 + calls);
            let disk = storage.crash(&mut random.choice());
            disk.set_capacity_bytes(None);
            check_whole(&disk);
            let mut told = told.clone();
            let mut node = Node::open_checked(&disk, &mut told);
            node.background().unwrap();
            assert!(has_ballast(&disk));
            node.send(2, &mut told).unwrap();
            Node::open_checked(&node.close(&mut told).unwrap(), &mut told);
        }
    }
}

#[test]
fn a_ballast_of_another_size_is_made_anew() {
    let storage = FaultyStorage::new();
    let mut node = Node::open(&storage).unwrap();
    node.background().unwrap();
    for (size, found) in [
        (16 << 10, Some(16 << 10)),
        (0, None),
        (4 << 10, Some(4 << 10)),
    ] {
        let options = LogOptions {
            ballast_size_bytes: size,
            ..small()
        };
        let mut node = Node::open_with(&storage, options, 7).unwrap();
        node.background().unwrap();
        assert_eq!(storage.content("ballast").map(|bytes| bytes.len()), found);
    }
}

#[test]
fn a_forced_mark_lets_a_second_snapshot_free_drained_space() {
    let storage = FaultyStorage::new();
    let mut told = Told::default();
    let mut node = Node::open(&storage).unwrap();
    node.background().unwrap();
    node.send(40, &mut told).unwrap();
    node.commit(&mut told).unwrap();
    let before = node.log.segments().count();
    let live = node.live();
    assert!(node.log.can_free_segments(&live));
    for _ in 0..2 {
        node.snapshot(&mut told).unwrap();
        node.background().unwrap();
        assert!(node.log.beat(0));
        node.commit(&mut told).unwrap();
    }
    assert!(node.log.segments().count() < before);
    let live = node.live();
    assert!(!node.log.can_free_segments(&live));
    // Never more than fit into the segment, with its roll.
    while node.log.beat(0) {
        node.commit(&mut told).unwrap();
    }
    node.send(9, &mut told).unwrap();
    Node::open_checked(&node.close(&mut told).unwrap(), &mut told);
}

#[test]
fn where_a_large_segment_does_not_fit_a_small_one_is_made() {
    let storage = FaultyStorage::new();
    let options = LogOptions {
        segment_size_max_bytes: 128 << 10,
        ..small()
    };
    let mut told = Told::default();
    let mut node = Node::open_with(&storage, options, 7).unwrap();
    node.background().unwrap();
    storage.set_capacity_bytes(Some(storage.used_bytes() + (50 << 10)));
    let stop = loop {
        if let Err(stop) = node.send(1, &mut told) {
            break stop;
        }
        node.commit(&mut told).unwrap();
    };
    assert!(matches!(stop, Stop::NoSpace));
    let sizes: Vec<u64> = node
        .log
        .segments()
        .map(|span| span.size_bytes >> 10)
        .collect();
    assert_eq!(sizes, [8, 16, 32, 8, 8]);
}

/// Draining needs some 8 MB for a snapshot, and so a ballast of 24 MB and more.
const LARGE_STATE_BYTES: u64 = 8 << 20;

#[test]
fn the_ballast_grows_in_steps_and_a_segment_is_prepared_in_between() {
    let storage = FaultyStorage::new();
    let mut node = Node::open(&storage).unwrap();
    node.background().unwrap();
    node.log.keep_for_draining(of_size(LARGE_STATE_BYTES));
    let mut before = storage.used_bytes();
    let mut steps = 0;
    while let Some(job) = node.log.next_background_job() {
        if job.kind() == JobKind::Ballast {
            steps += 1;
        }
        node.log.complete(job.run()).unwrap();
        let now = storage.used_bytes();
        assert!(
            now <= before + (8 << 20),
            "{} bytes in a step",
            now - before
        );
        before = now;
    }
    assert!(steps >= 3, "{steps} steps");
    assert!(node.log.space().has_ballast);
}

#[test]
fn a_ballast_that_does_not_fit_is_not_begun() {
    let storage = FaultyStorage::new();
    let mut node = Node::open(&storage).unwrap();
    node.background().unwrap();
    storage.set_capacity_bytes(Some(storage.used_bytes() + (20 << 20)));
    let before = storage.used_bytes();
    node.log.keep_for_draining(of_size(LARGE_STATE_BYTES));
    node.background().unwrap();
    assert!(matches!(
        node.log.reserve(Need::grow(0)),
        Err(ReserveError::NoSpace)
    ));
    assert_eq!(storage.used_bytes(), before);
}

#[test]
fn a_disk_whose_draining_ended_is_not_full_at_once() {
    // In steps of 1 KiB, until there is enough space to finish draining.
    let (storage, mut node, mut told) = full();
    let state_bytes = 256 << 10;
    node.log.keep_for_draining(of_size(state_bytes));
    node.background().unwrap();
    let mut capacity_bytes = storage.used_bytes();
    while node.log.limits().full.is_some() {
        capacity_bytes += 1 << 10;
        storage.set_capacity_bytes(Some(capacity_bytes));
        node.log.retry_prepare();
        node.background().unwrap();
    }
    let began = node.log.end().as_u64();
    while node.send(1, &mut told).is_ok() {
        node.commit(&mut told).unwrap();
        node.background().unwrap();
    }
    let bytes = node.log.end().as_u64() - began;
    assert!(bytes >= 64 << 10, "full again after {bytes} bytes");
}

#[test]
fn files_kept_for_lack_of_space_are_removed_later() {
    let storage = FaultyStorage::new();
    let mut told = Told::default();
    let mut node = Node::open(&storage).unwrap();
    node.background().unwrap();
    let mut refused = 0;
    for round in 0..40 {
        node.send(5, &mut told).unwrap();
        node.snapshot(&mut told).unwrap();
        while let Some(job) = node.log.next_background_job() {
            let is_refused = job.kind() == JobKind::Retire && round < 20;
            if is_refused {
                // At each of its calls once.
                storage.fail_after(refused % 5, Fault::EnospcAtAll, Repeat::Once);
                refused += 1;
            }
            let outcome = job.run();
            storage.clear_faults();
            node.log.complete(outcome).unwrap();
        }
    }
    assert!(refused >= 10, "{refused} were refused");
    let segments = storage.files().into_iter();
    let segments = segments.filter(|(name, _)| name.starts_with("segment-"));
    // Those in use, and the prepared one.
    assert_eq!(segments.count(), node.log.segments().count() + 1);
    let snapshots = storage.files().into_iter();
    let snapshots = snapshots.filter(|(name, _)| name.starts_with("snapshot-"));
    assert_eq!(snapshots.count(), 2);
    check_whole(&storage);
    Node::open_checked(&node.close(&mut told).unwrap(), &mut told);
}

#[test]
fn a_ballast_that_is_too_large_is_replaced_by_a_smaller_one() {
    let storage = FaultyStorage::new();
    let mut node = Node::open(&storage).unwrap();
    node.log.keep_for_draining(of_size(LARGE_STATE_BYTES));
    node.background().unwrap();
    let large = node.log.space().disk_bytes;
    assert!(!node.log.shrink_ballast(), "all of it is needed");
    node.log.keep_for_draining(of_size(64 << 10));
    assert!(node.log.shrink_ballast());
    let mut is_made = false;
    while let Some(job) = node.log.next_background_job() {
        is_made |= job.kind() == JobKind::Ballast;
        // There is a whole ballast at any time, so messages have room.
        assert!(node.log.reserve(Need::grow(0)).is_ok());
        node.log.complete(job.run()).unwrap();
    }
    let small = node.log.space().disk_bytes;
    assert!(is_made && small < large / 4, "{small} after {large}");
    assert!(!node.log.shrink_ballast());
    assert!(node.log.reserve(Need::grow(0)).is_ok());
    let names: Vec<_> = storage.files().into_iter().map(|(name, _)| name).collect();
    assert!(
        !names.iter().any(|name| name == "prepare-ballast"),
        "{names:?}"
    );
    // Without space for the smaller one, the large one stays.
    node.log.keep_for_draining(of_size(LARGE_STATE_BYTES));
    node.background().unwrap();
    let large = node.log.space().disk_bytes;
    node.log.keep_for_draining(of_size(64 << 10));
    storage.set_capacity_bytes(Some(storage.used_bytes() + 1000));
    assert!(node.log.shrink_ballast());
    node.background().unwrap();
    assert_eq!(node.log.space().disk_bytes, large);
    assert!(node.log.limits().full.is_none() && node.log.reserve(Need::grow(0)).is_ok());
}
