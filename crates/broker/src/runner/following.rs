//! A runner that follows its log, which another process owns.
//!
//! No follower promotes itself: what decides which process owns the log says so ([`crate::Broker::promote`]).

use std::mem;
use std::sync::Arc;
use std::time::Duration;

use kew_log::{Epoch, JobOutcome, LogEnd, Progress};

use super::mailbox::{Mailbox, Ticket};
use super::workers::WorkerGone;
use super::{DAY, Runner, wall};
use crate::broker::lock;
use crate::follower::{Follower, Owned};
use crate::{Failure, OpenPartitionError, Partition};

/// How often a log that has nothing new is asked again, if none of its jobs waits for that.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// How long a log rests that has ended for its follower, before it is followed anew.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// Why a log is not followed any more.
enum Left {
    /// The runner ends: it is to stop, or has failed. A failure was told.
    Stopped,
    /// The log has ended for this follower. Another one may follow it.
    Ended(LogEnd),
}

impl Runner {
    /// Follows the log, which has ended like this for the last owner, until this process owns it again. `None` at the stop,
    /// and after a failure.
    pub(super) fn follow(&mut self, mut end: LogEnd) -> Option<Box<Partition<Ticket>>> {
        loop {
            match self.follow_until_owned(&end) {
                Ok(partition) => return Some(partition),
                Err(Left::Stopped) => return None,
                Err(Left::Ended(again)) => {
                    tracing::warn!(error = %again, "the partition is not owned: it follows its log anew");
                    end = again;
                }
            }
            self.hear(RETRY_INTERVAL, |mailbox| mailbox.stop).ok()?;
            if self.is_to_stop() {
                return None;
            }
        }
    }

    fn follow_until_owned(&mut self, end: &LogEnd) -> Result<Box<Partition<Ticket>>, Left> {
        self.await_jobs()?;
        if self.is_to_stop() {
            return Err(Left::Stopped);
        }
        let opening = self.workers.open_next();
        lock(&self.shared.mailbox).opening = opening;
        let mut follower = Follower::begin(&*self.source, Some(end), &self.options);
        match self.follow_with(&mut follower) {
            Ok(()) => self.own(follower.own()),
            Err(left) => {
                // A job that waits for other machines comes back soon.
                follower.stop();
                Err(left)
            }
        }
    }

    /// Follows the log until it is owned.
    fn follow_with(&mut self, follower: &mut Follower) -> Result<(), Left> {
        let mut progress = Progress::Behind;
        let mut is_promoted = false;
        while progress != Progress::Owned {
            let job = follower.next_job();
            if let Some(job) = job {
                let sent = self.workers.send(job);
                sent.map_err(|WorkerGone| self.without_worker())?;
            }
            let timeout = match self.workers.is_any_out() {
                true => DAY,
                false => LOOK_INTERVAL,
            };
            let may_promote = progress == Progress::Current && !is_promoted;
            let outcomes = self.hear(timeout, |mailbox| {
                mailbox.stop || may_promote && mailbox.promotion.is_some()
            })?;
            for outcome in outcomes {
                let completed = follower.complete(outcome);
                progress = completed.map_err(|error| self.left(&error.into()))?;
            }
            if self.is_to_stop() {
                return Err(Left::Stopped);
            }
            // The state has taken everything before: what it refuses is not owned.
            if progress == Progress::Current
                && !is_promoted
                && let Some(epoch) = self.take_promotion(follower.epoch())
            {
                follower.promote(epoch);
                is_promoted = true;
            }
        }
        Ok(())
    }

    /// The partition of the log, which this process owns now.
    fn own(&self, owned: Owned) -> Result<Box<Partition<Ticket>>, Left> {
        let opened = Partition::own(owned, self.options.clone(), self.secret, wall());
        let (partition, recovery) = opened.map_err(|error| self.left(&error))?;
        for warning in &recovery.warnings {
            tracing::warn!("{warning}");
        }
        self.shared.instruments.note_opening(partition.state());
        let mut mailbox = lock(&self.shared.mailbox);
        mailbox.epoch = recovery.epoch;
        // It was repeated meanwhile.
        mailbox.promotion.take_if(|epoch| *epoch <= recovery.epoch);
        drop(mailbox);
        tracing::info!(
            epoch = recovery.epoch.as_u64(),
            "the partition is owned by this process again"
        );
        Ok(Box::new(partition))
    }

    /// Waits until all jobs of this opening are back. Nobody needs what they have done.
    fn await_jobs(&mut self) -> Result<(), Left> {
        while self.workers.is_any_out() {
            self.hear(DAY, |_| false)?;
        }
        Ok(())
    }

    /// Waits for jobs, for something else that is to be heard, or for so long. Returns the outcomes of jobs.
    fn hear(
        &mut self,
        timeout: Duration,
        is_heard: impl Fn(&Mailbox) -> bool,
    ) -> Result<Vec<JobOutcome>, Left> {
        let shared = Arc::clone(&self.shared);
        let mut mailbox = lock(&shared.mailbox);
        if mailbox.outcomes.is_empty() && !mailbox.worker_is_gone && !is_heard(&mailbox) {
            mailbox = shared.wait_for_mail(mailbox, timeout);
        }
        let outcomes = mem::take(&mut mailbox.outcomes);
        let worker_is_gone = mailbox.worker_is_gone;
        drop(mailbox);
        if worker_is_gone {
            return Err(self.without_worker());
        }
        let outcomes = outcomes.into_iter();
        Ok(outcomes
            .map(|returned| self.workers.take_back(returned))
            .collect())
    }

    fn is_to_stop(&self) -> bool {
        lock(&self.shared.mailbox).stop
    }

    /// The epoch to own the log with, if it is above one that has begun. Another one is of no use any more.
    fn take_promotion(&self, begun: Epoch) -> Option<Epoch> {
        let promotion = lock(&self.shared.mailbox).promotion.take();
        promotion.filter(|epoch| *epoch > begun)
    }

    fn without_worker(&self) -> Left {
        self.fail_for_want_of_a_worker();
        Left::Stopped
    }

    /// Why a log is left after an error, which is told if the runner ends.
    fn left(&self, error: &OpenPartitionError) -> Left {
        match error.end() {
            Some(end @ (LogEnd::Fenced(_) | LogEnd::Diverged(_))) => Left::Ended(end.clone()),
            Some(LogEnd::Failed(_)) | None => {
                tracing::error!(error = %error, "the log cannot be followed: the partition stops");
                self.failed.send_replace(Some(Failure::of(error)));
                Left::Stopped
            }
        }
    }
}
