//! The pages of an open log: what the kept manifests name, what the next one has to write, and which files can go.
//!
//! Nothing here blocks. Writing is a value that any thread runs, one at a time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::format::pair_of;
use super::table::ByNumber;
use super::{
    InPair, ManifestPlan, NewestPages, PageAppender, PageFiles, PageNumber, PageOptions, PagePlace,
    PageTable, PagesRead, PagesToRead, ReadManifest, SnapshotContent, SnapshotForm, ToDrain,
    Written, read_table, write_manifest,
};
use crate::snapshot::{SnapshotError, SnapshotHeader};
use crate::storage::{IoFailure, Storage};
use crate::{Epoch, LogId, LogPosition};

/// The pages of an open log.
pub struct PageStore {
    identity: LogId,
    options: PageOptions,
    files: PageFiles,
    /// `None` while a manifest is written.
    appender: Option<PageAppender>,
    /// The pages of the newest manifest, and what it names in each pair of files.
    newest: Arc<PageTable>,
    newest_by_number: ByNumber,
    newest_by_pair: BTreeMap<u32, InPair>,
    newest_pages: NewestPages,
    /// How many pages are being read in each pair of files: it stays until then.
    reading: BTreeMap<u32, usize>,
    /// What the newest one has written of new pages, of one copy: so much of older files it has made dead, or less.
    new_bytes: u64,
    /// Pairs with a damaged copy: their pages are to lie elsewhere.
    damaged: BTreeSet<u32>,
    /// Pages that the newest manifest names although they cannot be read.
    unreadable: BTreeSet<PageNumber>,
}

impl PageStore {
    /// Begins with the manifests that are kept, oldest first. `entropy` is random, or from the seed of a simulation.
    pub fn open(
        storage: &dyn Storage,
        identity: LogId,
        options: PageOptions,
        entropy: u64,
        kept: Vec<(LogPosition, ReadManifest)>,
    ) -> Result<Self, IoFailure> {
        let mut files = PageFiles::find(storage)?;
        let numbers = kept.iter().map(|(_, read)| read.next_number);
        let next_number = numbers.max().unwrap_or_default();
        let next = (files.next_pair(), next_number);
        let mut damage = Vec::new();
        let mut newest = PageTable::default();
        for (position, read) in kept {
            files.note_manifest(position, read.table.by_pair());
            newest = read.table;
            damage.extend(read.damage);
        }
        let mut store = Self {
            identity,
            options,
            files,
            appender: Some(PageAppender::new(identity, options, entropy, next)),
            newest_by_number: newest.by_number(),
            newest_by_pair: newest.by_pair(),
            newest_pages: NewestPages::of(&newest),
            reading: BTreeMap::new(),
            newest: Arc::new(newest),
            new_bytes: 0,
            damaged: BTreeSet::new(),
            unreadable: BTreeSet::new(),
        };
        damage.iter().for_each(|it| store.note_damage(&it.file));
        Ok(store)
    }

    /// Begins without a manifest in a directory that has another log: a page gets no number that a page of those manifests
    /// has.
    pub(crate) fn begin_anew(
        storage: &dyn Storage,
        identity: LogId,
        options: PageOptions,
        entropy: u64,
        others: &[LogPosition],
    ) -> Result<Self, IoFailure> {
        let mut store = Self::open(storage, identity, options, entropy, Vec::new())?;
        // What one names that cannot be read, no start can use.
        let read = others.iter().flat_map(|it| read_table(storage, *it));
        let next_number = read.map(|read| read.next_number).max();
        if let (Some(appender), Some(number)) = (&mut store.appender, next_number) {
            appender.number_from(number);
        }
        Ok(store)
    }

    /// Notes a manifest that does not count any more, and whose file is still there. Its pages stay as long as that does: a
    /// repair may read them.
    pub(crate) fn keep_pages_of(&mut self, position: LogPosition, read: &ReadManifest) {
        self.files.note_manifest(position, read.table.by_pair());
        if let Some(appender) = &mut self.appender {
            appender.number_from(read.next_number);
        }
    }

    /// The pages of the newest manifest.
    pub fn newest(&self) -> &PageTable {
        &self.newest
    }

    /// How many pages the newest manifest names although both copies of them are damaged: it has their content nowhere
    /// else. A start that reads one may do without what is lost.
    pub fn unreadable_count(&self) -> usize {
        self.unreadable.len()
    }

    /// Whether a page is one of these.
    pub fn is_unreadable(&self, number: PageNumber) -> bool {
        self.unreadable.contains(&number)
    }

    /// The size of all page files.
    pub fn size_bytes(&self) -> u64 {
        self.files.size_bytes()
    }

    /// What a manifest names in each pair of files.
    pub(crate) fn named_by(&self, position: LogPosition) -> BTreeMap<u32, InPair> {
        self.files.named_by(position)
    }

    /// The size of the files that are there only for this manifest.
    pub(crate) fn bytes_only_for(&self, position: LogPosition) -> u64 {
        self.files.bytes_only_for(position)
    }

    /// Whether there is a file of that name, or was when it was begun.
    pub(crate) fn has_file(&self, name: &str) -> bool {
        pair_of(name).is_some_and(|pair| self.files.has_pair(pair))
    }

    /// Notes that a page is damaged in a file of that name. The next manifests have the pages of its pair elsewhere.
    pub fn note_damage(&mut self, file: &str) {
        if let Some(pair) = pair_of(file) {
            self.damaged.insert(pair);
        }
    }

    /// Begins a manifest of the state at a position; `chain` is the content checksum of the batch before it, and
    /// `time_ms` the partition's time there. `None` while another one is written.
    pub fn begin(
        &mut self,
        position: LogPosition,
        chain: u32,
        time_ms: u64,
        form: SnapshotForm,
    ) -> Option<WriteManifest> {
        let header = SnapshotHeader {
            log: self.identity,
            position,
            chain,
            time_ms,
            epoch: Epoch::default(),
            part_count: 0,
            begins_anew: false,
            has_pages: true,
            table_parts: 0,
        };
        self.begin_with(header, form)
    }

    pub(crate) fn begin_with(
        &mut self,
        header: SnapshotHeader,
        form: SnapshotForm,
    ) -> Option<WriteManifest> {
        let mut appender = self.appender.take()?;
        let open = appender.open_pair();
        let to_empty = match form {
            // All pairs are left, and go with the manifests that name them.
            SnapshotForm::Anew => BTreeMap::new(),
            SnapshotForm::Pages => {
                let moved_bytes_max = self.new_bytes.max(self.options.copied_bytes_max);
                let newest = &self.newest_by_pair;
                let files = &self.files;
                files.to_empty(&self.options, newest, open, moved_bytes_max)
            }
        };
        let is_left = |pair: u32| self.damaged.contains(&pair) || to_empty.contains_key(&pair);
        if form != SnapshotForm::Pages || open.is_some_and(is_left) {
            appender.leave_pair();
        }
        Some(WriteManifest {
            header,
            form,
            appender,
            newest: Arc::clone(&self.newest),
            to_empty,
            damaged: self.damaged.clone(),
            unreadable: self.unreadable.clone(),
        })
    }

    /// Takes the outcome. Returns the size of the manifest's file, and how much was written. If there is no manifest,
    /// everything is as it was.
    pub fn complete(&mut self, written: WrittenManifest) -> Result<(u64, u64), SnapshotError> {
        let mut appender = written.appender;
        let made = appender.take_made();
        for (pair, size_bytes) in &made {
            self.files.note_pair(*pair, *size_bytes);
        }
        self.appender = Some(appender);
        let Written {
            table,
            by_pair,
            by_number,
            pages,
            size_bytes,
            written_bytes,
            new_bytes,
            unreadable,
        } = written.result?;
        self.newest_pages = pages;
        debug_assert!(
            written.form != SnapshotForm::Anew || self.took_at_most(&made, &by_pair),
            "the pages of a manifest bound the files that it has made"
        );
        self.new_bytes = new_bytes;
        self.unreadable = unreadable;
        self.damaged.retain(|pair| by_pair.contains_key(pair));
        self.files.note_manifest(written.position, by_pair.clone());
        self.newest_by_pair = by_pair;
        self.newest_by_number = by_number;
        self.newest = Arc::new(table);
        Ok((size_bytes, written_bytes))
    }

    /// Whether a manifest with these new pairs has taken no more for its pages than it may.
    fn took_at_most(&self, made: &BTreeMap<u32, u64>, named: &BTreeMap<u32, InPair>) -> bool {
        let made = made.iter().filter(|(pair, _)| named.contains_key(pair));
        let took_bytes: u64 = made.map(|(_, size_bytes)| 2 * size_bytes).sum();
        took_bytes <= self.newest_pages.files_bytes_max(&self.options)
    }

    /// The most that a manifest takes which has all pages anew, now and while the state is drained. `manifest_bytes` is the
    /// size of the newest one, unless that is a snapshot without pages.
    pub(crate) fn anew_size_bytes_max(&self, state: &ToDrain, manifest_bytes: Option<u64>) -> u64 {
        let newest = manifest_bytes.map(|size_bytes| (self.newest_pages, size_bytes));
        state.anew_size_bytes_max(&self.options, newest)
    }

    /// What the pages of the newest manifest take at most in pairs of their own.
    pub(crate) fn newest_files_bytes_max(&self) -> u64 {
        self.newest_pages.files_bytes_max(&self.options)
    }

    /// The size of the files that no manifest can do without: they have pages that cannot be read.
    pub(crate) fn lasting_bytes(&self) -> u64 {
        let places = self.unreadable.iter().filter_map(|it| self.place(*it));
        let pairs: BTreeSet<u32> = places.map(|place| place.pair).collect();
        self.files.size_bytes_of(pairs)
    }

    /// Forgets a manifest whose file is removed for good.
    pub fn forget(&mut self, position: LogPosition) {
        self.files.forget_manifest(position);
    }

    /// The pairs of files that can be removed: no noted manifest names a page in them, no page of them is being read, and
    /// nothing is written.
    pub fn unneeded(&self) -> Vec<u32> {
        let Some(appender) = &self.appender else {
            return Vec::new();
        };
        let mut unneeded = self.files.unneeded(appender.open_pair());
        unneeded.retain(|pair| !self.reading.contains_key(pair));
        unneeded
    }

    /// Where a page lies that the newest manifest names.
    pub fn place(&self, number: PageNumber) -> Option<PagePlace> {
        self.newest_by_number.place(&self.newest, number)
    }

    /// Whether the newest manifest names a page, in files of which no damage is known, and has found it whole if it has
    /// looked.
    pub(crate) fn has_whole(&self, number: PageNumber) -> bool {
        let place = self.place(number);
        let is_in_whole_files = |place: PagePlace| !self.damaged.contains(&place.pair);
        place.is_some_and(is_in_whole_files) && !self.unreadable.contains(&number)
    }

    /// Pages that the newest manifest names, to read them. Their files stay until [`PageStore::end_read`].
    pub fn read(
        &mut self,
        storage: &Arc<dyn Storage>,
        numbers: impl IntoIterator<Item = PageNumber>,
    ) -> PagesToRead {
        let places = numbers.into_iter().map(|number| {
            let place = self.place(number);
            (
                number,
                place.expect("only pages are read that the newest snapshot names"),
            )
        });
        let places: BTreeMap<PageNumber, PagePlace> = places.collect();
        for place in places.values() {
            *self.reading.entry(place.pair).or_default() += 1;
        }
        PagesToRead::new(storage, self.identity, places)
    }

    /// Ends a read. The next manifests have pages elsewhere whose copies are damaged.
    pub fn end_read(&mut self, read: PagesRead) {
        for pair in read.pairs {
            if let Some(count) = self.reading.get_mut(&pair) {
                *count -= 1;
                if *count == 0 {
                    self.reading.remove(&pair);
                }
            }
        }
        let damage = read.damage.iter().chain(&read.lost);
        damage.for_each(|it| self.note_damage(&it.file));
    }

    /// Forgets pairs whose files were removed for good.
    pub fn forget_pairs(&mut self, pairs: &[u32]) {
        self.files.forget_pairs(pairs);
    }

    /// The number that the next new page gets. `None` while a manifest is written.
    pub fn next_number(&self) -> Option<PageNumber> {
        self.appender.as_ref().map(PageAppender::next_number)
    }
}

/// A manifest that is to be written. Any thread may do that.
#[must_use = "the store waits for the outcome"]
pub struct WriteManifest {
    header: SnapshotHeader,
    form: SnapshotForm,
    appender: PageAppender,
    newest: Arc<PageTable>,
    to_empty: BTreeMap<u32, u64>,
    damaged: BTreeSet<u32>,
    unreadable: BTreeSet<PageNumber>,
}

/// A manifest that was written, or not.
#[must_use = "the store waits for the outcome"]
pub struct WrittenManifest {
    position: LogPosition,
    form: SnapshotForm,
    appender: PageAppender,
    result: Result<Written, SnapshotError>,
}

impl WriteManifest {
    /// Writes it, and tells the content its pages. Blocks.
    ///
    /// If that fails, `may_try_again` says whether to try once more, from the beginning.
    pub fn run(
        self,
        storage: &dyn Storage,
        content: &mut dyn SnapshotContent,
        may_try_again: impl FnOnce(&SnapshotError) -> Result<bool, IoFailure>,
    ) -> WrittenManifest {
        let mut appender = self.appender;
        let plan = ManifestPlan {
            header: self.header,
            form: self.form,
            newest: &self.newest,
            to_empty: &self.to_empty,
            damaged: &self.damaged,
            unreadable: &self.unreadable,
        };
        let mut result = write_manifest(storage, &mut appender, &plan, content);
        if let Err(error) = &result {
            match may_try_again(error) {
                Ok(true) => result = write_manifest(storage, &mut appender, &plan, content),
                Ok(false) => {}
                Err(failure) => result = Err(SnapshotError::Unsure(failure)),
            }
        }
        WrittenManifest {
            position: self.header.position,
            form: self.form,
            appender,
            result,
        }
    }
}

impl WrittenManifest {
    /// Why it was not written.
    pub fn error(&self) -> Option<&SnapshotError> {
        self.result.as_ref().err()
    }
}
