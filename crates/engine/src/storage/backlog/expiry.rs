//! Messages whose time to live has passed, and the effects that remove them.

use super::{Backlog, stored};
use crate::storage::{Effect, Effects, OwnEffect};
use crate::vocabulary::{Incarnation, Place, SequenceNumber, Timestamp};

/// The most messages that one event ends one by one. A run with more takes several.
pub(crate) const ENDED_COUNT_MAX: usize = 16;

/// Messages of a run that have expired.
pub(crate) struct Expired {
    /// What removes them.
    pub(crate) effects: Effects,
    pub(crate) count: u64,
    /// How many messages were looked at to find them.
    pub(crate) looks: u32,
}

impl Backlog {
    /// The first run with something to expire at `now`, if the hints of its runs are right.
    pub(crate) fn run_to_expire(&self, now: Timestamp) -> Option<u64> {
        self.table().run_to_expire(now)
    }

    /// When the next run has something to expire, or earlier.
    pub(crate) fn next_expiry(&self) -> Option<Timestamp> {
        self.table().next_expiry()
    }

    /// The messages of a run that have expired at `now`, or the first of them.
    ///
    /// A run without leased and delayed messages ends as a whole, if all of it has expired.
    pub(crate) fn expired(
        &self,
        entity: Incarnation,
        index: u64,
        now: Timestamp,
    ) -> Option<Expired> {
        let run = self.table().run(index)?;
        if run.is_all_ready() && run.has_expired(now) {
            let (from, until) = run.range();
            let effect = Effect::Own(OwnEffect::RangeEnded {
                entity,
                from,
                until,
            });
            return Some(Expired {
                effects: effect.into(),
                count: run.count(),
                looks: 0,
            });
        }
        let mut looks = 0;
        let messages = run.entries().map(stored).inspect(|_| looks += 1);
        let expired = messages.filter(|(_, it)| it.is_expired(now));
        let effects: Effects = expired
            .take(ENDED_COUNT_MAX)
            .map(|(number, message)| message.ended(Place { entity, number }))
            .collect();
        let count = effects.len() as u64;
        Some(Expired {
            effects,
            count,
            looks,
        })
    }

    /// The effect that removes all messages, if there are any.
    pub(crate) fn all_ended(&self, entity: Incarnation) -> Option<Effect> {
        (!self.table().is_empty()).then_some(Effect::Own(OwnEffect::RangeEnded {
            entity,
            from: SequenceNumber::default(),
            until: self.next(),
        }))
    }
}
