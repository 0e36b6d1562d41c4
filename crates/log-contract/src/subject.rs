//! A log of each kind, and what a test does to it from outside.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use kew_log::{
    BootTime, Fault, FaultyStorage, LogOptions, LogPosition, LogSource, PageOptions, Repeat,
    SegmentSource,
};

use crate::memory::{MemoryOptions, MemorySource, Mistake};
use crate::model::{LinkOptions, Model, ModelOptions};
use crate::owner::Owner;
use crate::random::Random;

/// A log whose promises are checked.
pub trait Subject {
    /// The log, to open it.
    fn source(&self) -> Arc<dyn LogSource>;

    /// The log, as another process opens it.
    fn other(&self) -> Arc<dyn LogSource> {
        self.source()
    }

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

    /// Lets time pass, and returns what all clocks show then. Ignored by a log that does not count it.
    fn advance_ms(&mut self, ms: u64) -> BootTime {
        let _ = ms;
        BootTime::ZERO
    }

    /// The next answer of other machines takes so long.
    fn delay_next_ms(&mut self, ms: u64) {
        let _ = ms;
    }

    /// The next commit loses something on its way to the other machines. `is_fenced` says that another process begins an
    /// epoch before the owner asks again.
    fn lose_next(&mut self, lost: Lost, is_fenced: bool) {
        let _ = (lost, is_fenced);
    }

    /// What was lost on its way to the other machines arrives.
    fn let_all_arrive(&mut self) {}

    /// Lets the copy of this machine differ from what was agreed. Returns from where on. It has some batches.
    fn differ(&mut self, how: Difference) -> Option<LogPosition> {
        let _ = how;
        None
    }

    /// Promises that this kind of log cannot be asked for, with the reason.
    fn skips(&self) -> &'static [(u8, &'static str)] {
        &[]
    }
}

/// What a commit loses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lost {
    /// The request. It arrives much later.
    Request,
    /// The answer: the request took effect.
    Answer,
}

/// How a copy comes to differ from what was agreed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Difference {
    /// Its second to last batch is another one.
    Changed,
    /// It has a batch more.
    Longer,
}

/// A log that makes a mistake.
pub fn altered(mistake: Mistake) -> Box<dyn Subject> {
    match mistake.is_of_model() {
        true => Box::new(ModelSubject::altered(mistake)),
        false => Box::new(MemorySubject::altered(mistake)),
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

    fn skips(&self) -> &'static [(u8, &'static str)] {
        &[
            (20, NO_LINK),
            (21, NO_LINK),
            (22, "it has no leases"),
            (24, "its one copy is what is agreed"),
        ]
    }
}

/// No answer of another machine is lost.
const NO_LINK: &str = "it asks no other machine";

/// A model of a log that several machines agree on: one member is the machine, and another one opens it elsewhere.
#[derive(Debug)]
pub struct ModelSubject(Model);

const SMALL_MODEL: ModelOptions = ModelOptions {
    copy: MemoryOptions {
        heartbeat_ms: Some(1_000),
        ..SMALL_MEMORY
    },
    link: LinkOptions {
        once_in: 3,
        delay_us_max: 0,
    },
    lease_ms: 3_000,
    margin_ms: 500,
};

impl ModelSubject {
    /// An empty log, with a link of its own.
    pub fn new(seed: u64) -> Self {
        Self(Model::new(SMALL_MODEL, seed))
    }

    /// An empty log that makes a mistake.
    pub fn altered(mistake: Mistake) -> Self {
        Self(Model::altered(SMALL_MODEL, 0, mistake))
    }
}

impl Subject for ModelSubject {
    fn source(&self) -> Arc<dyn LogSource> {
        Arc::new(self.0.member(0))
    }

    fn other(&self) -> Arc<dyn LogSource> {
        Arc::new(self.0.member(1))
    }

    fn restart(&mut self, seed: u64) {
        self.0.member(0).restart(seed);
    }

    /// Another member is promoted.
    fn end_owner(&mut self) {
        drop(Owner::open(&self.0.member(1)).expect("a member can be promoted at any time"));
    }

    fn advance_ms(&mut self, ms: u64) -> BootTime {
        self.0.advance_ms(ms)
    }

    fn delay_next_ms(&mut self, ms: u64) {
        self.0.delay_next_ms(ms);
    }

    fn lose_next(&mut self, lost: Lost, is_fenced: bool) {
        self.0.lose_next(lost, is_fenced);
    }

    fn let_all_arrive(&mut self) {
        self.0.let_all_arrive();
    }

    fn differ(&mut self, how: Difference) -> Option<LogPosition> {
        Some(self.0.member(0).differ(how))
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
        let mut random = Random::new(seed);
        let mut choice =
            |bound: u32| u32::try_from(random.below(bound as usize)).unwrap_or_default();
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
        &[
            (19, ONE_PROCESS),
            (20, NO_LINK),
            (21, NO_LINK),
            (22, ONE_PROCESS),
            (23, ONE_PROCESS),
            (24, "it has one copy"),
        ]
    }
}
