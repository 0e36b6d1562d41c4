//! Which records leave memory: a hand goes round over the runs.

use std::ops::Bound;

use super::State;
use crate::table::RunId;
use crate::vocabulary::{Incarnation, PageNumber};

/// Where the hand is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hand {
    entity: Incarnation,
    run: u64,
    /// It has seen all of this entity.
    is_done: bool,
}

/// What it costs to come to an entity, in steps of 20 ns.
const ENTITY_STEPS: u32 = 8;

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

impl State {
    /// Takes records of messages out of memory that pages have, from where the hand is, in so many steps of 20 ns, or until
    /// it has come round. `may` is asked with a run, its page, and whether records are on that page alone already.
    ///
    /// Of runs that are not cold, only those become so of which all messages can be received, in queues of Queue Storage.
    /// The newest durable snapshot must name their pages, and the next one must not be begun yet.
    pub fn evict(
        &mut self,
        hand: &mut Hand,
        pass: Pass,
        steps: u32,
        may: impl Fn(RunId, PageNumber, bool) -> bool,
    ) -> Evicted {
        let (mut left, mut runs) = (steps.max(ENTITY_STEPS + 1), 0);
        while left > 0 {
            let from = match hand.is_done {
                true => Bound::Excluded(hand.entity),
                false => Bound::Included(hand.entity),
            };
            let next = self.storage.range((from, Bound::Unbounded)).next();
            let Some((entity, _)) = next else {
                *hand = Hand::default();
                let is_round = true;
                return Evicted { runs, is_round };
            };
            let entity = *entity;
            if entity != hand.entity {
                *hand = Hand {
                    entity,
                    ..Hand::default()
                };
            }
            left = left.saturating_sub(ENTITY_STEPS);
            let may = |run, page, is_cold| may((entity, run), page, is_cold);
            let live = &mut self.catalogue.live;
            let from = (hand.run, pass == Pass::All);
            let swept = self.storage.sweep(entity, from, &mut left, may, live);
            runs += swept.as_ref().map_or(0, |it| it.evicted);
            match swept.and_then(|it| it.next) {
                Some(run) => hand.run = run,
                None => hand.is_done = true,
            }
        }
        Evicted {
            runs,
            is_round: false,
        }
    }
}
