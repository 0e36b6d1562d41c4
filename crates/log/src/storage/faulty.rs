//! A disk in memory that fails on demand, and shows what a power cut would have left.
//!
//! Every byte is either durable or still on its way: writes wait in their sectors until the file
//! is synced, names wait until the directory is. [`FaultyStorage::crash`] picks one of the states
//! that a power cut may leave; the picks come from the caller, so that a seed repeats them.

use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use self::disk::{Disk, NameChange, Outcome, PlannedFault};
use self::inode::{Fingerprint, SECTOR_SIZE, Sector};
use super::{Storage, StorageFile};

mod disk;
mod inode;

/// An error of the operating system that can be injected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The disk reports an error, for any operation.
    Eio,
    /// The disk is full, for operations that take space.
    Enospc,
    /// The same where a file system copies what it writes: even to remove a name takes space.
    EnospcAtAll,
    /// A right is missing, for any operation.
    Eacces,
    /// No file descriptor is left: a file cannot be created, opened or, if it was closed meanwhile, read.
    Emfile,
    /// A write takes only the first half of its bytes.
    ShortWrite,
    /// A signal came first, for any operation but a sync.
    Eintr,
}

impl Fault {
    /// Every one of them.
    pub const ALL: [Self; 7] = [
        Self::Eio,
        Self::Enospc,
        Self::EnospcAtAll,
        Self::Eacces,
        Self::Emfile,
        Self::ShortWrite,
        Self::Eintr,
    ];

    fn applies_to(self, operation: Operation) -> bool {
        match self {
            Self::Eio | Self::Eacces | Self::EnospcAtAll => true,
            Self::Enospc => matches!(
                operation,
                Operation::Write | Operation::Create | Operation::Rename
            ),
            Self::Emfile => matches!(
                operation,
                Operation::Create | Operation::Open | Operation::Read
            ),
            Self::ShortWrite => operation == Operation::Write,
            Self::Eintr => operation != Operation::Sync,
        }
    }
}

/// How often an injected fault strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeat {
    /// One operation fails.
    Once,
    /// From then on every operation that can fail this way does.
    Sticky,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    Read,
    Write,
    Sync,
    Create,
    Open,
    Rename,
    Other,
}

/// A disk in memory with faults. Clones are the same disk.
#[derive(Clone, Debug, Default)]
pub struct FaultyStorage {
    disk: Arc<Mutex<Disk>>,
}

impl FaultyStorage {
    /// An empty disk without faults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Injects a fault: the first operation that can fail this way, after `count` further
    /// operations of any kind, does.
    pub fn fail_after(&self, count: u64, fault: Fault, repeat: Repeat) {
        let mut disk = self.disk();
        let from_call = disk.calls + count;
        disk.faults.push(PlannedFault {
            from_call,
            fault,
            repeat,
        });
    }

    /// Lets `count` further operations happen; later ones fail and have no effect.
    pub fn crash_after(&self, count: u64) {
        let mut disk = self.disk();
        disk.power_off_at_call = Some(disk.calls + count);
    }

    /// Takes back all injected faults, and puts the power on.
    pub fn clear_faults(&self) {
        let mut disk = self.disk();
        disk.faults.clear();
        disk.power_off_at_call = None;
    }

    /// Bounds the size of all files together; `None` lifts the bound.
    pub fn set_capacity_bytes(&self, capacity_bytes: Option<u64>) {
        self.disk().capacity_bytes = capacity_bytes;
    }

    /// How many operations were asked for since the disk was made.
    pub fn calls(&self) -> u64 {
        self.disk().calls
    }

    /// How many of them failed by an injected fault, or because the power was off.
    pub fn failed_calls(&self) -> u64 {
        self.disk().failed_calls
    }

    /// Size of all files together.
    pub fn used_bytes(&self) -> u64 {
        self.disk().used_bytes()
    }

    /// The disk after a power cut: one of the states it may be in, picked by `choice`, which
    /// answers a number below its argument.
    ///
    /// Each sector that was written and not synced has its old content, its new, or one between;
    /// the writes of one file are lost in any order, at 512 or at 4096 bytes. Names that were not
    /// synced are kept or lost, in order for each name. The disk left behind is not changed.
    pub fn crash(&self, choice: &mut dyn FnMut(u32) -> u32) -> Self {
        let mut after = self.disk().clone();
        after.lose_names(choice);
        for inode in after.inodes.values_mut() {
            inode.lose_writes(choice);
        }
        after.restart();
        Self::from(after)
    }

    /// The disk after the process was killed: all that was written is seen by the next one, and
    /// what was not synced can still be lost by a power cut. The disk left behind is not changed.
    pub fn kill(&self) -> Self {
        let mut after = self.disk().clone();
        after.restart();
        Self::from(after)
    }

    /// The names of all files with their sizes, in order.
    pub fn files(&self) -> Vec<(String, u64)> {
        let disk = self.disk();
        disk.names
            .iter()
            .map(|(name, inode)| (name.clone(), disk.inodes[inode].size_bytes))
            .collect()
    }

    /// All bytes of a file, or `None` if there is none of that name.
    pub fn content(&self, name: &str) -> Option<Vec<u8>> {
        let disk = self.disk();
        let inode = &disk.inodes[disk.names.get(name)?];
        let mut bytes = vec![0; usize::try_from(inode.size_bytes).ok()?];
        inode.read(&mut bytes, 0);
        Some(bytes)
    }

    /// A number that differs, but for a rare accident, when the names, sizes or bytes of files do.
    pub fn fingerprint(&self) -> u64 {
        let disk = self.disk();
        let mut hash = Fingerprint([1, 2, 3, 4]);
        for (name, inode) in &disk.names {
            let inode = &disk.inodes[inode];
            hash.take(name.as_bytes());
            hash.take(&inode.size_bytes.to_le_bytes());
            let shown = inode.size_bytes.div_ceil(SECTOR_SIZE as u64);
            for (number, sector) in inode.sectors.range(..shown) {
                let content = sector.current();
                // A sector of zeros is the same as none.
                if content != &Sector::ZERO.durable {
                    hash.take(&number.to_le_bytes());
                    hash.take(content);
                }
            }
        }
        hash.end()
    }

    /// Creates a file, durably, or replaces the one of that name.
    pub fn put(&self, name: &str, content: &[u8]) {
        let mut disk = self.disk();
        let number = disk.new_inode();
        let inode = disk.inodes.get_mut(&number).expect("it was just made");
        inode.write(content, 0);
        inode.sync();
        disk.names.insert(name.to_owned(), number);
        disk.durable_names.insert(name.to_owned(), number);
    }

    /// Overwrites bytes behind the log's back, durably: bit rot, or a misdirected write.
    ///
    /// # Panics
    ///
    /// If there is no such file.
    pub fn corrupt(&self, name: &str, offset: u64, bytes: &[u8]) {
        let mut disk = self.disk();
        let number = disk.names[name];
        let inode = disk.inodes.get_mut(&number).expect("a name has its file");
        inode.write(bytes, offset);
        inode.sync();
    }

    /// Flips the bits of `mask` in one byte, durably.
    ///
    /// # Panics
    ///
    /// If there is no such byte.
    pub fn flip(&self, name: &str, offset: u64, mask: u8) {
        let content = self.content(name).expect("the file exists");
        let index = usize::try_from(offset).expect("an offset in memory");
        self.corrupt(name, offset, &[content[index] ^ mask]);
    }

    /// Makes a range of a file unreadable for good: each read that touches it fails.
    ///
    /// # Panics
    ///
    /// If there is no such file.
    pub fn spoil(&self, name: &str, range: Range<u64>) {
        let mut disk = self.disk();
        let number = disk.names[name];
        disk.inode(number).spoiled.push(range);
    }

    /// Cuts a file behind the log's back, durably. Who has it open sees that.
    ///
    /// # Panics
    ///
    /// If there is no such file.
    pub fn truncate(&self, name: &str, size_bytes: u64) {
        let content = self.content(name).expect("the file exists");
        let size = usize::try_from(size_bytes).expect("a size in memory");
        let mut disk = self.disk();
        let number = disk.names[name];
        let inode = disk.inode(number);
        inode.sectors.clear();
        inode.dirty.clear();
        inode.size_bytes = 0;
        inode.write(&content[..size], 0);
        inode.sync();
    }

    /// Removes a file behind the log's back, durably.
    pub fn lose_file(&self, name: &str) {
        let mut disk = self.disk();
        disk.names.remove(name);
        disk.durable_names.remove(name);
    }

    fn disk(&self) -> MutexGuard<'_, Disk> {
        self.disk.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl From<Disk> for FaultyStorage {
    fn from(disk: Disk) -> Self {
        Self {
            disk: Arc::new(Mutex::new(disk)),
        }
    }
}

impl Storage for FaultyStorage {
    fn create(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        let mut disk = self.disk();
        disk.begin(Operation::Create)?;
        if disk.names.contains_key(name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let number = disk.new_inode();
        disk.names.insert(name.to_owned(), number);
        disk.pending_names
            .push(NameChange::Create(name.to_owned(), number));
        Ok(self.handle(&disk, number))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        let mut disk = self.disk();
        disk.begin(Operation::Open)?;
        let number = *disk.names.get(name).ok_or(io::ErrorKind::NotFound)?;
        Ok(self.handle(&disk, number))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut disk = self.disk();
        disk.begin(Operation::Rename)?;
        let number = disk.names.remove(from).ok_or(io::ErrorKind::NotFound)?;
        disk.names.insert(to.to_owned(), number);
        disk.pending_names
            .push(NameChange::Rename(from.to_owned(), to.to_owned()));
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut disk = self.disk();
        disk.begin(Operation::Other)?;
        disk.names.remove(name).ok_or(io::ErrorKind::NotFound)?;
        disk.pending_names.push(NameChange::Remove(name.to_owned()));
        Ok(())
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let mut disk = self.disk();
        disk.begin(Operation::Other)?;
        Ok(disk.names.keys().cloned().collect())
    }

    fn sync_dir(&self) -> io::Result<()> {
        let mut disk = self.disk();
        disk.begin(Operation::Sync)?;
        disk.durable_names = disk.names.clone();
        disk.pending_names.clear();
        disk.forget_lost_inodes();
        Ok(())
    }

    fn free_bytes(&self) -> Option<u64> {
        let disk = self.disk();
        let used_bytes = disk.used_bytes();
        Some(disk.capacity_bytes?.saturating_sub(used_bytes))
    }
}

impl FaultyStorage {
    fn handle(&self, disk: &Disk, number: u64) -> Arc<dyn StorageFile> {
        Arc::new(FaultyFile {
            disk: Arc::clone(&self.disk),
            number,
            _open: Arc::clone(&disk.inodes[&number].open),
        })
    }
}

struct FaultyFile {
    disk: Arc<Mutex<Disk>>,
    number: u64,
    /// Keeps the content after the last name is gone.
    _open: Arc<()>,
}

impl FaultyFile {
    fn disk(&self) -> MutexGuard<'_, Disk> {
        self.disk.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StorageFile for FaultyFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut disk = self.disk();
        disk.begin(Operation::Read)?;
        let inode = disk.inode(self.number);
        let end = offset + buffer.len() as u64;
        let is_touched = |it: &Range<u64>| it.start < end && offset < it.end;
        match inode.spoiled.iter().any(is_touched) {
            true => Err(os_error(Fault::Eio)),
            false => Ok(inode.read(buffer, offset)),
        }
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        let mut disk = self.disk();
        let bytes = match disk.begin(Operation::Write)? {
            Outcome::Full => bytes,
            Outcome::Short => &bytes[..bytes.len().div_ceil(2)],
        };
        let end = offset + bytes.len() as u64;
        let growth = end.saturating_sub(disk.inode(self.number).size_bytes);
        if disk
            .capacity_bytes
            .is_some_and(|capacity| growth > 0 && disk.used_bytes() + growth > capacity)
        {
            return Err(os_error(Fault::Enospc));
        }
        disk.inode(self.number).write(bytes, offset);
        Ok(bytes.len())
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut disk = self.disk();
        let begun = disk.begin(Operation::Sync);
        let inode = disk.inode(self.number);
        match begun {
            Ok(_) => inode.sync(),
            // As kernels do: the pages are clean again, their content is still shown, and no
            // later sync writes them.
            Err(_) => inode.dirty.clear(),
        }
        begun.map(|_| ())
    }

    fn len(&self) -> io::Result<u64> {
        let mut disk = self.disk();
        disk.begin(Operation::Other)?;
        Ok(disk.inode(self.number).size_bytes)
    }
}
fn os_error(fault: Fault) -> io::Error {
    // These numbers are the same on every Unix.
    match fault {
        Fault::Eio => io::Error::from_raw_os_error(5),
        Fault::Eacces => io::Error::from_raw_os_error(13),
        Fault::Enospc | Fault::EnospcAtAll => io::Error::from_raw_os_error(28),
        Fault::Emfile => io::Error::from_raw_os_error(24),
        Fault::Eintr => io::Error::from_raw_os_error(4),
        Fault::ShortWrite => io::ErrorKind::WriteZero.into(),
    }
}

#[cfg(test)]
mod tests;
