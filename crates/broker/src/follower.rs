//! Follows a log: its jobs read and decode it a piece at a time, and the state takes what they have brought.
//!
//! Reading and decoding take about as long as taking. So with a worker, which reads the next piece meanwhile, a start
//! takes half of the time. Both ways come to the same state, because everything is taken in the order of the log.

mod reading;
mod replayed;

use std::io;
use std::panic::resume_unwind;
use std::sync::mpsc;
use std::thread;

use kew_engine::CountUnit;
use kew_log::{
    BoxError, FollowError, FollowedLog, Job, JobKind, JobOutcome, LogPosition, LogSource,
    OpenError, OwnedLog, Progress, Recovery, Seen,
};

use self::reading::{Read, Reader, Step};
pub(crate) use self::replayed::{Rebuild, Replayed, decode, to_engine};

/// A log that this process does not own, and the state that it has.
pub(crate) struct Follower {
    log: Box<dyn FollowedLog>,
    reader: Reader,
    replayed: Replayed,
    /// What the last job has brought, until it is taken.
    brought: Option<Brought>,
}

/// What a job has brought.
struct Brought {
    steps: Vec<Step>,
    /// What could not be decoded behind them.
    refused: Option<Refused>,
    /// How far the log was handed out with them.
    seen: Seen,
}

/// What the engine cannot read.
struct Refused {
    /// The record of the event. `None` for what belongs to the snapshot.
    record: Option<LogPosition>,
    source: BoxError,
}

impl Refused {
    fn of_snapshot(source: BoxError) -> Self {
        let record = None;
        Self { record, source }
    }

    fn event(record: LogPosition, source: BoxError) -> Self {
        let record = Some(record);
        Self { record, source }
    }
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
        let reader = Reader::default();
        let pages = Box::new(reader.choosing(how));
        Self {
            log: source.follow(None, pages),
            reader,
            replayed: Replayed::new(how),
            brought: None,
        }
    }

    /// Follows the log to its end, and makes this process its owner. All on this thread.
    pub(crate) fn own_alone(mut self) -> Result<Owned, FollowError> {
        self.carry_out(&mut Alone(None))?;
        Ok(self.owned())
    }

    /// The same, but another thread reads and decodes. Fails if the system gives none.
    pub(crate) fn own_beside(mut self) -> io::Result<Result<Owned, FollowError>> {
        let (jobs, work) = mpsc::channel::<Job>();
        let (to, outcomes) = mpsc::channel();
        let carried_out = thread::scope(|scope| {
            let thread = thread::Builder::new().name("kew-opening".into());
            let worker = thread.spawn_scoped(scope, move || {
                for job in work {
                    // If nobody takes it, following has failed.
                    let _ = to.send(job.run());
                }
            })?;
            let carried_out = self.carry_out(&mut Beside { jobs, outcomes });
            worker.join().unwrap_or_else(|panic| resume_unwind(panic));
            io::Result::Ok(carried_out)
        })?;
        Ok(carried_out.map(|()| self.owned()))
    }

    /// Carries out all jobs. The next one begins before the state takes what the last one has brought.
    fn carry_out(&mut self, worker: &mut dyn Worker) -> Result<(), FollowError> {
        self.begin_next(worker);
        while let Some(outcome) = worker.end() {
            match self.complete(outcome)? {
                Progress::Behind => {
                    self.begin_next(worker);
                    self.take()?;
                }
                Progress::Current => {
                    // What the state refuses is not owned.
                    self.take()?;
                    self.log.promote(self.log.seen().epoch.next());
                    self.begin_next(worker);
                }
                // The rest that a former owner has written meanwhile.
                Progress::Owned => return self.take(),
            }
        }
        Ok(())
    }

    fn begin_next(&mut self, worker: &mut dyn Worker) {
        let job = self.next_job();
        worker.begin(job.expect("a log that is not owned, and not stopped, has a job"));
    }

    /// The next job. One is out at a time, on any thread.
    fn next_job(&mut self) -> Option<Job> {
        let job = self.log.next_job()?;
        Some(match job.kind() {
            JobKind::Follow => self.reader.decoding(job),
            JobKind::Commit
            | JobKind::Prepare
            | JobKind::Snapshot
            | JobKind::Retire
            | JobKind::Ballast
            | JobKind::Read
            | JobKind::Load
            | JobKind::Promote => job,
        })
    }

    /// Takes the outcome of a job. What it has brought is kept for [`Follower::take`].
    fn complete(&mut self, mut outcome: JobOutcome) -> Result<Progress, FollowError> {
        let Some(read) = outcome.take_loaded::<Read>() else {
            return self.log.complete(outcome);
        };
        let completed = self.log.complete(read.outcome);
        self.brought = Some(Brought {
            steps: read.steps,
            refused: read.refused,
            seen: self.log.seen(),
        });
        if completed.is_err() {
            // What the state refuses lies before the place where reading has failed.
            self.take()?;
        }
        completed
    }

    /// Lets the state take what the last job has brought.
    fn take(&mut self) -> Result<(), FollowError> {
        let Some(brought) = self.brought.take() else {
            return Ok(());
        };
        let taken = self.replayed.take(brought.steps);
        match taken.err().or(brought.refused) {
            None => Ok(()),
            Some(Refused { record, source }) => {
                let of_snapshot = brought.seen.snapshot.unwrap_or(brought.seen.end);
                let position = record.unwrap_or(of_snapshot);
                Err(OpenError::Replay { position, source }.into())
            }
        }
    }

    fn owned(self) -> Owned {
        let (log, recovery) = self.log.own();
        let replayed = self.replayed;
        Owned {
            log,
            recovery,
            replayed,
        }
    }
}

/// Carries out the jobs of a follower.
trait Worker {
    /// Begins a job. The one before has ended.
    fn begin(&mut self, job: Job);

    /// Waits for the end of the job that was begun. `None` if the thread has panicked.
    fn end(&mut self) -> Option<JobOutcome>;
}

/// On the caller's thread.
struct Alone(Option<JobOutcome>);

impl Worker for Alone {
    fn begin(&mut self, job: Job) {
        self.0 = Some(job.run());
    }

    fn end(&mut self) -> Option<JobOutcome> {
        self.0.take()
    }
}

/// On another thread, which ends with this.
struct Beside {
    jobs: mpsc::Sender<Job>,
    outcomes: mpsc::Receiver<JobOutcome>,
}

impl Worker for Beside {
    fn begin(&mut self, job: Job) {
        // If the thread is gone, the end says so.
        let _ = self.jobs.send(job);
    }

    fn end(&mut self) -> Option<JobOutcome> {
        self.outcomes.recv().ok()
    }
}
