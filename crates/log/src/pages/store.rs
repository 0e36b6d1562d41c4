//! The pages of an open log: what the kept manifests name, what the next one has to write, and which files can go.
//!
//! Nothing here blocks. Writing is a value that any thread runs, one at a time.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::files::remove_pairs;
use super::format::pair_of;
use super::{
    ManifestContent, ManifestError, ManifestPlan, PageAppender, PageDamage, PageFiles, PageNumber,
    PageOptions, PageTable, ReadManifest, write_manifest,
};
use crate::storage::{IoFailure, Storage};
use crate::{LogId, LogPosition};

/// The pages of an open log.
pub struct PageStore {
    options: PageOptions,
    files: PageFiles,
    /// `None` while a manifest is written.
    appender: Option<PageAppender>,
    /// The pages of the newest manifest.
    newest: Arc<PageTable>,
    /// Pairs with a damaged copy: their pages are to lie elsewhere.
    damaged: BTreeSet<u32>,
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
            files.note_manifest(position, &read.table);
            newest = read.table;
            damage.extend(read.damage);
        }
        let mut store = Self {
            options,
            files,
            appender: Some(PageAppender::new(identity, options, entropy, next)),
            newest: Arc::new(newest),
            damaged: BTreeSet::new(),
        };
        damage.iter().for_each(|damage| store.note_damage(damage));
        Ok(store)
    }

    /// The pages of the newest manifest.
    pub fn newest(&self) -> &PageTable {
        &self.newest
    }

    /// The size of all page files.
    pub fn size_bytes(&self) -> u64 {
        self.files.size_bytes()
    }

    /// Notes that a copy of a page is damaged. The next manifests have the pages of its files elsewhere.
    pub fn note_damage(&mut self, damage: &PageDamage) {
        if let Some(pair) = pair_of(&damage.file) {
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
    ) -> Option<WriteManifest> {
        let mut appender = self.appender.take()?;
        if appender
            .open_pair()
            .is_some_and(|it| self.damaged.contains(&it))
        {
            appender.leave_pair();
        }
        let mut to_empty = self.files.to_empty(&self.options, appender.open_pair());
        to_empty.extend(&self.damaged);
        Some(WriteManifest {
            position,
            chain,
            time_ms,
            appender,
            newest: Arc::clone(&self.newest),
            to_empty,
        })
    }

    /// Takes the outcome. Returns the size of the manifest's file. If there is none, everything is as it was.
    pub fn complete(&mut self, written: WrittenManifest) -> Result<u64, ManifestError> {
        let mut appender = written.appender;
        for (pair, size_bytes) in appender.take_made() {
            self.files.note_pair(pair, size_bytes);
        }
        self.appender = Some(appender);
        let (table, size_bytes) = written.result?;
        self.files.note_manifest(written.position, &table);
        let named = table.bytes_by_pair();
        self.damaged.retain(|pair| named.contains_key(pair));
        self.newest = Arc::new(table);
        Ok(size_bytes)
    }

    /// Forgets a manifest whose file is removed, or damaged.
    pub fn forget(&mut self, position: LogPosition) {
        self.files.forget_manifest(position);
    }

    /// The pairs of files that can be removed: no noted manifest names a page in them, and nothing is written.
    pub fn unneeded(&self) -> Vec<u32> {
        match &self.appender {
            Some(appender) => self.files.unneeded(appender.open_pair()),
            None => Vec::new(),
        }
    }

    /// Removes pairs of files for good. Blocks. Those of which the removal failed can be removed again.
    pub fn remove(&mut self, storage: &dyn Storage, pairs: &[u32]) -> Result<(), IoFailure> {
        remove_pairs(storage, pairs)?;
        self.files.forget_pairs(pairs);
        Ok(())
    }

    /// The number that the next new page gets. `None` while a manifest is written.
    pub fn next_number(&self) -> Option<PageNumber> {
        self.appender.as_ref().map(PageAppender::next_number)
    }
}

/// A manifest that is to be written. Any thread may do that.
#[must_use = "the store waits for the outcome"]
pub struct WriteManifest {
    position: LogPosition,
    chain: u32,
    time_ms: u64,
    appender: PageAppender,
    newest: Arc<PageTable>,
    to_empty: BTreeSet<u32>,
}

/// A manifest that was written, or not.
#[must_use = "the store waits for the outcome"]
pub struct WrittenManifest {
    position: LogPosition,
    appender: PageAppender,
    result: Result<(PageTable, u64), ManifestError>,
}

impl WriteManifest {
    /// Writes it, and tells the content its pages. Blocks.
    pub fn run(self, storage: &dyn Storage, content: &mut dyn ManifestContent) -> WrittenManifest {
        let mut appender = self.appender;
        let plan = ManifestPlan {
            position: self.position,
            chain: self.chain,
            time_ms: self.time_ms,
            newest: &self.newest,
            to_empty: &self.to_empty,
        };
        let result = write_manifest(storage, &mut appender, &plan, content);
        WrittenManifest {
            position: self.position,
            appender,
            result,
        }
    }
}

impl WrittenManifest {
    /// Why it was not written.
    pub fn error(&self) -> Option<&ManifestError> {
        self.result.as_ref().err()
    }
}
