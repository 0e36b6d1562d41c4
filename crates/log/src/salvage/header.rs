//! Restores the header of a segment from other knowledge, and from its records.
//!
//! A reader needs two fields of a header: the seal, and which log it is. Records say where they lie. The log is
//! that of the other files. The seal follows from the first record: a checksum is an affine function of its
//! start value, so it can be solved for the seal. The content checksum, which has no seal, shows that the record
//! is one.

use std::sync::Arc;

use crate::format::{
    RECORD_HEADER_SIZE, RecordHeader, SEGMENT_HEADER_BLOCK_SIZE, SEGMENT_HEADER_SIZE,
    SegmentHeader, local_crc, read_u32,
};
use crate::reader::records::RecordReader;
use crate::recovery::OpenError;
use crate::segment::{Blank, Segment};
use crate::storage::{self, Storage};
use crate::{Epoch, LogId, LogPosition};

/// A segment with a header under which its records are valid, if there is one.
pub(super) fn restore(
    storage: &dyn Storage,
    name: &str,
    number: u64,
    known: &[LogId],
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
    let found = SegmentHeader::read(&bytes);
    let written = SegmentHeader {
        number,
        // Records say it.
        first: None,
        // Nothing is accepted that no record confirms.
        durable: LogPosition::default(),
        ..found
    };
    let candidate = |header| Blank {
        header,
        name: name.to_owned(),
        file: Arc::clone(&file),
    };
    let logs: Vec<_> = known.iter().copied().chain([found.log]).collect();
    // The damage may not affect any field that matters.
    for log in &logs {
        for capacity_bytes in [written.capacity_bytes, size_bytes] {
            let header = SegmentHeader {
                log: *log,
                capacity_bytes,
                ..written
            };
            if let Some(segment) = confirmed(candidate(header))? {
                return Ok(Some(segment));
            }
        }
    }
    let mut head = [0; RECORD_HEADER_SIZE];
    storage::read_at(&*file, name, &mut head, SEGMENT_HEADER_BLOCK_SIZE)?;
    let header = SegmentHeader {
        epoch: likely_epoch(written.epoch, number, others),
        capacity_bytes: size_bytes,
        ..written
    };
    let Some(salt) = solve(&head, header) else {
        return Ok(None);
    };
    for log in logs {
        let header = SegmentHeader {
            log,
            salt,
            ..header
        };
        if let Some(segment) = confirmed(candidate(header))? {
            return Ok(Some(segment));
        }
    }
    Ok(None)
}

/// The segment, if some of its records are whole under this header.
fn confirmed(blank: Blank) -> Result<Option<Segment>, OpenError> {
    if blank.header.check().is_err() {
        return Ok(None);
    }
    let Some(first) = RecordReader::first_of(&blank)? else {
        return Ok(None);
    };
    let segment = blank.beginning_at(first);
    let found = RecordReader::new(&segment).find_from(first)?;
    Ok(found.is_some().then_some(segment))
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

/// The salt under which the header of a record is valid.
fn solve(head: &[u8; RECORD_HEADER_SIZE], header: SegmentHeader) -> Option<u64> {
    let seal_of = |salt: u32| {
        let salt = u64::from(salt);
        SegmentHeader { salt, ..header }.seal()
    };
    let crc = |salt| local_crc(head, seal_of(salt));
    let salt = solve_affine(crc, read_u32(head, 0))?;
    RecordHeader::decode(head, seal_of(salt)).ok()?;
    Some(u64::from(salt))
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
