//! The seams of the simulation itself, where a planted bug alters what passes between its parts: calls of the
//! disk, commands, answers, readings of the clocks. Without a planted bug everything passes as it is.

use std::any::Any;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

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

/// Carries out a job, on the disk that its partition was opened with.
pub(crate) fn carry_out(job: Job) -> JobOutcome {
    alter(Seam::Job, &mut Some(job.kind()));
    let outcome = job.run();
    alter(Seam::Job, &mut None::<JobKind>);
    outcome
}

/// Opens a partition.
pub(crate) fn open(
    storage: Arc<dyn Storage>,
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

/// The disk as the log sees it.
#[derive(Debug)]
pub(crate) struct Disk {
    disk: FaultyStorage,
    is_unreadable: AtomicBool,
}

impl Disk {
    pub(crate) fn new(disk: &FaultyStorage) -> Self {
        Self {
            disk: disk.clone(),
            is_unreadable: AtomicBool::new(false),
        }
    }

    /// Whether no file can be opened from now on.
    pub(crate) fn set_unreadable(&self, is_unreadable: bool) {
        self.is_unreadable.store(is_unreadable, Ordering::Relaxed);
    }

    /// What is on it, without the seams.
    pub(crate) fn inner(&self) -> &FaultyStorage {
        &self.disk
    }
}

impl Storage for Disk {
    fn create(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        let file = self.disk.create(name)?;
        Ok(altered::<Opened>(Seam::File, (name.to_owned(), file)).1)
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        if self.is_unreadable.load(Ordering::Relaxed) {
            return Err(io::Error::other("the disk fails"));
        }
        let file = self.disk.open(name)?;
        Ok(altered::<Opened>(Seam::File, (name.to_owned(), file)).1)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.disk.rename(from, to)?;
        if is_any_planted() {
            alter::<Renamed>(Seam::Renamed, &mut (self.disk.clone(), to.to_owned()));
        }
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.disk.remove(name)
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.disk.list()
    }

    fn sync_dir(&self) -> io::Result<()> {
        match altered(Seam::DirectorySync, true) {
            true => self.disk.sync_dir(),
            false => Ok(()),
        }
    }

    fn free_bytes(&self) -> Option<u64> {
        self.disk.free_bytes()
    }
}
