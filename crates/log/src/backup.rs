//! The parts of a log that a backup consists of, and checks of copies of them. Copies nothing itself.
//!
//! A backup is what a start needs: a snapshot, the segments after it, and those with bodies that are still
//! needed, up to a position. Nothing of it changes any more: a sealed segment is immutable, and so is every
//! record of the active one before a durable position.

use std::collections::BTreeMap;
use std::io;

use serde::{Deserialize, Serialize};

use crate::LogPosition;
use crate::format::names::{self, Name};
use crate::format::{ROLL_RECORD_SIZE, SEGMENT_HEADER_SIZE, read_u32};
use crate::inspect::{Damage, damage_before};
use crate::pages::{self, InPair, PageError, PageFileDamage, ReadManifest};
use crate::recovery::{self, OpenError};
use crate::replay::{Ignore, Replay};
use crate::segment::Segment;
use crate::storage::{self, IoFailure, Storage};
use crate::survey::{self, Opened, Survey};
use crate::v1::FirstFormatLog;

/// What to copy, and up to where.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupPlan {
    /// The backup has everything before this position, and nothing after it.
    pub position: LogPosition,
    /// Its snapshot. `None` if the log has none: then its first segment is in the plan.
    pub snapshot: Option<LogPosition>,
    /// The files with the pages that the snapshot names.
    #[serde(default)]
    pub pages: Vec<PlannedPages>,
    /// In order of position.
    pub segments: Vec<PlannedSegment>,
}

/// A file of pages of a backup.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedPages {
    /// Its number, which is its file's name.
    pub number: u64,
    /// How many bytes from the beginning of the file hold the pages that the snapshot names.
    pub copied_bytes: u64,
}

impl PlannedPages {
    /// Both files of each pair with pages of a snapshot.
    pub(crate) fn of(by_pair: BTreeMap<u32, InPair>) -> Vec<Self> {
        let pairs = by_pair.into_iter();
        let files = pairs.flat_map(|(pair, named)| {
            pages::file_numbers(pair).map(|number| Self {
                number,
                copied_bytes: named.end,
            })
        });
        files.collect()
    }

    /// The name of its file.
    pub fn name(&self) -> String {
        names::pages(self.number)
    }
}

/// A segment of a backup.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedSegment {
    /// Its number, which is its file's name.
    pub number: u64,
    /// The checksum of its header, which tells it from every other segment of that name.
    pub header_crc: u32,
    /// The backup has its records before this position.
    pub end: LogPosition,
    /// How many bytes from the beginning of the file hold them.
    pub copied_bytes: u64,
    /// The least size of the file. The bytes that are not copied are zeros in a restored file.
    pub size_bytes: u64,
}

impl BackupPlan {
    /// The name of the snapshot's file.
    pub fn snapshot_name(&self) -> Option<String> {
        self.snapshot
            .map(|position| names::snapshot(position.as_u64()))
    }
}

impl PlannedSegment {
    pub(crate) fn of(segment: &Segment, next: Option<&Segment>, position: LogPosition) -> Self {
        let end = segment.end_before(next).min(position);
        // The roll is behind the last batch. It says that nothing more is.
        let roll_bytes = match end < position {
            true => ROLL_RECORD_SIZE,
            false => 0,
        };
        Self {
            number: segment.header.number,
            header_crc: read_u32(&segment.header.encode(), SEGMENT_HEADER_SIZE - 4),
            end,
            copied_bytes: (segment.offset_of(end) + roll_bytes).min(segment.header.capacity_bytes),
            size_bytes: segment.header.capacity_bytes,
        }
    }

    /// The name of its file.
    pub fn name(&self) -> String {
        names::segment(self.number)
    }
}

/// Plans a backup of a log that nothing writes to.
pub fn plan_backup(storage: &dyn Storage) -> Result<BackupPlan, OpenError> {
    let survey = surveyed(storage)?;
    let (found, end) = recovery::replay_log(storage, &survey, &mut Ignore)?;
    let next = survey.chain.iter().skip(1).map(Some);
    let segments = survey.chain.iter().zip(next.chain([None]));
    let segments = segments.take(end.tail_segment + 1);
    let read = found.read.as_ref();
    Ok(BackupPlan {
        position: end.position,
        snapshot: found.used,
        pages: read.map_or_else(Vec::new, |read| PlannedPages::of(read.table.by_pair())),
        segments: segments
            .map(|(segment, next)| {
                PlannedSegment::of(segment, next.map(|next| &**next), end.position)
            })
            .collect(),
    })
}

/// The end of a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplayEnd {
    /// Where the log ends.
    pub position: LogPosition,
    /// The snapshot that it began with.
    pub snapshot: Option<LogPosition>,
    /// How many events came after it.
    pub events: u64,
}

/// Replays a log without opening it: changes nothing, and fails where an open would be refused. What it can do without,
/// `replay` says, as that of an open does.
pub fn replay(storage: &dyn Storage, replay: &mut dyn Replay) -> Result<ReplayEnd, OpenError> {
    let survey = surveyed(storage)?;
    let (found, end) = recovery::replay_log(storage, &survey, replay)?;
    Ok(ReplayEnd {
        position: end.position,
        snapshot: found.used,
        events: end.counts.events,
    })
}

fn surveyed(storage: &dyn Storage) -> Result<Survey, OpenError> {
    let mut survey = Survey::of(storage)?;
    match survey.damage.is_empty() {
        true => Ok(survey),
        false => Err(survey.damage.swap_remove(0)),
    }
}

/// Checks every checksum in one file: a snapshot, or a segment up to `end`. Returns all damage. Of a file of pages it
/// checks the header, because only a snapshot knows where pages are. Files of the format before are not checked.
///
/// It checks the file by itself. Only a [`replay()`] shows that files fit together.
pub fn check_file(
    storage: &dyn Storage,
    name: &str,
    end: LogPosition,
) -> Result<Vec<Damage>, OpenError> {
    if FirstFormatLog::has(storage, name)? {
        // What lies where in it, only the version that wrote it knows.
        return Ok(Vec::new());
    }
    let checked = match names::parse(name) {
        Name::Segment(number) => match survey::open_segment(storage, name.to_owned(), number) {
            Ok(Opened::Segment(segment)) => Ok(damage_before(&segment, end)?),
            Ok(Opened::Blank(_)) => Ok(Vec::new()),
            Err(error) => Err(error),
        },
        Name::Snapshot(position) => {
            let position = LogPosition::new(position);
            pages::read_file(storage, position)
                .map(|_| Vec::new())
                .map_err(recovery::manifest_error)
        }
        Name::Pages(_) => pages::header_damage(storage, name)
            .map(|damage| damage.into_iter().collect())
            .map_err(page_error),
        Name::Temporary | Name::Ballast | Name::Proof | Name::SetAside | Name::Foreign => {
            Err(not_in_a_backup(name))
        }
    };
    match checked {
        Err(OpenError::Corrupt { file, offset, what }) => Ok(vec![Damage { file, offset, what }]),
        checked => checked,
    }
}

/// A number that tells a file from every other one that may have its name: the checksum of the header of a segment or of
/// a file of pages, or of a snapshot's whole content. Reads some bytes only. If the header of a file of pages is damaged,
/// the other file of its pair says what it was.
pub fn identity(storage: &dyn Storage, name: &str) -> Result<u32, OpenError> {
    if let Name::Pages(_) = names::parse(name) {
        return pages::header_crc(storage, name).map_err(page_error);
    }
    let file = storage::open(storage, name)?;
    let at = match names::parse(name) {
        Name::Segment(_) => SEGMENT_HEADER_SIZE as u64 - 4,
        Name::Snapshot(_) => storage::len(&*file, name)?.saturating_sub(4),
        Name::Pages(_)
        | Name::Temporary
        | Name::Ballast
        | Name::Proof
        | Name::SetAside
        | Name::Foreign => return Err(not_in_a_backup(name)),
    };
    let mut bytes = [0; 4];
    match storage::read_at(&*file, name, &mut bytes, at)? {
        4 => Ok(u32::from_le_bytes(bytes)),
        _ => Err(OpenError::corrupt(name, at, "the file ends too early")),
    }
}

/// The pages that a snapshot names, for [`check_pages`] and [`mend_pages`].
pub fn pages_of(storage: &dyn Storage, snapshot: LogPosition) -> Result<ReadManifest, OpenError> {
    pages::read_table(storage, snapshot).map_err(recovery::manifest_error)
}

/// Checks the header of a file of pages, and the pages of a snapshot in it. `view` has the file under its name.
pub fn check_pages(
    view: &dyn Storage,
    snapshot: &ReadManifest,
    name: &str,
) -> Result<Option<PageFileDamage>, OpenError> {
    pages::check_pages(view, snapshot, name).map_err(page_error)
}

/// The same for a copy of a file of pages, and writes what is damaged there as the source has it: in that file, or in the
/// other one of its pair. Fails if the source has it in neither. `view` has the copy, and shows what was written.
pub fn mend_pages(
    source: &dyn Storage,
    view: &dyn Storage,
    snapshot: &ReadManifest,
    name: &str,
    write: &mut dyn FnMut(u64, &[u8]) -> io::Result<()>,
) -> Result<Option<PageFileDamage>, OpenError> {
    pages::mend_pages(source, view, snapshot, name, write).map_err(page_error)
}

fn page_error(error: PageError) -> OpenError {
    recovery::manifest_error(error.into())
}

/// Removes files for good: those that a rebuilt log has set aside.
pub fn remove(storage: &dyn Storage, names: &[String]) -> Result<(), IoFailure> {
    for name in names {
        storage::remove(storage, name)?;
    }
    storage::sync_dir(storage)
}

fn not_in_a_backup(name: &str) -> OpenError {
    OpenError::corrupt(name, 0, "a file of this name is not part of a backup")
}
