//! A scrub finds every damaged byte of what it reads, names it, and goes on behind it.

mod open;

use std::collections::BTreeMap;
use std::sync::Arc;

use kew_log::{
    BatchBuilder, Fault, FaultyStorage, LogOptions, LogPosition, Need, Repeat, Scrub, ScrubCursor,
    ScrubDamage, Scrubbed, SegmentLog,
};

use crate::node::{Messages, Node, Told};

/// A log with some segments, of which the last one is written to, and two snapshots.
fn filled(disk: &FaultyStorage, told: &mut Told) -> Node {
    let mut node = Node::open_checked(disk, told);
    for round in 0..40 {
        node.send(4, told).unwrap();
        node.commit(told).unwrap();
        node.background().unwrap();
        if round == 3 || round == 6 {
            node.snapshot(told).unwrap();
            node.background().unwrap();
        }
    }
    node
}

/// All damage that a pass finds, and how much it reads of each file.
fn pass(node: &Node) -> (Vec<ScrubDamage>, BTreeMap<String, u64>) {
    let mut cursor = ScrubCursor::default();
    let (mut damage, mut read) = (Vec::new(), BTreeMap::new());
    while let Some(mut scrub) = node.log.next_scrub(cursor) {
        while scrub.step().is_some() {}
        let scrubbed = scrub.finish();
        assert_ne!(scrubbed.next, cursor, "it goes on");
        cursor = scrubbed.next;
        damage.extend(scrubbed.damage);
        read.insert(format!("{cursor:?}"), scrubbed.read_bytes);
    }
    (damage, read)
}

/// The segment that is appended to. A commit writes its header: `scrub/open.rs`.
fn active(node: &Node) -> String {
    let last = node.log.segments().last().unwrap();
    format!("segment-{:020}", last.number)
}

/// The used bytes of the files of a pass. All of the log is durable.
fn used(node: &Node, disk: &FaultyStorage) -> Vec<(String, usize)> {
    let mut used: Vec<_> = disk
        .files()
        .into_iter()
        .filter(|(name, _)| name.starts_with("snapshot-"))
        .map(|(name, size)| (name, usize::try_from(size).unwrap()))
        .collect();
    for span in node.log.segments() {
        let end = 4096 + span.end.as_u64() - span.first.as_u64();
        let name = format!("segment-{:020}", span.number);
        let content = disk.content(&name).unwrap();
        let end = usize::try_from(end).unwrap().min(content.len());
        let last = content[..end].iter().rposition(|byte| *byte != 0);
        used.push((name, last.unwrap() + 1));
    }
    used
}

#[test]
fn a_whole_log_is_read_and_has_no_damage() {
    let disk = FaultyStorage::new();
    let mut told = Told::default();
    let node = filled(&disk, &mut told);
    let (damage, read) = pass(&node);
    assert_eq!(damage, []);
    let files = used(&node, &disk);
    assert_eq!(read.len(), files.len());
    assert!(files.len() > 4, "{files:?}");
    let read_bytes: u64 = read.values().sum();
    assert!(read_bytes >= files.iter().map(|(_, size)| *size as u64).sum());
}

/// A flipped bit anywhere is found in its file, and at or before its place.
#[test]
fn every_flipped_bit_is_found_and_named() {
    let whole = FaultyStorage::new();
    let mut told = Told::default();
    let node = filled(&whole, &mut told);
    let mut count = 0;
    for (name, size) in used(&node, &whole) {
        for at in (0..size).step_by(13) {
            // The rest of the first block is not used, but it is known.
            if name.starts_with("segment-") && (84..4096).contains(&at) && at % 512 > 12 {
                continue;
            }
            let at = at as u64;
            let before = whole.content(&name);
            whole.flip(&name, at, 0x10);
            let (damage, _) = pass(&node);
            let is_header = name.starts_with("segment-") && at < 4096;
            let is_repaired = is_header && name != active(&node);
            if is_repaired {
                assert_eq!(whole.content(&name), before, "the header was written again");
            } else {
                whole.flip(&name, at, 0x10);
            }
            if damage.is_empty() {
                // Bytes that no checksum covers mean nothing: padding behind a record.
                assert_eq!(
                    whole.content(&name).unwrap()[usize::try_from(at).unwrap()],
                    0
                );
                continue;
            }
            count += 1;
            assert_eq!(damage.len(), 1, "{name} at {at}: {damage:?}");
            let found = &damage[0];
            assert_eq!(found.file, name);
            assert!(found.offset <= at, "{name} at {at}: {found:?}");
            assert!(found.is_certain, "{found:?}");
            assert_eq!(found.is_repaired, is_repaired, "{found:?}");
            let positions = found.positions.as_ref();
            assert_eq!(positions.is_none(), name.starts_with("snapshot-"));
        }
    }
    assert!(count > 500, "{count}");
}

/// Behind damage, it goes on: everything damaged is found in one pass, and only that.
#[test]
fn a_pass_goes_on_behind_damage() {
    let disk = FaultyStorage::new();
    let mut told = Told::default();
    let node = filled(&disk, &mut told);
    let files = used(&node, &disk);
    let segments: Vec<_> = files
        .iter()
        .filter(|(name, _)| name.starts_with("segment-"))
        .collect();
    for (name, size) in &segments {
        disk.flip(name, 4096 + 200, 1);
        disk.flip(name, *size as u64 - 20, 1);
    }
    let (damage, _) = pass(&node);
    for (name, _) in &segments {
        let of_file = damage.iter().filter(|damage| damage.file == *name);
        // The one that is appended to may have one record.
        let least = if *name == active(&node) { 1 } else { 2 };
        assert!(of_file.count() >= least, "{name}: {damage:?}");
    }
    // What is not damaged lies in no range that cannot be read.
    let is_within = |position: LogPosition| {
        let ranges = damage.iter().filter_map(|damage| damage.positions.clone());
        ranges.into_iter().any(|range| range.contains(&position))
    };
    assert!(!is_within(node.log.end()));
    // A file that is cut ends within a record.
    let (name, _) = segments[0];
    disk.truncate(name, 5000);
    let (damage, _) = pass(&node);
    let of_file = damage.iter().filter(|damage| damage.file == *name);
    let what: Vec<_> = of_file.map(|damage| &damage.what).collect();
    assert_eq!(what, ["the file ends within the record"]);
}

/// A header that cannot be written again stays damaged, and the rest of the file is read.
#[test]
fn a_header_that_cannot_be_written_stays_damaged() {
    let disk = FaultyStorage::new();
    let mut told = Told::default();
    let node = filled(&disk, &mut told);
    let files = used(&node, &disk);
    let mut segments = files
        .iter()
        .filter(|(name, _)| name.starts_with("segment-"));
    let (name, _) = segments.next().unwrap();
    disk.flip(name, 8, 1);
    disk.flip(name, 4096 + 200, 1);
    disk.fail_after(0, Fault::Enospc, Repeat::Sticky);
    let (damage, _) = pass(&node);
    let found: Vec<_> = damage
        .iter()
        .map(|it| (it.offset, it.is_repaired))
        .collect();
    assert!(found[0] == (0, false) && found.len() == 2, "{damage:?}");
}

/// A file that was cut stays as it is: with a header, it would look repaired, and the next start would refuse it.
#[test]
fn a_file_that_was_cut_gets_no_header() {
    let disk = FaultyStorage::new();
    let mut told = Told::default();
    let node = filled(&disk, &mut told);
    let files = used(&node, &disk);
    let mut segments = files
        .iter()
        .filter(|(name, _)| name.starts_with("segment-"));
    let (name, _) = segments.next().unwrap();
    disk.truncate(name, 40);
    let (damage, _) = pass(&node);
    let of_file = || damage.iter().filter(|it| it.file == *name);
    assert!(
        of_file().all(|it| it.is_certain && !it.is_repaired),
        "{damage:?}"
    );
    assert!(of_file().any(|it| it.offset == 0), "{damage:?}");
    assert_eq!(disk.content(name).unwrap().len(), 40);
}

/// Where a segment begins lies behind its header. It is written again too.
#[test]
fn a_lost_beginning_is_written_again() {
    let disk = FaultyStorage::new();
    let mut told = Told::default();
    let node = filled(&disk, &mut told);
    let files = used(&node, &disk);
    let segments = files
        .iter()
        .filter(|(name, _)| name.starts_with("segment-"));
    let mut count = 0;
    for (name, _) in segments {
        let before = disk.content(name);
        if before.as_ref().unwrap()[512..524] == [0; 12] {
            continue;
        }
        disk.corrupt(name, 512, &[0; 12]);
        let (damage, _) = pass(&node);
        if *name == active(&node) {
            assert!(damage.len() == 1 && !damage[0].is_repaired, "{damage:?}");
            continue;
        }
        assert!(damage.len() == 1 && damage[0].is_repaired, "{damage:?}");
        assert_eq!(disk.content(name), before);
        count += 1;
    }
    assert!(count > 2, "{count}");
}

/// A pass reads what is durable, and not what is about to be.
#[test]
fn what_is_not_durable_yet_is_not_read() {
    let disk = FaultyStorage::new();
    let mut told = Told::default();
    let mut node = filled(&disk, &mut told);
    let name = active(&node);
    let durable = node.log.durable();
    node.send(1, &mut told).unwrap();
    // As if the write had come to the disk in part.
    let span = node.log.segments().last().unwrap();
    let offset = 4096 + durable.as_u64() - span.first.as_u64();
    disk.corrupt(&name, offset, &[7; 20]);
    assert_eq!(pass(&node).0, []);
    node.commit(&mut told).unwrap();
    disk.flip(&name, offset + 30, 1);
    let (damage, _) = pass(&node);
    assert!(
        damage.len() == 1 && damage[0].file == name && damage[0].is_certain,
        "{damage:?}"
    );
}

/// A log of records that take several reads, in segments of several. Returns also where records begin.
fn of_large_bodies(disk: &FaultyStorage) -> (SegmentLog, Vec<LogPosition>) {
    let options = LogOptions::default();
    let (mut log, _) =
        SegmentLog::open(Arc::new(disk.clone()), options, 1, &mut Messages::default()).unwrap();
    let mut records = Vec::new();
    for _ in 0..60 {
        let at = log.reserve(Need::grow(0)).unwrap();
        let mut batch = BatchBuilder::at(at.position);
        batch.push_body(&[7; 100_000]);
        batch.push_event(b"sent");
        records.push(log.append(at, batch).unwrap());
        log.run_commit().unwrap();
        while let Some(job) = log.next_job() {
            log.complete(job.run()).unwrap();
        }
    }
    (log, records)
}

/// A sector that cannot be read hides what lies near it, and nothing else of its segment.
#[test]
fn a_pass_goes_on_behind_a_bad_sector() {
    let disk = FaultyStorage::new();
    let (log, records) = of_large_bodies(&disk);
    let segment = log.segments().nth(1).unwrap();
    let of_segment = records
        .iter()
        .filter(|at| (segment.first..segment.end).contains(*at));
    let inside: Vec<_> = of_segment.copied().collect();
    assert!(inside.len() > 8, "{inside:?}");
    // The last record is damaged too, and found in the same pass.
    let last = *inside.last().unwrap();
    let name = format!("segment-{:020}", segment.number);
    let offset = 4096 + last.as_u64() - segment.first.as_u64();
    disk.flip(&name, offset + 5000, 1);

    // A sector in the fourth record.
    let spoiled = 4096 + inside[3].as_u64() - segment.first.as_u64() + 50_000;
    disk.spoil(&name, spoiled..spoiled + 512);
    let first = log.next_scrub(ScrubCursor::default()).unwrap();
    let second = log.next_scrub(run(first).next).unwrap();
    let damage = run(second).damage;
    assert_eq!(damage.len(), 2, "{damage:?}");
    let holes: Vec<_> = damage
        .iter()
        .map(|it| it.positions.clone().unwrap())
        .collect();
    let hidden = inside.iter().filter(|at| holes[0].contains(at));
    assert!((1..7).contains(&hidden.count()), "{holes:?}");
    assert!(
        holes[0].contains(&inside[3]) && !holes[0].contains(&inside[0]),
        "{holes:?}"
    );
    assert_eq!(holes[1].start, last);
    assert!(damage.iter().all(|it| it.is_certain), "{damage:?}");
}

/// A hole of many steps is one place, and each step reads no more than a piece.
#[test]
fn a_large_hole_is_searched_in_pieces() {
    let disk = FaultyStorage::new();
    let (log, records) = of_large_bodies(&disk);
    let segment = log.segments().nth(2).unwrap();
    let mut inside = records
        .iter()
        .filter(|at| (segment.first..segment.end).contains(*at));
    let begin = *inside.next().unwrap();
    let end = *inside.nth(9).unwrap();
    let offset = 4096 + begin.as_u64() - segment.first.as_u64();
    let size = usize::try_from(end.as_u64() - begin.as_u64()).unwrap();
    let name = format!("segment-{:020}", segment.number);
    disk.corrupt(&name, offset, &vec![9; size]);
    let mut cursor = ScrubCursor::default();
    let mut damage = Vec::new();
    while let Some(mut scrub) = log.next_scrub(cursor) {
        while let Some(read_bytes) = scrub.step() {
            assert!(read_bytes < 400_000, "{read_bytes}");
        }
        let scrubbed = scrub.finish();
        cursor = scrubbed.next;
        damage.extend(scrubbed.damage);
    }
    assert_eq!(damage.len(), 1, "{damage:?}");
    assert_eq!(damage[0].positions, Some(begin..end));
    assert!(damage[0].is_certain);
}

fn run(mut scrub: Scrub) -> Scrubbed {
    while scrub.step().is_some() {}
    scrub.finish()
}
