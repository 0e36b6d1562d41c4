//! The mailbox of the runner: commands and outcomes come in, and front ends read how the partition is.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kew_engine::Command;
use kew_log::{Epoch, JobKind, JobOutcome};
use tokio::sync::oneshot;

use crate::answers::Asker;
use crate::backup::BackupRequest;
use crate::broker::lock;
use crate::metrics::Instruments;
use crate::overview::SliceRequest;
use crate::watch::Watchers;
use crate::{
    Admission, AdmissionLimits, Admitted, Door, Ownership, Rejection, ScrubOutcome, ScrubReport,
    Source, Target,
};

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
    /// Changed while the mailbox is locked, so that no command of an epoch is taken before it is known.
    ownership: Arc<Ownership>,
}

#[derive(Debug)]
pub(super) struct Mailbox {
    pub(super) admission: Admission,
    /// The runner takes them out before each turn.
    pub(super) commands: Vec<Mail>,
    pub(super) outcomes: Vec<Returned>,
    /// The epoch with which the log is to be owned, once it is followed.
    pub(super) promotion: Option<Epoch>,
    pub(super) requests: Requests,
    /// A thread that had jobs is gone. Their outcomes will never come.
    pub(super) worker_is_gone: bool,
    /// The runner waits for mail: wake it after adding some.
    pub(super) runner_waits: bool,
    pub(super) stop: bool,
    pub(super) intake: Intake,
    /// Of the log.
    pub(super) opening: Opening,
    /// With which this process has owned the log last, or does.
    pub(super) epoch: Epoch,
}

/// What comes seldom, and needs no turn.
#[derive(Debug, Default)]
pub(super) struct Requests {
    /// A request for metrics. There is one reader at a time.
    pub(super) slice: Option<SliceRequest>,
    /// Requests about backups. Each has an answer or is the end of one, and there is one backup at a time.
    pub(super) backups: Vec<BackupRequest>,
    /// The outcome of the scrub's job. There is one at a time.
    pub(super) scrubbed: Option<ScrubOutcome>,
    /// Requests for what the scrub has found.
    pub(super) scrub_reports: Vec<(ReportOf, oneshot::Sender<ScrubReport>)>,
}

impl Requests {
    pub(super) fn is_empty(&self) -> bool {
        self.slice.is_none()
            && self.backups.is_empty()
            && self.scrubbed.is_none()
            && self.scrub_reports.is_empty()
    }
}

/// A command that was admitted.
#[derive(Debug)]
pub(super) struct Mail {
    pub(super) source: Source,
    /// Where it is to wait for a turn.
    pub(super) target: Target,
    pub(super) ticket: Ticket,
    pub(super) command: Command,
}

/// A job of another thread that is done.
#[derive(Debug)]
pub(super) struct Returned {
    /// The opening of the log that it is of.
    pub(super) of: Opening,
    pub(super) kind: JobKind,
    pub(super) outcome: JobOutcome,
}

/// Whether commands are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Intake {
    Open,
    /// Nothing becomes durable, because too few other machines answer. New commands are refused as busy. Requests for
    /// metrics, backups and reports are taken.
    NoQuorum,
    /// Another process owns the log, which is followed.
    NotOwner,
    /// The runner has ended.
    Stopped,
}

/// The number of an opening of the log in this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Opening(u64);

impl Opening {
    pub(super) fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl Mailbox {
    /// Whether something is there that the runner would not wait for, besides a promotion.
    pub(super) fn has_mail(&self) -> bool {
        !self.commands.is_empty()
            || !self.outcomes.is_empty()
            || self.worker_is_gone
            || self.stop
            || !self.requests.is_empty()
    }

    /// Whether commands are taken.
    fn is_open(&self) -> bool {
        !self.stop && self.intake == Intake::Open
    }

    /// Whether requests are taken that change nothing in the log.
    fn takes_requests(&self) -> bool {
        !self.stop && matches!(self.intake, Intake::Open | Intake::NoQuorum)
    }
}

/// How a partition is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It carries out commands.
    Ready,
    /// Its disk is full: it carries out commands that free messages.
    Full,
    /// Too few of the machines answer that keep its log: it carries out no commands.
    NoQuorum,
    /// Another process owns its log, which it follows.
    Following,
    /// It has stopped, or is about to.
    Stopped,
}

impl Standing {
    /// All of them.
    pub(crate) const ALL: [Self; 5] = [
        Self::Ready,
        Self::Full,
        Self::NoQuorum,
        Self::Following,
        Self::Stopped,
    ];

    /// As metrics show it.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Full => "full",
            Self::NoQuorum => "no_quorum",
            Self::Following => "following",
            Self::Stopped => "stopped",
        }
    }
}

/// What a report of the scrub is to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReportOf {
    /// What is at hand.
    Damage,
    /// Also which messages are set aside, for which all runs are looked at.
    Quarantined,
}

impl Door for Shared {
    fn submit(
        &self,
        from: Source,
        within: Option<Epoch>,
        commands: &mut dyn Iterator<Item = (Asker, Command)>,
        refused: &mut dyn FnMut(Asker, Rejection),
    ) {
        let mut mailbox = lock(&self.mailbox);
        let is_over = within.is_some() && within != self.ownership.epoch();
        for (asker, command) in commands {
            let taken = match is_over && mailbox.is_open() {
                true => {
                    self.instruments.refused_not_owner.increment();
                    Err((asker, Rejection::NotOwner))
                }
                false => self.take(&mut mailbox, from, asker, command),
            };
            if let Err((asker, rejection)) = taken {
                refused(asker, rejection);
            }
        }
        // Others may have come before, and have woken the runner.
        if !mailbox.commands.is_empty() {
            self.wake(mailbox);
        }
    }

    fn watchers(&self) -> &Arc<Watchers> {
        &self.watchers
    }

    fn ownership(&self) -> &Arc<Ownership> {
        &self.ownership
    }
}

impl Shared {
    pub(super) fn new(admission: AdmissionLimits, instruments: Instruments, epoch: Epoch) -> Self {
        let ownership = Ownership::default();
        ownership.set(Some(epoch));
        Self {
            mailbox: Mutex::new(Mailbox {
                admission: Admission::new(admission),
                commands: Vec::new(),
                outcomes: Vec::new(),
                requests: Requests::default(),
                worker_is_gone: false,
                runner_waits: false,
                promotion: None,
                stop: false,
                intake: Intake::Open,
                opening: Opening::default(),
                epoch,
            }),
            mail: Condvar::new(),
            out_of_space: AtomicBool::new(false),
            instruments,
            watchers: Arc::default(),
            ownership: Arc::new(ownership),
        }
    }

    fn take(
        &self,
        mailbox: &mut Mailbox,
        source: Source,
        asker: Asker,
        command: Command,
    ) -> Result<(), (Asker, Rejection)> {
        if !mailbox.is_open() {
            let rejection = self.rejection_at_intake(mailbox);
            return Err((asker, rejection));
        }
        let description = command.describe();
        let Ok(admitted) = mailbox.admission.admit(&description) else {
            self.instruments.refused_busy.increment();
            return Err((asker, Rejection::Busy));
        };
        let target = Target::of_described(&description);
        mailbox.commands.push(Mail {
            source,
            target,
            ticket: (asker, admitted),
            command,
        });
        Ok(())
    }

    /// Waits for mail, or for so long. For the runner.
    pub(super) fn wait_for_mail<'a>(
        &'a self,
        mut mailbox: MutexGuard<'a, Mailbox>,
        timeout: Duration,
    ) -> MutexGuard<'a, Mailbox> {
        mailbox.runner_waits = true;
        let waited = (self.mail).wait_timeout_while(mailbox, timeout, |it| it.runner_waits);
        let mut mailbox = waited.unwrap_or_else(PoisonError::into_inner).0;
        mailbox.runner_waits = false;
        mailbox
    }

    #[cold]
    fn rejection_at_intake(&self, mailbox: &Mailbox) -> Rejection {
        let (refused, rejection) = match mailbox.intake {
            Intake::NotOwner if !mailbox.stop => {
                (&self.instruments.refused_not_owner, Rejection::NotOwner)
            }
            Intake::NoQuorum if !mailbox.stop => (&self.instruments.refused_busy, Rejection::Busy),
            Intake::Open | Intake::NotOwner | Intake::NoQuorum | Intake::Stopped => {
                (&self.instruments.refused_stopped, Rejection::Stopped)
            }
        };
        refused.increment();
        rejection
    }

    /// Notes whether enough of the machines answer that keep the log.
    pub(super) fn note_quorum(&self, is_missing: bool) {
        let (from, to) = match is_missing {
            true => (Intake::Open, Intake::NoQuorum),
            false => (Intake::NoQuorum, Intake::Open),
        };
        let mut mailbox = lock(&self.mailbox);
        if mailbox.intake == from {
            mailbox.intake = to;
        }
    }

    /// From now on commands and requests are taken.
    pub(super) fn open_intake(&self) {
        self.out_of_space.store(false, Ordering::Relaxed);
        let mut mailbox = lock(&self.mailbox);
        self.ownership.set(Some(mailbox.epoch));
        mailbox.intake = Intake::Open;
        drop(mailbox);
        // Their entities may have changed while another process owned the log.
        self.watchers.wake_all();
    }

    /// From now on no commands are taken. Those that are there go to `mail`. Requests are dropped: who has made one learns
    /// that there is no answer.
    pub(super) fn close_intake(&self, intake: Intake, mail: &mut Vec<Mail>) {
        let mut mailbox = lock(&self.mailbox);
        mailbox.intake = intake;
        if intake == Intake::NotOwner {
            self.ownership.set(None);
        }
        let scrubbed = mailbox.requests.scrubbed.take();
        mailbox.requests = Requests {
            scrubbed,
            ..Requests::default()
        };
        mail.append(&mut mailbox.commands);
    }

    /// Makes this process the owner of the log, with this epoch, once the log is followed.
    pub(crate) fn promote(&self, epoch: Epoch) {
        let mut mailbox = lock(&self.mailbox);
        mailbox.promotion = mailbox.promotion.max(Some(epoch));
        self.wake(mailbox);
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
        if mailbox.takes_requests() {
            mailbox.requests.slice = Some(request);
            self.wake(mailbox);
        }
    }

    /// Makes the runner carry out a request about a backup. A runner that has stopped, or follows, drops it.
    pub(crate) fn request_backup(&self, request: BackupRequest) {
        let mut mailbox = lock(&self.mailbox);
        if mailbox.takes_requests() {
            mailbox.requests.backups.push(request);
            self.wake(mailbox);
        }
    }

    /// Asks the runner what the scrub has found. The request is dropped if the runner has stopped, or follows.
    pub(crate) fn request_scrub_report(&self, of: ReportOf) -> oneshot::Receiver<ScrubReport> {
        let (sender, answer) = oneshot::channel();
        let mut mailbox = lock(&self.mailbox);
        if mailbox.takes_requests() {
            mailbox.requests.scrub_reports.push((of, sender));
            self.wake(mailbox);
        }
        answer
    }

    /// Whether another process has owned the log since this opening, or does.
    pub(crate) fn has_left(&self, opening: Opening) -> bool {
        let mailbox = lock(&self.mailbox);
        mailbox.intake == Intake::NotOwner || mailbox.opening != opening
    }

    /// How many commands are under way, and the state of the partition.
    pub(crate) fn standing(&self) -> (usize, Standing) {
        let mailbox = lock(&self.mailbox);
        let standing = match mailbox.intake {
            _ if mailbox.stop => Standing::Stopped,
            Intake::Stopped => Standing::Stopped,
            Intake::NotOwner => Standing::Following,
            Intake::NoQuorum => Standing::NoQuorum,
            Intake::Open if self.out_of_space.load(Ordering::Relaxed) => Standing::Full,
            Intake::Open => Standing::Ready,
        };
        (mailbox.admission.commands(), standing)
    }

    pub(crate) fn stop(&self) {
        let mut mailbox = lock(&self.mailbox);
        mailbox.stop = true;
        self.wake(mailbox);
    }
}
