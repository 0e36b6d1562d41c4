//! The seams of the simulation itself, where a planted bug alters what passes between its parts: calls of the
//! disk, commands, answers, readings of the clocks. Without a planted bug everything passes as it is.

use std::any::Any;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use kew_broker::{OpenPartitionError, Partition, PartitionOptions, Reply};
use kew_engine::{Command, RestoringPages, State, Timestamp};
use kew_log::{
    BoxError, FaultyStorage, Job, JobKind, JobOutcome, LogPosition, OpenError, PageContent,
    PageNumber, Recovery, Replay, Storage, StorageFile, replay,
};
use kew_planted::{Seam, alter, is_any_planted};

/// A file that the disk opens, under its name.
pub(crate) type Opened = (String, Arc<dyn StorageFile>);

/// The disk, and the new name of a file that was renamed there.
pub(crate) type Renamed = (FaultyStorage, String);

/// Answers on their way to clients, and commands that follow from them.
pub(crate) type Replies = (Vec<(u64, Reply)>, Vec<Command>);

/// A value as it has passed a seam.
pub(crate) fn altered<T: Any>(seam: Seam, mut value: T) -> T {
    alter(seam, &mut value);
    value
}

/// The command that is decided next, or `None` when a turn begins.
pub(crate) fn taken(command: Option<&Command>) {
    if is_any_planted() {
        alter(Seam::Taken, &mut command.cloned());
    }
}

/// Answers as clients get them, and commands that nobody submitted.
pub(crate) fn replies(replies: &mut Vec<(u64, Reply)>) -> Vec<Command> {
    let mut passing: Replies = (std::mem::take(replies), Vec::new());
    alter(Seam::Replies, &mut passing);
    *replies = passing.0;
    passing.1
}

/// Carries out a job.
pub(crate) fn carry_out(job: Job, storage: &dyn Storage) -> JobOutcome {
    alter(Seam::Job, &mut Some(job.kind()));
    let outcome = job.run(storage);
    alter(Seam::Job, &mut None::<JobKind>);
    outcome
}

/// Opens a partition.
pub(crate) fn open(
    storage: &dyn Storage,
    options: PartitionOptions,
    entropy: u64,
    secret: [u8; 16],
    wall: Timestamp,
) -> Result<(Partition<u64>, Recovery), OpenPartitionError> {
    let mut parts: Vec<Bytes> = Vec::new();
    alter(Seam::Opened, &mut parts);
    let (partition, recovery) = Partition::open(storage, options, entropy, secret, wall)?;
    if is_any_planted() {
        let state = partition.state();
        match state.may_be_cold() {
            false => put_parts(state, &mut parts),
            true => match whole(storage) {
                Ok(state) => put_parts(&state, &mut parts),
                // A fault of the disk. No state can be made of this.
                Err(_) => parts.push(Bytes::from_static(b"not read")),
            },
        }
        alter(Seam::Opened, &mut parts);
    }
    Ok((partition, recovery))
}

fn put_parts(state: &State, parts: &mut Vec<Bytes>) {
    state.snapshot(|part| parts.push(Bytes::copy_from_slice(part)));
}

/// The state that a log has, with all messages in memory.
fn whole(storage: &dyn Storage) -> Result<State, OpenError> {
    let mut whole = Whole::default();
    replay(storage, &mut whole)?;
    Ok(whole.state)
}

#[derive(Default)]
struct Whole {
    state: State,
    restoring: RestoringPages,
}

impl Replay for Whole {
    fn begin(&mut self) {
        *self = Self::default();
    }

    fn snapshot_part(&mut self, part: &[u8]) -> Result<(), BoxError> {
        Ok(self.state.restore(part)?)
    }

    fn snapshot_page(&mut self, page: PageNumber, content: &PageContent) -> Result<(), BoxError> {
        let groups: Vec<&[u8]> = content.groups().collect();
        let page = kew_engine::PageNumber::new(page.as_u64());
        let restored = (self.state).restore_page(&mut self.restoring, page, content.kind, &groups);
        Ok(restored?)
    }

    fn snapshot_end(&mut self) -> Result<(), BoxError> {
        let restoring = std::mem::take(&mut self.restoring);
        Ok(self.state.finish_pages(restoring)?)
    }

    fn event(&mut self, _: LogPosition, event: &[u8]) -> Result<(), BoxError> {
        let event = self.state.read_event(event)?;
        self.state.apply(event);
        Ok(())
    }
}

/// A disk whose files cannot be opened.
pub(crate) struct Unreadable<'a>(pub(crate) Disk<'a>);

impl Storage for Unreadable<'_> {
    fn create(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        self.0.create(name)
    }

    fn open(&self, _: &str) -> io::Result<Arc<dyn StorageFile>> {
        Err(io::Error::other("the disk fails"))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.0.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.0.remove(name)
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.0.list()
    }

    fn sync_dir(&self) -> io::Result<()> {
        self.0.sync_dir()
    }

    fn free_bytes(&self) -> Option<u64> {
        self.0.free_bytes()
    }
}

/// The disk as the log sees it.
pub(crate) struct Disk<'a>(pub(crate) &'a FaultyStorage);

impl Storage for Disk<'_> {
    fn create(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        let file = self.0.create(name)?;
        Ok(altered::<Opened>(Seam::File, (name.to_owned(), file)).1)
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        let file = self.0.open(name)?;
        Ok(altered::<Opened>(Seam::File, (name.to_owned(), file)).1)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.0.rename(from, to)?;
        if is_any_planted() {
            alter::<Renamed>(Seam::Renamed, &mut (self.0.clone(), to.to_owned()));
        }
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.0.remove(name)
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.0.list()
    }

    fn sync_dir(&self) -> io::Result<()> {
        match altered(Seam::DirectorySync, true) {
            true => self.0.sync_dir(),
            false => Ok(()),
        }
    }

    fn free_bytes(&self) -> Option<u64> {
        self.0.free_bytes()
    }
}
