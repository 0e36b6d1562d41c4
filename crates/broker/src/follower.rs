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
    BoxError, FollowError, LogPosition, LogSource, OpenError, OwnedLog, Progress, Recovery,
};

use self::reading::Reading;
pub(crate) use self::replayed::{Rebuild, Replayed, decode, to_engine};

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
    /// Begins to follow a log, with a limit for records in memory.
    pub(crate) fn begin(source: &dyn LogSource, resident_bytes: Option<u64>) -> Self {
        let how = Rebuild {
            unit: CountUnit::at_most(source.unit_bytes()),
            resident_bytes,
        };
        Self {
            reading: Reading::begin(source, how),
            replayed: Replayed::new(how),
        }
    }

    /// Follows the log to its end, and makes this process its owner. All on this thread.
    pub(crate) fn own_alone(mut self) -> Result<Owned, FollowError> {
        let mut is_promoted = false;
        while self.reading.progress() != Progress::Owned {
            // The state has taken everything before: what it refuses is not owned.
            if self.reading.progress() == Progress::Current && !is_promoted {
                self.reading.promote();
                is_promoted = true;
            }
            self.reading.step(|step| self.replayed.take(step))?;
        }
        let (log, recovery) = self.reading.own();
        Ok(Owned {
            log,
            recovery,
            replayed: self.replayed,
        })
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
