//! Follows a log: its jobs read it, and a state takes what was read and decoded.
//!
//! Reading and decoding take about as long as taking. So with a thread that reads ahead, a start takes half of the time.
//! Both ways come to the same state, because everything is taken in the order of the log.

mod reading;
mod replayed;

use std::io;
use std::panic::resume_unwind;
use std::sync::mpsc;
use std::thread;

use kew_engine::CountUnit;
use kew_log::{
    BoxError, Epoch, FollowError, Job, JobOutcome, LogEnd, LogPosition, LogSource, OpenError,
    OwnedLog, Progress, Recovery,
};

use self::reading::Reading;
pub(crate) use self::reading::Rehearsal;
pub(crate) use self::replayed::{Rebuild, Replayed, decode, to_engine};
use crate::PartitionOptions;

/// How many steps are read ahead: 16 MiB with events of small messages, which take half a kilobyte each when they are
/// decoded.
const STEPS_AHEAD: usize = 32;

/// A log that this process does not own, and the state that it has.
pub(crate) struct Follower {
    reading: Reading,
    replayed: Replayed,
}

/// Of a log that this process owns now.
pub(crate) struct Owned {
    pub(crate) log: Box<dyn OwnedLog>,
    pub(crate) recovery: Recovery,
    pub(crate) replayed: Replayed,
}

impl Follower {
    /// Begins to follow a log. `after` is how it ended for the last owner in this process, if there was one.
    pub(crate) fn begin(
        source: &dyn LogSource,
        after: Option<&LogEnd>,
        options: &PartitionOptions,
    ) -> Self {
        let how = Rebuild {
            unit: CountUnit::at_most(source.unit_bytes()),
            // What there is, it does not know yet.
            resident_bytes: options.resident_limit.bytes(0),
        };
        Self {
            reading: Reading::begin(source, after, how),
            replayed: Replayed::new(how),
        }
    }

    /// The next job, which also decodes what it reads. Any thread may run it. `None` while there is nothing new, and once
    /// the log is owned.
    pub(crate) fn next_job(&mut self) -> Option<Job> {
        self.reading.next_job()
    }

    /// Takes the outcome of a job, and what it has read.
    pub(crate) fn complete(&mut self, outcome: JobOutcome) -> Result<Progress, FollowError> {
        let Self { reading, replayed } = self;
        reading.complete(outcome, |step| replayed.take(step))?;
        Ok(reading.progress())
    }

    /// The highest epoch that has begun, as far as is known.
    pub(crate) fn epoch(&self) -> Epoch {
        self.reading.epoch()
    }

    /// Makes this process the owner, with this epoch. To be called once, when the log is [`Progress::Current`].
    pub(crate) fn promote(&mut self, epoch: Epoch) {
        self.reading.promote(epoch);
    }

    /// There is no further job, and one that waits for other machines comes back soon.
    pub(crate) fn stop(&mut self) {
        self.reading.stop();
    }

    /// Follows the log to its end, and makes this process its owner. All on this thread.
    pub(crate) fn own_alone(mut self) -> Result<Owned, FollowError> {
        let mut is_promoted = false;
        while self.reading.progress() != Progress::Owned {
            // The state has taken everything before: what it refuses is not owned.
            if self.reading.progress() == Progress::Current && !is_promoted {
                self.reading.promote(self.reading.epoch().next());
                is_promoted = true;
            }
            self.reading.step(|step| self.replayed.take(step))?;
        }
        Ok(self.own())
    }

    /// What there is, once the log is [`Progress::Owned`].
    pub(crate) fn own(self) -> Owned {
        let (log, recovery) = self.reading.own();
        Owned {
            log,
            recovery,
            replayed: self.replayed,
        }
    }

    /// The same, but another thread reads and decodes. Fails if the system gives none.
    pub(crate) fn own_beside(self) -> io::Result<Result<Owned, FollowError>> {
        let Self {
            mut reading,
            mut replayed,
        } = self;
        let (to, steps) = mpsc::sync_channel(STEPS_AHEAD);
        let (taken, read) = thread::scope(|scope| {
            let thread = thread::Builder::new().name("kew-opening".into());
            let reader = thread.spawn_scoped(scope, move || {
                while reading.progress() == Progress::Behind {
                    // If nobody takes it, the state has refused something, and that is the error.
                    reading.step(|step| to.send(step).map_err(|_| None))?;
                }
                Ok(reading)
            })?;
            let taken = steps.into_iter().try_for_each(|step| replayed.take(step));
            let read = reader.join().unwrap_or_else(|panic| resume_unwind(panic));
            io::Result::Ok((taken, read))
        })?;
        Ok(taken.and_then(|()| {
            let reading = read.map_err(|error: Option<FollowError>| {
                error.expect("everything was taken that was read")
            })?;
            Self { reading, replayed }.own_alone()
        }))
    }
}

/// What the state refuses.
fn refused(position: LogPosition, source: BoxError) -> FollowError {
    OpenError::Replay { position, source }.into()
}
