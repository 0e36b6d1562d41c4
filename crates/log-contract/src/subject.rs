//! A log of each kind, and what a test does to it from outside.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use kew_log::{Fault, FaultyStorage, LogOptions, LogSource, PageOptions, Repeat, SegmentSource};

use crate::memory::{MemoryOptions, MemorySource, Mistake};
use crate::owner::Owner;

/// A log whose promises are checked.
pub trait Subject {
    /// The log, to open it.
    fn source(&self) -> Arc<dyn LogSource>;

    /// The machine restarts: what was not durable may be lost. Of all that may be left, `seed` chooses. No owner from before
    /// is used any more.
    fn restart(&mut self, seed: u64);

    /// The machine fails within a job, so many steps from now. Ignored by a log whose jobs are one step each.
    fn cut_after(&mut self, steps: u64) {
        let _ = steps;
    }

    /// No file may grow any more. Returns whether the log has any.
    fn fill(&mut self) -> bool {
        false
    }

    /// The next commit of the owner ends the log for it.
    fn end_owner(&mut self);

    /// Promises that this kind of log cannot be asked for, with the reason.
    fn skips(&self) -> &'static [(u8, &'static str)] {
        &[]
    }
}

/// A log in memory.
#[derive(Debug)]
pub struct MemorySubject(MemorySource);

/// Sizes at which a few batches are several pieces.
const SMALL_MEMORY: MemoryOptions = MemoryOptions {
    piece_size_bytes: 2 << 10,
    prepared_bytes: 16 << 10,
    room_bytes_min: 1 << 10,
    looks_when_reserving: false,
    heartbeat_ms: None,
};

impl MemorySubject {
    /// An empty log.
    pub fn new() -> Self {
        Self(MemorySource::new(SMALL_MEMORY))
    }

    /// An empty log that makes a mistake.
    pub fn altered(mistake: Mistake) -> Self {
        Self(MemorySource::altered(SMALL_MEMORY, mistake))
    }
}

impl Default for MemorySubject {
    fn default() -> Self {
        Self::new()
    }
}

impl Subject for MemorySubject {
    fn source(&self) -> Arc<dyn LogSource> {
        Arc::new(self.0.clone())
    }

    /// Everything that survives is in the source.
    fn restart(&mut self, _seed: u64) {}

    /// Another owner is promoted.
    fn end_owner(&mut self) {
        drop(Owner::open(&self.0).expect("a log in memory can be opened at any time"));
    }
}

/// Nobody follows a log of segments while another one owns it.
const ONE_PROCESS: &str = "the lock of its directory allows one process";

/// A log of segments, on a disk that fails.
#[derive(Debug)]
pub struct SegmentSubject {
    storage: FaultyStorage,
    /// How often it was opened: each opening has salts of its own.
    openings: Arc<AtomicU64>,
}

/// Sizes at which a handful of batches fills a segment.
fn small_segments() -> LogOptions {
    LogOptions {
        segment_size_first_bytes: 8 << 10,
        segment_size_max_bytes: 16 << 10,
        batch_size_max_bytes: 4 << 10,
        turn_space_min_bytes: 1 << 10,
        settlement_reserve_bytes: 1 << 10,
        recycled_segments_max: 2,
        ballast_size_bytes: 8 << 10,
        recent_bytes_max: 4 << 10,
        pages: PageOptions::default(),
    }
}

impl SegmentSubject {
    /// An empty log.
    pub fn new() -> Self {
        Self {
            storage: FaultyStorage::new(),
            openings: Arc::default(),
        }
    }
}

impl Default for SegmentSubject {
    fn default() -> Self {
        Self::new()
    }
}

impl Subject for SegmentSubject {
    fn source(&self) -> Arc<dyn LogSource> {
        let storage = Arc::new(self.storage.clone());
        let openings = Arc::clone(&self.openings);
        let entropy = move || openings.fetch_add(1, Ordering::Relaxed);
        Arc::new(SegmentSource::new(storage, small_segments(), entropy))
    }

    fn restart(&mut self, seed: u64) {
        let mut state = seed;
        let mut choice = |bound: u32| {
            // SplitMix64.
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            u32::try_from((mixed ^ (mixed >> 31)) % u64::from(bound.max(1))).unwrap_or_default()
        };
        self.storage = self.storage.crash(&mut choice);
        self.storage.clear_faults();
    }

    fn cut_after(&mut self, steps: u64) {
        self.storage.crash_after(steps);
    }

    fn fill(&mut self) -> bool {
        let used_bytes = self.storage.used_bytes();
        self.storage.set_capacity_bytes(Some(used_bytes));
        true
    }

    /// The disk fails.
    fn end_owner(&mut self) {
        self.storage.fail_after(0, Fault::Eio, Repeat::Sticky);
    }

    fn skips(&self) -> &'static [(u8, &'static str)] {
        &[(19, ONE_PROCESS), (23, ONE_PROCESS)]
    }
}
