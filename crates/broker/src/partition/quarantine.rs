//! Messages whose records are damaged in both copies of their page are set aside, so that the others can be served.
//!
//! Only damage counts that checksums show in the bytes of both files. What cannot be read may be read later, a file that is
//! missing may come back, and a newer version reads its own pages.
//!
//! Nothing here is durable: what was not decided yet is met again by the next load.

use std::collections::BTreeMap;
use std::mem;

use kew_engine::{Command, Group, Outcome, PageNumber, Timestamp, Tries, Turn};

use super::Partition;
use super::batch::{Batch, Writing};
use super::space::Space;

/// The most groups that one turn sets aside.
const GROUPS_AT_ONCE: usize = 16;

/// One group more is set aside in a turn while those before it took fewer steps than this: a few milliseconds.
const STEPS_AT_ONCE: u64 = 50_000;

/// Groups that are damaged, each with its page.
#[derive(Debug, Default)]
pub(super) struct Damaged {
    groups: BTreeMap<Group, PageNumber>,
}

impl Damaged {
    pub(super) fn note(&mut self, group: Group, page: PageNumber) {
        self.groups.insert(group, page);
    }

    /// Whether some wait for a turn.
    pub(super) fn awaits_turn(&self) -> bool {
        !self.groups.is_empty()
    }
}

impl<T> Partition<T> {
    /// The commands of the next turn.
    fn to_quarantine(&self) -> impl Iterator<Item = Command> {
        let groups = self.damaged.groups.iter().take(GROUPS_AT_ONCE);
        let groups = groups.scan(0, |steps, found| {
            let has_time = *steps < STEPS_AT_ONCE;
            *steps += self.state.steps_to_quarantine(found.0.entity);
            has_time.then_some(found)
        });
        groups.map(|(group, page)| Command::Quarantine {
            group: *group,
            page: *page,
        })
    }

    /// The room that they need.
    pub(super) fn quarantine_size_bytes(&self) -> u64 {
        let sizes = self.to_quarantine().map(|command| {
            let writes = command.describe().writes;
            writes.size_bytes_max(&self.state)
        });
        sizes.sum()
    }

    /// Sets messages of damaged groups aside, before due work and commands ask for them again. Not on a full disk: there,
    /// who needs them is rejected meanwhile.
    pub(super) fn quarantine(&mut self, now: Timestamp, batch: &mut Batch, space: Space) {
        match space {
            Space::Plenty { .. } => {}
            Space::SettlementOnly { .. } | Space::None => {
                if self.damaged.awaits_turn() {
                    self.loads.warming.pass_over(self.now.boot);
                }
                for group in mem::take(&mut self.damaged.groups).into_keys() {
                    self.loads.note_lost(group);
                }
                return;
            }
        }
        let commands: Vec<Command> = self.to_quarantine().collect();
        for _ in &commands {
            self.damaged.groups.pop_first();
        }
        for command in commands {
            let mut journal = Writing {
                batch,
                log: &*self.log,
                bodies: None,
            };
            let mut turn = Turn::new(&mut self.state, now, &mut journal);
            // It reads no record.
            turn.prepare(&command, &mut Tries::default());
            let decision = turn.decide(command);
            if let Ok(Outcome::Quarantined(count)) = decision.result
                && count > 0
            {
                self.loads.warming.note_set_aside();
                tracing::error!(
                    count,
                    "messages are set aside: both copies of their records are damaged"
                );
            }
        }
    }

    /// How many messages are set aside because their records are lost.
    pub fn quarantined_count(&self) -> u64 {
        self.state.resident().quarantined
    }
}
