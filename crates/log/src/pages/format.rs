//! The bytes of page files: their names, their header, and the header of a page. Pure, no I/O.
//!
//! Decoding never panics, and uses no length before it was compared with what is there.

use super::{PageContent, PageNumber};
use crate::format::names::{self, Name};
use crate::format::{FORMAT_VERSION, FormatError, check_version, read_u32, read_u64, read_u128};
use crate::{LogId, LogPosition};

/// Pages begin behind so many bytes. The next page after a sync begins at a multiple of it: a disk loses that much at
/// once.
pub(super) const BLOCK_SIZE: u32 = 4096;

/// Pages begin at multiples of this.
pub(super) const ALIGNMENT: u32 = 8;

pub(super) const FILE_HEADER_SIZE: usize = 52;
/// A page's header without its groups.
pub(super) const PAGE_HEADER_SIZE: usize = 32;
/// What each group adds to it.
pub(super) const GROUP_HEADER_SIZE: usize = 8;

const MAGIC: [u8; 8] = *b"KEWPAGES";

/// Which of the two files of a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Copy {
    First,
    Second,
}

impl Copy {
    pub(super) const BOTH: [Self; 2] = [Self::First, Self::Second];

    pub(super) fn other(self) -> Self {
        match self {
            Self::First => Self::Second,
            Self::Second => Self::First,
        }
    }

    /// The number of the file of a pair.
    pub(super) fn file_of(self, pair: u32) -> u64 {
        2 * u64::from(pair) + u64::from(self == Self::Second)
    }
}

/// The numbers of the two files of a pair.
pub(crate) fn file_numbers(pair: u32) -> [u64; 2] {
    Copy::BOTH.map(|copy| copy.file_of(pair))
}

/// The name of a pair's file.
pub(super) fn name(pair: u32, copy: Copy) -> String {
    names::pages(copy.file_of(pair))
}

/// The pair of a file of that name.
pub(crate) fn pair_of(name: &str) -> Option<u32> {
    match names::parse(name) {
        Name::Pages(number) => u32::try_from(number / 2).ok(),
        _ => None,
    }
}

/// Which of the two files has that name.
pub(super) fn copy_of(name: &str) -> Option<Copy> {
    match names::parse(name) {
        Name::Pages(number) if number % 2 == 0 => Some(Copy::First),
        Name::Pages(_) => Some(Copy::Second),
        _ => None,
    }
}

/// The header of a page file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileHeader {
    pub(super) identity: LogId,
    /// Of the file, and not of its pair.
    pub(super) number: u64,
    /// Random, and the same in both files of a pair.
    pub(super) salt: u64,
}

impl FileHeader {
    pub(super) fn encode(&self) -> [u8; FILE_HEADER_SIZE] {
        let mut bytes = [0; FILE_HEADER_SIZE];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.identity.partition.to_le_bytes());
        bytes[16..32].copy_from_slice(&self.identity.cluster.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.number.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.salt.to_le_bytes());
        let crc = crc32c::crc32c(&bytes[..48]);
        bytes[48..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8; FILE_HEADER_SIZE]) -> Result<Self, FormatError> {
        if bytes[..8] != MAGIC {
            return Err(FormatError::Damaged("the page file has no magic"));
        }
        if read_u32(bytes, 48) != crc32c::crc32c(&bytes[..48]) {
            return Err(FormatError::Damaged(
                "the page file's header does not match its checksum",
            ));
        }
        check_version(read_u32(bytes, 8))?;
        Ok(Self {
            identity: LogId {
                cluster: read_u128(bytes, 16),
                partition: read_u32(bytes, 12),
            },
            number: read_u64(bytes, 32),
            salt: read_u64(bytes, 40),
        })
    }
}

/// What the checksums of a page begin with: so a page of another place, or of another file, never looks valid.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seal(u32);

impl Seal {
    pub(super) fn new(salt: u64, pair: u32, offset: u32) -> Self {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&salt.to_le_bytes());
        bytes[8..12].copy_from_slice(&pair.to_le_bytes());
        bytes[12..].copy_from_slice(&offset.to_le_bytes());
        Self(crc32c::crc32c(&bytes))
    }

    fn of_group(self, index: usize, bytes: &[u8]) -> u32 {
        let seeded = crc32c::crc32c_append(self.0, &(index as u64).to_le_bytes());
        crc32c::crc32c_append(seeded, bytes)
    }
}

/// The header of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PageHeader {
    pub(super) number: PageNumber,
    /// The position of the snapshot that wrote it.
    pub(super) position: LogPosition,
    pub(super) kind: u8,
    /// Where each group begins and ends in the page, and its checksum.
    pub(super) groups: Vec<GroupHeader>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct GroupHeader {
    pub(super) start: usize,
    pub(super) end: usize,
    crc: u32,
}

/// The size of a page's header with so many groups.
pub(super) fn header_size(group_count: usize) -> usize {
    PAGE_HEADER_SIZE + group_count * GROUP_HEADER_SIZE
}

/// The size of a page with this content.
pub(super) fn page_size(content: &PageContent) -> usize {
    header_size(content.group_count()) + content.size_bytes()
}

/// Appends a page to `out`.
pub(super) fn put_page(
    out: &mut Vec<u8>,
    seal: Seal,
    (number, position): (PageNumber, LogPosition),
    content: &PageContent,
) {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&as_u32(page_size(content)).to_le_bytes());
    out.extend_from_slice(&number.as_u64().to_le_bytes());
    out.extend_from_slice(&position.as_u64().to_le_bytes());
    out.extend_from_slice(&as_u32(content.group_count()).to_le_bytes());
    out.extend_from_slice(&[content.kind, 0, 0, 0]);
    for (index, group) in content.groups().enumerate() {
        out.extend_from_slice(&as_u32(group.len()).to_le_bytes());
        out.extend_from_slice(&seal.of_group(index, group).to_le_bytes());
    }
    let crc = crc32c::crc32c_append(seal.0, &out[start + 4..]);
    out[start..start + 4].copy_from_slice(&crc.to_le_bytes());
    content.groups().for_each(|it| out.extend_from_slice(it));
}

/// A page is below 4 GiB: its parts are pieces of a snapshot.
fn as_u32(size: usize) -> u32 {
    u32::try_from(size).expect("a page is far below 4 GiB")
}

/// How many bytes the header has of which these are the first ones, in a page of `size` bytes. `None` if they are no
/// header.
pub(super) fn header_size_in(first: &[u8; PAGE_HEADER_SIZE], size: usize) -> Option<usize> {
    let count = usize::try_from(read_u32(first, 24)).ok()?;
    let table = count.checked_mul(GROUP_HEADER_SIZE)?;
    let header = PAGE_HEADER_SIZE.checked_add(table)?;
    (header <= size).then_some(header)
}

impl PageHeader {
    /// Decodes the header of a page of `size` bytes: `bytes` are the whole header.
    pub(super) fn decode(seal: Seal, bytes: &[u8], size: usize) -> Result<Self, FormatError> {
        let damaged = FormatError::Damaged;
        if bytes.len() < PAGE_HEADER_SIZE
            || read_u32(bytes, 0) != crc32c::crc32c_append(seal.0, &bytes[4..])
        {
            return Err(damaged("a page's header does not match its checksum"));
        }
        let mut end = bytes.len();
        let mut groups = Vec::new();
        for group in bytes[PAGE_HEADER_SIZE..].chunks_exact(GROUP_HEADER_SIZE) {
            let start = end;
            let length = usize::try_from(read_u32(group, 0)).ok();
            end = length
                .and_then(|length| start.checked_add(length))
                .filter(|end| *end <= size)
                .ok_or(damaged("a page's groups are longer than the page"))?;
            groups.push(GroupHeader {
                start,
                end,
                crc: read_u32(group, 4),
            });
        }
        let is_whole = header_size(groups.len()) == bytes.len()
            && usize::try_from(read_u32(bytes, 24)) == Ok(groups.len());
        if !is_whole || end != size || usize::try_from(read_u32(bytes, 4)) != Ok(size) {
            return Err(damaged("a page's size is not that of its groups"));
        }
        Ok(Self {
            number: PageNumber::new(read_u64(bytes, 8)),
            position: LogPosition::new(read_u64(bytes, 16)),
            kind: bytes[28],
            groups,
        })
    }
}

/// Whether a group's bytes are those that were written.
pub(super) fn is_group(seal: Seal, index: usize, header: GroupHeader, bytes: &[u8]) -> bool {
    seal.of_group(index, bytes) == header.crc
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn content(groups: &[Vec<u8>]) -> PageContent {
        let mut content = PageContent::new(7);
        for group in groups {
            content.add_group(|out| out.extend_from_slice(group));
        }
        content
    }

    fn groups() -> impl Strategy<Value = Vec<Vec<u8>>> {
        prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..6)
    }

    /// What a reader does with the bytes of a page.
    fn read(seal: Seal, bytes: &[u8]) -> Option<(PageHeader, Vec<Vec<u8>>)> {
        let first = bytes.first_chunk::<PAGE_HEADER_SIZE>()?;
        let header_size = header_size_in(first, bytes.len())?;
        let header = PageHeader::decode(seal, &bytes[..header_size], bytes.len()).ok()?;
        let groups = header.groups.iter().enumerate().map(|(index, group)| {
            let bytes = &bytes[group.start..group.end];
            is_group(seal, index, *group, bytes).then(|| bytes.to_vec())
        });
        let groups = groups.collect::<Option<Vec<_>>>()?;
        Some((header, groups))
    }

    proptest! {
        #[test]
        fn a_page_is_read_as_it_was_written_and_nothing_else_is(
            groups in groups(),
            number: u64,
            flipped in any::<prop::sample::Index>(),
            bit in 0_u8..8,
        ) {
            let seal = Seal::new(1, 2, 3);
            let mut bytes = Vec::new();
            let of = (PageNumber::new(number), LogPosition::new(9));
            put_page(&mut bytes, seal, of, &content(&groups));
            let (header, found) = read(seal, &bytes).unwrap();
            prop_assert_eq!((header.number, header.position), of);
            prop_assert_eq!((header.kind, &found), (7, &groups));
            prop_assert_eq!(bytes.len(), page_size(&content(&groups)));
            for other in [Seal::new(0, 2, 3), Seal::new(1, 1, 3), Seal::new(1, 2, 4)] {
                prop_assert!(read(other, &bytes).is_none());
            }
            for cut in 0..bytes.len() {
                prop_assert!(read(seal, &bytes[..cut]).is_none());
            }
            let at = flipped.index(bytes.len());
            bytes[at] ^= 1 << bit;
            prop_assert!(read(seal, &bytes).is_none(), "byte {}", at);
        }

        #[test]
        fn garbage_is_no_page(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(read(Seal::new(1, 2, 3), &bytes).is_none());
            let mut header = [0; FILE_HEADER_SIZE];
            let count = bytes.len().min(header.len());
            header[..count].copy_from_slice(&bytes[..count]);
            prop_assert!(FileHeader::decode(&header).is_err());
        }
    }

    #[test]
    fn a_group_is_valid_in_its_own_place_only() {
        let seal = Seal::new(1, 2, 3);
        let mut bytes = Vec::new();
        let of = (PageNumber::new(1), LogPosition::new(9));
        put_page(&mut bytes, seal, of, &content(&[vec![5; 8], vec![6; 8]]));
        let (header, _) = read(seal, &bytes).unwrap();
        assert!(is_group(seal, 0, header.groups[0], &[5; 8]));
        assert!(!is_group(seal, 1, header.groups[0], &[5; 8]));
    }

    #[test]
    fn a_file_says_what_it_is() {
        let header = FileHeader {
            identity: LogId {
                cluster: 3,
                partition: 4,
            },
            number: 5,
            salt: 6,
        };
        let bytes = header.encode();
        assert_eq!(FileHeader::decode(&bytes), Ok(header));
        for at in 0..bytes.len() {
            let mut damaged = bytes;
            damaged[at] ^= 1;
            assert!(FileHeader::decode(&damaged).is_err(), "byte {at}");
        }
    }

    #[test]
    fn names_are_those_of_files() {
        assert_eq!(name(3, Copy::Second), "pages-00000000000000000007");
        assert_eq!(pair_of("pages-00000000000000000007"), Some(3));
        assert_eq!(pair_of("pages-00000000000000000006"), Some(3));
        for foreign in [
            "pages-7",
            "pages-",
            "page-00000000000000000007",
            "pages-0000000000000000000x",
        ] {
            assert_eq!(pair_of(foreign), None);
        }
        assert_eq!(pair_of("pages-18446744073709551615"), None);
    }
}
