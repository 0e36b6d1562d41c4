//! Answers that only read, while another process may own the log.
//!
//! What such an answer shows may have been changed by another owner, of which this one has not heard yet. It is shown once
//! it is certain that there was none when it was decided. Either the log says that no other process owns it before a moment
//! that has not come yet ([`OwnedLog::owned_until`](kew_log::OwnedLog::owned_until)). Or a commit that began after the
//! decision is agreed. One that was under way at the decision proves nothing: it may have been agreed before another owner
//! began.
//!
//! A log that nobody else can own needs none of this.

use std::collections::VecDeque;

use kew_log::{BootTime, LogPosition};

/// Answers that wait for a proof, in the order of their decisions.
#[derive(Debug)]
pub(super) struct Reads<A> {
    /// Whether another process can own the log at all.
    are_to_prove: bool,
    waiting: VecDeque<Read<A>>,
    /// The number of the last turn.
    turn: u64,
    /// That of the last turn before the commit that is under way.
    committing: u64,
}

#[derive(Debug)]
struct Read<A> {
    turn: u64,
    /// What it shows is durable behind this record.
    record: Option<LogPosition>,
    answer: A,
}

impl<A> Reads<A> {
    pub(super) fn new(owned_until: BootTime) -> Self {
        Self {
            are_to_prove: owned_until != BootTime::NEVER,
            waiting: VecDeque::new(),
            turn: 0,
            committing: 0,
        }
    }

    /// Whether an answer that only reads has to wait.
    pub(super) fn are_to_prove(&self) -> bool {
        self.are_to_prove
    }

    pub(super) fn begin_turn(&mut self) {
        self.turn += 1;
    }

    /// Keeps an answer of this turn, which shows what a record has brought.
    pub(super) fn wait(&mut self, record: Option<LogPosition>, answer: A) {
        self.waiting.push_back(Read {
            turn: self.turn,
            record,
            answer,
        });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Notes that a commit begins, of all that is staged.
    pub(super) fn commit_begins(&mut self) {
        self.committing = self.turn;
    }

    /// Notes that it is agreed, and hands out what it proves.
    pub(super) fn committed(&mut self, out: &mut Vec<A>) {
        while let Some(read) = self
            .waiting
            .pop_front_if(|read| read.turn <= self.committing)
        {
            out.push(read.answer);
        }
    }

    /// Notes that no other process owns the log yet, and hands out what shows nothing that is not durable.
    pub(super) fn confirm(&mut self, durable: LogPosition, out: &mut Vec<A>) {
        let may_leave = |read: &Read<A>| read.record.is_none_or(|record| record < durable);
        if self.waiting.iter().all(may_leave) {
            out.extend(self.waiting.drain(..).map(|read| read.answer));
            return;
        }
        for read in std::mem::take(&mut self.waiting) {
            match may_leave(&read) {
                true => out.push(read.answer),
                false => self.waiting.push_back(read),
            }
        }
    }

    /// Gives all of them up.
    pub(super) fn abandon(&mut self) -> impl Iterator<Item = A> + use<A> {
        std::mem::take(&mut self.waiting)
            .into_iter()
            .map(|read| read.answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(reads: &mut Reads<u32>, record: Option<u64>, answer: u32) {
        reads.begin_turn();
        reads.wait(record.map(LogPosition::new), answer);
    }

    #[test]
    fn only_a_commit_that_began_after_the_decision_proves_it() {
        let mut reads = Reads::new(BootTime::ZERO);
        let mut out = Vec::new();
        turn(&mut reads, None, 1);
        reads.commit_begins();
        turn(&mut reads, None, 2);
        reads.committed(&mut out);
        assert_eq!(out, [1]);
        reads.commit_begins();
        reads.committed(&mut out);
        assert_eq!(out, [1, 2]);
        assert!(reads.is_empty());
    }

    #[test]
    fn a_lease_lets_all_leave_that_show_what_is_durable() {
        let mut reads = Reads::new(BootTime::from_us(5));
        assert!(reads.are_to_prove());
        let mut out = Vec::new();
        turn(&mut reads, Some(20), 1);
        turn(&mut reads, Some(9), 2);
        turn(&mut reads, None, 3);
        reads.confirm(LogPosition::new(10), &mut out);
        assert_eq!(out, [2, 3]);
        reads.confirm(LogPosition::new(20), &mut out);
        assert_eq!(out, [2, 3], "the record begins there");
        reads.confirm(LogPosition::new(21), &mut out);
        assert_eq!(out, [2, 3, 1]);
    }

    #[test]
    fn a_log_that_nobody_else_can_own_needs_no_proof() {
        assert!(!Reads::<u32>::new(BootTime::NEVER).are_to_prove());
    }
}
