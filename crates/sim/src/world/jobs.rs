//! Jobs of the partition that acts, and their outcomes.

use kew_log::{JobKind, JobOutcome};

use super::World;
use super::cold::BeforeLoad;
use crate::checker::Violation;
use crate::rare::Rare;
use crate::seam;

impl World {
    /// Takes over the partition's jobs.
    pub(super) fn take_jobs(&mut self) {
        while let Some(job) = self.life.partition.next_job() {
            if job.kind() == JobKind::Snapshot {
                self.report.snapshots += 1;
                self.life.partition.state().check_live_bytes();
            }
            if job.kind() == JobKind::Prepare {
                let recycled = self.recycled_segments();
                let taken = recycled < self.life.recycled_segments;
                self.report.rare.note_if(taken, Rare::SegmentRecycled);
                self.life.recycled_segments = recycled;
            }
            self.life.jobs.push_back(job);
        }
        drop(self.life.partition.take_waste());
    }

    /// How many files of segments wait to be used again.
    fn recycled_segments(&self) -> usize {
        let files = self.life.partition.log().files();
        files.map_or(0, |files| files.space().recycled)
    }

    pub(super) fn carry_out_job(&mut self) -> Result<(), Violation> {
        if let Some((kind, outcome)) = self.life.done.pop_front() {
            return self.take_outcome(0, kind, outcome, None);
        }
        let index = self.schedule.index(self.life.jobs.len());
        let Some(job) = self.life.jobs.remove(index) else {
            return Ok(());
        };
        let kind = job.kind();
        self.rot_before_load(kind);
        let fails = self.fails_to_load(kind);
        let before = self.before_load(kind, fails);
        self.device.set_unreadable(fails);
        let outcome = seam::carry_out(job);
        self.device.set_unreadable(false);
        self.follow_time()?;
        self.take_outcome(index, kind, outcome, before)
    }

    /// Lets the partition take the outcome of a job.
    fn take_outcome(
        &mut self,
        index: usize,
        kind: JobKind,
        outcome: JobOutcome,
        before: Option<BeforeLoad>,
    ) -> Result<(), Violation> {
        let mut replies = Vec::new();
        let was_snapshotting = self.life.partition.log().snapshots().is_under_way;
        let was_due_by_memory = self.life.partition.is_due_by_memory();
        let completed = self.life.partition.complete(outcome, &mut replies);
        self.note_load(before);
        let log = self.life.partition.log();
        let is_begun = log.snapshots().is_under_way && !was_snapshotting;
        let is_ahead = is_begun && log.durable() < log.end();
        self.report.rare.note_if(is_ahead, Rare::SnapshotAhead);
        let is_by_memory = is_begun && was_due_by_memory;
        self.report
            .rare
            .note_if(is_by_memory, Rare::SnapshotDueByMemory);
        self.confirm(&mut replies);
        self.pass(&mut replies);
        self.trace.add(
            "job",
            &[
                index as u64,
                u64::from(completed.is_ok()),
                replies.len() as u64,
            ],
            &(kind, completed.is_ok(), replies.len()),
        );
        let recycled = self.recycled_segments();
        let retired = kind == JobKind::Retire && recycled > self.life.recycled_segments;
        self.report.rare.note_if(retired, Rare::SegmentRetired);
        self.life.recycled_segments = recycled;
        self.take_jobs();
        self.take_in(replies)?;
        match completed {
            Ok(()) => Ok(()),
            Err(end) => self.log_ended(&end),
        }
    }
}
