//! Follows a log of segments: its jobs read it a piece at a time, and a last one makes the segment that its owner appends
//! to.
//!
//! The directory is locked for this process, so nothing comes behind what was there at the first job.

mod reading;

use std::fmt;
use std::mem;
use std::sync::Arc;

pub(crate) use self::reading::{Cursor, Followed, Promote, Promoted};
use super::SegmentLog;
use crate::job::{Outcome, Task};
use crate::seam::{FollowError, FollowedLog, LogEnd, LogSource, OwnedLog, PageChoice};
use crate::seam::{Progress, Seen};
use crate::segment::Salts;
use crate::storage::Storage;
use crate::{Epoch, Job, JobOutcome, LogOptions, Recovery};

/// A directory with a log of segments. It can be opened again and again.
pub struct SegmentSource {
    storage: Arc<dyn Storage>,
    options: LogOptions,
    entropy: Box<dyn Fn() -> u64 + Send + Sync>,
}

impl SegmentSource {
    /// The log in a directory. `entropy` gives another number for each opening: random ones, or those of a simulation.
    pub fn new(
        storage: Arc<dyn Storage>,
        options: LogOptions,
        entropy: impl Fn() -> u64 + Send + Sync + 'static,
    ) -> Self {
        Self {
            storage,
            options,
            entropy: Box::new(entropy),
        }
    }
}

impl LogSource for SegmentSource {
    /// A log of segments only fails for its owner, and then the process stops. So how it has ended does not matter.
    fn follow(&self, _after: Option<&LogEnd>, pages: Box<dyn PageChoice>) -> Box<dyn FollowedLog> {
        let salts = Salts::new((self.entropy)());
        let storage = Arc::clone(&self.storage);
        let cursor = Cursor::new(storage, self.options, salts, pages);
        Box::new(SegmentFollower {
            state: State::Behind(Box::new(cursor)),
            seen: Seen::default(),
            progress: Progress::Behind,
            epoch: None,
            is_stopped: false,
        })
    }

    fn unit_bytes(&self) -> u64 {
        self.options.unit_bytes()
    }
}

impl fmt::Debug for SegmentSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SegmentSource")
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

/// A log of segments that is followed.
struct SegmentFollower {
    state: State,
    seen: Seen,
    /// What the last job has brought.
    progress: Progress,
    /// The epoch of the promotion, once there was one.
    epoch: Option<Epoch>,
    is_stopped: bool,
}

enum State {
    /// There is more to read.
    Behind(Box<Cursor>),
    /// Everything was handed out.
    Current(Box<Cursor>),
    /// A job is out.
    Waiting,
    Owned(Box<(SegmentLog, Recovery)>),
    Ended(LogEnd),
    /// It cannot be opened.
    Failed,
}

impl FollowedLog for SegmentFollower {
    fn next_job(&mut self) -> Option<Job> {
        if self.is_stopped {
            return None;
        }
        let task = match (mem::replace(&mut self.state, State::Waiting), self.epoch) {
            (State::Behind(cursor), _) => Task::Follow(cursor),
            (State::Current(cursor), Some(epoch)) => Task::Promote(Promote { cursor, epoch }),
            (state, _) => {
                self.state = state;
                return None;
            }
        };
        Some(Job(task))
    }

    fn complete(&mut self, outcome: JobOutcome) -> Result<Progress, FollowError> {
        match outcome.0 {
            Outcome::Follow(followed) => self.followed(*followed),
            Outcome::Promote(promoted) => self.promoted(promoted),
            // It is for the caller that asked.
            Outcome::Read(_) | Outcome::Load(_) => match &self.state {
                State::Ended(end) => Err(end.clone().into()),
                _ => Ok(self.progress),
            },
            Outcome::Commit(_)
            | Outcome::Prepare(_)
            | Outcome::Snapshot(_)
            | Outcome::Retire(_)
            | Outcome::Ballast(_)
            | Outcome::Other(_) => panic!("the job is none of a log of segments that is followed"),
        }
    }

    fn seen(&self) -> Seen {
        self.seen
    }

    fn promote(&mut self, epoch: Epoch) {
        assert!(self.epoch.is_none(), "a follower is promoted once");
        self.epoch = Some(epoch);
    }

    fn own(self: Box<Self>) -> (Box<dyn OwnedLog>, Recovery) {
        match self.state {
            State::Owned(owned) => {
                let (log, recovery) = *owned;
                (Box::new(log), recovery)
            }
            State::Behind(_)
            | State::Current(_)
            | State::Waiting
            | State::Ended(_)
            | State::Failed => panic!("the log is not owned"),
        }
    }

    fn stop(&mut self) {
        self.is_stopped = true;
    }
}

impl SegmentFollower {
    fn followed(&mut self, followed: Followed) -> Result<Progress, FollowError> {
        assert!(followed.is_taken(), "the pieces were not taken");
        self.take_back();
        let (cursor, is_whole) = followed.read?;
        self.seen = cursor.seen();
        (self.state, self.progress) = match is_whole {
            true => (State::Current(cursor), Progress::Current),
            false => (State::Behind(cursor), Progress::Behind),
        };
        Ok(self.progress)
    }

    fn promoted(&mut self, promoted: Promoted) -> Result<Progress, FollowError> {
        self.take_back();
        match promoted {
            Ok(owned) => self.state = State::Owned(owned),
            Err(error) => {
                if let FollowError::Ended(end) = &error {
                    self.state = State::Ended(end.clone());
                }
                return Err(error);
            }
        }
        self.progress = Progress::Owned;
        Ok(self.progress)
    }

    /// Takes back the job that is out. Until its outcome was looked at, the log counts as failed.
    fn take_back(&mut self) {
        let state = mem::replace(&mut self.state, State::Failed);
        assert!(matches!(state, State::Waiting), "no such job is out");
    }
}
