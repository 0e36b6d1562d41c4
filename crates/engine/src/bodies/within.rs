//! Which messages and states of sessions have their bytes in records of the log: for reports of damage.

use std::collections::BTreeSet;
use std::ops::Range;

use super::{BodyCursor, FoundBody, Purpose};
use crate::moves::Holder;
use crate::state::State;
use crate::table::{Group, Missing};
use crate::vocabulary::{BodyLocation, EntityName, Incarnation, SequenceNumber};

/// Bytes of the log that a message or a session still needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NeededBody {
    /// The queue or sub-queue.
    pub queue: EntityName,
    /// Which one of this name.
    pub entity: Incarnation,
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
    /// Finds what has bytes in records at these positions, which are in order, from a cursor on.
    ///
    /// A step looks at an entity, a run, a message or a session; there must be more than three. Messages are looked at in
    /// runs that have bytes nearby. It ends when the steps are used up, or at a message whose record is not in memory.
    /// Those of `unread` are passed over.
    pub fn bodies_within(
        &self,
        records: &[Range<u64>],
        unread: &BTreeSet<Group>,
        from: BodyCursor,
        steps_max: u32,
    ) -> NeededBodies {
        let first = records.first().map_or(0, |range| range.start);
        let end = records.last().map_or(0, |range| range.end);
        let units = self.units_around(&(first..end));
        let purpose = Purpose::Report { records, unread };
        let found = self.search(&units, from, (steps_max, u64::MAX), purpose);
        let bodies = found.bodies.into_iter();
        NeededBodies {
            bodies: bodies.filter_map(|body| self.needed(body)).collect(),
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
            entity,
            of,
            body: found.at,
        })
    }

    /// Whether bytes that were needed still are. Those of a message whose record is not in memory may be, if its run has
    /// bytes nearby.
    pub fn needs(&self, needed: &NeededBody) -> bool {
        let NeededBody { entity, body, .. } = needed;
        if self.catalogue.find(&needed.queue) != Some(*entity) {
            return false;
        }
        let bus = self.bus.get(entity);
        match &needed.of {
            BodyOwner::Message(number) => {
                let stored = self.storage.get(entity).map(|it| it.backlog.table());
                let Some(table) = stored.or_else(|| bus.map(|it| it.backlog.table())) else {
                    return false;
                };
                match table.seen(*number) {
                    Some((_, Some(entry))) => entry.bodies().any(|it| it == *body),
                    Some((_, None)) => {
                        let near = self.units_around(&(body.record..body.record + 1));
                        table.has_bytes_near(*number, self.count_unit(), &near)
                    }
                    None => false,
                }
            }
            BodyOwner::Session(id) => {
                let session = bus.and_then(|queue| queue.backlog.sessions.find(id));
                session.is_some_and(|(_, session)| session.state == Some(*body))
            }
        }
    }
}
