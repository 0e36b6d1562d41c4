//! The scrub of a world's partition: a piece at a time, between everything else that happens.
//!
//! No segment of a world is ever damaged. Snapshots and pages are, now and then, so a scrub may name those files as
//! long as they are, and nothing else. What it says after a read has failed is the fault's.

use std::collections::BTreeSet;
use std::ops::Range;

use kew_broker::{ScrubJob, ScrubOutcome};

use super::World;
use crate::backups::pair_of;
use crate::checker::{Violation, promise, violated};
use crate::rare::Rare;

/// More pieces and turns than two passes need.
const PIECES_MAX: u32 = 20_000;
/// How long a scrub that has nothing to read waits.
const REST_US: u64 = 20_000;

/// A job of a scrub that has begun.
pub(super) struct ScrubUnderWay {
    job: ScrubJob,
    /// The files that were damaged while it read.
    damaged: BTreeSet<String>,
    /// A read of it has failed.
    has_failed: bool,
}

/// A byte of a file that was changed behind the log's back.
pub(super) struct Flipped {
    name: String,
    at: u64,
    is_now: Option<u8>,
}

impl World {
    /// Changes a bit of a file.
    pub(super) fn flip(&mut self, name: &str, at: u64, which: u64) {
        self.trace.add("damage", &[at], &(name, at));
        self.storage.flip(name, at, 1 << (which % 8));
        self.flipped.push(Flipped {
            name: name.to_owned(),
            at,
            is_now: self.byte_of(name, at),
        });
    }

    fn byte_of(&self, name: &str, at: u64) -> Option<u8> {
        let content = self.storage.content(name)?;
        content.get(usize::try_from(at).ok()?).copied()
    }

    /// The files that have damage now: the others were written anew since.
    pub(super) fn damaged_files(&self) -> impl Iterator<Item = String> {
        self.damage().map(|it| it.name.clone())
    }

    /// Whether a file has damage now in some of these bytes.
    pub(super) fn is_damaged_in(&self, name: &str, bytes: &Range<u64>) -> bool {
        self.damage()
            .any(|it| it.name == name && bytes.contains(&it.at))
    }

    fn damage(&self) -> impl Iterator<Item = &Flipped> {
        let is_there = |it: &&Flipped| self.byte_of(&it.name, it.at) == it.is_now;
        self.flipped.iter().filter(is_there)
    }

    /// Lets the scrub read a piece, if it has something to read now.
    pub(super) fn scrub_piece(&mut self) -> Result<bool, Violation> {
        let begun = self.life.scrub.take();
        let passes = self.life.partition.scrub_report().passes;
        let next = begun.or_else(|| {
            Some(ScrubUnderWay {
                job: self.life.partition.next_scrub()?,
                damaged: BTreeSet::new(),
                has_failed: false,
            })
        });
        let has_ended = self.life.partition.scrub_report().passes > passes;
        self.report.rare.note_if(has_ended, Rare::ScrubPassEnded);
        let Some(mut scrub) = next else {
            return Ok(false);
        };
        scrub.damaged.extend(self.damaged_files());
        let failed_before = self.storage.failed_calls();
        self.device.set_scrubbing(true);
        let read_bytes = scrub.job.step();
        let has_missed = self.device.set_scrubbing(false);
        scrub.has_failed |= self.storage.failed_calls() > failed_before;
        self.report
            .rare
            .note_if(has_missed, Rare::RemovedWhileScrubbed);
        self.trace
            .add("scrub", &[read_bytes.unwrap_or(0)], &read_bytes);
        match read_bytes {
            Some(_) => self.life.scrub = Some(scrub),
            None => self.end_scrub(scrub)?,
        }
        Ok(true)
    }

    fn end_scrub(&mut self, scrub: ScrubUnderWay) -> Result<(), Violation> {
        let outcome = scrub.job.finish();
        let has_found = !outcome.places().is_empty() || !outcome.bodies().is_empty();
        let rare = &mut self.report.rare;
        rare.note_if(scrub.has_failed, Rare::ReadOfScrubFailed);
        if !scrub.has_failed {
            rare.note_if(has_found, Rare::ScrubFoundDamage);
            check_found(&outcome, &scrub.damaged)?;
        }
        self.life.partition.scrubbed(outcome);
        Ok(())
    }

    /// Without faults, passes end, and list no message.
    pub(super) fn check_scrub_ends(&mut self) -> Result<(), Violation> {
        if self.swarm.scrub_per_mille == 0 {
            return Ok(());
        }
        // The one that goes on may have met a fault.
        let passes = self.life.partition.scrub_report().passes + 2;
        let mut nothing = None;
        for _ in 0..PIECES_MAX {
            let report = self.life.partition.scrub_report();
            if report.passes >= passes {
                return match report.bodies.first() {
                    Some(body) => violated!(promise::NO_DAMAGE, "{body:?} is listed"),
                    None => Ok(()),
                };
            }
            if !self.scrub_piece()? {
                self.pass_time(|_| REST_US)?;
            }
            self.turn_and_note(u64::MAX, &mut nothing)?;
            self.end_step();
        }
        violated!(promise::LIVENESS, "a pass of the scrub does not end")
    }
}

/// All that was found is damaged. A snapshot is, too, if a page is that it names: in both files of a pair.
fn check_found(outcome: &ScrubOutcome, damaged: &BTreeSet<String>) -> Result<(), Violation> {
    if let Some(body) = outcome.bodies().first() {
        return violated!(promise::NO_DAMAGE, "{body:?} was found");
    }
    let is_pair_damaged = || {
        let pairs: Vec<u32> = damaged.iter().filter_map(|it| pair_of(it)).collect();
        pairs.windows(2).any(|two| two.first() == two.last())
    };
    let is_damaged = |file: &String| {
        damaged.contains(file) || file.starts_with("snapshot-") && is_pair_damaged()
    };
    match outcome.places().iter().find(|it| !is_damaged(&it.file)) {
        Some(place) => violated!(
            promise::NO_DAMAGE,
            "{place:?} was found, and only these files are damaged: {damaged:?}"
        ),
        None => Ok(()),
    }
}
