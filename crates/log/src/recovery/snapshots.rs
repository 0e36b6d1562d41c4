//! Which snapshot a start uses, and the pages that the kept ones name.

use std::collections::{BTreeMap, BTreeSet};

use super::{OpenError, manifest_error};
use crate::format::{FIRST_POSITION, names};
use crate::pages::{self, Instead, PageStore, ReadManifest};
use crate::replay::Replay;
use crate::segment::Salts;
use crate::storage::{self, Storage};
use crate::survey::Survey;
use crate::walk::Start;
use crate::{Epoch, LogId, LogOptions, LogPosition, PageDamage};

/// The state of the snapshots.
pub(crate) struct FoundSnapshots {
    pub(crate) used: Option<LogPosition>,
    /// The one that is used, as it was read.
    pub(crate) read: Option<ReadManifest>,
    /// Damaged copies of its pages. The others are whole.
    pub(crate) copies: Vec<PageDamage>,
    pub(crate) valid: Vec<LogPosition>,
    pub(crate) damaged: Vec<(LogPosition, OpenError)>,
}

impl FoundSnapshots {
    /// The files with damage, each once.
    pub(super) fn damaged_files(&self) -> Vec<String> {
        let copies = self.copies.iter().map(|damage| damage.file.clone());
        let snapshots = self.damaged.iter().flat_map(|(position, error)| {
            // Of a snapshot with a lost page, a file of pages is damaged.
            let of_page = match error {
                OpenError::Corrupt { file, .. } => Some(file.clone()),
                OpenError::Io(failure) => Some(failure.file.clone()),
                OpenError::NewerFormat { .. }
                | OpenError::Replay { .. }
                | OpenError::NoSpace { .. }
                | OpenError::Options(_) => None,
            };
            [names::snapshot(position.as_u64())]
                .into_iter()
                .chain(of_page)
        });
        let files: BTreeSet<String> = copies.chain(snapshots).collect();
        files.into_iter().collect()
    }
}

pub(super) fn load_snapshot(
    storage: &dyn Storage,
    survey: &Survey,
    replay: &mut dyn Replay,
) -> Result<(FoundSnapshots, Start), OpenError> {
    let mut start = Start {
        position: FIRST_POSITION,
        chain: survey.log().unwrap_or_default().chain_start(),
        time_ms: 0,
        epoch: Epoch::default(),
        begins_anew: false,
    };
    let mut found = FoundSnapshots {
        used: None,
        read: None,
        copies: Vec::new(),
        valid: survey.snapshots.clone(),
        damaged: Vec::new(),
    };
    while let Some(position) = found.valid.last().copied() {
        replay.begin();
        let instead = instead_of(&found, survey);
        match pages::replay_manifest(storage, position, (survey.log(), instead), replay) {
            Ok(read) if !read.counts(position, &survey.claims) => {
                let file = names::snapshot(position.as_u64());
                let what = "a later owner of the log went on before it";
                found.valid.pop();
                let error = OpenError::corrupt(&file, 0, what);
                found.damaged.push((position, error));
            }
            Ok(read) => {
                let header = read.header;
                found.copies.clone_from(&read.damage);
                found.used = Some(position);
                found.read = Some(read);
                start.position = position;
                start.chain = header.chain;
                start.epoch = header.epoch;
                start.time_ms = header.time_ms;
                start.begins_anew = header.begins_anew;
                return Ok((found, start));
            }
            Err(error) if error.is_lasting() => {
                found.valid.pop();
                found.damaged.push((position, manifest_error(error)));
            }
            Err(error) => return Err(manifest_error(error)),
        }
    }
    replay.begin();
    match found.damaged.len() {
        0 => Ok((found, start)),
        1 if is_complete(survey) => Ok((found, start)),
        _ => Err(found.damaged.remove(0).1),
    }
}

/// Whether the log exists from its beginning: with a single snapshot nothing was retired yet.
fn is_complete(survey: &Survey) -> bool {
    let first = survey.chain.first();
    first.is_some_and(|segment| segment.first() == FIRST_POSITION)
}

/// What is used if the last of the valid snapshots turns out to be damaged.
fn instead_of<'a>(found: &FoundSnapshots, survey: &'a Survey) -> Instead<'a> {
    match found.valid.as_slice() {
        [_] if found.damaged.is_empty() && is_complete(survey) => Instead::Log,
        [older @ .., _] => Instead::Snapshots(older.to_vec(), &survey.claims),
        [] => Instead::Nothing,
    }
}

/// What the kept snapshots name. One whose table cannot be read does not count.
pub(super) fn open_pages(
    storage: &dyn Storage,
    options: &LogOptions,
    (log, salts): (LogId, Salts),
    found: &mut FoundSnapshots,
) -> Result<PageStore, OpenError> {
    let mut kept = Vec::new();
    for position in found.valid.clone() {
        let read = found.read.take_if(|_| found.used == Some(position));
        match read.map_or_else(|| pages::read_table(storage, position), Ok) {
            Ok(read) => kept.push((position, read)),
            // The one that is used is whole, so a bad sector in this one is damage like any other.
            Err(error) if error.is_lasting() => {
                found.valid.retain(|valid| *valid != position);
                found.damaged.push((position, manifest_error(error)));
            }
            Err(error) => return Err(manifest_error(error)),
        }
    }
    let mut store = PageStore::open(storage, log, options.pages, salts.entropy(), kept)?;
    for (position, _) in &found.damaged {
        // Of one with a lost page, the others stay as long as its file does.
        if let Ok(read) = pages::read_table(storage, *position) {
            store.keep_pages_of(*position, &read);
        }
    }
    Ok(store)
}

/// The sizes of their files.
pub(super) fn sizes_of(
    storage: &dyn Storage,
    snapshots: &[LogPosition],
) -> Result<BTreeMap<LogPosition, u64>, OpenError> {
    let size_of = |position: &LogPosition| {
        let name = names::snapshot(position.as_u64());
        let file = storage::open(storage, &name)?;
        Ok((*position, storage::len(&*file, &name)?))
    };
    snapshots.iter().map(size_of).collect()
}
