//! Records of messages that are not in memory: which of them, and in which order commands wait for them.

use std::collections::BTreeSet;

use kew_broker::{Rejection, Reply};
use kew_engine::{Class, EntityName, Sealing, Touches};

use super::World;
use crate::checker::{Violation, promise, violated};
use crate::rare::Rare;

/// How often a command is tried at most. Each try waits for a read: of what is due before the command, or of its own.
const TRIES_MAX: u32 = 200;

impl World {
    /// Takes records out of memory, from time to time: of each run, or of none.
    pub(super) fn take_out_of_memory(&mut self) {
        let per_mille = self.swarm.cold_per_mille;
        if per_mille == 0 || !self.cold.happens(per_mille) {
            return;
        }
        let (cold, reads_fail) = (&mut self.cold, self.reads_fail);
        self.partition.seal(|_| match cold.below(16) {
            0..8 => Sealing::Write,
            8 if reads_fail => Sealing::WriteFailing,
            8 => Sealing::Write,
            9..14 => Sealing::Forget,
            _ => Sealing::Stay,
        });
    }

    /// The commands that wait for a read, in the order in which they came.
    pub(super) fn waiting(&self) -> Vec<u64> {
        self.partition.waiting().copied().collect()
    }

    /// Due work holds no command back for long: a command is tried a bounded number of times, also if work becomes due
    /// faster than it is read.
    pub(super) fn check_tries(&self) -> Result<(), Violation> {
        for (id, tries) in self.partition.tries() {
            if tries > TRIES_MAX {
                return violated!(promise::LIVENESS, "operation {id} was tried {tries} times");
            }
        }
        Ok(())
    }

    /// The commands that a turn has decided, in order: those that had waited come first. None of those that wait was
    /// passed by a later one that may write to the same queue.
    pub(super) fn decided(
        &mut self,
        waited: &[u64],
        taken: &[u64],
        replies: &[(u64, Reply)],
    ) -> Result<Vec<u64>, Violation> {
        let waiting = self.waiting();
        if waiting.is_empty() && waited.is_empty() {
            return Ok(taken.to_vec());
        }
        self.report.rare.note(Rare::WaitedForRead);
        let waits: BTreeSet<u64> = waiting.iter().copied().collect();
        let came = waited.iter().chain(taken);
        let mut before: Vec<u64> = Vec::new();
        let mut decided = Vec::new();
        for id in came {
            if waits.contains(id) {
                before.push(*id);
                continue;
            }
            decided.push(*id);
            self.report
                .rare
                .note_if(!before.is_empty(), Rare::PassedWhileWaiting);
            // Such a rejection changes nothing.
            let is_rejected = |(of, reply): &(u64, Reply)| {
                of == id && matches!(reply, Err(Rejection::Full | Rejection::ReadFailed))
            };
            let own = match replies.iter().any(is_rejected) {
                true => BTreeSet::new(),
                false => self.writes_to(*id),
            };
            let meets = |it: &&u64| !self.writes_to(**it).is_disjoint(&own);
            if let Some(passed) = before.iter().find(meets) {
                return violated!(
                    promise::ORDER,
                    "operation {id} was decided before {passed}, which came first"
                );
            }
        }
        Ok(decided)
    }

    /// The queues that an operation may write to, those of all parts of a transaction.
    fn writes_to(&self, id: u64) -> BTreeSet<EntityName> {
        let Some(asked) = self.history.get(&id) else {
            return BTreeSet::new();
        };
        let description = asked.operation.command.describe();
        if description.class == Class::Read {
            return BTreeSet::new();
        }
        let queue_of = |name: &EntityName| {
            let queue = name.name.split("/$").next().unwrap_or_default();
            EntityName {
                name: queue.into(),
                ..name.clone()
            }
        };
        match description.touches {
            Touches::Queue(name) => BTreeSet::from([queue_of(name)]),
            Touches::Transfer { from, to } => {
                let to = to.map(|to| EntityName {
                    name: to.into(),
                    ..from.clone()
                });
                [queue_of(from)].into_iter().chain(to).collect()
            }
            Touches::Queues(names) => names.into_iter().map(queue_of).collect(),
            Touches::Catalogue | Touches::Account(_) | Touches::Bodies => BTreeSet::new(),
        }
    }
}
