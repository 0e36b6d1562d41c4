//! Commands that wait until something is read for them, and the order that they keep.
//!
//! A command that waits takes a *lane* for each queue that it names, if it may write, and another one for each queue
//! and the source that it comes from. Later commands that need one of its lanes wait behind it: writers of the same
//! queue, and whatever its own source asks of the same queue. Readers of other sources pass: an answer is as of the
//! moment of its decision, which lies between the request and the answer. A command enters all of its lanes at once, in
//! the order of arrival, and is decided when it is the first in all of them. So there is no cycle.
//!
//! If nothing waits there are no lanes, and a command pays one look.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use kew_engine::{Class, Command, EntityName, Group, Missing, Touches, Tries};
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
}

/// The place of a command among those that wait.
struct Place {
    id: u64,
    keys: Keys,
    tries: u32,
}

/// What a command needs to be the first of.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Lane {
    /// Those that may write to a queue.
    Writers(EntityName),
    /// What a source asks of a queue.
    Of(Source, EntityName),
}

struct Keys {
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
        let mut names: BTreeSet<EntityName> = BTreeSet::new();
        let mut is_about_all = false;
        match description.touches {
            Touches::Queue(name) => names.extend([queue_of(name)]),
            Touches::Transfer { from, to } => {
                names.insert(queue_of(from));
                names.extend(to.map(|to| EntityName {
                    name: to.into(),
                    ..from.clone()
                }));
            }
            Touches::Queues(all) => names.extend(all.into_iter().map(queue_of)),
            Touches::Catalogue | Touches::Account(_) | Touches::Bodies => is_about_all = writes,
        }
        let mut lanes = Vec::new();
        for name in names {
            if writes {
                lanes.push(Lane::Writers(name.clone()));
            }
            if source != Source::ALONE {
                lanes.push(Lane::Of(source, name));
            }
        }
        Self {
            lanes,
            writes,
            is_about_all,
        }
    }

    /// The queues.
    fn queues(&self) -> impl Iterator<Item = &EntityName> {
        self.lanes.iter().map(|lane| match lane {
            Lane::Writers(name) | Lane::Of(_, name) => name,
        })
    }
}

/// A command that waits.
struct Held<T> {
    candidate: Candidate<T>,
    /// What is not read yet.
    missing: Missing,
}

/// The commands that wait, in the order of arrival.
pub(super) struct Lanes<T> {
    held: BTreeMap<u64, Held<T>>,
    lanes: HashMap<Lane, BTreeSet<u64>>,
    about_all: BTreeSet<u64>,
    /// Those that can be decided.
    ready: BTreeSet<u64>,
    /// Those that were tried too often.
    late: BTreeSet<u64>,
    next: u64,
}

impl<T> Default for Lanes<T> {
    fn default() -> Self {
        Self {
            held: BTreeMap::new(),
            lanes: HashMap::new(),
            about_all: BTreeSet::new(),
            ready: BTreeSet::new(),
            late: BTreeSet::new(),
            next: 0,
        }
    }
}

impl<T> Lanes<T> {
    /// Whether nothing waits.
    pub(super) fn is_empty(&self) -> bool {
        self.held.is_empty() && self.lanes.is_empty() && self.about_all.is_empty()
    }

    pub(super) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Whether due work must rest, because it has changed again and again what a command needs.
    pub(super) fn is_any_late(&self) -> bool {
        !self.late.is_empty()
    }

    /// The tickets of those that wait, in the order of arrival.
    pub(super) fn tickets(&self) -> impl Iterator<Item = &T> {
        self.held.values().map(|held| &held.candidate.ticket)
    }

    /// The queues of those that wait.
    pub(super) fn queues(&self) -> BTreeSet<&EntityName> {
        let keys = self.held.values();
        let keys = keys.filter_map(|held| held.candidate.place.as_ref());
        keys.flat_map(|place| place.keys.queues()).collect()
    }

    /// The first command that can be decided.
    pub(super) fn front_mut(&mut self) -> Option<&mut Command> {
        let held = self.held.get_mut(self.ready.first()?)?;
        Some(&mut held.candidate.command)
    }

    /// Takes it. It keeps its lanes until it is [done](Lanes::leave) or waits again.
    pub(super) fn take_front(&mut self) -> Option<Candidate<T>> {
        let id = self.ready.pop_first()?;
        Some(self.held.remove(&id)?.candidate)
    }

    /// Whether a command has to wait behind others, and is not one of those yet.
    pub(super) fn hold_back(&self, source: Source, candidate: &Candidate<T>) -> bool {
        if candidate.place.is_some() || is_planted(Bug::LaneForgotten) {
            return false;
        }
        let keys = Keys::of(source, &candidate.command);
        let is_taken = |lane: &Lane| self.lanes.contains_key(lane);
        keys.is_about_all
            || keys.writes && !self.about_all.is_empty()
            || keys.lanes.iter().any(is_taken)
    }

    /// Lets a command wait for what is missing, and for those before it in its lanes.
    pub(super) fn wait(&mut self, mut candidate: Candidate<T>, source: Source, missing: Missing) {
        let mut place = match candidate.place.take() {
            Some(place) => place,
            None => Box::new(self.enter(Keys::of(source, &candidate.command))),
        };
        place.tries += 1;
        let id = place.id;
        if place.tries > TRIES_MAX && self.late.insert(id) {
            self.let_nothing_pass(&mut place);
        }
        candidate.place = Some(place);
        self.held.insert(id, Held { candidate, missing });
        self.find_ready();
    }

    fn enter(&mut self, keys: Keys) -> Place {
        let id = self.next;
        self.next += 1;
        for lane in &keys.lanes {
            self.lanes.entry(lane.clone()).or_default().insert(id);
        }
        if keys.is_about_all {
            self.about_all.insert(id);
        }
        Place { id, keys, tries: 0 }
    }

    /// Makes a reader that was tried too often a writer: nothing of its queues changes until it was decided.
    fn let_nothing_pass(&mut self, place: &mut Place) {
        let queues: BTreeSet<EntityName> = place.keys.queues().cloned().collect();
        for queue in queues {
            let lane = Lane::Writers(queue);
            if !place.keys.lanes.contains(&lane) {
                self.lanes.entry(lane.clone()).or_default().insert(place.id);
                place.keys.lanes.push(lane);
            }
        }
    }

    /// Ends the wait of a command, if it has waited.
    pub(super) fn leave(&mut self, candidate: &mut Candidate<T>) {
        let Some(place) = candidate.place.take() else {
            return;
        };
        let Place { id, keys, .. } = *place;
        for lane in keys.lanes {
            if let Some(all) = self.lanes.get_mut(&lane) {
                all.remove(&id);
                if all.is_empty() {
                    self.lanes.remove(&lane);
                }
            }
        }
        self.about_all.remove(&id);
        self.late.remove(&id);
        self.find_ready();
    }

    fn find_ready(&mut self) {
        let ready = self.held.iter().filter(|(id, held)| {
            let place = held.candidate.place.as_deref();
            held.missing.is_empty() && place.is_some_and(|place| self.is_first(**id, place))
        });
        self.ready = ready.map(|(id, _)| *id).collect();
    }

    fn is_first(&self, id: u64, place: &Place) -> bool {
        let keys = &place.keys;
        let is_first_of = |all: &BTreeSet<u64>| all.first().is_none_or(|first| *first >= id);
        let mut lanes = keys.lanes.iter().filter_map(|lane| self.lanes.get(lane));
        let is_behind_all = self
            .held
            .first_key_value()
            .is_none_or(|(first, _)| *first >= id);
        lanes.all(is_first_of)
            && (!keys.writes || is_first_of(&self.about_all))
            && (!keys.is_about_all || is_behind_all)
    }

    /// Notes that a group was read, or is gone. If it could not be read, returns the tickets of those that need it:
    /// nothing was done for them, and the next command that needs it tries again.
    pub(super) fn note_read(&mut self, group: Group, is_read: bool) -> Vec<T> {
        let mut failed = Vec::new();
        for (id, held) in &mut self.held {
            if held.missing.groups.remove(&group) && !is_read {
                failed.push(*id);
            }
        }
        let failed = failed.into_iter().filter_map(|id| self.held.remove(&id));
        let failed: Vec<_> = failed.map(|held| held.candidate).collect();
        let tickets = failed.into_iter().map(|mut candidate| {
            self.leave(&mut candidate);
            candidate.ticket
        });
        let tickets = tickets.collect();
        self.find_ready();
        tickets
    }

    /// Takes all of them.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = T> + use<T> {
        let all = std::mem::take(self);
        all.held.into_values().map(|held| held.candidate.ticket)
    }
}
