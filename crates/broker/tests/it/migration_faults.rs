//! Migrations of both old directories, Queue Storage's and that of queues of Service Bus: every call fails, the power
//! goes off in every call, and bytes of the old directory rot.

use std::collections::BTreeMap;
use std::sync::Arc;

use kew_broker::{MigrateError, Migrated, OldPartition, PartitionOptions};
use kew_log::{BodyLocation, Fault, FaultyStorage, LogPosition, OpenError, Repeat, verify};

use crate::damaged::{Bench, Dice};
use crate::{first_format, first_version};

/// An old directory.
struct Old {
    storage: FaultyStorage,
    options: PartitionOptions,
}

/// Each old directory, with its snapshot and without it.
fn olds() -> [Old; 4] {
    let storage = |is_whole_log| Old {
        storage: first_version::golden(is_whole_log),
        options: first_version::options(),
    };
    let bus = |is_whole_log| Old {
        storage: first_format::golden(is_whole_log),
        options: first_format::options(),
    };
    [storage(false), storage(true), bus(false), bus(true)]
}

/// What a checker can see of a migrated log without changing it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Contents {
    /// Bodies by message. `None` if reading one fails.
    bodies: BTreeMap<String, Option<Vec<u8>>>,
    /// Everything but the bodies. Where bodies lie is a part of it.
    state: Vec<u8>,
}

impl Contents {
    /// How many bodies are damaged, if that is all that distinguishes the messages of the two.
    fn damaged_of(&self, expected: &Self) -> u64 {
        assert!(self.bodies.keys().eq(expected.bodies.keys()));
        let pairs = self.bodies.iter().zip(expected.bodies.values());
        let damaged = pairs.filter(|((message, body), expected)| {
            assert!(body.is_none() || body == expected, "{message}: {body:?}");
            body.is_none()
        });
        damaged.count() as u64
    }
}

impl Old {
    fn migrate(&self, new: &FaultyStorage) -> Result<Migrated, MigrateError> {
        OldPartition::read(&self.storage, &self.options)?.write_to(
            Arc::new(new.clone()),
            &self.options,
            11,
        )
    }

    /// What a start does after an attempt that failed: what that has written is gone.
    fn migrate_again(&self) -> Contents {
        let new = FaultyStorage::new();
        let migrated = self.migrate(&new).unwrap();
        assert_eq!(migrated.damaged, 0);
        self.contents(&new)
    }

    /// The last segment with batches, and what is left if the last one is damaged.
    fn without_last_batch(&self) -> (String, Contents) {
        let files = self.storage.files();
        let names = files.into_iter().map(|(name, _)| name);
        let written = names.filter_map(|name| {
            let content = self.storage.content(&name)?;
            let last = content.iter().rposition(|byte| *byte != 0)?;
            (name.starts_with("segment") && last > 4096).then_some((name, last as u64))
        });
        let (name, last) = written.max().unwrap();
        let damaged = Self {
            storage: self.storage.kill(),
            options: self.options.clone(),
        };
        damaged.storage.flip(&name, last, 1);
        (name, damaged.migrate_again())
    }

    fn contents(&self, new: &FaultyStorage) -> Contents {
        let bench = Bench::on(new.kill(), self.options.clone());
        let state = bench.partition.state();
        let bodies = state.messages().map(|message| {
            let location = BodyLocation {
                record: LogPosition::new(message.body.record),
                offset: message.body.offset(),
                length: message.body.length,
            };
            let body = bench.partition.log().body(location).unwrap().read();
            let name = format!("{:?} {:?}", message.queue_name, message.sequence_number);
            (name, body.ok().map(|it| it.to_vec()))
        });
        let bodies = bodies.collect();
        let mut whole = Vec::new();
        state.snapshot(|part| whole.extend_from_slice(part));
        Contents {
            bodies,
            state: whole,
        }
    }
}

/// The disks that a power cut can leave: without anything that was not synced, and two more.
fn after_power_cuts(disk: &FaultyStorage) -> [FaultyStorage; 3] {
    [0, 1, 2].map(|seed| {
        let mut dice = Dice(seed);
        disk.crash(&mut |below| match seed {
            0 => 0,
            _ => u32::try_from(dice.below(below.into())).unwrap(),
        })
    })
}

const FAULTS: [Fault; 7] = [
    Fault::Eio,
    Fault::Eacces,
    Fault::Emfile,
    Fault::Enospc,
    Fault::EnospcAtAll,
    Fault::ShortWrite,
    Fault::Eintr,
];

/// Lets a call of one disk fail. Returns whether the migration succeeded nevertheless.
fn fail(old: &Old, expected: &Contents, of_new: bool, fault: Fault, call: u64) -> bool {
    let place = format!("{fault:?} in call {call}, of the new log: {of_new}");
    let new = FaultyStorage::new();
    let failing = if of_new { &new } else { &old.storage };
    failing.fail_after(call, fault, Repeat::Once);
    let migrated = old.migrate(&new);
    failing.clear_faults();
    match migrated {
        Ok(migrated) => {
            // A disk that cannot give back its bytes is damage. After every other failure they may be whole.
            let may_be_damaged = fault == Fault::Eio && !of_new;
            for after in after_power_cuts(&new) {
                let contents = old.contents(&after);
                // Session states and changed properties have bodies too.
                let found = contents.damaged_of(expected);
                assert!(found <= migrated.damaged, "{place}: {found}");
                // The log tells what a snapshot does that is damaged.
                assert!(may_be_damaged || contents == *expected, "{place}");
            }
            true
        }
        Err(error) => {
            assert!(!error.to_string().is_empty());
            assert_eq!(old.migrate_again(), *expected, "{place}: {error}");
            false
        }
    }
}

#[test]
fn any_failing_call_of_a_migration_costs_nothing() {
    let (mut calls, mut refused) = (0, 0);
    for old in olds() {
        let before = old.storage.fingerprint();
        let new = FaultyStorage::new();
        let counted = old.storage.calls();
        old.migrate(&new).unwrap();
        let counts = [old.storage.calls() - counted, new.calls()];
        let expected = old.contents(&new);
        assert!(expected.bodies.len() > 20);
        for (of_new, count) in [false, true].into_iter().zip(counts) {
            for call in 0..count {
                for fault in FAULTS {
                    calls += 1;
                    refused += u64::from(!fail(&old, &expected, of_new, fault, call));
                }
            }
        }
        assert_eq!(before, old.storage.fingerprint());
    }
    assert!(calls > 1000 && refused > calls / 4, "{calls}, {refused}");
}

/// The switch comes after the last call. So before it nothing counts, and then all of it is durable.
#[test]
fn a_power_cut_in_any_call_of_a_migration_costs_nothing() {
    let mut cuts = 0;
    for old in olds() {
        let whole = FaultyStorage::new();
        old.migrate(&whole).unwrap();
        let expected = old.contents(&whole);
        let before = old.storage.fingerprint();
        for call in 0..whole.calls() {
            let new = FaultyStorage::new();
            new.crash_after(call);
            assert!(old.migrate(&new).is_err(), "call {call}");
            assert_eq!(before, old.storage.fingerprint());
            assert_eq!(old.migrate_again(), expected, "call {call}");
            cuts += 1;
        }
        for seed in 0..100_u64 {
            let mut dice = Dice(seed);
            let after = whole.crash(&mut |below| u32::try_from(dice.below(below.into())).unwrap());
            verify(&after).unwrap();
            assert_eq!(old.contents(&after), expected, "seed {seed}");
        }
    }
    assert!(cuts > 100, "{cuts}");
}

/// Flips one to three bits, mostly where something was written. Returns the places.
fn rot(storage: &FaultyStorage, dice: &mut Dice) -> Vec<(String, u64, u8)> {
    let files = storage.files();
    let mut flipped = Vec::new();
    for _ in 0..[1, 1, 1, 2, 3][usize::try_from(dice.below(5)).unwrap()] {
        let index = usize::try_from(dice.below(files.len() as u64)).unwrap();
        let (name, size_bytes) = &files[index];
        let content = storage.content(name).unwrap();
        let written = content.iter().rposition(|byte| *byte != 0);
        let bound = match dice.below(8) {
            0 => *size_bytes,
            1 => 64,
            _ => written.map_or(*size_bytes, |last| last as u64 + 1),
        };
        let place = (name.clone(), dice.below(bound), 1 << dice.below(8));
        storage.flip(&place.0, place.1, place.2);
        flipped.push(place);
    }
    flipped
}

#[test]
fn rot_of_an_old_directory_is_refused_or_changes_nothing() {
    let (mut refused, mut damaged, mut same, mut ended_early) = (0, 0, 0, 0);
    for (index, old) in olds().into_iter().enumerate() {
        let new = FaultyStorage::new();
        old.migrate(&new).unwrap();
        let expected = old.contents(&new);
        let shorter = old.without_last_batch();
        for seed in 0..500 {
            let mut dice = Dice(seed * 4 + index as u64);
            let rotten = Old {
                storage: olds()[index].storage.clone(),
                options: old.options.clone(),
            };
            let places = rot(&rotten.storage, &mut dice);
            let before = rotten.storage.fingerprint();
            let new = FaultyStorage::new();
            match rotten.migrate(&new) {
                Ok(migrated) => {
                    let contents = rotten.contents(&new);
                    // The old format cannot tell a damaged last batch from one that a power cut has cut off.
                    let is_at_end = places.iter().any(|(file, _, _)| *file == shorter.0);
                    if is_at_end && contents != expected && contents == shorter.1 {
                        ended_early += 1;
                        continue;
                    }
                    let found = contents.damaged_of(&expected);
                    assert!(found <= migrated.damaged, "{index}, {seed}: {places:?}");
                    assert!(migrated.damaged > 0 || contents == expected);
                    damaged += u64::from(found > 0);
                    same += u64::from(found == 0);
                }
                Err(MigrateError::Log(error @ OpenError::Corrupt { .. })) => {
                    let said = error.to_string();
                    let files = rotten.storage.files();
                    let is_named = |(name, _): &(String, u64)| said.starts_with(name);
                    assert!(said.contains("is damaged at byte"), "{said}");
                    assert!(files.iter().any(is_named), "{said}");
                    refused += 1;
                }
                Err(error) => panic!("{index}, {seed}: {places:?}: {error}"),
            }
            assert_eq!(before, rotten.storage.fingerprint());
        }
    }
    let all = [refused, damaged, same, ended_early];
    assert!(
        refused > 500 && damaged > 10 && same > 500 && ended_early < 50,
        "{all:?}"
    );
}
