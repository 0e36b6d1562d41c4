//! A scrub finds every damaged byte of what it reads, names it, and goes on behind it.

use std::collections::BTreeMap;

use kew_log::{FaultyStorage, LogPosition, ScrubCursor, ScrubDamage, Storage};

use crate::node::{Node, Told};

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
fn pass(node: &Node, storage: &dyn Storage) -> (Vec<ScrubDamage>, BTreeMap<String, u64>) {
    let mut cursor = ScrubCursor::default();
    let (mut damage, mut read) = (Vec::new(), BTreeMap::new());
    while let Some(mut scrub) = node.log.next_scrub(cursor) {
        while scrub.step(storage).is_some() {}
        let scrubbed = scrub.finish();
        assert_ne!(scrubbed.next, cursor, "it goes on");
        cursor = scrubbed.next;
        damage.extend(scrubbed.damage);
        read.insert(format!("{cursor:?}"), scrubbed.read_bytes);
    }
    (damage, read)
}

/// The used bytes of the files of a pass.
fn used(node: &Node, disk: &FaultyStorage) -> Vec<(String, usize)> {
    let mut used: Vec<_> = disk
        .files()
        .into_iter()
        .filter(|(name, _)| name.starts_with("snapshot-"))
        .map(|(name, size)| (name, usize::try_from(size).unwrap()))
        .collect();
    let spans: Vec<_> = node.log.segments().collect();
    for pair in spans.windows(2) {
        let end = 4096 + pair[0].end.as_u64() - pair[0].first.as_u64();
        let name = format!("segment-{:020}", pair[0].number);
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
    let (damage, read) = pass(&node, &disk);
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
            // The rest of the first block is not used.
            if name.starts_with("segment-") && (84..4096).contains(&at) {
                continue;
            }
            let at = at as u64;
            whole.flip(&name, at, 0x10);
            let (damage, _) = pass(&node, &whole);
            whole.flip(&name, at, 0x10);
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
    let (damage, _) = pass(&node, &disk);
    for (name, _) in &segments {
        let of_file = damage.iter().filter(|damage| damage.file == *name);
        assert!(of_file.count() >= 2, "{name}: {damage:?}");
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
    let (damage, _) = pass(&node, &disk);
    assert!(damage.iter().any(|damage| damage.file == *name));
}
