//! A member's copy, and what tests do to it.

use kew_log::LogPosition;

use super::ModelSource;
use super::engine::Place;
use crate::Difference;
use crate::memory::{Kept, Placed};
use crate::random::Random;

/// Where a copy ends.
pub(super) fn place(kept: &Kept) -> Place {
    Place {
        at: kept.end,
        content: kept.chain,
    }
}

/// The batches of a copy, by their checksums.
pub(super) fn checksums(kept: &Kept) -> Vec<(LogPosition, u32)> {
    let batches = kept.batches.iter();
    let checksums = batches.map(|(at, stored)| (*at, stored.sealed.content));
    checksums.collect()
}

impl ModelSource {
    /// The machine restarts. The last batches may be lost from its copy: that they are agreed is enough for a commit.
    /// What a snapshot has is on the disk.
    pub fn restart(&self, seed: u64) {
        self.start();
        let copy = self.copy();
        let mut kept = copy.kept();
        let newest = kept.snapshots.last();
        let behind = newest.map_or(LogPosition::default(), |newest| newest.at);
        let records: Vec<_> = kept.batches.range(behind..).map(|(at, _)| *at).collect();
        if records.is_empty() {
            return;
        }
        // One of them says where the copy ends.
        let left = 1 + Random::named(seed, "restart").below(records.len());
        for record in records.iter().skip(left) {
            kept.batches.remove(record);
        }
        if let Some((at, last)) = kept.batches.pop_last() {
            kept.put(vec![(at, last)]);
        }
    }

    /// The machine restarts, and its disk is lost: the copy is empty.
    pub fn lose_copy(&self) {
        self.start();
        self.copies().remove(&self.member);
    }

    /// How many batches the copy has.
    pub(crate) fn batches(&self) -> usize {
        self.copy().kept().batches.len()
    }

    /// The machine is there again after it has failed, and has its copy.
    pub(crate) fn start(&self) {
        self.model.0.link.net().cuts.remove(&self.member);
    }

    /// Lets the copy differ from what was agreed. Returns from where on.
    ///
    /// # Panics
    ///
    /// If it has less than two batches.
    pub fn differ(&self, how: Difference) -> LogPosition {
        let copy = self.copy();
        let mut kept = copy.kept();
        assert!(kept.batches.len() > 1, "the copy has two batches");
        let last = kept.batches.iter().next_back();
        let (_, last) = last.expect("it has two");
        if how == Difference::Longer {
            let at = kept.end;
            let more = last.with_events(at, &[b"never agreed".to_vec()], kept.chain);
            kept.put(vec![(at, more)]);
            return at;
        }
        let behind = kept.batches.iter().rev().take(2);
        let mut changed: Vec<Placed> = behind.map(|(at, it)| (*at, it.clone())).collect();
        changed.reverse();
        let at = changed[0].0;
        let before = kept.batches.range(..at).next_back();
        let mut previous = before.map_or(0, |(_, before)| before.sealed.content);
        for (record, stored) in &mut changed {
            let mut events = stored.events();
            if *record == at {
                // A beat has nothing else.
                stored.time_ms += 1;
                events.iter_mut().flatten().for_each(|byte| *byte ^= 1);
            }
            *stored = stored.with_events(*record, &events, previous);
            previous = stored.sealed.content;
        }
        kept.put(changed);
        at
    }
}
