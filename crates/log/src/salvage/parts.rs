//! Reads the whole parts of a damaged snapshot.
//!
//! The checksum of a part continues the one stored before it. So each part can be checked by itself with the
//! stored checksum of its predecessor, even if the predecessor is damaged.

use super::{Gap, Rescue};
use crate::LogPosition;
use crate::format::{names, read_u32};
use crate::recovery::OpenError;
use crate::segment::memory_size;
use crate::snapshot::{HEADER_SIZE, PART_HEADER_SIZE, TRAILER_SIZE, part_crc};
use crate::storage::{self, Storage};

pub(super) fn read(
    storage: &dyn Storage,
    position: LogPosition,
    rescue: &mut dyn Rescue,
) -> Result<Vec<Gap>, OpenError> {
    let name = names::snapshot(position.as_u64());
    let file = storage::open(storage, &name)?;
    let mut bytes = vec![0; memory_size(storage::len(&*file, &name)?)];
    let count = storage::read_at(&*file, &name, &mut bytes, 0)?;
    bytes.truncate(count);

    let mut gaps = Vec::new();
    let mut gap = |offset: usize, what: &str, rescue: &mut dyn Rescue| {
        let gap = Gap {
            file: name.clone(),
            offset: offset as u64,
            span: None,
            what: what.to_owned(),
        };
        rescue.gap(&gap);
        gaps.push(gap);
    };
    let mut at = HEADER_SIZE;
    let mut before = crc_at(&bytes, HEADER_SIZE - 4);
    loop {
        let Some(part) = Part::at(&bytes, at) else {
            if !is_trailer(&bytes, at) {
                gap(at, "the snapshot ends too early", rescue);
            }
            return Ok(gaps);
        };
        if part.is_whole(before) {
            if let Err(error) = rescue.snapshot_part(part.bytes) {
                gap(at, &format!("a part cannot be used: {error}"), rescue);
            }
            at += PART_HEADER_SIZE + part.bytes.len();
        } else {
            gap(at, "a part does not match its checksum", rescue);
            at = part.next(&bytes, at, position);
        }
        before = part.crc;
    }
}

fn crc_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).map_or(0, |crc| read_u32(crc, 0))
}

fn is_trailer(bytes: &[u8], at: usize) -> bool {
    bytes
        .get(at..)
        .is_some_and(|rest| rest.len() == TRAILER_SIZE && rest.starts_with(b"DONE"))
}

struct Part<'a> {
    header: [u8; PART_HEADER_SIZE],
    /// Its content, as far as the file goes.
    bytes: &'a [u8],
    is_complete: bool,
    crc: u32,
}

impl<'a> Part<'a> {
    fn at(file: &'a [u8], at: usize) -> Option<Self> {
        if is_trailer(file, at) {
            return None;
        }
        let (header, rest) = file.get(at..)?.split_first_chunk()?;
        let length = read_u32(header, 8) as usize;
        Some(Self {
            header: *header,
            bytes: &rest[..length.min(rest.len())],
            is_complete: length <= rest.len(),
            crc: read_u32(header, 12),
        })
    }

    fn is_whole(&self, before: u32) -> bool {
        self.is_complete && part_crc(before, &self.header, self.bytes) == self.crc
    }

    /// Where the next part begins, if this one is damaged: where its length says, or if nothing
    /// begins there, where the position that stands before every part shows again.
    fn next(&self, file: &[u8], at: usize, position: LogPosition) -> usize {
        let mark = position.as_u64().to_le_bytes();
        let by_length = at + PART_HEADER_SIZE + self.bytes.len();
        let begins = |next: usize| {
            is_trailer(file, next) || file.get(next..).is_some_and(|rest| rest.starts_with(&mark))
        };
        if self.is_complete && begins(by_length) {
            return by_length;
        }
        (at + 8..file.len())
            .find(|next| begins(*next))
            .unwrap_or(file.len())
    }
}
