//! Bit rot and lost files: lost durable records are reported, others are cut.

use std::sync::Arc;

use kew_log::{
    Fault, FaultyStorage, LogOptions, Need, OpenError, Repeat, Salvage, inspect, verify,
};

use crate::node::{Node, Told, body_of, small};
use crate::random::Random;

const SEGMENT_1: &str = "segment-00000000000000000001";

/// A log of one segment in which every message is proven durable, with the offsets of its three records and of its
/// end.
fn marked() -> (FaultyStorage, Told, Vec<u64>) {
    let storage = FaultyStorage::new();
    let mut told = Told::default();
    let mut node = Node::open(&storage).unwrap();
    let mut offsets = Vec::new();
    for _ in 0..3 {
        offsets.push(node.log.end().as_u64());
        node.send(2, &mut told).unwrap();
        node.commit(&mut told).unwrap();
    }
    offsets.push(node.log.end().as_u64());
    node.close(&mut told).unwrap();
    (storage, told, offsets)
}

fn contents(storage: &FaultyStorage) -> Vec<(String, Vec<u8>)> {
    let names = storage.files().into_iter().map(|(name, _)| name);
    names
        .map(|name| {
            let content = storage.content(&name).unwrap();
            (name, content)
        })
        .collect()
}

/// Expects a refusal that names a place, and that nothing was modified.
fn refused(storage: &FaultyStorage) -> (String, u64, String) {
    let before = contents(storage);
    let error = Node::open(storage).err().expect("damage must be noticed");
    assert_eq!(before, contents(storage), "nothing is modified");
    let found = verify(storage).unwrap_err();
    let OpenError::Corrupt { file, offset, what } = error else {
        panic!("{error}");
    };
    let report = inspect(storage).unwrap();
    assert!(
        report
            .damage
            .iter()
            .any(|d| d.file == file && d.offset == offset),
        "{:?} does not name {file} at {offset}",
        report.damage
    );
    assert!(matches!(found, OpenError::Corrupt { .. }));
    (file, offset, what)
}

#[test]
fn damage_before_a_mark_is_refused_with_file_and_offset() {
    let (storage, _, offsets) = marked();
    for record in 0..3 {
        for at in (offsets[record]..offsets[record + 1]).step_by(13) {
            let disk = storage.kill();
            disk.flip(SEGMENT_1, at, 1);
            if padding(&storage, offsets[record], at) {
                Node::open(&disk).unwrap();
                continue;
            }
            let (file, offset, what) = refused(&disk);
            assert_eq!((&*file, offset), (SEGMENT_1, offsets[record]));
            assert!(what.ends_with(&format!(", and all before {} was durable", offsets[3])));
        }
    }
}

/// Whether a byte lies behind the payload of the record that begins at `record`.
fn padding(storage: &FaultyStorage, record: u64, at: u64) -> bool {
    let content = storage.content(SEGMENT_1).unwrap();
    let header = usize::try_from(record).unwrap();
    let length = u32::from_le_bytes(content[header + 12..header + 16].try_into().unwrap());
    at >= record + 48 + u64::from(length)
}

#[test]
fn a_damaged_mark_costs_nothing() {
    let (storage, told, _) = marked();
    // The first claim is in the second slot.
    for at in [4096, 4096 + 12, 4096 + 44, 4096 + 48] {
        let disk = storage.kill();
        disk.flip("proof", at, 0x40);
        assert!(verify(&disk).is_err());
        let node = Node::open_checked(&disk, &mut told.clone());
        assert_eq!(node.recovery.records_copied, 1);
        let warnings = &node.recovery.warnings;
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        assert!(warnings[0].starts_with("proof is damaged at byte 4096"));
        // The start has made another one.
        verify(&disk).unwrap();
    }
    // Without the mark, nothing proves the last batch.
    storage.lose_file("proof");
    let node = Node::open_checked(&storage, &mut told.clone());
    assert_eq!(node.recovery.records_copied, 1);
}

#[test]
fn neither_marks_nor_rolls_move_a_position() {
    let mut ends = Vec::new();
    // One log in small segments, with a mark after each batch, and one in a large one.
    for options in [
        small(),
        LogOptions {
            segment_size_first_bytes: 1 << 20,
            segment_size_max_bytes: 1 << 20,
            ..small()
        },
    ] {
        let storage = FaultyStorage::new();
        let mut told = Told::default();
        let mut node = Node::open_with(&storage, options, 7).unwrap();
        let mut seen = Vec::new();
        for _ in 0..12 {
            node.send(4, &mut told).unwrap();
            node.commit(&mut told).unwrap();
            node.background().unwrap();
            let end = node.log.end();
            if options == small() {
                assert!(node.log.mark());
                node.commit(&mut told).unwrap();
                assert_eq!(node.log.end(), end);
            }
            seen.push(end);
        }
        ends.push((node.log.segments().count(), seen));
        let node = Node::open_checked(&storage, &mut told);
        assert_eq!(Some(&node.log.end()), ends.last().unwrap().1.last());
    }
    assert!(ends[0].0 >= 3 && ends[1].0 == 1, "{ends:?}");
    assert_eq!(ends[0].1, ends[1].1);
}

#[test]
fn damage_before_a_later_record_is_refused_without_any_mark() {
    let storage = FaultyStorage::new();
    let mut told = Told::default();
    let mut node = Node::open(&storage).unwrap();
    node.send(2, &mut told).unwrap();
    node.commit(&mut told).unwrap();
    let second = node.log.end().as_u64();
    node.send(1, &mut told).unwrap();
    node.commit(&mut told).unwrap();
    for at in [4096, 4100, 4300] {
        let disk = storage.kill();
        disk.flip(SEGMENT_1, at, 0x80);
        let (file, offset, _) = refused(&disk);
        assert_eq!((&*file, offset), (SEGMENT_1, 4096));
    }
    // The last record has none behind it: damage there looks like a torn tail.
    storage.flip(SEGMENT_1, second + 60, 1);
    let node = Node::open(&storage).unwrap();
    assert_eq!(node.messages.count, 2);
    let cut = node.recovery.tail_cut.unwrap();
    assert_eq!((&*cut.file, cut.offset), (SEGMENT_1, second));
    assert!(cut.size_bytes > 48);
}

#[test]
fn a_record_that_overlapped_a_commit_proves_that_commit() {
    let storage = FaultyStorage::new();
    let mut told = Told::default();
    let mut node = Node::open(&storage).unwrap();
    node.send(2, &mut told).unwrap();
    // Appended while the first is on its way, and written after it.
    node.overlap(2, &mut told).unwrap();
    node.commit(&mut told).unwrap();
    storage.flip(SEGMENT_1, 4200, 1);
    let (_, offset, _) = refused(&storage);
    assert_eq!(offset, 4096);
}

#[test]
fn within_one_commit_a_hole_is_a_torn_tail() {
    let storage = FaultyStorage::new();
    let mut told = Told::default();
    let mut node = Node::open(&storage).unwrap();
    node.send(1, &mut told).unwrap();
    node.send(2, &mut told).unwrap();
    node.send(3, &mut told).unwrap();
    node.log.run_commit().unwrap();
    let end = node.log.end().as_u64();
    storage.flip(SEGMENT_1, 4100, 1);
    let node = Node::open(&storage).unwrap();
    assert_eq!(node.messages.count, 0);
    let cut = node.recovery.tail_cut.unwrap();
    assert_eq!((cut.offset, cut.size_bytes), (4096, end - 4096));
}

#[test]
fn a_look_alike_inside_a_body_proves_nothing() {
    let (source, _, offsets) = marked();
    let content = source.content(SEGMENT_1).unwrap();
    let from = usize::try_from(offsets[1]).unwrap();
    let to = usize::try_from(offsets[3]).unwrap() + 48;
    let stolen = &content[from..to];

    let storage = FaultyStorage::new();
    let mut node = Node::open_with(&storage, small(), 8).unwrap();
    let reservation = node.log.reserve(Need::grow(0)).unwrap();
    let mut batch = kew_log::BatchBuilder::at(reservation.position);
    batch.push_body(stolen);
    node.log.append(reservation, batch).unwrap();
    node.log.run_commit().unwrap();
    storage.flip(SEGMENT_1, 4096, 1);
    let node = Node::open(&storage).unwrap();
    assert_eq!(node.messages.count, 0);
}

#[test]
fn a_damaged_header_is_refused_also_in_a_segment_without_records() {
    let (storage, ..) = marked();
    let mut node = Node::open(&storage).unwrap();
    node.background().unwrap();
    drop(node);
    let segments: Vec<String> = storage
        .files()
        .into_iter()
        .map(|(name, _)| name)
        .filter(|name| name.starts_with("segment-"))
        .collect();
    assert!(segments.len() >= 3);
    for segment in segments {
        for at in [0, 8, 17, 30, 40, 50, 60, 66, 70, 86] {
            let disk = storage.kill();
            disk.flip(&segment, at, 4);
            let (file, offset, _) = refused(&disk);
            assert_eq!((file, offset), (segment.clone(), 0));
        }
    }
}

#[test]
fn a_truncated_segment_is_refused() {
    let (storage, ..) = marked();
    for size in [0, 40, 4096, 5000, 8191] {
        let disk = storage.kill();
        disk.truncate(SEGMENT_1, size);
        let (file, offset, _) = refused(&disk);
        assert_eq!(file, SEGMENT_1);
        assert_eq!(offset, if size < 88 { 0 } else { size });
    }
}

/// Several segments, all of them needed: no snapshot.
fn long() -> (FaultyStorage, Told) {
    long_with(small(), 12)
}

fn long_with(options: LogOptions, rounds: u64) -> (FaultyStorage, Told) {
    let storage = FaultyStorage::new();
    let mut told = Told::default();
    let mut node = Node::open_with(&storage, options, 7).unwrap();
    for _ in 0..rounds {
        node.send(4, &mut told).unwrap();
        node.commit(&mut told).unwrap();
        node.background().unwrap();
    }
    node.close(&mut told).unwrap();
    (storage, told)
}

#[test]
fn a_missing_segment_is_refused() {
    let (storage, _) = long();
    let segments = inspect(&storage).unwrap().segments;
    assert!(segments.len() >= 4);
    for segment in &segments {
        // Without the empty segment behind the last one the log is complete, if nothing in it was
        // begun.
        if segment.state == kew_log::SegmentState::Prepared {
            continue;
        }
        let disk = storage.kill();
        disk.lose_file(&segment.file);
        let error = Node::open(&disk).err().unwrap();
        assert!(error.to_string().contains("missing"), "{error}");
    }
}

#[test]
fn segments_of_two_histories_do_not_mix() {
    // As after a partly restored backup: the same salts, other messages.
    let (storage, _) = long();
    let other = FaultyStorage::new();
    let mut told = Told::default();
    let mut node = Node::open(&other).unwrap();
    for _ in 0..4 {
        node.send(3, &mut told).unwrap();
        node.commit(&mut told).unwrap();
    }
    node.background().unwrap();
    node.send(20, &mut told).unwrap();
    node.close(&mut told).unwrap();
    let second = "segment-00000000000000000002";
    let end = inspect(&storage).unwrap().segments[0].end.unwrap().as_u64();
    storage.put(second, &other.content(second).unwrap());
    let (file, offset, what) = refused(&storage);
    assert_eq!((&*file, offset), (SEGMENT_1, end));
    assert_eq!(
        what,
        format!("the log continues in {second}, which begins elsewhere")
    );
}

#[test]
fn a_roll_shows_that_a_segment_is_missing_and_is_not_needed_otherwise() {
    let (storage, told) = long();
    let report = inspect(&storage).unwrap();
    let segments: Vec<_> = report.segments.iter().filter(|it| it.records > 0).collect();
    let [.., before, last] = &segments[..] else {
        panic!("{segments:?}");
    };
    let end = before.end.unwrap().as_u64() - before.first.unwrap().as_u64() + 4096;
    // The next segment begins where this one ends.
    let disk = storage.kill();
    disk.flip(&before.file, end + 2, 1);
    Node::open_checked(&disk, &mut told.clone());
    let disk = storage.kill();
    disk.lose_file(&last.file);
    let (file, offset, what) = refused(&disk);
    assert_eq!((file, offset), (before.file.clone(), end));
    assert_eq!(
        what,
        format!("the log continues in {}, which is missing", last.file)
    );
}

#[test]
fn a_segment_that_has_lost_all_its_records_is_refused() {
    let (storage, _) = long();
    let report = inspect(&storage).unwrap();
    let segments = report.segments.iter().filter(|it| it.records > 0);
    for segment in segments.skip(1) {
        let disk = storage.kill();
        let size = disk.content(&segment.file).unwrap().len();
        disk.corrupt(&segment.file, 4096, &vec![0; size - 4096]);
        let (file, offset, what) = refused(&disk);
        assert_eq!((file, offset), (segment.file.clone(), 4096));
        assert!(what.contains("was durable"), "{what}");
    }
}

/// A log with two snapshots and messages behind each of them.
fn snapshotted() -> (FaultyStorage, Told, Vec<String>) {
    snapshotted_with(small())
}

fn snapshotted_with(options: LogOptions) -> (FaultyStorage, Told, Vec<String>) {
    let storage = FaultyStorage::new();
    let mut told = Told::default();
    let mut node = Node::open_with(&storage, options, 7).unwrap();
    for _ in 0..2 {
        node.send(9, &mut told).unwrap();
        node.snapshot(&mut told).unwrap();
        node.background().unwrap();
    }
    node.send(2, &mut told).unwrap();
    node.close(&mut told).unwrap();
    let files = storage.files().into_iter().map(|(name, _)| name);
    let snapshots: Vec<String> = files.filter(|name| name.starts_with("snapshot-")).collect();
    assert_eq!(snapshots.len(), 2);
    (storage, told, snapshots)
}

#[test]
fn a_damaged_snapshot_falls_back_to_the_older_one() {
    let (storage, told, snapshots) = snapshotted();
    let size = storage.content(&snapshots[1]).unwrap().len() as u64;
    for at in (0..size).step_by(3) {
        let disk = storage.kill();
        disk.flip(&snapshots[1], at, 0x10);
        let node = Node::open_checked(&disk, &mut told.clone());
        let used = node.recovery.snapshot.unwrap();
        assert_eq!(format!("snapshot-{:020}", used.as_u64()), snapshots[0]);
        assert_eq!(node.recovery.warnings.len(), 1);
        assert!(node.recovery.warnings[0].contains(&snapshots[1]));
        assert!(verify(&disk).is_err());
    }
    for size in 0..size {
        let disk = storage.kill();
        disk.truncate(&snapshots[1], size);
        let node = Node::open_checked(&disk, &mut told.clone());
        assert_eq!(node.recovery.warnings.len(), 1);
    }
}

/// Nothing needs the older snapshot as long as the newest one is whole.
#[test]
fn a_bad_sector_in_the_older_snapshot_refuses_no_start_and_no_repair() {
    let (storage, told, snapshots) = snapshotted();
    storage.spoil(&snapshots[0], 0..512);
    assert!(Salvage::look(Arc::new(storage.clone())).is_ok());
    let node = Node::open_checked(&storage, &mut told.clone());
    let used = node.recovery.snapshot.unwrap();
    assert_eq!(format!("snapshot-{:020}", used.as_u64()), snapshots[1]);
    let warnings = &node.recovery.warnings;
    assert!(warnings[0].contains(&snapshots[0]), "{warnings:?}");
}

/// A bad sector in a snapshot is damage like any other: the older one is used, by a start and by a repair.
#[test]
fn a_bad_sector_in_the_newest_snapshot_refuses_no_start_and_no_repair() {
    let (storage, told, snapshots) = snapshotted();
    for sector in [0..1, 100..101] {
        let disk = storage.kill();
        disk.spoil(&snapshots[1], sector);
        let salvage = Salvage::look(Arc::new(disk.clone())).unwrap();
        assert!(salvage.refusal().is_none());
        let base = &salvage.bases()[0];
        let older = format!("snapshot-{:020}", base.position.as_u64());
        assert_eq!((older, base.is_whole), (snapshots[0].clone(), true));
        let node = Node::open_checked(&disk, &mut told.clone());
        let used = node.recovery.snapshot.unwrap();
        assert_eq!(format!("snapshot-{:020}", used.as_u64()), snapshots[0]);
        let warnings = &node.recovery.warnings;
        assert!(warnings[0].contains(&snapshots[1]), "{warnings:?}");
        assert!(node.recovery.damaged_files.contains(&snapshots[1]));
    }
}

/// Only what the disk cannot give back is damage. A repair that takes another failure for damage drops what is whole.
#[test]
fn a_read_that_fails_for_another_reason_is_no_damage() {
    let (storage, ..) = snapshotted();
    let calls = |disk: &FaultyStorage| {
        let before = disk.calls();
        let salvage = Salvage::look(Arc::new(disk.clone())).unwrap();
        let bases = salvage.bases().to_vec();
        (disk.calls() - before, bases)
    };
    let (count, bases) = calls(&storage);
    for call in 0..count {
        let disk = storage.kill();
        disk.fail_after(call, Fault::Eacces, Repeat::Sticky);
        assert!(
            Salvage::look(Arc::new(disk.clone())).is_err(),
            "without rights from call {call}"
        );
        // A disk that fails once has lost nothing.
        let disk = storage.kill();
        disk.fail_after(call, Fault::Eio, Repeat::Once);
        if let Ok(salvage) = Salvage::look(Arc::new(disk.clone())) {
            assert!(salvage.refusal().is_none(), "call {call} fails once");
            assert_eq!(salvage.bases(), bases, "call {call} fails once");
        }
    }
}

#[test]
fn snapshots_are_kept_in_pairs_again_after_one_was_damaged() {
    let (storage, mut told, snapshots) = snapshotted();
    storage.flip(&snapshots[1], 86, 1);
    let mut node = Node::open_checked(&storage, &mut told);
    for _ in 0..2 {
        node.send(9, &mut told).unwrap();
        node.snapshot(&mut told).unwrap();
        node.background().unwrap();
    }
    for snapshot in &snapshots {
        assert_eq!(storage.content(snapshot), None);
    }
    assert_eq!(verify(&storage).unwrap().snapshots.len(), 2);
    Node::open_checked(&storage, &mut told);
}

#[test]
fn without_a_snapshot_that_is_whole_the_log_is_refused() {
    let (storage, _, snapshots) = snapshotted();
    for snapshot in &snapshots {
        storage.flip(snapshot, 81, 1);
    }
    let (file, offset, what) = refused(&storage);
    assert_eq!((file, offset), (snapshots[1].clone(), 76));
    assert_eq!(what, "a part of the snapshot does not match its checksum");
}

#[test]
fn the_only_snapshot_is_not_needed_while_the_log_is_complete() {
    let storage = FaultyStorage::new();
    let mut told = Told::default();
    let mut node = Node::open(&storage).unwrap();
    node.send(20, &mut told).unwrap();
    node.snapshot(&mut told).unwrap();
    node.background().unwrap();
    let position = node.log.snapshots().last.unwrap();
    drop(node);
    let name = format!("snapshot-{:020}", position.as_u64());
    storage.flip(&name, 73, 1);
    let mut node = Node::open_checked(&storage, &mut told);
    assert_eq!(node.recovery.snapshot, None);
    assert_eq!(node.recovery.events_replayed, 20);
    // The next one at the same position replaces it.
    node.snapshot(&mut told).unwrap();
    node.background().unwrap();
    let node = Node::open_checked(&storage, &mut told);
    assert_eq!(node.recovery.snapshot, Some(position));
}

#[test]
fn events_in_a_snapshot_count_as_durable() {
    let storage = FaultyStorage::new();
    let mut told = Told::default();
    let mut node = Node::open(&storage).unwrap();
    // Before anything is sent, so that the next segment's header proves nothing about it.
    node.background().unwrap();
    node.send(2, &mut told).unwrap();
    node.snapshot(&mut told).unwrap();
    node.background().unwrap();
    let position = node.log.snapshots().last.unwrap().as_u64();
    drop(node);
    // Both the snapshot and the only record before it: neither error may hide the other.
    storage.flip(&format!("snapshot-{position:020}"), 73, 1);
    storage.flip(SEGMENT_1, 4100, 1);
    let (file, offset, _) = refused(&storage);
    assert_eq!((&*file, offset), (SEGMENT_1, 4096));
}

#[test]
fn a_damaged_body_costs_that_body_and_verify_names_it() {
    let storage = FaultyStorage::new();
    let mut told = Told::default();
    let mut node = Node::open(&storage).unwrap();
    node.send(1, &mut told).unwrap();
    node.send(4, &mut told).unwrap();
    node.commit(&mut told).unwrap();
    let (id, location) = *node.messages.live.back().unwrap();
    let offset = location.record.as_u64() + 48 + u64::from(location.offset);
    // Two snapshots behind it: a start does not read it.
    for _ in 0..2 {
        node.send(1, &mut told).unwrap();
        node.snapshot(&mut told).unwrap();
        node.background().unwrap();
    }
    drop(node);
    storage.flip(SEGMENT_1, offset + 1, 1);
    let node = Node::open(&storage).unwrap();
    let body = node.log.body(location).unwrap();
    assert_eq!(
        body.read().unwrap_err().to_string(),
        format!("the body in {SEGMENT_1} at byte {offset} does not match its checksum")
    );
    let (other, location) = node.messages.live[0];
    assert_ne!(other, id);
    let body = node.log.body(location).unwrap();
    assert_eq!(body.read().unwrap(), body_of(other));
    let error = verify(&storage).unwrap_err().to_string();
    assert!(
        error.starts_with(&format!("{SEGMENT_1} is damaged at byte")),
        "{error}"
    );
}

#[test]
fn foreign_files_are_left_unchanged_and_reported() {
    let (storage, mut told, _) = marked();
    storage.put("segment-1.backup", b"x");
    storage.put("notes", b"y");
    let node = Node::open_checked(&storage, &mut told);
    assert_eq!(node.recovery.warnings.len(), 2);
    assert!(node.recovery.warnings[0].starts_with("notes is not a file of the log"));
    assert_eq!(storage.content("notes").unwrap(), b"y");
}

/// Any single damage: noticed, or without effect.
#[test]
fn random_damage_is_never_silent() {
    let options = LogOptions {
        segment_size_first_bytes: 12 << 10,
        segment_size_max_bytes: 24 << 10,
        ..small()
    };
    let (snapshotted, told, _) = snapshotted_with(options);
    let logs = [long_with(options, 20), (snapshotted, told)];
    for seed in 0..3000 {
        let mut random = Random::new(seed);
        let (storage, told) = &logs[usize::try_from(random.below(2)).unwrap()];
        let disk = storage.kill();
        let files = disk.files();
        let (file, size) = &files[usize::try_from(random.below(files.len() as u64)).unwrap()];
        let at = random.below(*size);
        let sector = at / 512 * 512;
        match random.below(5) {
            0 => disk.flip(file, at, 1 << random.below(8)),
            1 => disk.corrupt(file, sector, &[0; 512][..sector_size(*size, sector)]),
            2 => disk.truncate(file, at),
            3 => {
                // A block that belongs elsewhere.
                let content = disk.content(file).unwrap();
                let from = usize::try_from(random.below(*size) / 512 * 512).unwrap();
                let end = content.len().min(from + sector_size(*size, sector));
                disk.corrupt(file, sector, &content[from..end]);
            }
            _ => disk.lose_file(file),
        }
        let whole = verify(&disk).is_ok();
        match Node::open(&disk) {
            Ok(node) => {
                let used = node.recovery.snapshot;
                assert_eq!(node.messages.count, told.acknowledged, "seed {seed}");
                for (id, location) in &node.messages.live {
                    let Some(body) = node.log.body(*location) else {
                        // No start reads it, so nothing says that there was a file.
                        assert!(disk.content(file).is_none(), "seed {seed}");
                        continue;
                    };
                    if let Ok(body) = body.read() {
                        assert_eq!(body, body_of(*id), "seed {seed}");
                    } else {
                        assert!(!whole, "seed {seed}: verify saw nothing, used {used:?}");
                    }
                }
            }
            Err(OpenError::Corrupt { .. } | OpenError::NewerFormat { .. }) => {
                assert!(!whole, "seed {seed}: verify saw nothing");
            }
            Err(error) => panic!("seed {seed}: {error}"),
        }
    }
}

fn sector_size(size: u64, sector: u64) -> usize {
    usize::try_from((size - sector).min(512)).unwrap()
}

/// A segment that no start replays is read for its bodies alone. Without its records, it still knows its positions.
#[test]
fn a_body_in_a_segment_that_has_lost_all_its_records_is_damaged_there() {
    let storage = FaultyStorage::new();
    let mut told = Told::default();
    let mut node = Node::open(&storage).unwrap();
    for count in [9, 60] {
        node.send(count, &mut told).unwrap();
        node.snapshot(&mut told).unwrap();
        node.background().unwrap();
    }
    node.close(&mut told).unwrap();
    let node = Node::open_checked(&storage.kill(), &mut told.clone());
    let spans: Vec<_> = node.log.segments().collect();
    let [older @ .., _] = &spans[..] else {
        panic!("{spans:?}");
    };
    assert!(older.len() > 1);
    for span in older {
        let disk = storage.kill();
        let name = format!("segment-{:020}", span.number);
        let size = disk.content(&name).unwrap().len();
        disk.corrupt(&name, 4096, &vec![0; size - 4096]);
        match Node::open(&disk) {
            Ok(node) => {
                assert_eq!(node.log.segment_of(span.first).unwrap().number, span.number);
            }
            Err(OpenError::Corrupt { file, .. }) => assert_eq!(file, name),
            Err(error) => panic!("{error}"),
        }
    }
}

/// A small log has one segment with records, and one that is prepared.
#[test]
fn a_log_whose_only_segment_is_lost_is_not_a_new_one() {
    let storage = FaultyStorage::new();
    let mut told = Told::default();
    let mut node = Node::open(&storage).unwrap();
    node.background().unwrap();
    node.send(2, &mut told).unwrap();
    node.close(&mut told).unwrap();
    let files: Vec<String> = storage.files().into_iter().map(|(name, _)| name).collect();
    let segments = files.iter().filter(|name| name.starts_with("segment-"));
    assert_eq!(segments.count(), 2, "{files:?}");
    // What is left of it: the prepared segment, or the proof, or both.
    for also_lost in ["", "segment-00000000000000000002", "proof"] {
        let disk = storage.kill();
        disk.lose_file(SEGMENT_1);
        disk.lose_file(also_lost);
        let (file, offset, what) = refused(&disk);
        assert_eq!((&*file, offset), (SEGMENT_1, 0), "without {also_lost}");
        assert!(what.ends_with("is missing"), "{what}");
    }
}

#[test]
fn files_of_another_log_are_refused() {
    let (storage, _, snapshots) = snapshotted();
    let mut told = Told::default();
    let other = FaultyStorage::new();
    let mut node = Node::open_with(&other, small(), 8).unwrap();
    node.send(20, &mut told).unwrap();
    node.close(&mut told).unwrap();
    let newest = storage.files().into_iter().map(|(name, _)| name);
    let newest = newest.filter(|name| name.starts_with("segment-")).max();
    let disk = storage.kill();
    let stray = "segment-00000000000000000001";
    disk.put(stray, &other.content(stray).unwrap());
    assert!(newest.as_deref() > Some(stray));
    let (file, offset, what) = refused(&disk);
    assert_eq!((&*file, offset), (stray, 0));
    assert_eq!(what, "the segment is of another log than the newest one");

    // A snapshot of the same place in another log.
    let other = FaultyStorage::new();
    let mut node = Node::open_with(&other, small(), 8).unwrap();
    for _ in 0..2 {
        node.send(9, &mut told).unwrap();
        node.snapshot(&mut told).unwrap();
        node.background().unwrap();
    }
    let stray = &snapshots[1];
    storage.put(stray, &other.content(stray).unwrap());
    let (file, _, what) = refused(&storage);
    assert_eq!(&file, stray);
    assert_eq!(
        what,
        "the snapshot is of another log than the newest segment"
    );
}
