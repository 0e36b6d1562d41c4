//! Follows the chain of records of format 1 to its end, and judges what kind of end it is.
//!
//! The chain ends at the first record that is not valid. If anything proves that it was durable, the log is
//! damaged. Otherwise it was never acknowledged, and the log ends there.

use crate::LogPosition;
use crate::batch::{Entries, Entry};
use crate::format::{FormatError, names, read_u64};
use crate::recovery::OpenError;
use crate::replay::Replay;

use super::format::{RECORD_HEADER_SIZE, RecordKind};
use super::format_error;
use super::records::{Record, RecordReader};
use super::survey::Segment;

/// Where a walk begins.
pub(super) struct Start {
    pub(super) position: LogPosition,
    /// Checksum of the record before.
    pub(super) chain: u32,
    /// Proven by the names of snapshots and the headers of segments.
    pub(super) durable: LogPosition,
    /// No segment need hold the position yet: a repair was interrupted after its snapshot.
    pub(super) begins_anew: bool,
}

/// Follows the chain from `start`, and passes every event to `replay`. Returns where the log ends.
pub(super) fn walk(
    chain: &[Segment],
    start: &Start,
    replay: &mut dyn Replay,
) -> Result<LogPosition, OpenError> {
    let Some(first) = chain
        .iter()
        .rposition(|segment| segment.first() <= start.position)
        .filter(|index| start.position < chain[*index].header.limit())
    else {
        let is_last = chain
            .last()
            .is_none_or(|last| last.first() < start.position);
        if start.begins_anew && is_last && start.durable <= start.position {
            return Ok(start.position);
        }
        let what = format!(
            "the log must be replayed from position {}, and the segment that holds it is missing",
            start.position
        );
        let file = chain
            .first()
            .map_or_else(|| names::segment(1), |segment| segment.name.clone());
        return Err(OpenError::corrupt(&file, 0, what));
    };
    let mut walker = Walker {
        chain,
        index: first,
        at: start.position,
        crc: start.chain,
        durable: start.durable,
        roll: None,
        replay,
    };
    let what = walker.follow()?;
    walker.finish(what)
}

struct Walker<'a> {
    chain: &'a [Segment],
    /// The segment that covers `at`.
    index: usize,
    at: LogPosition,
    crc: u32,
    durable: LogPosition,
    /// The roll that led into this segment. Forgotten at the first record behind it.
    roll: Option<LogPosition>,
    replay: &'a mut dyn Replay,
}

/// The position after a record.
enum Step {
    /// The position right after it.
    On(LogPosition),
    /// The segment with this number.
    Roll(u64),
}

impl Walker<'_> {
    /// Passes all valid records. Returns why it stopped.
    fn follow(&mut self) -> Result<FormatError, OpenError> {
        let chain = self.chain;
        loop {
            let segment = &chain[self.index];
            let mut reader = RecordReader::new(segment);
            loop {
                if self.takes_over() {
                    self.index += 1;
                    break;
                }
                let record = match reader.read(self.at)? {
                    Ok(record) => record,
                    Err(newer @ FormatError::Newer(_)) => {
                        return Err(self.corrupt_or_newer(newer));
                    }
                    Err(error) => return Ok(error),
                };
                match self.pass(&record)? {
                    Step::On(position) => self.at = position,
                    Step::Roll(number) => {
                        self.enter(number)?;
                        break;
                    }
                }
            }
        }
    }

    /// Whether the next segment covers this position: a recovery continued there.
    fn takes_over(&self) -> bool {
        self.chain
            .get(self.index + 1)
            .is_some_and(|next| next.first() == self.at)
    }

    /// Checks one record's place in the chain, and passes its entries on.
    fn pass(&mut self, record: &Record<'_>) -> Result<Step, OpenError> {
        if record.header.previous != self.crc {
            return Err(self.corrupt("the record does not follow the one before it"));
        }
        let takeover = self.chain.get(self.index + 1).map(Segment::first);
        if record.header.durable > self.at || takeover.is_some_and(|next| record.end() > next) {
            return Err(self.corrupt("the record contradicts its place in the log"));
        }
        self.prove(self.chain[self.index].first());
        self.prove(record.header.durable);
        self.roll = None;
        let step = match record.header.kind {
            RecordKind::Batch => {
                self.pass_entries(record)?;
                Step::On(record.end())
            }
            RecordKind::Mark => Step::On(record.end()),
            RecordKind::Roll if record.payload.len() == 8 => {
                self.roll = Some(self.at);
                Step::Roll(read_u64(record.payload, 0))
            }
            RecordKind::Roll => return Err(self.corrupt("the roll names no segment")),
        };
        self.crc = record.header.crc;
        Ok(step)
    }

    fn pass_entries(&mut self, record: &Record<'_>) -> Result<(), OpenError> {
        let position = record.position;
        for entry in Entries::new(record.payload) {
            match entry {
                Ok(Entry::Event(event)) => self
                    .replay
                    .event(position, event)
                    .map_err(|source| OpenError::Replay { position, source })?,
                Ok(Entry::Body { .. }) => {}
                Err(error) => {
                    let segment = &self.chain[self.index];
                    let payload = segment.offset_of(self.at) + RECORD_HEADER_SIZE as u64;
                    let offset = payload + error.offset as u64;
                    return Err(OpenError::corrupt(&segment.name, offset, error.to_string()));
                }
            }
        }
        Ok(())
    }

    /// Continues after a roll, in the segment that it names or in one that took that segment's place.
    fn enter(&mut self, number: u64) -> Result<(), OpenError> {
        let first = self.chain[self.index].end_before(None);
        let next = self.chain.get(self.index + 1);
        let follows = next.is_some_and(|next| {
            next.first() == first
                && (next.header.number == number
                    || next.header.epoch > self.chain[self.index].header.epoch)
        });
        if !follows {
            let what = format!(
                "the log continues in {}, which is missing",
                names::segment(number)
            );
            return Err(self.corrupt(what));
        }
        self.index += 1;
        self.at = first;
        Ok(())
    }

    /// Judges the end.
    fn finish(mut self, error: FormatError) -> Result<LogPosition, OpenError> {
        self.prove_by_later_segments()?;
        self.look_behind()?;
        if self.at < self.durable {
            return Err(self.corrupt_or_newer(error));
        }
        // A roll that is not proven to be durable does not count.
        let roll = self.roll.filter(|roll| *roll >= self.durable);
        Ok(roll.unwrap_or(self.at))
    }

    fn prove_by_later_segments(&mut self) -> Result<(), OpenError> {
        let chain = self.chain;
        let epoch = chain[self.index].header.epoch;
        for later in &chain[self.index + 1..] {
            if later.header.epoch == epoch
                && RecordReader::new(later).find_from(later.first())?.is_some()
            {
                self.prove(later.first());
            }
        }
        Ok(())
    }

    /// Looks for valid records after the first invalid one, in the same segment.
    fn look_behind(&mut self) -> Result<(), OpenError> {
        let segment = &self.chain[self.index];
        let mut reader = RecordReader::new(segment);
        let mut from = self.at;
        while let Some(found) = reader.find_from(from)? {
            self.prove(segment.first());
            if let Ok(record) = reader.read(found)? {
                self.prove(record.header.durable);
                from = record.end();
            } else {
                from = found.plus(8);
            }
        }
        Ok(())
    }

    fn prove(&mut self, durable: LogPosition) {
        self.durable = self.durable.max(durable);
    }

    fn corrupt(&self, what: impl Into<String>) -> OpenError {
        let segment = &self.chain[self.index];
        OpenError::corrupt(&segment.name, segment.offset_of(self.at), what)
    }

    fn corrupt_or_newer(&self, error: FormatError) -> OpenError {
        match error {
            FormatError::Damaged(what) => {
                let what = format!("{what}, and all before {} was durable", self.durable);
                self.corrupt(what)
            }
            newer @ FormatError::Newer(_) => {
                let segment = &self.chain[self.index];
                format_error(&segment.name, segment.offset_of(self.at), newer)
            }
        }
    }
}
