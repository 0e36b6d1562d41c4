//! Power cuts at every storage call, with several of the possible disk states, and again during the
//! following recovery.

use kew_log::FaultyStorage;

use crate::node::{Node, Step, Step::*, Told, check_whole, run};
use crate::random::Random;

/// Short histories that together contain every kind of job in every order that matters.
const HISTORIES: &[&[Step]] = &[
    &[Send(2), Commit, Send(1), Commit],
    &[Send(2), Send(3), Commit, Mark, Commit, Send(1), Commit],
    &[
        Background,
        Send(4),
        Commit,
        Send(4),
        Overlap(4),
        Overlap(4),
        Commit,
        Background,
        Send(2),
        Commit,
    ],
    // A commit across a roll.
    &[
        Background,
        Send(6),
        Send(6),
        Send(6),
        Commit,
        Send(6),
        Commit,
    ],
    &[
        Send(3),
        Snapshot,
        Background,
        Send(2),
        Commit,
        Snapshot,
        Background,
        Send(1),
        Commit,
    ],
    &[
        Send(3),
        Commit,
        Reopen,
        Send(2),
        Commit,
        Close,
        Send(1),
        Commit,
        Reopen,
        Reopen,
    ],
    // Segments that are too small for a batch are passed, with nothing in them.
    &[
        Background,
        SendTogether(30),
        Send(1),
        Commit,
        Background,
        SendTogether(60),
        Commit,
        Background,
        Send(3),
        Snapshot,
        Background,
        SendTogether(120),
        Snapshot,
        Background,
        Send(3),
        Commit,
    ],
    // Segments are retired and used again.
    &[
        Background,
        Send(6),
        Send(6),
        Commit,
        Background,
        Send(6),
        Snapshot,
        Background,
        Send(6),
        Send(6),
        Snapshot,
        Background,
        Send(6),
        Send(6),
        Send(6),
        Commit,
        Background,
        Send(6),
        Snapshot,
        Background,
        Send(6),
        Commit,
        Close,
        Send(2),
        Commit,
    ],
];

/// The disk after the `n`-th call of a history, and what was acknowledged until then; `None` when
/// the history needs fewer calls.
fn cut_after(steps: &[Step], calls: u64) -> Option<(FaultyStorage, Told)> {
    let storage = FaultyStorage::new();
    let mut told = Told::default();
    storage.crash_after(calls);
    match run(&storage, steps, &mut told) {
        Ok(()) => None,
        Err(_) => Some((storage, told)),
    }
}

#[test]
fn a_power_cut_at_any_call_loses_nothing_acknowledged() {
    for (history, steps) in HISTORIES.iter().enumerate() {
        for calls in 0.. {
            let Some((storage, told)) = cut_after(steps, calls) else {
                break;
            };
            for seed in 0..6 {
                let mut told = told.clone();
                let mut random = Random::new(seed * 1000 + calls);
                let disk = storage.crash(&mut random.choice());
                check_whole(&disk);
                told.story = format!("history {history}, cut after {calls} calls, seed {seed}");
                go_on(&disk, &mut told);
                // The content that the first start has shown must survive the next cut.
                go_on(&disk.crash(&mut random.choice()), &mut told);
            }
        }
    }
}

/// Starts, and shows that the log still works.
fn go_on(disk: &FaultyStorage, told: &mut Told) {
    let mut node = Node::open_checked(disk, told);
    node.send(3, told).unwrap();
    node.commit(told).unwrap();
    node.background().unwrap();
    node.send(1, told).unwrap();
    let disk = node.close(told).unwrap();
    check_whole(&disk);
    Node::open_checked(&disk, told);
}

#[test]
fn a_second_power_cut_at_any_call_of_a_recovery_changes_nothing() {
    for steps in HISTORIES {
        // Every third cut, to keep the test short; the offset makes histories differ.
        for calls in (0..).step_by(3) {
            let Some((storage, told)) = cut_after(steps, calls) else {
                break;
            };
            let mut random = Random::new(calls);
            let disk = storage.crash(&mut random.choice());
            recover_with_cuts(&disk, &told, &mut random);
        }
    }
}

#[test]
fn a_power_cut_after_the_process_was_killed_and_recovered_half_way() {
    for steps in HISTORIES {
        for calls in (1..).step_by(5) {
            let Some((storage, told)) = cut_after(steps, calls) else {
                break;
            };
            // The next process sees every write, but unsynced ones may still be lost.
            recover_with_cuts(&storage.kill(), &told, &mut Random::new(calls));
        }
    }
}

/// The rename of one recovery is lost, and that of the next, which depends on it, is kept.
#[test]
fn a_recovery_relies_on_no_name_that_may_still_be_lost() {
    let storage = FaultyStorage::new();
    let mut told = Told::default();
    let mut node = Node::open(&storage).unwrap();
    node.send(2, &mut told).unwrap();
    node.commit(&mut told).unwrap();
    node.send(2, &mut told).unwrap();
    // Written but not synced: the next process sees it, but it may never reach the disk.
    storage.crash_after(1);
    assert!(node.commit(&mut told).is_err());
    let has = |disk: &FaultyStorage, number: u32| {
        disk.content(&format!("segment-{number:020}")).is_some()
    };
    for (disk, _) in cut_recoveries(&storage.kill()).filter(|(disk, _)| has(disk, 2)) {
        for (disk, calls) in cut_recoveries(&disk).filter(|(disk, _)| has(disk, 3)) {
            for seed in 0..200 {
                let mut random = Random::new(seed * 100 + calls);
                let disk = disk.crash(&mut random.choice());
                check_whole(&disk);
                Node::open_checked(&disk, &mut told.clone());
            }
        }
    }
}

/// The disk after a process was killed, for each call of its recovery.
fn cut_recoveries(disk: &FaultyStorage) -> impl Iterator<Item = (FaultyStorage, u64)> {
    let mut done = false;
    (0..)
        .map_while(move |calls| {
            let attempt = disk.kill();
            attempt.crash_after(calls);
            let last = done;
            done = Node::open(&attempt).is_ok();
            (!last).then_some((attempt.kill(), calls))
        })
        .collect::<Vec<_>>()
        .into_iter()
}

#[test]
fn every_snapshot_that_a_power_cut_leaves_can_be_used() {
    let steps = [Send(14), Commit, Background, Snapshot, Background].repeat(4);
    for calls in 0.. {
        let Some((storage, told)) = cut_after(&steps, calls) else {
            break;
        };
        for seed in 0..12 {
            let mut random = Random::new(seed * 1000 + calls);
            let disk = storage.crash(&mut random.choice());
            let files = disk.files().into_iter().map(|(name, _)| name);
            let snapshots: Vec<_> = files.filter(|n| n.starts_with("snapshot-")).collect();
            for newer in snapshots.iter().skip(1) {
                disk.flip(newer, 20, 1);
            }
            Node::open_checked(&disk, &mut told.clone());
        }
    }
}

fn recover_with_cuts(disk: &FaultyStorage, told: &Told, random: &mut Random) {
    for calls in 0.. {
        let attempt = disk.kill();
        attempt.crash_after(calls);
        if Node::open(&attempt).is_ok() {
            return;
        }
        // Killed during its recovery; a third process starts, and its power is cut too.
        let third = attempt.kill();
        third.crash_after(random.below(40));
        let mut told_third = told.clone();
        if let Ok(node) = Node::open(&third) {
            told.check(&node.messages);
            told_third.seen(&node.messages);
        }
        let disk = third.crash(&mut random.choice());
        check_whole(&disk);
        Node::open_checked(&disk, &mut told_third);

        let disk = attempt.crash(&mut random.choice());
        check_whole(&disk);
        go_on(&disk, &mut told.clone());
    }
}

#[test]
fn random_histories_survive_random_power_cuts() {
    for seed in 0..150 {
        let mut random = Random::new(seed);
        let mut disk = FaultyStorage::new();
        let mut told = Told {
            story: format!("seed {seed}"),
            ..Told::default()
        };
        for _ in 0..6 {
            let steps = random_steps(&mut random);
            disk.crash_after(random.below(150));
            let _ = run(&disk, &steps, &mut told);
            disk = match random.below(3) {
                0 => disk.kill(),
                _ => disk.crash(&mut random.choice()),
            };
            check_whole(&disk);
        }
        go_on(&disk, &mut told);
    }
}

fn random_steps(random: &mut Random) -> Vec<Step> {
    (0..20)
        .map(|_| match random.below(12) {
            0..4 => Send(1 + random.below(6)),
            4 | 5 => Commit,
            6 => Overlap(1 + random.below(4)),
            7 => Mark,
            8 => Snapshot,
            9 | 10 => Background,
            _ => [Reopen, Close][usize::try_from(random.below(2)).unwrap()],
        })
        .collect()
}
