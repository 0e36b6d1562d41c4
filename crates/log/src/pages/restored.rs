//! Reads manifests: the parts of a file, then its pages in the order of the table. A reading can stop after each of them.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::ops::ControlFlow;

use super::reader::Known;
use super::table::{TablePage, Varints};
use super::{
    ManifestError, PageContent, PageDamage, PageError, PageLeft, PageNumber, PagePlace, PageReader,
    PageTable, pair_of,
};
use crate::claims::Claims;
use crate::format::{FormatError, names};
use crate::piece::Room;
use crate::replay::{BoxError, Replay};
use crate::snapshot::{PartReader, ReadError, SnapshotHeader};
use crate::storage::{IoFailure, Storage};
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
    /// Both copies of pages of which only a part was restored.
    pub lost: Vec<PageDamage>,
    /// What the disk has not read of other snapshots that could take its place.
    pub(crate) unread: Vec<IoFailure>,
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
    let reading = Reading::of(position, Some(identity));
    reading.finish(storage, Instead::Nothing, &mut All(restore))
}

/// What a page that is not read takes of the room.
const PASSED_OVER_SIZE_BYTES: u64 = 64;

/// Takes the pieces of a manifest.
pub(crate) trait Pieces {
    fn take(&mut self, piece: Restored<'_>) -> Result<(), BoxError>;

    /// The next page lies in a file with damage.
    fn page_is_at_risk(&mut self) {}

    /// Whether the next page need not be read.
    fn passes_over(&mut self, page: PageNumber) -> Result<bool, BoxError>;

    /// Takes what is left of the next page, if that is enough.
    fn take_left(&mut self, _: PageNumber, _: &PageLeft) -> Result<bool, BoxError> {
        Ok(false)
    }

    /// All pieces have come.
    fn end(&mut self) -> Result<(), BoxError> {
        Ok(())
    }
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
pub(crate) struct Replaying<'a>(pub(crate) &'a mut dyn Replay);

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

    fn take_left(&mut self, page: PageNumber, left: &PageLeft) -> Result<bool, BoxError> {
        self.0.snapshot_page_left(page, left)
    }

    fn end(&mut self) -> Result<(), BoxError> {
        self.0.snapshot_end()
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
    /// The pages that each of the other ways needs too. A page in another place is another copy of it. `unread` gets
    /// what the disk has not read: another read may succeed, and then nothing else shows that this one was no way.
    fn pages(
        &self,
        storage: &dyn Storage,
        log: LogId,
        unread: &mut Vec<IoFailure>,
    ) -> Result<Shared, ManifestError> {
        match self {
            Self::Nothing => Ok(Shared::Any),
            Self::Log => Ok(Shared::Pages(BTreeMap::new())),
            Self::Snapshots(positions, claims) => {
                let mut shared = Shared::Any;
                for position in positions {
                    match read_table(storage, *position) {
                        Ok(read) if read.header.log == log && read.counts(*position, claims) => {
                            shared.keep(read.table.places());
                        }
                        // It cannot be used. Another one may.
                        Ok(_) => {}
                        Err(ManifestError::Io(failure)) if failure.is_bad_sector() => {
                            unread.push(failure);
                        }
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

/// Reads a snapshot and replays it. It may be of any log.
pub(crate) fn replay_manifest(
    storage: &dyn Storage,
    position: LogPosition,
    replay: &mut dyn Replay,
) -> Result<ReadManifest, ManifestError> {
    let reading = Reading::of(position, None);
    reading.finish(storage, Instead::Nothing, &mut Replaying(replay))
}

/// Reads the table of a manifest that is kept, and not its pages.
pub fn read_table(
    storage: &dyn Storage,
    position: LogPosition,
) -> Result<ReadManifest, ManifestError> {
    let parts = FileReading::open(storage, position)?;
    let header = parts.parts.header();
    if !header.has_pages {
        return Ok(ReadManifest {
            header,
            table: PageTable::default(),
            next_number: PageNumber::default(),
            damage: Vec::new(),
            lost: Vec::new(),
            unread: Vec::new(),
        });
    }
    parts.finish()
}

/// Reads all of a snapshot's file, and not its pages.
pub(crate) fn read_file(
    storage: &dyn Storage,
    position: LogPosition,
) -> Result<ReadManifest, ManifestError> {
    FileReading::open(storage, position)?.finish()
}

/// A manifest, as far as it was read.
pub(crate) struct Reading {
    position: LogPosition,
    /// `None` if it may be one of any log.
    log: Option<LogId>,
    /// Whether what is left of a damaged page may be enough.
    may_lose: bool,
    stage: Stage,
}

enum Stage {
    Begin,
    File(FileReading),
    Pages(PagesReading),
}

impl Reading {
    pub(crate) fn of(position: LogPosition, log: Option<LogId>) -> Self {
        Self {
            position,
            log,
            may_lose: false,
            stage: Stage::Begin,
        }
    }

    /// Passes on what is left of pages of which both copies are damaged.
    pub(crate) fn with_losses(self) -> Self {
        Self {
            may_lose: true,
            ..self
        }
    }

    /// Reads until there is no room, or to the end: then the manifest is whole. What is passed over is read all the same,
    /// and not passed on, if something else could take its place.
    pub(crate) fn step(
        mut self,
        storage: &dyn Storage,
        instead: Instead<'_>,
        pieces: &mut dyn Pieces,
        room: &mut Room,
    ) -> Result<ControlFlow<ReadManifest, Self>, ManifestError> {
        if let Stage::Begin = self.stage {
            self.stage = Stage::File(FileReading::open(storage, self.position)?);
        }
        let pages = match self.stage {
            Stage::Begin => unreachable!("it has begun"),
            Stage::Pages(pages) => pages,
            Stage::File(file) => match file.step(pieces, room)? {
                ControlFlow::Continue(file) => {
                    let stage = Stage::File(file);
                    return Ok(ControlFlow::Continue(Self { stage, ..self }));
                }
                ControlFlow::Break(read) if self.log.is_some_and(|log| log != read.header.log) => {
                    let file = names::snapshot(self.position.as_u64());
                    return Err(ManifestError::OtherLog(file));
                }
                ControlFlow::Break(read) => PagesReading::of(read, self.may_lose),
            },
        };
        Ok(match pages.step(storage, instead, pieces, room)? {
            ControlFlow::Continue(pages) => {
                let stage = Stage::Pages(pages);
                ControlFlow::Continue(Self { stage, ..self })
            }
            ControlFlow::Break(read) => ControlFlow::Break(read),
        })
    }

    /// Reads all of it.
    fn finish(
        self,
        storage: &dyn Storage,
        instead: Instead<'_>,
        pieces: &mut dyn Pieces,
    ) -> Result<ReadManifest, ManifestError> {
        match self.step(storage, instead, pieces, &mut Room::unlimited())? {
            ControlFlow::Break(read) => Ok(read),
            ControlFlow::Continue(_) => unreachable!("there is room for all of it"),
        }
    }
}

/// The pages of a manifest, as far as they were read.
struct PagesReading {
    read: ReadManifest,
    /// Index of the next page.
    next: usize,
    known: Known,
    may_lose: bool,
    /// Known once a page was passed over, or was damaged.
    shared: Option<Shared>,
    /// Pages of which both copies are damaged, as pair and offset.
    lost: BTreeSet<(u32, u64)>,
}

impl PagesReading {
    fn of(read: ReadManifest, may_lose: bool) -> Self {
        Self {
            read,
            may_lose,
            next: 0,
            known: Known::default(),
            shared: None,
            lost: BTreeSet::new(),
        }
    }

    /// Whether all other ways to the same state need a page, too.
    fn is_shared(
        &mut self,
        storage: &dyn Storage,
        instead: &Instead<'_>,
        page: &TablePage,
    ) -> Result<bool, ManifestError> {
        let shared = match self.shared.take() {
            Some(shared) => shared,
            None => instead.pages(storage, self.read.header.log, &mut self.read.unread)?,
        };
        Ok(self.shared.insert(shared).has(page))
    }

    /// Passes on what is left of a page of which both copies are damaged. Returns `None` if that is not enough, or if
    /// something else could take the place of this snapshot. A file that is missing may come back.
    fn pass_on_left(
        &mut self,
        storage: &dyn Storage,
        instead: &Instead<'_>,
        pieces: &mut dyn Pieces,
        (reader, page): (&mut PageReader<'_>, TablePage),
    ) -> Result<Option<()>, ManifestError> {
        let may_lose = self.may_lose && !reader.has_lost_file(page.place.pair);
        if !may_lose || !self.is_shared(storage, instead, &page)? {
            return Ok(None);
        }
        let left = reader.read_left(page.number, page.place)?;
        let taken = pieces.take_left(page.number, &left);
        let position = self.read.header.position;
        let is_enough = taken.map_err(|error| ManifestError::Restore(position, error))?;
        if is_enough {
            self.lost
                .insert((page.place.pair, page.place.offset.into()));
        }
        Ok(is_enough.then_some(()))
    }

    /// Ends with all of its pages, of which this is damaged.
    fn end(mut self, damage: &[PageDamage]) -> ReadManifest {
        let is_lost = |damage: &PageDamage| {
            let pair = pair_of(&damage.file);
            pair.is_some_and(|pair| self.lost.contains(&(pair, damage.offset)))
        };
        let damage = damage.iter().cloned();
        (self.read.lost, self.read.damage) = damage.partition(is_lost);
        self.read
    }

    fn step(
        mut self,
        storage: &dyn Storage,
        instead: Instead<'_>,
        pieces: &mut dyn Pieces,
        room: &mut Room,
    ) -> Result<ControlFlow<ReadManifest, Self>, ManifestError> {
        let header = self.read.header;
        let known = mem::take(&mut self.known);
        let mut reader = PageReader::knowing(storage, header.log, known);
        let refused = |error| ManifestError::Restore(header.position, error);
        while let Some(page) = self.read.table.pages().get(self.next).copied() {
            let size_bytes = page.place.size_bytes.into();
            if !room.fits(size_bytes) {
                self.known = reader.into_known();
                return Ok(ControlFlow::Continue(self));
            }
            self.next += 1;
            if pieces.passes_over(page.number).map_err(refused)? {
                room.take(PASSED_OVER_SIZE_BYTES);
                if !self.is_shared(storage, &instead, &page)? {
                    reader.read(page.number, page.place)?;
                    room.take(size_bytes);
                }
                continue;
            }
            let content = match reader.read(page.number, page.place) {
                Ok(read) => read.content,
                Err(PageError::Damaged(damage)) => {
                    let of = (&mut reader, page);
                    let left = self.pass_on_left(storage, &instead, pieces, of)?;
                    left.ok_or(PageError::Damaged(damage))?;
                    room.take(size_bytes);
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            room.take(size_bytes);
            if reader.has_damage_in(page.place.pair) {
                pieces.page_is_at_risk();
            }
            let taken = pieces.take(Restored::Page(page.number, &content));
            taken.map_err(refused)?;
        }
        pieces.end().map_err(refused)?;
        Ok(ControlFlow::Break(self.end(reader.damage())))
    }
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

/// The parts of a manifest's file, as far as they were read.
struct FileReading {
    parts: PartReader,
    first: FirstParts,
}

impl FileReading {
    fn open(storage: &dyn Storage, position: LogPosition) -> Result<Self, ManifestError> {
        let parts = PartReader::open(storage, position);
        let parts = parts.map_err(|error| failed(position, error))?;
        let first = FirstParts::of(&parts.header());
        Ok(Self { parts, first })
    }

    fn step(
        mut self,
        pieces: &mut dyn Pieces,
        room: &mut Room,
    ) -> Result<ControlFlow<ReadManifest, Self>, ManifestError> {
        let header = self.parts.header();
        let refused = |error| failed(header.position, error);
        let damaged = |offset: u64, what| {
            let damage = FormatError::Damaged(what);
            refused(ReadError::Format(offset, damage))
        };
        while !room.is_full() {
            let at = self.parts.offset();
            let Some(part) = self.parts.next_part().map_err(refused)? else {
                return match self.first.missing {
                    Some(0) => Ok(ControlFlow::Break(ReadManifest {
                        header,
                        table: self.first.table,
                        next_number: self.first.next_number,
                        damage: Vec::new(),
                        lost: Vec::new(),
                        unread: Vec::new(),
                    })),
                    Some(_) | None => Err(damaged(0, "the table of pages is not whole")),
                };
            };
            room.take(part.len() as u64);
            if !self.first.take(part).map_err(|what| damaged(at, what))? {
                let taken = pieces.take(Restored::Part(part));
                taken.map_err(|error| ManifestError::Restore(header.position, error))?;
            }
        }
        Ok(ControlFlow::Continue(self))
    }

    /// Reads all of it, and passes nothing on.
    fn finish(self) -> Result<ReadManifest, ManifestError> {
        let pieces = &mut All(&mut |_| Ok(()));
        match self.step(pieces, &mut Room::unlimited())? {
            ControlFlow::Break(read) => Ok(read),
            ControlFlow::Continue(_) => unreachable!("there is room for all of it"),
        }
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
