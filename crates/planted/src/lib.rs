//! Bugs planted on purpose, so that the simulation can show that it catches them.
//!
//! Most are functions of the simulation. Values of the code under test pass through a [`Seam`], where such a
//! function drops, doubles or alters them. A bug that no value shows, such as a check that is not made, is a line
//! in the code under test that asks [`is_planted`].
//!
//! In the product, a seam passes its value on and `is_planted` is a constant `false`: the compiler removes both.
//! With the feature `enabled`, `with_hook` and `with` plant one bug at run time, for one thread and one piece
//! of work.

use std::ops::Range;

#[cfg(feature = "enabled")]
mod enabled;

#[cfg(feature = "enabled")]
pub use enabled::{Hook, alter, is_any_planted, is_planted, pass, pass_ref, with, with_hook};

/// A place where the simulation can alter a value. Each has values of the types named here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seam {
    /// In the engine, what was decided: an `Event` or a `Effect` on bus queues, before it changes the state and is recorded.
    Decided,
    /// In the broker, an `Event` on its way to the log. The state has it as it was decided.
    Recorded,
    /// In the broker, an `Event` that a replay has read, with the position of its record.
    Replayed,
    /// In the broker, what is [`Overlooked`] of live bodies when a snapshot begins.
    SnapshotBegun,
    /// In the broker, the content of a snapshot on its way to the log, as a `Box<dyn SnapshotContent>`.
    Snapshot,
    /// In the simulation, a `Command` on its way to the partition, with its number.
    Asked,
    /// In the simulation, the `Command` that is decided next, or `None` when a turn begins.
    Taken,
    /// In the simulation, answers on their way to clients, and commands that follow from them.
    Replies,
    /// In the simulation, a reading of the machine's clocks.
    Reading,
    /// In the simulation, the share that a source has of a turn.
    Share,
    /// In the simulation, a file of the disk under its name.
    File,
    /// In the simulation, a file that a scrub looks for and that is not there: its name, and what is opened instead.
    Gone,
    /// In the simulation, the disk and the name that a file was just given by renaming it.
    Renamed,
    /// In the simulation, whether the disk makes names durable when it is told to.
    DirectorySync,
    /// In the simulation, the kind of job that is carried out, or `None` when it is done.
    Job,
    /// In the simulation, the `ScrubReport` of a partition that was just scrubbed.
    Scrubbed,
    /// In the broker, what may keep records of a run in memory, as a [`Keeper`], and whether it does.
    MayEvict,
    /// In the broker, what a job has read: bodies, each with its place, as an `Option` of a `Result`; and each group of a
    /// page as a `Result`, with the `Group` that it is read for and its index.
    Loaded,
    /// In the simulation, the `Mistake` that a replicated log makes, as an `Option`.
    Model,
    /// In the simulation, the last time of the log that a clock begins with, and that of the last event.
    RecordedAt,
    /// In the simulation, the machine's time by which answers that only read are confirmed.
    Confirmed,
    /// In the simulation, whether an owner takes the outcomes of jobs of the one before.
    LateOutcomes,
    /// In the simulation, a backup of the partition that was just begun: its plan, and whether its files stay.
    BackupBegun,
    /// In the simulation, the pin of a backup that has ended, as an `Option`: what it holds is let go.
    BackupEnded,
    /// In the simulation, the parts of a snapshot of a partition that was just opened. Empty just before that.
    Opened,
}

/// Whether the bodies in a range of positions are overlooked: then nothing in it is said to be live. `None` in the product.
pub type Overlooked = Option<Box<dyn Fn(Range<u64>) -> bool>>;

/// What may keep records of a run in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keeper {
    /// A snapshot that is under way, or damage: its page may not be where a restart finds the records.
    Pages,
    /// Something waits for them.
    Pins,
}

/// A bug that no value shows at a seam: one line in the code under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// Records are checked without the epoch, salt and position that they were written for.
    OldRecordsTrusted,
    /// A scrub passes over a segment.
    SegmentNotScrubbed,
    /// Recovery does not copy the tail that may not be durable.
    TailNotCopied,
    /// A partition continues after an I/O call has failed.
    FailureIgnored,
    /// Answers are sent before their data is durable.
    AnsweredBeforeDurable,
    /// A receipt is accepted though the lease has passed on.
    StaleReceiptAccepted,
    /// A message that is deleted still counts.
    CountNotLowered,
    /// Records that changed since their page was written leave memory with the others.
    ChangedDropped,
    /// A command does not wait behind those that wait in its lanes.
    LaneForgotten,
    /// Work that becomes due while a command waits for a read holds it back each time.
    DueHoldsBack,
    /// A session is locked although another receiver has its lock.
    BusSessionShared,
    /// A lock that was broken, or released, still settles.
    BusFreedLockSettles,
    /// A lock is renewed although another receiver has the message.
    BusLostLockRenewed,
    /// A repeated id is dropped after its window as well.
    BusWindowNeverEnds,
    /// The dead letters of a queue outlive it.
    BusDeadLettersLeft,
    /// The state of a session is cleared although it has messages.
    BusStateInUseCleared,
    /// A transaction sends more than its queue has room for, if each part alone would fit.
    BusTransactionOverfills,
}

/// Whether this bug is planted here: never in the product.
#[cfg(not(feature = "enabled"))]
#[inline(always)]
pub const fn is_planted(_bug: Bug) -> bool {
    false
}

/// Whether any bug is planted here: never in the product.
#[cfg(not(feature = "enabled"))]
#[inline(always)]
pub const fn is_any_planted() -> bool {
    false
}

/// Does something with a value that passes a seam: in the product, exactly once and with that value.
#[cfg(not(feature = "enabled"))]
#[inline(always)]
pub fn pass<T>(_seam: Seam, value: T, mut work: impl FnMut(T)) {
    work(value);
}

/// The same for a borrowed value.
#[cfg(not(feature = "enabled"))]
#[inline(always)]
pub fn pass_ref<T>(_seam: Seam, value: &T, mut work: impl FnMut(&T)) {
    work(value);
}

/// Lets a value pass a seam that neither drops nor doubles it. The product leaves it as it is.
#[cfg(not(feature = "enabled"))]
#[inline(always)]
pub fn alter<T>(_seam: Seam, _value: &mut T) {}
