//! Appends pages to a pair of files that this start has made.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::files::remove_pairs;
use super::format::{ALIGNMENT, BLOCK_SIZE, Copy, FileHeader, Seal, name, page_size, put_page};
use super::{PageContent, PageNumber, PageOptions, PagePlace};
use crate::segment::{Salts, create_anew};
use crate::storage::{self, IoFailure, Storage, StorageFile};
use crate::{Epoch, LogId, LogPosition};

/// Pages are gathered until there are so many bytes of them.
const WRITE_SIZE: usize = 256 * 1024;

/// Appends pages. It belongs to one start, and moves with the job that writes a snapshot.
///
/// After an error nothing more is appended to the files that it had: the next page begins a new pair.
pub struct PageAppender {
    identity: LogId,
    options: PageOptions,
    salts: Salts,
    next_pair: u32,
    next_number: PageNumber,
    open: Option<OpenPair>,
    /// The sizes of the files that it made or appended to.
    made: BTreeMap<u32, u64>,
    /// The bytes of all pages that it has appended, of one copy.
    appended_bytes: u64,
}

/// The pair that pages are appended to.
struct OpenPair {
    pair: u32,
    salt: u64,
    files: [(String, Arc<dyn StorageFile>); 2],
    /// What is written of the files, and not in `buffer`.
    written: u32,
    buffer: Vec<u8>,
    /// Nothing is written before it: a manifest may name what lies there.
    synced: u32,
    is_name_durable: bool,
}

impl PageAppender {
    /// An appender for pairs from `next_pair` on, which no file is of, and pages from `next_number` on, which no kept
    /// manifest names. `entropy` is random, or from the seed of a simulation.
    pub fn new(
        identity: LogId,
        options: PageOptions,
        entropy: u64,
        (next_pair, next_number): (u32, PageNumber),
    ) -> Self {
        Self {
            identity,
            options,
            salts: Salts::new(entropy),
            next_pair,
            next_number,
            open: None,
            made: BTreeMap::new(),
            appended_bytes: 0,
        }
    }

    /// The log that its files belong to.
    pub fn identity(&self) -> LogId {
        self.identity
    }

    /// Its sizes.
    pub fn options(&self) -> PageOptions {
        self.options
    }

    /// The pair that the next page may be appended to.
    pub fn open_pair(&self) -> Option<u32> {
        self.open.as_ref().map(|open| open.pair)
    }

    /// Gives no page a lower number than this from now on.
    pub(super) fn number_from(&mut self, number: PageNumber) {
        self.next_number = number.max(self.next_number);
    }

    /// The number of the next page.
    pub fn next_number(&self) -> PageNumber {
        self.next_number
    }

    /// The next pair that it makes.
    pub(super) fn next_pair(&self) -> u32 {
        self.next_pair
    }

    /// The bytes of all pages that it has appended, of one copy.
    pub(super) fn appended_bytes(&self) -> u64 {
        self.appended_bytes
    }

    /// Leaves its pair, and removes all pairs from this one on, whose pages nothing will name: their space may be needed at
    /// once. Best effort: what is left is removed when files are removed that no manifest names.
    pub(super) fn take_back(&mut self, storage: &dyn Storage, first: u32) {
        self.open = None;
        let pairs: Vec<u32> = (first..self.next_pair).collect();
        if remove_pairs(storage, &pairs).is_ok() {
            self.made.retain(|pair, _| *pair < first);
        }
    }

    /// The pairs that were made or appended to since the last call, with the sizes of their files.
    pub(super) fn take_made(&mut self) -> BTreeMap<u32, u64> {
        std::mem::take(&mut self.made)
    }

    /// Leaves the pair: the next page begins a new one.
    pub fn leave_pair(&mut self) {
        self.open = None;
    }

    /// Appends a page, and gives it a number. It is durable after [`sync`](Self::sync).
    pub fn append(
        &mut self,
        storage: &dyn Storage,
        position: LogPosition,
        content: &PageContent,
    ) -> Result<(PageNumber, PagePlace), IoFailure> {
        let number = self.next_number;
        let place = self.append_as(storage, number, position, content)?;
        self.next_number = PageNumber::new(number.as_u64() + 1);
        Ok((number, place))
    }

    /// Appends another copy of a page, with the number that it has.
    pub fn append_as(
        &mut self,
        storage: &dyn Storage,
        number: PageNumber,
        position: LogPosition,
        content: &PageContent,
    ) -> Result<PagePlace, IoFailure> {
        let appended = self.try_append(storage, number, position, content);
        self.leave_if_failed(appended)
    }

    fn try_append(
        &mut self,
        storage: &dyn Storage,
        number: PageNumber,
        position: LogPosition,
        content: &PageContent,
    ) -> Result<PagePlace, IoFailure> {
        let size_bytes = u32::try_from(page_size(content)).expect("a page is far below 4 GiB");
        let mut open = match self.open.take() {
            Some(open) if open.has_room(size_bytes, self.options.file_size_bytes) => open,
            Some(mut full) => {
                full.sync(storage)?;
                self.begin_pair(storage)?
            }
            None => self.begin_pair(storage)?,
        };
        let place = PagePlace {
            pair: open.pair,
            offset: open.end(),
            size_bytes,
        };
        let seal = Seal::new(open.salt, place.pair, place.offset);
        put_page(&mut open.buffer, seal, (number, position), content);
        let padded = open.buffer.len().next_multiple_of(ALIGNMENT as usize);
        open.buffer.resize(padded, 0);
        if open.buffer.len() >= WRITE_SIZE {
            open.flush()?;
        }
        self.made.insert(open.pair, open.end().into());
        self.appended_bytes += u64::from(size_bytes);
        self.open = Some(open);
        Ok(place)
    }

    /// Makes all pages durable that were appended.
    pub fn sync(&mut self, storage: &dyn Storage) -> Result<(), IoFailure> {
        let synced = self.open.as_mut().map_or(Ok(()), |open| open.sync(storage));
        self.leave_if_failed(synced)
    }

    /// What a failed write or sync has left is unknown.
    fn leave_if_failed<T>(&mut self, result: Result<T, IoFailure>) -> Result<T, IoFailure> {
        if result.is_err() {
            self.open = None;
        }
        result
    }

    fn begin_pair(&mut self, storage: &dyn Storage) -> Result<OpenPair, IoFailure> {
        let pair = self.next_pair;
        // Also if it fails: its name may be there.
        self.next_pair += 1;
        self.made.insert(pair, BLOCK_SIZE.into());
        let salt = self.salts.of(Epoch::default(), pair.into());
        let create = |copy: Copy| {
            let name = name(pair, copy);
            let file = create_anew(storage, &name)?;
            let header = FileHeader {
                identity: self.identity,
                number: copy.file_of(pair),
                salt,
            };
            storage::write_all_at(&*file, &name, &header.encode(), 0)?;
            Ok((name, file))
        };
        Ok(OpenPair {
            pair,
            salt,
            files: [create(Copy::First)?, create(Copy::Second)?],
            written: BLOCK_SIZE,
            buffer: Vec::new(),
            synced: BLOCK_SIZE,
            is_name_durable: false,
        })
    }
}

impl OpenPair {
    /// Where the next page begins.
    fn end(&self) -> u32 {
        self.written + u32::try_from(self.buffer.len()).expect("a buffer is far below 4 GiB")
    }

    fn has_room(&self, size_bytes: u32, file_size_bytes: u32) -> bool {
        let end = u64::from(self.end()) + u64::from(size_bytes);
        end <= u64::from(file_size_bytes)
    }

    fn flush(&mut self) -> Result<(), IoFailure> {
        for (name, file) in &self.files {
            storage::write_all_at(&**file, name, &self.buffer, self.written.into())?;
        }
        self.written = self.end();
        self.buffer.clear();
        Ok(())
    }

    fn sync(&mut self, storage: &dyn Storage) -> Result<(), IoFailure> {
        if self.end() == self.synced {
            return Ok(());
        }
        self.flush()?;
        for (name, file) in &self.files {
            storage::sync_data(&**file, name)?;
        }
        if !self.is_name_durable {
            storage::sync_dir(storage)?;
            self.is_name_durable = true;
        }
        self.written = self.written.next_multiple_of(BLOCK_SIZE);
        self.synced = self.written;
        Ok(())
    }
}
