//! Which records leave memory: a hand goes round over the runs.

use super::State;
use crate::table::{Leaving, RunId};
use crate::vocabulary::{Incarnation, PageNumber, Timestamp};

/// Where the hand is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hand {
    entity: Incarnation,
    pub(super) run: u64,
    /// It has seen all of this entity.
    is_done: bool,
}

/// What it costs to come to an entity, in steps of 20 ns.
pub(super) const ENTITY_STEPS: u32 = 8;

/// Which runs the hand takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pass {
    /// It spares what is needed next: of each entity the first run that can be received from, and the last one.
    #[default]
    Middle,
    /// All.
    All,
}

/// What a piece of the hand's way came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Evicted {
    /// How many runs have fewer records in memory now.
    pub runs: u64,
    /// Whether the hand has come round.
    pub is_round: bool,
}

impl Hand {
    /// The first entity that it has not seen all of.
    pub(super) fn from(&self) -> Incarnation {
        match self.is_done {
            true => self.entity.next(),
            false => self.entity,
        }
    }

    /// Comes to an entity, unless it is there.
    pub(super) fn come_to(&mut self, entity: Incarnation) {
        if entity != self.entity || self.is_done {
            *self = Self {
                entity,
                ..Self::default()
            };
        }
    }

    /// Continues at a run, or behind its entity.
    pub(super) fn go_on(&mut self, next: Option<u64>) {
        match next {
            Some(run) => self.run = run,
            None => self.is_done = true,
        }
    }
}

impl State {
    /// Takes records of messages and remembered ids out of memory that pages have, from where the hand is, in so many
    /// steps of 20 ns, or until it has come round. `may` is asked with a run, its page, and what would leave. Messages
    /// that are due after `far_from` leave the order by time with their records.
    ///
    /// The newest durable snapshot must name the page, and the next one must not be begun yet, unless records of the run
    /// are on pages alone already.
    pub fn evict(
        &mut self,
        hand: &mut Hand,
        pass: Pass,
        far_from: Timestamp,
        steps: u32,
        may: impl Fn(RunId, PageNumber, Leaving) -> bool,
    ) -> Evicted {
        let (mut left, mut runs) = (steps.max(ENTITY_STEPS + 1), 0);
        while left > 0 {
            let Some(entity) = self.entity_from(hand.from()) else {
                *hand = Hand::default();
                let is_round = true;
                return Evicted { runs, is_round };
            };
            hand.come_to(entity);
            left = left.saturating_sub(ENTITY_STEPS);
            let may = |run, page, leaving| may((entity, run), page, leaving);
            let live = &mut self.catalogue.live;
            let from = (hand.run, pass == Pass::All, far_from);
            let swept = match self.storage.contains_key(&entity) {
                true => self.storage.sweep(entity, from, &mut left, may, live),
                false => self.bus.sweep_all(entity, from, &mut left, may, live),
            };
            runs += swept.as_ref().map_or(0, |it| it.evicted);
            hand.go_on(swept.and_then(|it| it.next));
        }
        Evicted {
            runs,
            is_round: false,
        }
    }
}
