//! A log as its follower has it, until it becomes the owner.

use std::fmt;

use bytes::Bytes;
use thiserror::Error;

use super::{LogEnd, OwnedLog};
use crate::replay::BoxError;
use crate::{
    Epoch, Job, JobOutcome, LogPosition, OpenError, PageContent, PageLeft, PageNumber, Recovery,
};

/// One log, which can be opened again and again in one process. Nothing here does I/O.
pub trait LogSource: Send + Sync {
    /// Begins to follow the log. `after` is how it ended for the last owner in this process, if there was one: that
    /// owner's readers may still read its files. All jobs of that owner must be back.
    fn follow(&self, after: Option<&LogEnd>, pages: Box<dyn PageChoice>) -> Box<dyn FollowedLog>;

    /// The largest unit of positions in which live bytes may be counted, in bytes.
    fn unit_bytes(&self) -> u64;
}

/// A log that is read, and that this process does not own yet. Nothing here blocks: what blocks is a [`Job`].
///
/// What the log has comes as [`Piece`]s, which a job has read ([`JobOutcome::take_followed`]). They are verified, and come
/// in order, each once. Nothing on the disk changes before the promotion.
pub trait FollowedLog: Send {
    /// The next job, which reads a piece or makes this process the owner. One job is out at a time. Any thread may run it.
    fn next_job(&mut self) -> Option<Job>;

    /// Takes the outcome of a job, after its pieces were taken. After an end, every later call returns it too. After an
    /// error the log cannot be followed any more: there is no further job, and what others have read changes nothing.
    fn complete(&mut self, outcome: JobOutcome) -> Result<Progress, FollowError>;

    /// What was handed out so far, by jobs without an error.
    fn seen(&self) -> Seen;

    /// Makes this process the owner, once the rest was handed out. To be called once. If a former owner has gone on
    /// meanwhile, it is fenced first, and the log is [`Progress::Behind`] again until its last batches were handed out. An
    /// epoch that is not above all others ends as [`LogEnd::Fenced`], and changes nothing. A job may be out: one that waits
    /// for something new comes back soon then.
    fn promote(&mut self, epoch: Epoch);

    /// The log as its owner has it. To be called when it is [`Progress::Owned`].
    fn own(self: Box<Self>) -> (Box<dyn OwnedLog>, Recovery);

    /// There is no further job, and one that waits for other machines comes back soon.
    fn stop(&mut self);
}

/// How far a follower is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// There is more to read.
    Behind,
    /// Everything was handed out that was durable at that moment.
    Current,
    /// This process owns the log.
    Owned,
}

/// What was handed out to a follower.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// The highest epoch that has begun, as far as is known.
    pub epoch: Epoch,
    /// The time of the last batch, in milliseconds.
    pub time_ms: u64,
    /// Everything before this position was handed out, and is known to be durable.
    pub durable: LogPosition,
    /// Everything before this position was handed out.
    pub end: LogPosition,
}

/// Why a log is not followed any more.
#[derive(Debug, Error)]
pub enum FollowError {
    /// It cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// It has ended for this process.
    #[error(transparent)]
    Ended(#[from] LogEnd),
}

/// Something that a log has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// All pieces before are void: what follows begins with an empty state. It comes first, and again if a snapshot turns
    /// out to be damaged.
    Begin,
    /// The snapshot at this position comes next.
    SnapshotBegin(LogPosition),
    /// A part of the snapshot.
    Part(Bytes),
    /// A page of the snapshot. They come after all parts.
    Page {
        /// Its number.
        number: PageNumber,
        /// What is in it.
        content: PageContent,
        /// It lies in a file with damage. Perhaps only one copy of it is left.
        is_at_risk: bool,
    },
    /// What is left of a page of which both copies are damaged, because the [`PageChoice`] said that it is enough.
    PageLeft {
        /// Its number.
        number: PageNumber,
        /// What can be read of it.
        left: PageLeft,
    },
    /// A page that was not read, because the [`PageChoice`] said so.
    PassedOver(PageNumber),
    /// All of the snapshot has come.
    SnapshotEnd,
    /// Batches behind the snapshot.
    Batches(Batches),
}

/// Chooses the pages of a snapshot that need not be read. It is asked on the thread that reads.
pub trait PageChoice: Send {
    /// All pages before are void.
    fn begin(&mut self);

    /// Notes a page that was read.
    fn note(&mut self, page: PageNumber, content: &PageContent) -> Result<(), BoxError>;

    /// Whether the next page need not be read, as [`Replay::passes_over`](crate::Replay::passes_over).
    fn passes_over(&mut self, page: PageNumber) -> bool;

    /// Notes what is left of a page that was to be read, and whether that is enough, as
    /// [`Replay::snapshot_page_left`](crate::Replay::snapshot_page_left).
    fn note_left(&mut self, page: PageNumber, left: &PageLeft) -> Result<bool, BoxError> {
        let _ = (page, left);
        Ok(false)
    }
}

/// No page is passed over.
#[derive(Clone, Copy, Debug)]
pub struct AllPages;

impl PageChoice for AllPages {
    fn begin(&mut self) {}

    fn note(&mut self, _: PageNumber, _: &PageContent) -> Result<(), BoxError> {
        Ok(())
    }

    fn passes_over(&mut self, _: PageNumber) -> bool {
        false
    }
}

/// Some batches, with their events.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Batches {
    batches: Vec<Head>,
    /// Where each event ends.
    event_ends: Vec<usize>,
    bytes: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Head {
    record: LogPosition,
    epoch: Epoch,
    time_ms: u64,
    /// The index of its first event.
    first_event: usize,
}

/// A batch, as it is followed: its bodies are read when they are needed.
#[derive(Clone, Copy)]
pub struct Batch<'a> {
    /// The position of its record.
    pub record: LogPosition,
    /// The epoch of the owner that wrote it.
    pub epoch: Epoch,
    /// The time that it was written at, in milliseconds.
    pub time_ms: u64,
    batches: &'a Batches,
    first_event: usize,
    event_count: usize,
}

impl Batches {
    /// Adds a batch, whose events follow.
    pub fn begin(&mut self, record: LogPosition, epoch: Epoch, time_ms: u64) {
        self.batches.push(Head {
            record,
            epoch,
            time_ms,
            first_event: self.event_ends.len(),
        });
    }

    /// Adds an event to the last batch.
    pub fn push_event(&mut self, event: &[u8]) {
        self.bytes.extend_from_slice(event);
        self.event_ends.push(self.bytes.len());
    }

    /// Removes the last batch with its events.
    pub(crate) fn drop_last(&mut self) {
        if let Some(last) = self.batches.pop() {
            self.event_ends.truncate(last.first_event);
            self.bytes
                .truncate(self.event_ends.last().copied().unwrap_or_default());
        }
    }

    /// How many batches there are.
    pub fn len(&self) -> usize {
        self.batches.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    /// The batches, in order.
    pub fn iter(&self) -> impl Iterator<Item = Batch<'_>> {
        let ends = self.batches.iter().skip(1).map(|next| next.first_event);
        let ends = ends.chain([self.event_ends.len()]);
        self.batches.iter().zip(ends).map(|(head, end)| Batch {
            record: head.record,
            epoch: head.epoch,
            time_ms: head.time_ms,
            batches: self,
            first_event: head.first_event,
            event_count: end - head.first_event,
        })
    }
}

impl<'a> Batch<'a> {
    /// Its events, in order.
    pub fn events(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let Batches {
            event_ends, bytes, ..
        } = self.batches;
        let first = self.first_event;
        (first..first + self.event_count).map(move |index| {
            let before = index.checked_sub(1).map_or(0, |before| event_ends[before]);
            &bytes[before..event_ends[index]]
        })
    }
}

impl fmt::Debug for Batches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl fmt::Debug for Batch<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch")
            .field("record", &self.record)
            .field("epoch", &self.epoch)
            .field("time_ms", &self.time_ms)
            .field("events", &self.event_count)
            .finish()
    }
}
