//! The mailbox of the runner: commands and outcomes come in, and front ends read how the partition is.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use kew_engine::Command;
use kew_log::JobOutcome;
use tokio::sync::oneshot;

use crate::answers::Asker;
use crate::backup::BackupRequest;
use crate::broker::lock;
use crate::metrics::Instruments;
use crate::overview::SliceRequest;
use crate::watch::Watchers;
use crate::{Admission, AdmissionLimits, Admitted, Rejection, ScrubOutcome, ScrubReport, Source};

/// The recipient of a command's answer, and what the command counts for until then.
pub(super) type Ticket = (Asker, Admitted);

/// State that the front ends and the runner share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(super) mailbox: Mutex<Mailbox>,
    pub(super) mail: Condvar,
    pub(super) out_of_space: AtomicBool,
    pub(crate) instruments: Instruments,
    pub(crate) watchers: Arc<Watchers>,
}

#[derive(Debug)]
pub(super) struct Mailbox {
    pub(super) admission: Admission,
    /// The runner takes them out before each turn.
    pub(super) commands: Vec<(Source, Ticket, Command)>,
    pub(super) outcomes: Vec<JobOutcome>,
    /// A request for metrics. There is one reader at a time.
    pub(super) slice: Option<SliceRequest>,
    /// Requests about backups. Each has an answer or is the end of one, and there is one backup at a time.
    pub(super) backups: Vec<BackupRequest>,
    /// The outcome of the scrub's job. There is one at a time.
    pub(super) scrubbed: Option<ScrubOutcome>,
    /// Requests for what the scrub has found.
    pub(super) scrub_reports: Vec<(ReportOf, oneshot::Sender<ScrubReport>)>,
    /// A thread that had jobs is gone. Their outcomes will never come.
    pub(super) worker_is_gone: bool,
    /// The runner waits for mail: wake it after adding some.
    pub(super) runner_waits: bool,
    pub(super) stop: bool,
    pub(super) stopped: bool,
}

/// What a report of the scrub is to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReportOf {
    /// What is at hand.
    Damage,
    /// Also which messages are set aside, for which all runs are looked at.
    Quarantined,
}

impl Shared {
    pub(super) fn new(admission: AdmissionLimits, instruments: Instruments) -> Self {
        Self {
            mailbox: Mutex::new(Mailbox {
                admission: Admission::new(admission),
                commands: Vec::new(),
                outcomes: Vec::new(),
                slice: None,
                backups: Vec::new(),
                scrubbed: None,
                scrub_reports: Vec::new(),
                worker_is_gone: false,
                runner_waits: false,
                stop: false,
                stopped: false,
            }),
            mail: Condvar::new(),
            out_of_space: AtomicBool::new(false),
            instruments,
            watchers: Arc::default(),
        }
    }

    /// Submits a command, or gives the asker back with a rejection.
    pub(crate) fn submit(
        &self,
        source: Source,
        asker: Asker,
        command: Command,
    ) -> Result<(), (Asker, Rejection)> {
        let mut mailbox = lock(&self.mailbox);
        self.take(&mut mailbox, source, asker, command)?;
        self.wake(mailbox);
        Ok(())
    }

    /// Submits many commands at once and wakes the runner when all are there.
    pub(crate) fn submit_all(
        &self,
        source: Source,
        commands: impl Iterator<Item = (Asker, Command)>,
        mut on_refusal: impl FnMut(Asker, Rejection),
    ) {
        let mut mailbox = lock(&self.mailbox);
        for (asker, command) in commands {
            if let Err((asker, rejection)) = self.take(&mut mailbox, source, asker, command) {
                on_refusal(asker, rejection);
            }
        }
        self.wake(mailbox);
    }

    fn take(
        &self,
        mailbox: &mut Mailbox,
        source: Source,
        asker: Asker,
        command: Command,
    ) -> Result<(), (Asker, Rejection)> {
        if mailbox.stop || mailbox.stopped {
            self.instruments.refused_stopped.increment();
            return Err((asker, Rejection::Stopped));
        }
        let Ok(admitted) = mailbox.admission.admit(&command) else {
            self.instruments.refused_busy.increment();
            return Err((asker, Rejection::Busy));
        };
        mailbox.commands.push((source, (asker, admitted), command));
        Ok(())
    }

    pub(super) fn wake(&self, mut mailbox: MutexGuard<'_, Mailbox>) {
        let runner_waits = std::mem::take(&mut mailbox.runner_waits);
        drop(mailbox);
        if runner_waits {
            self.mail.notify_one();
        }
    }

    /// Makes the runner read a slice for metrics. An earlier request is not answered any more.
    pub(crate) fn request_slice(&self, request: SliceRequest) {
        let mut mailbox = lock(&self.mailbox);
        if !mailbox.stop && !mailbox.stopped {
            mailbox.slice = Some(request);
            self.wake(mailbox);
        }
    }

    /// Makes the runner carry out a request about a backup. A runner that has stopped drops it.
    pub(crate) fn request_backup(&self, request: BackupRequest) {
        let mut mailbox = lock(&self.mailbox);
        if !mailbox.stop && !mailbox.stopped {
            mailbox.backups.push(request);
            self.wake(mailbox);
        }
    }

    /// Asks the runner what the scrub has found. The answer is dropped if the runner has stopped.
    pub(crate) fn request_scrub_report(&self, of: ReportOf) -> oneshot::Receiver<ScrubReport> {
        let (sender, answer) = oneshot::channel();
        let mut mailbox = lock(&self.mailbox);
        if !mailbox.stop && !mailbox.stopped {
            mailbox.scrub_reports.push((of, sender));
            self.wake(mailbox);
        }
        answer
    }

    /// How many commands are under way, and the state of the partition.
    pub(crate) fn standing(&self) -> (usize, &'static str) {
        let mailbox = lock(&self.mailbox);
        let state = if mailbox.stop || mailbox.stopped {
            "stopped"
        } else if self.out_of_space.load(Ordering::Relaxed) {
            "full"
        } else {
            "ready"
        };
        (mailbox.admission.commands(), state)
    }

    pub(crate) fn stop(&self) {
        let mut mailbox = lock(&self.mailbox);
        mailbox.stop = true;
        self.wake(mailbox);
    }

    pub(crate) fn is_ready(&self) -> bool {
        let mailbox = lock(&self.mailbox);
        !mailbox.stop && !mailbox.stopped && !self.out_of_space.load(Ordering::Relaxed)
    }
}
