//! The page of up to 64 runs of an entity: what of them is small, and the records that are on no page of a run.
//!
//! A run with more messages than fit here has a page of its own, and keeps it while it is cold. A flag says so. The page
//! follows the directory page in the order of the restore, so nothing here names it: the log may write it again.
//!
//! Decoding never panics, and takes memory for no more runs and messages than one page may have.

use std::collections::BTreeMap;
use std::iter::Peekable;
use std::sync::Arc;

use super::super::bits::Bits;
use super::super::length::SLOTS_MAX;
use super::super::paged::RecordsAt;
use super::super::record::{Record, Side};
use super::super::run::Run;
use super::super::spread::{CountUnit, Spread};
use super::super::{Entry, RunLength, codec};
use super::Paged;
use super::group::{ToPage, messages, put_messages, read_messages};
use crate::vocabulary::codec::{DecodeError, Reader, put_varint};
use crate::vocabulary::elements::{incarnation, put_time, time};
use crate::vocabulary::{Incarnation, SequenceNumber, Timestamp};

/// The most runs of a page.
const RUNS_MAX: u64 = 64;

/// Where the messages of some runs are: an entity, and how it counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PageHead {
    pub(crate) entity: Incarnation,
    pub(crate) length: RunLength,
    /// The unit of the spreads.
    pub(crate) unit: CountUnit,
}

impl PageHead {
    /// Whether another page has messages of the same entity in runs of the same length. The units can differ: each page
    /// has that of the process that wrote it.
    pub(crate) fn is_of_same_runs(self, other: Self) -> bool {
        (self.entity, self.length) == (other.entity, other.length)
    }

    fn put(self, out: &mut Vec<u8>) {
        put_varint(out, self.entity.as_u64());
        put_varint(out, self.length.as_u64());
        put_varint(out, self.unit.size_bytes());
    }

    fn read(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            entity: incarnation(r)?,
            length: codec::run_length(r)?,
            unit: {
                let size_bytes = r.varint()?;
                let unit = CountUnit::at_most(size_bytes);
                match unit.size_bytes() == size_bytes {
                    true => unit,
                    false => return Err(r.error("unit of positions that is not known")),
                }
            },
        })
    }
}

/// Writes a directory page.
pub(crate) fn put_directory(out: &mut Vec<u8>, head: PageHead, runs: &[(u64, Arc<Run>)]) {
    head.put(out);
    put_varint(out, runs.len() as u64);
    for (index, run) in runs {
        put_varint(out, *index);
        put_run(out, run);
    }
}

/// A run that has a page.
const HAS_PAGE: u8 = 1;

fn put_run(out: &mut Vec<u8>, run: &Run) {
    let records_at = run.records_at();
    out.push(match records_at {
        RecordsAt::Directory => 0,
        RecordsAt::Page(..) | RecordsAt::NewPage => HAS_PAGE,
    });
    put_bits(out, &run.live);
    put_bits(out, &run.ready);
    put_varint(out, run.size_bytes);
    put_time(out, *run.expires_first);
    put_time(out, run.expires_last);
    run.spread.put(out);
    let here = match records_at {
        RecordsAt::Directory => run.live,
        RecordsAt::Page(_, changed) => changed,
        RecordsAt::NewPage => Bits::default(),
    };
    put_records(out, run, &here);
}

/// Puts the records of these slots.
fn put_records(out: &mut Vec<u8>, run: &Run, slots: &Bits) {
    // What changed is in memory: patches come from a replay alone, in which no run is cold.
    let entries = slots.iter_from(0).filter_map(|slot| run.entry(slot));
    put_messages(out, &entries.map(|it| to_page(run, it)).collect::<Vec<_>>());
}

fn to_page<'a>(run: &Run, entry: Entry<'a>) -> ToPage<'a> {
    ToPage {
        slot: run.slot(entry.number),
        record: entry.record,
        first_number: entry.first_number(),
        side: entry.side,
    }
}

/// Which words have bits, then these.
fn put_bits(out: &mut Vec<u8>, bits: &Bits) {
    let words = bits.words();
    let mut kinds = [0_u8; 4];
    for (index, word) in words.iter().enumerate() {
        let kind = match *word {
            0 => 0,
            u64::MAX => 1,
            _ => 2,
        };
        if let Some(byte) = kinds.get_mut(index / 4) {
            *byte |= kind << (2 * (index % 4));
        }
    }
    out.extend_from_slice(&kinds);
    let some = words.iter().filter(|word| ![0, u64::MAX].contains(word));
    some.for_each(|word| out.extend_from_slice(&word.to_le_bytes()));
}

fn bits(r: &mut Reader<'_>) -> Result<Bits, DecodeError> {
    let kinds: [u8; 4] = r.array()?;
    let mut bits = Bits::default();
    for (index, word) in bits.words_mut().iter_mut().enumerate() {
        let kind = kinds.get(index / 4).copied().unwrap_or_default() >> (2 * (index % 4));
        *word = match kind & 3 {
            0 => 0,
            1 => u64::MAX,
            2 => u64::from_le_bytes(r.array()?),
            _ => return Err(r.error("bits of a kind that is not known")),
        };
    }
    Ok(bits)
}

/// A run of a directory page.
#[derive(Debug)]
pub(crate) struct PagedRun {
    pub(crate) index: u64,
    live: Bits,
    pub(in crate::table) ready: Bits,
    pub(crate) size_bytes: u64,
    pub(crate) expires_first: Timestamp,
    pub(crate) expires_last: Timestamp,
    pub(crate) spread: Spread,
    /// Whether a page of its own follows.
    pub(crate) has_page: bool,
    /// The records that are here.
    here: Vec<Paged>,
}

/// Reads a directory page.
pub(crate) fn directory(r: &mut Reader<'_>) -> Result<(PageHead, Vec<PagedRun>), DecodeError> {
    let head = PageHead::read(r)?;
    let count = r.varint()?;
    if count > RUNS_MAX {
        return Err(r.error("more runs than a page has"));
    }
    let mut runs: Vec<PagedRun> = Vec::new();
    for _ in 0..count {
        let run = run(r, head.length)?;
        if runs.last().is_some_and(|before| before.index >= run.index) {
            return Err(r.error("runs that are not in order"));
        }
        runs.push(run);
    }
    Ok((head, runs))
}

fn run(r: &mut Reader<'_>, length: RunLength) -> Result<PagedRun, DecodeError> {
    let index = r.varint()?;
    if length.run_of((1 << SequenceNumber::BITS) - 1) < index {
        return Err(r.error("run out of range"));
    }
    let has_page = match r.u8()? {
        0 => false,
        HAS_PAGE => true,
        _ => return Err(r.error("flags of a run that are not known")),
    };
    let (live, ready) = (bits(r)?, bits(r)?);
    let is_within = live.last().is_some_and(|last| last < length.slots());
    if !is_within || ready.and(&live) != ready {
        return Err(r.error("bits that are not those of a run"));
    }
    let size_bytes = r.varint()?;
    let (expires_first, expires_last) = (time(r)?, time(r)?);
    let spread = Spread::read(r)?;
    let here = messages(r)?;
    Ok(PagedRun {
        index,
        live,
        ready,
        size_bytes,
        expires_first,
        expires_last,
        spread,
        has_page,
        here,
    })
}

/// A message with its number.
pub(crate) type Numbered = (SequenceNumber, Record, Side);

impl PagedRun {
    /// The slots whose records are here and not on the run's page.
    pub(crate) fn changed(&self) -> Bits {
        let mut changed = Bits::default();
        for (slot, ..) in &self.here {
            changed.insert(*slot);
        }
        changed
    }

    /// Its messages, with those of its page.
    pub(crate) fn messages(
        &self,
        length: RunLength,
        page: Vec<Paged>,
    ) -> Messages<'_, impl Iterator<Item = usize>> {
        Messages {
            first: length.first_of(self.index),
            slots: self.live.iter_from(0),
            here: &self.here,
            page: page.into_iter().peekable(),
        }
    }

    /// Its records that are not on its page.
    pub(crate) fn here(&self) -> &[Paged] {
        &self.here
    }

    /// What is left of its messages, with what is left of its page, and the numbers of those that are missing.
    pub(crate) fn left(
        &self,
        length: RunLength,
        page: Vec<Paged>,
    ) -> (Vec<Numbered>, Vec<SequenceNumber>) {
        let first = length.first_of(self.index);
        let all = page.into_iter().chain(self.here.iter().cloned());
        let mut records: BTreeMap<usize, (Record, Option<Box<Side>>)> = all
            .map(|(slot, record, side)| (slot, (record, side)))
            .collect();
        let (mut left, mut missing) = (Vec::new(), Vec::new());
        for slot in self.live.iter_from(0) {
            let number = SequenceNumber::new(first + slot as u64);
            match records.remove(&slot) {
                Some((record, side)) => left.push(numbered(number, record, side)),
                None => missing.push(number),
            }
        }
        (left, missing)
    }
}

/// The messages of a run: the records that are in its directory, and those of its page.
pub(crate) struct Messages<'a, S> {
    first: u64,
    slots: S,
    here: &'a [Paged],
    page: Peekable<std::vec::IntoIter<Paged>>,
}

impl<S: Iterator<Item = usize>> Messages<'_, S> {
    /// The next one. An error if its record is missing, or if one is in the directory and not live.
    pub(crate) fn next(&mut self) -> Result<Option<Numbered>, &'static str> {
        let Some(slot) = self.slots.next() else {
            let is_done = self.here.is_empty();
            return is_done
                .then_some(None)
                .ok_or("record of a message that is gone");
        };
        while self.page.next_if(|(at, ..)| *at < slot).is_some() {}
        let paged = self.page.next_if(|(at, ..)| *at == slot);
        let paged = match self.here.split_first() {
            Some((changed, rest)) if changed.0 == slot => {
                self.here = rest;
                Some(changed.clone())
            }
            Some(_) | None => paged,
        };
        let (_, record, side) = paged.ok_or("run whose records are missing")?;
        let number = SequenceNumber::new(self.first + slot as u64);
        Ok(Some((
            number,
            record,
            side.map(|it| *it).unwrap_or_default(),
        )))
    }
}

/// The messages of a run's page without its directory, also those that were gone. `None` if there is no such run.
pub(crate) fn without_directory(
    length: RunLength,
    index: u64,
    page: Vec<Paged>,
) -> Option<Vec<Numbered>> {
    if length.run_of((1 << SequenceNumber::BITS) - 1) < index {
        return None;
    }
    let first = length.first_of(index);
    let records = page.into_iter();
    let records = records.filter(|(slot, ..)| *slot < length.slots());
    let numbered = records.map(|(slot, record, side)| {
        let number = SequenceNumber::new(first + slot as u64);
        numbered(number, record, side)
    });
    Some(numbered.collect())
}

fn numbered(number: SequenceNumber, record: Record, side: Option<Box<Side>>) -> Numbered {
    (number, record, side.map(|it| *it).unwrap_or_default())
}

/// The groups of a run's page: its head, then its messages.
pub(crate) fn run_page(head: PageHead, run: &Run) -> Vec<Vec<u8>> {
    let mut first = Vec::new();
    head.put(&mut first);
    put_varint(&mut first, run.index());
    let entries = run.entries().map(|entry| to_page(run, entry));
    let entries: Vec<ToPage<'_>> = entries.collect();
    let mut rest = entries.as_slice();
    let count = head.length.slots_per_group();
    let groups = head.length.slots().div_ceil(count);
    let groups = (1..=groups).map(|group| {
        let end = rest.partition_point(|it| it.slot < group * count);
        let (here, later) = rest.split_at(end);
        rest = later;
        let mut out = Vec::new();
        put_messages(&mut out, here);
        out
    });
    std::iter::once(first).chain(groups).collect()
}

/// Reads the groups of a run's page: the run, and its messages.
pub(crate) fn run_of_page<'a>(
    groups: impl IntoIterator<Item = &'a [u8]>,
) -> Result<(PageHead, u64, Vec<Paged>), DecodeError> {
    let mut groups = groups.into_iter();
    let mut r = Reader::new(groups.next().unwrap_or_default());
    let (head, index) = (PageHead::read(&mut r)?, r.varint()?);
    r.finish()?;
    let count = groups
        .size_hint()
        .0
        .saturating_mul(head.length.slots_per_group());
    let mut all: Vec<Paged> = Vec::with_capacity(count.min(head.length.slots()));
    for group in groups {
        let mut r = Reader::new(group);
        let before = all.len();
        read_messages(&mut r, &mut all)?;
        let last = before.checked_sub(1).and_then(|last| all.get(last));
        let is_behind = last
            .zip(all.get(before))
            .is_none_or(|(last, first)| last.0 < first.0);
        if !is_behind || all.len() > SLOTS_MAX {
            return Err(r.error("groups of a page that are not in order"));
        }
        r.finish()?;
    }
    Ok((head, index, all))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn bits_are_read_as_they_were_written(slots in prop::collection::btree_set(0..SLOTS_MAX, 0..200), full in 0_usize..16) {
            let mut set = Bits::default();
            slots.into_iter().for_each(|slot| { set.insert(slot); });
            (0..64 * full).for_each(|slot| { set.insert(slot); });
            let mut out = Vec::new();
            put_bits(&mut out, &set);
            let mut r = Reader::new(&out);
            prop_assert_eq!(bits(&mut r)?, set);
            prop_assert!(r.is_empty());
        }

        #[test]
        fn garbage_is_runs_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = directory(&mut Reader::new(&bytes));
            let _ = run_of_page([&bytes[..bytes.len() / 2], &bytes[bytes.len() / 2..]]);
        }
    }
}
