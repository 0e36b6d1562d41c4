//! Beats of an idle owner, for the clock of the next one.
//!
//! A clock of a new owner begins at the last time that the log has ([`Partition::recorded_at`](super::Partition)). Answers
//! show later times. An owner that beats while it is idle bounds by how much: by one interval, and the time that a commit
//! takes.

use kew_log::{BootTime, LogPosition, OwnedLog};

/// When the log last got a time.
#[derive(Debug)]
pub(super) struct Heartbeat {
    interval_ms: Option<u64>,
    /// The log's end at the last look, and when that was.
    end: LogPosition,
    looked_at: BootTime,
    /// What was appended last had about this time.
    beaten_at: BootTime,
}

impl Heartbeat {
    /// A log that no other machine can own has no interval.
    pub(super) fn new(interval_ms: Option<u64>, end: LogPosition) -> Self {
        Self {
            interval_ms,
            end,
            looked_at: BootTime::ZERO,
            beaten_at: BootTime::ZERO,
        }
    }

    /// Whether a beat is due. One that finds no room is tried again after the next interval.
    pub(super) fn is_due(&mut self, now: BootTime, log: &dyn OwnedLog) -> bool {
        let Some(interval_ms) = self.interval_ms else {
            return false;
        };
        if log.end() != self.end {
            // It was appended after the last look, and nothing is appended without one.
            self.end = log.end();
            self.beaten_at = self.looked_at;
        }
        self.looked_at = now;
        let is_due = self.beaten_at.plus_ms(interval_ms).has_passed(now);
        // What is under way has a time already.
        let is_due = is_due && log.durable() == self.end;
        if is_due {
            self.beaten_at = now;
        }
        is_due
    }

    /// When the next one is due, if nothing else is appended.
    pub(super) fn next(&self, log: &dyn OwnedLog) -> Option<BootTime> {
        let interval_ms = self.interval_ms?;
        if log.durable() != log.end() {
            // What is under way has a time.
            return None;
        }
        let beaten_at = match log.end() == self.end {
            true => self.beaten_at,
            false => self.looked_at,
        };
        Some(beaten_at.plus_ms(interval_ms))
    }
}
