//! Follows a log: it is read and decoded a piece at a time, and a state takes what was read.
//!
//! Both take about as long. So with a thread that reads ahead, a start takes half of the time. Both ways come to the same
//! state, because everything is taken in the order of the log.

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

/// How many pieces are read ahead: about 10 MiB with events of small messages, which take half a kilobyte each when they
/// are decoded.
const PIECES_AHEAD: usize = 8;

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
            self.replayed.take(self.reading.step())?;
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
        let (to, reads) = mpsc::sync_channel(PIECES_AHEAD);
        let (taken, reading) = thread::scope(|scope| {
            let thread = thread::Builder::new().name("kew-opening".into());
            let reader = thread.spawn_scoped(scope, move || {
                let mut is_taken = true;
                while is_taken && reading.progress() == Progress::Behind {
                    let read = reading.step();
                    let is_last = read.failed.is_some();
                    is_taken = to.send(read).is_ok() && !is_last;
                }
                reading
            })?;
            let mut taken = Ok(());
            // After a failure the reader finds nobody to send to.
            for read in reads {
                taken = replayed.take(read);
                if taken.is_err() {
                    break;
                }
            }
            let reading = reader.join().unwrap_or_else(|panic| resume_unwind(panic));
            io::Result::Ok((taken, reading))
        })?;
        Ok(taken.and_then(|()| Self { reading, replayed }.own_alone()))
    }
}

/// What the state refuses.
fn refused(position: LogPosition, source: BoxError) -> FollowError {
    OpenError::Replay { position, source }.into()
}
