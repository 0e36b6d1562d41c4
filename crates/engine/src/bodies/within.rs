//! Which messages and states of sessions have their bytes in a range of the log: for reports of damage.

use std::ops::Range;

use crate::state::State;
use crate::table::Entry;
use crate::vocabulary::{BodyLocation, EntityName, SequenceNumber};

/// Bytes of the log that a message or a session still needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NeededBody {
    /// The queue or sub-queue.
    pub queue: EntityName,
    /// The message or the session.
    pub of: BodyOwner,
    /// Where they are.
    pub body: BodyLocation,
}

/// What needs bytes of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BodyOwner {
    /// A message: its body, or a change to its properties.
    Message(SequenceNumber),
    /// The state of a session, by the session's id.
    Session(String),
}

impl State {
    /// What has bytes in records of these positions, of messages whose records are in memory. Looks at all runs, and at messages of the runs that have bytes
    /// nearby: about 20 ns for a run.
    pub fn bodies_within(&self, positions: Range<u64>) -> impl Iterator<Item = NeededBody> + '_ {
        let units = self.catalogue.live.units_of(&positions);
        let near = units.clone();
        let stored = self.storage.values().flat_map(move |queue| {
            let messages = queue.backlog.messages_near(near.clone());
            messages.map(|(number, message)| (&queue.name, number, vec![message.body]))
        });
        let bus = self.bus.values().flat_map(move |queue| {
            let messages = queue.backlog.bodies_near(units.clone());
            messages.map(|(number, bodies)| (&queue.name, number, bodies))
        });
        let within = positions.clone();
        let of_messages = stored
            .chain(bus)
            .flat_map(move |(queue, number, mut bodies)| {
                // Most of them lie elsewhere, and a name costs an allocation.
                bodies.retain(|body: &BodyLocation| within.contains(&body.record));
                bodies.into_iter().map(move |body| NeededBody {
                    queue: queue.clone(),
                    of: BodyOwner::Message(number),
                    body,
                })
            });
        let of_sessions = self.bus.session_states().map(|state| NeededBody {
            queue: state.queue_name,
            of: BodyOwner::Session(state.session.id.to_string()),
            body: state.body,
        });
        let all = of_messages.chain(of_sessions);
        all.filter(move |needed| positions.contains(&needed.body.record))
    }

    /// Whether bytes that were needed still are. Those of a message whose record is not in memory are: a body that cannot be
    /// read does not move.
    pub fn needs(&self, needed: &NeededBody) -> bool {
        let Some(queue) = self.catalogue.find(&needed.queue) else {
            return false;
        };
        let bus = self.bus.get(&queue);
        match &needed.of {
            BodyOwner::Message(number) => {
                let stored = self.storage.get(&queue).map(|it| it.backlog.table());
                let table = stored.or_else(|| bus.map(|it| it.backlog.table()));
                let has = |entry: Option<Entry<'_>>| {
                    entry.is_none_or(|it| it.bodies().any(|body| body == needed.body))
                };
                let seen = table.and_then(|table| table.seen(*number));
                seen.is_some_and(|(_, entry)| has(entry))
            }
            BodyOwner::Session(id) => {
                let session = bus.and_then(|queue| queue.backlog.sessions.find(id));
                session.is_some_and(|(_, session)| session.state == Some(needed.body))
            }
        }
    }
}
