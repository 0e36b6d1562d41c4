//! Bugs planted below the partition: these suites must catch each, or they prove nothing.

use kew_planted::{Bug, with};
use kew_sim::disk::{Cut, Failure, Setting, WorkloadKind, cut_power, fail_every_call, sequences};

use crate::support::seed;

/// The suite for each bug: some bugs show in one suite only.
const BUGS: [Bug; 10] = [
    Bug::CommitNotSynced,
    Bug::SyncTriedAgain,
    Bug::DirectoryNotSynced,
    Bug::FullDiskIgnored,
    Bug::OldRecordsTrusted,
    Bug::LastEventOfBatchDropped,
    Bug::TailNotCopied,
    Bug::FailureIgnored,
    Bug::AnsweredBeforeDurable,
    Bug::LiveSegmentRetired,
];

#[test]
fn each_planted_bug_is_caught() {
    let missed: Vec<Bug> = BUGS
        .into_iter()
        .filter(|bug| {
            let caught = with(*bug, || power().or_else(faults));
            match &caught {
                Some(failure) => {
                    println!("{bug:?}: {}, {}", failure.case, failure.violation.promise)
                }
                None => println!("{bug:?}: MISSED"),
            }
            caught.is_none()
        })
        .collect();
    assert!(missed.is_empty(), "{missed:?}");
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
