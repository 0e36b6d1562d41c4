//! Backups: the planned files stay, and a copy of them is the log at the stated position.

use kew_log::{
    BackupPlan, BeginBackupError, FaultyStorage, LogPosition, MemoryStorage, Storage, check_file,
    identity, plan_backup, replay,
};

use crate::node::{Messages, Node, Told, small};
use crate::random::Random;

/// Sends, with a snapshot from time to time, so that segments are retired and reused.
fn churn(node: &mut Node, told: &mut Told, rounds: u64) {
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

/// Copies what a plan names, with zeros after the copied bytes.
fn copy(from: &dyn Storage, plan: &BackupPlan) -> MemoryStorage {
    let to = MemoryStorage::new();
    for segment in &plan.segments {
        assert_eq!(identity(from, &segment.name()).unwrap(), segment.header_crc);
        copy_file(from, &to, &segment.name(), Some(segment.copied_bytes));
        let padding = to.open(&segment.name()).unwrap();
        if segment.copied_bytes < segment.size_bytes {
            padding.write_at(&[0], segment.size_bytes - 1).unwrap();
        }
        assert_eq!(check_file(&to, &segment.name(), segment.end).unwrap(), []);
    }
    for pages in &plan.pages {
        let name = pages.name();
        copy_file(from, &to, &name, Some(pages.copied_bytes));
        assert_eq!(check_file(&to, &name, plan.position).unwrap(), []);
        assert_eq!(
            identity(from, &name).unwrap(),
            identity(&to, &name).unwrap()
        );
    }
    if let Some(name) = plan.snapshot_name() {
        copy_file(from, &to, &name, None);
        assert_eq!(check_file(&to, &name, plan.position).unwrap(), []);
        assert_eq!(
            identity(from, &name).unwrap(),
            identity(&to, &name).unwrap()
        );
    }
    to
}

fn copy_file(from: &dyn Storage, to: &MemoryStorage, name: &str, size_bytes: Option<u64>) {
    let source = from.open(name).unwrap();
    let size_bytes = size_bytes.unwrap_or(source.len().unwrap());
    let mut bytes = vec![0; usize::try_from(size_bytes).unwrap()];
    assert_eq!(source.read_at(&mut bytes, 0).unwrap(), bytes.len());
    let file = to.create(name).unwrap();
    assert_eq!(file.write_at(&bytes, 0).unwrap(), bytes.len());
}

fn check_copy(copy: &dyn Storage, position: LogPosition, expected: &Messages) {
    let mut messages = Messages::default();
    let end = replay(copy, &mut messages).unwrap();
    assert_eq!(end.position, position);
    assert_eq!(messages, *expected);
}

fn names(storage: &FaultyStorage) -> Vec<String> {
    let files = storage.files().into_iter().map(|(name, _)| name);
    files
        .filter(|name| {
            ["segment-", "snapshot-", "pages-"]
                .iter()
                .any(|kind| name.starts_with(kind))
        })
        .collect()
}

#[test]
fn a_copy_is_the_log_at_the_stated_position_whatever_happens_meanwhile() {
    for seed in 0..20 {
        let mut random = Random::new(seed);
        let mut told = Told::default();
        let mut disk = FaultyStorage::new();
        for _ in 0..3 {
            let mut node = Node::open_checked(&disk, &mut told);
            churn(&mut node, &mut told, random.below(30));
            let expected = node.messages.clone();
            let (id, plan) = node.log.begin_backup().unwrap();
            assert_eq!(plan.position, node.log.durable());
            // Staged, and not in the backup.
            node.send(1, &mut told).unwrap();
            churn(&mut node, &mut told, 10 + random.below(30));
            let copied = copy(&disk, &plan);
            check_copy(&copied, plan.position, &expected);
            node.log.end_backup(id);
            drop(node);
            disk = disk.crash(&mut random.choice());
            // A copy of a directory that nothing uses ends where a start would.
            let plan = plan_backup(&disk).unwrap();
            let copied = copy(&disk, &plan);
            let mut messages = Messages::default();
            let end = replay(&copied, &mut messages).unwrap();
            assert_eq!(end.position, plan.position);
            told.check(&messages);
        }
    }
}

#[test]
fn what_a_pin_held_is_removed_when_it_ends() {
    let disk = FaultyStorage::new();
    let mut told = Told::default();
    let mut node = Node::open(&disk).unwrap();
    churn(&mut node, &mut told, 20);
    let (id, plan) = node.log.begin_backup().unwrap();
    let busy = node.log.begin_backup();
    assert!(matches!(busy, Err(BeginBackupError::Busy)));
    assert_eq!(node.log.backup_held_bytes(id), Some(0));
    let mut planned: Vec<_> = plan.segments.iter().map(|it| it.name()).collect();
    planned.extend(plan.snapshot_name());
    planned.extend(plan.pages.iter().map(|it| it.name()));
    churn(&mut node, &mut told, 40);
    let there = names(&disk);
    assert!(planned.iter().all(|name| there.contains(name)));
    let sizes = disk.files().into_iter();
    let held = sizes.filter(|(name, _)| planned.contains(name));
    let held_bytes = held.map(|(_, size_bytes)| size_bytes).sum();
    assert_eq!(node.log.backup_held_bytes(id), Some(held_bytes));
    // Nothing else piles up.
    assert!(there.len() < planned.len() + 10, "{there:?}");

    node.log.end_backup(id);
    node.background().unwrap();
    let there = names(&disk);
    assert!(!planned.iter().any(|name| there.contains(name)));
    assert_eq!(node.log.backup_held_bytes(id), None);

    // An end that comes late does not end the next one.
    let (next, _) = node.log.begin_backup().unwrap();
    node.log.end_backup(id);
    assert!(node.log.backup_held_bytes(next).is_some());
}

#[test]
fn a_full_disk_ends_a_backup() {
    let disk = FaultyStorage::new();
    let mut told = Told::default();
    let mut node = Node::open(&disk).unwrap();
    churn(&mut node, &mut told, 20);
    let (id, plan) = node.log.begin_backup().unwrap();
    churn(&mut node, &mut told, 20);
    disk.set_capacity_bytes(Some(disk.used_bytes()));
    while node.send(5, &mut told).is_ok() {
        node.commit(&mut told).unwrap();
        node.background().unwrap();
    }
    assert!(node.log.limits().full.is_some());
    assert_eq!(node.log.backup_held_bytes(id), None);
    assert!(matches!(
        node.log.begin_backup(),
        Err(BeginBackupError::Full)
    ));
    node.background().unwrap();
    let snapshot = plan.snapshot_name().unwrap();
    assert!(!names(&disk).contains(&snapshot));
}

#[test]
fn the_first_log_without_a_snapshot_can_be_copied() {
    let disk = FaultyStorage::new();
    let mut told = Told::default();
    let mut node = Node::open_with(&disk, small(), 3).unwrap();
    node.send(3, &mut told).unwrap();
    node.commit(&mut told).unwrap();
    let (_, plan) = node.log.begin_backup().unwrap();
    assert_eq!(plan.snapshot, None);
    check_copy(&copy(&disk, &plan), plan.position, &node.messages);
}
