//! Restores the header of a segment from other knowledge, and from its records.
//!
//! A reader needs only two fields of a header: the position of the file's first byte, and the seal. For any
//! position, the seal follows from the first record: a checksum is an affine function of its start value, so
//! it can be solved for the seal. The records cannot show whether the position was right, because the seal
//! compensates for it. But the checksums of bodies cover their position and no seal, and the durable
//! position in a record lies just before its own.

use std::sync::Arc;

use crate::batch::{Entries, Entry};
use crate::format::{
    RECORD_HEADER_SIZE, RecordHeader, RecordKind, SEGMENT_HEADER_BLOCK_SIZE, SEGMENT_HEADER_SIZE,
    SegmentHeader, body_crc, read_u32, read_u64, record_crc,
};
use crate::reader::records::RecordReader;
use crate::recovery::OpenError;
use crate::segment::{Segment, memory_size};
use crate::storage::{self, Storage, StorageFile};
use crate::{Epoch, LogPosition};

/// A segment with a header under which its records are valid, if there is one.
pub(super) fn restore(
    storage: &dyn Storage,
    name: &str,
    number: u64,
    others: &[Arc<Segment>],
) -> Result<Option<Segment>, OpenError> {
    let file = storage::open(storage, name)?;
    // The file may be cut in the middle of a record.
    let size_bytes = storage::len(&*file, name)?.next_multiple_of(8);
    if size_bytes <= SEGMENT_HEADER_BLOCK_SIZE {
        return Ok(None);
    }
    let mut bytes = [0; SEGMENT_HEADER_SIZE];
    storage::read_at(&*file, name, &mut bytes, 0)?;
    let written = SegmentHeader {
        partition: 0,
        number,
        epoch: Epoch::new(read_u64(&bytes, 24)),
        base: LogPosition::new(read_u64(&bytes, 32)),
        capacity_bytes: read_u64(&bytes, 40),
        salt: read_u64(&bytes, 48),
        // Nothing is accepted that no record confirms.
        durable: LogPosition::default(),
    };
    let candidate = |header| Segment {
        header,
        name: name.to_owned(),
        file: Arc::clone(&file),
    };
    // The damage may not affect any field that matters.
    for capacity_bytes in [written.capacity_bytes, size_bytes] {
        let header = SegmentHeader {
            capacity_bytes,
            ..written
        };
        if header.check().is_ok() && holds_records(&candidate(header))? {
            return Ok(Some(candidate(header)));
        }
    }
    let first = first_record(&*file, name, size_bytes)?;
    for base in likely_bases(written.base, number, size_bytes, others) {
        let mut header = SegmentHeader {
            base,
            capacity_bytes: size_bytes,
            epoch: likely_epoch(written.epoch, number, others),
            ..written
        };
        if header.check().is_err() {
            continue;
        }
        let Some(salt) = first.as_ref().and_then(|first| first.solve(header)) else {
            continue;
        };
        header.salt = salt;
        if records_agree(&candidate(header))? {
            return Ok(Some(candidate(header)));
        }
    }
    Ok(None)
}

/// How many records are searched for a body.
const RECORDS_TRIED: usize = 1000;

fn holds_records(segment: &Segment) -> Result<bool, OpenError> {
    let found = RecordReader::new(segment).find_from(segment.first())?;
    Ok(found.is_some())
}

/// Whether the records confirm the positions of this header.
fn records_agree(segment: &Segment) -> Result<bool, OpenError> {
    let mut reader = RecordReader::new(segment);
    let mut at = segment.first();
    let mut durable = LogPosition::default();
    for _ in 0..RECORDS_TRIED {
        let Ok(record) = reader.read(at)? else {
            break;
        };
        if record.header.durable > at {
            return Ok(false);
        }
        durable = durable.max(record.header.durable);
        if record.header.kind == RecordKind::Batch {
            for entry in Entries::new(record.payload) {
                match entry {
                    Ok(Entry::Body { offset, crc, body }) => {
                        return Ok(crc == body_crc(at, offset, body));
                    }
                    Ok(Entry::Event(_)) => {}
                    Err(_) => return Ok(false),
                }
            }
        }
        at = record.end();
    }
    // Without any body: every commit after the first knows that the first is durable.
    Ok(durable > segment.first())
}

/// The epoch only orders segments: any fitting value is enough.
fn likely_epoch(written: Epoch, number: u64, others: &[Arc<Segment>]) -> Epoch {
    let before = others.iter().filter(|other| other.header.number < number);
    let after = others.iter().filter(|other| other.header.number > number);
    let least = before
        .map(|s| s.header.epoch)
        .max()
        .unwrap_or(Epoch::new(1));
    let most = after.map(|s| s.header.epoch).min();
    if written >= least && most.is_some_and(|most| written <= most) {
        written
    } else {
        least
    }
}

fn likely_bases(
    written: LogPosition,
    number: u64,
    size_bytes: u64,
    others: &[Arc<Segment>],
) -> Vec<LogPosition> {
    let mut bases = vec![written];
    for other in others {
        if other.header.number + 1 == number {
            bases.push(other.header.limit());
        }
        if other.header.number == number + 1
            && let Some(base) = other.base().as_u64().checked_sub(size_bytes)
        {
            bases.push(LogPosition::new(base));
        }
    }
    if number == 1 {
        bases.push(LogPosition::default());
    }
    bases
}

struct FirstRecord {
    header: [u8; RECORD_HEADER_SIZE],
    payload: Vec<u8>,
}

fn first_record(
    file: &dyn StorageFile,
    name: &str,
    size_bytes: u64,
) -> Result<Option<FirstRecord>, OpenError> {
    let mut header = [0; RECORD_HEADER_SIZE];
    let offset = SEGMENT_HEADER_BLOCK_SIZE + RECORD_HEADER_SIZE as u64;
    let count = storage::read_at(file, name, &mut header, SEGMENT_HEADER_BLOCK_SIZE)?;
    let length = u64::from(read_u32(&header, 4));
    if count < RECORD_HEADER_SIZE || length > size_bytes.saturating_sub(offset) {
        return Ok(None);
    }
    let mut payload = vec![0; memory_size(length)];
    let count = storage::read_at(file, name, &mut payload, offset)?;
    Ok((count == payload.len()).then_some(FirstRecord { header, payload }))
}

impl FirstRecord {
    /// The salt under which the record is valid.
    fn solve(&self, header: SegmentHeader) -> Option<u64> {
        let seal_of = |salt: u32| {
            let salt = u64::from(salt);
            SegmentHeader { salt, ..header }.seal()
        };
        let crc = |salt| record_crc(&self.header, &self.payload, seal_of(salt), header.first());
        let salt = solve_affine(crc, read_u32(&self.header, 0))?;
        RecordHeader::decode(&self.header, seal_of(salt), header.first()).ok()?;
        Some(u64::from(salt))
    }
}

/// The argument for which an affine function over single bits has a value.
fn solve_affine(function: impl Fn(u32) -> u32, value: u32) -> Option<u32> {
    let constant = function(0);
    // For each highest bit, a reachable difference with that bit, and the argument that produces it.
    let mut basis = [(0u32, 0u32); 32];
    let reduce = |basis: &[(u32, u32); 32], mut difference: u32, mut argument: u32| {
        for (reachable, by) in basis.iter().rev() {
            if *reachable != 0 && difference.leading_zeros() == reachable.leading_zeros() {
                difference ^= reachable;
                argument ^= by;
            }
        }
        (difference, argument)
    };
    for bit in 0..32 {
        let argument = 1 << bit;
        let (difference, argument) = reduce(&basis, function(argument) ^ constant, argument);
        if let Some(highest) = difference.checked_ilog2() {
            basis[highest as usize] = (difference, argument);
        }
    }
    match reduce(&basis, value ^ constant, 0) {
        (0, argument) => Some(argument),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_affine_function_is_solved() {
        let function = |x: u32| crc32c::crc32c(&[&x.to_le_bytes(), &b"some more"[..]].concat());
        for x in [0, 1, 0x8000_0000, 0xdead_beef, u32::MAX] {
            assert_eq!(solve_affine(function, function(x)), Some(x));
        }
        assert_eq!(solve_affine(|x| x & 0xff ^ 3, 0x100), None);
        assert_eq!(solve_affine(|x| x & 0xff ^ 3, 0x21), Some(0x22));
    }
}
