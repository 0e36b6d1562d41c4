//! Bugs planted below the partition: these suites must catch each, or they prove nothing. Each is looked for in the suite
//! that shows it: to play the other one first would take half a minute for nothing.

use kew_sim::disk::{
    BACKED_UP, Cut, Failure, Setting, WorkloadKind, back_up, cut_power, fail_every_call, rot,
    rot_active, rot_backup, sequences, set_aside,
};
use kew_sim::planted::{
    OF_ACTIVE_ROT, OF_BACKUP, OF_BACKUP_ROT, OF_BUS_QUARANTINE, OF_DAMAGED_TOPICS,
    OF_FAILING_CALLS, OF_MIGRATION, OF_POWER_CUTS, OF_PROOF, OF_QUARANTINE, OF_SCRUB, Planted,
};

use crate::copies;
use crate::support::seed;

#[test]
fn each_bug_that_power_cuts_show_is_caught() {
    catch(&OF_POWER_CUTS, power);
}

#[test]
fn each_bug_that_failing_calls_show_is_caught() {
    catch(&OF_FAILING_CALLS, faults);
}

#[test]
fn each_bug_of_messages_that_are_set_aside_is_caught() {
    catch(&OF_QUARANTINE, || {
        let kind = WorkloadKind::Storage;
        (0..50).find_map(|world| set_aside(seed(), kind, world, 20).err())
    });
}

#[test]
fn each_bug_of_bus_messages_that_are_set_aside_is_caught() {
    catch(&OF_BUS_QUARANTINE, || {
        let kind = WorkloadKind::WithBus;
        (0..50).find_map(|world| set_aside(seed(), kind, world, 20).err())
    });
}

#[test]
fn each_bug_of_a_migration_is_caught() {
    let olds = copies::olds();
    catch(&OF_MIGRATION, || {
        olds.iter()
            .find_map(|old| old.migrate(seed(), 2, 100).err())
    });
}

#[test]
fn each_bug_of_a_backup_is_caught() {
    catch(&OF_BACKUP, || {
        (BACKED_UP.into_iter()).find_map(|setting| back_up(setting, seed(), 2, 1).err())
    });
}

#[test]
fn a_copy_that_is_not_verified_is_caught() {
    let caught = OF_BACKUP_ROT.plant(|| {
        (BACKED_UP.into_iter()).find_map(|setting| rot_backup(setting, seed(), 100).err())
    });
    let failure = caught.expect("the bug is missed");
    println!("{failure}");
    // What the copy of a snapshot has is taken for damage of the source. That of a segment is found in a restore.
    let promises = ["recovery", "a backup names what is damaged"];
    let promise = failure.violation.promise;
    assert!(promises.contains(&promise), "{failure}");
}

fn catch(bugs: &[Planted], suite: impl Fn() -> Option<Box<Failure>>) {
    let missed = bugs.iter().filter(|bug| {
        let caught = bug.plant(&suite);
        match &caught {
            Some(failure) => println!(
                "{}: {}, {}",
                bug.name, failure.case, failure.violation.promise
            ),
            None => println!("{}: MISSED", bug.name),
        }
        caught.is_none()
    });
    let missed: Vec<&str> = missed.map(|bug| bug.name).collect();
    assert!(missed.is_empty(), "{missed:?}");
}

/// A scrub that passes over a segment leaves damage for its readers to find.
#[test]
fn a_scrub_that_misses_a_segment_is_caught() {
    let caught = OF_SCRUB.plant(|| {
        let mut worlds = 0..100;
        worlds.find_map(|world| rot(seed(), WorkloadKind::Storage, world, 100, false).err())
    });
    let failure = caught.expect("the bug is missed");
    let promise = failure.violation.promise;
    assert_eq!(promise, "a scrub finds every damaged message", "{failure}");
}

/// The same of the segment that is written to.
#[test]
fn a_scrub_that_misses_the_active_segment_is_caught() {
    catch_in_active(&OF_SCRUB, "is not named");
}

/// A scrub leaves the header of that segment to the next commit.
#[test]
fn a_damaged_header_that_is_not_written_again_is_caught() {
    catch_in_active(&OF_ACTIVE_ROT, "is still damaged");
}

fn catch_in_active(bug: &Planted, seen: &str) {
    let caught = bug.plant(|| {
        let mut worlds = 0..100;
        worlds.find_map(|world| rot_active(seed(), WorkloadKind::Storage, world, 20).err())
    });
    let failure = caught.unwrap_or_else(|| panic!("{} is missed", bug.name));
    println!("{}: {failure}", bug.name);
    let promise = failure.violation.promise;
    assert_eq!(
        promise, "a scrub finds what is damaged of the segment that is written to",
        "{failure}"
    );
    assert!(failure.violation.seen.contains(seen), "{failure}");
}

/// Without marks, nothing tells a damaged last batch from a torn one.
#[test]
fn a_mark_that_is_not_written_is_caught() {
    let caught = OF_PROOF.plant(|| {
        let mut worlds = 0..100;
        worlds.find_map(|world| rot(seed(), WorkloadKind::Storage, world, 100, false).err())
    });
    let failure = caught.expect("the bug is missed");
    println!("{failure}");
}

/// A scrub lists each copy of a damaged body, and what waits for a rule that cannot look at it is kept.
#[test]
fn damage_of_topics_that_loses_a_message_or_a_copy_is_caught() {
    for (bug, promise) in OF_DAMAGED_TOPICS {
        let caught = bug.plant(|| {
            let mut worlds = 0..100;
            worlds.find_map(|world| rot(seed(), WorkloadKind::WithTopics, world, 100, false).err())
        });
        let failure = caught.unwrap_or_else(|| panic!("{} is missed", bug.name));
        println!("{}: {failure}", bug.name);
        assert_eq!(failure.violation.promise, promise, "{failure}");
    }
}

fn power() -> Option<Box<Failure>> {
    let cut = Cut {
        seed: seed(),
        drawn: 4,
        again_one_in: 4,
        again_everywhere_one_in: 16,
    };
    // Every seventh sequence: all kinds of steps, in all places.
    sequences().iter().step_by(7).find_map(|steps| {
        Setting::ALL
            .into_iter()
            .find_map(|setting| cut_power(setting, steps, cut, false).err())
    })
}

fn faults() -> Option<Box<Failure>> {
    (0..10)
        .find_map(|workload| fail_every_call(seed(), WorkloadKind::Storage, workload, false).err())
}
