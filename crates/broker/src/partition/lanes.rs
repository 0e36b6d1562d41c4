//! Commands that wait until something is read for them, and the order that they keep.
//!
//! A command that waits takes a *lane* for each queue that it names, if it may write and misses records, and another one
//! for each queue and the source that it comes from. Later commands that need one of its lanes wait behind it: writers of
//! the same queue, and whatever its own source asks of the same queue. Readers of other sources pass: an answer is as of
//! the moment of its decision, which lies between the request and the answer. A command enters all of its lanes at once,
//! in the order of arrival, and is decided when it is the first in all of them. So there is no cycle.
//!
//! A command that takes messages from the head of a queue, and misses nothing but their bodies, only holds back others
//! that take from there. Sends go behind the messages that it waits for, and settlements and renewals are about others.
//! It chooses again when the bodies are there. A writer that waits only because its own source has such a command before
//! it holds nobody else back: it waits *aside*, until one that came before it begins to hold writers back.
//!
//! If nothing waits there are no lanes, and a command pays one look. Otherwise only those are looked at that may have
//! become the first of a lane.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use kew_engine::bus::{Receives, Unread};
use kew_engine::{Class, Command, EntityName, Incarnation, Missing, RunId, Touches, Tries};
use kew_planted::{Bug, is_planted};

use crate::Source;

/// After so many tries, nothing of its queues changes any more until a command was decided.
const TRIES_MAX: u32 = 8;

/// A command on its way to a decision.
pub(super) struct Candidate<T> {
    pub(super) ticket: T,
    pub(super) command: Command,
    pub(super) tries: Tries,
    /// Set if it has waited. Most commands do not wait, and are moved as they are.
    place: Option<Box<Place>>,
}

impl<T> Candidate<T> {
    pub(super) fn new(ticket: T, command: Command) -> Self {
        Self {
            ticket,
            command,
            tries: Tries::default(),
            place: None,
        }
    }

    /// Whether it was tried before.
    pub(super) fn has_waited(&self) -> bool {
        self.place.is_some()
    }
}

/// The place of a command among those that wait.
struct Place {
    id: u64,
    keys: Keys,
    /// The lanes that it is in.
    lanes: Vec<Lane>,
    tries: u32,
    /// The runs that it has asked for. What was read of them stays in memory.
    pins: BTreeSet<RunId>,
}

/// What a command needs to be the first of.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Lane {
    /// Those that may write to a queue.
    Writers(EntityName),
    /// Those that take messages from the head of a queue.
    Takers(EntityName),
    /// What a source asks of a queue.
    Of(Source, EntityName),
}

struct Keys {
    /// The queues that it touches.
    queues: BTreeSet<EntityName>,
    /// Its lanes without those of writers.
    lanes: Vec<Lane>,
    writes: bool,
    /// Whether it waits for all, and all writers for it: it is about a whole account, or about all of them.
    is_about_all: bool,
}

/// The queue that a name is, or is a sub-queue of: a message may become a dead letter.
fn queue_of(name: &EntityName) -> EntityName {
    let queue = name.name.split_once("/$").map(|(queue, _)| queue);
    EntityName {
        name: queue.unwrap_or(&name.name).into(),
        ..name.clone()
    }
}

impl Keys {
    fn of(source: Source, command: &Command) -> Self {
        let description = command.describe();
        let writes = description.class != Class::Read;
        let receives = matches!(description.receives, Some(Receives::Messages { .. }));
        let takes = writes && (description.needs_bodies || receives);
        let mut queues: BTreeSet<EntityName> = BTreeSet::new();
        let mut is_about_all = false;
        match description.touches {
            Touches::Queue(name) => queues.extend([queue_of(name)]),
            Touches::Transfer { from, to } => {
                queues.insert(queue_of(from));
                queues.extend(to.map(|to| EntityName {
                    name: to.into(),
                    ..from.clone()
                }));
            }
            Touches::Queues(all) => queues.extend(all.into_iter().map(queue_of)),
            Touches::Catalogue | Touches::Account(_) | Touches::Bodies => is_about_all = writes,
        }
        let mut lanes = Vec::new();
        for queue in &queues {
            if takes {
                lanes.push(Lane::Takers(queue.clone()));
            }
            if source != Source::ALONE {
                lanes.push(Lane::Of(source, queue.clone()));
            }
        }
        Self {
            queues,
            lanes,
            writes,
            is_about_all,
        }
    }

    /// The lanes of writers of its queues.
    fn of_writers(&self) -> impl Iterator<Item = Lane> {
        self.queues.iter().map(|queue| Lane::Writers(queue.clone()))
    }

    /// Whether it holds all writers back while it waits for this. A writer that misses nothing waits for its own source
    /// alone, and others may pass it.
    fn holds_writers_back(&self, missing: &Missing) -> bool {
        self.writes && !missing.groups.is_empty()
    }
}

/// A command that waits.
struct Held<T> {
    candidate: Candidate<T>,
    /// Whether records are not read yet.
    awaits_records: bool,
    /// Whether bodies are not read yet.
    awaits_bodies: bool,
}

/// The commands that wait, in the order of arrival.
pub(super) struct Lanes<T> {
    held: BTreeMap<u64, Held<T>>,
    /// Those in each lane. The one that is being decided is still in its lanes.
    lanes: HashMap<Lane, BTreeSet<u64>>,
    /// Those that may write to a queue, and are not in its lane of writers.
    aside: HashMap<EntityName, BTreeSet<u64>>,
    about_all: BTreeSet<u64>,
    /// Those that can be decided.
    ready: BTreeSet<u64>,
    /// Those that were tried too often.
    late: BTreeMap<u64, BTreeSet<EntityName>>,
    /// How many commands have asked for a run and are not decided.
    pins: BTreeMap<RunId, usize>,
    next: u64,
    /// How often a command was looked at.
    #[cfg(test)]
    looks: u64,
}

impl<T> Default for Lanes<T> {
    fn default() -> Self {
        Self {
            held: BTreeMap::new(),
            lanes: HashMap::new(),
            aside: HashMap::new(),
            about_all: BTreeSet::new(),
            ready: BTreeSet::new(),
            late: BTreeMap::new(),
            pins: BTreeMap::new(),
            next: 0,
            #[cfg(test)]
            looks: 0,
        }
    }
}

impl<T> Lanes<T> {
    /// Whether nothing waits.
    pub(super) fn is_empty(&self) -> bool {
        self.held.is_empty()
            && self.lanes.is_empty()
            && self.aside.is_empty()
            && self.about_all.is_empty()
    }

    pub(super) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Whether a command was tried too often.
    pub(super) fn is_any_late(&self) -> bool {
        !self.late.is_empty()
    }

    /// The queues of commands that were tried too often: due work has changed again and again what they need.
    pub(super) fn late_queues(&self) -> BTreeSet<&EntityName> {
        self.late.values().flatten().collect()
    }

    /// The tickets of those that wait, in the order of arrival.
    pub(super) fn tickets(&self) -> impl Iterator<Item = &T> {
        self.held.values().map(|held| &held.candidate.ticket)
    }

    /// The tickets of those whose records are not read yet.
    pub(super) fn waiting_for_records(&self) -> impl Iterator<Item = &T> {
        let held = self.held.values();
        held.filter(|held| held.awaits_records)
            .map(|held| &held.candidate.ticket)
    }

    /// How often each was tried.
    pub(super) fn tries(&self) -> impl Iterator<Item = (&T, u32)> {
        self.held.values().map(|held| {
            let tries = held.candidate.place.as_ref().map_or(0, |place| place.tries);
            (&held.candidate.ticket, tries)
        })
    }

    /// Whether a command that is not decided has asked for a run.
    pub(super) fn is_pinned(&self, run: RunId) -> bool {
        self.pins.contains_key(&run)
    }

    /// The first command that can be decided.
    pub(super) fn front_mut(&mut self) -> Option<&mut Command> {
        let held = self.held.get_mut(self.ready.first()?)?;
        Some(&mut held.candidate.command)
    }

    /// Takes it. It keeps its lanes until it is [done](Lanes::leave) or waits again.
    pub(super) fn take_front(&mut self) -> Option<Candidate<T>> {
        let id = *self.ready.first()?;
        self.take(id)
    }

    /// Takes a command that waits. It keeps its lanes until it is [done](Lanes::leave) or waits again.
    pub(super) fn take(&mut self, id: u64) -> Option<Candidate<T>> {
        self.ready.remove(&id);
        let held = self.held.remove(&id)?;
        Some(held.candidate)
    }

    /// Whether a command has to wait behind others, and is not one of those yet.
    pub(super) fn hold_back(&self, source: Source, candidate: &Candidate<T>) -> bool {
        if candidate.place.is_some() || is_planted(Bug::LaneForgotten) {
            return false;
        }
        let keys = Keys::of(source, &candidate.command);
        keys.is_about_all
            || keys.writes && !self.about_all.is_empty()
            || keys.lanes.iter().any(|lane| self.is_taken(lane))
            || keys.writes && keys.of_writers().any(|lane| self.is_taken(&lane))
    }

    fn is_taken(&self, lane: &Lane) -> bool {
        self.lanes.contains_key(lane)
    }

    /// Lets a command wait for what is missing, and for those before it in its lanes. Returns its number.
    pub(super) fn wait(
        &mut self,
        mut candidate: Candidate<T>,
        source: Source,
        missing: &Missing,
    ) -> u64 {
        let mut place = match candidate.place.take() {
            Some(mut place) => {
                self.change_lanes(&mut place, missing);
                place
            }
            None => Box::new(self.enter(Keys::of(source, &candidate.command), missing)),
        };
        place.tries += 1;
        let id = place.id;
        if place.tries > TRIES_MAX && !self.late.contains_key(&id) {
            // Nothing of its queues changes until it was decided.
            self.late.insert(id, place.keys.queues.clone());
            self.hold_writers_back(&mut place);
        }
        for group in missing.groups.keys() {
            if place.pins.insert(group.run()) {
                *self.pins.entry(group.run()).or_default() += 1;
            }
        }
        candidate.place = Some(place);
        let held = Held {
            candidate,
            awaits_records: !missing.groups.is_empty(),
            awaits_bodies: !missing.bodies.is_empty(),
        };
        self.held.insert(id, held);
        self.look_at(id);
        self.look_at_all_behind(id);
        id
    }

    fn enter(&mut self, keys: Keys, missing: &Missing) -> Place {
        let id = self.take_number();
        let mut lanes = keys.lanes.clone();
        let waits_for_writers = || keys.of_writers().any(|lane| self.is_taken(&lane));
        if keys.holds_writers_back(missing) || keys.writes && waits_for_writers() {
            lanes.extend(keys.of_writers());
        } else {
            self.step_aside(id, &keys);
        }
        for lane in &lanes {
            self.lanes.entry(lane.clone()).or_default().insert(id);
        }
        if keys.is_about_all {
            self.about_all.insert(id);
        }
        Place {
            id,
            keys,
            lanes,
            tries: 0,
            pins: BTreeSet::new(),
        }
    }

    /// Lets a command that was tried hold writers back, or not any more, by what it misses now.
    fn change_lanes(&mut self, place: &mut Place, missing: &Missing) {
        if place.keys.holds_writers_back(missing) {
            self.hold_writers_back(place);
        } else if !self.late.contains_key(&place.id) {
            let is_kept = |lane: &mut Lane| matches!(lane, Lane::Takers(_) | Lane::Of(..));
            let left: Vec<Lane> = place.lanes.extract_if(.., |lane| !is_kept(lane)).collect();
            self.leave_lanes(place.id, left);
            self.step_aside(place.id, &place.keys);
        }
    }

    /// Makes a command a writer of its queues, also if it reads. Writers that came after it and have waited aside come
    /// behind it.
    fn hold_writers_back(&mut self, place: &mut Place) {
        let id = place.id;
        for queue in &place.keys.queues {
            let lane = Lane::Writers(queue.clone());
            if place.lanes.contains(&lane) {
                continue;
            }
            self.leave_aside(id, queue);
            let all = self.lanes.entry(lane.clone()).or_default();
            let mut before = self.aside.remove(queue).unwrap_or_default();
            let behind = before.split_off(&id);
            if !before.is_empty() {
                self.aside.insert(queue.clone(), before);
            }
            for behind in behind {
                let held = self.held.get_mut(&behind);
                if let Some(place) = held.and_then(|held| held.candidate.place.as_mut()) {
                    place.lanes.push(lane.clone());
                    all.insert(behind);
                }
            }
            for behind in all.range(id..) {
                self.ready.remove(behind);
            }
            all.insert(id);
            place.lanes.push(lane);
        }
    }

    fn step_aside(&mut self, id: u64, keys: &Keys) {
        let queues = keys.queues.iter().filter(|_| keys.writes);
        for queue in queues {
            self.aside.entry(queue.clone()).or_default().insert(id);
        }
    }

    fn leave_aside(&mut self, id: u64, queue: &EntityName) {
        if let Some(aside) = self.aside.get_mut(queue) {
            aside.remove(&id);
            if aside.is_empty() {
                self.aside.remove(queue);
            }
        }
    }

    fn leave_lanes(&mut self, id: u64, lanes: Vec<Lane>) {
        let mut next = BTreeSet::new();
        for lane in lanes {
            if let Some(all) = self.lanes.get_mut(&lane) {
                all.remove(&id);
                match all.first() {
                    Some(first) => drop(next.insert(*first)),
                    None => drop(self.lanes.remove(&lane)),
                }
            }
        }
        for id in next {
            self.look_at(id);
        }
    }

    /// Ends the wait of a command, if it has waited. Returns its number.
    pub(super) fn leave(&mut self, candidate: &mut Candidate<T>) -> Option<u64> {
        let Place {
            id,
            keys,
            lanes,
            pins,
            ..
        } = *candidate.place.take()?;
        for queue in &keys.queues {
            self.leave_aside(id, queue);
        }
        for run in pins {
            if let Some(count) = self.pins.get_mut(&run) {
                *count -= 1;
                if *count == 0 {
                    self.pins.remove(&run);
                }
            }
        }
        self.late.remove(&id);
        self.leave_lanes(id, lanes);
        if self.about_all.remove(&id) {
            // All writers may have waited for it.
            let all: Vec<u64> = self.held.keys().copied().collect();
            for id in all {
                self.look_at(id);
            }
        }
        self.look_at_all_behind(id);
        Some(id)
    }

    /// Looks whether a command can be decided.
    fn look_at(&mut self, id: u64) {
        #[cfg(test)]
        {
            self.looks += 1;
        }
        let is_ready = self.held.get(&id).is_some_and(|held| {
            let place = held.candidate.place.as_deref();
            let has_all = !held.awaits_records && !held.awaits_bodies;
            has_all && place.is_some_and(|place| self.is_first(id, place))
        });
        if is_ready {
            self.ready.insert(id);
        } else {
            self.ready.remove(&id);
        }
    }

    /// Looks at the first command that waits for all, after another one came back or was decided.
    fn look_at_all_behind(&mut self, id: u64) {
        if let Some(all) = self.about_all.first().copied()
            && all > id
        {
            self.look_at(all);
        }
    }

    fn is_first(&self, id: u64, place: &Place) -> bool {
        let keys = &place.keys;
        let is_first_of = |all: &BTreeSet<u64>| all.first().is_none_or(|first| *first >= id);
        let mut lanes = place.lanes.iter().filter_map(|lane| self.lanes.get(lane));
        let is_behind_all = self
            .held
            .first_key_value()
            .is_none_or(|(first, _)| *first >= id);
        lanes.all(is_first_of)
            && (!keys.writes || is_first_of(&self.about_all))
            && (!keys.is_about_all || is_behind_all)
    }

    /// Lets a command go on without the due work of an entity that cannot be read. Returns false if it needs that itself, or
    /// can be tried again. One that has to come behind due work looks for itself, once all of that was read or is lost.
    pub(super) fn goes_on_without(&mut self, id: u64, entity: Incarnation, why: Unread) -> bool {
        let held = self.held.get_mut(&id);
        held.is_some_and(|held| {
            let tries = &mut held.candidate.tries;
            why == Unread::Lost && tries.comes_behind_due() || tries.leave_due_alone(entity, why)
        })
    }

    /// Notes that a command waits for no records any more.
    pub(super) fn note_records(&mut self, id: u64) {
        if let Some(held) = self.held.get_mut(&id) {
            held.awaits_records = false;
            self.look_at(id);
        }
    }

    /// A number for what waits as commands do, and comes behind those that wait already.
    pub(super) fn take_number(&mut self) -> u64 {
        let number = self.next;
        self.next += 1;
        number
    }

    /// Notes that the bodies are in memory that a command waits for.
    pub(super) fn note_bodies(&mut self, id: u64) {
        if let Some(held) = self.held.get_mut(&id) {
            held.awaits_bodies = false;
            self.look_at(id);
        }
    }

    /// Takes all of them.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = T> + use<T> {
        let all = std::mem::take(self);
        all.held.into_values().map(|held| held.candidate.ticket)
    }
}

#[cfg(test)]
mod tests;
