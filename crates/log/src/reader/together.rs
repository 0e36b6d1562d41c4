//! Bodies that are read together: those that lie beside each other, by one read.
//!
//! Messages that are received together were usually sent one after the other, and to read each of them alone costs more
//! than everything else that is done for a small one.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use super::body::{Body, BodyError, CRC_SIZE, Place, body_offset, has_its_checksum};
use crate::BodyLocation;
use crate::segment::{Segment, memory_size};
use crate::storage;

/// The most of one read of several bodies: while one of them is in memory, all that was read with it is.
const READ_SIZE_MAX: u64 = 32 << 10;

/// Smaller bodies get memory of their own, so that one that is kept keeps little else.
const SHARED_SIZE_MIN: u32 = 512;

/// The most between two bodies of one read: the event of a message, and the header of a record.
const GAP_MAX: u64 = 256;

impl Body {
    /// The most that [`read_cached`](Self::read_cached) reads, because to copy and verify more takes too long.
    pub const CACHED_SIZE_MAX_BYTES: u64 = 256 << 10;

    /// The bytes of several bodies, in their order. Blocks if they must be read from files, and then checks them.
    ///
    /// Those that lie beside each other in one file share their memory, unless they are small.
    pub fn read_all(bodies: &[Self]) -> Vec<Result<Bytes, BodyError>> {
        let mut all = Vec::with_capacity(bodies.len());
        let mut left = bodies;
        while !left.is_empty() {
            let (neighbours, rest) = left.split_at(count_of_neighbours(left));
            left = rest;
            let read = match neighbours {
                [_] => None,
                _ => read_together(neighbours, |segment, buffer, offset| {
                    storage::read_at(&*segment.file, &segment.name, buffer, offset).ok()
                }),
            };
            match read {
                Some(read) => all.extend(read.into_iter().map(Ok)),
                // It failed, or not all are whole: each alone says which, and the others are read.
                None => all.extend(neighbours.iter().map(Self::read)),
            }
        }
        all
    }

    /// The same without waiting for a disk: `None` if one of them may not be in memory, if one is damaged, or if they are
    /// too large.
    pub fn read_cached(bodies: &[Self]) -> Option<Vec<Bytes>> {
        let mut size = 0;
        for (segment, location) in bodies.iter().filter_map(Self::in_file) {
            // Its caller may be the last to drop the file, if the log has left it: that can take long.
            if Arc::strong_count(segment) <= bodies.len() {
                return None;
            }
            size += u64::from(location.length);
        }
        if size > Self::CACHED_SIZE_MAX_BYTES {
            return None;
        }
        let mut all = Vec::with_capacity(bodies.len());
        let mut left = bodies;
        while let [first, ..] = left {
            let (neighbours, rest) = left.split_at(count_of_neighbours(left));
            left = rest;
            match first.in_memory() {
                Some(bytes) => all.push(bytes),
                None => all.extend(read_together(neighbours, |segment, buffer, offset| {
                    segment.file.read_cached_at(buffer, offset).ok()
                })?),
            }
        }
        Some(all)
    }

    fn in_file(&self) -> Option<(&Arc<Segment>, BodyLocation)> {
        match &self.0 {
            Place::Memory(_) | Place::Gone(_) | Place::Kept { .. } => None,
            Place::File { segment, location } => Some((segment, *location)),
        }
    }
}

/// How many bodies at the front one read gets. At least one.
fn count_of_neighbours(bodies: &[Body]) -> usize {
    let mut places = bodies.iter().map(Body::in_file);
    let Some(Some((segment, location))) = places.next() else {
        return 1;
    };
    let Range { start, mut end } = framed(segment, location);
    let others = places.take_while(|place| {
        let Some((of_other, location)) = *place else {
            return false;
        };
        let other = framed(of_other, location);
        let gap = other.start.checked_sub(end);
        let is_beside = Arc::ptr_eq(segment, of_other)
            && gap.is_some_and(|gap| gap <= GAP_MAX)
            && other.end - start <= READ_SIZE_MAX;
        end = other.end;
        is_beside
    });
    1 + others.count()
}

/// Where a body lies in its file, with its checksum.
fn framed(segment: &Segment, location: BodyLocation) -> Range<u64> {
    let begin = body_offset(segment, location);
    begin - CRC_SIZE..begin + u64::from(location.length)
}

/// Reads neighbours at once. `None` if that fails, or if one of them is not what was written.
fn read_together(
    neighbours: &[Body],
    read: impl FnOnce(&Segment, &mut [u8], u64) -> Option<usize>,
) -> Option<Vec<Bytes>> {
    let places: Option<Vec<_>> = neighbours.iter().map(Body::in_file).collect();
    let places = places?;
    let &(segment, first) = places.first()?;
    let &(_, last) = places.last()?;
    let (from, until) = (framed(segment, first).start, framed(segment, last).end);
    let mut buffer = vec![0; memory_size(until - from)];
    let count = read(segment, &mut buffer, from)?;
    if count < buffer.len() {
        return None;
    }
    let buffer = Bytes::from(buffer);
    let bodies = places.into_iter().map(|(segment, location)| {
        let Range { start, end } = framed(segment, location);
        let framed = buffer.slice(memory_size(start - from)..memory_size(end - from));
        has_its_checksum(&framed, location).then(|| {
            let body = framed.slice(memory_size(CRC_SIZE)..);
            match location.length < SHARED_SIZE_MIN {
                true => Bytes::copy_from_slice(&body),
                false => body,
            }
        })
    });
    bodies.collect()
}

#[cfg(test)]
#[path = "together_tests.rs"]
mod tests;
