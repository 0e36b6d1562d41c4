//! The threads that do slow work for a runner.

use std::any::Any;
use std::sync::{Arc, Mutex, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use kew_log::{Job, JobKind, JobOutcome};

use super::last_will::TellIfGone;
use super::mailbox::{Opening, Returned, Shared};
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
    /// For jobs that wait for other machines: each kind has a thread, once there is such a job.
    agree: Option<OwnThread>,
    renew: Option<OwnThread>,
    shared: Arc<Shared>,
    /// The opening of the log that jobs are of.
    opening: Opening,
    /// How many jobs of it are out, and how many of them wait for other machines.
    out: usize,
    out_for_others: usize,
}

/// A thread with one kind of jobs. It is joined when this is dropped.
struct OwnThread {
    jobs: Option<mpsc::Sender<Work>>,
    thread: Option<JoinHandle<()>>,
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
            agree: None,
            renew: None,
            shared: Arc::clone(shared),
            opening: Opening::default(),
            out: 0,
            out_for_others: 0,
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
        let waits_for_others = job.kind().waits_for_others();
        let worker = match job.kind() {
            JobKind::Agree => OwnThread::of(&mut self.agree, "kew-agree", &self.shared)?,
            JobKind::Renew => OwnThread::of(&mut self.renew, "kew-renew", &self.shared)?,
            // The runner itself commits.
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
        self.out_for_others += usize::from(waits_for_others);
        Ok(())
    }

    /// Takes the outcome of a job that is back.
    ///
    /// # Panics
    ///
    /// If it is of another opening.
    pub(super) fn take_back(&mut self, returned: Returned) -> JobOutcome {
        let Returned { of, kind, outcome } = returned;
        assert_eq!(of, self.opening, "a job outlived its opening of the log");
        self.out -= 1;
        self.out_for_others -= usize::from(kind.waits_for_others());
        outcome
    }

    /// Whether jobs are out that wait for other machines.
    pub(super) fn wait_for_others(&self) -> bool {
        self.out_for_others > 0
    }

    /// Whether jobs are out.
    pub(super) fn is_any_out(&self) -> bool {
        self.out > 0
    }

    /// Whether jobs are out, and all of them wait for other machines.
    pub(super) fn only_wait_for_others(&self) -> bool {
        self.out > 0 && self.out == self.out_for_others
    }

    /// Frees something on another thread.
    pub(super) fn free(&self, gone: impl Any + Send) {
        // A thread that is gone is noticed with its next job.
        let _ = self.snapshot_jobs.send(Work::Free(Box::new(gone)));
    }
}

impl OwnThread {
    /// The thread, which the first job starts.
    fn of<'a>(
        this: &'a mut Option<Self>,
        name: &str,
        shared: &Arc<Shared>,
    ) -> Result<&'a mpsc::Sender<Work>, WorkerGone> {
        if this.is_none() {
            let (jobs, work_of) = mpsc::channel();
            let (jobs_of, shared) = (Mutex::new(work_of), Arc::clone(shared));
            let thread = spawn(name, move || work(&jobs_of, &shared));
            let thread =
                thread.inspect_err(|error| tracing::error!(%error, "cannot start a thread"));
            *this = Some(Self {
                jobs: Some(jobs),
                thread: Some(thread.map_err(|_| WorkerGone)?),
            });
        }
        this.as_ref()
            .and_then(|it| it.jobs.as_ref())
            .ok_or(WorkerGone)
    }
}

impl Drop for OwnThread {
    fn drop(&mut self) {
        self.jobs = None;
        // After a panic nothing has let its job come back.
        if let Some(thread) = self.thread.take()
            && !thread::panicking()
        {
            // How it has ended was told by itself.
            let _ = thread.join();
        }
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
        let (kind, size_bytes, began) = (job.kind(), job.commit_size_bytes(), Instant::now());
        let outcome = job.run();
        let (took, instruments) = (began.elapsed(), &shared.instruments);
        if kind == JobKind::Snapshot {
            instruments.note_snapshot(took, outcome.is_ok());
        } else if kind == JobKind::Agree && outcome.is_ok() {
            instruments.note_commit(took, size_bytes);
        }
        let mut mailbox = lock(&shared.mailbox);
        mailbox.outcomes.push(Returned {
            of: opening,
            kind,
            outcome,
        });
        shared.wake(mailbox);
    }
}
