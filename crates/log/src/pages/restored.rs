//! Reads manifests: the parts of a file, then its pages in the order of the table.

use std::collections::BTreeMap;

use super::table::{TablePage, Varints};
use super::{ManifestError, PageContent, PageDamage, PageNumber, PagePlace, PageReader, PageTable};
use crate::claims::Claims;
use crate::format::{FormatError, names};
use crate::replay::{BoxError, Replay};
use crate::snapshot::{PartReader, ReadError, SnapshotHeader};
use crate::storage::Storage;
use crate::{LogId, LogPosition};

/// A piece of a manifest, as it is restored.
#[derive(Debug)]
pub enum Restored<'a> {
    /// A part of its file.
    Part(&'a [u8]),
    /// A page.
    Page(PageNumber, &'a PageContent),
}

/// What was read of a manifest.
#[derive(Debug)]
pub struct ReadManifest {
    pub(crate) header: SnapshotHeader,
    /// Its pages.
    pub table: PageTable,
    /// No kept page has this number or a higher one.
    pub next_number: PageNumber,
    /// Damaged copies of its pages. The other copies are whole.
    pub damage: Vec<PageDamage>,
}

impl ReadManifest {
    /// Whether no later owner of the log went on before it.
    pub(crate) fn counts(&self, position: LogPosition, claims: &Claims) -> bool {
        claims.counted(self.header.epoch, position) == position
    }
}

/// Reads a manifest, or a snapshot without pages, and passes on its pieces. It is whole only if this returns without an
/// error; what was passed on before an error must be discarded.
pub fn read_manifest(
    storage: &dyn Storage,
    identity: LogId,
    position: LogPosition,
    restore: &mut dyn FnMut(Restored<'_>) -> Result<(), BoxError>,
) -> Result<ReadManifest, ManifestError> {
    let instead = Instead::Nothing;
    read_pieces(
        storage,
        position,
        (Some(identity), instead),
        &mut All(restore),
    )
}

/// Takes the pieces of a manifest.
trait Pieces {
    fn take(&mut self, piece: Restored<'_>) -> Result<(), BoxError>;

    /// The next page lies in a file with damage.
    fn page_is_at_risk(&mut self) {}

    /// Whether the next page need not be read.
    fn passes_over(&mut self, page: PageNumber) -> Result<bool, BoxError>;
}

/// All of them are read.
struct All<'a>(&'a mut dyn FnMut(Restored<'_>) -> Result<(), BoxError>);

impl Pieces for All<'_> {
    fn take(&mut self, piece: Restored<'_>) -> Result<(), BoxError> {
        (self.0)(piece)
    }

    fn passes_over(&mut self, _: PageNumber) -> Result<bool, BoxError> {
        Ok(false)
    }
}

/// A start reads what it needs.
struct Replaying<'a>(&'a mut dyn Replay);

impl Pieces for Replaying<'_> {
    fn take(&mut self, piece: Restored<'_>) -> Result<(), BoxError> {
        match piece {
            Restored::Part(part) => self.0.snapshot_part(part),
            Restored::Page(number, content) => self.0.snapshot_page(number, content),
        }
    }

    fn page_is_at_risk(&mut self) {
        self.0.page_is_at_risk();
    }

    fn passes_over(&mut self, page: PageNumber) -> Result<bool, BoxError> {
        self.0.passes_over(page)
    }
}

/// What a start can use if pages of a snapshot are lost. It has to know that before it uses the snapshot: the next one
/// names what was passed over, and then nothing has those messages any more.
pub(crate) enum Instead<'a> {
    /// There is no other way to the same state.
    Nothing,
    /// The log from its beginning, which needs no page.
    Log,
    /// Older snapshots, each with the log behind it. Those that no later owner of the log went on before.
    Snapshots(Vec<LogPosition>, &'a Claims),
}

impl Instead<'_> {
    /// The pages that each of the other ways needs too. A page in another place is another copy of it.
    fn pages(self, storage: &dyn Storage, log: LogId) -> Result<Shared, ManifestError> {
        match self {
            Self::Nothing => Ok(Shared::Any),
            Self::Log => Ok(Shared::Pages(BTreeMap::new())),
            Self::Snapshots(positions, claims) => {
                let mut shared = Shared::Any;
                for position in positions {
                    match read_table(storage, position) {
                        Ok(read) if read.header.log == log && read.counts(position, claims) => {
                            shared.keep(read.table.places());
                        }
                        // It cannot be used. Another one may.
                        Ok(_) => {}
                        Err(error) if error.is_lasting() => {}
                        Err(error) => return Err(error),
                    }
                }
                Ok(shared)
            }
        }
    }
}

/// Pages that all other ways to the same state need.
enum Shared {
    /// There is no other way.
    Any,
    Pages(BTreeMap<PageNumber, PagePlace>),
}

impl Shared {
    /// There is another way, which needs these.
    fn keep(&mut self, places: BTreeMap<PageNumber, PagePlace>) {
        match self {
            Self::Any => *self = Self::Pages(places),
            Self::Pages(shared) => {
                shared.retain(|number, place| places.get(number) == Some(&*place));
            }
        }
    }

    fn has(&self, page: &TablePage) -> bool {
        match self {
            Self::Any => true,
            Self::Pages(shared) => shared.get(&page.number) == Some(&page.place),
        }
    }
}

/// Reads a snapshot and replays it. `log` is `None` if one of any log is accepted. What is passed over is read all the
/// same, and not replayed, if something else could take its place.
pub(crate) fn replay_manifest(
    storage: &dyn Storage,
    position: LogPosition,
    (log, instead): (Option<LogId>, Instead<'_>),
    replay: &mut dyn Replay,
) -> Result<ReadManifest, ManifestError> {
    let read = read_pieces(storage, position, (log, instead), &mut Replaying(replay))?;
    let ended = replay.snapshot_end();
    ended.map_err(|error| ManifestError::Restore(position, error))?;
    Ok(read)
}

/// Reads the table of a manifest that is kept, and not its pages.
pub fn read_table(
    storage: &dyn Storage,
    position: LogPosition,
) -> Result<ReadManifest, ManifestError> {
    let parts = open(storage, position)?;
    if !parts.header().has_pages {
        return Ok(ReadManifest {
            header: parts.header(),
            table: PageTable::default(),
            next_number: PageNumber::default(),
            damage: Vec::new(),
        });
    }
    read_parts(parts, position, &mut |_| Ok(()))
}

/// Reads all of a snapshot's file, and not its pages.
pub(crate) fn read_file(
    storage: &dyn Storage,
    position: LogPosition,
) -> Result<ReadManifest, ManifestError> {
    read_parts(open(storage, position)?, position, &mut |_| Ok(()))
}

fn read_pieces(
    storage: &dyn Storage,
    position: LogPosition,
    (log, instead): (Option<LogId>, Instead<'_>),
    pieces: &mut dyn Pieces,
) -> Result<ReadManifest, ManifestError> {
    let mut take = |piece: Restored<'_>| pieces.take(piece);
    let mut read = read_parts(open(storage, position)?, position, &mut take)?;
    if log.is_some_and(|log| log != read.header.log) {
        return Err(ManifestError::OtherLog(names::snapshot(position.as_u64())));
    }
    let mut reader = PageReader::new(storage, read.header.log);
    let refused = |error| ManifestError::Restore(position, error);
    let log = read.header.log;
    let mut instead = Some(instead);
    let mut shared = Shared::Any;
    for page in read.table.pages() {
        if pieces.passes_over(page.number).map_err(refused)? {
            if let Some(instead) = instead.take() {
                shared = instead.pages(storage, log)?;
            }
            if !shared.has(page) {
                reader.read(page.number, page.place)?;
            }
            continue;
        }
        let content = reader.read(page.number, page.place)?.content;
        if reader.has_damage_in(page.place.pair) {
            pieces.page_is_at_risk();
        }
        let taken = pieces.take(Restored::Page(page.number, &content));
        taken.map_err(refused)?;
    }
    read.damage.extend_from_slice(reader.damage());
    Ok(read)
}

fn open(storage: &dyn Storage, position: LogPosition) -> Result<PartReader, ManifestError> {
    PartReader::open(storage, position).map_err(|error| failed(position, error))
}

fn failed(position: LogPosition, error: ReadError) -> ManifestError {
    let file = names::snapshot(position.as_u64());
    match error {
        ReadError::Io(failure) => ManifestError::Io(failure),
        ReadError::Format(_, FormatError::Newer(found)) => ManifestError::Newer { file, found },
        ReadError::Format(offset, error @ FormatError::Damaged(_)) => {
            ManifestError::Damaged(PageDamage {
                file,
                offset,
                what: error.to_string(),
            })
        }
    }
}

/// Reads the file alone, and passes on its parts.
fn read_parts(
    mut parts: PartReader,
    position: LogPosition,
    restore: &mut dyn FnMut(Restored<'_>) -> Result<(), BoxError>,
) -> Result<ReadManifest, ManifestError> {
    let damaged = |offset: u64, what: &'static str| {
        failed(
            position,
            ReadError::Format(offset, FormatError::Damaged(what)),
        )
    };
    let header = parts.header();
    let mut first = FirstParts::of(&header);
    loop {
        let at = parts.offset();
        let part = parts.next_part().map_err(|error| failed(position, error))?;
        let Some(part) = part else {
            break;
        };
        if !first.take(part).map_err(|what| damaged(at, what))? {
            restore(Restored::Part(part))
                .map_err(|error| ManifestError::Restore(position, error))?;
        }
    }
    match first.missing {
        Some(0) => Ok(ReadManifest {
            header,
            table: first.table,
            next_number: first.next_number,
            damage: Vec::new(),
        }),
        Some(_) | None => Err(damaged(0, "the table of pages is not whole")),
    }
}

/// No log has so many pages: a higher number is none that was counted up to.
const NUMBER_MAX: u64 = u64::MAX / 2;

/// Reads the table, as its parts come.
pub(crate) struct FirstParts {
    /// The parts of the table that are missing. `None` before the first part.
    missing: Option<u64>,
    /// How many there are, as the header says.
    told: u64,
    table: PageTable,
    next_number: PageNumber,
}

impl FirstParts {
    /// Of a snapshot that has this header.
    pub(crate) fn of(header: &SnapshotHeader) -> Self {
        Self {
            told: header.table_parts.into(),
            ..Self::new(header.has_pages)
        }
    }

    /// Of a snapshot whose header is lost.
    pub(crate) fn new(has_pages: bool) -> Self {
        Self {
            missing: (!has_pages).then_some(0),
            told: 0,
            table: PageTable::default(),
            next_number: PageNumber::default(),
        }
    }

    /// Whether a part can be the one before a table.
    pub(crate) fn can_be_first(part: &[u8]) -> bool {
        let mut r = Varints(part);
        r.next().is_some() && r.next().is_some() && r.0.is_empty()
    }

    /// Returns whether it was one of the table's.
    pub(crate) fn take(&mut self, part: &[u8]) -> Result<bool, &'static str> {
        match self.missing {
            None => {
                let mut r = Varints(part);
                let both = r.next().zip(r.next());
                let (count, next) = both.ok_or("the manifest does not say what it names")?;
                if next > NUMBER_MAX {
                    return Err("the manifest's next page has too high a number");
                }
                self.missing = Some(count);
                self.next_number = PageNumber::new(next);
                Ok(true)
            }
            Some(0) => Ok(false),
            Some(count) => {
                self.missing = Some(count - 1);
                self.table.add_part(part)?;
                Ok(true)
            }
        }
    }

    /// Passes over a part that cannot be read. If that is the first one, the header alone says how many belong to the
    /// table. If it does not, the table is lost, and what follows are other parts, of which some cannot be used.
    pub(crate) fn pass_over(&mut self) {
        self.missing = Some((self.missing).map_or(self.told, |count| count.saturating_sub(1)));
    }

    /// The pages of what was read of the table.
    pub(crate) fn into_table(self) -> PageTable {
        self.table
    }
}

#[cfg(test)]
mod tests {
    use super::super::table::put_varint;
    use super::*;

    #[test]
    fn a_number_that_none_can_follow_is_refused() {
        for (next, is_taken) in [
            (NUMBER_MAX, true),
            (NUMBER_MAX + 1, false),
            (u64::MAX, false),
        ] {
            let mut part = Vec::new();
            put_varint(&mut part, 0);
            put_varint(&mut part, next);
            assert_eq!(FirstParts::new(true).take(&part).is_ok(), is_taken);
        }
    }
}
