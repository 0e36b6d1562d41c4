//! What ends with a process: its partition, its clock, and what waits in its memory.

use std::collections::{BTreeSet, VecDeque};

use kew_broker::{Admission, Clock, ClockReading, Partition, Rotation};
use kew_engine::{Incarnation, Timestamp};
use kew_log::{BootTime, Job, JobKind, JobOutcome};
use kew_planted::Seam;

use crate::checker::{Timekeeping, Turns};
use crate::seam::altered;
use crate::swarm::Swarm;

use super::scrub::ScrubUnderWay;

/// A process, from the moment on at which it owns the log.
pub(super) struct Life {
    /// Those of later owners are higher.
    pub(super) number: u64,
    pub(super) partition: Partition<u64>,
    pub(super) admission: Admission,
    pub(super) clock: Clock,
    pub(super) timekeeping: Timekeeping,
    pub(super) now: Timestamp,
    /// By the same reading. It begins anew with each power cut, and no jump of the wall clock moves it.
    pub(super) boot: BootTime,
    /// Admitted, not decided.
    pub(super) commands: Rotation<u64>,
    pub(super) turns: Turns,
    /// Handed out by the partition, not carried out.
    pub(super) jobs: VecDeque<Job>,
    /// Carried out. The partition does not know it yet.
    pub(super) done: VecDeque<(JobKind, JobOutcome)>,
    /// What the scrub reads.
    pub(super) scrub: Option<ScrubUnderWay>,
    /// The operations that the checker has not looked at yet, as far as their order is known: that of the decisions.
    pub(super) order: VecDeque<u64>,
    /// The entities of which something could not be read, since the partition was opened.
    pub(super) unread: BTreeSet<Incarnation>,
    pub(super) recycled_segments: usize,
    pub(super) was_out_of_space: bool,
}

impl Life {
    /// Begins with what the log has.
    pub(super) fn begin(
        number: u64,
        partition: Partition<u64>,
        swarm: &Swarm,
        reading: ClockReading,
    ) -> Self {
        let last_event_at = partition.state().last_event_at();
        let recorded = (partition.recorded_at(), last_event_at);
        let (recorded_at, _) = altered(Seam::RecordedAt, recorded);
        let shown = altered(Seam::Reading, reading);
        let mut clock = Clock::start(shown, recorded_at);
        let now = clock.now(shown);
        Self {
            number,
            partition,
            admission: Admission::new(swarm.admission_limits()),
            clock,
            timekeeping: Timekeeping::start(reading, now.time),
            now: now.time,
            boot: now.boot,
            commands: Rotation::new(altered(Seam::Share, swarm.share.clone())),
            turns: Turns::with(swarm.share.clone()),
            jobs: VecDeque::new(),
            done: VecDeque::new(),
            scrub: None,
            order: VecDeque::new(),
            unread: BTreeSet::new(),
            recycled_segments: 0,
            was_out_of_space: false,
        }
    }
    /// Whether a job is to be carried out, or its outcome to be taken.
    pub(super) fn has_job(&self) -> bool {
        !self.jobs.is_empty() || !self.done.is_empty()
    }
}
