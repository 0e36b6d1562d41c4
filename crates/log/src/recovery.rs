//! Opening a log: find the newest snapshot, replay the events after it, cut records that were never durable,
//! and continue in a new segment.
//!
//! Recovery first reads and judges, a piece at a time ([`Opening`]), without modifying anything. Then it makes one new
//! segment, in one atomic step ([`Opening::adopt`]), which takes over at the end of the durable part of the log. Older
//! segments are never appended to.
//! Records after the last proven position may exist in the page cache only, so they are copied into the new
//! segment, at the same positions. A crash at any point leaves a directory that recovers to the same state.

mod error;
mod opening;
mod reading;
mod report;
mod snapshots;

use std::collections::BTreeMap;
use std::sync::Arc;

use kew_planted::{Bug, is_planted};

pub use self::error::OpenError;
pub(crate) use self::error::manifest_error;
pub(crate) use self::opening::Opening;
pub(crate) use self::reading::replay_log;
use self::report::warnings;
pub(crate) use self::snapshots::FoundSnapshots;
use self::snapshots::{open_pages, sizes_of};
use crate::format::{SegmentHeader, seal_again};
use crate::pages::PageStore;
use crate::proof::{Owner, Proof};
use crate::reader::records::RecordReader;
use crate::segment::{self, Blank, MakeError, Salts, Segment, Source};
use crate::storage::{self, Storage};
use crate::survey::{Survey, format_error};
use crate::walk::End;
use crate::{Epoch, LogId, LogOptions, LogPosition, ballast};

/// The result of opening the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovery {
    /// The epoch that begins.
    pub epoch: Epoch,
    /// Position of the snapshot that was used; `None` if the log was replayed from its beginning.
    pub snapshot: Option<LogPosition>,
    /// How many events were replayed after it.
    pub events_replayed: u64,
    /// Where the log ends.
    pub end: LogPosition,
    /// The last time that was recorded, in milliseconds: an owner's clock begins there.
    pub time_ms: u64,
    /// How many records were not proven to be durable, and were copied to make them durable.
    pub records_copied: u64,
    /// Records that were begun and never became durable, as far as they can be made out.
    pub tail_cut: Option<TailCut>,
    /// How many claims and records of former owners did not count, because a later one went on before them. 0 if the
    /// log was never cut.
    pub void: u64,
    /// Notes for the operator, although the log is whole.
    pub warnings: Vec<String>,
    /// Files with damage that this start did not need: of snapshots that were passed over, and of copies of pages. The
    /// owner notes each ([`SegmentLog::note_damaged_file`](crate::SegmentLog::note_damaged_file)) and writes snapshots soon.
    pub damaged_files: Vec<String>,
}

/// A torn tail: it was never acknowledged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TailCut {
    /// The segment's file.
    pub file: String,
    /// Where in the file the torn tail begins.
    pub offset: u64,
    /// Up to the end of the last record that can be made out.
    pub size_bytes: u64,
}

/// Everything that the log needs to continue.
pub(crate) struct Recovered {
    /// In order of position; the last one is appended to.
    pub(crate) segments: Vec<Arc<Segment>>,
    pub(crate) end: LogPosition,
    pub(crate) chain: u32,
    /// Segments that cover no position any more.
    pub(crate) superseded: Vec<Arc<Segment>>,
    /// Valid ones, with their sizes.
    pub(crate) snapshots: BTreeMap<LogPosition, u64>,
    pub(crate) snapshots_damaged: Vec<LogPosition>,
    pub(crate) bytes_since_snapshot: u64,
    pub(crate) ballast: FoundBallast,
    pub(crate) log: LogId,
    pub(crate) proof: Proof,
    pub(crate) pages: PageStore,
    pub(crate) recovery: Recovery,
}

/// Makes the segment that an epoch appends to.
fn adopt(
    storage: &dyn Storage,
    options: &LogOptions,
    (log, salts, epoch): (LogId, Salts, Epoch),
    survey: Survey,
    (mut found, mut end): (FoundSnapshots, End),
) -> Result<Recovered, OpenError> {
    let pages = open_pages(storage, options, (log, salts), &mut found)?;
    for name in &survey.temporaries {
        storage::remove(storage, name)?;
    }
    if is_planted(Bug::TailNotCopied) {
        end.tail.clear();
    }
    let number = survey.number_max() + 1;
    let first = end.tail.front().copied().unwrap_or(end.position);
    let tail_bytes = end.position.as_u64() - first.as_u64();
    let header = SegmentHeader {
        log,
        number,
        epoch,
        first: Some(first),
        capacity_bytes: options.segment_size_for(tail_bytes),
        salt: salts.of(epoch, number),
        durable: end.position,
    };
    let chain = match survey.is_new() {
        true => log.chain_start(),
        false => end.chain,
    };
    let records = copy_tail(&survey, &end, &header)?;
    let (new, proof, ballast) = make_segment(storage, options, header, &records, &survey)?;
    let new = new.beginning_at(first);

    let recovery = Recovery {
        epoch,
        snapshot: found.used,
        events_replayed: end.counts.events,
        end: end.position,
        time_ms: end.time_ms,
        records_copied: end.tail.len() as u64,
        tail_cut: end.cut.map(|cut| cut.report(&survey.chain)),
        void: end.void,
        warnings: warnings(&survey, &found, end.void),
        damaged_files: found.damaged_files(),
    };
    let mut segments = survey.chain;
    let mut superseded = survey.superseded;
    // Where they begin does not matter: they are only removed.
    let blanks = survey.blanks.into_iter();
    superseded.extend(blanks.map(|blank| Arc::new(blank.beginning_at(end.position))));
    while let Some(last) = segments.pop_if(|last| last.first() >= new.first()) {
        superseded.push(last);
    }
    segments.push(Arc::new(new));
    Ok(Recovered {
        segments,
        end: end.position,
        chain,
        superseded,
        snapshots: sizes_of(storage, &found.valid)?,
        snapshots_damaged: found.damaged.iter().map(|(at, _)| *at).collect(),
        bytes_since_snapshot: end.counts.size_bytes,
        ballast,
        log,
        proof,
        pages,
        recovery,
    })
}

/// The state of the ballast after recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FoundBallast {
    Missing,
    Kept {
        size_bytes: u64,
    },
    /// It has made room for the new segment.
    Taken,
}

/// Makes the segment. On a full disk it replaces the ballast.
fn make_segment(
    storage: &dyn Storage,
    options: &LogOptions,
    header: SegmentHeader,
    records: &[u8],
    survey: &Survey,
) -> Result<(Blank, Proof, FoundBallast), OpenError> {
    let make = || {
        let owner = Owner {
            log: header.log,
            epoch: header.epoch,
            began: header.durable,
        };
        let proof = survey.proof.adopt(storage, owner);
        let proof = proof.map_err(MakeError::Unfinished)?;
        let segment = segment::make(storage, header, Source::Fresh, records)?;
        Ok((segment, proof))
    };
    let mut found = match survey.ballast_bytes {
        // The options ask for none.
        Some(_) if options.ballast_size_bytes == 0 => {
            ballast::release(storage)?;
            FoundBallast::Missing
        }
        Some(0) | None => FoundBallast::Missing,
        Some(size_bytes) => FoundBallast::Kept { size_bytes },
    };
    let mut made = make();
    if let Err(MakeError::Unfinished(failure)) = &made
        && failure.is_no_space()
        && let FoundBallast::Kept { .. } = found
    {
        ballast::release(storage)?;
        found = FoundBallast::Taken;
        made = make();
    }
    match made {
        Ok((segment, proof)) => Ok((segment, proof, found)),
        Err(error) => {
            let source = error.into_failure();
            Err(if source.is_no_space() {
                OpenError::NoSpace {
                    needed_bytes: header.capacity_bytes,
                    source,
                }
            } else {
                OpenError::Io(source)
            })
        }
    }
}

/// The records of the tail as they are in the new segment. Their content stays, and so do their checksums of it.
fn copy_tail(survey: &Survey, end: &End, header: &SegmentHeader) -> Result<Vec<u8>, OpenError> {
    let mut records = Vec::new();
    let Some(segment) = survey.chain.get(end.tail_segment) else {
        return Ok(records);
    };
    let mut reader = RecordReader::new(segment);
    for position in &end.tail {
        let record = reader
            .read(*position)?
            .map_err(|error| format_error(&segment.name, segment.offset_of(*position), error))?;
        let mut head = record.head;
        seal_again(&mut head, header.seal(), record.header.durable);
        records.extend_from_slice(&head);
        records.extend_from_slice(record.payload);
        records.resize(records.len().next_multiple_of(8), 0);
    }
    Ok(records)
}

#[cfg(test)]
#[path = "recovery_tests.rs"]
mod tests;
