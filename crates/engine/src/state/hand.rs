//! Which records leave memory: a hand goes round over the runs.

use super::State;
use crate::table::RunId;
use crate::vocabulary::{Incarnation, PageNumber};

/// Where the hand is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hand {
    entity: Incarnation,
    run: u64,
    /// The first way round spares what is needed next: the first run that can be received from, and the last one.
    takes_all: bool,
}

/// What a piece of the hand's way came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Evicted {
    /// How many runs have fewer records in memory now.
    pub runs: u64,
    /// Whether the hand has come to the end of the way on which it spares nothing.
    pub is_round: bool,
}

impl State {
    /// Takes records of messages out of memory that pages have, from where the hand is, in so many steps of 20 ns, or until
    /// it has come round. `may` is asked with a run, its page, and whether records are on that page alone already.
    ///
    /// Of runs that are not cold, only those become so of which all messages can be received, in queues of Queue Storage.
    pub fn evict(
        &mut self,
        hand: &mut Hand,
        steps: u32,
        may: impl Fn(RunId, PageNumber, bool) -> bool,
    ) -> Evicted {
        let (mut left, mut runs) = (steps.max(1), 0);
        while left > 0 {
            let next = self.storage.range(hand.entity..).next();
            let Some((entity, _)) = next else {
                let is_round = hand.takes_all;
                *hand = Hand {
                    takes_all: !is_round,
                    ..Hand::default()
                };
                return Evicted { runs, is_round };
            };
            let entity = *entity;
            if entity != hand.entity {
                (hand.entity, hand.run) = (entity, 0);
            }
            left -= 1;
            let may = |run, page, is_cold| may((entity, run), page, is_cold);
            let live = &mut self.catalogue.live;
            let from = (hand.run, hand.takes_all);
            let swept = self.storage.sweep(entity, from, &mut left, may, live);
            runs += swept.as_ref().map_or(0, |it| it.evicted);
            match swept.and_then(|it| it.next) {
                Some(run) => hand.run = run,
                None => (hand.entity, hand.run) = (entity.next(), 0),
            }
        }
        Evicted {
            runs,
            is_round: false,
        }
    }
}
