//! How many ids were seen in which second.
//!
//! This is what counts against the size of a queue. It follows from the events alone, and no block of ids is read for it.

use std::collections::VecDeque;

use crate::vocabulary::Timestamp;

/// How many ids were seen, by second.
#[derive(Clone, Debug, Default)]
pub(super) struct Seconds {
    /// Seconds in which ids were seen, each with how many were seen in it and in all before it since the first one ever.
    until: VecDeque<(u64, u64)>,
    /// How many were seen in those that have left.
    left: u64,
}

impl Seconds {
    /// Counts an id. The times do not fall.
    pub(super) fn note(&mut self, at: Timestamp) {
        let second = at.as_ms() / 1000;
        let total = self.total();
        match self.until.back_mut() {
            Some((last, count)) if *last >= second => *count += 1,
            Some(_) | None => self.until.push_back((second, total + 1)),
        }
    }

    /// Forgets the seconds that have ended before a time.
    pub(super) fn drop_before(&mut self, time: Timestamp) {
        while let Some((second, count)) = self.until.front().copied()
            && end_of(second) < time
        {
            self.left = count;
            self.until.pop_front();
        }
    }

    /// How many were seen in seconds that had not ended when the window before `now` began.
    pub(super) fn count(&self, window_ms: u64, now: Timestamp) -> u64 {
        let is_over = |(second, _): &(u64, u64)| end_of(*second).plus_ms(window_ms).has_passed(now);
        let over = self.until.partition_point(is_over);
        let before = over.checked_sub(1).and_then(|last| self.until.get(last));
        self.total() - before.map_or(self.left, |(_, count)| *count)
    }

    /// How many were seen in each second that had not ended before a time.
    pub(super) fn from(&self, time: Timestamp) -> impl Iterator<Item = (u64, u64)> {
        let mut before = self.left;
        let counts = self.until.iter().map(move |(second, until)| {
            let count = until - before;
            before = *until;
            (*second, count)
        });
        counts.filter(move |(second, _)| end_of(*second) >= time)
    }

    fn total(&self) -> u64 {
        self.until.back().map_or(self.left, |(_, count)| *count)
    }
}

/// Ids that were seen before this time are in no second that counts, if those before another time do not.
pub(super) fn counting_from(time: Timestamp) -> Timestamp {
    Timestamp::from_ms(time.as_ms() / 1000 * 1000)
}

/// When an id that was seen then does not count any more.
pub(super) fn counts_until(at: Timestamp, window_ms: u64) -> Timestamp {
    end_of(at.as_ms() / 1000).plus_ms(window_ms)
}

/// The last millisecond of a second.
fn end_of(second: u64) -> Timestamp {
    Timestamp::from_ms(second.saturating_mul(1000).saturating_add(999))
}
