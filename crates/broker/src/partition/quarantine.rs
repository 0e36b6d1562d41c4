//! Messages whose records are damaged in both copies of their page are set aside, so that the others can be served.
//!
//! Only damage counts that checksums show in the bytes of both files. What cannot be read may be read later, a file that is
//! missing may come back, and a newer version reads its own pages.
//!
//! Nothing here is durable: what was not decided yet is met again by the next load, or by the next start.

use std::collections::{BTreeMap, BTreeSet};

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
    /// Those of them that a start has met. Of a session, nobody asks for them again.
    of_start: BTreeSet<Group>,
    /// Whether those that are left wait for space on the disk.
    waits_for_space: bool,
}

impl Damaged {
    /// Those that a start has met.
    pub(super) fn of_start(groups: Vec<(Group, PageNumber)>) -> Self {
        Self {
            of_start: groups.iter().map(|(group, _)| *group).collect(),
            groups: groups.into_iter().collect(),
            waits_for_space: false,
        }
    }

    pub(super) fn note(&mut self, group: Group, page: PageNumber) {
        self.groups.insert(group, page);
        self.waits_for_space = false;
    }

    /// Whether some wait for a turn.
    pub(super) fn awaits_turn(&self) -> bool {
        !self.groups.is_empty() && !self.waits_for_space
    }

    /// All of them count as lost while there is no space. Those that a start has met wait for it, and the others are met
    /// again by who needs them.
    fn wait_for_space(&mut self) -> Vec<Group> {
        let all = self.groups.keys().copied().collect();
        self.groups.retain(|group, _| self.of_start.contains(group));
        self.waits_for_space = true;
        all
    }

    /// Notes that one was set aside. Returns whether it was the last one of its entity that a start has met.
    fn end(&mut self, group: Group) -> bool {
        self.groups.remove(&group);
        let was_of_start = self.of_start.remove(&group);
        let mut left = self.of_start.iter();
        was_of_start && !left.any(|it| it.entity == group.entity)
    }
}

impl<T> Partition<T> {
    /// The commands of the next turn.
    fn to_quarantine(&self) -> impl Iterator<Item = (Group, Command)> {
        let groups = self.damaged.groups.iter().take(GROUPS_AT_ONCE);
        let groups = groups.scan(0, |steps, found| {
            let has_time = *steps < STEPS_AT_ONCE;
            *steps += self.state.steps_to_quarantine(found.0.entity);
            has_time.then_some(found)
        });
        groups.map(|(group, page)| {
            let (group, page) = (*group, *page);
            (group, Command::Quarantine { group, page })
        })
    }

    /// The room that they need.
    pub(super) fn quarantine_size_bytes(&self) -> u64 {
        let sizes = self.to_quarantine().map(|(_, command)| {
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
                for group in self.damaged.wait_for_space() {
                    self.loads.note_lost(group);
                }
                return;
            }
        }
        self.damaged.waits_for_space = false;
        let commands: Vec<(Group, Command)> = self.to_quarantine().collect();
        for (group, command) in commands {
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
            if self.damaged.end(group) {
                self.state.end_damaged(group.entity);
            }
        }
    }

    /// How many messages are set aside because their records are lost.
    pub fn quarantined_count(&self) -> u64 {
        self.state.resident().quarantined
    }
}
