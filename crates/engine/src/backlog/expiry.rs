//! Messages whose time to live has passed, and the effects that remove them.

use super::Backlog;
use super::run::{Run, run_of};
use crate::effect::{Effect, Effects, Place};
use crate::{Incarnation, SequenceNumber, Timestamp};

/// The most messages that one event ends one by one. A run with more takes several.
pub(crate) const ENDED_COUNT_MAX: usize = 16;

impl Backlog {
    /// The first run with something to expire at `now`, if the hints of its runs are right.
    pub(crate) fn run_to_expire(&self, now: Timestamp) -> Option<u64> {
        let (expires_at, run) = self.expiries.first()?;
        expires_at.has_passed(now).then_some(*run)
    }

    /// When the next run has something to expire, or earlier.
    pub(crate) fn next_expiry(&self) -> Option<Timestamp> {
        self.expiries.first().map(|(expires_at, _)| *expires_at)
    }

    /// The effects that remove a run's messages that have expired at `now`, or the first of them, and how many
    /// messages that are.
    ///
    /// A run without leased and delayed messages ends as a whole, if all of it has expired.
    pub(crate) fn expired(
        &self,
        entity: Incarnation,
        index: u64,
        now: Timestamp,
    ) -> Option<(Effects, u64)> {
        let run = self.runs.get(&index)?;
        if run.is_fresh() && run.expires_last.has_passed(now) {
            let effect = Effect::RangeEnded {
                entity,
                from: SequenceNumber::new(run.first()),
                until: SequenceNumber::new(run.end()),
            };
            return Some((effect.into(), run.live));
        }
        let expired = run.messages().filter(|(_, it)| it.is_expired(now));
        let effects: Effects = expired
            .take(ENDED_COUNT_MAX)
            .map(|(number, message)| message.ended(Place { entity, number }))
            .collect();
        let count = effects.len() as u64;
        (count > 0).then_some((effects, count))
    }

    /// Corrects a run's hint: other messages than those that are there may have set it.
    pub(crate) fn raise_expiry(&mut self, index: u64) {
        let Some(run) = self.runs.get_mut(&index) else {
            return;
        };
        self.expiries.remove(&(*run.expires_first, index));
        let expiries = run.messages().map(|(_, message)| message.expires_at);
        *run.expires_first = expiries.min().unwrap_or(Timestamp::NEVER);
        if *run.expires_first != Timestamp::NEVER {
            self.expiries.insert((*run.expires_first, index));
        }
    }

    /// The effect that removes all messages, if there are any.
    pub(crate) fn all_ended(&self, entity: Incarnation) -> Option<Effect> {
        (!self.runs.is_empty()).then_some(Effect::RangeEnded {
            entity,
            from: SequenceNumber::default(),
            until: self.next,
        })
    }

    /// Whether a range covers all messages.
    pub(crate) fn is_within(&self, from: SequenceNumber, until: SequenceNumber) -> bool {
        let (first, last) = (self.runs.first_key_value(), self.runs.last_key_value());
        first.is_none_or(|(_, run)| run.first() >= from.as_u64())
            && last.is_none_or(|(_, run)| run.end() <= until.as_u64())
    }

    /// Whether the messages of a range can end by the counts of their runs.
    pub(crate) fn ends_by_counts(&self, from: SequenceNumber, until: SequenceNumber) -> bool {
        if from >= until {
            return true;
        }
        let overlaps = |run: &Run| run.first() < until.as_u64() && run.end() > from.as_u64();
        let near = self.runs.range(run_of(from)..=run_of(until));
        let mut overlapped = near.map(|(_, run)| run).filter(|run| overlaps(run));
        self.is_within(from, until)
            || overlapped.all(|run| run.is_within(from, until) && run.is_fresh())
    }
}
