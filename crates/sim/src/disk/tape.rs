//! A disk that remembers its state before each call that changes it.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kew_log::{FaultyStorage, Storage, StorageFile};

use crate::seam::Disk;

/// The disk at a point where the power could have gone off.
#[derive(Clone, Debug)]
pub(super) struct Fork {
    /// Before this call, counted since the tape was made.
    pub(super) call: usize,
    pub(super) disk: FaultyStorage,
}

/// The kind of call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Call {
    Read,
    Write,
    Sync,
    Create,
    Rename,
    Other,
}

/// Passes everything on to a faulty disk, and keeps a fork before each change while it records.
///
/// A read changes nothing that a power cut could show, so the calls between two changes share one
/// fork.
#[derive(Clone, Debug)]
pub(super) struct Tape {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    disk: Disk,
    reel: Mutex<Reel>,
}

#[derive(Debug, Default)]
struct Reel {
    is_recording: bool,
    has_changed: bool,
    calls: Vec<Call>,
    reused: u64,
    failed_page_reads: u64,
    forks: Vec<Fork>,
}

impl Tape {
    pub(super) fn new(disk: FaultyStorage) -> Self {
        Self {
            shared: Arc::new(Shared {
                disk: Disk::new(&disk),
                reel: Mutex::default(),
            }),
        }
    }

    /// Forks from now on; the first fork has the current state.
    pub(super) fn record(&self) {
        let mut reel = self.shared.reel();
        reel.is_recording = true;
        reel.has_changed = true;
    }

    pub(super) fn stop(&self) {
        self.shared.reel().is_recording = false;
    }

    /// The forks since the last call.
    pub(super) fn take_forks(&self) -> Vec<Fork> {
        std::mem::take(&mut self.shared.reel().forks)
    }

    /// A fork of the current state, if it records and something has changed since the last fork.
    pub(super) fn fork_now(&self) {
        self.shared.fork(&mut self.shared.reel());
    }

    pub(super) fn disk(&self) -> &FaultyStorage {
        self.shared.disk.inner()
    }

    /// Every call since the tape was made.
    pub(super) fn calls(&self) -> Vec<Call> {
        self.shared.reel().calls.clone()
    }

    /// How many retired files became segments again.
    pub(super) fn reused(&self) -> u64 {
        self.shared.reel().reused
    }
}

impl Tape {
    /// How many reads of page files have failed. Each page has a copy, or is in memory.
    pub(super) fn failed_page_reads(&self) -> u64 {
        self.shared.reel().failed_page_reads
    }
}

impl Shared {
    fn reel(&self) -> MutexGuard<'_, Reel> {
        self.reel.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn before_change(&self, call: Call) {
        let mut reel = self.reel();
        self.fork(&mut reel);
        reel.calls.push(call);
        reel.has_changed = true;
    }

    fn before_look(&self, call: Call) {
        self.reel().calls.push(call);
    }

    fn fork(&self, reel: &mut Reel) {
        if reel.is_recording && reel.has_changed {
            reel.has_changed = false;
            let call = reel.calls.len();
            let disk = self.disk.inner().kill();
            reel.forks.push(Fork { call, disk });
        }
    }

    fn handle(self: &Arc<Self>, name: &str, file: Arc<dyn StorageFile>) -> Arc<dyn StorageFile> {
        Arc::new(TapeFile {
            file,
            has_pages: has_pages(name),
            shared: Arc::clone(self),
        })
    }

    /// Notes how a read went of a file that has pages, or not.
    fn note_read<T>(&self, has_pages: bool, read: io::Result<T>) -> io::Result<T> {
        if has_pages && read.is_err() {
            self.reel().failed_page_reads += 1;
        }
        read
    }
}

impl Storage for Tape {
    fn create(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        self.shared.before_change(Call::Create);
        let file = self.shared.disk.create(name)?;
        Ok(self.shared.handle(name, file))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        self.shared.before_look(Call::Other);
        let opened = self.shared.disk.open(name);
        let file = self.shared.note_read(has_pages(name), opened)?;
        Ok(self.shared.handle(name, file))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.shared.before_change(Call::Rename);
        if from.starts_with("recycled-") && to.starts_with("segment-") {
            self.shared.reel().reused += 1;
        }
        self.shared.disk.inner().rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.shared.before_change(Call::Other);
        self.shared.disk.inner().remove(name)
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.shared.before_look(Call::Other);
        self.shared.disk.inner().list()
    }

    fn sync_dir(&self) -> io::Result<()> {
        self.shared.before_change(Call::Sync);
        self.shared.disk.sync_dir()
    }

    fn free_bytes(&self) -> Option<u64> {
        self.shared.disk.free_bytes()
    }
}

fn has_pages(name: &str) -> bool {
    name.starts_with("pages-")
}

struct TapeFile {
    file: Arc<dyn StorageFile>,
    has_pages: bool,
    shared: Arc<Shared>,
}

impl StorageFile for TapeFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.shared.before_look(Call::Read);
        let read = self.file.read_at(buffer, offset);
        self.shared.note_read(self.has_pages, read)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.shared.before_change(Call::Write);
        self.file.write_at(bytes, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.shared.before_change(Call::Sync);
        self.file.sync_data()
    }

    fn len(&self) -> io::Result<u64> {
        self.shared.before_look(Call::Other);
        let length = self.file.len();
        self.shared.note_read(self.has_pages, length)
    }
}
