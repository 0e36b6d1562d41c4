//! When messages of a run expire, known as a lower bound for each run.
//!
//! A time to live costs an entry for each run, not one for each message. The bound is a hint: effects lower it,
//! and a look at the run's messages raises it, without an event. Which messages can expire is for the profile
//! to say.

use super::{Record, Table};
use crate::vocabulary::{SequenceNumber, Timestamp};

impl Table {
    /// Notes that a message expires at that time, unless something else happens first.
    pub(crate) fn lower_expiry(&mut self, number: SequenceNumber, at: Timestamp) {
        let index = self.length.run_of(number.as_u64());
        let Some(run) = self.run(index) else {
            return;
        };
        let before = *run.expires_first;
        if at < before
            && let Some(run) = self.run_mut(index)
        {
            *run.expires_first = at;
            self.expiries.remove(&(before, index));
            self.expiries.insert((at, index));
        }
    }

    /// The first run with something to expire at `now`, if its bound is right.
    pub(crate) fn run_to_expire(&self, now: Timestamp) -> Option<u64> {
        let (at, run) = self.expiries.first()?;
        at.has_passed(now).then_some(*run)
    }

    /// When the next run has something to expire, or earlier.
    pub(crate) fn next_expiry(&self) -> Option<Timestamp> {
        self.expiries.first().map(|(at, _)| *at)
    }

    /// Corrects a run's bound, given when each message expires. Returns how many messages it has looked at.
    pub(crate) fn raise_expiry(
        &mut self,
        index: u64,
        expiry: impl Fn(&Record) -> Timestamp,
    ) -> u32 {
        let Some(run) = self.run(index) else {
            return 0;
        };
        let before = *run.expires_first;
        let mut looks = 0;
        let expiries = run.entries().map(|entry| expiry(entry.record));
        let first = expiries.inspect(|_| looks += 1).min();
        let first = first.unwrap_or_else(|| run.lost_until());
        if first == before {
            return looks;
        }
        self.expiries.remove(&(before, index));
        if first != Timestamp::NEVER {
            self.expiries.insert((first, index));
        }
        if let Some(run) = self.run_mut(index) {
            *run.expires_first = first;
        }
        looks
    }
}
