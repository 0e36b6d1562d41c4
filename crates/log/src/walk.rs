//! Follows the chain of records to its end, and judges what kind of end it is. Reads only.
//!
//! The chain ends at the first record that is not valid. Either the record was never durable, and is cut, or
//! it was durable, and the log is damaged. The highest position that anything in the directory proves to
//! have been durable decides:
//!
//! - the `durable` field of every valid record, including records after the damage;
//! - any valid record of a segment, and what says where it begins, proves everything before that segment, because a segment is written to
//!   only after the one before it was synced;
//! - every segment's header states what was durable when the file got its name, for a recovery's segment
//!   everything copied into it; a snapshot's name proves its position, and the proof what it claims.
//!
//! Each counts at most up to where a later epoch began ([`crate::claims`]). The chain also ends at a record of an
//! earlier epoch than the one before it.

use std::collections::VecDeque;
use std::mem;
use std::ops::ControlFlow;
use std::sync::Arc;

use crate::batch::{Entries, Entry, MalformedEntry};
use crate::claims::Proven;
use crate::format::{
    FormatError, RECORD_HEADER_SIZE, RecordKind, SEGMENT_HEADER_BLOCK_SIZE, names, read_u64,
};
use crate::piece::Room;
use crate::reader::records::{Record, RecordReader, Window};
use crate::recovery::{OpenError, TailCut};
use crate::replay::Replay;
use crate::segment::Segment;
use crate::snapshot::SnapshotHeader;
use crate::survey::{Survey, format_error};
use crate::{Epoch, LogPosition};

/// Where a walk begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Start {
    pub(crate) position: LogPosition,
    /// Content checksum of the batch before.
    pub(crate) chain: u32,
    /// The partition's time there, in milliseconds.
    pub(crate) time_ms: u64,
    /// The epoch in which the snapshot there was begun.
    pub(crate) epoch: Epoch,
    /// No segment need hold the position yet: a repair was interrupted after its snapshot.
    pub(crate) begins_anew: bool,
}

impl Start {
    /// Behind a snapshot with this header.
    pub(crate) fn of(snapshot: &SnapshotHeader) -> Self {
        Self {
            position: snapshot.position,
            chain: snapshot.chain,
            time_ms: snapshot.time_ms,
            epoch: snapshot.epoch,
            begins_anew: snapshot.begins_anew,
        }
    }
}

/// The result of a walk.
#[derive(Debug)]
pub(crate) struct End {
    /// The log's end: after the last record that counts.
    pub(crate) position: LogPosition,
    pub(crate) chain: u32,
    /// Everything before this position is proven to have been durable.
    pub(crate) durable: LogPosition,
    /// The last time that any record has, in milliseconds.
    pub(crate) time_ms: u64,
    /// The positions of the batches from `durable` on, all in one segment.
    pub(crate) tail: VecDeque<LogPosition>,
    /// The index in the chain of the segment that holds the tail, or else in which the log ends.
    pub(crate) tail_segment: usize,
    /// Records after the end that were begun, as far as they can be made out.
    pub(crate) cut: Option<Cut>,
    /// How many claims and records did not count, because a later owner went on before them.
    pub(crate) void: u64,
    pub(crate) counts: Counts,
}

impl End {
    /// A log that was never written to ends where it begins.
    pub(crate) fn of_new_log(start: Start) -> Self {
        Self {
            position: start.position,
            chain: start.chain,
            time_ms: start.time_ms,
            durable: start.position,
            tail: VecDeque::new(),
            tail_segment: 0,
            cut: None,
            void: 0,
            counts: Counts::default(),
        }
    }
}

/// Records that were begun and never became durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cut {
    pub(crate) segment: usize,
    pub(crate) offset: u64,
    pub(crate) size_bytes: u64,
}

impl Cut {
    pub(crate) fn report(&self, chain: &[Arc<Segment>]) -> TailCut {
        TailCut {
            file: chain[self.segment].name.clone(),
            offset: self.offset,
            size_bytes: self.size_bytes,
        }
    }
}

/// The position of a walk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) records: u64,
    pub(crate) events: u64,
    pub(crate) bodies: u64,
    pub(crate) size_bytes: u64,
}

/// Follows the chain, and passes every event on. It has what it needs of the directory, and can stop after each record.
///
/// The checksums of bodies are not checked: the record's checksum covers the bodies, and their own are for
/// reading a body without its record.
pub(crate) struct Walker {
    chain: Vec<Arc<Segment>>,
    /// The numbers of segments without records.
    blanks: Vec<u64>,
    /// The segment that covers `at`.
    index: usize,
    at: LogPosition,
    crc: u32,
    proven: Proven,
    time_ms: u64,
    tail: VecDeque<LogPosition>,
    /// The segment that holds it.
    tail_segment: usize,
    counts: Counts,
    /// What was read ahead of that segment.
    window: Window,
}

fn missing_start(chain: &[Arc<Segment>], start: Start) -> OpenError {
    let file = chain
        .first()
        .map_or_else(|| names::segment(1), |segment| segment.name.clone());
    let what = format!(
        "the log must be replayed from position {}, and the segment that holds it is missing",
        start.position
    );
    OpenError::corrupt(&file, 0, what)
}

/// The position after a record.
enum Step {
    /// The position right after it.
    On(LogPosition),
    /// The beginning of a segment with this number, which has no records yet.
    Blank(u64),
}

/// Why there is no further record.
enum Stop {
    Invalid(FormatError),
    /// The log goes on in the segment with this number, which has no records.
    Blank(u64),
}

impl Walker {
    /// Begins at `start`. A log that has nothing there yet is at its end.
    pub(crate) fn begin(
        survey: &Survey,
        start: Start,
    ) -> Result<ControlFlow<End, Self>, OpenError> {
        let chain = &*survey.chain;
        if survey.is_new() {
            return Ok(ControlFlow::Break(End::of_new_log(start)));
        }
        let Some(first) = chain
            .iter()
            .rposition(|segment| segment.first() <= start.position)
            .filter(|index| start.position < chain[*index].limit())
        else {
            let is_last = chain
                .last()
                .is_none_or(|last| last.first() < start.position);
            if start.begins_anew && is_last && survey.claims.proven() <= start.position {
                return Ok(ControlFlow::Break(End::of_new_log(start)));
            }
            return Err(missing_start(chain, start));
        };
        let blanks = survey.blanks.iter();
        Ok(ControlFlow::Continue(Self {
            chain: chain.to_vec(),
            blanks: blanks.map(|blank| blank.header.number).collect(),
            index: first,
            at: start.position,
            crc: start.chain,
            proven: Proven::new(survey.claims.clone(), start.epoch),
            time_ms: start.time_ms,
            tail: VecDeque::new(),
            tail_segment: first,
            counts: Counts::default(),
            window: Window::default(),
        }))
    }

    /// Passes records on until there is no room, or up to the end of the log.
    pub(crate) fn step(
        mut self,
        replay: &mut dyn Replay,
        room: &mut Room,
    ) -> Result<ControlFlow<End, Self>, OpenError> {
        Ok(match self.follow(replay, room)? {
            Some(stop) => ControlFlow::Break(self.finish(stop)?),
            None => ControlFlow::Continue(self),
        })
    }

    /// The position up to which everything was passed on, and was durable as far as is known; the position up to which
    /// everything was passed on; and the last time there.
    pub(crate) fn passed(&self) -> (LogPosition, LogPosition, u64) {
        (self.proven.durable().min(self.at), self.at, self.time_ms)
    }

    /// Returns why there is no further record, or `None` if there is no room for it.
    fn follow(
        &mut self,
        replay: &mut dyn Replay,
        room: &mut Room,
    ) -> Result<Option<Stop>, OpenError> {
        loop {
            let segment = Arc::clone(&self.chain[self.index]);
            let mut reader = RecordReader::with(&segment, mem::take(&mut self.window));
            while !self.takes_over() {
                let read = match reader.head(self.at)? {
                    Ok(head) if !room.fits(head.header.record_size_bytes()) => {
                        self.window = reader.into_window();
                        return Ok(None);
                    }
                    Ok(head) => reader.record(head)?,
                    Err(error) => Err(error),
                };
                let record = match read {
                    Ok(record) => record,
                    Err(newer @ FormatError::Newer(_)) => {
                        return Err(self.corrupt_or_newer(newer));
                    }
                    Err(error) => return Ok(Some(Stop::Invalid(error))),
                };
                if !self.proven.enter(record.header.epoch, self.at) {
                    let what = "the record is of an earlier epoch than the one before it";
                    return Ok(Some(Stop::Invalid(FormatError::Damaged(what))));
                }
                room.take(record.header.record_size_bytes());
                match self.pass(&record, replay)? {
                    Step::On(position) => self.at = position,
                    Step::Blank(number) => return Ok(Some(Stop::Blank(number))),
                }
            }
            self.index += 1;
        }
    }

    /// Whether the next segment covers this position: the log rolled, or a recovery continued there.
    fn takes_over(&self) -> bool {
        self.chain
            .get(self.index + 1)
            .is_some_and(|next| next.first() == self.at)
    }

    /// Checks one record's place in the chain, and passes its entries on.
    fn pass(&mut self, record: &Record<'_>, replay: &mut dyn Replay) -> Result<Step, OpenError> {
        if record.header.previous != self.crc {
            return Err(self.corrupt("the record does not follow the one before it"));
        }
        let takeover = self.chain.get(self.index + 1).map(|next| next.first());
        let epoch = self.chain[self.index].header.epoch;
        if record.header.epoch > epoch
            || record.header.durable > self.at
            || takeover.is_some_and(|next| record.end() > next)
        {
            return Err(self.corrupt("the record contradicts its place in the log"));
        }
        self.proven.prove_passed(self.chain[self.index].first());
        self.proven.prove_passed(record.header.durable);
        match record.header.kind {
            RecordKind::Batch => {}
            RecordKind::Roll if record.payload.len() == 8 => {
                return self.roll(read_u64(record.payload, 0));
            }
            RecordKind::Roll => return Err(self.corrupt("the roll names no segment")),
        }
        self.pass_entries(record, replay)?;
        self.tail.push_back(self.at);
        self.tail_segment = self.index;
        self.drop_proven();
        self.crc = record.header.content;
        self.time_ms = self.time_ms.max(record.header.time_ms);
        self.counts.records += 1;
        self.counts.size_bytes += record.header.record_size_bytes();
        Ok(Step::On(record.end()))
    }

    fn pass_entries(
        &mut self,
        record: &Record<'_>,
        replay: &mut dyn Replay,
    ) -> Result<(), OpenError> {
        let Record {
            position, header, ..
        } = *record;
        replay.batch(position, header.epoch, header.time_ms);
        for entry in Entries::new(record.payload) {
            match entry {
                Ok(Entry::Event(event)) => {
                    self.counts.events += 1;
                    replay
                        .event(position, event)
                        .map_err(|source| OpenError::Replay { position, source })?;
                }
                Ok(Entry::Body { .. }) => self.counts.bodies += 1,
                Err(error) => return Err(self.malformed(error)),
            }
        }
        replay.batch_end();
        Ok(())
    }

    /// A roll is the last record of its segment. The log goes on in the segment that it names, or in one that took
    /// that segment's place: [`Self::takes_over`] looks first. If that one has no records, the log ends here.
    fn roll(&self, number: u64) -> Result<Step, OpenError> {
        match self.blanks.contains(&number) {
            true => Ok(Step::Blank(number)),
            false => {
                let mut chain = self.chain.iter();
                let problem = match chain.any(|segment| segment.header.number == number) {
                    true => "begins elsewhere",
                    false => "is missing",
                };
                let file = names::segment(number);
                Err(self.corrupt(format!("the log continues in {file}, which {problem}")))
            }
        }
    }

    /// Judges the end.
    fn finish(mut self, stop: Stop) -> Result<End, OpenError> {
        self.prove_by_later_segments()?;
        let cut = match stop {
            Stop::Invalid(_) => self.look_behind()?,
            // Nothing lies behind a roll.
            Stop::Blank(_) => None,
        };
        let durable = self.proven.durable();
        if self.at < durable {
            return Err(match stop {
                Stop::Invalid(error) => self.corrupt_or_newer(error),
                Stop::Blank(number) => {
                    let what =
                        format!("the segment has no records, and all before {durable} was durable");
                    let offset = SEGMENT_HEADER_BLOCK_SIZE;
                    OpenError::corrupt(&names::segment(number), offset, what)
                }
            });
        }
        self.drop_proven();
        let tail_segment = match self.tail.is_empty() {
            true => self.index,
            false => self.tail_segment,
        };
        Ok(End {
            position: self.at,
            chain: self.crc,
            time_ms: self.time_ms,
            durable,
            tail: self.tail,
            tail_segment,
            cut,
            void: self.proven.void(),
            counts: self.counts,
        })
    }

    fn prove_by_later_segments(&mut self) -> Result<(), OpenError> {
        let chain = &self.chain;
        let epoch = chain[self.index].header.epoch;
        // A segment of a newer epoch was made by a recovery or after one: its header is enough proof.
        for later in &chain[self.index + 1..] {
            let is_begun = later.header.first.is_none();
            if later.header.epoch == epoch
                && (is_begun || RecordReader::new(later).find_from(later.first())?.is_some())
            {
                self.proven.prove(epoch, later.first());
            }
        }
        Ok(())
    }

    /// Looks for valid records after the first invalid one, in the same segment.
    fn look_behind(&mut self) -> Result<Option<Cut>, OpenError> {
        let segment = Arc::clone(&self.chain[self.index]);
        let mut reader = RecordReader::new(&segment);
        let mut end = reader.begun_until(self.at)?;
        let mut from = self.at;
        while let Some(found) = reader.find_from(from)? {
            self.proven.prove_passed(segment.first());
            if let Ok(record) = reader.read(found)? {
                let header = record.header;
                self.proven.prove(header.epoch, header.durable);
                from = record.behind();
                end = Some(from);
            } else {
                from = found.plus(8);
            }
        }
        Ok(end.map(|end| Cut {
            segment: self.index,
            offset: segment.offset_of(self.at),
            size_bytes: end.as_u64() - self.at.as_u64(),
        }))
    }

    fn drop_proven(&mut self) {
        while let Some(position) = self.tail.front()
            && *position < self.proven.durable()
        {
            self.tail.pop_front();
        }
    }

    fn corrupt(&self, what: impl Into<String>) -> OpenError {
        let segment = &self.chain[self.index];
        OpenError::corrupt(&segment.name, segment.offset_of(self.at), what)
    }

    fn malformed(&self, entry: MalformedEntry) -> OpenError {
        let segment = &self.chain[self.index];
        let payload = segment.offset_of(self.at) + RECORD_HEADER_SIZE as u64;
        let offset = payload + entry.offset as u64;
        OpenError::corrupt(&segment.name, offset, entry.to_string())
    }

    fn corrupt_or_newer(&self, error: FormatError) -> OpenError {
        let segment = &self.chain[self.index];
        match error {
            FormatError::Damaged(what) => {
                let durable = self.proven.durable();
                let what = format!("{what}, and all before {durable} was durable");
                self.corrupt(what)
            }
            newer @ FormatError::Newer(_) => {
                format_error(&segment.name, segment.offset_of(self.at), newer)
            }
        }
    }
}
