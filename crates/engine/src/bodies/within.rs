//! Which messages and states of sessions have their bytes in a range of the log: for reports of damage.

use std::ops::Range;

use super::{BodyCursor, FoundBody};
use crate::moves::Holder;
use crate::state::State;
use crate::table::{Entry, Missing};
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

/// A part of a search for what needs bytes of the log.
#[derive(Debug, PartialEq, Eq)]
pub struct NeededBodies {
    /// In the order of entities and numbers.
    pub bodies: Vec<NeededBody>,
    /// Where to continue. `None` after the last entity.
    pub next: Option<BodyCursor>,
    /// The messages there whose records are to be read first, of one run.
    pub missing: Missing,
}

impl State {
    /// Finds what has bytes in records of these positions, from a cursor on.
    ///
    /// A step looks at an entity, a run, a message or a session; there must be more than three. Messages are looked at in
    /// runs that have bytes nearby. It ends when the steps are used up, or at a message whose record is not in memory.
    pub fn bodies_within(
        &self,
        positions: &Range<u64>,
        from: BodyCursor,
        steps_max: u32,
    ) -> NeededBodies {
        let units = self.units_around(positions);
        let found = self.all_bodies_in(&units, from, steps_max);
        let within = found.bodies.into_iter();
        let within = within.filter(|body| positions.contains(&body.at.record));
        NeededBodies {
            bodies: within.filter_map(|body| self.needed(body)).collect(),
            next: found.next,
            missing: found.missing,
        }
    }

    fn needed(&self, found: FoundBody) -> Option<NeededBody> {
        let (entity, of) = match found.holder {
            Holder::Message(place) => (place.entity, BodyOwner::Message(place.number)),
            Holder::Session { queue, session } => (queue, BodyOwner::Session(session.into())),
        };
        let stored = self.storage.get(&entity).map(|queue| &queue.name);
        let name = stored.or_else(|| Some(&self.bus.get(&entity)?.name))?;
        Some(NeededBody {
            queue: name.clone(),
            of,
            body: found.at,
        })
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
