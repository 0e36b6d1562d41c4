//! Making a log anew of what was saved.
//!
//! In this order, each step durable before the next:
//!
//! 1. A segment that holds live bodies and is damaged is copied, to stay under another name, and
//!    written anew under a temporary name: a new header, the records that are whole sealed anew,
//!    everything else as it was. Live bodies keep their positions.
//! 2. The segment that the log goes on in, of a new epoch, under a temporary name.
//! 3. The snapshot gets its name. It says that the log begins anew, at a position that was never
//!    used. From now on a start that is not refused uses it; one was refused before, unless only
//!    bodies were damaged. What follows takes no space.
//! 4. The new segment gets its name, the segments written anew take the names of those that they replace, and all other files get
//!    names under which nobody reads them. A damaged header refuses the start until it is replaced.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;

use super::Salvage;
use crate::format::names::{self, Name};
use crate::format::{RECORD_HEADER_SIZE, SEGMENT_HEADER_BLOCK_SIZE, SegmentHeader, seal_record};
use crate::inspect::damage_in;
use crate::reader::records::RecordReader;
use crate::recovery::OpenError;
use crate::segment::{self, Salts, Segment, create_anew, memory_size};
use crate::snapshot::{self, SnapshotError, SnapshotHeader};
use crate::storage::{self, IoFailure, StorageFile};
use crate::{BodyLocation, LogOptions, LogPosition, ballast};

/// Beyond the highest position that is known: as much as any lost segment may have reached.
const POSITIONS_SKIPPED: u64 = 1 << 30;
const COPY_SIZE: usize = 256 * 1024;

/// What a repair did to the files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rebuilt {
    /// Where the log begins anew.
    pub position: LogPosition,
    /// Segments that were written anew because they hold live bodies.
    pub rewritten: Vec<String>,
    /// The names that damaged and replaced files have now.
    pub set_aside: Vec<String>,
}

impl Salvage<'_> {
    /// Makes a log that begins with this state.
    ///
    /// `live` says where all its bodies lie; each must have been readable. `entropy` is random.
    /// No file is removed but temporary ones, and the ballast if there is no space without. A crash
    /// at any point leaves the log as it was found, or the new one, perhaps with a few files that
    /// are not needed.
    pub fn rebuild(
        self,
        options: &LogOptions,
        parts: &[Bytes],
        live: impl IntoIterator<Item = BodyLocation>,
        entropy: u64,
    ) -> Result<Rebuilt, OpenError> {
        options.check().map_err(OpenError::Options)?;
        let mut needed = BTreeMap::new();
        for location in live {
            if let Some(segment) = self.segment_at(location.record) {
                needed.insert(segment.name.clone(), Arc::clone(segment));
            }
        }
        let work = Work {
            repair: self.next_repair(),
            position: self.unused_position(),
            number: self.next_number(),
            capacity_bytes: options.segment_size_for(0),
            salts: Salts::new(entropy),
            salvage: &self,
            needed,
        };
        let mut prepared = work.prepare(parts);
        if let Err(failure) = &prepared
            && failure.is_no_space()
            && ballast::release(self.storage)?
        {
            prepared = work.prepare(parts);
        }
        match prepared {
            Ok(prepared) => work.switch(prepared),
            Err(failure) => {
                work.take_back();
                Err(failure.into())
            }
        }
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
        let ends = self.all_segments().map(|s| s.header.limit());
        let highest = ends
            .chain(self.all_segments().map(|s| s.header.durable))
            .chain(self.snapshots.iter().copied())
            .max()
            .unwrap_or_default();
        let past = highest.as_u64() + POSITIONS_SKIPPED + SEGMENT_HEADER_BLOCK_SIZE;
        LogPosition::new(past.next_multiple_of(1 << 20))
    }

    /// Above the number of every segment, those that cannot be read included.
    fn next_number(&self) -> u64 {
        let unreadable = self.unreadable.iter().map(|name| match names::parse(name) {
            Name::Segment(number) => number,
            _ => 0,
        });
        let known = self.all_segments().map(|segment| segment.header.number);
        known.chain(unreadable).max().unwrap_or(0) + 1
    }
}

struct Work<'a> {
    salvage: &'a Salvage<'a>,
    repair: u64,
    position: LogPosition,
    /// Of the segment that the log goes on in.
    number: u64,
    capacity_bytes: u64,
    salts: Salts,
    /// The segments that hold live bodies.
    needed: BTreeMap<String, Arc<Segment>>,
}

/// What is ready to take its place.
struct Prepared {
    /// Segments written anew, by the name that they are to have.
    rewritten: Vec<String>,
    set_aside: Vec<String>,
}

impl Work<'_> {
    /// All that needs space, up to the snapshot's name.
    fn prepare(&self, parts: &[Bytes]) -> Result<Prepared, IoFailure> {
        let storage = self.salvage.storage;
        let mut prepared = Prepared {
            rewritten: Vec::new(),
            set_aside: Vec::new(),
        };
        for (name, segment) in &self.needed {
            if !self.salvage.restored.contains(name) && damage_in(segment)?.is_empty() {
                continue;
            }
            self.rewrite(segment)?;
            prepared.set_aside.push(self.keep_copy(segment)?);
            prepared.rewritten.push(name.clone());
        }
        self.prepare_segment()?;
        storage::sync_dir(storage)?;
        let header = SnapshotHeader {
            partition: 0,
            position: self.position,
            chain: 0,
            part_count: 0,
            begins_anew: true,
        };
        match snapshot::write_as(storage, header, parts) {
            Ok(_) => Ok(prepared),
            Err(SnapshotError::Unfinished(failure) | SnapshotError::Unsure(failure)) => {
                Err(failure)
            }
        }
    }

    /// Removes what was prepared. Best effort: the failure before says more.
    fn take_back(&self) {
        let storage = self.salvage.storage;
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
            // Its records prove nothing any more: the snapshot stands for them.
            durable: LogPosition::default(),
            ..segment.header
        };
        let name = names::segment_in_preparation(header.number);
        let file = create_anew(self.salvage.storage, &name)?;
        copy(segment, &*file, &name, header.capacity_bytes)?;
        let mut block = vec![0; memory_size(SEGMENT_HEADER_BLOCK_SIZE)];
        let bytes = header.encode();
        block[..bytes.len()].copy_from_slice(&bytes);
        storage::write_all_at(&*file, &name, &block, 0)?;
        reseal(segment, &header, &*file, &name)?;
        storage::sync_data(&*file, &name)
    }

    /// Keeps the file as it was found, and says under which name.
    fn keep_copy(&self, segment: &Segment) -> Result<String, IoFailure> {
        let storage = self.salvage.storage;
        let temporary = copy_in_preparation(&segment.name);
        let file = create_anew(storage, &temporary)?;
        let size_bytes = storage::len(&*segment.file, &segment.name)?;
        copy(segment, &*file, &temporary, size_bytes)?;
        storage::sync_data(&*file, &temporary)?;
        let name = names::set_aside(self.repair, &segment.name);
        storage::rename(storage, &temporary, &name)?;
        Ok(name)
    }

    /// The new log is there; the old one is put away.
    fn switch(&self, prepared: Prepared) -> Result<Rebuilt, OpenError> {
        let storage = self.salvage.storage;
        let new = names::segment_in_preparation(self.number);
        storage::rename(storage, &new, &names::segment(self.number))?;
        storage::sync_dir(storage)?;
        for name in &prepared.rewritten {
            let Name::Segment(number) = names::parse(name) else {
                unreachable!("only segments are written anew");
            };
            storage::rename(storage, &names::segment_in_preparation(number), name)?;
        }
        // Before a file that may be missed gets another name, those that hold bodies are in place.
        storage::sync_dir(storage)?;
        let mut set_aside = prepared.set_aside;
        let salvage = self.salvage;
        let segments = salvage.all_segments().map(|segment| segment.name.clone());
        let snapshots = salvage.snapshots.iter();
        let snapshots = snapshots.map(|position| names::snapshot(position.as_u64()));
        let unreadable = salvage.unreadable.iter().cloned();
        for name in segments.chain(snapshots).chain(unreadable) {
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

    /// Writes the segment that the log goes on in, under its temporary name.
    fn prepare_segment(&self) -> Result<(), IoFailure> {
        let epochs = self.salvage.all_segments().map(|s| s.header.epoch);
        let epoch = epochs.max().unwrap_or_default().next();
        let header = SegmentHeader {
            partition: 0,
            number: self.number,
            epoch,
            base: LogPosition::new(self.position.as_u64() - SEGMENT_HEADER_BLOCK_SIZE),
            capacity_bytes: self.capacity_bytes,
            salt: self.salts.of(epoch, self.number),
            durable: self.position,
        };
        segment::prepare(self.salvage.storage, header).map(|_| ())
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
        // A file that was cut is filled up.
        let read = storage::read_at(&*from.file, &from.name, piece, at)?;
        piece[read..].fill(0);
        storage::write_all_at(to, name, piece, at)?;
        at += count as u64;
    }
    Ok(())
}

/// Seals every record that is whole for the new header, one after the other.
fn reseal(
    segment: &Segment,
    header: &SegmentHeader,
    to: &dyn StorageFile,
    name: &str,
) -> Result<(), IoFailure> {
    let mut reader = RecordReader::new(segment);
    let mut at = segment.first();
    let mut chain = 0;
    while let Some(found) = reader.find_from(at)? {
        let Ok(record) = reader.read(found)? else {
            at = found.plus(8);
            continue;
        };
        at = record.end();
        let mut buffer = vec![0; RECORD_HEADER_SIZE];
        buffer.extend_from_slice(record.payload);
        let (kind, nothing) = (record.header.kind, LogPosition::default());
        chain = seal_record(&mut buffer, header.seal(), found, kind, chain, nothing);
        storage::write_all_at(to, name, &buffer, segment.offset_of(found))?;
    }
    Ok(())
}
