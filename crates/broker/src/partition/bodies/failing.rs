//! Bodies that could not be read: how often, and until when they are not read again.

use std::collections::{BTreeSet, HashMap};

use kew_engine::BodyLocation;
use kew_log::BootTime;

use crate::partition::loads::RETRY_INTERVAL_MS;

/// A body that cannot be read so often, with pauses between the tries, is as good as damaged: a bad sector is an error
/// forever, and must not be in the way of all messages behind it.
const FAILURES_MAX: u32 = 3;

/// How long it counts as damaged before it is read again.
const DAMAGED_INTERVAL_MS: u64 = 60_000;

/// How many bodies that cannot be read are remembered. While there are more, the others are tried again and again until
/// there is room for them.
pub(super) const FAILING_MAX: usize = 16_384;

/// How long after its pause a body makes room for another one.
const KEPT_MS: u64 = 10 * RETRY_INTERVAL_MS;

/// Tries to read a body.
#[derive(Clone, Copy, Debug)]
struct Failure {
    count: u32,
    /// [`BootTime::NEVER`] until the turn after the last try, which knows the time.
    until: BootTime,
}

impl Failure {
    /// Whether it counts as damaged.
    fn is_over(&self) -> bool {
        self.count >= FAILURES_MAX
    }
}

/// The bodies that could not be read.
#[derive(Default)]
pub(super) struct Failing {
    bodies: HashMap<BodyLocation, Failure>,
    /// Those whose pause has an end.
    by_end: BTreeSet<(BootTime, BodyLocation)>,
    /// Those that failed since the last turn.
    failed: Vec<BodyLocation>,
}

impl Failing {
    /// Whether a body could not be read a moment ago.
    pub(super) fn rests(&self, body: BodyLocation, now: BootTime) -> bool {
        let failure = self.bodies.get(&body);
        failure.is_some_and(|it| !it.is_over() && !it.until.has_passed(now))
    }

    /// Whether a body counts as damaged because it could not be read too often.
    pub(super) fn is_damaged(&self, body: BodyLocation, now: BootTime) -> bool {
        let failure = self.bodies.get(&body);
        failure.is_some_and(|it| it.is_over() && !it.until.has_passed(now))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bodies.is_empty()
    }

    pub(super) fn has(&self, body: BodyLocation) -> bool {
        self.bodies.contains_key(&body)
    }

    /// Whether a pause begins with the next turn.
    pub(super) fn begins_pauses(&self) -> bool {
        !self.failed.is_empty()
    }

    /// Begins the pauses of what failed since the last turn: a read may take longer than a pause before it fails.
    pub(super) fn begin_turn(&mut self, now: BootTime) {
        for body in std::mem::take(&mut self.failed) {
            if let Some(failure) = self.bodies.get_mut(&body) {
                let pause_ms = match failure.is_over() {
                    true => DAMAGED_INTERVAL_MS,
                    false => RETRY_INTERVAL_MS,
                };
                failure.until = now.plus_ms(pause_ms);
                self.by_end.insert((failure.until, body));
            }
        }
    }

    /// Notes that a body could not be read. Returns whether it counts as damaged now.
    pub(super) fn note(&mut self, body: BodyLocation, counts: bool, now: BootTime) -> bool {
        if !self.has(body) && !self.has_room(now) {
            return false;
        }
        let failure = self.bodies.entry(body).or_insert(Failure {
            count: 0,
            until: BootTime::NEVER,
        });
        self.by_end.remove(&(failure.until, body));
        failure.count += u32::from(counts);
        failure.until = BootTime::NEVER;
        self.failed.push(body);
        failure.is_over()
    }

    /// Makes room for one more, if there is an old one that nobody has tried again.
    fn has_room(&mut self, now: BootTime) -> bool {
        if self.bodies.len() < FAILING_MAX {
            return true;
        }
        let oldest = self.by_end.first().copied();
        let old = oldest.filter(|(until, _)| until.plus_ms(KEPT_MS).has_passed(now));
        if let Some((_, body)) = old {
            self.forget(body);
        }
        old.is_some()
    }

    /// Forgets a body: it was read, or is gone.
    pub(super) fn forget(&mut self, body: BodyLocation) {
        if !self.bodies.is_empty()
            && let Some(failure) = self.bodies.remove(&body)
        {
            self.by_end.remove(&(failure.until, body));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(record: u64) -> BodyLocation {
        BodyLocation::new(record, 0, 1)
    }

    fn at(ms: u64) -> BootTime {
        BootTime::ZERO.plus_ms(ms)
    }

    /// A whole file that cannot be read: each of its bodies is counted.
    #[test]
    fn more_bodies_than_are_remembered_do_not_reset_the_counts_of_the_others() {
        let mut failing = Failing::default();
        let all = 0..=FAILING_MAX as u64;
        let mut now = 0;
        for round in 1..=FAILURES_MAX {
            let over = all
                .clone()
                .filter(|it| failing.note(body(*it), true, at(now)));
            let expected = if round < FAILURES_MAX { 0 } else { FAILING_MAX };
            assert_eq!(over.count(), expected, "in round {round}");
            failing.begin_turn(at(now));
            assert!(failing.bodies.len() <= FAILING_MAX);
            now += RETRY_INTERVAL_MS;
        }
        // The last one has its turn when nobody asks for the others any more.
        let last = body(FAILING_MAX as u64);
        now += DAMAGED_INTERVAL_MS + KEPT_MS;
        for round in 1..=FAILURES_MAX {
            let is_over = failing.note(last, true, at(now));
            assert_eq!(is_over, round == FAILURES_MAX);
            failing.begin_turn(at(now));
            now += RETRY_INTERVAL_MS;
        }
        assert_eq!(failing.bodies.len(), failing.by_end.len());
    }

    #[test]
    fn a_pause_begins_when_the_read_has_failed() {
        let mut failing = Failing::default();
        failing.note(body(1), true, at(0));
        assert!(failing.begins_pauses() && failing.rests(body(1), at(5000)));
        failing.begin_turn(at(5000));
        assert!(failing.rests(body(1), at(5000 + RETRY_INTERVAL_MS - 1)));
        assert!(!failing.rests(body(1), at(5000 + RETRY_INTERVAL_MS)));
        failing.forget(body(1));
        assert!(failing.is_empty() && failing.by_end.is_empty());
    }

    /// To have no descriptor says nothing of the body.
    #[test]
    fn what_does_not_count_only_pauses() {
        let mut failing = Failing::default();
        for _ in 0..10 {
            assert!(!failing.note(body(1), false, at(0)));
            failing.begin_turn(at(0));
        }
        assert!(!failing.is_damaged(body(1), at(0)) && failing.rests(body(1), at(0)));
    }
}
