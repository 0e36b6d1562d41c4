//! Builds a new log from the rest of a damaged one.
//!
//! In this order, each step durable before the next:
//!
//! 1. A damaged segment that holds live bodies is copied, to be kept under another name, and rewritten
//!    under a temporary name: with a new header, valid records sealed again, and everything else unchanged.
//!    Live bodies keep their positions.
//! 2. The segment in which the log continues is made under a temporary name, with a new epoch.
//! 3. The snapshot gets its name. It states that the log begins anew at a position that was never used.
//!    From now on any start that is not refused uses it. Starts were refused before, unless only bodies were
//!    damaged. The remaining steps need no space.
//! 4. The new segment gets its name, the rewritten segments take the names of the segments they replace,
//!    and all other files get names under which they are never read. A damaged header refuses the start until
//!    it is replaced.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Salvage;
use crate::format::names::{self, Name};
use crate::format::{SEGMENT_HEADER_BLOCK_SIZE, SegmentHeader, seal_again};
use crate::inspect::damage_in;
use crate::pages::{PageOptions, PageStore, SnapshotContent, SnapshotForm};
use crate::reader::records::RecordReader;
use crate::recovery::OpenError;
use crate::segment::{self, Salts, Segment, create_anew, memory_size};
use crate::snapshot::{SnapshotError, SnapshotHeader};
use crate::storage::{self, IoFailure, StorageFile};
use crate::{BodyLocation, Epoch, LogId, LogOptions, LogPosition, ballast};

/// Above the highest known position, by as much as any lost segment may have reached.
const POSITIONS_SKIPPED: u64 = 1 << 30;
const COPY_SIZE: usize = 256 * 1024;

/// The changes of a repair to the files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rebuilt {
    /// Where the log begins anew.
    pub position: LogPosition,
    /// Segments that were rewritten because they hold live bodies.
    pub rewritten: Vec<String>,
    /// The new names of damaged and replaced files.
    pub set_aside: Vec<String>,
}

impl Salvage {
    /// Makes a log that begins with this state.
    ///
    /// `live` are the locations of all its bodies; each must have been readable. `entropy` is random. Only
    /// temporary files are removed, and the ballast if there is no space otherwise. A crash at any point
    /// leaves the old log or the new one, perhaps with a few files that are not needed.
    pub fn rebuild(
        self,
        options: &LogOptions,
        content: &mut dyn SnapshotContent,
        live: impl IntoIterator<Item = BodyLocation>,
        entropy: u64,
    ) -> Result<Rebuilt, OpenError> {
        options.check().map_err(OpenError::Options)?;
        let salts = Salts::new(entropy);
        let work = Work {
            repair: self.next_repair(),
            position: self.unused_position(),
            number: self.next_number(),
            capacity_bytes: options.segment_size_for(0),
            pages: options.pages,
            log: self.log.unwrap_or_else(|| salts.new_log()),
            salts,
            salvage: &self,
            needed: self.needed(live),
        };
        let mut prepared = work.prepare(content);
        if let Err(failure) = &prepared
            && failure.is_no_space()
            && ballast::release(&*self.storage)?
        {
            prepared = work.prepare(content);
        }
        match prepared {
            Ok(prepared) => work.switch(prepared),
            Err(failure) => {
                work.take_back();
                Err(failure.into())
            }
        }
    }

    /// The segments with these bodies, by name. One that took over within another one stays with it: otherwise the
    /// older one would seem to cover the positions behind.
    fn needed(
        &self,
        live: impl IntoIterator<Item = BodyLocation>,
    ) -> BTreeMap<String, Arc<Segment>> {
        let at = live.into_iter().filter_map(|it| self.segment_at(it.record));
        let with_bodies: BTreeSet<_> = at.map(|segment| segment.first()).collect();
        let mut needed = BTreeMap::new();
        let mut kept: Option<&Segment> = None;
        for segment in &self.chain {
            let is_behind_kept = kept.is_some_and(|kept| segment.took_over_within(kept));
            let is_needed = with_bodies.contains(&segment.first()) || is_behind_kept;
            kept = is_needed.then_some(&**segment);
            if is_needed {
                needed.insert(segment.name.clone(), Arc::clone(segment));
            }
        }
        needed
    }

    fn next_repair(&self) -> u64 {
        let before = self.set_aside.iter();
        let numbers = before.filter_map(|name| names::set_aside_number(name));
        numbers.max().map_or(1, |number| number + 1)
    }

    fn all_segments(&self) -> impl Iterator<Item = &Arc<Segment>> {
        self.chain.iter().chain(&self.superseded)
    }

    fn unused_position(&self) -> LogPosition {
        let ends = self.all_segments().map(|segment| segment.limit());
        let highest = ends.max().unwrap_or_default().max(self.claims.highest());
        let past = highest.as_u64() + POSITIONS_SKIPPED;
        LogPosition::new(past.next_multiple_of(1 << 20))
    }

    /// Above the number of every segment, including unreadable ones.
    fn next_number(&self) -> u64 {
        let unreadable = self.unreadable.iter().map(|name| match names::parse(name) {
            Name::Segment(number) => number,
            _ => 0,
        });
        let known = self.all_segments().map(|segment| segment.header.number);
        let blank = self.blanks.iter().map(|blank| blank.header.number);
        known.chain(blank).chain(unreadable).max().unwrap_or(0) + 1
    }
}

struct Work<'a> {
    salvage: &'a Salvage,
    repair: u64,
    log: LogId,
    position: LogPosition,
    /// The number of the segment in which the log continues.
    number: u64,
    capacity_bytes: u64,
    pages: PageOptions,
    salts: Salts,
    /// The segments that stay.
    needed: BTreeMap<String, Arc<Segment>>,
}

/// The files that are ready to be renamed.
struct Prepared {
    /// Rewritten segments, by their final names.
    rewritten: Vec<String>,
    set_aside: Vec<String>,
}

impl Work<'_> {
    /// Every step that needs space, up to the snapshot's name.
    fn prepare(&self, content: &mut dyn SnapshotContent) -> Result<Prepared, IoFailure> {
        let storage = &*self.salvage.storage;
        let mut prepared = Prepared {
            rewritten: Vec::new(),
            set_aside: Vec::new(),
        };
        for (name, segment) in &self.needed {
            if !self.salvage.restored.contains(name)
                && damage_in(segment, self.next_of(segment))?.is_empty()
            {
                continue;
            }
            self.rewrite(segment)?;
            prepared.set_aside.push(self.keep_copy(segment)?);
            prepared.rewritten.push(name.clone());
        }
        self.prepare_segment()?;
        storage::sync_dir(storage)?;
        self.write_snapshot(content)?;
        Ok(prepared)
    }

    /// Writes the snapshot, with all pages in files of their own: those of the damaged log are put away.
    fn write_snapshot(&self, content: &mut dyn SnapshotContent) -> Result<(), IoFailure> {
        let storage = &*self.salvage.storage;
        let header = SnapshotHeader {
            log: self.log,
            position: self.position,
            chain: self.log.chain_start(),
            time_ms: self.salvage.time_ms.get(),
            epoch: self.epoch(),
            part_count: 0,
            begins_anew: true,
            has_pages: true,
            table_parts: 0,
        };
        let (entropy, others) = (self.salts.entropy(), &self.salvage.snapshots);
        let mut store = PageStore::begin_anew(storage, self.log, self.pages, entropy, others)?;
        let job = store.begin_with(header, SnapshotForm::Pages);
        let job = job.expect("a store that has just begun writes nothing");
        let written = job.run(storage, content, |_| Ok(false));
        match store.complete(written) {
            Ok(_) => Ok(()),
            Err(SnapshotError::Unfinished(failure) | SnapshotError::Unsure(failure)) => {
                Err(failure)
            }
        }
    }

    /// The segment behind one in the chain.
    fn next_of(&self, segment: &Segment) -> Option<&Segment> {
        let chain = &self.salvage.chain;
        let behind = chain.partition_point(|other| other.first() <= segment.first());
        chain.get(behind).map(|next| &**next)
    }

    /// Removes prepared files. Best effort: the first failure matters more.
    fn take_back(&self) {
        let storage = &*self.salvage.storage;
        let _ = storage::remove(storage, &names::segment_in_preparation(self.number));
        for (name, segment) in &self.needed {
            let number = segment.header.number;
            for unfinished in [
                names::segment_in_preparation(number),
                copy_in_preparation(name),
                names::set_aside(self.repair, name),
            ] {
                let _ = storage::remove(storage, &unfinished);
            }
        }
    }

    fn rewrite(&self, segment: &Segment) -> Result<(), IoFailure> {
        let header = SegmentHeader {
            salt: self.salts.of(segment.header.epoch, segment.header.number),
            // Its records prove nothing any more: the snapshot replaces them.
            durable: LogPosition::default(),
            first: Some(segment.first()),
            ..segment.header
        };
        let name = names::segment_in_preparation(header.number);
        let file = create_anew(&*self.salvage.storage, &name)?;
        copy(segment, &*file, &name, header.capacity_bytes)?;
        let mut block = vec![0; memory_size(SEGMENT_HEADER_BLOCK_SIZE)];
        let bytes = header.encode();
        block[..bytes.len()].copy_from_slice(&bytes);
        storage::write_all_at(&*file, &name, &block, 0)?;
        reseal(segment, &header, &*file, &name)?;
        storage::sync_data(&*file, &name)
    }

    /// Keeps a copy of the file as it was found. Returns the copy's name.
    fn keep_copy(&self, segment: &Segment) -> Result<String, IoFailure> {
        let storage = &*self.salvage.storage;
        let temporary = copy_in_preparation(&segment.name);
        let file = create_anew(storage, &temporary)?;
        let size_bytes = storage::len(&*segment.file, &segment.name)?;
        copy(segment, &*file, &temporary, size_bytes)?;
        storage::sync_data(&*file, &temporary)?;
        let name = names::set_aside(self.repair, &segment.name);
        storage::rename(storage, &temporary, &name)?;
        Ok(name)
    }

    /// The new log is complete: puts the old one away.
    fn switch(&self, prepared: Prepared) -> Result<Rebuilt, OpenError> {
        let storage = &*self.salvage.storage;
        let new = names::segment_in_preparation(self.number);
        storage::rename(storage, &new, &names::segment(self.number))?;
        storage::sync_dir(storage)?;
        for name in &prepared.rewritten {
            let Name::Segment(number) = names::parse(name) else {
                unreachable!("only segments are written anew");
            };
            storage::rename(storage, &names::segment_in_preparation(number), name)?;
        }
        // The rewritten segments with bodies get their names first, and then other files are renamed.
        storage::sync_dir(storage)?;
        let mut set_aside = prepared.set_aside;
        let salvage = self.salvage;
        let segments = salvage.all_segments().map(|segment| segment.name.clone());
        let snapshots = salvage.snapshots.iter();
        let snapshots = snapshots.map(|position| names::snapshot(position.as_u64()));
        let unreadable = salvage.unreadable.iter().cloned();
        let blank = salvage.blanks.iter().map(|blank| blank.name.clone());
        let pages = salvage.pages.iter().cloned();
        let others = unreadable.chain(blank).chain(pages);
        for name in segments.chain(snapshots).chain(others) {
            if !self.needed.contains_key(&name) {
                let aside = names::set_aside(self.repair, &name);
                storage::rename(storage, &name, &aside)?;
                set_aside.push(aside);
            }
        }
        storage::sync_dir(storage)?;
        set_aside.sort_unstable();
        Ok(Rebuilt {
            position: self.position,
            rewritten: prepared.rewritten,
            set_aside,
        })
    }

    /// Above every epoch that anything names, so that nothing says that a later one began before the new log.
    fn epoch(&self) -> Epoch {
        let epochs = self.salvage.all_segments().map(|s| s.header.epoch);
        let claims = self.salvage.claims.epoch_max();
        epochs.fold(claims, Epoch::max).next()
    }

    /// Writes the segment in which the log continues, under its temporary name.
    fn prepare_segment(&self) -> Result<(), IoFailure> {
        let epoch = self.epoch();
        let header = SegmentHeader {
            log: self.log,
            number: self.number,
            epoch,
            first: Some(self.position),
            capacity_bytes: self.capacity_bytes,
            salt: self.salts.of(epoch, self.number),
            durable: self.position,
        };
        segment::prepare(&*self.salvage.storage, header).map(|_| ())
    }
}

fn copy_in_preparation(name: &str) -> String {
    format!("prepare-copy-of-{name}")
}

fn copy(
    from: &Segment,
    to: &dyn StorageFile,
    name: &str,
    size_bytes: u64,
) -> Result<(), IoFailure> {
    let mut buffer = vec![0; COPY_SIZE];
    let mut at = 0;
    while at < size_bytes {
        let count = COPY_SIZE.min(memory_size(size_bytes - at));
        let piece = &mut buffer[..count];
        // A truncated file is filled up.
        let read = storage::read_at(&*from.file, &from.name, piece, at)?;
        piece[read..].fill(0);
        storage::write_all_at(to, name, piece, at)?;
        at += count as u64;
    }
    Ok(())
}

/// Seals every valid record for the new header. Its content stays.
fn reseal(
    segment: &Segment,
    header: &SegmentHeader,
    to: &dyn StorageFile,
    name: &str,
) -> Result<(), IoFailure> {
    let mut reader = RecordReader::new(segment);
    let mut at = segment.first();
    while let Some(found) = reader.find_from(at)? {
        let Ok(record) = reader.read(found)? else {
            at = found.plus(8);
            continue;
        };
        at = record.behind();
        let mut head = record.head;
        seal_again(&mut head, header.seal(), LogPosition::default());
        storage::write_all_at(to, name, &head, segment.offset_of(found))?;
    }
    Ok(())
}
