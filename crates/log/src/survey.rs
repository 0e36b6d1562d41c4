//! Surveys a log's directory: names, headers, and which segment covers which positions. Reads only.

use std::sync::Arc;

use crate::claims::Claims;
use crate::format::names::{self, Name};
use crate::format::{
    FORMAT_VERSION, FormatError, SEGMENT_HEADER_BLOCK_SIZE, SEGMENT_HEADER_SIZE, SegmentHeader,
};
use crate::proof::FoundProof;
use crate::reader::records::RecordReader;
use crate::recovery::OpenError;
use crate::segment::{Blank, Segment};
use crate::snapshot;
use crate::storage::{self, IoFailure, Storage};
use crate::{Epoch, LogId, LogPosition};

/// The contents of a directory.
pub(crate) struct Survey {
    /// The segments that cover some positions, in order of position and of number.
    pub(crate) chain: Vec<Arc<Segment>>,
    /// Segments whose positions a newer segment covers.
    pub(crate) superseded: Vec<Arc<Segment>>,
    /// Segments without records, made before it was known where they begin.
    pub(crate) blanks: Vec<Blank>,
    /// Positions of all snapshots by name, oldest first.
    pub(crate) snapshots: Vec<LogPosition>,
    /// Files of pages.
    pub(crate) pages: Vec<String>,
    /// Headers of snapshots that the disk has not read. A start needs none of them, unless it uses that snapshot.
    pub(crate) unread: Vec<IoFailure>,
    pub(crate) temporaries: Vec<String>,
    pub(crate) foreign: Vec<String>,
    /// Files that repairs set aside.
    pub(crate) set_aside: Vec<String>,
    /// Size of the ballast, if there is one.
    pub(crate) ballast_bytes: Option<u64>,
    /// What it says of what was durable.
    pub(crate) proof: FoundProof,
    /// Segments and snapshots get their names, and the proof its claims, only after the data they describe is durable.
    pub(crate) claims: Claims,
    /// Why some segments are not in the lists above.
    pub(crate) damage: Vec<OpenError>,
}

impl Survey {
    /// Lists the directory and reads the header of every segment.
    pub(crate) fn of(storage: &dyn Storage) -> Result<Self, IoFailure> {
        let mut damage = Vec::new();
        let (mut segments, mut blanks) = (Vec::new(), Vec::new());
        let mut snapshots = Vec::new();
        let mut pages = Vec::new();
        let mut temporaries = Vec::new();
        let mut foreign = Vec::new();
        let mut set_aside = Vec::new();
        let mut ballast_bytes = None;
        let mut proof = FoundProof::default();
        for name in storage::list(storage)? {
            match names::parse(&name) {
                Name::Segment(number) => match open_segment(storage, name, number) {
                    Ok(Opened::Segment(segment)) => segments.push(segment),
                    Ok(Opened::Blank(blank)) => blanks.push(blank),
                    Err(error) => damage.push(error),
                },
                Name::Snapshot(position) => snapshots.push(LogPosition::new(position)),
                Name::Pages(_) => pages.push(name),
                Name::Temporary => temporaries.push(name),
                Name::Foreign => foreign.push(name),
                Name::SetAside => set_aside.push(name),
                Name::Ballast => ballast_bytes = size_of(storage, &name)?,
                Name::Proof => match FoundProof::read(storage) {
                    Ok(found) => proof = found,
                    Err(error) => damage.push(error),
                },
            }
        }
        let headers = segments.iter().map(|segment| &segment.header);
        let headers = headers.chain(blanks.iter().map(|blank| &blank.header));
        let headers: Vec<_> = headers.collect();
        let log = log_of(headers.iter().copied());
        damage.extend(headers.iter().filter(|it| Some(it.log) != log).map(|it| {
            let what = "the segment is of another log than the newest one";
            OpenError::corrupt(&names::segment(it.number), 0, what)
        }));
        let proof = proof.of_log(log);
        let mut unread = Vec::new();
        let epochs = epochs_of(storage, &snapshots, log, &mut unread);
        let claims = Claims::of(headers, epochs, &proof);
        let lost = blanks.iter().filter(|it| has_lost_records(it, &segments));
        damage.extend(lost.map(|blank| {
            let what = "the segment has no records, and the log went on behind it";
            OpenError::corrupt(&blank.name, SEGMENT_HEADER_BLOCK_SIZE, what)
        }));
        let (chain, superseded) = link(segments, &mut damage);
        Ok(Self {
            chain,
            superseded,
            blanks,
            snapshots,
            pages,
            unread,
            temporaries,
            foreign,
            set_aside,
            ballast_bytes,
            proof,
            claims,
            damage,
        })
    }

    /// The highest number of any segment, 0 if there is none.
    pub(crate) fn number_max(&self) -> u64 {
        let numbers = self.headers().map(|header| header.number);
        numbers.max().unwrap_or(0)
    }

    /// The highest epoch that anything names, 0 if there is none.
    pub(crate) fn epoch_max(&self) -> Epoch {
        self.claims.epoch_max()
    }

    /// Which log it is. `None` if there is no segment.
    pub(crate) fn log(&self) -> Option<LogId> {
        log_of(self.headers())
    }

    /// Whether nothing was ever written to the log, and nothing was lost.
    pub(crate) fn is_new(&self) -> bool {
        self.chain.is_empty()
            && self.blanks.is_empty()
            && self.snapshots.is_empty()
            && self.proof.durable == LogPosition::default()
    }

    /// The headers of all segments.
    pub(crate) fn headers(&self) -> impl Iterator<Item = &SegmentHeader> {
        let segments = self.chain.iter().chain(&self.superseded);
        let blanks = self.blanks.iter().map(|blank| &blank.header);
        segments.map(|segment| &segment.header).chain(blanks)
    }
}

/// Which log it is, as the newest segment says.
pub(crate) fn log_of<'a>(headers: impl Iterator<Item = &'a SegmentHeader>) -> Option<LogId> {
    let newest = headers.max_by_key(|header| header.number);
    newest.map(|header| header.log)
}

/// Snapshots with their epochs, as far as their headers can be read and are whole and of this log. `unread` gets what the
/// disk has not read.
pub(crate) fn epochs_of(
    storage: &dyn Storage,
    snapshots: &[LogPosition],
    log: Option<LogId>,
    unread: &mut Vec<IoFailure>,
) -> Vec<(LogPosition, Option<Epoch>)> {
    let mut epoch_of = |at: &LogPosition| {
        let header = snapshot::header_of(storage, *at);
        let header = header.unwrap_or_else(|failure| {
            unread.push(failure);
            None
        });
        let header = header.filter(|it| log.is_none_or(|log| log == it.log));
        (*at, header.map(|it| it.epoch))
    };
    snapshots.iter().map(&mut epoch_of).collect()
}

/// A file's size; `None` if a running server has removed it since it was listed.
fn size_of(storage: &dyn Storage, name: &str) -> Result<Option<u64>, IoFailure> {
    match storage::open(storage, name) {
        Ok(file) => storage::len(&*file, name).map(Some),
        Err(failure) if failure.source.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(failure) => Err(failure),
    }
}

/// A file with the name of a segment.
pub(crate) enum Opened {
    Segment(Arc<Segment>),
    Blank(Blank),
}

pub(crate) fn open_segment(
    storage: &dyn Storage,
    name: String,
    number: u64,
) -> Result<Opened, OpenError> {
    let file = storage::open(storage, &name)?;
    let mut bytes = [0; SEGMENT_HEADER_SIZE];
    storage::read_at(&*file, &name, &mut bytes, 0)?;
    // A segment gets its name only once its header is durable, so a bad header is damage.
    let header = SegmentHeader::decode(&bytes).map_err(|error| format_error(&name, 0, error))?;
    if header.number != number {
        let what = format!("the segment's number is {}", header.number);
        return Err(OpenError::corrupt(&name, 0, what));
    }
    let size_bytes = storage::len(&*file, &name)?;
    if size_bytes < header.capacity_bytes {
        let what = format!(
            "the file ends here, and its header speaks of {} bytes",
            header.capacity_bytes
        );
        return Err(OpenError::corrupt(&name, size_bytes, what));
    }
    let blank = Blank { header, name, file };
    let first = match header.first {
        Some(first) => Some(first),
        None => RecordReader::first_of(&blank)?,
    };
    Ok(match first {
        Some(first) => Opened::Segment(Arc::new(blank.beginning_at(first))),
        None => Opened::Blank(blank),
    })
}

/// Whether a segment without records had some: the same process has written to a segment behind it, which it does only
/// once the segments before it are synced.
pub(crate) fn has_lost_records(blank: &Blank, segments: &[Arc<Segment>]) -> bool {
    let (number, epoch) = (blank.header.number, blank.header.epoch);
    let mut headers = segments.iter().map(|segment| &segment.header);
    headers.any(|it| it.number > number && it.epoch == epoch && it.first.is_none())
}

pub(crate) fn format_error(file: &str, offset: u64, error: FormatError) -> OpenError {
    match error {
        FormatError::Damaged(what) => OpenError::corrupt(file, offset, what),
        FormatError::Newer(found) => OpenError::NewerFormat {
            file: file.to_owned(),
            found,
            supported: FORMAT_VERSION,
        },
    }
}

pub(crate) type Segments = Vec<Arc<Segment>>;

/// Determines which segment covers which positions. Where two segments overlap, the one with the higher
/// number was made by a recovery and covers everything from its first record on.
pub(crate) fn link(mut segments: Segments, damage: &mut Vec<OpenError>) -> (Segments, Segments) {
    segments.sort_unstable_by_key(|segment| segment.header.number);
    let mut chain: Segments = Vec::new();
    let mut superseded = Vec::new();
    for segment in segments.into_iter().rev() {
        let newer = chain.last();
        if newer.is_some_and(|newer| segment.first() >= newer.first()) {
            superseded.push(segment);
            continue;
        }
        if let Some(newer) = newer
            && segment.header.epoch > newer.header.epoch
        {
            let what = format!(
                "epoch {} follows epoch {} of {}",
                newer.header.epoch, segment.header.epoch, segment.name
            );
            damage.push(OpenError::corrupt(&newer.name, 0, what));
        }
        chain.push(segment);
    }
    chain.reverse();
    (chain, superseded)
}
