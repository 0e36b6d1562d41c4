//! A log of each kind, and what a test does to it from outside.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use kew_log::{
    BootTime, Fault, FaultyStorage, LogOptions, LogPosition, LogSource, PageOptions, Repeat,
    SegmentSource,
};

use crate::memory::{MemoryOptions, MemorySource, Mistake};
use crate::model::{MemberClock, Model, ModelOptions};
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

    /// The machine restarts: what was not durable may be lost. Of all that may be left, `seed` chooses. No owner from
    /// before is used after that.
    fn restart(&mut self, seed: u64);

    /// The machine fails so many steps from now, which can be within a job: calls of its storage, or requests to other
    /// machines. Ignored by a log whose jobs are one step each.
    fn cut_after(&mut self, steps: u64) {
        let _ = steps;
    }

    /// From now on no file may grow. Returns whether the log has any.
    fn fill(&mut self) -> bool {
        false
    }

    /// The next commit of the owner ends the log for it.
    fn end_owner(&mut self);

    /// Lets time pass, and returns what the clock of this machine shows then. Ignored by a log that does not count it.
    fn advance_ms(&mut self, ms: u64) -> BootTime {
        let _ = ms;
        BootTime::ZERO
    }

    /// What the clock of the machine shows that opens the log as [`other`](Self::other).
    fn now_of_other(&self) -> BootTime {
        BootTime::ZERO
    }

    /// The next answer of other machines takes so long.
    fn delay_next_ms(&mut self, ms: u64) {
        let _ = ms;
    }

    /// The next commit loses something on its way to the other machines. `is_fenced` says that another process begins
    /// an epoch before the owner asks again.
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

    /// Promises that cannot be checked on this kind of log, with the reason.
    fn skips(&self) -> &'static [(u8, &'static str)] {
        &[]
    }
}

/// What a commit loses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lost {
    /// The request. It arrives much later.
    Request,
    /// The request. It never arrives.
    RequestForGood,
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

impl ModelSubject {
    /// An empty log, with a link and clocks of its own.
    pub fn new(seed: u64) -> Self {
        let model = Model::new(small_model(), seed);
        let mut random = Random::named(seed, "clocks");
        for member in 0..2 {
            model.set_clock(member, any_clock(&mut random));
        }
        Self(model)
    }

    /// An empty log that makes a mistake. Its link loses only what a test lets it lose, and the clocks of its members
    /// differ as much as they may.
    pub fn altered(mistake: Mistake) -> Self {
        let mut options = small_model();
        options.link.once_in = 0;
        let model = Model::altered(options, 0, mistake);
        for (member, gains_ppm) in [-CLOCK_PPM_MAX, CLOCK_PPM_MAX].into_iter().enumerate() {
            let clock = MemberClock {
                ahead_us: 0,
                gains_ppm,
            };
            model.set_clock(member, clock);
        }
        Self(model)
    }
}

fn small_model() -> ModelOptions {
    let mut options = ModelOptions::default();
    options.copy = MemoryOptions {
        heartbeat_ms: options.copy.heartbeat_ms,
        ..SMALL_MEMORY
    };
    options
}

/// The rates of clocks differ from the engine's by 1 % at most.
const CLOCK_PPM_MAX: i32 = 10_000;

/// A clock that shows any time of an hour, and is as fast or as slow as it may be, or right.
pub(crate) fn any_clock(random: &mut Random) -> MemberClock {
    MemberClock {
        ahead_us: random.below(3_600_000_000) as u64,
        gains_ppm: [-CLOCK_PPM_MAX, CLOCK_PPM_MAX, 0][random.below(3)],
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
        self.0.advance_ms(ms);
        self.0.now_of(0)
    }

    fn now_of_other(&self) -> BootTime {
        self.0.now_of(1)
    }

    fn cut_after(&mut self, steps: u64) {
        self.0.cut_after(0, steps);
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

/// A log of segments is followed only while no process owns it.
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
        let mut random = Random::named(seed, "disk");
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
