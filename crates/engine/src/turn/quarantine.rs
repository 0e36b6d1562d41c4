//! Decides that messages are set aside whose records are lost.

use super::{Decision, Turn, in_catalogue};
use crate::event::Fact;
use crate::outcome::Outcome;
use crate::state::State;
use crate::table::{Group, Slots};
use crate::vocabulary::{Incarnation, PageNumber, SequenceNumber};

impl Turn<'_> {
    /// Sets the messages of a group aside of which there is no record, if the damaged page still is the one of their run.
    /// The event names them: what is in memory differs between copies of the state, and after a start.
    pub(super) fn quarantine(&mut self, group: Group, page: PageNumber) -> Decision {
        let lost = self.state.lost_in(group, page);
        let count = lost.map_or(0, |(_, messages)| messages.count_ones());
        if let Some((first, messages)) = lost {
            self.emit(Fact::Quarantined {
                entity: group.entity,
                first,
                messages,
            });
        }
        in_catalogue(Ok(Outcome::Quarantined(count)))
    }

    /// Ends a run of a bus queue in which nothing is left but messages that were set aside.
    pub(super) fn end_lost(&mut self, entity: Incarnation, run: u64) {
        let queue = self.state.bus.get(&entity);
        let number = queue.map(|queue| queue.backlog.table().first_of_run(run));
        if let Some(number) = number {
            self.emit(Fact::RunLost { entity, number });
        }
    }
}

impl State {
    /// Whether all of these messages can be set aside, of a group that is damaged on a page.
    pub fn can_quarantine(&self, group: Group, page: PageNumber, wanted: Slots) -> bool {
        let lost = self.lost_in(group, page);
        // What is gone or in memory by now needs no page.
        let needed = self.to_read(group, wanted).map_or(0, |it| it.wanted());
        needed & !lost.map_or(0, |(_, messages)| messages) == 0
    }

    fn lost_in(&self, group: Group, page: PageNumber) -> Option<(SequenceNumber, Slots)> {
        if let Some(queue) = self.storage.get(&group.entity) {
            return queue.backlog.lost_in(group, page);
        }
        let queue = self.bus.get(&group.entity)?;
        queue.backlog.lost_in(group, page)
    }
}
