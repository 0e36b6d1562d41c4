//! An operation on its way from its caller to the task of the connection, and its outcome on the way back.
//!
//! Both ends share a [`Ticket`], which decides once whether the operation starts or is withdrawn. So a caller that goes
//! away or runs out of time knows for certain whether anything reached the socket.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, timeout_at};

use super::room::Place;
use crate::error::{Effect, Error, ErrorKind};

const WAITING: u8 = 0;
const STARTED: u8 = 1;
const WITHDRAWN: u8 = 2;

/// Whether an operation waits, was started, or was withdrawn. It leaves the first state once.
#[derive(Clone, Debug)]
struct Ticket(Arc<AtomicU8>);

impl Ticket {
    fn leave(&self, state: u8) -> bool {
        let order = Ordering::AcqRel;
        let left = self
            .0
            .compare_exchange(WAITING, state, order, Ordering::Acquire);
        left.is_ok()
    }

    fn state(&self) -> u8 {
        self.0.load(Ordering::Acquire)
    }
}

/// What became of sends, as far as it was told to nobody.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unseen {
    /// How many were accepted.
    pub accepted: u64,
    /// How many were refused, or were to be tried again later.
    pub failed: u64,
    /// Of how many the outcome is unknown.
    pub unknown: u64,
    /// The first error among them.
    pub first_error: Option<Error>,
}

impl Unseen {
    /// Whether each of them was accepted.
    pub fn is_clean(&self) -> bool {
        self.failed == 0 && self.unknown == 0
    }

    fn note<T>(&mut self, result: &Result<T, Error>) {
        let Err(error) = result else {
            self.accepted += 1;
            return;
        };
        match error.kind() {
            ErrorKind::OutcomeUnknown => self.unknown += 1,
            ErrorKind::Refused | ErrorKind::TryAgainLater => self.failed += 1,
        }
        self.first_error.get_or_insert_with(|| error.clone());
    }
}

/// Counts the sends of a sender that are under way, and keeps the outcomes that nobody saw.
#[derive(Debug, Default)]
pub(super) struct Watch {
    state: Mutex<Watched>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Watched {
    under_way: usize,
    unseen: Unseen,
}

impl Watch {
    fn with<T>(&self, work: impl FnOnce(&mut Watched) -> T) -> T {
        work(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn begin(&self) {
        self.with(|state| state.under_way += 1);
    }

    fn end(&self) {
        self.with(|state| state.under_way -= 1);
        self.changed.notify_waiters();
    }

    fn note<T>(&self, result: &Result<T, Error>) {
        if let Err(error) = result {
            tracing::warn!(target: "kew::client", %error, "nobody waited for the outcome of a send");
        }
        self.with(|state| state.unseen.note(result));
    }

    /// Waits until nothing is under way, and hands over what nobody saw.
    pub(super) async fn settled(&self) -> Unseen {
        loop {
            let changed = self.changed.notified();
            let taken = self.with(|state| {
                let is_idle = state.under_way == 0;
                is_idle.then(|| std::mem::take(&mut state.unseen))
            });
            match taken {
                Some(unseen) => return unseen,
                None => changed.await,
            }
        }
    }
}

/// The end of the connection's task. Whatever becomes of it, its caller gets an outcome.
#[derive(Debug)]
pub(super) struct Job<T> {
    ticket: Ticket,
    effect: Effect,
    reply: Option<oneshot::Sender<Result<T, Error>>>,
    watch: Option<Arc<Watch>>,
    /// Given back with the outcome.
    _place: Option<Place>,
}

impl<T> Job<T> {
    /// Whether it is to be carried out: from then on its caller cannot withdraw it.
    pub(super) fn start(&self) -> bool {
        self.ticket.leave(STARTED)
    }

    /// Whether it was withdrawn, so that it can be forgotten.
    pub(super) fn is_withdrawn(&self) -> bool {
        self.ticket.state() == WITHDRAWN
    }

    /// Whether nobody waits for its outcome.
    pub(super) fn is_abandoned(&self) -> bool {
        self.reply.as_ref().is_none_or(oneshot::Sender::is_closed)
    }

    /// What it does.
    pub(super) fn effect(&self) -> Effect {
        self.effect
    }

    /// Tells its outcome.
    pub(super) fn finish(mut self, result: Result<T, Error>) {
        self.tell(result);
    }

    /// It failed, because its link or its connection is gone.
    pub(super) fn lose(mut self, error: &Error) {
        self.tell_lost(error);
    }

    fn tell_lost(&mut self, error: &Error) {
        let error = match self.ticket.state() {
            STARTED => error.lost_under_way(self.effect),
            _ => error.clone(),
        };
        self.tell(Err(error));
    }

    fn tell(&mut self, result: Result<T, Error>) {
        let Some(reply) = self.reply.take() else {
            return;
        };
        if let Err(result) = reply.send(result)
            && !self.is_withdrawn()
            && let Some(watch) = &self.watch
        {
            watch.note(&result);
        }
    }
}

impl<T> Drop for Job<T> {
    fn drop(&mut self) {
        // Mostly it has told its outcome already, and an error costs several allocations.
        if self.reply.is_some() {
            self.tell_lost(&Error::later("the client was closed"));
        }
        if let Some(watch) = &self.watch {
            watch.end();
        }
    }
}

/// The caller's end.
#[derive(Debug)]
pub(super) struct Outcome<T> {
    ticket: Ticket,
    effect: Effect,
    reply: oneshot::Receiver<Result<T, Error>>,
    watch: Option<Arc<Watch>>,
}

/// How an operation ended for its caller.
#[derive(Debug)]
pub(super) enum Ended<T> {
    /// Its outcome came.
    Told(Result<T, Error>),
    /// It was withdrawn before it started.
    Withdrawn,
    /// It had started, and nothing came in time.
    Silent(Error),
}

/// An operation that nobody has started. Its outcome is noted if nobody waits for it.
pub(super) fn job<T>(
    effect: Effect,
    place: Option<Place>,
    watch: Option<Arc<Watch>>,
) -> (Job<T>, Outcome<T>) {
    let ticket = Ticket(Arc::new(AtomicU8::new(WAITING)));
    let (sender, receiver) = oneshot::channel();
    if let Some(watch) = &watch {
        watch.begin();
    }
    let job = Job {
        ticket: ticket.clone(),
        effect,
        reply: Some(sender),
        watch: watch.clone(),
        _place: place,
    };
    let outcome = Outcome {
        ticket,
        effect,
        reply: receiver,
        watch,
    };
    (job, outcome)
}

impl<T> Outcome<T> {
    /// Waits for the outcome, at most until then.
    pub(super) async fn until(mut self, deadline: Instant) -> Ended<T> {
        match timeout_at(deadline, &mut self.reply).await {
            Ok(Ok(result)) => Ended::Told(result),
            // A job always tells its outcome.
            Ok(Err(_)) => Ended::Silent(Error::unknown("the connection's task is gone")),
            Err(_) if self.ticket.leave(WITHDRAWN) => Ended::Withdrawn,
            Err(_) => match self.reply.try_recv() {
                Ok(result) => Ended::Told(result),
                Err(_) => Ended::Silent(Error::no_answer_in_time(self.effect)),
            },
        }
    }
}

impl<T> Drop for Outcome<T> {
    fn drop(&mut self) {
        if self.ticket.leave(WITHDRAWN) {
            return;
        }
        self.reply.close();
        if let Ok(result) = self.reply.try_recv()
            && let Some(watch) = &self.watch
        {
            watch.note(&result);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn watched() -> (Job<()>, Outcome<()>, Arc<Watch>) {
        let watch = Arc::new(Watch::default());
        let (job, outcome) = job(Effect::Change, None, Some(watch.clone()));
        (job, outcome, watch)
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(1)
    }

    #[tokio::test]
    async fn what_was_withdrawn_never_starts_and_is_no_outcome() {
        let (job, outcome, watch) = watched();
        drop(outcome);
        assert!(job.is_withdrawn() && !job.start());
        drop(job);
        assert_eq!(watch.settled().await, Unseen::default());
    }

    #[tokio::test]
    async fn outcomes_that_nobody_saw_are_kept() {
        // Dropped before the outcome, and after it.
        for drops_first in [true, false] {
            let (job, outcome, watch) = watched();
            assert!(job.start());
            if drops_first {
                drop(outcome);
                job.finish(Err(Error::refused("no")));
            } else {
                job.finish(Err(Error::refused("no")));
                drop(outcome);
            }
            let unseen = watch.settled().await;
            assert_eq!((unseen.failed, unseen.is_clean()), (1, false));
            assert!(
                watch.settled().await.is_clean(),
                "they are handed over once"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn time_that_runs_out_withdraws_or_leaves_the_outcome_open() {
        let (job, outcome, _watch) = watched();
        assert!(matches!(outcome.until(soon()).await, Ended::Withdrawn));
        assert!(!job.start());
        let (job, outcome, watch) = watched();
        assert!(job.start());
        let Ended::Silent(error) = outcome.until(soon()).await else {
            panic!("nobody has told the outcome");
        };
        assert_eq!(error.kind(), ErrorKind::OutcomeUnknown);
        job.finish(Ok(()));
        assert_eq!(watch.settled().await.accepted, 1);
    }

    #[tokio::test]
    async fn a_job_that_is_dropped_tells_what_is_known() {
        for (starts, kind) in [
            (false, ErrorKind::TryAgainLater),
            (true, ErrorKind::OutcomeUnknown),
        ] {
            let (job, outcome, _watch) = watched();
            if starts {
                job.start();
            }
            drop(job);
            match outcome.until(soon()).await {
                Ended::Told(Err(error)) => assert_eq!(error.kind(), kind),
                other => panic!("{other:?}"),
            }
        }
    }
}
