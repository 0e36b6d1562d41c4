//! How many ids were seen in which second.
//!
//! This is what counts against the size of a queue. It follows from the events alone, and no block of ids is read for it.

use std::collections::VecDeque;

use crate::vocabulary::Timestamp;

/// A second in which ids were seen: 8 bytes, since a queue that gets an id each second has one of these for each.
#[derive(Clone, Copy, Debug)]
struct Second {
    /// How many seconds it comes after the first one. A window has far fewer than fit.
    after: u32,
    /// How many ids were seen until its end since the first one ever, without the bits above the lowest 32: a queue never
    /// remembers so many that a difference does not fit.
    until: u32,
}

/// How many ids were seen, by second.
#[derive(Clone, Debug, Default)]
pub(super) struct Seconds {
    /// The first one, when there was no other one.
    first: u64,
    seen: VecDeque<Second>,
    /// How many ids were seen in seconds that are not there any more.
    left: u32,
}

/// With room for fewer seconds, no memory is given back.
const SHRUNK_MIN: usize = 64;

impl Seconds {
    /// Counts an id. The times do not fall.
    pub(super) fn note(&mut self, at: Timestamp) {
        self.note_all(at.as_ms() / 1000, 1);
    }

    /// Counts so many ids of one second. The seconds do not fall.
    pub(super) fn note_all(&mut self, second: u64, count: u32) {
        if self.seen.is_empty() {
            self.first = second;
        }
        let after = u32::try_from(second.saturating_sub(self.first)).unwrap_or(u32::MAX);
        let until = self.total().wrapping_add(count);
        match self.seen.back_mut() {
            Some(last) if last.after >= after => last.until = until,
            Some(_) | None => self.seen.push_back(Second { after, until }),
        }
    }

    /// Forgets the seconds that have ended before a time.
    pub(super) fn drop_before(&mut self, time: Timestamp) {
        // Mostly none has.
        if (self.seen.front()).is_none_or(|it| end_of(self.number(*it)) >= time) {
            return;
        }
        let over = (self.seen).partition_point(|it| end_of(self.number(*it)) < time);
        self.left = self.before(over);
        self.seen.drain(..over);
        let room = self.seen.capacity();
        if room > SHRUNK_MIN && self.seen.len() < room / 4 {
            self.seen.shrink_to(room / 2);
        }
    }

    /// How many were seen in seconds that had not ended when the window before `now` began.
    pub(super) fn count(&self, window_ms: u64, now: Timestamp) -> u64 {
        let end_of = |it: &Second| end_of(self.number(*it));
        let is_over = |it: &Second| end_of(it).plus_ms(window_ms).has_passed(now);
        let over = self.seen.partition_point(is_over);
        self.total().wrapping_sub(self.before(over)).into()
    }

    /// How many were seen in each second that had not ended before a time.
    pub(super) fn from(&self, time: Timestamp) -> impl Iterator<Item = (u64, u32)> {
        let mut before = self.left;
        let counts = self.seen.iter().map(move |it| {
            let count = it.until.wrapping_sub(before);
            before = it.until;
            (self.number(*it), count)
        });
        counts.filter(move |(second, _)| end_of(*second) >= time)
    }

    fn number(&self, second: Second) -> u64 {
        self.first.saturating_add(second.after.into())
    }

    /// How many were seen before a second.
    fn before(&self, index: usize) -> u32 {
        let last = index.checked_sub(1).and_then(|last| self.seen.get(last));
        last.map_or(self.left, |it| it.until)
    }

    fn total(&self) -> u32 {
        self.before(self.seen.len())
    }
}

/// How many ids were seen in each second, by their times, which do not fall.
pub(super) fn by_second(times: impl Iterator<Item = Timestamp>) -> Vec<(u64, u32)> {
    let mut counts: Vec<(u64, u32)> = Vec::new();
    for second in times.map(|at| at.as_ms() / 1000) {
        match counts.last_mut() {
            Some((last, count)) if *last == second => *count += 1,
            Some(_) | None => counts.push((second, 1)),
        }
    }
    counts
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

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: u64) -> Timestamp {
        Timestamp::from_ms(1000 * second)
    }

    /// A week with an id each second takes 8 MiB at most, and nothing once they are over.
    #[test]
    fn seconds_take_little_memory_and_give_it_back() {
        let mut seconds = Seconds::default();
        let week = 7 * 24 * 3600;
        (0..week).for_each(|second| seconds.note(at(second)));
        assert_eq!(size_of::<Second>(), 8);
        assert!(seconds.seen.capacity() <= 1 << 20);
        assert_eq!(seconds.count(1000 * week, at(week)), week);
        assert_eq!(seconds.count(1000 * week, at(week + 1)), week - 1);
        for second in 0..week {
            seconds.drop_before(at(second));
            assert_eq!(seconds.total(), 604_800);
        }
        assert_eq!(seconds.from(at(0)).collect::<Vec<_>>(), [(week - 1, 1)]);
        assert!(seconds.seen.capacity() <= SHRUNK_MIN);
        // All are over, and others begin much later than those that were first.
        seconds.drop_before(at(week));
        seconds.note(at(1 << 40));
        assert_eq!(seconds.from(at(0)).collect::<Vec<_>>(), [(1 << 40, 1)]);
    }

    /// A queue remembers more ids over the years than 32 bits count.
    #[test]
    fn counts_do_not_depend_on_how_many_were_seen_ever() {
        let mut seconds = Seconds {
            left: u32::MAX - 1,
            ..Seconds::default()
        };
        for second in [5, 5, 6, 8] {
            seconds.note(at(second));
        }
        assert_eq!(seconds.count(10_000, at(9)), 4);
        assert_eq!(seconds.from(at(6)).collect::<Vec<_>>(), [(6, 1), (8, 1)]);
        seconds.drop_before(at(6));
        assert_eq!(seconds.count(10_000, at(9)), 2);
    }
}
