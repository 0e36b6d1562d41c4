//! Finds the bodies in a range of positions, a part at a time: to move them, or to say what needs them.

mod within;

use std::collections::BTreeSet;
use std::ops::{ControlFlow, Range};

use crate::bus::BusQueue;
use crate::moves::{EVENTS_SIZE_BYTES, Holder, MovedBodies, moved_size_bytes};
use crate::state::State;
use crate::table::{Entry, Group, Live, Missing, Table};
use crate::vocabulary::{BodyLocation, Hold, Incarnation, Place, SequenceNumber};

pub use within::{BodyOwner, NeededBodies, NeededBody};

/// The most bytes that an event has of a move, without texts and without changes to properties: the place, the message
/// and the two locations.
const MOVE_SIZE_BYTES: u64 = 128;

/// The most bytes that it has of changes to a message's properties: 32 places. A change may come until the body moves.
const CHANGES_SIZE_BYTES: u64 = 512;

/// Where a search for bodies continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BodyCursor {
    entity: Incarnation,
    next: Next,
}

/// What of an entity comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Messages(SequenceNumber),
    Sessions(u32),
}

impl Default for BodyCursor {
    fn default() -> Self {
        Self::at(Incarnation::new(0))
    }
}

impl BodyCursor {
    fn at(entity: Incarnation) -> Self {
        Self {
            entity,
            next: Next::Messages(SequenceNumber::default()),
        }
    }
}

/// A body that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundBody {
    /// What has it.
    pub holder: Holder,
    /// Where it is.
    pub at: BodyLocation,
    /// The most bytes that its move takes in an event.
    pub event_size_bytes: u64,
}

impl FoundBody {
    /// The most bytes of a batch that its move takes, with its bytes.
    pub fn moved_size_bytes(&self) -> u64 {
        moved_size_bytes(self.event_size_bytes, u64::from(self.at.length))
    }
}

/// A part of a search.
#[derive(Debug, PartialEq, Eq)]
pub struct FoundBodies {
    /// The bodies, in the order of entities and numbers.
    pub bodies: Vec<FoundBody>,
    /// Where to continue. `None` after the last entity.
    pub next: Option<BodyCursor>,
    /// The messages there whose records are to be read first, of one run.
    pub missing: Missing,
}

/// What a search is for.
#[derive(Clone, Copy)]
enum Purpose<'a> {
    /// To move bodies. These have moved already.
    Move(&'a MovedBodies),
    /// To say what has bytes in records at these positions, which are in order.
    Report {
        records: &'a [Range<u64>],
        /// Messages that cannot be read, by group.
        unread: &'a BTreeSet<Group>,
    },
}

/// What a part of a search may take, and what it has found.
struct Search<'a> {
    live: &'a Live,
    positions: &'a Range<u64>,
    steps_left: u32,
    size_bytes_left: u64,
    purpose: Purpose<'a>,
    found: Vec<FoundBody>,
    /// Those of them that other messages may have, too, and that have not moved yet.
    shared: BTreeSet<BodyLocation>,
    missing: Missing,
}

impl Search<'_> {
    /// Whether it is for what lies there.
    fn is_for(&self, at: BodyLocation) -> bool {
        self.positions.contains(&at.record)
            && match self.purpose {
                Purpose::Move(_) => true,
                Purpose::Report { records, .. } => {
                    let before = records.partition_point(|range| range.end <= at.record);
                    records
                        .get(before)
                        .is_some_and(|range| range.contains(&at.record))
                }
            }
    }

    /// Whether it passes over messages that are not in memory.
    fn passes_over(&self, group: Group) -> bool {
        match self.purpose {
            Purpose::Move(_) => false,
            Purpose::Report { unread, .. } => unread.contains(&group),
        }
    }

    /// Takes a step. Returns false if there is none left, or if enough was found.
    fn step(&mut self) -> bool {
        let may_go_on = self.steps_left > 0 && self.size_bytes_left > 0;
        self.steps_left = self.steps_left.saturating_sub(1);
        may_go_on
    }

    fn note(&mut self, holder: &Holder, at: BodyLocation, event_size_bytes: u64) {
        let found = FoundBody {
            holder: holder.clone(),
            at,
            event_size_bytes,
        };
        let size_bytes = match self.is_stored(at) {
            None => return,
            Some(true) => event_size_bytes,
            Some(false) => found.moved_size_bytes(),
        };
        self.size_bytes_left = self.size_bytes_left.saturating_sub(size_bytes);
        self.found.push(found);
    }

    /// Whether a body is stored already, or with one that was found. `None` if that cannot be noted: it is found by the next
    /// search.
    fn is_stored(&mut self, at: BodyLocation) -> Option<bool> {
        let moved = match self.purpose {
            Purpose::Move(moved) if at.hold() != Hold::Alone => moved,
            Purpose::Move(_) | Purpose::Report { .. } => return Some(false),
        };
        let place = at.with(Hold::Alone);
        if moved.get(place).is_some() || self.shared.contains(&place) {
            return Some(true);
        }
        let has_room = moved.has_room_for(self.shared.len() + 1);
        has_room.then(|| {
            self.shared.insert(place);
            false
        })
    }

    fn until(self, next: Option<BodyCursor>) -> FoundBodies {
        FoundBodies {
            bodies: self.found,
            next,
            missing: self.missing,
        }
    }
}

impl State {
    /// The range of whole units around a range of positions: bytes are counted in these.
    pub fn units_around(&self, positions: &Range<u64>) -> Range<u64> {
        self.count_unit().around(positions)
    }

    /// Finds bodies whose records lie in a range of whole units, from a cursor on.
    ///
    /// A step looks at an entity, a run, a message or a session; there must be more than three. It ends when the steps
    /// are used up or so many bytes of a batch were found, which the last message may exceed; or at a message whose record is
    /// not in memory. Bodies that have `moved` with another message take no room for their bytes.
    pub fn bodies_in(
        &self,
        positions: &Range<u64>,
        from: BodyCursor,
        (steps_max, size_bytes_max): (u32, u64),
        moved: &MovedBodies,
    ) -> FoundBodies {
        let size_bytes_max = size_bytes_max.saturating_sub(EVENTS_SIZE_BYTES).max(1);
        let purpose = Purpose::Move(moved);
        self.search(positions, from, (steps_max, size_bytes_max), purpose)
    }

    fn search(
        &self,
        positions: &Range<u64>,
        from: BodyCursor,
        (steps_left, size_bytes_left): (u32, u64),
        purpose: Purpose<'_>,
    ) -> FoundBodies {
        let mut search = Search {
            live: &self.catalogue.live,
            positions,
            steps_left,
            size_bytes_left,
            purpose,
            found: Vec::new(),
            shared: BTreeSet::new(),
            missing: Missing::default(),
        };
        let mut cursor = Some(from);
        while let Some(at) = cursor
            && let Some(entity) = self.entity_from(at.entity)
        {
            let at = match entity == at.entity {
                true => at,
                false => BodyCursor::at(entity),
            };
            if !search.step() {
                return search.until(Some(at));
            }
            if let ControlFlow::Break(next) = self.search_entity(entity, at.next, &mut search) {
                return search.until(Some(BodyCursor { entity, next }));
            }
            cursor = Some(BodyCursor::at(entity.next()));
        }
        search.until(None)
    }

    /// The first entity of that incarnation or of a later one.
    pub(crate) fn entity_from(&self, entity: Incarnation) -> Option<Incarnation> {
        let stored = self.storage.range(entity..).next();
        let bus = self.bus.range(entity..).next();
        let stored = stored.map(|(entity, _)| *entity);
        let bus = bus.map(|(entity, _)| *entity);
        stored.into_iter().chain(bus).min()
    }

    fn search_entity(
        &self,
        entity: Incarnation,
        from: Next,
        search: &mut Search<'_>,
    ) -> ControlFlow<Next> {
        if let Some(stored) = self.storage.get(&entity) {
            if let Next::Messages(from) = from {
                let size_bytes = |_: &Entry<'_>| MOVE_SIZE_BYTES;
                let table = stored.backlog.table();
                return search_table(table, entity, from, search, size_bytes);
            }
        } else if let Some(queue) = self.bus.get(&entity) {
            let from = match from {
                Next::Messages(from) => {
                    let size_bytes = |entry: &Entry<'_>| bus_move_size_bytes(queue, entry);
                    let table = queue.backlog.table();
                    search_table(table, entity, from, search, size_bytes)?;
                    0
                }
                Next::Sessions(from) => from,
            };
            return search_sessions(queue, entity, from, search);
        }
        ControlFlow::Continue(())
    }
}

fn bus_move_size_bytes(queue: &BusQueue, entry: &Entry<'_>) -> u64 {
    let session = queue.backlog.sessions.get(entry.record.session);
    let session = session.map_or(0, |session| session.id.len() as u64);
    let source = entry.side.and_then(|side| side.source.as_ref());
    let source = source.map_or(0, |source| source.len() as u64);
    MOVE_SIZE_BYTES + CHANGES_SIZE_BYTES + session + source
}

fn search_table(
    table: &Table,
    entity: Incarnation,
    from: SequenceNumber,
    search: &mut Search<'_>,
    event_size_bytes: impl Fn(&Entry<'_>) -> u64,
) -> ControlFlow<Next> {
    for run in table.runs_from(from) {
        let first = run.range().0.max(from);
        if !search.step() {
            return ControlFlow::Break(Next::Messages(first));
        }
        if !run.spread().is_in(search.live.unit(), search.positions) {
            continue;
        }
        for (number, entry) in run.seen_from(first) {
            if !search.step() {
                return ControlFlow::Break(Next::Messages(number));
            }
            let Some(entry) = entry else {
                if search.passes_over(table.group_of(entity, number)) {
                    continue;
                }
                for (number, _) in run.seen_from(number) {
                    if !search.passes_over(table.group_of(entity, number)) {
                        table.ask(entity, number, &mut search.missing);
                    }
                }
                return ControlFlow::Break(Next::Messages(number));
            };
            let holder = Holder::Message(Place {
                entity,
                number: entry.number,
            });
            for body in entry.bodies() {
                if search.is_for(body) {
                    search.note(&holder, body, event_size_bytes(&entry));
                }
            }
        }
    }
    ControlFlow::Continue(())
}

fn search_sessions(
    queue: &BusQueue,
    entity: Incarnation,
    from: u32,
    search: &mut Search<'_>,
) -> ControlFlow<Next> {
    let sessions = &queue.backlog.sessions;
    let unit = search.live.unit();
    if !sessions.spread().is_in(unit, search.positions) {
        return ControlFlow::Continue(());
    }
    for (number, session) in sessions.iter_from(from) {
        if !search.step() {
            return ControlFlow::Break(Next::Sessions(number));
        }
        if let Some(state) = session.state.filter(|it| search.is_for(*it)) {
            let holder = Holder::Session {
                queue: entity,
                session: session.id(),
            };
            let size_bytes = MOVE_SIZE_BYTES + session.id.len() as u64;
            search.note(&holder, state, size_bytes);
        }
    }
    ControlFlow::Continue(())
}

#[cfg(test)]
mod tests;
