//! Snapshots with pages in an open log: what they share, and what a damaged page costs.

use kew_log::{FaultyStorage, LogPosition, ScrubCursor, ScrubDamage, inspect, read_table, verify};

use crate::node::{Live, Node, Told, check_whole};

pub(crate) fn pages_in(disk: &FaultyStorage) -> Vec<String> {
    let files = disk.files().into_iter().map(|(name, _)| name);
    files.filter(|name| name.starts_with("pages-")).collect()
}

/// Sends, and writes a snapshot.
pub(crate) fn snapshot(node: &mut Node, told: &mut Told, sent: u64) -> LogPosition {
    node.send(sent, told).unwrap();
    node.snapshot(told).unwrap();
    node.background().unwrap();
    node.log.snapshots().last.unwrap()
}

/// The file and the offset of a copy of the first page that a snapshot names, and of the last one.
pub(crate) fn places(disk: &FaultyStorage, position: LogPosition, copy: u64) -> [(String, u64); 2] {
    let read = read_table(disk, position).unwrap();
    let pages = read.table.pages();
    [pages[0], pages[pages.len() - 1]].map(|page| {
        let number = 2 * u64::from(page.place.pair) + copy;
        (
            format!("pages-{number:020}"),
            u64::from(page.place.offset) + 40,
        )
    })
}

fn scrub(node: &Node) -> Vec<ScrubDamage> {
    let (mut cursor, mut found) = (ScrubCursor::default(), Vec::new());
    while let Some(mut scrub) = node.log.next_scrub(cursor) {
        while scrub.step().is_some() {}
        let scrubbed = scrub.finish();
        cursor = scrubbed.next;
        found.extend(scrubbed.damage);
    }
    found
}

#[test]
fn what_did_not_change_is_written_once_also_across_a_start() {
    let disk = FaultyStorage::new();
    let mut told = Told::default();
    let mut node = Node::open(&disk).unwrap();
    let first = snapshot(&mut node, &mut told, 5);
    let written = node.log.snapshots().written_bytes.unwrap();
    let second = snapshot(&mut node, &mut told, 1);
    assert!(node.log.snapshots().written_bytes.unwrap() < written);
    let numbers = |position| {
        let read = read_table(&disk, position).unwrap();
        let pages = read.table.pages().iter();
        pages.map(|page| page.number.as_u64()).collect::<Vec<_>>()
    };
    assert_eq!(numbers(first), [0, 1, 2, 3, 4]);
    assert_eq!(numbers(second), [1, 2, 3, 4, 5]);
    drop(node);
    let mut node = Node::open_checked(&disk, &mut told);
    let third = snapshot(&mut node, &mut told, 2);
    assert_eq!(numbers(third), [3, 4, 5, 6, 7]);
    // A start begins a pair of its own.
    assert_eq!(pages_in(&disk).len(), 4);
    assert!(node.log.space().pages_bytes > 0);
    check_whole(&disk);
}

#[test]
fn a_damaged_copy_of_a_page_is_found_and_written_again() {
    for copy in 0..2 {
        let disk = FaultyStorage::new();
        let mut told = Told::default();
        let mut node = Node::open(&disk).unwrap();
        snapshot(&mut node, &mut told, 5);
        let newest = snapshot(&mut node, &mut told, 1);
        let [(file, offset), _] = places(&disk, newest, copy);
        disk.flip(&file, offset, 1);
        let report = inspect(&disk).unwrap();
        assert_eq!(report.damage.len(), 1, "{:?}", report.damage);
        assert_eq!(report.damage[0].file, file);
        assert!(report.snapshots.iter().all(|snapshot| snapshot.is_whole));
        assert!(verify(&disk).unwrap_err().to_string().contains(&file));
        let found = scrub(&node);
        // Both snapshots name the page, and it is read once.
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found.iter().all(|it| it.file == file && it.is_certain));
        assert!(node.log.has_file(&file));
        let avoided = node.log.note_damaged_file(&file);
        assert!(avoided > newest);
        snapshot(&mut node, &mut told, 1);
        assert!(node.log.replays_from() < Some(avoided));
        snapshot(&mut node, &mut told, 1);
        assert!(node.log.replays_from() >= Some(avoided));
        assert!(!node.log.has_file(&file));
        assert_eq!(scrub(&node), []);
        check_whole(&disk);
        Node::open_checked(&disk, &mut told);
    }
}

/// Reads all files of a pass, and lets `between` happen before each step. Returns the names of damaged files, and how far
/// each file has brought the pass.
fn pass_while(
    node: &mut Node,
    mut between: impl FnMut(&mut Node, usize),
) -> (Vec<String>, Vec<String>) {
    let (mut cursor, mut found) = (ScrubCursor::default(), Vec::new());
    let (mut files, mut steps) = (Vec::new(), 0);
    while let Some(mut scrub) = node.log.next_scrub(cursor) {
        loop {
            between(node, steps);
            steps += 1;
            assert!(steps < 1000, "a pass ends");
            if scrub.step().is_none() {
                break;
            }
        }
        let scrubbed = scrub.finish();
        cursor = scrubbed.next;
        files.push(format!("{cursor:?}"));
        found.extend(scrubbed.damage.into_iter().map(|it| it.file));
    }
    (found, files)
}

#[test]
fn a_pass_ends_also_if_data_comes_faster_than_it_reads() {
    for snapshots in 1..4 {
        let disk = FaultyStorage::new();
        let mut told = Told::default();
        let mut node = Node::open(&disk).unwrap();
        for _ in 0..4 {
            snapshot(&mut node, &mut told, 40);
        }
        let (found, files) = pass_while(&mut node, |node, _| {
            for _ in 0..snapshots {
                snapshot(node, &mut told, 2);
            }
            node.send(40, &mut told).unwrap();
            node.commit(&mut told).unwrap();
            node.background().unwrap();
        });
        assert_eq!(found, [""; 0]);
        // The segments of the beginning are gone by then, or the pass came to them.
        assert!(files.len() < 10, "{files:?}");
    }
}

#[test]
fn pages_of_a_removed_snapshot_are_read_where_the_newest_one_names_them() {
    for copy in 0..2 {
        let disk = FaultyStorage::new();
        let mut told = Told::default();
        let mut node = Node::open(&disk).unwrap();
        snapshot(&mut node, &mut told, 4);
        let newest = snapshot(&mut node, &mut told, 4);
        // Of the newest messages, which stay longest.
        let [_, (file, offset)] = places(&disk, newest, copy);
        disk.flip(&file, offset, 1);
        let (found, _) = pass_while(&mut node, |node, steps| {
            if steps == 1 {
                snapshot(node, &mut told, 1);
                snapshot(node, &mut told, 1);
                assert!(node.log.replays_from() > Some(newest));
            }
        });
        assert_eq!(found, [file]);
    }
}

#[test]
fn a_page_that_was_lost_is_lost_to_each_snapshot_that_names_it() {
    let disk = FaultyStorage::new();
    let mut told = Told::default();
    let mut node = Node::open(&disk).unwrap();
    let older = snapshot(&mut node, &mut told, 5);
    let newest = snapshot(&mut node, &mut told, 1);
    for copy in 0..2 {
        let [(file, offset), _] = places(&disk, newest, copy);
        disk.flip(&file, offset, 1);
    }
    let found = scrub(&node);
    let snapshots = found.iter().filter(|it| it.file.starts_with("snapshot"));
    let snapshots: Vec<_> = snapshots.map(|it| it.file.as_str()).collect();
    let names = [older, newest].map(|it| format!("snapshot-{:020}", it.as_u64()));
    assert_eq!(snapshots, names);
    assert_eq!(found.len(), 4, "each copy once: {found:?}");
}

#[test]
fn a_start_reads_the_other_copy_and_says_so() {
    let disk = FaultyStorage::new();
    let mut told = Told::default();
    let mut node = Node::open(&disk).unwrap();
    let newest = snapshot(&mut node, &mut told, 5);
    drop(node);
    let [(file, offset), _] = places(&disk, newest, 0);
    disk.flip(&file, offset, 1);
    let mut node = Node::open_checked(&disk, &mut told);
    assert_eq!(node.recovery.snapshot, Some(newest));
    let [warning] = node.recovery.warnings.as_slice() else {
        panic!("{:?}", node.recovery.warnings);
    };
    assert!(
        warning.contains("read from its copy") && warning.contains(&file),
        "{warning}"
    );
    // And the next snapshots have the page elsewhere.
    snapshot(&mut node, &mut told, 1);
    snapshot(&mut node, &mut told, 1);
    assert!(disk.content(&file).is_none());
}

#[test]
fn a_start_says_once_that_a_file_is_damaged() {
    let disk = FaultyStorage::new();
    let mut told = Told::default();
    let mut node = Node::open(&disk).unwrap();
    snapshot(&mut node, &mut told, 5);
    drop(node);
    let disk = disk.kill();
    let file = pages_in(&disk).remove(0);
    disk.lose_file(&file);
    let node = Node::open_checked(&disk, &mut told);
    assert_eq!(node.recovery.warnings.len(), 1, "{:?}", node.recovery);
}

#[test]
fn a_bad_sector_in_the_older_snapshot_does_not_refuse_a_start() {
    let disk = FaultyStorage::new();
    let mut told = Told::default();
    let mut node = Node::open(&disk).unwrap();
    let older = snapshot(&mut node, &mut told, 5);
    let newest = snapshot(&mut node, &mut told, 2);
    drop(node);
    let file = format!("snapshot-{:020}", older.as_u64());
    disk.spoil(&file, 0..1);
    let mut node = Node::open_checked(&disk, &mut told);
    assert_eq!(node.recovery.snapshot, Some(newest));
    assert!(node.recovery.warnings[0].contains(&file));
    // It does not count as one of the two, and goes once there are two others.
    assert_eq!(node.log.replays_from(), None);
    snapshot(&mut node, &mut told, 1);
    assert!(disk.content(&file).is_none());
    check_whole(&disk);
}

#[test]
fn a_snapshot_that_is_being_written_does_not_count_as_one_without_the_damage() {
    let disk = FaultyStorage::new();
    let mut told = Told::default();
    let mut node = Node::open(&disk).unwrap();
    let newest = snapshot(&mut node, &mut told, 5);
    let [(file, _), _] = places(&disk, newest, 0);
    node.send(1, &mut told).unwrap();
    node.commit(&mut told).unwrap();
    let begun = node.log.end();
    assert!(node.log.begin_snapshot(&Live::default()).unwrap());
    assert!(node.log.note_damaged_file(&file) > begun);
}

#[test]
fn a_snapshot_with_a_lost_page_is_a_damaged_one() {
    let disk = FaultyStorage::new();
    let mut told = Told::default();
    let mut node = Node::open(&disk).unwrap();
    let older = snapshot(&mut node, &mut told, 5);
    let newest = snapshot(&mut node, &mut told, 2);
    // The last page is that of the newest snapshot alone.
    for copy in 0..2 {
        let [_, (file, offset)] = places(&disk, newest, copy);
        disk.flip(&file, offset, 1);
    }
    let report = inspect(&disk).unwrap();
    let whole: Vec<_> = report.snapshots.iter().map(|it| it.is_whole).collect();
    assert_eq!(whole, [true, false]);
    let found = scrub(&node);
    let name = format!("snapshot-{:020}", newest.as_u64());
    assert_eq!(found.len(), 3, "{found:?}");
    assert_eq!(found[2].file, name);
    drop(node);
    let mut node = Node::open_checked(&disk, &mut told);
    assert_eq!(node.recovery.snapshot, Some(older));
    assert_eq!(node.recovery.warnings.len(), 1);
    // Its file stays until two others are whole.
    snapshot(&mut node, &mut told, 1);
    assert!(disk.content(&name).is_none(), "two are whole");
    check_whole(&disk);
}

#[test]
fn a_page_that_all_snapshots_have_lost_is_made_again_from_memory() {
    let disk = FaultyStorage::new();
    let mut told = Told::default();
    let mut node = Node::open(&disk).unwrap();
    snapshot(&mut node, &mut told, 5);
    let newest = snapshot(&mut node, &mut told, 1);
    for copy in 0..2 {
        let [(file, offset), _] = places(&disk, newest, copy);
        disk.flip(&file, offset, 1);
    }
    // All of the log is there yet.
    Node::open_checked(&disk.kill(), &mut told.clone());
    let without_beginning = disk.kill();
    without_beginning.flip("segment-00000000000000000001", 4096 + 40, 1);
    assert!(
        Node::open(&without_beginning).is_err(),
        "no snapshot is whole"
    );
    let found = scrub(&node);
    for damage in &found {
        node.log.note_damaged_file(&damage.file);
    }
    assert_eq!(node.log.snapshots().last, None);
    snapshot(&mut node, &mut told, 1);
    snapshot(&mut node, &mut told, 1);
    check_whole(&disk);
    Node::open_checked(&disk, &mut told);
}
