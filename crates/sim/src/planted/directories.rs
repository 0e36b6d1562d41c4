//! A directory page says something else of its runs. A start that passes over the pages of runs has nothing else.

use std::collections::BTreeSet;

use kew_log::{PageContent, PageNumber, PlannedSnapshot, SnapshotContent};
use kew_planted::{Hook, Seam};

use super::hooks::on;
use super::pages::{DIRECTORY, varint};

/// The version of directories whose bytes are known here.
const VERSION: u8 = 2;

/// A start passes over pages with locks: their messages count as ready.
pub(super) fn locks_passed_over() -> Hook {
    altered(|directory| {
        for run in &mut directory.runs {
            run.ready.clone_from(&run.live);
            run.flags &= HAS_PAGE;
            run.waiting = None;
        }
    })
}

/// A run says that the messages of its page that wait are due much later than they are.
pub(super) fn far_told_late() -> Hook {
    altered(|directory| {
        for run in &mut directory.runs {
            if let Some(waiting) = &mut run.waiting {
                waiting
                    .firsts
                    .iter_mut()
                    .for_each(|at| *at = at.saturating_mul(2));
            }
        }
    })
}

/// Changes to records that are not in memory are not written.
pub(super) fn patches_not_written() -> Hook {
    altered(|directory| directory.patches.clear())
}

/// A patch is lost when its record is read: nothing is laid over it.
pub(super) fn patch_lost() -> Hook {
    altered(|directory| {
        for (_, _, patch) in &mut directory.patches {
            *patch = vec![0];
        }
    })
}

/// No bug: each directory is taken apart, and is put together as it was.
pub(super) fn nothing() -> Hook {
    altered(|_| ())
}

fn altered(alter: fn(&mut Directory)) -> Hook {
    on(
        Seam::Snapshot,
        move |content: &mut Box<dyn SnapshotContent>| {
            let inner = std::mem::replace(content, Box::new(Vec::new()));
            *content = Box::new(Altered { inner, alter });
        },
    )
}

/// A snapshot whose directories are others.
struct Altered {
    inner: Box<dyn SnapshotContent>,
    alter: fn(&mut Directory),
}

impl SnapshotContent for Altered {
    fn plan(&mut self) -> PlannedSnapshot {
        self.inner.plan()
    }

    fn put_part(&self, index: usize, out: &mut Vec<u8>) {
        self.inner.put_part(index, out);
    }

    fn page(&self, index: usize) -> Option<PageNumber> {
        self.inner.page(index)
    }

    fn can_make(&self, index: usize) -> bool {
        self.inner.can_make(index)
    }

    fn put_page(&self, index: usize, page: &mut PageContent) {
        self.inner.put_page(index, page);
        if page.kind != DIRECTORY {
            return;
        }
        let bytes = page.group(0).unwrap_or_default();
        let mut directory = Directory::read(bytes).expect("a directory has a known form");
        assert_eq!(
            directory.bytes(),
            bytes,
            "a directory is put together as it was"
        );
        (self.alter)(&mut directory);
        page.begin(DIRECTORY);
        page.add_group(|out| out.extend_from_slice(&directory.bytes()));
    }

    fn keep(&self, index: usize, page: PageNumber) {
        self.inner.keep(index, page);
    }
}

/// What the flags of a run say: it has a page.
const HAS_PAGE: u8 = 1;

/// It has what few messages have, such as a session.
const HAS_SPECIAL: u8 = 2;

/// It says what of the page waits for a time.
const HAS_WAITING: u8 = 8;

/// A directory page, taken apart.
struct Directory {
    /// The version, the entity, the length of runs and the unit.
    head: Vec<u8>,
    runs: Vec<Run>,
    /// The place of the run, the slot, and what changed.
    patches: Vec<(u64, u64, Vec<u8>)>,
    /// The records of all runs.
    records: Vec<u8>,
}

struct Run {
    index: u64,
    flags: u8,
    live: Vec<u8>,
    ready: Vec<u8>,
    /// Sizes, times, and where bodies lie.
    rest: Vec<u8>,
    waiting: Option<Waiting>,
}

/// What waits for a time.
struct Waiting {
    /// Which messages, which of them are scheduled, and in sessions, which others are deferred.
    bits: Vec<u8>,
    /// When the first one of each group is due that has any.
    firsts: Vec<u64>,
}

impl Directory {
    fn read(bytes: &[u8]) -> Option<Self> {
        let mut left = bytes;
        let version = take(&mut left, 1)?;
        (version == [VERSION]).then_some(())?;
        varints(&mut left, 1)?;
        let length = varint(&mut left)?;
        varints(&mut left, 1)?;
        let head = before(bytes, left);
        let count = varint(&mut left)?;
        let runs = (0..count).map(|_| Run::read(&mut left, length));
        let runs = runs.collect::<Option<_>>()?;
        let size = usize::try_from(varint(&mut left)?).ok()?;
        let mut of_patches = take(&mut left, size)?;
        let mut patches = Vec::new();
        while !of_patches.is_empty() {
            let (run, slot) = (varint(&mut of_patches)?, varint(&mut of_patches)?);
            let from = of_patches;
            pass_patch(&mut of_patches)?;
            patches.push((run, slot, before(from, of_patches)));
        }
        Some(Self {
            head,
            runs,
            patches,
            records: left.to_vec(),
        })
    }

    fn bytes(&self) -> Vec<u8> {
        let mut out = self.head.clone();
        put_varint(&mut out, self.runs.len() as u64);
        for run in &self.runs {
            put_varint(&mut out, run.index);
            out.push(run.flags);
            for part in [&run.live, &run.ready, &run.rest] {
                out.extend_from_slice(part);
            }
            if let Some(waiting) = &run.waiting {
                out.extend_from_slice(&waiting.bits);
                waiting
                    .firsts
                    .iter()
                    .for_each(|at| put_varint(&mut out, *at));
            }
        }
        let mut patches = Vec::new();
        for (run, slot, patch) in &self.patches {
            put_varint(&mut patches, *run);
            put_varint(&mut patches, *slot);
            patches.extend_from_slice(patch);
        }
        put_varint(&mut out, patches.len() as u64);
        out.extend_from_slice(&patches);
        out.extend_from_slice(&self.records);
        out
    }
}

impl Run {
    fn read(left: &mut &[u8], length: u64) -> Option<Self> {
        let index = varint(left)?;
        let flags = *take(left, 1)?.first()?;
        let (live, ready) = (bits(left)?, bits(left)?);
        let from = *left;
        varints(left, 5)?;
        let units = varint(left)?;
        varints(left, 2 * units)?;
        let rest = before(from, left);
        let waiting = match flags & HAS_WAITING {
            0 => None,
            _ => Some(Waiting::read(left, length, flags & HAS_SPECIAL != 0)?),
        };
        Some(Self {
            index,
            flags,
            live,
            ready,
            rest,
            waiting,
        })
    }
}

impl Waiting {
    fn read(left: &mut &[u8], length: u64, has_sessions: bool) -> Option<Self> {
        let from = *left;
        let timed = bits(left)?;
        bits(left)?;
        if has_sessions {
            bits(left)?;
        }
        let bits = before(from, left);
        let count = groups_with(&timed, length);
        let firsts = (0..count).map(|_| varint(left));
        let firsts = firsts.collect::<Option<_>>()?;
        Some(Self { bits, firsts })
    }
}

/// How many of the groups of a run have a bit: eight, or groups of two.
fn groups_with(bits: &[u8], length: u64) -> usize {
    let mut words = bits.get(4..).unwrap_or_default().chunks(8);
    let kinds = bits.iter().take(4);
    let kinds = kinds.flat_map(|byte| [0, 2, 4, 6].map(|shift| byte >> shift & 3));
    let words = kinds.map(|kind| match kind {
        0 => 0,
        1 => u64::MAX,
        _ => {
            let word = words.next().unwrap_or_default().try_into();
            u64::from_le_bytes(word.unwrap_or_default())
        }
    });
    let group_length = (length / 8).max(2);
    let slots = (0..).zip(words).flat_map(|(index, word)| {
        let here = (0..64).filter(move |bit| word >> bit & 1 != 0);
        here.map(move |bit: u64| 64 * index + bit)
    });
    let groups: BTreeSet<u64> = slots.map(|slot| slot / group_length).collect();
    groups.len()
}

/// A kind of two bits for each word, then the words of the third kind.
fn bits(left: &mut &[u8]) -> Option<Vec<u8>> {
    let from = *left;
    let kinds = take(left, 4)?;
    let kinds = kinds
        .iter()
        .flat_map(|byte| [0, 2, 4, 6].map(|shift| byte >> shift & 3));
    let words = kinds.filter(|kind| *kind == 2).count();
    take(left, 8 * words)?;
    Some(before(from, left))
}

fn pass_patch(left: &mut &[u8]) -> Option<()> {
    let flags = *take(left, 1)?.first()?;
    let has = |flag: u8| flags & flag != 0;
    if has(1) {
        varints(left, 2)?;
        take(left, 1)?;
        varints(left, 1)?;
    }
    if has(2) {
        take(left, 1)?;
        varints(left, 3)?;
    }
    if has(4) {
        varints(left, 1)?;
    }
    for (flag, numbers) in [(8, 3), (16, 6)] {
        if has(flag) {
            let count = varint(left)?;
            varints(left, numbers * count)?;
        }
    }
    Some(())
}

fn varints(left: &mut &[u8], count: u64) -> Option<()> {
    (0..count).try_for_each(|_| varint(left).map(drop))
}

fn take<'a>(left: &mut &'a [u8], size: usize) -> Option<&'a [u8]> {
    let (taken, rest) = left.split_at_checked(size)?;
    *left = rest;
    Some(taken)
}

/// What was taken of some bytes.
fn before(from: &[u8], left: &[u8]) -> Vec<u8> {
    from[..from.len() - left.len()].to_vec()
}

fn put_varint(out: &mut Vec<u8>, value: u64) {
    let mut value = value;
    while value >= 0x80 {
        out.push(u8::try_from(value & 0x7f).unwrap_or_default() | 0x80);
        value >>= 7;
    }
    out.push(u8::try_from(value).unwrap_or_default());
}
