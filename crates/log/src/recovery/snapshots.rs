//! Which snapshot a start uses, and the pages that the kept ones name.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::ops::ControlFlow;

use super::{OpenError, manifest_error};
use crate::format::{FIRST_POSITION, names};
use crate::pages::{self, Instead, PageStore, ReadManifest, Replaying};
use crate::piece::Room;
use crate::replay::Replay;
use crate::segment::Salts;
use crate::storage::{self, IoFailure, Storage};
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
    /// Both copies of pages of which only a part was restored.
    pub(crate) lost: Vec<PageDamage>,
    pub(crate) valid: Vec<LogPosition>,
    pub(crate) damaged: Vec<(LogPosition, OpenError)>,
    /// What the disk has not read of others, while it was found out what could take the place of the one that is used.
    pub(crate) unread: Vec<IoFailure>,
}

impl FoundSnapshots {
    /// The newest of the valid ones cannot be used.
    fn pass_over(&mut self, error: OpenError) {
        if let Some(position) = self.valid.pop() {
            self.damaged.push((position, error));
        }
    }

    fn using(mut self, position: LogPosition, mut read: ReadManifest) -> Self {
        self.unread = mem::take(&mut read.unread);
        self.copies.clone_from(&read.damage);
        self.lost.clone_from(&read.lost);
        self.used = Some(position);
        self.read = Some(read);
        self
    }

    /// The files with damage, each once.
    pub(super) fn damaged_files(&self) -> Vec<String> {
        let copies = self.copies.iter().chain(&self.lost);
        let copies = copies.map(|damage| damage.file.clone());
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

/// A start that looks for a snapshot that is whole, the newest first.
pub(super) struct Loading {
    found: FoundSnapshots,
    /// Where a walk begins without a snapshot.
    beginning: Start,
    /// The one that is being read.
    reading: Option<pages::Reading>,
    /// Whether what is left of damaged pages may be enough. Not while the log from its beginning may have all of it.
    may_lose: bool,
}

impl Loading {
    pub(super) fn of(survey: &Survey) -> Self {
        Self {
            found: FoundSnapshots {
                used: None,
                read: None,
                copies: Vec::new(),
                lost: Vec::new(),
                valid: survey.snapshots.clone(),
                damaged: Vec::new(),
                unread: Vec::new(),
            },
            beginning: Start {
                position: FIRST_POSITION,
                chain: survey.log().unwrap_or_default().chain_start(),
                time_ms: 0,
                epoch: Epoch::default(),
                begins_anew: false,
            },
            reading: None,
            may_lose: !is_complete(survey),
        }
    }

    /// The same, although the log has its beginning.
    pub(super) fn with_losses(self) -> Self {
        Self {
            may_lose: true,
            ..self
        }
    }

    /// Reads until there is no room, or until all of the snapshot was passed on.
    pub(super) fn step(
        mut self,
        storage: &dyn Storage,
        survey: &Survey,
        replay: &mut dyn Replay,
        room: &mut Room,
    ) -> Result<ControlFlow<(FoundSnapshots, Start), Self>, OpenError> {
        while let Some(position) = self.found.valid.last().copied() {
            let reading = match self.reading.take() {
                Some(reading) => reading,
                None => {
                    replay.begin();
                    replay.snapshot_begin(position);
                    let reading = pages::Reading::of(position, survey.log());
                    match self.may_lose {
                        true => reading.with_losses(),
                        false => reading,
                    }
                }
            };
            let instead = instead_of(&self.found, survey, self.may_lose);
            match reading.step(storage, instead, &mut Replaying(replay), room) {
                Ok(ControlFlow::Continue(reading)) => {
                    self.reading = Some(reading);
                    return Ok(ControlFlow::Continue(self));
                }
                Ok(ControlFlow::Break(read)) if !read.counts(position, &survey.claims) => {
                    let file = names::snapshot(position.as_u64());
                    let what = "a later owner of the log went on before it";
                    self.found.pass_over(OpenError::corrupt(&file, 0, what));
                }
                Ok(ControlFlow::Break(read)) => {
                    let start = Start::of(&read.header);
                    let found = self.found.using(position, read);
                    return Ok(ControlFlow::Break((found, start)));
                }
                Err(error) if error.is_lasting() => self.found.pass_over(manifest_error(error)),
                Err(error) => return Err(manifest_error(error)),
            }
        }
        replay.begin();
        // Segments between the beginning and a snapshot may be gone: then a walk finds the gap.
        if !self.found.damaged.is_empty() && (self.may_lose || !is_complete(survey)) {
            return Err(self.found.damaged.remove(0).1);
        }
        Ok(ControlFlow::Break((self.found, self.beginning)))
    }
}

/// Whether the log has its beginning. If segments behind that are gone, a walk finds the gap: the name of a snapshot proves
/// what was durable.
fn is_complete(survey: &Survey) -> bool {
    let first = survey.chain.first();
    first.is_some_and(|segment| segment.first() == FIRST_POSITION)
}

/// What is used if the last of the valid snapshots turns out to be damaged. With `may_lose`, the log is not whole.
fn instead_of<'a>(found: &FoundSnapshots, survey: &'a Survey, may_lose: bool) -> Instead<'a> {
    match found.valid.as_slice() {
        [_] if found.damaged.is_empty() && !may_lose => Instead::Log,
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
