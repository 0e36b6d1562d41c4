//! Surveys a log's directory: names, headers, and which segment covers which positions. Reads only.

use std::sync::Arc;

use crate::LogPosition;
use crate::format::names::{self, Name};
use crate::format::{FORMAT_VERSION, FormatError, SEGMENT_HEADER_SIZE, SegmentHeader};
use crate::recovery::OpenError;
use crate::segment::Segment;
use crate::storage::{self, IoFailure, Storage};

/// The contents of a directory.
pub(crate) struct Survey {
    /// The segments that cover some positions, in order of position and of number.
    pub(crate) chain: Vec<Arc<Segment>>,
    /// Segments whose positions a newer segment covers.
    pub(crate) superseded: Vec<Arc<Segment>>,
    /// Positions of all snapshots by name, oldest first.
    pub(crate) snapshots: Vec<LogPosition>,
    pub(crate) temporaries: Vec<String>,
    pub(crate) foreign: Vec<String>,
    /// Files that repairs set aside.
    pub(crate) set_aside: Vec<String>,
    /// Size of the ballast, if there is one.
    pub(crate) ballast_bytes: Option<u64>,
    /// Why some segments are not in the lists above.
    pub(crate) damage: Vec<OpenError>,
}

impl Survey {
    /// Lists the directory and reads the header of every segment.
    pub(crate) fn of(storage: &dyn Storage) -> Result<Self, IoFailure> {
        let mut damage = Vec::new();
        let mut segments = Vec::new();
        let mut snapshots = Vec::new();
        let mut temporaries = Vec::new();
        let mut foreign = Vec::new();
        let mut set_aside = Vec::new();
        let mut ballast_bytes = None;
        for name in storage::list(storage)? {
            match names::parse(&name) {
                Name::Segment(number) => match open_segment(storage, name, number) {
                    Ok(segment) => segments.push(segment),
                    Err(error) => damage.push(error),
                },
                Name::Snapshot(position) => snapshots.push(LogPosition::new(position)),
                Name::Temporary => temporaries.push(name),
                Name::Foreign => foreign.push(name),
                Name::SetAside => set_aside.push(name),
                Name::Ballast => ballast_bytes = size_of(storage, &name)?,
            }
        }
        let (chain, superseded) = link(segments, &mut damage);
        Ok(Self {
            chain,
            superseded,
            snapshots,
            temporaries,
            foreign,
            set_aside,
            ballast_bytes,
            damage,
        })
    }

    /// The highest number of any segment, 0 if there is none.
    pub(crate) fn number_max(&self) -> u64 {
        let all = self.chain.iter().chain(&self.superseded);
        all.map(|segment| segment.header.number).max().unwrap_or(0)
    }

    /// The highest epoch of any segment, 0 if there is none.
    pub(crate) fn epoch_max(&self) -> crate::Epoch {
        let all = self.chain.iter().chain(&self.superseded);
        all.map(|segment| segment.header.epoch)
            .max()
            .unwrap_or_default()
    }
}

/// A file's size; `None` if a running server has removed it since it was listed.
fn size_of(storage: &dyn Storage, name: &str) -> Result<Option<u64>, IoFailure> {
    match storage::open(storage, name) {
        Ok(file) => storage::len(&*file, name).map(Some),
        Err(failure) if failure.source.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(failure) => Err(failure),
    }
}

pub(crate) fn open_segment(
    storage: &dyn Storage,
    name: String,
    number: u64,
) -> Result<Arc<Segment>, OpenError> {
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
    Ok(Arc::new(Segment { header, name, file }))
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
