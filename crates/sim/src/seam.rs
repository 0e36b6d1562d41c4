//! The seams of the simulation itself, where a planted bug alters what passes between its parts: calls of the
//! disk, commands, answers, readings of the clocks. Without a planted bug everything passes as it is.

use std::any::Any;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use kew_broker::{OpenPartitionError, Partition, PartitionOptions, Reply};
use kew_engine::{Command, Timestamp};
use kew_log::{FaultyStorage, Job, JobKind, JobOutcome, Recovery, Storage, StorageFile};
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
        state.snapshot(|part| parts.push(Bytes::copy_from_slice(part)));
        alter(Seam::Opened, &mut parts);
    }
    Ok((partition, recovery))
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
