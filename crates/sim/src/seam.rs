//! The seams of the simulation itself, where a planted bug alters what passes between its parts: calls of the
//! disk, commands, answers, readings of the clocks. Without a planted bug everything passes as it is.

use std::any::Any;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use kew_broker::{OpenPartitionError, Partition, PartitionOptions, Reply};
use kew_engine::{Command, RestoringPages, State, Timestamp};
use kew_log::{
    BackupPlan, BoxError, FaultyStorage, Job, JobKind, JobOutcome, LogFiles, LogPosition,
    OpenError, OwnedLog, PageContent, PageNumber, Recovery, Replay, Storage, StorageFile, replay,
};
use kew_planted::{Seam, alter, is_any_planted};

/// A file that the disk opens, under its name.
pub(crate) type Opened = (String, Arc<dyn StorageFile>);

/// The name of a file that a scrub looks for and that is not there, and what is opened instead.
pub(crate) type Gone = (String, Option<Arc<dyn StorageFile>>);

/// The disk, and the new name of a file that was renamed there.
pub(crate) type Renamed = (FaultyStorage, String);

/// Answers on their way to clients, and commands that follow from them.
pub(crate) type Replies = (Vec<(u64, Reply)>, Vec<Command>);

/// A partition that was opened, and how.
pub(crate) type OpenedPartition = Result<(Partition<u64>, Recovery), OpenPartitionError>;

/// A backup that was begun.
pub(crate) struct BackupBegun {
    pub(crate) plan: BackupPlan,
    /// Whether its files stay until it ends.
    pub(crate) is_pinned: bool,
}

/// A value as it has passed a seam.
pub(crate) fn altered<T: Any>(seam: Seam, mut value: T) -> T {
    alter(seam, &mut value);
    value
}

/// Does something beside the world under test, so that no planted bug meets it or takes it for a part of that world.
pub(crate) fn apart<T>(work: impl FnOnce() -> T) -> T {
    #[cfg(feature = "planted-bugs")]
    if is_any_planted() {
        return kew_planted::with_hook(Box::new(|_, _| {}), work);
    }
    work()
}

/// The files of a log, which has some in each world.
pub(crate) fn files_of(log: &dyn OwnedLog) -> &dyn LogFiles {
    log.files().expect("a segment log has files")
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
) -> OpenedPartition {
    let mut parts: Vec<Bytes> = Vec::new();
    alter(Seam::Opened, &mut parts);
    let kept = Arc::clone(&storage);
    let (partition, recovery) = Partition::open(storage, options, entropy, secret, wall)?;
    if is_any_planted() {
        let state = partition.state();
        match state.may_be_cold() {
            false => put_parts(state, &mut parts),
            true => match whole(&*kept) {
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

/// The disk as the log sees it.
#[derive(Debug)]
pub(crate) struct Disk {
    disk: FaultyStorage,
    is_unreadable: AtomicBool,
    is_scrubbing: AtomicBool,
    /// The scrub has looked for a file that is not there.
    has_missed: AtomicBool,
}

impl Disk {
    pub(crate) fn new(disk: &FaultyStorage) -> Self {
        Self {
            disk: disk.clone(),
            is_unreadable: AtomicBool::new(false),
            is_scrubbing: AtomicBool::new(false),
            has_missed: AtomicBool::new(false),
        }
    }

    /// Whether no file can be opened from now on.
    pub(crate) fn set_unreadable(&self, is_unreadable: bool) {
        self.is_unreadable.store(is_unreadable, Ordering::Relaxed);
    }

    /// Whether it is the scrub that reads from now on. Returns whether it has looked for a file that is not there
    /// since the last call.
    pub(crate) fn set_scrubbing(&self, is_scrubbing: bool) -> bool {
        self.is_scrubbing.store(is_scrubbing, Ordering::Relaxed);
        self.has_missed.swap(false, Ordering::Relaxed)
    }

    /// What a scrub opens instead of a file that is not there: nothing, without a planted bug.
    fn instead(&self, name: &str, error: io::Error) -> io::Result<Arc<dyn StorageFile>> {
        let is_gone = error.kind() == io::ErrorKind::NotFound;
        if !is_gone || !self.is_scrubbing.load(Ordering::Relaxed) {
            return Err(error);
        }
        self.has_missed.store(true, Ordering::Relaxed);
        let (_, file) = altered::<Gone>(Seam::Gone, (name.to_owned(), None));
        file.ok_or(error)
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
        let opened = self.disk.open(name);
        let file = opened.or_else(|error| self.instead(name, error))?;
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
