//! Which remembered ids of bus queues and topics are in memory.

use super::queues::Queues;
use crate::table::{GroupRead, Leaving, Live, RunId, Swept, Taken, block_of_run, run_of_block};
use crate::vocabulary::{Incarnation, PageNumber, Timestamp};

/// What it takes to evict a block of ids, in steps of 20 ns.
const EVICTION_STEPS: u32 = 50;

/// The newest full blocks stay in memory unless all is taken out of it: most ids that come again come soon.
const SPARED_BLOCKS: u64 = 16;

impl Queues {
    /// Takes the ids of a block that were read.
    pub(crate) fn take_ids(&mut self, block: u64, read: &GroupRead, live: &mut Live) -> Taken {
        let Some(queue) = self.get_physical(&read.entity()) else {
            return Taken::Replaced;
        };
        let taken = queue.duplicates.take_read(block, read);
        queue.count_ids(live);
        taken
    }

    /// Takes records and remembered ids of a queue out of memory: see [`Table::sweep`](crate::table::Table::sweep). The
    /// blocks of its ids come behind its runs.
    pub(crate) fn sweep_all(
        &mut self,
        entity: Incarnation,
        (from, takes_all, far_from): (u64, bool, Timestamp),
        steps: &mut u32,
        may: impl Fn(u64, PageNumber, Leaving) -> bool,
        live: &mut Live,
    ) -> Option<Swept> {
        let mut swept = Swept::default();
        if block_of_run(from).is_none() {
            swept = self.sweep(entity, (from, takes_all, far_from), steps, &may, live)?;
            if swept.next.is_some() {
                return Some(swept);
            }
        }
        let queue = self.get_physical(&entity)?;
        let spared = if takes_all { 0 } else { SPARED_BLOCKS };
        let until = queue.duplicates.newest_block().saturating_sub(spared);
        let mut chosen = Vec::new();
        let from = block_of_run(from).unwrap_or_default();
        for (block, page) in queue.duplicates.evictable(from) {
            if block >= until {
                break;
            }
            if *steps == 0 {
                swept.next = Some(run_of_block(block));
                break;
            }
            *steps -= 1;
            if page.is_some_and(|page| may(run_of_block(block), page, Leaving::Records)) {
                *steps = steps.saturating_sub(EVICTION_STEPS);
                chosen.push(block);
            }
        }
        swept.evicted += chosen.len() as u64;
        for block in chosen {
            queue.duplicates.evict(block);
        }
        queue.count_ids(live);
        Some(swept)
    }

    /// Takes ids out of memory, of each block that has a page and of which `is_evicted` says so.
    pub(crate) fn evict_ids_if(
        &mut self,
        live: &mut Live,
        is_evicted: &mut impl FnMut(RunId, PageNumber, Leaving) -> bool,
    ) {
        let all: Vec<Incarnation> = self.keys().copied().collect();
        for entity in all {
            let Some(queue) = self.get_physical(&entity) else {
                continue;
            };
            let blocks: Vec<_> = queue.duplicates.evictable(0).collect();
            for (block, page) in blocks {
                let run = (entity, run_of_block(block));
                if page.is_some_and(|page| is_evicted(run, page, Leaving::Records)) {
                    queue.duplicates.evict(block);
                }
            }
            queue.count_ids(live);
        }
    }
}
