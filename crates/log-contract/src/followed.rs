//! What a follower was given, and a check of the order in which it came.

use std::collections::BTreeMap;

use kew_log::{
    AllPages, Epoch, FollowError, FollowedLog, LogEnd, LogPosition, LogSource, Piece, Progress,
};

use crate::broken::{Broken, Checked, hold};

/// No follower needs more jobs than that.
const JOBS_MAX: usize = 10_000;

/// A batch that was followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FollowedBatch {
    pub(crate) record: LogPosition,
    pub(crate) epoch: Epoch,
    pub(crate) time_ms: u64,
    pub(crate) events: Vec<Vec<u8>>,
}

/// What was given since the last beginning.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Content {
    has_begun: bool,
    /// Where the snapshot lies.
    pub(crate) snapshot: Option<LogPosition>,
    is_snapshot_whole: bool,
    /// The events that the snapshot has, from its parts and pages, by their indexes: pages come in any order.
    restored: BTreeMap<usize, Vec<u8>>,
    pub(crate) batches: Vec<FollowedBatch>,
}

impl Content {
    /// Takes pieces, which come in order and once.
    fn take(&mut self, pieces: Vec<Piece>) -> Checked {
        for piece in pieces {
            hold!(
                self.has_begun || piece == Piece::Begin,
                "a piece came before the beginning"
            );
            match piece {
                Piece::Begin => {
                    *self = Self {
                        has_begun: true,
                        ..Self::default()
                    };
                }
                Piece::SnapshotBegin(position) => {
                    hold!(
                        self.snapshot.is_none() && self.batches.is_empty(),
                        "a snapshot came where none begins"
                    );
                    self.snapshot = Some(position);
                }
                Piece::Part(part) => self.take_restored(0, &part)?,
                Piece::Page { content, .. } => {
                    let index = content.group(0).and_then(|index| index.try_into().ok());
                    let index = usize::from_le_bytes(index.unwrap_or_default());
                    self.take_restored(index, content.group(1).unwrap_or_default())?;
                }
                Piece::PageLeft { number, .. } => {
                    return Err(Broken::new(format!("page {number:?} came as a part")));
                }
                Piece::PassedOver(page) => {
                    return Err(Broken::new(format!("page {page:?} was passed over")));
                }
                Piece::SnapshotEnd => {
                    hold!(self.batches.is_empty(), "a snapshot ended behind batches");
                    hold!(
                        self.snapshot.is_some(),
                        "a snapshot ended and did not begin"
                    );
                    self.is_snapshot_whole = true;
                }
                Piece::Batches(batches) => {
                    hold!(
                        self.is_snapshot_whole || self.snapshot.is_none(),
                        "batches came within a snapshot"
                    );
                    for batch in batches.iter() {
                        hold!(
                            self.snapshot <= Some(batch.record),
                            "batch {} lies before the snapshot",
                            batch.record
                        );
                        let last = self.batches.last().map(|last| last.record);
                        hold!(
                            last < Some(batch.record),
                            "batch {} came behind {last:?}",
                            batch.record
                        );
                        self.batches.push(FollowedBatch {
                            record: batch.record,
                            epoch: batch.epoch,
                            time_ms: batch.time_ms,
                            events: batch.events().map(<[u8]>::to_vec).collect(),
                        });
                    }
                }
            }
        }
        Ok(())
    }

    fn take_restored(&mut self, index: usize, event: &[u8]) -> Checked {
        hold!(
            self.snapshot.is_some() && !self.is_snapshot_whole,
            "a part came outside of its snapshot"
        );
        let before = self.restored.insert(index, event.to_vec());
        hold!(before.is_none(), "event {index} came twice in a snapshot");
        Ok(())
    }

    /// All events, from the snapshot and behind it.
    pub(crate) fn history(&self) -> Vec<Vec<u8>> {
        let behind = self.batches.iter().flat_map(|batch| &batch.events);
        self.restored.values().chain(behind).cloned().collect()
    }

    /// Whether it has a snapshot.
    pub(crate) fn has_snapshot(&self) -> bool {
        self.is_snapshot_whole
    }
}

/// A log that is followed, and what it gave.
pub(crate) struct Follower {
    pub(crate) log: Box<dyn FollowedLog>,
    pub(crate) content: Content,
    pub(crate) progress: Progress,
    /// How many jobs have brought something.
    pub(crate) pieces: usize,
}

impl Follower {
    pub(crate) fn new(source: &dyn LogSource) -> Self {
        Self::after(source, None)
    }

    /// Follows a log that has ended like this for its last owner in this process.
    pub(crate) fn after(source: &dyn LogSource, end: Option<&LogEnd>) -> Self {
        Self {
            log: source.follow(end, Box::new(AllPages)),
            content: Content::default(),
            progress: Progress::Behind,
            pieces: 0,
        }
    }

    /// Runs the next job. Returns whether there was one.
    pub(crate) fn step(&mut self) -> Checked<bool> {
        Ok(self.step_or_end()??)
    }

    /// The same, and how the log ends.
    pub(crate) fn step_or_end(&mut self) -> Checked<Result<bool, FollowError>> {
        let Some(job) = self.log.next_job() else {
            return Ok(Ok(false));
        };
        let mut outcome = job.run();
        let pieces = outcome.take_followed();
        self.pieces += usize::from(!pieces.is_empty());
        self.content.take(pieces)?;
        let completed = self.log.complete(outcome);
        Ok(completed.map(|progress| {
            self.progress = progress;
            true
        }))
    }

    /// Runs jobs until it is current, or has ended.
    pub(crate) fn catch_up_or_end(&mut self) -> Checked<Result<(), FollowError>> {
        self.run_until(|progress| progress != Progress::Behind, "stays behind")
    }

    /// Runs jobs until it is current, or until there is none.
    pub(crate) fn catch_up(&mut self) -> Checked {
        Ok(self.catch_up_or_end()??)
    }

    /// Promotes it, and returns how that ends.
    pub(crate) fn promote(&mut self, epoch: Epoch) -> Checked<Result<(), FollowError>> {
        self.log.promote(epoch);
        self.run_until(|progress| progress == Progress::Owned, "is not promoted")
    }

    /// Runs jobs until a progress is made, or the log has ended.
    fn run_until(
        &mut self,
        is_made: fn(Progress) -> bool,
        otherwise: &str,
    ) -> Checked<Result<(), FollowError>> {
        for _ in 0..JOBS_MAX {
            if is_made(self.progress) {
                return Ok(Ok(()));
            }
            match self.step_or_end()? {
                Ok(has_run) => hold!(has_run, "a follower {otherwise}, and has no job"),
                Err(end) => return Ok(Err(end)),
            }
        }
        Err(Broken::new(format!("a follower {otherwise}")))
    }
}

/// Follows all of a log.
pub(crate) fn follow(source: &dyn LogSource) -> Checked<Follower> {
    let mut follower = Follower::new(source);
    follower.catch_up()?;
    Ok(follower)
}
