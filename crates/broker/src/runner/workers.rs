//! The threads that do slow work for a runner.

use std::any::Any;
use std::sync::{Arc, Mutex, mpsc};
use std::thread::JoinHandle;
use std::time::Instant;

use kew_log::{Job, JobKind};

use super::last_will::TellIfGone;
use super::mailbox::{Opening, Shared};
use super::spawn;
use crate::StartError;
use crate::broker::lock;

/// A thread has died.
pub(super) struct WorkerGone;

/// The threads that do slow work, and what they have to do.
pub(super) struct Workers {
    /// For the thread that prepares and retires segments.
    segment_jobs: mpsc::Sender<Work>,
    /// For the thread that writes snapshots, and frees what takes long to free.
    snapshot_jobs: mpsc::Sender<Work>,
    /// For the threads that read what commands wait for.
    load_jobs: mpsc::Sender<Work>,
    /// The opening of the log that jobs are of.
    opening: Opening,
    /// How many jobs of it are out.
    out: usize,
}

/// What another thread does.
enum Work {
    Job(Opening, Job),
    /// Frees memory.
    Free(Box<dyn Any + Send>),
}

impl Workers {
    pub(super) fn start(shared: &Arc<Shared>) -> Result<(Self, Vec<JoinHandle<()>>), StartError> {
        let (segment_jobs, segment_work) = mpsc::channel();
        let (snapshot_jobs, snapshot_work) = mpsc::channel();
        let (load_jobs, load_work) = mpsc::channel();
        let load_work = Arc::new(Mutex::new(load_work));
        let mut threads = Vec::new();
        for (name, jobs) in [
            ("kew-segments", Arc::new(Mutex::new(segment_work))),
            ("kew-snapshots", Arc::new(Mutex::new(snapshot_work))),
            ("kew-loads", Arc::clone(&load_work)),
            ("kew-loads", Arc::clone(&load_work)),
            ("kew-loads", load_work),
        ] {
            let shared = Arc::clone(shared);
            threads.push(spawn(name, move || work(&jobs, &shared))?);
        }
        let workers = Self {
            segment_jobs,
            snapshot_jobs,
            load_jobs,
            opening: Opening::default(),
            out: 0,
        };
        Ok((workers, threads))
    }

    /// The opening of the log that jobs are of.
    pub(super) fn opening(&self) -> Opening {
        self.opening
    }

    /// The log is opened anew: by the opening that is returned.
    ///
    /// # Panics
    ///
    /// If a job of the opening before is out: it could remove a file that this one finds.
    pub(super) fn open_next(&mut self) -> Opening {
        assert_eq!(self.out, 0, "a log is opened beside jobs of the one before");
        self.opening = self.opening.next();
        self.opening
    }

    /// Hands a job to the thread for its kind.
    pub(super) fn send(&mut self, job: Job) -> Result<(), WorkerGone> {
        let worker = match job.kind() {
            // The runner itself commits, and a follower makes loads of its jobs.
            JobKind::Commit
            | JobKind::Prepare
            | JobKind::Retire
            | JobKind::Ballast
            | JobKind::Promote => &self.segment_jobs,
            JobKind::Snapshot | JobKind::Read => &self.snapshot_jobs,
            // Commands wait for it.
            JobKind::Load | JobKind::Follow => &self.load_jobs,
        };
        let sent = worker.send(Work::Job(self.opening, job));
        sent.map_err(|_| WorkerGone)?;
        self.out += 1;
        Ok(())
    }

    /// Notes that a job is back.
    ///
    /// # Panics
    ///
    /// If it is of another opening.
    pub(super) fn take_back(&mut self, of: Opening) {
        assert_eq!(of, self.opening, "a job outlived its opening of the log");
        self.out -= 1;
    }

    /// Whether jobs are out.
    pub(super) fn is_any_out(&self) -> bool {
        self.out > 0
    }

    /// Frees something on another thread.
    pub(super) fn free(&self, gone: impl Any + Send) {
        // A thread that is gone is noticed with its next job.
        let _ = self.snapshot_jobs.send(Work::Free(Box::new(gone)));
    }
}

/// Waits for work, as the only one of those that share it, and leaves the others to it before it is begun.
fn next_of(all: &Mutex<mpsc::Receiver<Work>>) -> Option<Work> {
    lock(all).recv().ok()
}

/// Carries out slow work until the runner is gone.
fn work(all: &Mutex<mpsc::Receiver<Work>>, shared: &Shared) {
    let _gone = TellIfGone(shared);
    while let Some(work) = next_of(all) {
        let (opening, job) = match work {
            Work::Job(opening, job) => (opening, job),
            Work::Free(gone) => {
                drop(gone);
                continue;
            }
        };
        let (kind, began) = (job.kind(), Instant::now());
        let outcome = job.run();
        if kind == JobKind::Snapshot {
            let instruments = &shared.instruments;
            instruments.note_snapshot(began.elapsed(), outcome.is_ok());
        }
        let mut mailbox = lock(&shared.mailbox);
        mailbox.outcomes.push((opening, outcome));
        shared.wake(mailbox);
    }
}
