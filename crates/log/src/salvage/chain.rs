//! Follows the records of a damaged log to its end.
//!
//! As in an ordinary recovery, the end is where nothing more is proven to have been durable. Before that,
//! bytes that are not valid are a gap, and reading continues at the next valid record.

use super::{Base, Gap, Rescue, Salvage, Source};
use crate::batch::{Entries, Entry};
use crate::claims::Proven;
use crate::format::{FormatError, RecordKind, names, read_u64};
use crate::reader::records::{Record, RecordReader};
use crate::recovery::OpenError;
use crate::segment::Segment;
use crate::survey::format_error;
use crate::{Epoch, LogPosition};

pub(super) fn read(
    salvage: &Salvage,
    base: &Base,
    crc: Option<u32>,
    rescue: &mut dyn Rescue,
    gaps: &mut Vec<Gap>,
) -> Result<(), OpenError> {
    let chain = &salvage.chain;
    let inside = chain
        .iter()
        .rposition(|segment| segment.first() <= base.position && base.position < segment.limit());
    let after = chain.partition_point(|segment| segment.first() <= base.position);
    let epoch = match &base.source {
        Source::Snapshot(header) => header.epoch,
        Source::DamagedSnapshot | Source::Beginning => Epoch::default(),
    };
    let mut reading = Reading {
        salvage,
        at: base.position,
        crc,
        proven: Proven::new(salvage.claims.clone(), epoch),
        rolled: false,
        gaps,
        rescue,
    };
    let mut index = inside.unwrap_or(after);
    while index < chain.len() {
        reading.enter(&chain[index]);
        if reading.segment(index)? == Way::End {
            return Ok(());
        }
        index += 1;
    }
    let begins_anew = matches!(&base.source, Source::Snapshot(header) if header.begins_anew);
    reading.end(inside.is_some() || begins_anew);
    Ok(())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// To the next segment.
    On,
    End,
}

struct Reading<'r> {
    salvage: &'r Salvage,
    at: LogPosition,
    /// Checksum of the record before; unknown behind a gap.
    crc: Option<u32>,
    proven: Proven,
    /// The last record was a roll: the log continues in another segment.
    rolled: bool,
    gaps: &'r mut Vec<Gap>,
    rescue: &'r mut dyn Rescue,
}

impl Reading<'_> {
    /// Goes to the first record of a segment, unless reading is already in it.
    fn enter(&mut self, segment: &Segment) {
        if self.at < segment.first() {
            let unreadable = self.salvage.unreadable.iter();
            let before = unreadable.rev().find(|name| **name < segment.name);
            let (file, what) = match before {
                Some(file) => (file, "nothing of the segment can be read"),
                None => (&segment.name, "the segment before this one is missing"),
            };
            self.gap(file, 0, segment.first(), what.to_owned());
        }
    }

    fn segment(&mut self, index: usize) -> Result<Way, OpenError> {
        let chain = &self.salvage.chain;
        let segment = &*chain[index];
        let next = chain.get(index + 1).map(|next| &**next);
        let takeover = next.map(Segment::first);
        let limit = segment.end_before(next);
        let mut reader = RecordReader::new(segment);
        loop {
            if takeover == Some(self.at) {
                return Ok(Way::On);
            }
            let failure = match reader.read(self.at)? {
                Ok(record) if takeover.is_some_and(|takeover| record.end() > takeover) => {
                    FormatError::Damaged("the record contradicts its place in the log")
                }
                Ok(record) if !self.proven.enter(record.header.epoch, self.at) => {
                    FormatError::Damaged("the record is of an earlier epoch than one before it")
                }
                Ok(record) => {
                    let end = record.end();
                    self.pass(segment, &record)?;
                    self.at = end;
                    self.rolled = self.leads_to_nothing(&record);
                    if record.header.kind == RecordKind::Roll {
                        return Ok(Way::On);
                    }
                    continue;
                }
                Err(error @ FormatError::Newer(_)) => {
                    let offset = segment.offset_of(self.at);
                    return Err(format_error(&segment.name, offset, error));
                }
                Err(error) => error,
            };
            let durable = self.proven_from(index)?;
            // If a file ends too early, the contents of the rest are unknown.
            let is_short = self.salvage.short.contains(&segment.name);
            if self.at >= durable && !is_short {
                return Ok(Way::End);
            }
            let offset = segment.offset_of(self.at);
            // A valid record that has no place here is skipped too.
            let found = self.find_next(&mut reader, limit)?;
            let to = found.or(takeover).unwrap_or(durable.max(self.at));
            self.gap(&segment.name, offset, to, failure.to_string());
            if found.is_none() {
                return Ok(Way::On);
            }
        }
    }

    /// Whether a record is a roll to a segment that is not there, or that cannot be read.
    fn leads_to_nothing(&self, record: &Record<'_>) -> bool {
        if record.header.kind != RecordKind::Roll || record.payload.len() != 8 {
            return false;
        }
        let number = read_u64(record.payload, 0);
        let mut blanks = self.salvage.blanks.iter();
        !blanks.any(|blank| blank.header.number == number)
    }

    fn pass(&mut self, segment: &Segment, record: &Record<'_>) -> Result<(), OpenError> {
        if self.crc.is_some_and(|crc| crc != record.header.previous) {
            let offset = segment.offset_of(record.position);
            let what = "the record does not follow the one before it".to_owned();
            self.gap(&segment.name, offset, record.position, what);
        }
        let header = record.header;
        self.proven.prove(header.epoch, header.durable);
        if header.kind != RecordKind::Batch {
            return Ok(());
        }
        self.crc = Some(record.header.content);
        self.salvage.note_time(record.header.time_ms);
        for entry in Entries::new(record.payload) {
            if let Ok(Entry::Event(event)) = entry {
                let position = record.position;
                self.rescue
                    .event(position, event)
                    .map_err(|source| OpenError::Replay { position, source })?;
            }
        }
        Ok(())
    }

    /// The next record before `limit` that is of no earlier epoch than those so far.
    fn find_next(
        &self,
        reader: &mut RecordReader<'_>,
        limit: LogPosition,
    ) -> Result<Option<LogPosition>, OpenError> {
        let mut from = self.at.plus(8);
        while let Some(found) = reader.find_from(from)?.filter(|found| *found < limit) {
            match reader.read(found)? {
                Ok(record) if self.proven.is_void(record.header.epoch) => from = record.behind(),
                _ => return Ok(Some(found)),
            }
        }
        Ok(None)
    }

    /// The positions proven to have been durable, including proofs after damage in this segment.
    fn proven_from(&mut self, index: usize) -> Result<LogPosition, OpenError> {
        let chain = &self.salvage.chain;
        let next = chain.get(index + 1).map(|next| &**next);
        let limit = chain[index].end_before(next);
        let mut reader = RecordReader::new(&chain[index]);
        let mut from = self.at;
        while let Some(found) = reader.find_from(from)?.filter(|found| *found < limit) {
            let Ok(record) = reader.read(found)? else {
                break;
            };
            let header = record.header;
            self.proven.prove(header.epoch, header.durable);
            from = record.behind();
        }
        for later in &chain[index + 1..] {
            if RecordReader::new(later).find_from(later.first())?.is_some() {
                self.proven.prove(later.header.epoch, later.first());
            }
        }
        Ok(self.proven.durable())
    }

    /// Behind the last segment.
    fn end(&mut self, is_known: bool) {
        let unread = self.salvage.unreadable.last();
        let durable = self.proven.durable();
        if self.at < durable || self.rolled || !is_known {
            let file = unread.cloned().unwrap_or_else(|| {
                let last = self.salvage.chain.last();
                names::segment(last.map_or(1, |segment| segment.header.number + 1))
            });
            let to = durable.max(self.at);
            let what = "the segment that comes next cannot be read or is missing";
            self.gap(&file, 0, to, what.to_owned());
        }
    }

    fn gap(&mut self, file: &str, offset: u64, to: LogPosition, what: String) {
        let gap = Gap {
            file: file.to_owned(),
            offset,
            span: Some((self.at, to)),
            what,
        };
        self.rescue.gap(&gap);
        self.gaps.push(gap);
        self.at = to;
        self.crc = None;
    }
}
