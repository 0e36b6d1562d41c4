//! Snapshots on a full disk: all pages lie in files of their own, and older files go with the snapshots that name them.

use std::collections::BTreeSet;

use kew_log::{
    Fault, FaultyStorage, JobKind, LogPosition, Need, PageContent, PageNumber, PageTable,
    PlannedSnapshot, Repeat, SnapshotContent, ToDrain, read_table,
};

use crate::manifests::{pages_in, places, snapshot};
use crate::node::{Node, Told, check_whole, of_size};

/// A log with some snapshots, on a disk that is full.
fn full() -> (FaultyStorage, Node, Told) {
    let disk = FaultyStorage::new();
    let mut told = Told::default();
    let mut node = Node::open(&disk).unwrap();
    node.log.keep_for_draining(of_size(30_000));
    for _ in 0..3 {
        snapshot(&mut node, &mut told, 5);
    }
    node.background().unwrap();
    fill(&disk, &mut node, &mut told);
    (disk, node, told)
}

fn fill(disk: &FaultyStorage, node: &mut Node, told: &mut Told) {
    disk.set_capacity_bytes(Some(disk.used_bytes()));
    while node.send(1, told).is_ok() {
        node.commit(told).unwrap();
    }
    assert!(node.log.limits().full.is_some());
}

/// Snapshots differ by what lies between them.
fn go_on(node: &mut Node, told: &mut Told) {
    if node.log.reserve(Need::free(0)).is_ok() {
        node.log.beat(0);
    }
    node.commit(told).unwrap();
}

/// Writes a snapshot of this content, and returns its position.
fn write(node: &mut Node, told: &mut Told, content: impl SnapshotContent + 'static) -> LogPosition {
    go_on(node, told);
    let before = node.log.snapshots().last;
    let live = node.live();
    node.log.snapshot(content, &live).unwrap();
    node.background().unwrap();
    assert!(
        node.log.snapshots().last > before,
        "{:?}",
        node.log.snapshots().failed
    );
    node.log.snapshots().last.unwrap()
}

fn write_all(node: &mut Node, told: &mut Told) -> LogPosition {
    let content = node.messages.content();
    write(node, told, content)
}

fn table(disk: &FaultyStorage, position: LogPosition) -> PageTable {
    read_table(disk, position).unwrap().table
}

fn pairs(disk: &FaultyStorage, position: LogPosition) -> BTreeSet<u32> {
    let table = table(disk, position);
    table.pages().iter().map(|page| page.place.pair).collect()
}

fn numbers(disk: &FaultyStorage, position: LogPosition) -> Vec<PageNumber> {
    let table = table(disk, position);
    table.pages().iter().map(|page| page.number).collect()
}

fn end_draining(disk: &FaultyStorage, node: &mut Node) {
    disk.set_capacity_bytes(None);
    for _ in 0..3 {
        node.log.retry_prepare();
        node.background().unwrap();
    }
    assert!(node.log.limits().full.is_none());
}

#[test]
fn all_pages_lie_in_files_of_their_own_and_older_files_go() {
    let (disk, mut node, mut told) = full();
    let before = write_all(&mut node, &mut told);
    let (mut known, copied) = (pairs(&disk, before), numbers(&disk, before));
    for _ in 0..3 {
        let next = write_all(&mut node, &mut told);
        assert_eq!(numbers(&disk, next), copied);
        let own = pairs(&disk, next);
        assert!(own.is_disjoint(&known), "{own:?} and {known:?}");
        known.extend(own);
        assert!(node.log.limits().full.is_some());
        check_whole(&disk);
    }
    let kept = BTreeSet::from_iter(known.into_iter().rev().take(2));
    let names = kept.iter().flat_map(|pair| [2 * pair, 2 * pair + 1]);
    let names: Vec<_> = names.map(|number| format!("pages-{number:020}")).collect();
    assert_eq!(pages_in(&disk), names);
    // Afterwards they are shared again.
    end_draining(&disk, &mut node);
    let last = node.log.snapshots().last.unwrap();
    let next = snapshot(&mut node, &mut told, 1);
    assert_eq!(table(&disk, next).pages()[0], table(&disk, last).pages()[1]);
    Node::open_checked(&disk, &mut told);
}

#[test]
fn the_first_snapshot_of_a_log_can_be_one_of_a_full_disk() {
    let disk = FaultyStorage::new();
    let mut told = Told::default();
    let mut node = Node::open(&disk).unwrap();
    node.log.keep_for_draining(of_size(30_000));
    node.background().unwrap();
    fill(&disk, &mut node, &mut told);
    assert_eq!(node.log.snapshots().last, None);
    for count in 1..4 {
        write_all(&mut node, &mut told);
        assert_eq!(pages_in(&disk).len(), 2 * 2.min(count));
    }
    check_whole(&disk);
    drop(node);
    Node::open_checked(&disk.kill(), &mut told);
}

/// A state without pages has none anew.
#[test]
fn a_snapshot_without_pages_leaves_no_page_files() {
    let (disk, mut node, mut told) = full();
    assert!(!pages_in(&disk).is_empty());
    for _ in 0..2 {
        write(&mut node, &mut told, Vec::new());
    }
    assert_eq!(pages_in(&disk), [""; 0]);
    assert_eq!(node.log.space().pages_bytes, 0);
}

/// A page with a damaged copy is copied from the other one. If both are, it is made from memory.
#[test]
fn damaged_pages_are_whole_in_the_next_snapshot() {
    for copies in 1..=2 {
        let (disk, mut node, mut told) = full();
        let newest = write_all(&mut node, &mut told);
        let before = numbers(&disk, newest);
        for copy in 0..copies {
            let [(file, offset), _] = places(&disk, newest, copy);
            disk.flip(&file, offset, 1);
        }
        let written = write_all(&mut node, &mut told);
        let after = numbers(&disk, written);
        assert_eq!(after[0] == before[0], copies == 1);
        assert_eq!(after[1..], before[1..]);
        assert_eq!(node.log.unreadable_pages(), 0);
        write_all(&mut node, &mut told);
        check_whole(&disk);
        drop(node);
        Node::open_checked(&disk.kill(), &mut told);
    }
}

/// A snapshot of which no page can be made: all of them are on the disk alone.
struct OnPagesAlone<C>(C);

impl<C: SnapshotContent> SnapshotContent for OnPagesAlone<C> {
    fn plan(&mut self) -> PlannedSnapshot {
        self.0.plan()
    }

    fn put_part(&self, index: usize, out: &mut Vec<u8>) {
        self.0.put_part(index, out);
    }

    fn page(&self, index: usize) -> Option<PageNumber> {
        self.0.page(index)
    }

    fn can_make(&self, _: usize) -> bool {
        false
    }

    fn put_page(&self, _: usize, _: &mut PageContent) {
        panic!("it is on its page alone");
    }

    fn keep(&self, index: usize, page: PageNumber) {
        self.0.keep(index, page);
    }
}

/// What is on pages alone is copied. A page that cannot be read stays where it lies with its files, whose space does not
/// come back: so more is reserved.
#[test]
fn a_page_that_can_be_neither_read_nor_made_keeps_its_files() {
    let (disk, mut node, mut told) = full();
    // Without a message more, all pages are known.
    write_all(&mut node, &mut told);
    let alone = |node: &Node| OnPagesAlone(node.messages.content());
    let content = alone(&node);
    let newest = write(&mut node, &mut told, content);
    let lost = table(&disk, newest).pages()[0];
    for copy in 0..2 {
        let [(file, offset), _] = places(&disk, newest, copy);
        disk.flip(&file, offset, 1);
    }
    for _ in 0..3 {
        let content = alone(&node);
        let written = write(&mut node, &mut told, content);
        let table = table(&disk, written);
        let (first, rest) = table.pages().split_first().unwrap();
        assert_eq!(*first, lost);
        assert!(rest.iter().all(|page| page.place.pair > lost.place.pair));
        assert_eq!(node.log.unreadable_pages(), 1);
    }
    assert_eq!(
        pages_in(&disk).len(),
        6,
        "those of two snapshots, and of the page"
    );
    end_draining(&disk, &mut node);
    let ballast_bytes = |node: &mut Node, is_lost: bool| {
        // So large that all that is kept counts.
        node.log.keep_for_draining(of_size(200_000));
        node.background().unwrap();
        assert_eq!(node.log.unreadable_pages(), usize::from(is_lost));
        let size = disk.content("ballast").unwrap().len() as u64;
        (size, node.log.space().pages_bytes)
    };
    let (with, pages_bytes) = ballast_bytes(&mut node, true);
    // Once the message is gone, its page goes.
    for _ in 0..3 {
        snapshot(&mut node, &mut told, 5);
    }
    let (without, fewer_bytes) = ballast_bytes(&mut node, false);
    assert!(
        with >= without,
        "{with} and {without} bytes for {pages_bytes} and {fewer_bytes}"
    );
}

/// Pages that are being read stay until they were, and no longer.
#[test]
fn files_stay_while_a_page_in_them_is_read() {
    let (disk, mut node, mut told) = full();
    let newest = write_all(&mut node, &mut told);
    let (number, pair) = {
        let page = table(&disk, newest).pages()[0];
        (page.number, page.place.pair)
    };
    let reading = node.log.read_pages([number]);
    for _ in 0..3 {
        write_all(&mut node, &mut told);
    }
    let file = format!("pages-{:020}", 2 * pair);
    assert!(disk.content(&file).is_some());
    let (group, read) = reading.read(|pages| pages.group(number, 0));
    assert!(!group.unwrap().is_empty());
    node.log.end_read(read);
    node.background().unwrap();
    assert!(disk.content(&file).is_none());
}

/// A third snapshot is not begun while the files are there that two others have replaced: there is no space for it.
#[test]
fn replaced_files_go_before_the_next_snapshot_is_written() {
    let (_, mut node, mut told) = full();
    write_all(&mut node, &mut told);
    let mut kinds = Vec::new();
    for _ in 0..3 {
        go_on(&mut node, &mut told);
        let live = node.live();
        node.log.snapshot(node.messages.content(), &live).unwrap();
        loop {
            let job = node.log.next_background_job().expect("a snapshot waits");
            kinds.push(job.kind());
            node.log.complete(job.run()).unwrap();
            if kinds.last() == Some(&JobKind::Snapshot) {
                break;
            }
        }
    }
    let is_begun_early = |pair: &[JobKind]| pair == [JobKind::Snapshot; 2];
    assert!(!kinds.windows(2).any(is_begun_early), "{kinds:?}");
    assert!(kinds.contains(&JobKind::Retire));
}

/// At each call that a snapshot makes, the disk has no space, once or from then on.
#[test]
fn a_snapshot_that_finds_no_space_leaves_nothing_and_the_log_goes_on() {
    for repeat in [Repeat::Once, Repeat::Sticky] {
        let mut calls = 0;
        loop {
            let (disk, mut node, mut told) = full();
            write_all(&mut node, &mut told);
            go_on(&mut node, &mut told);
            let before = node.log.snapshots().last;
            let live = node.live();
            node.log.snapshot(node.messages.content(), &live).unwrap();
            disk.fail_after(calls, Fault::Enospc, repeat);
            let failed_before = disk.failed_calls();
            node.background().unwrap();
            let has_failed = disk.failed_calls() > failed_before;
            disk.clear_faults();
            if !has_failed {
                break;
            }
            let is_written = node.log.snapshots().last > before;
            assert!(is_written || node.log.snapshots().failed.is_some());
            if !is_written {
                write_all(&mut node, &mut told);
            }
            for _ in 0..2 {
                write_all(&mut node, &mut told);
            }
            assert_eq!(pages_in(&disk).len(), 4, "after call {calls}");
            check_whole(&disk);
            drop(node);
            Node::open_checked(&disk.kill(), &mut told);
            calls += 1;
        }
        assert!(calls > 10, "{calls} calls");
    }
}

/// After each call that writes a snapshot and removes older files, the power fails.
#[test]
fn a_power_cut_leaves_a_state_and_no_files_that_stay() {
    let mut calls = 0;
    loop {
        let (disk, mut node, mut told) = full();
        write_all(&mut node, &mut told);
        go_on(&mut node, &mut told);
        disk.crash_after(calls);
        let live = node.live();
        node.log.snapshot(node.messages.content(), &live).unwrap();
        let ended = node.background();
        disk.clear_faults();
        drop(node);
        for keeps in 0..2 {
            let mut told = told.clone();
            let disk = disk.crash(&mut |count| keeps * (count - 1));
            // Something else has left space, which a start needs.
            disk.set_capacity_bytes(None);
            let mut node = Node::open_checked(&disk, &mut told);
            node.log.keep_for_draining(of_size(30_000));
            node.background().unwrap();
            fill(&disk, &mut node, &mut told);
            for _ in 0..2 {
                write_all(&mut node, &mut told);
            }
            assert_eq!(pages_in(&disk).len(), 4, "after call {calls}");
            check_whole(&disk);
        }
        if ended.is_ok() {
            break;
        }
        calls += 1;
    }
    assert!(calls > 10, "{calls} calls");
}

/// As much is reserved as is needed: snapshot after snapshot, while what was there before lies beside them.
#[test]
fn what_is_reserved_holds_three_snapshots_beside_each_other() {
    let disk = FaultyStorage::new();
    let mut told = Told::default();
    let mut node = Node::open(&disk).unwrap();
    for _ in 0..3 {
        snapshot(&mut node, &mut told, 5);
    }
    let pages_bytes = node.log.anew_size_bytes().unwrap();
    let state = ToDrain {
        pages_bytes_max: u64::from(u32::MAX),
        ..ToDrain::default()
    };
    node.log.keep_for_draining(state);
    assert!(node.log.drained_snapshot_bytes_max() >= pages_bytes);
    assert!(node.log.drained_snapshot_bytes_max() < pages_bytes + 8192);
    node.background().unwrap();
    fill(&disk, &mut node, &mut told);
    node.log.keep_for_draining(state);
    for _ in 0..8 {
        let kept = node.log.snapshots().last;
        write_all(&mut node, &mut told);
        assert!(
            read_table(&disk, kept.unwrap()).is_ok(),
            "the one before is kept"
        );
        assert!(node.log.snapshots().failed.is_none());
    }
}

/// What is reserved follows from the newest snapshot, and from what came since. One without pages says nothing.
#[test]
fn what_a_snapshot_takes_follows_from_the_newest_one() {
    let disk = FaultyStorage::new();
    let mut told = Told::default();
    let mut node = Node::open(&disk).unwrap();
    let most = u64::from(u32::MAX);
    let bytes = |node: &mut Node, grown_bytes_max, consumed_bytes_max| {
        node.log.keep_for_draining(ToDrain {
            pages_bytes_max: most,
            grown_bytes_max,
            consumed_bytes_max,
            batch_bytes_max: 0,
        });
        node.log.drained_snapshot_bytes_max()
    };
    let nothing = bytes(&mut node, 0, 0);
    assert!(nothing < 40_000, "{nothing}");
    snapshot(&mut node, &mut told, 5);
    let with_pages = bytes(&mut node, 0, 0);
    assert!(with_pages > nothing);
    assert!(bytes(&mut node, 1000, 0) >= with_pages + 2250);
    assert!(bytes(&mut node, 0, 1000) >= with_pages + 2000);
    node.send(1, &mut told).unwrap();
    node.commit(&mut told).unwrap();
    let live = node.live();
    node.log.snapshot(vec![vec![7; 100].into()], &live).unwrap();
    node.background().unwrap();
    assert_eq!(node.log.anew_size_bytes(), None, "it has no pages");
    assert!(bytes(&mut node, 0, 0) >= 3 * most);
}
