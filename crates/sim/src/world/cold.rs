//! Records of messages that are not in memory: which of them, and in which order commands wait for them.

use std::collections::BTreeSet;

use kew_broker::{Rejection, Reply, Target};
use kew_engine::{Class, Command, Sealing};

use super::World;
use crate::checker::{Violation, promise, violated};
use crate::rare::Rare;

impl World {
    /// Takes records out of memory, from time to time: of each run, or of none.
    pub(super) fn take_out_of_memory(&mut self) {
        let per_mille = self.swarm.cold_per_mille;
        if per_mille == 0 || !self.cold.happens(per_mille) {
            return;
        }
        let cold = &mut self.cold;
        self.partition.seal(|_| match cold.below(16) {
            0..8 => Sealing::Write,
            8 => Sealing::WriteFailing,
            9..14 => Sealing::Forget,
            _ => Sealing::Stay,
        });
    }

    /// The commands that wait for a read, in the order in which they came.
    pub(super) fn waiting(&self) -> Vec<u64> {
        self.partition.waiting().copied().collect()
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
            // A refusal for want of room changes nothing.
            let is_full =
                |(of, reply): &(u64, Reply)| of == id && matches!(reply, Err(Rejection::Full));
            let own = self.writes_to(*id).filter(|_| !replies.iter().any(is_full));
            if own.is_some()
                && let Some(passed) = before.iter().find(|it| self.writes_to(**it) == own)
            {
                return violated!(
                    promise::ORDER,
                    "operation {id} was decided before {passed}, which came first"
                );
            }
        }
        Ok(decided)
    }

    /// The queue that an operation may write to first.
    fn writes_to(&self, id: u64) -> Option<Target> {
        let command: &Command = &self.history.get(&id)?.operation.command;
        (command.describe().class != Class::Read).then(|| Target::of(command))
    }
}
