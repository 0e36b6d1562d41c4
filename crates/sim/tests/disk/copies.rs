//! What is made of a whole log: a migration of an old one, and a backup. Both under every fault.

use std::fs;
use std::path::Path;
use std::time::Instant;

use kew_sim::disk::{
    BACKED_UP, BackupCounts, BackupRotCounts, MigrationCounts, OldDirectory, back_up, backup_case,
    backup_rot_case, rot_backup,
};

use crate::support::{is_wanted, number, on_all_cores, replayed, seed};

/// Queue Storage's directory of the first version, and that of queues of Service Bus: each with its snapshot and without
/// it.
pub(crate) fn olds() -> [OldDirectory; 4] {
    [
        old("storage", "1", true),
        old("storage-log", "1", false),
        old("bus", "bus-1", true),
        old("bus-log", "bus-1", false),
    ]
}

fn old(name: &str, folder: &str, has_snapshot: bool) -> OldDirectory {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../broker/tests/golden");
    let files = fs::read_dir(golden.join(folder)).expect("a directory of the first format");
    let files = files.map(|file| {
        let path = file.expect("it can be listed").path();
        let name = path.file_name().expect("a file has a name").to_owned();
        let name = name.into_string().expect("UTF-8");
        (name, fs::read(path).expect("it can be read"))
    });
    let files = files.filter(|(name, _)| has_snapshot || !name.starts_with("snapshot"));
    OldDirectory::new(name, files)
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

/// The first world meets every call of a backup, and the others one in five.
#[test]
fn no_fault_of_a_backup_loses_messages() {
    let (seed, began) = (seed(), Instant::now());
    let counts = on_all_cores(
        BACKED_UP.len(),
        |index| {
            let setting = BACKED_UP[index];
            if !is_wanted(&backup_case(setting)) {
                return BackupCounts::default();
            }
            let one_in = if index == 0 { 1 } else { 5 };
            let counts = back_up(setting, seed, faults_per_call(), one_in);
            let counts = counts.unwrap_or_else(|failure| panic!("{failure}"));
            println!("backup, {}: {counts:?}", setting.name);
            counts
        },
        BackupCounts::add,
    );
    println!(
        "backup, seed {seed}: {counts:?} in {:.1} s",
        began.elapsed().as_secs_f64()
    );
    if replayed().is_some() {
        return;
    }
    assert!(counts.failed_calls > 800, "{counts:?}");
    assert!(counts.failed > counts.failed_calls / 4, "{counts:?}");
    assert!(counts.disks > 300, "{counts:?}");
}

/// Of the source, of the copies, of a restored directory, and of what a disk writes.
#[test]
fn no_bit_rot_of_a_backup_goes_unnoticed() {
    let injections = number("KEW_DISK_INJECTIONS", 40_000) / 40;
    let (seed, began) = (seed(), Instant::now());
    let counts = on_all_cores(
        BACKED_UP.len(),
        |index| {
            let setting = BACKED_UP[index];
            if !is_wanted(&backup_rot_case(setting)) {
                return BackupRotCounts::default();
            }
            let counts = rot_backup(setting, seed, injections / BACKED_UP.len() as u64);
            counts.unwrap_or_else(|failure| panic!("{failure}"))
        },
        BackupRotCounts::add,
    );
    println!(
        "backup, bit rot, seed {seed}: {counts:?} in {:.1} s",
        began.elapsed().as_secs_f64()
    );
    if replayed().is_some() {
        return;
    }
    assert!(counts.injections >= injections * 99 / 100, "{counts:?}");
    for rare in [
        counts.source_refused,
        counts.source_pages_refused,
        counts.source_mended,
        counts.source_both_mended,
        counts.source_harmless,
        counts.copy_refused,
        counts.copy_harmless,
        counts.copy_replaced,
        counts.restored_again,
        counts.unlike_in_backup,
        counts.unlike_in_restore,
    ] {
        assert!(rare >= injections / 100, "{counts:?}");
    }
}
