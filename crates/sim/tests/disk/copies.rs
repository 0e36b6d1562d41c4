//! What is made of a whole log: a migration of an old one, and a backup. Both under every fault.

use std::time::Instant;

use kew_sim::disk::{MigrationCounts, OldDirectory, back_up};

use crate::support::{is_wanted, number, on_all_cores, replayed, seed};

macro_rules! golden {
    ($folder:literal, $($name:literal),* $(,)?) => {
        &[$(($name, include_bytes!(
            concat!("../../../broker/tests/golden/", $folder, "/", $name)
        ) as &[u8])),*]
    };
}

/// Queue Storage's directory of the first version.
const OF_STORAGE: &[(&str, &[u8])] = golden![
    "1",
    "segment-00000000000000000001",
    "segment-00000000000000000002",
    "snapshot-00000000000000009512",
];

/// That of queues of Service Bus.
const OF_BUS: &[(&str, &[u8])] = golden![
    "bus-1",
    "segment-00000000000000000001",
    "segment-00000000000000000002",
    "segment-00000000000000000003",
    "segment-00000000000000000004",
    "segment-00000000000000000005",
    "segment-00000000000000000006",
    "snapshot-00000000000000168296",
];

/// Each of both, with its snapshot and without it.
pub(crate) fn olds() -> [OldDirectory; 4] {
    let without_snapshot = |files: &'static [(&str, &[u8])]| &files[..files.len() - 1];
    [
        ("storage", OF_STORAGE),
        ("storage-log", without_snapshot(OF_STORAGE)),
        ("bus", OF_BUS),
        ("bus-log", without_snapshot(OF_BUS)),
    ]
    .map(|(name, files)| OldDirectory::new(name, files))
}

/// How many of all kinds of faults each call meets.
fn faults_per_call() -> u64 {
    number("KEW_DISK_FAULTS", 2)
}

#[test]
fn no_fault_of_a_migration_loses_messages() {
    let rotten = number("KEW_DISK_INJECTIONS", 40_000) / 80;
    let (seed, began, olds) = (seed(), Instant::now(), olds());
    let counts = on_all_cores(
        olds.len(),
        |index| {
            let old = &olds[index];
            if !is_wanted(&old.case()) {
                return MigrationCounts::default();
            }
            let counts = old.migrate(seed, faults_per_call(), rotten);
            counts.unwrap_or_else(|failure| panic!("{failure}"))
        },
        MigrationCounts::add,
    );
    println!(
        "migration, seed {seed}: {counts:?} in {:.1} s",
        began.elapsed().as_secs_f64()
    );
    if replayed().is_some() {
        return;
    }
    assert!(counts.failed_calls > 1000, "{counts:?}");
    assert!(counts.failed > counts.failed_calls / 4, "{counts:?}");
    assert!(counts.power_cuts > 100, "{counts:?}");
    assert!(counts.refused > counts.rotten / 4, "{counts:?}");
    assert!(counts.damaged > counts.rotten / 400, "{counts:?}");
    assert!(counts.shorter < counts.rotten / 40, "{counts:?}");
}

#[test]
fn no_fault_of_a_backup_loses_messages() {
    if !is_wanted("backup") {
        return;
    }
    let (seed, began) = (seed(), Instant::now());
    let counts = back_up(seed, faults_per_call());
    let counts = counts.unwrap_or_else(|failure| panic!("{failure}"));
    println!(
        "backup, seed {seed}: {counts:?} in {:.1} s",
        began.elapsed().as_secs_f64()
    );
    assert!(counts.failed_calls > 500, "{counts:?}");
    assert!(counts.failed > counts.failed_calls / 4, "{counts:?}");
    assert!(counts.disks > 200, "{counts:?}");
}
