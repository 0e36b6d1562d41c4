//! What is asked of the owner of a log, and needs no turn: metrics, backups, and what the scrub has found.

use std::mem;

use super::Owner;
use crate::overview::slice_of;
use crate::runner::mailbox::{ReportOf, Requests};
use crate::runner::{Runner, read_clocks};

impl Owner<'_> {
    /// Carries out what came with the mail, before a turn: the removals that waited for the end of a backup are jobs of that
    /// turn. Goes on with the scrub. A request for metrics is left for [`read_slice`](Self::read_slice).
    pub(super) fn carry_out_requests(&mut self) {
        if self.partition.is_stopped() {
            // The log has ended with this mail. Who asks learns that there is no answer.
            self.requests = Requests::default();
            return;
        }
        if !self.requests.is_empty() {
            self.carry_out();
        }
        if self.seen_promotion > self.checked_for && self.partition.check_owner() {
            self.checked_for = self.seen_promotion;
        }
        if let Some(scrubber) = &self.scrubber
            && let Some(job) = self.partition.next_scrub()
        {
            scrubber.send(job);
        }
    }

    fn carry_out(&mut self) {
        let Runner {
            shared, workers, ..
        } = &*self.runner;
        for request in mem::take(&mut self.requests.backups) {
            request.carry_out(&mut self.partition, shared, workers.opening());
        }
        if let Some(outcome) = self.requests.scrubbed.take() {
            self.partition.scrubbed(outcome);
        }
        for (of, answer) in mem::take(&mut self.requests.scrub_reports) {
            let mut report = self.partition.scrub_report();
            if of == ReportOf::Quarantined {
                report.quarantined = self.partition.quarantined_runs();
            }
            // The reader may have given up.
            let _ = answer.send(report);
        }
    }

    /// Answers a request for metrics, a bounded part at a time. A partition that has stopped does not.
    pub(super) fn read_slice(&mut self) {
        if let Some(request) = self.requests.slice.take()
            && !self.partition.is_stopped()
        {
            let now = self.clock.now(read_clocks());
            let slice = slice_of(&mut self.partition, request.from, now.time);
            // The reader may have given up.
            let _ = request.answer.send(slice);
        }
    }
}
