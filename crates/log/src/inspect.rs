//! Inspects a log without opening it: its files, and whether they are whole.
//!
//! Nothing is modified, so this also works beside a running server. The data that the server is writing at
//! that moment looks like a torn tail, and files may vanish; neither is reported as damage. Only a segment
//! that the server reuses at that very moment may seem damaged: inspect it again.

mod snapshots;

use std::cmp::Ordering;
use std::io;
use std::sync::Arc;

use crate::batch::{Entries, Entry};
use crate::format::{RECORD_HEADER_SIZE, RecordKind, body_crc};
use crate::places::Places;
use crate::proof;
use crate::reader::records::{Record, RecordReader};
use crate::recovery::{self, OpenError};
use crate::replay::Ignore;
use crate::segment::{Blank, Segment};
use crate::storage::{IoFailure, Storage};
use crate::survey::{Survey, format_error};
use crate::walk::Counts;
use crate::{Epoch, LogPosition, PageDamage, TailCut};

/// The files in a log's directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// All segments, in order of position. Segments that a newer one replaced come last.
    pub segments: Vec<SegmentReport>,
    /// All snapshots, oldest first.
    pub snapshots: Vec<SnapshotReport>,
    /// All files of pages, by name.
    pub pages: Vec<PageFileReport>,
    /// Position of the snapshot that a start would use.
    pub snapshot_used: Option<LogPosition>,
    /// How many events a start would replay after it.
    pub events_to_replay: u64,
    /// Where the log ends.
    pub end: LogPosition,
    /// Everything before this position is proven to have been durable.
    pub durable: LogPosition,
    /// Writes that were begun after the end and never became durable.
    pub tail_cut: Option<TailCut>,
    /// Unfinished files, and retired ones waiting to be used again.
    pub temporaries: Vec<String>,
    /// Files that are not the log's.
    pub foreign: Vec<String>,
    /// Files that repairs set aside and that are no longer read.
    pub set_aside: Vec<String>,
    /// Size of the space reserved for a full disk, if there is any.
    pub ballast_bytes: Option<u64>,
    /// All damage. A start is refused if it needs damaged data, unless its owner can do without what pages have lost.
    pub damage: Vec<Damage>,
}

/// One segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentReport {
    /// The file's name.
    pub file: String,
    /// The segment's number.
    pub number: u64,
    /// The epoch that made it.
    pub epoch: Epoch,
    /// The position of its first record; `None` if it has no record and was made before that was known.
    pub first: Option<LogPosition>,
    /// Size of the file.
    pub size_bytes: u64,
    /// Its role.
    pub state: SegmentState,
    /// The position after the last valid record; `None` like the first.
    pub end: Option<LogPosition>,
    /// How many batches it holds.
    pub records: u64,
    /// How many events they hold.
    pub events: u64,
    /// How many bodies they hold.
    pub bodies: u64,
}

impl SegmentReport {
    fn of_blank(blank: &Blank, state: SegmentState) -> Self {
        Self {
            file: blank.name.clone(),
            number: blank.header.number,
            epoch: blank.header.epoch,
            first: None,
            size_bytes: blank.header.capacity_bytes,
            state,
            end: None,
            records: 0,
            events: 0,
            bodies: 0,
        }
    }
}

/// The role of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentState {
    /// The log continues in a later segment.
    Sealed,
    /// The log ends here.
    Active,
    /// Empty, waiting for the active one to be full.
    Prepared,
    /// A newer segment covers all its positions.
    Superseded,
}

/// One snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotReport {
    /// The file's name.
    pub file: String,
    /// Position of the state in it.
    pub position: LogPosition,
    /// How many parts it has; 0 if it is damaged.
    pub parts: u32,
    /// How many pages it names; 0 if it is damaged.
    pub pages: u64,
    /// Size of the file.
    pub size_bytes: u64,
    /// Whether all of it is as it was written.
    pub is_whole: bool,
}

/// One file of pages. Its pages lie in another file, too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageFileReport {
    /// The file's name.
    pub file: String,
    /// Size of the file.
    pub size_bytes: u64,
    /// The bytes of the pages in it that the snapshots name.
    pub named_bytes: u64,
}

impl From<PageDamage> for Damage {
    fn from(damage: PageDamage) -> Self {
        let PageDamage { file, offset, what } = damage;
        Self { file, offset, what }
    }
}

/// Data that was durable and is not as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The file's name.
    pub file: String,
    /// The offset in the file.
    pub offset: u64,
    /// The damage.
    pub what: String,
}

/// Whether to check the checksums of bodies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bodies {
    Skip,
    Check,
}

/// Lists segments and snapshots, with the damage found on the way. Reads everything but the checksums of
/// bodies.
///
/// Fails only if the storage does.
pub fn inspect(storage: &dyn Storage) -> Result<Report, IoFailure> {
    let (report, _) = examine(storage, Bodies::Skip)?;
    Ok(report)
}

/// Reads everything, including every body's checksum, and fails at the first damage.
pub fn verify(storage: &dyn Storage) -> Result<Report, OpenError> {
    match examine(storage, Bodies::Check)? {
        (_, Some(error)) => Err(error),
        (report, None) => Ok(report),
    }
}

fn examine(
    storage: &dyn Storage,
    bodies: Bodies,
) -> Result<(Report, Option<OpenError>), IoFailure> {
    let mut survey = Survey::of(storage)?;
    let mut findings = Findings::default();
    let is_linked = survey.damage.is_empty();
    for error in survey.damage.drain(..) {
        findings.add(error)?;
    }
    let mut report = Report {
        temporaries: survey.temporaries.clone(),
        foreign: survey.foreign.clone(),
        set_aside: survey.set_aside.clone(),
        ballast_bytes: survey.ballast_bytes,
        ..Report::default()
    };
    (report.snapshots, report.pages) = snapshots::examine(storage, &survey, &mut findings)?;
    let mut active = survey.chain.len().saturating_sub(1);
    // If a header is damaged, the chain is unknown: each segment is inspected by itself.
    if is_linked {
        match recovery::replay_log(storage, &survey, &mut Ignore) {
            Ok((found, end)) => {
                active = end.tail_segment;
                report.snapshot_used = found.used;
                report.events_to_replay = end.counts.events;
                report.end = end.position;
                report.durable = end.durable;
                report.tail_cut = end.cut.map(|cut| cut.report(&survey.chain));
            }
            Err(error) => findings.add(error)?,
        }
    }
    if let Some((offset, error)) = survey.proof.damage.take() {
        findings.add(format_error(proof::NAME, offset, error))?;
    }
    for (index, segment) in survey.chain.iter().enumerate() {
        let state = match index.cmp(&active) {
            Ordering::Less => SegmentState::Sealed,
            Ordering::Equal => SegmentState::Active,
            Ordering::Greater => SegmentState::Prepared,
        };
        let next = survey.chain.get(index + 1).map(|next| &**next);
        let mut limit = segment.end_before(next);
        if report.end > segment.first() {
            limit = limit.min(report.end);
        }
        let durable = match state {
            SegmentState::Sealed => durable_by(segment, next),
            _ => LogPosition::default(),
        };
        let scan = scan(segment, limit, durable, bodies, &mut findings)?;
        report.segments.push(scan.report(segment, state));
    }
    let last = survey.chain.last().map_or(0, |last| last.header.number);
    let state_of = |blank: &Blank| match blank.header.number > last {
        true => SegmentState::Prepared,
        false => SegmentState::Superseded,
    };
    let blanks = survey.blanks.iter();
    let mut blanks: Vec<_> = blanks
        .map(|it| SegmentReport::of_blank(it, state_of(it)))
        .collect();
    blanks.sort_by_key(|blank| (blank.state == SegmentState::Superseded, blank.number));
    report.segments.append(&mut blanks);
    for segment in &survey.superseded {
        let scan = Scan::nothing_in(segment);
        let state = SegmentState::Superseded;
        report.segments.push(scan.report(segment, state));
    }
    let first = findings.first.take();
    report.damage = findings.into_damage();
    Ok((report, first))
}

/// Damage in the order in which it was found, each place once, and not all of a file with much of it.
#[derive(Default)]
struct Findings {
    places: Places,
    damage: Vec<Damage>,
    first: Option<OpenError>,
}

impl Findings {
    fn add(&mut self, error: OpenError) -> Result<(), IoFailure> {
        let (file, offset, what) = match &error {
            // A running server has removed it since the directory was listed.
            OpenError::Io(failure) if failure.source.kind() == io::ErrorKind::NotFound => {
                return Ok(());
            }
            OpenError::Io(failure) => return Err(failure.clone()),
            OpenError::Corrupt { file, offset, what } => (file.clone(), *offset, what.clone()),
            OpenError::NewerFormat { file, .. } => (file.clone(), 0, error.to_string()),
            OpenError::NoSpace { .. } | OpenError::Replay { .. } | OpenError::Options(_) => {
                unreachable!("nothing is made or replayed, and no options are given")
            }
        };
        if self.places.add(&file, offset) {
            self.damage.push(Damage { file, offset, what });
            self.first.get_or_insert(error);
        }
        Ok(())
    }

    /// All damage, with how much of it is not listed.
    fn into_damage(mut self) -> Vec<Damage> {
        let more = self.places.more();
        self.damage.extend(more.map(|(file, more)| Damage {
            file,
            offset: more.offset,
            what: more.what(),
        }));
        self.damage
    }
}

/// The content of one segment, inspected by itself.
struct Scan {
    end: LogPosition,
    durable: LogPosition,
    counts: Counts,
}

impl Scan {
    fn nothing_in(segment: &Segment) -> Self {
        Self {
            end: segment.first(),
            durable: segment.header.durable,
            counts: Counts::default(),
        }
    }

    fn report(&self, segment: &Arc<Segment>, state: SegmentState) -> SegmentReport {
        SegmentReport {
            file: segment.name.clone(),
            number: segment.header.number,
            epoch: segment.header.epoch,
            first: Some(segment.first()),
            size_bytes: segment.header.capacity_bytes,
            state,
            end: Some(self.end),
            records: self.counts.records,
            events: self.counts.events,
            bodies: self.counts.bodies,
        }
    }

    fn pass(
        &mut self,
        segment: &Segment,
        record: &Record<'_>,
        bodies: Bodies,
        findings: &mut Findings,
    ) -> Result<(), IoFailure> {
        self.end = record.end();
        self.durable = self.durable.max(record.header.durable);
        match record.header.kind {
            RecordKind::Roll => {}
            RecordKind::Batch => {
                self.counts.records += 1;
                for entry in Entries::new(record.payload) {
                    let Ok(entry) = entry else { break };
                    self.pass_entry(segment, record.position, entry, bodies, findings)?;
                }
            }
        }
        Ok(())
    }

    fn pass_entry(
        &mut self,
        segment: &Segment,
        record: LogPosition,
        entry: Entry<'_>,
        bodies: Bodies,
        findings: &mut Findings,
    ) -> Result<(), IoFailure> {
        let Entry::Body { offset, crc, body } = entry else {
            self.counts.events += 1;
            return Ok(());
        };
        self.counts.bodies += 1;
        if bodies == Bodies::Check && crc != body_crc(record, offset, body) {
            let at = segment.offset_of(record) + RECORD_HEADER_SIZE as u64 + u64::from(offset);
            let what = "a body does not match its checksum";
            findings.add(OpenError::corrupt(&segment.name, at, what))?;
        }
        Ok(())
    }
}

/// Reads all records of one segment up to a position, and continues after damage. This also covers segments
/// that no start reads, because they lie before the snapshot and hold bodies only. `durable` is known from elsewhere.
fn scan(
    segment: &Segment,
    limit: LogPosition,
    durable: LogPosition,
    bodies: Bodies,
    findings: &mut Findings,
) -> Result<Scan, IoFailure> {
    let mut scan = Scan::nothing_in(segment);
    let mut holes = Vec::new();
    let mut reader = RecordReader::new(segment);
    let mut at = segment.first();
    while at < limit {
        match reader.read(at)? {
            Ok(record) => {
                scan.pass(segment, &record, bodies, findings)?;
                at = record.end();
                if record.header.kind == RecordKind::Roll {
                    break;
                }
            }
            Err(error) => {
                let found = reader.find_from(at)?;
                holes.push((at, error));
                match found.filter(|found| *found < limit) {
                    Some(found) => at = found,
                    None => break,
                }
            }
        }
    }
    // A repair leaves nothing that proves anything in a segment that it has rewritten, with what it could not read.
    let is_proven = scan.durable > LogPosition::default();
    for (position, error) in holes {
        // After the last proven position, a hole is part of a torn tail.
        if position < scan.durable || (is_proven && position < durable) {
            let offset = segment.offset_of(position);
            findings.add(format_error(&segment.name, offset, error))?;
        }
    }
    Ok(scan)
}

/// Where the next segment goes on, everything before was durable. A log that was rebuilt begins far behind.
fn durable_by(segment: &Segment, next: Option<&Segment>) -> LogPosition {
    let end = segment.end_before(next);
    let goes_on = next.is_some_and(|next| next.first() == end);
    if goes_on { end } else { LogPosition::default() }
}

/// The damage in one segment, which the next one follows.
pub(crate) fn damage_in(
    segment: &Segment,
    next: Option<&Segment>,
) -> Result<Vec<Damage>, IoFailure> {
    let durable = durable_by(segment, next);
    damage_until(segment, segment.limit(), durable)
}

/// The damage in one segment before a position up to which a backup has its records.
pub(crate) fn damage_before(segment: &Segment, end: LogPosition) -> Result<Vec<Damage>, IoFailure> {
    let limit = segment.limit();
    // There is always room for a roll. Only the end of a log before a repair is not known, and then it is the file's.
    let durable = match end < limit {
        true => end,
        false => LogPosition::default(),
    };
    damage_until(segment, end.min(limit), durable)
}

fn damage_until(
    segment: &Segment,
    limit: LogPosition,
    durable: LogPosition,
) -> Result<Vec<Damage>, IoFailure> {
    let mut findings = Findings::default();
    scan(segment, limit, durable, Bodies::Check, &mut findings)?;
    Ok(findings.into_damage())
}
