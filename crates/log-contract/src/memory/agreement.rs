//! How an opening of a log agrees with others on epochs and batches.
//!
//! What is local to one machine is the same for each log of this crate: a copy, with its bodies, snapshots and pages.
//! The logs differ in what makes a batch agreed.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use kew_log::{BootTime, Epoch, JobKind, LogEnd, LogPosition};

use super::{Kept, Mistake, Others, Shared, Stored};

/// A batch, with the position of its record.
pub(crate) type Placed = (LogPosition, Stored);

/// What has become of batches that were to be agreed.
pub(crate) struct Agreed {
    /// Everything before it is agreed, and in the copy.
    pub(crate) end: LogPosition,
    /// What is to be sent again, later.
    pub(crate) left: Vec<Placed>,
    /// How the log has ended for its owner behind that.
    pub(crate) ended: Option<LogEnd>,
}

/// What a renewal of a lease has brought.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Renewed {
    /// Until when it is trusted. `None` if there is none yet.
    pub(crate) until: Option<BootTime>,
    /// When to ask again.
    pub(crate) again_at: BootTime,
}

/// A renewal of a lease.
pub(crate) type Renewal = Box<dyn FnOnce() -> Result<Renewed, LogEnd> + Send>;

/// What makes an epoch begin and batches agreed, for one opening of a copy. Jobs call what may wait for others.
pub(crate) trait Agreement: Send + Sync {
    /// Begins an epoch. Returns whether the copy has everything that is agreed: no former owner adds anything from now
    /// on.
    fn begin(&self, copy: &Shared, epoch: Epoch) -> Result<bool, LogEnd>;

    /// Brings what is agreed next into the copy. Returns whether that was all.
    fn pull(&self, copy: &Shared) -> Result<bool, LogEnd>;

    /// Whether there is something to pull. It sends no request.
    fn is_ahead(&self, kept: &Kept) -> bool;

    /// The kind of a job that commits batches.
    fn commit_kind(&self, copy: &Shared) -> JobKind;

    /// Makes batches agreed, in order, and puts them into the copy. `None` if the owner stopped before that was known.
    fn commit(&self, copy: &Shared, epoch: Epoch, batches: Vec<Placed>) -> Option<Agreed>;

    /// Lets jobs come back soon that wait for others.
    fn stop(&self);

    /// Since when too few others have answered, if so.
    fn no_quorum_since(&self) -> Option<BootTime> {
        None
    }

    /// Whether commits have to wait, until [`next_wake`](Self::next_wake).
    fn holds_commits(&self) -> bool {
        false
    }

    /// What renews the lease of the owner of an epoch, if that is due. A job runs it.
    fn next_renewal(self: Arc<Self>, _epoch: Epoch) -> Option<Renewal> {
        None
    }

    /// Takes what a renewal has brought.
    fn renewed(&self, _renewed: Renewed) {}

    /// No other opening commits anything before this time.
    fn owned_until(&self) -> BootTime {
        BootTime::ZERO
    }

    /// When there is something to do, if nothing else happens.
    fn next_wake(&self) -> Option<BootTime> {
        None
    }
}

/// The copy is the agreed log: all openings share it, and no answer is lost.
pub(super) struct Alone {
    others: Arc<Others>,
    is_stopped: AtomicBool,
}

impl Alone {
    pub(super) fn new(others: Arc<Others>) -> Self {
        Self {
            others,
            is_stopped: AtomicBool::new(false),
        }
    }
}

impl Agreement for Alone {
    fn begin(&self, copy: &Shared, epoch: Epoch) -> Result<bool, LogEnd> {
        let mut kept = copy.kept();
        if epoch <= kept.epoch && !copy.makes(Mistake::OldEpochAccepted) {
            return Err(LogEnd::Fenced(kept.epoch));
        }
        kept.epoch = epoch;
        Ok(true)
    }

    fn pull(&self, _copy: &Shared) -> Result<bool, LogEnd> {
        Ok(true)
    }

    fn is_ahead(&self, _kept: &Kept) -> bool {
        false
    }

    fn commit_kind(&self, copy: &Shared) -> JobKind {
        match copy.options.heartbeat_ms {
            Some(_) => JobKind::Agree,
            None => JobKind::Commit,
        }
    }

    fn commit(&self, copy: &Shared, epoch: Epoch, batches: Vec<Placed>) -> Option<Agreed> {
        let waits = self.commit_kind(copy) == JobKind::Agree;
        if waits && !self.others.wait(&self.is_stopped) {
            return None;
        }
        let mut kept = copy.kept();
        let ended = kept.check_owner(epoch).err();
        let before = batches.first().map_or(kept.end, |(record, _)| *record);
        if ended.is_none() || copy.makes(Mistake::VoidApplied) {
            kept.put(batches);
        }
        Some(Agreed {
            end: match ended {
                Some(_) => before,
                None => kept.end,
            },
            left: Vec::new(),
            ended,
        })
    }

    fn stop(&self) {
        self.others.stop(&self.is_stopped);
    }

    fn no_quorum_since(&self) -> Option<BootTime> {
        self.others.silent_since()
    }
}
