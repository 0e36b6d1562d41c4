//! The page of up to 64 runs of an entity: what of them is small, and the records that are on no page of a run.
//!
//! A run with more messages than fit here has a page of its own, and keeps it while it is cold. A flag says so. The page
//! follows the directory page in the order of the restore, so nothing here names it: the log may write it again.
//!
//! What a start needs of a plain run is here, so it passes over the page: its bits, counts and bounds, the records that
//! changed since, and the patches of those that were not in memory. Version 1 lacks some of it.
//!
//! Decoding never panics, and takes memory for no more runs and messages than one page may have.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::super::bits::Bits;
use super::super::far::Waiting;
use super::super::length::SLOTS_MAX;
use super::super::paged::RecordsAt;
use super::super::patch::Patch;
use super::super::run::Run;
use super::super::spread::{CountUnit, Spread};
use super::super::{Entry, RunLength, codec};
use super::Paged;
use super::group::{ToPage, messages, put_messages, read_messages};
use super::paged_run::PagedRun;
use crate::vocabulary::codec::{DecodeError, Reader, put_bytes, put_varint};
use crate::vocabulary::elements::{incarnation, put_time, time};
use crate::vocabulary::{Incarnation, SequenceNumber};

/// The most runs of a page.
const RUNS_MAX: u64 = 64;

/// No message counts for so many bytes: a length has 32 bits, and what is added to a message is far smaller.
const MESSAGE_SIZE_BYTES_MAX: u64 = 1 << 36;

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

/// The version of directory pages without patches, times of arrival, borrowed bytes and [`HAS_SPECIAL`]. Each run's
/// records follow it.
const FIRST_VERSION: u8 = 1;

/// The version that is written.
pub(crate) const DIRECTORY_VERSION: u8 = 2;

/// Writes a directory page: all runs, then all patches, then the records of each run.
pub(crate) fn put_directory(out: &mut Vec<u8>, head: PageHead, runs: &[(u64, Arc<Run>)]) {
    head.put(out);
    put_varint(out, runs.len() as u64);
    for (index, run) in runs {
        put_varint(out, *index);
        put_run(out, run);
    }
    let mut patches = Vec::new();
    for (place, (_, run)) in runs.iter().enumerate() {
        for (slot, patch) in run.patches() {
            put_varint(&mut patches, place as u64);
            put_varint(&mut patches, *slot as u64);
            patch.put(&mut patches);
        }
    }
    put_bytes(out, &patches);
    for (_, run) in runs {
        put_records(out, run);
    }
}

/// A run that has a page.
const HAS_PAGE: u8 = 1;

/// A run with a message that has, or had, a session, a source, or changes to its properties.
const HAS_SPECIAL: u8 = 2;

/// A run with messages that were set aside: their bits follow.
const HAS_QUARANTINED: u8 = 4;

/// A run whose page has messages that cannot be received in the order of their numbers: which of them wait for a time
/// follows, behind all else; and with [`HAS_SPECIAL`], which of them are deferred.
const HAS_WAITING: u8 = 8;

fn put_run(out: &mut Vec<u8>, run: &Run) {
    let has_page = match run.records_at() {
        RecordsAt::Directory => 0,
        RecordsAt::Page(..) | RecordsAt::NewPage => HAS_PAGE,
    };
    let has_special = if run.has_special { HAS_SPECIAL } else { 0 };
    let has_quarantined = match run.quarantined {
        Some(_) => HAS_QUARANTINED,
        None => 0,
    };
    let waiting = run.waiting();
    let has_waiting = if waiting.is_some() { HAS_WAITING } else { 0 };
    out.push(has_page | has_special | has_quarantined | has_waiting);
    put_bits(out, &run.live);
    put_bits(out, &run.ready);
    if let Some(quarantined) = &run.quarantined {
        put_bits(out, quarantined);
    }
    put_varint(out, run.size_bytes);
    put_time(out, *run.expires_first);
    put_time(out, run.expires_last);
    put_time(out, run.enqueued_first);
    put_varint(out, run.borrowed_bytes);
    run.spread.put(out);
    if let Some(waiting) = waiting {
        waiting.put(out, run.length(), run.has_special);
    }
}

/// Puts the records of a run that are on no page of it. Those that have a patch are.
fn put_records(out: &mut Vec<u8>, run: &Run) {
    let here = match run.records_at() {
        RecordsAt::Directory => run.live,
        RecordsAt::Page(_, changed) => changed.without(&run.patched()),
        RecordsAt::NewPage => Bits::default(),
    };
    let entries = here.iter_from(0).filter_map(|slot| run.entry(slot));
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
pub(in crate::table) fn put_bits(out: &mut Vec<u8>, bits: &Bits) {
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

pub(in crate::table) fn bits(r: &mut Reader<'_>) -> Result<Bits, DecodeError> {
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

/// Reads a directory page of a version.
pub(crate) fn directory(
    r: &mut Reader<'_>,
    version: u8,
) -> Result<(PageHead, Vec<PagedRun>), DecodeError> {
    let head = PageHead::read(r)?;
    let count = r.varint()?;
    if count > RUNS_MAX {
        return Err(r.error("more runs than a page has"));
    }
    let mut runs: Vec<PagedRun> = Vec::new();
    for _ in 0..count {
        let mut run = run(r, head.length, version)?;
        if version == FIRST_VERSION {
            run.here = messages(r)?;
        }
        if runs.last().is_some_and(|before| before.index >= run.index) {
            return Err(r.error("runs that are not in order"));
        }
        runs.push(run);
    }
    if version != FIRST_VERSION {
        read_patches(r.bytes()?, &mut runs)?;
        for run in &mut runs {
            run.here = messages(r)?;
            let is_alone = |slot| run.live.contains(slot) && !run.patches.contains_key(&slot);
            if !run.here.iter().all(|(slot, ..)| is_alone(*slot)) {
                return Err(r.error("record of a message that is gone, or has a patch"));
            }
        }
    }
    Ok((head, runs))
}

/// Reads the patches of all runs.
fn read_patches(bytes: &[u8], runs: &mut [PagedRun]) -> Result<(), DecodeError> {
    let mut r = Reader::new(bytes);
    while !r.is_empty() {
        let place = usize::try_from(r.varint()?).ok();
        let slot = usize::try_from(r.varint()?).ok();
        let run = place.and_then(|place| runs.get_mut(place));
        let run = run.filter(|run| run.has_page);
        let found = run.zip(slot).filter(|(run, slot)| run.live.contains(*slot));
        let Some((run, slot)) = found else {
            return Err(r.error("patch of a message that is not there"));
        };
        if run.patches.insert(slot, Patch::read(&mut r)?).is_some() {
            return Err(r.error("two patches of one message"));
        }
    }
    Ok(())
}

/// Reads a run without its records.
fn run(r: &mut Reader<'_>, length: RunLength, version: u8) -> Result<PagedRun, DecodeError> {
    let index = r.varint()?;
    if length.run_of((1 << SequenceNumber::BITS) - 1) < index {
        return Err(r.error("run out of range"));
    }
    let is_first_version = version == FIRST_VERSION;
    let known = if is_first_version {
        HAS_PAGE
    } else {
        HAS_PAGE | HAS_SPECIAL | HAS_QUARANTINED | HAS_WAITING
    };
    let flags = r.u8()?;
    if flags & !known != 0 {
        return Err(r.error("flags of a run that are not known"));
    }
    let has_special = is_first_version || flags & HAS_SPECIAL != 0;
    if flags & (HAS_WAITING | HAS_PAGE) == HAS_WAITING {
        return Err(r.error("waiting messages of the page of a run that has none"));
    }
    let (live, ready) = (bits(r)?, bits(r)?);
    let quarantined = match flags & HAS_QUARANTINED {
        0 => None,
        _ => Some(bits(r)?),
    };
    let taken = quarantined.map_or(live, |it| it.or(&live));
    let is_within = taken.last().is_some_and(|last| last < length.slots());
    let is_apart = quarantined.is_none_or(|it| !it.is_empty() && it.and(&live).is_empty());
    if !is_within || !is_apart || ready.and(&live) != ready {
        return Err(r.error("bits that are not those of a run"));
    }
    let size_bytes = r.varint()?;
    let (expires_first, expires_last) = (time(r)?, time(r)?);
    let (enqueued_first, borrowed_bytes) = match is_first_version {
        true => (None, 0),
        false => (Some(time(r)?), r.varint()?),
    };
    let spread = Spread::read(r)?;
    let waiting = match flags & HAS_WAITING {
        0 => None,
        _ => {
            let not_ready = live.without(&ready);
            Some(Waiting::read(r, &not_ready, length, has_special)?)
        }
    };
    let most = taken.count() as u64 * MESSAGE_SIZE_BYTES_MAX;
    let is_possible = |size_bytes: u64| size_bytes <= most;
    if ![Some(size_bytes), Some(borrowed_bytes), spread.size_bytes()]
        .into_iter()
        .all(|it| it.is_some_and(is_possible))
    {
        return Err(r.error("sizes that the messages of a run cannot have"));
    }
    Ok(PagedRun {
        index,
        live,
        ready,
        size_bytes,
        borrowed_bytes,
        expires_first,
        expires_last,
        enqueued_first,
        spread,
        has_page: flags & HAS_PAGE != 0,
        has_special,
        quarantined,
        waiting,
        patches: BTreeMap::new(),
        here: Vec::new(),
    })
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
            for version in FIRST_VERSION..=DIRECTORY_VERSION {
                let _ = directory(&mut Reader::new(&bytes), version);
            }
            let _ = run_of_page([&bytes[..bytes.len() / 2], &bytes[bytes.len() / 2..]]);
        }
    }
}
