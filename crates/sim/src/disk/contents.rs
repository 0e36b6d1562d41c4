//! What a log holds, for comparisons with what a copy of it holds.

use std::collections::BTreeMap;
use std::sync::Arc;

use kew_broker::{PartitionOptions, ResidentLimit};
use kew_log::{BodyLocation, Fault, FaultyStorage, LogPosition};

use super::host::BEGINNING;
use super::setting::violation;
use crate::checker::Violation;
use crate::random::Stream;
use crate::seam;

/// All messages of a log, and everything else in its state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Contents {
    /// Bodies by message. `None` if reading one fails.
    bodies: BTreeMap<String, Option<Vec<u8>>>,
    /// Where bodies lie is a part of it.
    state: Vec<u8>,
}

impl Contents {
    /// Opens a copy of the disk, which is not changed.
    pub(super) fn of(disk: &FaultyStorage, options: PartitionOptions) -> Result<Self, Violation> {
        let disk = Arc::new(disk.kill());
        // Each message is looked at, so all have their records in memory.
        let options = PartitionOptions {
            resident_limit: ResidentLimit::of(None),
            ..options
        };
        let opened = seam::open(disk, options, 1, [7; 16], BEGINNING);
        let (partition, _) = opened.map_err(|error| violation("a whole copy", &error))?;
        let mut bodies = BTreeMap::new();
        for message in partition.state().messages() {
            let location = BodyLocation {
                record: LogPosition::new(message.body.record),
                offset: message.body.offset(),
                length: message.body.length,
            };
            let body = partition.log().body(location);
            let body = body.and_then(|body| body.read().ok());
            let name = format!("{:?} {:?}", message.queue_name, message.sequence_number);
            bodies.insert(name, body.map(|body| body.to_vec()));
        }
        let mut state = Vec::new();
        let snapshot = |part: &[u8]| state.extend_from_slice(part);
        partition.state().snapshot(snapshot);
        Ok(Self { bodies, state })
    }

    pub(super) fn messages(&self) -> usize {
        self.bodies.len()
    }

    /// How many bodies are damaged, if that is all that distinguishes the messages of the two.
    pub(super) fn damaged_of(&self, expected: &Self) -> Result<u64, Violation> {
        let is_same_message = self.bodies.keys().eq(expected.bodies.keys());
        let mut damaged = 0;
        for (body, expected) in self.bodies.values().zip(expected.bodies.values()) {
            damaged += u64::from(body.is_none() && expected.is_some());
            if body.is_some() && body != expected {
                return Err(other("a message has another body"));
            }
        }
        match is_same_message {
            true => Ok(damaged),
            false => Err(other("messages differ")),
        }
    }

    /// Nothing may differ.
    pub(super) fn check(&self, expected: &Self, place: &str) -> Result<(), Violation> {
        match self == expected {
            true => Ok(()),
            false => Err(other(&format!("{place}: messages or their states differ"))),
        }
    }
}

/// A copy that is not what it was made of.
pub(super) fn other(seen: &str) -> Violation {
    Violation {
        promise: "a copy holds what its source holds",
        seen: seen.to_owned(),
    }
}

/// The disks that a power cut can leave: without anything that was not synced, and drawn ones.
pub(super) fn after_power_cuts(disk: &FaultyStorage, random: &mut Stream) -> Vec<FaultyStorage> {
    let drawn = (0..3).map(|_| disk.crash(&mut |below| random.below_u32(below)));
    let drawn: Vec<_> = drawn.collect();
    [disk.crash(&mut |_| 0)].into_iter().chain(drawn).collect()
}

/// So many kinds of faults for a call. The next calls get others.
pub(super) fn faults_of(call: u64, count: u64) -> impl Iterator<Item = Fault> {
    let kinds = Fault::ALL.into_iter().cycle();
    let first = call * count % Fault::ALL.len() as u64;
    let first = usize::try_from(first).expect("below the number of kinds");
    kinds.skip(first).take(usize::try_from(count).expect("few"))
}
