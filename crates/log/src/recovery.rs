//! Opening a log: find the newest snapshot, replay the events after it, cut records that were never durable,
//! and continue in a new segment.
//!
//! Recovery first reads and judges, without modifying anything. Then it makes one new segment, in one atomic
//! step, which takes over at the end of the durable part of the log. Older segments are never appended to.
//! Records after the last proven position may exist in the page cache only, so they are copied into the new
//! segment, at the same positions. A crash at any point leaves a directory that recovers to the same state.

use std::collections::BTreeMap;
use std::sync::Arc;

use kew_planted::{Bug, is_planted};
use thiserror::Error;

use crate::format::{FIRST_POSITION, FORMAT_VERSION, SegmentHeader, names, seal_again};
use crate::pages::{self, ManifestError, PageStore, ReadManifest};
use crate::proof::{self, Owner, Proof};
use crate::reader::records::RecordReader;
use crate::replay::{BoxError, Replay};
use crate::segment::{self, Blank, MakeError, Salts, Segment, Source};
use crate::snapshot;
use crate::storage::{self, IoFailure, Storage};
use crate::survey::{Survey, format_error};
use crate::walk::{self, End, Start};
use crate::{Epoch, LogId, LogOptions, LogPosition, PageDamage, ballast};

/// Why a log cannot be opened. Nothing in its directory was modified, unless the storage failed.
#[derive(Debug, Error)]
pub enum OpenError {
    /// The storage failed.
    #[error(transparent)]
    Io(#[from] IoFailure),
    /// Data that was durable is damaged or missing.
    #[error("{file} is damaged at byte {offset}: {what}")]
    Corrupt {
        /// The file's name in the log's directory.
        file: String,
        /// The offset in the file.
        offset: u64,
        /// The damage.
        what: String,
    },
    /// A newer Kew has written here.
    #[error(
        "{file} has format version {found}, and this version of Kew reads versions up to {supported}"
    )]
    NewerFormat {
        /// The file's name in the log's directory.
        file: String,
        /// The version of its format.
        found: u32,
        /// The newest version that can be read.
        supported: u32,
    },
    /// The owner of the events rejected the contents of the log.
    #[error("cannot replay what lies at log position {position}: {source}")]
    Replay {
        /// The position of the record or the snapshot.
        position: LogPosition,
        /// The owner's error.
        source: BoxError,
    },
    /// The disk is full, and no ballast could make room.
    #[error("the disk is full: a start needs {needed_bytes} free bytes")]
    NoSpace {
        /// The size of the new segment.
        needed_bytes: u64,
        /// The storage's error.
        source: IoFailure,
    },
    /// The options contradict each other.
    #[error("{0}")]
    Options(String),
}

impl OpenError {
    pub(crate) fn corrupt(file: &str, offset: u64, what: impl Into<String>) -> Self {
        Self::Corrupt {
            file: file.to_owned(),
            offset,
            what: what.into(),
        }
    }
}

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

pub(crate) fn recover(
    storage: &dyn Storage,
    options: &LogOptions,
    salts: Salts,
    first: LogPosition,
    replay: &mut dyn Replay,
) -> Result<Recovered, OpenError> {
    // The previous process may have been killed between a rename and the sync after it. The rest of recovery
    // relies on every name it sees.
    storage::sync_dir(storage)?;
    let mut survey = Survey::of(storage)?;
    if !survey.damage.is_empty() {
        return Err(survey.damage.swap_remove(0));
    }
    // A log that is new gets a number of its own.
    let of_snapshot = match survey.snapshots.last() {
        Some(newest) => snapshot::header_of(storage, *newest)?.map(|header| header.log),
        None => None,
    };
    let log = survey.log().or(of_snapshot);
    let log = log.unwrap_or_else(|| salts.new_log());
    let (found, mut end) = replay_log(storage, &survey, replay)?;
    if survey.is_new() {
        (end.position, end.durable) = (first, first);
    }
    adopt(storage, options, (log, salts), survey, found, end)
}

/// The state of the snapshots.
pub(crate) struct FoundSnapshots {
    pub(crate) used: Option<LogPosition>,
    /// The one that is used, as it was read.
    pub(crate) read: Option<ReadManifest>,
    /// Damaged copies of its pages. The others are whole.
    pub(crate) copies: Vec<PageDamage>,
    pub(crate) valid: Vec<LogPosition>,
    pub(crate) damaged: Vec<(LogPosition, OpenError)>,
}

/// Replays everything, from the newest snapshot that is whole. Reads only.
pub(crate) fn replay_log(
    storage: &dyn Storage,
    survey: &Survey,
    replay: &mut dyn Replay,
) -> Result<(FoundSnapshots, End), OpenError> {
    let (found, start) = load_snapshot(storage, survey, replay)?;
    let end = match survey.is_new() {
        true => Ok(End::of_new_log(start)),
        false => walk::walk(survey, start, replay),
    };
    // What was passed on lies before the place where a walk has failed.
    replay.end().map_err(|late| OpenError::Replay {
        position: late.record.unwrap_or(start.position),
        source: late.source,
    })?;
    Ok((found, end?))
}

fn load_snapshot(
    storage: &dyn Storage,
    survey: &Survey,
    replay: &mut dyn Replay,
) -> Result<(FoundSnapshots, Start), OpenError> {
    let mut start = Start {
        position: FIRST_POSITION,
        chain: survey.log().unwrap_or_default().chain_start(),
        time_ms: 0,
        epoch: Epoch::default(),
        begins_anew: false,
    };
    let mut found = FoundSnapshots {
        used: None,
        read: None,
        copies: Vec::new(),
        valid: survey.snapshots.clone(),
        damaged: Vec::new(),
    };
    while let Some(position) = found.valid.last().copied() {
        replay.begin();
        match pages::replay_manifest(storage, position, survey.log(), replay) {
            Ok(read) if survey.claims.counted(read.header.epoch, position) < position => {
                let file = names::snapshot(position.as_u64());
                let what = "a later owner of the log went on before it";
                found.valid.pop();
                let error = OpenError::corrupt(&file, 0, what);
                found.damaged.push((position, error));
            }
            Ok(read) => {
                let header = read.header;
                found.copies.clone_from(&read.damage);
                found.used = Some(position);
                found.read = Some(read);
                start.position = position;
                start.chain = header.chain;
                start.epoch = header.epoch;
                start.time_ms = header.time_ms;
                start.begins_anew = header.begins_anew;
                return Ok((found, start));
            }
            Err(error @ ManifestError::Damaged(_)) => {
                found.valid.pop();
                found.damaged.push((position, manifest_error(error)));
            }
            Err(error) => return Err(manifest_error(error)),
        }
    }
    replay.begin();
    // With a single snapshot nothing was retired yet, so the log exists from its beginning.
    let is_complete = survey
        .chain
        .first()
        .is_some_and(|s| s.first() == FIRST_POSITION);
    match found.damaged.len() {
        0 => Ok((found, start)),
        1 if is_complete => Ok((found, start)),
        _ => Err(found.damaged.remove(0).1),
    }
}

pub(crate) fn manifest_error(error: ManifestError) -> OpenError {
    match error {
        ManifestError::Io(failure) => OpenError::Io(failure),
        ManifestError::Damaged(damage) => {
            OpenError::corrupt(&damage.file, damage.offset, damage.what)
        }
        ManifestError::OtherLog(file) => {
            let what = "the snapshot is of another log than the newest segment";
            OpenError::corrupt(&file, 0, what)
        }
        ManifestError::Newer { file, found } => OpenError::NewerFormat {
            file,
            found,
            supported: FORMAT_VERSION,
        },
        ManifestError::Restore(position, source) => OpenError::Replay { position, source },
    }
}

/// Whether the same is wrong each time that it is read.
fn is_lasting(error: &ManifestError) -> bool {
    match error {
        ManifestError::Damaged(_) => true,
        ManifestError::Io(failure) => !failure.is_no_descriptor(),
        ManifestError::OtherLog(_) | ManifestError::Newer { .. } | ManifestError::Restore(..) => {
            false
        }
    }
}

/// What the kept snapshots name. One whose table cannot be read does not count.
fn open_pages(
    storage: &dyn Storage,
    options: &LogOptions,
    (log, salts): (LogId, Salts),
    found: &mut FoundSnapshots,
) -> Result<PageStore, OpenError> {
    let mut kept = Vec::new();
    for position in found.valid.clone() {
        let read = found.read.take_if(|_| found.used == Some(position));
        match read.map_or_else(|| pages::read_table(storage, position), Ok) {
            Ok(read) => kept.push((position, read)),
            // The one that is used is whole, so a bad sector in this one is damage like any other.
            Err(error) if is_lasting(&error) => {
                found.valid.retain(|valid| *valid != position);
                found.damaged.push((position, manifest_error(error)));
            }
            Err(error) => return Err(manifest_error(error)),
        }
    }
    let mut store = PageStore::open(storage, log, options.pages, salts.entropy(), kept)?;
    for (position, _) in &found.damaged {
        // Of one with a lost page, the others stay as long as its file does.
        if let Ok(read) = pages::read_table(storage, *position) {
            store.keep_pages_of(*position, &read);
        }
    }
    Ok(store)
}

/// Makes the segment that this run appends to.
fn adopt(
    storage: &dyn Storage,
    options: &LogOptions,
    (log, salts): (LogId, Salts),
    survey: Survey,
    found: FoundSnapshots,
    end: End,
) -> Result<Recovered, OpenError> {
    let (mut found, mut end) = (found, end);
    let pages = open_pages(storage, options, (log, salts), &mut found)?;
    for name in &survey.temporaries {
        storage::remove(storage, name)?;
    }
    if is_planted(Bug::TailNotCopied) {
        end.tail.clear();
    }
    let epoch = survey.epoch_max().next();
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

fn sizes_of(
    storage: &dyn Storage,
    snapshots: &[LogPosition],
) -> Result<BTreeMap<LogPosition, u64>, OpenError> {
    let size_of = |position: &LogPosition| {
        let name = names::snapshot(position.as_u64());
        let file = storage::open(storage, &name)?;
        Ok((*position, storage::len(&*file, &name)?))
    };
    snapshots.iter().map(size_of).collect()
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

fn warnings(survey: &Survey, found: &FoundSnapshots, void: u64) -> Vec<String> {
    let void = (void > 0).then(|| {
        format!(
            "{void} records, marks or snapshots did not count, because a later start went on before them: \
             the files are of two histories"
        )
    });
    let damaged = found
        .damaged
        .iter()
        .map(|(_, error)| format!("a snapshot was passed over: {error}"));
    let proof = survey
        .proof
        .damage
        .as_ref()
        .map(|(offset, error)| format!("{} is damaged at byte {offset}: {error}", proof::NAME));
    let foreign = survey
        .foreign
        .iter()
        .map(|name| format!("{name} is not a file of the log and was ignored"));
    let unread = survey.unread.iter();
    let unread = unread.map(|failure| format!("a snapshot cannot be read: {failure}"));
    let copies = copies(&found.copies);
    let snapshots = damaged.chain(unread).chain(void).chain(copies);
    snapshots.chain(proof).chain(foreign).collect()
}

/// One line for each file, however much of it is damaged.
fn copies(damage: &[PageDamage]) -> impl Iterator<Item = String> {
    let mut by_file: BTreeMap<&str, (&PageDamage, usize)> = BTreeMap::new();
    for place in damage {
        let (_, count) = by_file.entry(&place.file).or_insert((place, 0));
        *count += 1;
    }
    by_file.into_values().map(|(first, count)| {
        let PageDamage { file, offset, what } = first;
        let others = match count {
            1 => String::new(),
            pages::NOTED_MAX.. => " (and at many other places)".to_owned(),
            _ => format!(" (and at {} other places)", count - 1),
        };
        format!(
            "what is damaged was read from its copy: {file} cannot be used at byte {offset}: {what}{others}"
        )
    })
}

#[cfg(test)]
#[path = "recovery_tests.rs"]
mod tests;
