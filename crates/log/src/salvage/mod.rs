//! Reads a damaged log as far as possible, and builds a new one from the rest.
//!
//! A [`Salvage`] modifies nothing. It restores damaged segment headers, reads the whole parts of a damaged
//! snapshot, and continues after records that are not valid. Each record carries its own seal, so a record
//! after damage is as certain as one before it. The bytes in between are a [`Gap`]. A record that is not
//! valid is never used, and neither is a body that does not match its checksum.
//!
//! [`Salvage::rebuild`] then makes a log that begins at a position that was never used, with a snapshot of
//! the state that its owner has built from all this. Bodies stay where they are. A crash at any point leaves
//! either the damaged log or the new one.

mod chain;
mod header;
mod parts;
mod rebuild;

use std::cell::Cell;
use std::sync::Arc;

use bytes::Bytes;

use crate::claims::Claims;
use crate::format::FIRST_POSITION;
use crate::format::names::{self, Name};
use crate::inspect::Damage;
use crate::pages::{self, ManifestError};
use crate::proof::FoundProof;
use crate::reader::body::Body;
use crate::recovery::{self, OpenError};
use crate::replay::{Ignore, Replay};
use crate::segment::{Blank, Segment};
use crate::snapshot::{self, SnapshotHeader};
use crate::storage::{self, Storage};
use crate::survey::{self, Opened, Survey};
use crate::{BodyLocation, LogId, LogPosition};

pub use rebuild::Rebuilt;

/// A stretch between two readable places that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The file's name.
    pub file: String,
    /// The offset in the file where it begins.
    pub offset: u64,
    /// The log positions that cannot be read. `None` for a part of a snapshot.
    pub span: Option<(LogPosition, LogPosition)>,
    /// The damage.
    pub what: String,
}

/// Rebuilds a state from a history with gaps.
pub trait Rescue: Replay {
    /// The next input comes after a gap.
    fn gap(&mut self, gap: &Gap);
}

/// A place where a reading can begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Base {
    /// Everything before it is in the snapshot.
    pub position: LogPosition,
    /// Whether nothing before it is missing.
    pub is_whole: bool,
    source: Source,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Source {
    Snapshot(SnapshotHeader),
    /// Some parts of it can be read.
    DamagedSnapshot,
    Beginning,
}

/// The contents of a log's directory, damaged or not.
pub struct Salvage {
    storage: Arc<dyn Storage>,
    /// All segments whose place in the log is known, in order of position.
    chain: Vec<Arc<Segment>>,
    superseded: Vec<Arc<Segment>>,
    /// Segments without records.
    blanks: Vec<Blank>,
    /// What was durable, as headers of segments, names of snapshots and the proof say.
    claims: Claims,
    /// Which log it is, as most files say.
    log: Option<LogId>,
    /// The last time that was read, in milliseconds.
    time_ms: Cell<u64>,
    /// Segments whose restored headers differ from their files.
    restored: Vec<String>,
    /// The damaged segments whose files end too early.
    short: Vec<String>,
    /// Names of segments that cannot be read at all.
    unreadable: Vec<String>,
    snapshots: Vec<LogPosition>,
    /// Names of page files.
    pages: Vec<String>,
    set_aside: Vec<String>,
    bases: Vec<Base>,
    damage: Vec<Damage>,
    refusal: Option<OpenError>,
}

impl Salvage {
    /// Inspects everything, for an owner that reads all pages at a start.
    pub fn look(storage: Arc<dyn Storage>) -> Result<Self, OpenError> {
        Self::look_for(storage, &mut Ignore)
    }

    /// Inspects everything. A start would give all to `start`, which says what it can do without.
    ///
    /// Fails if the storage does, and if a newer Kew has written here: data that this version cannot read is
    /// not damage.
    pub fn look_for(storage: Arc<dyn Storage>, start: &mut dyn Replay) -> Result<Self, OpenError> {
        let refusal = refusal(&*storage, start)?;
        let mut salvage = Self {
            storage,
            chain: Vec::new(),
            superseded: Vec::new(),
            blanks: Vec::new(),
            claims: Claims::default(),
            log: None,
            time_ms: Cell::new(0),
            restored: Vec::new(),
            short: Vec::new(),
            unreadable: Vec::new(),
            snapshots: Vec::new(),
            pages: Vec::new(),
            set_aside: Vec::new(),
            bases: Vec::new(),
            damage: Vec::new(),
            refusal,
        };
        salvage.find_segments()?;
        salvage.find_bases()?;
        Ok(salvage)
    }

    /// Why a start is refused, if it is.
    pub fn refusal(&self) -> Option<&OpenError> {
        self.refusal.as_ref()
    }

    /// Damage to headers and snapshots. Damage to records shows as gaps of a reading.
    pub fn damage(&self) -> &[Damage] {
        &self.damage
    }

    /// The places where readings can begin, the most complete one first. Other readings may have data that
    /// it has lost.
    pub fn bases(&self) -> &[Base] {
        &self.bases
    }

    /// Passes on everything from a base to the log's end, with the gaps.
    pub fn read(&self, base: &Base, rescue: &mut dyn Rescue) -> Result<Vec<Gap>, OpenError> {
        rescue.begin();
        let mut gaps = Vec::new();
        let crc = match &base.source {
            Source::Snapshot(header) => {
                pages::replay_manifest(&*self.storage, base.position, rescue)
                    .map_err(recovery::manifest_error)?;
                self.note_time(header.time_ms);
                Some(header.chain)
            }
            Source::DamagedSnapshot => {
                gaps = parts::read(&*self.storage, base.position, self.log, rescue)?;
                None
            }
            Source::Beginning => self.log.filter(|_| base.is_whole).map(LogId::chain_start),
        };
        chain::read(self, base, crc, rescue, &mut gaps)?;
        Ok(gaps)
    }

    /// The bytes of a body, or why there are none.
    pub fn body(&self, location: BodyLocation) -> Result<Bytes, String> {
        let segment = self.segment_at(location.record).ok_or_else(|| {
            format!(
                "the segment that holds log position {} is missing",
                location.record
            )
        })?;
        let body = Body::in_segment(Arc::clone(segment), location);
        let body = body.ok_or_else(|| format!("it reaches beyond the end of {}", segment.name))?;
        body.read().map_err(|error| error.to_string())
    }

    fn note_time(&self, time_ms: u64) {
        self.time_ms.set(self.time_ms.get().max(time_ms));
    }

    fn segment_at(&self, record: LogPosition) -> Option<&Arc<Segment>> {
        let after = self
            .chain
            .partition_point(|segment| segment.first() <= record);
        let segment = self.chain.get(after.checked_sub(1)?)?;
        (record < segment.limit()).then_some(segment)
    }

    fn find_segments(&mut self) -> Result<(), OpenError> {
        let mut segments = Vec::new();
        let mut damaged = Vec::new();
        let mut proof = FoundProof::default();
        for name in storage::list(&*self.storage)? {
            match names::parse(&name) {
                Name::Segment(number) => {
                    match survey::open_segment(&*self.storage, name.clone(), number) {
                        Ok(Opened::Segment(segment)) => segments.push(segment),
                        Ok(Opened::Blank(blank)) => self.blanks.push(blank),
                        Err(error @ OpenError::Corrupt { .. }) => {
                            self.damage.extend(to_damage(&error));
                            damaged.push((name, number));
                        }
                        Err(error) => return Err(error),
                    }
                }
                Name::Snapshot(position) => self.snapshots.push(LogPosition::new(position)),
                Name::Pages(_) => self.pages.push(name),
                Name::SetAside => self.set_aside.push(name),
                Name::Proof => {
                    proof = FoundProof::read(&*self.storage)?;
                }
                Name::Temporary | Name::Ballast | Name::Foreign => {}
            }
        }
        let known = self.logs_named(&segments, &proof);
        self.log = known.first().copied();
        self.set_others_aside(&mut segments);
        let mut proof = proof.of_log(self.log);
        let damage =
            (proof.damage.take()).map(|(at, it)| survey::format_error(crate::proof::NAME, at, it));
        self.damage.extend(damage.as_ref().and_then(to_damage));
        let headers = segments.iter().map(|segment| &segment.header);
        let headers = headers.chain(self.blanks.iter().map(|blank| &blank.header));
        let epochs = survey::epochs_of(&*self.storage, &self.snapshots, self.log, &mut Vec::new());
        self.claims = Claims::of(headers, epochs, &proof);
        for (name, number) in damaged {
            match header::restore(&*self.storage, &name, number, &known, &segments)? {
                Some(segment) => {
                    let size_bytes = storage::len(&*segment.file, &name)?;
                    if size_bytes < segment.header.capacity_bytes {
                        self.short.push(name.clone());
                    }
                    self.restored.push(name);
                    self.log.get_or_insert(segment.header.log);
                    segments.push(Arc::new(segment));
                }
                None => self.unreadable.push(name),
            }
        }
        let lost: Vec<String> = (self.blanks.iter())
            .filter(|blank| survey::has_lost_records(blank, &segments))
            .map(|blank| blank.name.clone())
            .collect();
        self.blanks.retain(|blank| !lost.contains(&blank.name));
        self.unreadable.extend(lost);
        self.unreadable.sort_unstable();
        let mut contradictions = Vec::new();
        (self.chain, self.superseded) = survey::link(segments, &mut contradictions);
        self.damage
            .extend(contradictions.iter().filter_map(to_damage));
        Ok(())
    }

    /// The logs that intact headers name, the one that most name first, and of equals the one of the newest file.
    fn logs_named(&self, segments: &[Arc<Segment>], proof: &FoundProof) -> Vec<LogId> {
        let headers = segments.iter().map(|segment| &segment.header);
        let headers = headers.chain(self.blanks.iter().map(|blank| &blank.header));
        let mut headers: Vec<_> = headers.collect();
        headers.sort_by_key(|header| std::cmp::Reverse(header.number));
        let mut named: Vec<_> = headers.into_iter().map(|header| header.log).collect();
        for position in self.snapshots.iter().rev() {
            let header = snapshot::header_of(&*self.storage, *position)
                .ok()
                .flatten();
            named.extend(header.map(|it| it.log));
        }
        named.extend(proof.log);
        let mut logs: Vec<LogId> = Vec::new();
        for log in &named {
            if !logs.contains(log) {
                logs.push(*log);
            }
        }
        logs.sort_by_key(|log| std::cmp::Reverse(named.iter().filter(|it| *it == log).count()));
        logs
    }

    /// Takes segments of another log out of those that are read.
    fn set_others_aside(&mut self, segments: &mut Vec<Arc<Segment>>) {
        let log = self.log;
        let others = segments.extract_if(.., |it| Some(it.header.log) != log);
        let others = others.map(|it| it.name.clone());
        let blanks = (self.blanks).extract_if(.., |it| Some(it.header.log) != log);
        let others: Vec<_> = others.chain(blanks.map(|it| it.name)).collect();
        self.damage.extend(others.iter().map(|name| Damage {
            file: name.clone(),
            offset: 0,
            what: "the segment is of another log than most files".to_owned(),
        }));
        self.unreadable.extend(others);
    }

    fn find_bases(&mut self) -> Result<(), OpenError> {
        for position in self.snapshots.clone().into_iter().rev() {
            let header = snapshot::header_of(&*self.storage, position).ok().flatten();
            if header.is_some_and(|it| self.claims.counted(it.epoch, position) < position) {
                // A later owner went on before it.
                continue;
            }
            let read = || pages::replay_manifest(&*self.storage, position, &mut Ignore);
            let source = match again(read, ManifestError::is_lasting) {
                Ok(read) => {
                    let copies = read.damage.into_iter();
                    self.damage.extend(copies.map(Damage::from));
                    Source::Snapshot(read.header)
                }
                Err(ManifestError::Damaged(damage)) => {
                    self.damage.push(damage.into());
                    Source::DamagedSnapshot
                }
                // Pages of it or parts of its file lie in bad sectors.
                Err(ManifestError::Io(failure)) if failure.is_bad_sector() => {
                    self.damage.push(Damage {
                        file: failure.file.clone(),
                        offset: failure.offset.unwrap_or_default(),
                        what: failure.to_string(),
                    });
                    Source::DamagedSnapshot
                }
                Err(error) => return Err(recovery::manifest_error(error)),
            };
            let is_whole = matches!(source, Source::Snapshot(_));
            let base = Base {
                position,
                is_whole,
                source,
            };
            self.bases.insert(0, base);
            if is_whole {
                return Ok(());
            }
        }
        let first = self.chain.first();
        let is_whole = first.is_some_and(|segment| segment.first() == FIRST_POSITION);
        // Without any other base, the beginning of the log.
        if is_whole || self.bases.is_empty() {
            let base = Base {
                position: FIRST_POSITION,
                is_whole,
                source: Source::Beginning,
            };
            self.bases.insert(0, base);
        }
        Ok(())
    }
}

/// Why an ordinary start would be refused.
fn refusal(storage: &dyn Storage, start: &mut dyn Replay) -> Result<Option<OpenError>, OpenError> {
    let start = || {
        let mut survey = Survey::of(storage)?;
        match survey.damage.is_empty() {
            true => recovery::replay_log(storage, &survey, start).map(|_| ()),
            false => Err(survey.damage.swap_remove(0)),
        }
    };
    // What else there is shows whether a repair can do without a bad sector.
    match again(start, OpenError::is_damage) {
        Ok(()) => Ok(None),
        Err(error) if error.is_damage() => Ok(Some(error)),
        Err(error) => Err(error),
    }
}

/// Reads, and once more if that shows damage: a disk may fail to read what it can read the next time.
fn again<T, E>(
    mut read: impl FnMut() -> Result<T, E>,
    is_damage: impl Fn(&E) -> bool,
) -> Result<T, E> {
    match read() {
        Err(error) if is_damage(&error) => read(),
        result => result,
    }
}

fn to_damage(error: &OpenError) -> Option<Damage> {
    match error {
        OpenError::Corrupt { file, offset, what } => Some(Damage {
            file: file.clone(),
            offset: *offset,
            what: what.clone(),
        }),
        _ => None,
    }
}
