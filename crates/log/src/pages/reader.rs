//! Reads pages, from the second copy if the first one is damaged.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use thiserror::Error;

use super::format::{
    BLOCK_SIZE, Copy, FILE_HEADER_SIZE, FileHeader, GroupHeader, PAGE_HEADER_SIZE, PageHeader,
    Seal, header_size_in, is_group, name,
};
use super::{PageContent, PageLeft, PageNumber, PagePlace};
use crate::Damage;
use crate::format::{FORMAT_VERSION, FormatError, names};
use crate::segment::memory_size;
use crate::storage::{self, IoFailure, Storage, StorageFile};
use crate::{LogId, LogPosition};

/// So many files are open at most: one of each pair that a state of 2 GiB needs.
const OPEN_MAX: usize = 32;

/// A page up to this size is read as a whole, if groups of it are: one read takes hardly longer than another.
const WHOLE_SIZE_BYTES: u32 = 16 << 10;

/// So many damaged places are noted of a file. Which files are damaged is always noted.
pub(crate) const NOTED_MAX: usize = 100;

/// Where a copy of a page is not what was written, and what is wrong there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageDamage {
    /// The file.
    pub file: String,
    /// Where the page begins in it.
    pub offset: u64,
    /// What is wrong.
    pub what: String,
}

/// Why a page cannot be read.
#[derive(Debug, Error)]
pub enum PageError {
    /// The storage failed. The page may be whole.
    #[error(transparent)]
    Io(#[from] IoFailure),
    /// Both copies are damaged.
    #[error("{} is damaged at byte {}, and so is its copy: {}", .0.file, .0.offset, .0.what)]
    Damaged(PageDamage),
    /// A newer Kew has written the file.
    #[error(
        "{file} has format version {found}, and this version of Kew reads versions up to {}",
        FORMAT_VERSION
    )]
    Newer {
        /// The file.
        file: String,
        /// The version of its format.
        found: u32,
    },
}

impl PageError {
    /// Whether each copy is damaged or has bad sectors: another part of it may be whole. A file of a newer Kew is none of
    /// both, and a missing descriptor says nothing of a copy.
    fn is_of_copies(&self) -> bool {
        match self {
            Self::Damaged(_) => true,
            Self::Io(failure) => !failure.is_no_descriptor(),
            Self::Newer { .. } => false,
        }
    }
}

/// A page that was read.
#[derive(Debug)]
pub struct ReadPage {
    /// The position of the snapshot that wrote it.
    pub position: LogPosition,
    /// What is in it.
    pub content: PageContent,
}

/// Reads pages of one log. It keeps a few files open, and notes the copies that are damaged.
pub struct PageReader<'a> {
    storage: &'a dyn Storage,
    identity: LogId,
    open: BTreeMap<String, OpenFile>,
    /// Whether what is read must come from the disk, and not from memory, where the bytes may be better.
    is_from_disk: bool,
    damage: Vec<PageDamage>,
    /// Where damage is noted, by file.
    noted: BTreeMap<String, BTreeSet<u64>>,
    /// Files of which no page can be read, and why.
    lost: BTreeMap<String, FormatError>,
    /// Whether several groups of a page are read, one after the other.
    reads_whole: bool,
    /// The page that was read last, of each copy.
    whole: BTreeMap<String, (PagePlace, WholePage)>,
}

/// What a reader knows of the files, so that another one can go on with it.
#[derive(Default)]
pub(super) struct Known {
    open: BTreeMap<String, OpenFile>,
    damage: Vec<PageDamage>,
    noted: BTreeMap<String, BTreeSet<u64>>,
    lost: BTreeMap<String, FormatError>,
}

/// All bytes of a page. `None` if they cannot be read together.
type WholePage = Option<Arc<[u8]>>;

#[derive(Clone)]
struct OpenFile {
    file: Arc<dyn StorageFile>,
    size_bytes: u64,
    salt: u64,
}

/// The header of a file, or what is wrong with it.
type DecodedHeader = Result<FileHeader, FormatError>;

/// Why a copy cannot be read.
enum CopyError {
    Io(IoFailure),
    Damaged(FormatError),
    /// What a newer Kew has written is never taken for damage, whatever the other copy is.
    Newer {
        file: String,
        found: u32,
    },
}

impl From<IoFailure> for CopyError {
    fn from(failure: IoFailure) -> Self {
        Self::Io(failure)
    }
}

impl From<FormatError> for CopyError {
    fn from(error: FormatError) -> Self {
        Self::Damaged(error)
    }
}

/// A copy of a page.
struct At<'a> {
    file: OpenFile,
    name: &'a str,
    seal: Seal,
    place: PagePlace,
    /// All of its bytes, if they were read together.
    whole: WholePage,
}

impl<'a> PageReader<'a> {
    /// A reader of the pages of this log.
    pub fn new(storage: &'a dyn Storage, identity: LogId) -> Self {
        Self {
            storage,
            identity,
            open: BTreeMap::new(),
            is_from_disk: false,
            damage: Vec::new(),
            noted: BTreeMap::new(),
            lost: BTreeMap::new(),
            reads_whole: false,
            whole: BTreeMap::new(),
        }
    }

    /// The same, with what another one knows of the files.
    pub(super) fn knowing(storage: &'a dyn Storage, identity: LogId, known: Known) -> Self {
        let Known {
            open,
            damage,
            noted,
            lost,
        } = known;
        Self {
            open,
            damage,
            noted,
            lost,
            ..Self::new(storage, identity)
        }
    }

    /// What it knows of the files.
    pub(super) fn into_known(self) -> Known {
        Known {
            open: self.open,
            damage: self.damage,
            noted: self.noted,
            lost: self.lost,
        }
    }

    /// The same, for several groups of a page, one after the other: the disk is asked once for those of a small page.
    pub(super) fn of_groups(storage: &'a dyn Storage, identity: LogId) -> Self {
        Self {
            reads_whole: true,
            ..Self::new(storage, identity)
        }
    }

    /// The same, for what is on the disk.
    pub(crate) fn from_disk(storage: &'a dyn Storage, identity: LogId) -> Self {
        Self {
            is_from_disk: true,
            ..Self::new(storage, identity)
        }
    }

    /// Where damage was found: each place once, at most 100 of a file. What is wrong with a file as a whole is at its
    /// byte 0.
    pub fn damage(&self) -> &[PageDamage] {
        &self.damage
    }

    /// Whether damage was found in one of the two files of a pair.
    pub(super) fn has_damage_in(&self, pair: u32) -> bool {
        let mut files = Copy::BOTH.iter().map(|copy| name(pair, *copy));
        !self.noted.is_empty() && files.any(|file| self.noted.contains_key(&file))
    }

    /// Whether a file of a pair is missing, or damaged as a whole.
    pub(super) fn has_lost_file(&self, pair: u32) -> bool {
        let mut files = Copy::BOTH.iter().map(|copy| name(pair, *copy));
        files.any(|file| self.lost.contains_key(&file))
    }

    /// Reads a page: from the first copy that is whole, or else each group from one that has it.
    pub fn read(&mut self, number: PageNumber, place: PagePlace) -> Result<ReadPage, PageError> {
        match self.read_either(place, |copy| copy.read(number)) {
            Err(error) if error.is_of_copies() => {
                let by_groups = self.read_by_groups(number, place);
                by_groups.map_err(|second| match second.is_of_copies() {
                    true => error,
                    false => second,
                })
            }
            read => read,
        }
    }

    fn read_by_groups(
        &mut self,
        number: PageNumber,
        place: PagePlace,
    ) -> Result<ReadPage, PageError> {
        let header = self.read_either(place, |copy| copy.read_header(number))?;
        let mut content = PageContent::new(header.kind);
        for index in 0..header.groups.len() {
            let group = self.read_group(number, place, index)?;
            content.add_group(|out| out.extend_from_slice(&group));
        }
        Ok(ReadPage {
            position: header.position,
            content,
        })
    }

    /// Reads what is left of a page of which both copies are damaged. What can be read later perhaps, but not now, is an
    /// error.
    pub(crate) fn read_left(
        &mut self,
        number: PageNumber,
        place: PagePlace,
    ) -> Result<PageLeft, PageError> {
        let header = self.read_either(place, |copy| copy.read_header(number));
        let Some(header) = unless_damaged(header)? else {
            return Ok(PageLeft::default());
        };
        let mut groups = Vec::new();
        for index in 0..header.groups.len() {
            groups.push(unless_damaged(self.read_group(number, place, index))?);
        }
        let kind = header.kind;
        Ok(PageLeft { kind, groups })
    }

    /// Reads one group of a page, and no other.
    pub fn read_group(
        &mut self,
        number: PageNumber,
        place: PagePlace,
        index: usize,
    ) -> Result<Vec<u8>, PageError> {
        self.read_either(place, |copy| copy.read_group(number, index))
    }

    /// Reads both copies of a page. Returns how many are whole; what is damaged, or cannot be read, is noted. Fails if no
    /// descriptor is left, and if a newer Kew has written a file.
    pub fn verify(&mut self, number: PageNumber, place: PagePlace) -> Result<usize, PageError> {
        let mut whole = 0;
        for copy in Copy::BOTH {
            match self.read_copy(place, copy, &|copy: At<'_>| copy.read(number)) {
                Ok(_) => whole += 1,
                Err(CopyError::Io(failure)) if failure.is_no_descriptor() => {
                    return Err(failure.into());
                }
                Err(CopyError::Newer { file, found }) => {
                    return Err(PageError::Newer { file, found });
                }
                Err(CopyError::Io(failure)) => self.note_page(place, copy, failure.to_string()),
                Err(CopyError::Damaged(error)) => self.note_copy(place, copy, &error),
            }
        }
        Ok(whole)
    }

    /// The bytes of a page as they lie in both files.
    pub(super) fn raw(
        &mut self,
        number: PageNumber,
        place: PagePlace,
    ) -> Result<Vec<u8>, PageError> {
        self.read_either(place, |copy| copy.raw(number))
    }

    /// What is damaged in one copy of a page.
    pub(super) fn damage_of(
        &mut self,
        number: PageNumber,
        place: PagePlace,
        copy: Copy,
    ) -> Result<Option<FormatError>, PageError> {
        match self.read_copy(place, copy, &|copy: At<'_>| copy.raw(number)) {
            Ok(_) => Ok(None),
            Err(CopyError::Io(failure)) => Err(failure.into()),
            Err(CopyError::Newer { file, found }) => Err(PageError::Newer { file, found }),
            Err(CopyError::Damaged(error)) => Ok(Some(error)),
        }
    }

    /// A failed read of one copy does not matter if the other one is whole: it is a bad sector, perhaps, and is noted like
    /// damage. If the other one is damaged, the failure comes first: the copy that could not be read may be whole. A missing
    /// descriptor comes before other failures: it passes.
    fn read_either<T>(
        &mut self,
        place: PagePlace,
        read: impl Fn(At<'_>) -> Result<T, CopyError>,
    ) -> Result<T, PageError> {
        let mut failed: Option<(Copy, IoFailure)> = None;
        let mut damaged: Option<(Copy, FormatError)> = None;
        for copy in Copy::BOTH {
            match self.read_copy(place, copy, &read) {
                Ok(found) => {
                    let lasting = failed.filter(|(_, failure)| !failure.is_no_descriptor());
                    if let Some((copy, failure)) = lasting {
                        self.note_page(place, copy, failure.to_string());
                    }
                    return Ok(found);
                }
                Err(CopyError::Newer { file, found }) => {
                    return Err(PageError::Newer { file, found });
                }
                Err(CopyError::Io(failure)) if failed.is_none() || failure.is_no_descriptor() => {
                    failed = Some((copy, failure));
                }
                Err(CopyError::Io(_)) => {}
                Err(CopyError::Damaged(error)) => {
                    self.note_copy(place, copy, &error);
                    damaged = Some((copy, error));
                }
            }
        }
        match (failed, damaged) {
            (Some((_, failure)), _) => Err(failure.into()),
            (None, Some((copy, error))) => Err(PageError::Damaged(PageDamage {
                file: name(place.pair, copy),
                offset: place.offset.into(),
                what: error.to_string(),
            })),
            (None, None) => unreachable!("a copy is read, damaged, or not readable"),
        }
    }

    fn note_page(&mut self, place: PagePlace, copy: Copy, what: String) {
        self.note(name(place.pair, copy), place.offset.into(), what);
    }

    /// What is wrong with a file as a whole is noted already.
    fn note_copy(&mut self, place: PagePlace, copy: Copy, error: &FormatError) {
        if !self.lost.contains_key(&name(place.pair, copy)) {
            self.note_page(place, copy, error.to_string());
        }
    }

    fn note(&mut self, file: String, offset: u64, what: String) {
        let noted = self.noted.entry(file.clone()).or_default();
        if noted.len() < NOTED_MAX && noted.insert(offset) {
            self.damage.push(PageDamage { file, offset, what });
        }
    }

    fn read_copy<T>(
        &mut self,
        place: PagePlace,
        copy: Copy,
        read: &impl Fn(At<'_>) -> Result<T, CopyError>,
    ) -> Result<T, CopyError> {
        let name = name(place.pair, copy);
        let file = self.open(&name, place.pair, copy)?;
        let end = u64::from(place.offset) + u64::from(place.size_bytes);
        if self.is_from_disk {
            file.file
                .forget_cached(place.offset.into(), place.size_bytes.into());
        }
        if end > file.size_bytes {
            return Err(FormatError::Damaged("the page file ends before the page").into());
        }
        let whole = self.whole(&file, &name, place);
        read(At {
            seal: Seal::new(file.salt, place.pair, place.offset),
            file,
            name: &name,
            place,
            whole,
        })
    }

    /// All bytes of a small page, if they can be read together: a bad sector concerns only the group in it.
    fn whole(&mut self, file: &OpenFile, name: &str, place: PagePlace) -> WholePage {
        if !self.reads_whole || place.size_bytes > WHOLE_SIZE_BYTES {
            return None;
        }
        if let Some((of, bytes)) = self.whole.get(name)
            && *of == place
        {
            return bytes.clone();
        }
        let mut bytes = vec![0; memory_size(place.size_bytes.into())];
        let count = storage::read_at(&*file.file, name, &mut bytes, place.offset.into());
        let is_read = count.is_ok_and(|count| count == bytes.len());
        let bytes: WholePage = is_read.then(|| bytes.into());
        if self.whole.len() >= OPEN_MAX {
            self.whole.clear();
        }
        self.whole.insert(name.to_owned(), (place, bytes.clone()));
        bytes
    }

    fn open(&mut self, name: &str, pair: u32, copy: Copy) -> Result<OpenFile, CopyError> {
        if let Some(open) = self.open.get(name) {
            return Ok(open.clone());
        }
        if let Some(lost) = self.lost.get(name) {
            return Err(lost.clone().into());
        }
        match self.open_anew(name, pair, copy) {
            Ok(open) => {
                if self.open.len() >= OPEN_MAX {
                    self.open.pop_first();
                }
                self.open.insert(name.to_owned(), open.clone());
                Ok(open)
            }
            Err(CopyError::Damaged(error)) => {
                self.note(name.to_owned(), 0, error.to_string());
                self.lost.insert(name.to_owned(), error.clone());
                Err(error.into())
            }
            Err(failed @ (CopyError::Io(_) | CopyError::Newer { .. })) => Err(failed),
        }
    }

    /// Both files of a pair have the same salt, and a header has nothing else that is needed to read pages. So a damaged one
    /// costs nothing while the other one is whole.
    fn open_anew(&mut self, name: &str, pair: u32, copy: Copy) -> Result<OpenFile, CopyError> {
        let (file, header) = self.header(name, pair, copy)?;
        let salt = match header {
            Ok(header) => header.salt,
            Err(error) => {
                let other = copy.other();
                let salt = match self.header(&super::format::name(pair, other), pair, other) {
                    Ok((_, Ok(header))) => header.salt,
                    Err(newer @ CopyError::Newer { .. }) => return Err(newer),
                    Ok((_, Err(_))) | Err(CopyError::Io(_) | CopyError::Damaged(_)) => {
                        return Err(error.into());
                    }
                };
                self.note(name.to_owned(), 0, error.to_string());
                salt
            }
        };
        Ok(OpenFile {
            size_bytes: storage::len(&*file, name)?,
            salt,
            file,
        })
    }

    /// Opens a file and reads its header.
    fn header(
        &self,
        name: &str,
        pair: u32,
        copy: Copy,
    ) -> Result<(Arc<dyn StorageFile>, DecodedHeader), CopyError> {
        let file = match storage::open(self.storage, name) {
            Err(failure) if failure.is_not_found() => {
                return Err(FormatError::Damaged("the page file is missing").into());
            }
            opened => opened?,
        };
        if self.is_from_disk {
            file.forget_cached(0, BLOCK_SIZE.into());
        }
        let header = header_of(&*file, name)?;
        if let Err(FormatError::Newer(found)) = header {
            let file = name.to_owned();
            return Err(CopyError::Newer { file, found });
        }
        if let Ok(header) = &header
            && (header.identity != self.identity || header.number != copy.file_of(pair))
        {
            let what = "the page file is one of another log, or another one";
            return Err(FormatError::Damaged(what).into());
        }
        Ok((file, header))
    }
}

/// What was read. `None` if both copies of it are damaged.
fn unless_damaged<T>(read: Result<T, PageError>) -> Result<Option<T>, PageError> {
    match read {
        Ok(read) => Ok(Some(read)),
        Err(PageError::Damaged(_)) => Ok(None),
        Err(error @ (PageError::Io(_) | PageError::Newer { .. })) => Err(error),
    }
}

/// The header of a file of pages.
pub(super) fn header_of(
    file: &dyn StorageFile,
    name: &str,
) -> Result<Result<FileHeader, FormatError>, IoFailure> {
    let mut bytes = [0; FILE_HEADER_SIZE];
    Ok(match storage::read_at(file, name, &mut bytes, 0)? {
        FILE_HEADER_SIZE => FileHeader::decode(&bytes),
        _ => Err(FormatError::Damaged("the page file has no header")),
    })
}

/// What is wrong with the header of a file of pages, if anything is.
pub(crate) fn header_damage(
    storage: &dyn Storage,
    name: &str,
) -> Result<Option<Damage>, PageError> {
    let opened = storage::open(storage, name)?;
    let file = name.to_owned();
    let what = match header_of(&*opened, name)? {
        Ok(header) if names::pages(header.number) == name => return Ok(None),
        Ok(_) => "the page file is another one".to_owned(),
        Err(FormatError::Newer(found)) => return Err(PageError::Newer { file, found }),
        Err(error @ FormatError::Damaged(_)) => error.to_string(),
    };
    Ok(Some(Damage {
        file,
        offset: 0,
        what,
    }))
}

impl At<'_> {
    fn read(self, number: PageNumber) -> Result<ReadPage, CopyError> {
        let bytes = self.bytes(0, self.place.size_bytes)?;
        Ok(self.decode(number, &bytes)?)
    }

    fn raw(self, number: PageNumber) -> Result<Vec<u8>, CopyError> {
        let bytes = self.bytes(0, self.place.size_bytes)?;
        self.decode(number, &bytes)?;
        Ok(bytes)
    }

    fn decode(&self, number: PageNumber, bytes: &[u8]) -> Result<ReadPage, FormatError> {
        let first = bytes.first_chunk::<PAGE_HEADER_SIZE>();
        let header_size = first.and_then(|first| header_size_in(first, bytes.len()));
        let header = header_size.and_then(|size| bytes.get(..size));
        let header = self.header(number, header.unwrap_or_default())?;
        let mut content = PageContent::new(header.kind);
        for (index, group) in header.groups.iter().enumerate() {
            let bytes = bytes.get(group.start..group.end).unwrap_or_default();
            let bytes = self.group(index, *group, bytes)?;
            content.add_group(|out| out.extend_from_slice(bytes));
        }
        Ok(ReadPage {
            position: header.position,
            content,
        })
    }

    fn read_header(&self, number: PageNumber) -> Result<PageHeader, CopyError> {
        let size = memory_size(self.place.size_bytes.into());
        let first = self.bytes(0, as_u32(PAGE_HEADER_SIZE.min(size)))?;
        let first = first.first_chunk::<PAGE_HEADER_SIZE>();
        let header_size = first.and_then(|first| header_size_in(first, size));
        let header = self.bytes(0, as_u32(header_size.unwrap_or_default()))?;
        Ok(self.header(number, &header)?)
    }

    fn read_group(self, number: PageNumber, index: usize) -> Result<Vec<u8>, CopyError> {
        let header = self.read_header(number)?;
        let group = header.groups.get(index).copied();
        let group = group.ok_or(FormatError::Damaged("the page has no such group"))?;
        let bytes = self.bytes(as_u32(group.start), as_u32(group.end - group.start))?;
        self.group(index, group, &bytes)?;
        Ok(bytes)
    }

    fn header(&self, number: PageNumber, bytes: &[u8]) -> Result<PageHeader, FormatError> {
        let size = memory_size(self.place.size_bytes.into());
        let header = PageHeader::decode(self.seal, bytes, size)?;
        if header.number != number {
            return Err(FormatError::Damaged("the page is another one"));
        }
        Ok(header)
    }

    fn group<'b>(
        &self,
        index: usize,
        header: GroupHeader,
        bytes: &'b [u8],
    ) -> Result<&'b [u8], FormatError> {
        match is_group(self.seal, index, header, bytes) {
            true => Ok(bytes),
            false => Err(FormatError::Damaged(
                "a group of a page does not match its checksum",
            )),
        }
    }

    /// Bytes of the page. The file has them.
    fn bytes(&self, from: u32, size_bytes: u32) -> Result<Vec<u8>, CopyError> {
        if let Some(whole) = &self.whole {
            let from = memory_size(from.into());
            let bytes = whole.get(from..from + memory_size(size_bytes.into()));
            return Ok(bytes.unwrap_or_default().to_vec());
        }
        let mut bytes = vec![0; memory_size(size_bytes.into())];
        let offset = u64::from(self.place.offset) + u64::from(from);
        let count = storage::read_at(&*self.file.file, self.name, &mut bytes, offset)?;
        match count == bytes.len() {
            true => Ok(bytes),
            false => Err(FormatError::Damaged("the page file ends before the page").into()),
        }
    }
}

/// A size within a page, whose whole size has 32 bits.
fn as_u32(size: usize) -> u32 {
    u32::try_from(size).expect("a part of a page is not longer than the page")
}
