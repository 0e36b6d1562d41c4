//! The bus queues of a partition, with their sub-queues.

use super::queue::BusQueue;
use super::room::CopyChanges;
use super::rules::Topic;
use super::{Moved, MovedOf, OwnHolder};
use crate::catalogue::Catalogue;
use crate::effect::BusSession;
use crate::queues::{self, Queue};
use crate::vocabulary::{BodyLocation, BodyMove, Incarnation, Timestamp};

/// All bus queues and sub-queues.
pub(crate) type Queues = queues::Queues<BusQueue>;

impl Queues {
    /// What the rules of a topic may add to the copies of its messages.
    pub(crate) fn changes_of_copies(&self, topic: Incarnation) -> CopyChanges {
        let topic = self.get(&topic).and_then(|it| it.topic.as_ref());
        topic.map_or(CopyChanges::Nothing, Topic::changes_of_copies)
    }

    /// Whether a session has that state.
    pub(crate) fn has_state(&self, queue: Incarnation, session: &str, body: BodyLocation) -> bool {
        let state = self.get(&queue).and_then(|it| it.backlog.state_of(session));
        state.is_some_and(|(_, state, _)| state == Some(body))
    }

    /// The move of a session's state, if the session is there.
    pub(crate) fn moving_state(
        &self,
        queue: Incarnation,
        session: &str,
        body: BodyMove,
    ) -> Option<Moved> {
        let (number, _, set_at) = self.get(&queue)?.backlog.state_of(session)?;
        let session = BusSession {
            number,
            id: session.into(),
        };
        let of = MovedOf::Own(OwnHolder::State {
            queue,
            session,
            set_at,
        });
        Some(Moved { body, of })
    }

    /// Forgets some ids of a queue that are older than its window. Returns whether it has such a window.
    pub(crate) fn forget_ids(
        &mut self,
        catalogue: &mut Catalogue,
        queue: Incarnation,
        now: Timestamp,
    ) -> bool {
        let Some(entity) = self.get_mut(&queue) else {
            return false;
        };
        let Some(window_ms) = entity.options.duplicate_window_ms else {
            return false;
        };
        entity.duplicates.forget(window_ms, now);
        entity.settle(catalogue, queue);
        true
    }
}
